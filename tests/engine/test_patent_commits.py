"""Compound commits of "Managing message queues" (JP 2008-547130), figures 6 to 9B, to the byte.

In figure 6 the compound transactions T1, T2 and T3 have messages in queues A and D, T4 in D alone.
T1 is committed. T2 commits now, while T3 and T4 are open: what must be available in each queue is
what the approaches differ in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.errors import QueueFull
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES, OPEN_BYTES
from quire.testing import SimEnv

CAPACITY = 10_000
OPEN_IN = {"A": 2, "D": 3}  # T, once T1 is committed
# What T2's commit needs in a queue, by T.
NEEDS: dict[str, Callable[[int], int]] = {
    "lock-all": lambda t: COMMIT_BYTES,  # figure 7
    "reserve-mode": lambda t: COMMIT_BYTES * t,  # figure 9A
    "reserve-mode-counted": lambda t: COMMIT_BYTES,  # [0079]: R = 1
}


class Figure6:
    """The store of the figure, with the transactions that are open in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        for name in OPEN_IN:
            store.create_queue(name, kind="work", capacity=CAPACITY)
        first, self.t2, self.t3, self.t4 = (store.transaction() for _ in range(4))
        for number, transaction in enumerate((first, self.t2, self.t3), 1):
            for queue in OPEN_IN:
                transaction.put(queue, b"T%d:M1" % number)
        self.t4.put("D", b"T4:M1")
        first.commit()

    def available(self, queue: str) -> int:
        info = self.store.queue(queue)
        return info.capacity_bytes - info.used_bytes

    def fill(self, queue: str, left: int, by: Transaction) -> None:
        """One more message, after which so many bytes are available."""
        by.put(queue, bytes(self.available(queue) - left - MESSAGE_OVERHEAD_BYTES))

    def narrow(self, queue: str, left: int) -> None:
        """Lower the queue's capacity, after which so many bytes are available."""
        info = self.store.queue(queue)
        self.store.alter_queue(queue, capacity=info.used_bytes + left)

    def counters(self) -> dict[str, tuple[int, int]]:
        """(T, R) of each queue."""
        infos = {queue: self.store.queue(queue) for queue in OPEN_IN}
        return {queue: (info.open_transactions, info.reserving) for queue, info in infos.items()}


@contextmanager
def figure_6(strategy: str) -> Iterator[Figure6]:
    """The state that the figure shows; verified at the end."""
    with Store.open("/s", env=SimEnv(), background=False, strategy=strategy) as store:
        figure = Figure6(store)
        assert figure.counters() == {"A": (2, 0), "D": (3, 0)}
        yield figure
        assert store.admin.verify().ok


@pytest.mark.promise(5)
@pytest.mark.parametrize("strategy", list(NEEDS))
@pytest.mark.parametrize("queue", ["A", "D"])
def test_figures_7_and_9a_a_commit_checks_each_queue(strategy: str, queue: str) -> None:
    """[0065-0068, 0074-0077] One byte less in either queue, and nothing has happened in the other.

    The transaction stays open [0066], and commits once there is room. What is put leaves that
    much, so the capacity is lowered.
    """
    need = NEEDS[strategy](OPEN_IN[queue])
    with figure_6(strategy) as fig:
        fig.fill(queue, CAPACITY // 2, fig.t3)
        fig.narrow(queue, need - 1)
        before = fig.available("A"), fig.available("D")
        with pytest.raises(QueueFull) as caught:
            fig.t2.commit(timeout=0)
        assert caught.value.queue == queue
        assert fig.t2.state == "open"
        assert fig.counters() == {"A": (2, 0), "D": (3, 0)}
        assert (fig.available("A"), fig.available("D")) == before
        with fig.store.transaction() as reader:
            assert reader.get(queue) is not None
        fig.t2.commit(timeout=0)
        assert fig.counters() == {"A": (1, 0), "D": (2, 0)}
    with figure_6(strategy) as fig:
        fig.fill(queue, CAPACITY // 2, fig.t3)
        fig.narrow(queue, need)
        fig.t2.commit(timeout=0)
        assert fig.counters() == {"A": (1, 0), "D": (2, 0)}


@pytest.mark.promise(5)
@pytest.mark.parametrize("strategy", ["reserve-at-open", *NEEDS])
@pytest.mark.parametrize("queue", ["A", "D"])
def test_figures_8b_and_8c_the_room_was_kept_by_the_writes(queue: str, strategy: str) -> None:
    """[0071-0073] A write leaves room for all open commits, which find it, whoever is first."""
    kept = COMMIT_BYTES * OPEN_IN[queue]
    with figure_6(strategy) as fig:
        with pytest.raises(QueueFull):
            fig.fill(queue, kept - 1, fig.t3)
        fig.fill(queue, kept, fig.t3)
        for transaction in (fig.t2, fig.t3, fig.t4):
            transaction.commit(timeout=0)
        assert fig.available(queue) == 0
        assert fig.counters() == {"A": (0, 0), "D": (0, 0)}


@pytest.mark.promise(5)
@pytest.mark.parametrize("strategy", ["reserve-at-open", *NEEDS])
def test_figure_8a_opening_leaves_room_for_all_commits(strategy: str) -> None:
    """[0070] Do = OPEN + COMMIT * (T + 1): one byte less, and T stays as it is."""
    need = OPEN_BYTES + COMMIT_BYTES * (OPEN_IN["D"] + 1)
    with figure_6(strategy) as fig:
        fig.fill("D", need - 1, fig.t3)
        late = fig.store.transaction()
        with pytest.raises(QueueFull, match="cannot be opened"):
            late.put("D", b"")
        assert fig.counters()["D"] == (3, 0)
        with fig.store.transaction() as reader:
            assert reader.get("D") is not None
        late.put("D", b"")
        assert fig.counters()["D"] == (4, 0)


@pytest.mark.promise(5)
@pytest.mark.parametrize("strategy", ["reserve-mode", "reserve-mode-counted"])
def test_figure_9b_writers_leave_room(strategy: str) -> None:
    """[0078-0079] While T2's commit is under way in D, Dw = data + COMMIT * T; and before it."""
    kept = OPEN_IN["D"]
    with figure_6(strategy) as fig:
        queue = fig.store._context.state.queue("D")
        with queue.lock:
            queue.space.reserve()  # as T2's commit does, before its journal record
        assert fig.counters()["D"] == (3, 1)
        with pytest.raises(QueueFull):
            fig.fill("D", COMMIT_BYTES * kept - 1, fig.t4)
        fig.fill("D", COMMIT_BYTES * kept, fig.t4)
        with queue.lock:
            queue.space.unreserve()
        with fig.store.transaction() as reader:
            assert reader.get("D") is not None
        with pytest.raises(QueueFull):  # not in reserve mode
            fig.fill("D", COMMIT_BYTES * kept - 1, fig.t4)
        for transaction in (fig.t4, fig.t2, fig.t3):
            transaction.commit(timeout=0)
