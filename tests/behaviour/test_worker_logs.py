"""What the logger `quire.workers` tells: queue, message, and what became of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.json_log import JsonLines
from tests.behaviour.forms import FORMS, WITH_CALLBACKS, AnyStore


@pytest.fixture(params=WITH_CALLBACKS)
def threaded(owner: Store, request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    """Any of them but those for asyncio, which has tasks instead."""
    with FORMS[request.param](owner) as store:
        yield store


LATER = "comes again later"
DEAD = "in 'dead'"


def handled(store: AnyStore, failures: int, *, most: int = 1) -> None:
    """Have a handler fail so often, then handle what comes, until the queue is empty."""
    workers = quire.Workers(store, retry={"delay": 0.01})
    left = [failures]

    @workers.on("jobs", max_messages=most)
    def work(found: object, txn: quire.Transaction) -> None:
        left[0] -= 1
        if left[0] <= 0:
            workers.stop()
        if left[0] >= 0:
            raise ValueError("no")

    workers.run()


def test_what_became_of_a_message(
    threaded: AnyStore, owner: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes again later, or it becomes a dead letter; and each that was handled, at DEBUG."""
    caplog.set_level(logging.DEBUG, "quire.workers")
    owner.create_queue("dead", kind="work")
    owner.create_queue("jobs", kind="work", max_deliveries=2, dead_letter="dead")
    first = threaded.put("jobs", b"1")
    handled(threaded, 2)
    second = threaded.put("jobs", b"2")
    handled(threaded, 0)
    texts = [r.getMessage().partition(" ")[2] for r in caplog.records if r.name == "quire.workers"]
    assert texts == [
        f"failed with message {first} of queue 'jobs', delivery 1: it is rolled back, and {LATER}",
        f"failed with message {first} of queue 'jobs', delivery 2: it becomes a dead letter {DEAD}",
        f"handled message {second} of queue 'jobs', delivery 1: it is done",
    ]


def test_lines_of_json(threaded: AnyStore, owner: Store, caplog: pytest.LogCaptureFixture) -> None:
    """One object a line, with the fields by name; also of a batch."""
    owner.create_queue("jobs", kind="work")
    ids = threaded.put_many("jobs", [b"1", b"2"])
    handled(threaded, 1, most=5)
    [record] = [each for each in caplog.records if each.name == "quire.workers"]
    line = json.loads(JsonLines().format(record))
    assert line["queue"] == "jobs"
    assert line["messages"] == list(ids)
    assert line["outcome"] == "it is rolled back, and there again one at a time"
    assert (line["level"], line["logger"]) == ("error", "quire.workers")
    assert line["error"].endswith("ValueError: no")
    assert "2 messages of queue 'jobs'" in line["message"]
