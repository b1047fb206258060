"""Counted deliveries and dead letters: no kill and no power failure forgets one, or a message."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.commits.pending_sections import PendingSection, pack_sections
from quire.engine.records import format
from quire.engine.records.commit_record import Read
from quire.engine.state.attempts import Attempts
from quire.engine.state.fold import decode
from quire.engine.state.sections.deliveries import Deliveries
from quire.engine.state.sections.kinds import read_sections
from quire.errors import DiskFull, StoreCorrupt
from quire.limits import MAX_ATTRIBUTES
from tests.engine.crashing.delivery import Deliveries as DeliveriesPart
from tests.engine.crashing.parts import try_parts
from tests.engine.workload import new_machine, open_store

MOST = 3
MESSAGES = [b"%d" % number for number in range(6)]


def make(store: Store, **options: Any) -> None:
    """A work queue, and the one for its dead letters."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work"},
            {"name": "q", "kind": "work", "max_deliveries": MOST, "dead_letter": "dead", **options},
        ]
    )


def test_kills_count(seed: int) -> None:
    """A message that kills who gets it comes to its end; an open transaction is one delivery."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.put("q", b"poison")
    for delivery in range(1, MOST + 1):
        message = store.transaction().get("q")
        assert message is not None
        assert message.delivery_count == delivery
        env = env.kill()
        store = open_store(env)
    assert store.transaction().get("q") is None
    store.put("q", b"good")  # after a commit the maintenance looks, as no thread does
    assert store.browse("dead").payloads() == [b"poison"]
    message = store.transaction().get("q")
    assert message is not None
    assert message.payload == b"good"


def test_batches_are_counted_by_one_record(seed: int) -> None:
    """A get is one write, however many messages it takes; priorities and topics alike."""
    env = new_machine(seed)
    store = open_store(env)
    make(store, order="priority")
    with store.transaction() as txn:
        txn.put_many("q", [b"x"] * 500)
    store.put("q", b"first", priority=1)
    before = env.calls.count("write", "*.log")
    txn = store.transaction()
    assert len(txn.get_many("q", 1000)) == 501
    assert env.calls.count("write", "*.log") == before + 1
    txn.rollback()
    store.close()
    store = open_store(env)
    txn = store.transaction()
    assert {m.delivery_count for m in txn.get_many("q", 1000)} == {2}
    txn.rollback()
    assert [(i.delivered, i.pending) for i in store.subscriptions("q")] == [(0, 501)]
    store.close()


def test_a_delivery_that_cannot_be_noted_is_none(seed: int) -> None:
    """The disk fails: nothing is handed out, and it is there after a reopening."""
    env = new_machine(seed, direct=False)
    store = open_store(env)
    make(store)
    store.put("q", b"m")
    env.fail("sync", "*.log")
    txn = store.transaction()
    with pytest.raises(Exception, match="input/output"):
        txn.get("q")
    assert [i.delivered for i in store.subscriptions("q")] == [0]
    txn.rollback()
    store.close()
    store = open_store(env)
    message = store.transaction().get("q")
    assert message is not None
    assert message.delivery_count in (1, 2)


@pytest.mark.promise(5)
def test_promise_5_counted_queues_are_read_on_a_full_disk(seed: int) -> None:
    """Deliveries are noted there too, so that reading makes room."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    for number in range(200):
        store.put("q", b"%d" % number * 300)
    env.capacity_bytes = env.used_bytes()
    with suppress(DiskFull):
        while True:
            store.put("q", b"x" * 5000)
    for _ in range(300):
        with store.transaction() as txn:
            if txn.get("q") is None:
                break
    assert store.queue("q").messages == 0
    store.close()


def test_the_section_is_read_as_it_was_written() -> None:
    """And garbage is refused."""
    runs = [Read(1, 2, 3, 4), Read(1, 2, 10, 1 << 40)]
    section = PendingSection(Deliveries(runs), room=-1)
    pieces = b"".join(pack_sections([section]))
    assert read_sections(memoryview(pieces), "here") == (Deliveries(runs),)
    for wrong in (pieces[:-1], pieces[:16], pieces[:16] + bytes(48), pieces[:16] + b"\xff" * 48):
        with pytest.raises(StoreCorrupt, match="here"):
            decode(format.COMMIT, memoryview(bytes(32) + wrong), "here", format.SECTIONS)


def test_a_dropped_queue_leaves_its_record(tmp_path: Path) -> None:
    """Recovery passes over deliveries of a queue that was dropped later."""
    path = str(tmp_path / "s")
    store = Store.open(path)
    make(store)
    store.put("q", b"m")
    with store.transaction() as txn:
        txn.get("q")
    store.drop_queue("q")
    store.close()
    with Store.open(path) as store:
        assert [info.name for info in store.queues()] == ["dead"]


@pytest.mark.cases(4)
def test_canary_deliveries_that_are_not_noted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that only remembers them is caught."""
    monkeypatch.setattr(
        "quire.engine.commits.committer.Committer.hand_out",
        lambda committer, queue, subscription, runs: [
            queue.durable.hand_out((queue.queue_id, subscription.subscription_id, *run[:2]))
            for run in runs
        ],
    )
    with pytest.raises(AssertionError):
        try_parts(seed, DeliveriesPart)


def test_a_dead_letter_keeps_its_own_attributes(seed: int) -> None:
    """All of them, also where there is no room for those that say why it is dead."""
    store = open_store(new_machine(seed))
    make(store)
    attributes = {str(number): "x" for number in range(MAX_ATTRIBUTES)}
    store.put("q", b"m", attributes=attributes)
    for _ in range(MOST):
        with store.transaction() as txn:
            message = txn.get("q")
            assert message is not None
            txn.reject(message, "no")
    [letter] = list(store.browse("dead"))
    assert dict(letter.attributes) == attributes
    assert store.admin.redrive("dead") == 0
    assert store.admin.redrive("dead", to="q") == 1
    store.close()


def test_what_was_given_back_untouched_is_known_after_a_restart(seed: int) -> None:
    """A delivery that was noted, and did not happen, does not count then either."""
    env = new_machine(seed)
    with open_store(env) as store:
        make(store)
        store.put_many("q", MESSAGES)
        with store.transaction() as txn:
            assert len(txn.get_many("q", 4)) == 4
            txn.unget()
        with store.transaction() as txn:
            assert txn.get("q") is not None
            txn.rollback()
    with open_store(env) as store, store.transaction() as txn:
        assert [m.delivery_count for m in txn.get_many("q")] == [2, 1, 1, 1, 1, 1]


def test_runs_that_are_taken_back() -> None:
    """They join what they are like again; what failed, or comes later, is still told."""
    attempts = Attempts()
    attempts.add(0, 10)
    attempts.add(2, 6)
    attempts.take_back(3, 5)
    assert attempts.rows() == [
        (0, 2, 1, 0, 0),
        (2, 3, 2, 0, 0),
        (3, 5, 1, 0, 0),
        (5, 6, 2, 0, 0),
        (6, 10, 1, 0, 0),
    ]
    attempts.take_back(2, 3)
    attempts.take_back(5, 6)
    assert attempts.rows() == [(0, 10, 1, 0, 0)]
    attempts.fail(8, 10, 7, noted=True)
    attempts.take_back(0, 12)
    assert attempts.rows() == [(8, 10, 0, 1, 7)]
    attempts.take_back(8, 9)
    assert attempts.rows() == [(8, 10, 0, 1, 7)]
