"""Long reads and leases: made in steps, between which others change the queue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from quire.calls.signal_safety import allow_reentry
from quire.engine import EmbeddedStore as Store
from quire.engine import PieceReader
from quire.engine.checkpoints.background_pace import Pace
from quire.engine.queues.queue import Queue
from quire.engine.reading.fetcher import Fetcher
from quire.errors import PositionLost, QueueNotFound
from tests.kit.limits import Limits
from tests.kit.messages import take

SOME = 5  # pointers under one hold of the lock


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Any:
    """Call the function given between the steps of a long read, once."""
    limits(POINTERS_AT_ONCE=SOME)
    original = Queue.pointers, Queue.deliverable

    def install(action: Any) -> None:
        calls: list[int] = []

        def between(queue: Queue) -> None:
            calls.append(1)
            if len(calls) == 3:
                queue.lock.release()
                try:
                    allow_reentry(action)
                finally:
                    queue.lock.acquire()

        def pointers(queue: Queue, start: int, end: int) -> Any:
            between(queue)
            return original[0](queue, start, end)

        def deliverable(queue: Queue, subscription: Any, start: int, end: int) -> Any:
            between(queue)
            return original[1](queue, subscription, start, end)

        monkeypatch.setattr(Queue, "pointers", pointers)
        monkeypatch.setattr(Queue, "deliverable", deliverable)

    return install


def fill(store: Store, queue: str, count: int = 60) -> list[bytes]:
    """Messages in commits of their own."""
    payloads = [b"%d" % number for number in range(count)]
    for payload in payloads:
        store.put(queue, payload)
    return payloads


def test_a_checkpoint_amid_a_long_read(os_store: Store, in_steps: Any) -> None:
    """Each message once and in order, though its block was packed with others meanwhile."""
    os_store.create_queue("topic", kind="topic")
    os_store.subscribe("topic", "all")
    payloads = fill(os_store, "topic")
    in_steps(os_store.admin.checkpoint)
    assert os_store.browse("topic").payloads() == payloads
    more = fill(os_store, "topic")
    in_steps(os_store.admin.checkpoint)
    assert take(os_store, "topic/all") == payloads + more


def test_a_checkpoint_amid_a_long_lease(os_store: Store, in_steps: Any) -> None:
    """Its pieces name each message once."""
    os_store.create_queue("topic", kind="topic")
    os_store.subscribe("topic", "all")
    payloads = fill(os_store, "topic")
    in_steps(os_store.admin.checkpoint)
    lease = os_store.integration.lease("topic", 7, 58)
    reader = PieceReader(os_store.path)
    found = [p for batch in reader.read_all(lease.pieces) for p in batch["payload"].to_pylist()]
    reader.close()
    os_store.integration.end_lease(lease.lease_id)
    assert found == payloads[7:58]


def test_messages_that_are_read_amid_a_long_lease(os_store: Store, in_steps: Any) -> None:
    """The lease is refused, and pins nothing."""
    os_store.create_queue("work", kind="work")
    fill(os_store, "work")
    in_steps(lambda: take(os_store, "work"))
    with pytest.raises(PositionLost, match="first that is gone"):
        os_store.integration.lease("work", 0, 60)
    assert os_store.status()["leases"] == 0
    assert os_store.status()["journal"]["pinned_segments"] == 0


def test_a_queue_dropped_amid_a_long_browse(os_store: Store, in_steps: Any) -> None:
    """QueueNotFound, and not what its pages hold by then."""
    os_store.create_queue("work", kind="work")
    fill(os_store, "work")
    os_store.admin.checkpoint()
    fill(os_store, "work")
    in_steps(lambda: os_store.drop_queue("work"))
    with pytest.raises(QueueNotFound, match="dropped"):
        os_store.browse("work")


def test_a_large_transaction_that_is_read_amid_a_browse(
    os_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file goes meanwhile, which is no damage."""
    os_store.create_queue("work", kind="work")
    with os_store.transaction(large=True) as txn:
        txn.put_many("work", [b"x" * 1000] * 5000)
    fetch = Fetcher.fetch

    def late(delivery: Fetcher, *arguments: Any) -> Any:
        monkeypatch.setattr(Fetcher, "fetch", fetch)
        allow_reentry(take, os_store, "work")
        os_store._context.places.sweep()
        return fetch(delivery, *arguments)

    monkeypatch.setattr(Fetcher, "fetch", late)
    assert os_store.browse("work").payloads() == []
    assert os_store.status()["large_transactions"] == {"files": 0, "removable": 0}


class Clock:
    """Each look takes 100 us."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rests = 0

    def monotonic(self) -> float:
        """Seconds."""
        self.now += 100e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        """Counted."""
        self.rests += 1


@pytest.mark.parametrize("busy", [False, True])
def test_long_work_rests_while_a_commit_is_under_way(busy: bool) -> None:
    """Long work rests while a commit is under way, and only then."""
    clock: Any = Clock()
    sequencer: Any = SimpleNamespace(busy=busy)
    assert list(Pace(clock, sequencer).over(range(1000))) == list(range(1000))
    assert (clock.rests > 10) is busy
