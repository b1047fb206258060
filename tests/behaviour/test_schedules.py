"""Schedules, of every form of a store; and of owners that end."""

from __future__ import annotations

import base64
import time
from itertools import pairwise
from typing import Any

import pytest

from quire.errors import (
    InvalidArgument,
    QueueInUse,
    QueueNotFound,
    ScheduleExists,
    ScheduleNotFound,
)
from quire.interface.schedules import DUE, SCHEDULE
from quire.opening import open as open_store
from tests.behaviour.forms import AnyStore
from tests.kit.actors import OPTIONS, actor
from tests.kit.waiting import SECONDS

SECOND = 1_000_000
NEVER_SOON = "0 0 29 2 *"


def test_a_schedule_puts_messages(store: AnyStore) -> None:
    """Whenever it is due, with all that it was given, until it is paused or dropped."""
    store.create_queue("q", kind="work", timed=True, grouped=True)
    before = time.time()
    made = store.cron.create(
        "tick", "q", "* * * * * *", b"\x00tick", timezone="Europe/Berlin", priority=3, sender="me",
        attributes={"a": "b", "ü": ""}, group_key="g", ttl=3600.0, missed="all",
    )  # fmt: skip
    assert (made.payload, made.last_us, made.waiting) == (b"\x00tick", None, None)
    assert made.next_us is not None
    assert before * 1e6 < made.next_us
    messages = [store.get("q", timeout=SECONDS) for _ in range(2)]
    due = []
    for message in messages:
        assert message is not None
        due.append(int(message.attributes[DUE]))
        assert message.time >= due[-1]
        assert (message.payload, message.priority, message.sender) == (b"\x00tick", 3, "me")
        assert message.attributes["ü"] == ""
        assert message.attributes[SCHEDULE] == "tick"
        assert message.group_key == "g"
        assert message.expires_at is not None
    assert due == [made.next_us, made.next_us + SECOND]
    paused = store.cron.alter("tick", paused=True)
    assert paused.last_us is not None
    assert (paused.paused, paused.next_us) == (True, None)
    assert store.cron.list() == [paused]
    left = store.queue("q").messages
    store.cron.alter("tick", cron=NEVER_SOON, paused=False, sender=None, attributes=None)
    [info] = store.cron.list()
    assert info.message == {"priority": 3, "group_key": "g", "ttl": 3600.0}
    store.cron.drop("tick")
    assert store.cron.list() == []
    assert store.queue("q").messages == left
    assert store.status()["schedules"] == []


def test_a_typed_queue_has_no_schedules(store: AnyStore) -> None:
    """A schedule puts bytes: that is told when it is made or changed, not when it is due."""
    store.create_queue("q", kind="topic")
    store.create_queue("rows", kind="work", schema="id bigint")
    store.admin.create_alias("columns", "rows")
    for name in ("rows", "columns"):
        with pytest.raises(InvalidArgument, match="'rows' is typed"):
            store.cron.create("s", name, "@daily", b"1")
    assert store.cron.list() == []
    made = store.cron.create("s", "q", "@daily", b"1")
    for name in ("rows", "columns"):
        with pytest.raises(InvalidArgument, match="'rows' is typed"):
            store.cron.alter("s", queue=name, cron="@hourly")
    with pytest.raises(InvalidArgument, match="'rows' is typed"):
        store.cron.create("s", "rows", "@daily", b"1", exist_ok=True)
    with pytest.raises(InvalidArgument, match="holds bytes"):
        store.alter_queue("q", schema="id bigint")
    assert store.cron.list() == [made]


def test_it_may_be_there_already(store: AnyStore) -> None:
    """Where it is as asked for that is fine; else the error tells what differs."""
    store.create_queue("q", kind="topic")
    options: dict[str, Any] = {"payload": b"1", "attributes": {"a": "b"}, "missed": "all"}
    made = store.cron.create("s", "q", "@daily", **options)
    assert store.cron.create("s", "q", "@daily", exist_ok=True, **options) == made
    with pytest.raises(ScheduleExists, match="there already: alter"):
        store.cron.create("s", "q", "@daily", **options)
    with pytest.raises(ScheduleExists, match="cron is '@daily', not '@hourly'"):
        store.cron.create("s", "q", "@hourly", exist_ok=True, **options)
    with pytest.raises(ScheduleExists, match="sender is None, not 'me'"):
        store.cron.create("s", "q", "@daily", exist_ok=True, sender="me", **options)
    assert store.cron.list() == [made]
    paused = store.cron.alter("s", paused=True, sender="them")  # what is not said may be altered
    assert store.cron.create("s", "q", "@daily", exist_ok=True, **options) == paused
    assert store.cron.create("s", "q", "@daily", b"1", exist_ok=True, sender=None) == paused
    for said in ({"paused": False}, {"sender": "me"}, {"payload": b"2"}):
        with pytest.raises(ScheduleExists, match=f"{next(iter(said))}.* is .*, not"):
            store.cron.create("s", "q", "@daily", exist_ok=True, **(options | said))


def test_it_is_of_its_queue(store: AnyStore) -> None:
    """By whatever name; while a queue has one it is not dropped."""
    store.create_queue("q", kind="topic")
    store.admin.create_alias("a", "q")
    store.cron.create("s", "a", "@daily", missed="skip")
    store.admin.rename_queue("q", "r")
    assert [info.queue for info in store.cron.list()] == ["r"]
    store.admin.drop_alias("a")
    with pytest.raises(QueueInUse, match="schedule 's'"):
        store.drop_queue("r")
    store.create_queue("other", kind="work", type="volatile")
    assert store.cron.alter("s", queue="other").queue == "other"
    store.drop_queue("r")
    [item] = store.admin.catalog("schedule")
    assert {"name": "s", "cron": "@daily", "missed": "skip"}.items() <= item.body.items()
    store.cron.drop("s")
    store.drop_queue("other")


def test_volatile_queues_get_theirs(store: AnyStore) -> None:
    """In one transaction with the note that it was put."""
    store.create_queue("q", kind="work", type="volatile")
    store.cron.create("s", "q", "* * * * * *", b"1")
    assert store.get("q", timeout=SECONDS) is not None
    store.cron.alter("s", cron=NEVER_SOON)
    store.create_queue("run", kind="work", type="volatile", persistent=False)
    with pytest.raises(InvalidArgument, match="persistent=False"):
        store.cron.create("t", "run", "@daily")
    with pytest.raises(InvalidArgument, match="persistent=False"):
        store.cron.alter("s", queue="run")


@pytest.mark.promise(13)
def test_wrong_ones_are_refused(store: AnyStore) -> None:
    """Wrong schedules are refused, and nothing has changed."""
    store.create_queue("q", kind="topic")
    made = store.cron.create("s", "q", "@daily")
    wrong: list[dict[str, Any]] = [
        {"cron": "every day"}, {"cron": 5}, {"cron": "0 0 30 2 *"}, {"timezone": "Mars"},
        {"timezone": None}, {"missed": "some"}, {"missed": None}, {"paused": 1}, {"payload": "a"},
        {"priority": -1}, {"priority": "1"}, {"attributes": {"a": 1}}, {"attributes": [1]},
        {"ttl": 0}, {"delay": -1}, {"group_key": ""}, {"sender": 3}, {"colour": "red"},
        {"request_id": "r"}, {"expires_at": 5.0}, {"queue": "no/queue"}, {"queue": None},
        {"payload": b"x" * 17_000}, {"cron": "* " * 200}, {"sender": "\ud800"},
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(InvalidArgument):
            store.cron.alter("s", **given)
        with pytest.raises(InvalidArgument):
            store.cron.create("t", **{"queue": "q", "cron": "@daily", **given})
    with pytest.raises(QueueNotFound):
        store.cron.create("t", "none", "@daily")
    with pytest.raises(QueueNotFound):
        store.cron.alter("s", queue="none")
    for name in ("", "a/b", None, 5):
        with pytest.raises(InvalidArgument):
            store.cron.create(name, "q", "@daily")  # type: ignore[arg-type]
    with pytest.raises(ScheduleNotFound, match="no schedule 't'"):
        store.cron.alter("t", paused=True)
    with pytest.raises(ScheduleNotFound):
        store.cron.drop("t")
    assert store.cron.list() == [made]
    assert store.cron.alter("s") == made


def test_what_is_told_of_it_is_plain(store: AnyStore) -> None:
    """Payloads of any bytes too."""
    store.create_queue("q", kind="topic")
    payload = bytes(range(256))
    made = store.cron.create("s", "q", "@daily", bytearray(payload))
    assert made.payload == payload
    assert base64.b64decode(store.status()["schedules"][0]["payload_base64"]) == payload


def test_owners_that_are_killed_put_each_once(store_path: str) -> None:
    """Each due time has one message, though three owners were killed in between."""
    with actor(store_path) as owner:
        owner.ask('store.create_queue("q", kind="work")')
        owner.ask('store.cron.create("s", "q", "* * * * * *", missed="all") and None')
        with open_store(store_path, **OPTIONS) as store:
            due = []
            for number in range(2):
                message = store.get("q", timeout=SECONDS)
                assert message is not None
                due.append(int(message.attributes[DUE]))
                if number == 0:
                    owner.kill()
            assert store.role == "owner"
            assert store.cron.create("s", "q", "* * * * * *", exist_ok=True, missed="all").last_us
    with actor(store_path) as owner:
        owner.kill()
    with open_store(store_path) as store:
        store.cron.alter("s", paused=True)
        due += [int(message.attributes[DUE]) for message in store.browse("q")]
        [info] = store.cron.list()
        assert info.last_us == due[-1]
    assert all(second - first == SECOND for first, second in pairwise(due))
