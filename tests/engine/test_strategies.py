"""The commit strategies: each one's rules to the byte, and all of them under contention."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.queues.reservation import Space
from quire.engine.state.durable_state import QueueConfig
from quire.engine.strategies import Strategy, strategy_named
from quire.errors import InvalidArgument, QueueFull
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES, MIN_CAPACITY_BYTES, OPEN_BYTES
from quire.testing import SimEnv
from tests.kit.waiting import SECONDS

NAMES = ["lock-all", "reserve-at-open", "reserve-mode", "reserve-mode-counted"]
C, OPEN = COMMIT_BYTES, OPEN_BYTES


def space_with(strategy: Strategy, available: int, open_transactions: int, reserving: int) -> Space:
    """A queue's counters as they are in the middle of things."""
    space = Space(QueueConfig(1, "q", "work", 1 << 20, None, 0, 1), strategy)
    space.open_transactions = open_transactions
    space.reserving = reserving
    space.used = space.capacity - available
    return space


@pytest.mark.promise(5)
@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("lock-all", OPEN + C * 4),
        ("reserve-at-open", OPEN + C * 4),
        ("reserve-mode", OPEN + C * 4),
        ("reserve-mode-counted", OPEN + C * 4),
    ],
)
def test_opening_needs(name: str, need: int) -> None:
    """With T = 3: exactly so much suffices, one byte less does not, and changes nothing."""
    space_with(strategy_named(name), need, 3, 0).open()
    short = space_with(strategy_named(name), need - 1, 3, 0)
    with pytest.raises(QueueFull):
        short.open()
    assert (short.open_transactions, short.used) == (3, short.capacity - need + 1)


@pytest.mark.promise(5)
@pytest.mark.parametrize(
    ("name", "reserving", "need"),
    [
        ("lock-all", 0, 100 + C * 3),
        ("lock-all", 2, 100 + C * 3),
        ("reserve-at-open", 0, 100 + C * 3),
        ("reserve-at-open", 2, 100 + C * 3),
        ("reserve-mode", 0, 100 + C * 3),
        ("reserve-mode", 2, 100 + C * 3),
        ("reserve-mode-counted", 0, 100 + C * 3),
        ("reserve-mode-counted", 2, 100 + C * 3),
    ],
)
def test_writing_needs(name: str, reserving: int, need: int) -> None:
    """100 bytes with T = 3, in and out of reserve mode: to the byte."""
    space_with(strategy_named(name), need, 3, reserving).write(100, 1)
    short = space_with(strategy_named(name), need - 1, 3, reserving)
    with pytest.raises(QueueFull):
        short.write(100, 1)
    assert (short.used, short.pending_messages) == (short.capacity - need + 1, 0)


@pytest.mark.promise(5)
@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("lock-all", C),
        ("reserve-at-open", 0),
        ("reserve-mode", C * 3),
        ("reserve-mode-counted", C * 2),
    ],
)
def test_committing_needs(name: str, need: int) -> None:
    """With T = 3, as the second commit that is under way (R = 2): to the byte."""
    space_with(strategy_named(name), need, 3, 1).reserve()
    if need:
        short = space_with(strategy_named(name), need - 1, 3, 1)
        with pytest.raises(QueueFull):
            short.reserve()
        assert short.reserving == 1


class OpenOnes:
    """Transactions of one queue, each as what it has charged; the model of what may be accepted."""

    def __init__(self, name: str) -> None:
        self.space = Space(QueueConfig(1, "q", "work", 4096, None, 0, 1), strategy_named(name))
        self.charged: list[int] = []
        self.committed = 0

    def taken(self) -> int:
        """Bytes that all of them have."""
        return self.committed + sum(OPEN + charge for charge in self.charged)

    def step(self, rng: Random) -> None:
        """Open one, write, commit or roll back; what is refused is what does not fit."""
        space, charged = self.space, self.charged
        what = rng.choice(["open", "open", "whole", "write", "write", "write", "commit", "drop"])
        size = rng.choice([0, 1, 63, 64, 65, 300, 1000])
        left = space.capacity - self.taken() - C * len(charged)
        if what == "open":
            if accepted(lambda: space.open(size, 1), left >= OPEN + C + size):
                charged.append(size)
        elif what == "whole":
            if accepted(lambda: space.whole(size), left >= OPEN + C + size):
                space.commit_whole(size + OPEN + C, 1)
                self.committed += size + OPEN + C
        elif charged:
            which = rng.randrange(len(charged))
            if what == "write":
                if accepted(lambda: space.write(size, 1), left >= size):
                    charged[which] += size
            elif what == "commit":
                self.commit(which)
            else:
                space.abandon(charged.pop(which), 1)

    def commit(self, which: int) -> None:
        """One of them: that is never refused."""
        charge = self.charged.pop(which) + OPEN + C
        self.space.reserve()
        self.space.commit(charge, 1)
        self.committed += charge


def accepted(put: Callable[[], None], fits: bool) -> bool:
    """Whether the space takes it, which it does exactly if it fits."""
    try:
        put()
    except QueueFull:
        assert not fits
        return False
    assert fits
    return True


@pytest.mark.promise(5)
@pytest.mark.parametrize("name", NAMES)
def test_promise_5_what_was_accepted_commits(name: str, rng: Random) -> None:
    """To the byte as a model says, in any order, though nobody reads; nothing goes beyond."""
    for _ in range(200):
        model = OpenOnes(name)
        for _ in range(rng.randrange(1, 40)):
            model.step(rng)
            assert model.space.used == model.taken()
        while model.charged:
            model.commit(rng.randrange(len(model.charged)))
        assert model.space.used == model.committed <= model.space.capacity
        assert (model.space.open_transactions, model.space.reserving) == (0, 0)


@pytest.mark.promise(5)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("others", [0, 2])
def test_promise_5_who_has_filled_a_queue_commits(name: str, others: int) -> None:
    """After QueueFull, byte by byte up to it; so do others that are open there."""
    with Store.open("/s", env=SimEnv(), background=False, strategy=name) as store:
        store.create_queue("q", kind="work", capacity=MIN_CAPACITY_BYTES)
        open_ones = [store.transaction() for _ in range(others + 1)]
        for transaction in open_ones:
            transaction.put("q", b"")
        for size in (1000, 100, 10, 1):
            with suppress(QueueFull):
                while True:
                    open_ones[0].put("q", bytes(size))
        for transaction in open_ones:
            transaction.commit(timeout=0)
        info = store.queue("q")
        left = info.capacity_bytes - info.used_bytes
        assert 0 <= left <= MESSAGE_OVERHEAD_BYTES  # a message more did not fit
        assert store.admin.verify().ok


def test_an_unknown_strategy_is_refused() -> None:
    """The message names those that there are."""
    with pytest.raises(InvalidArgument, match="lock-all, reserve-at-open, reserve-mode"):
        strategy_named("optimistic")


class Contention:
    """Writers of three queues at a time, committers of four and one, on small queues."""

    QUEUES = tuple(f"q{number}" for number in range(8))

    def __init__(self, store: Store) -> None:
        self.store = store
        self.put = dict.fromkeys(self.QUEUES, 0)
        self.got = dict.fromkeys(self.QUEUES, 0)
        self.errors: list[BaseException] = []
        self.written = threading.Event()
        self._counting = threading.Lock()
        for queue in self.QUEUES:
            store.create_queue(queue, kind="work", capacity=MIN_CAPACITY_BYTES)

    def write(self, rng: Random) -> None:
        """60 transactions; those that find no room are rolled back."""
        for _ in range(60):
            chosen = rng.sample(self.QUEUES, 3)
            try:
                with self.store.transaction() as txn:
                    for queue in chosen:
                        txn.put(queue, bytes(rng.randrange(600)))
            except QueueFull:
                continue
            self._count(self.put, dict.fromkeys(chosen, 1))

    def move(self, rng: Random) -> None:
        """Until the writers are done: messages of four queues are taken, one is put to a fifth."""
        while not self.written.is_set():
            *chosen, target = rng.sample(self.QUEUES, 5)
            txn = self.store.transaction()
            try:
                counts = {queue: len(txn.get_many(queue, max_messages=3)) for queue in chosen}
                txn.put(target, bytes(rng.randrange(100)))
                txn.commit(timeout=rng.choice([0, 0.01, 5]))
            except QueueFull:
                assert txn.state == "open", "a commit failed after its journal record"
                txn.rollback()
                continue
            self._count(self.got, counts)
            self._count(self.put, {target: 1})

    def take(self, chosen: Sequence[str]) -> int:
        """A few messages of each queue, in one transaction; how many."""
        with self.store.transaction() as txn:
            counts = {queue: len(txn.get_many(queue, max_messages=3)) for queue in chosen}
        self._count(self.got, counts)
        return sum(counts.values())

    def start(self, work: Callable[[Random], None], rng: Random) -> threading.Thread:
        """A thread that keeps its error for the main one."""

        def guarded() -> None:
            try:
                work(rng)
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                self.errors.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    def _count(self, counters: dict[str, int], counts: dict[str, int]) -> None:
        with self._counting:
            for queue, count in counts.items():
                counters[queue] += count


@pytest.mark.cases(2)
@pytest.mark.promise(2, 5)
@pytest.mark.parametrize("name", NAMES)
def test_nearly_full_queues_under_contention(name: str, tmp_path: Path, rng: Random) -> None:
    """8 writers, 4 committers, 8 small queues: nothing lost, no reservation left, no deadlock."""
    with Store.open(str(tmp_path), strategy=name) as store:
        contention = Contention(store)
        writers = [contention.start(contention.write, Random(rng.random())) for _ in range(8)]
        movers = [contention.start(contention.move, Random(rng.random())) for _ in range(4)]
        for thread in writers:
            thread.join(SECONDS)
        contention.written.set()
        for thread in movers:
            thread.join(SECONDS)
        assert not any(thread.is_alive() for thread in writers + movers), "a deadlock"
        assert not contention.errors
        while contention.take(contention.QUEUES):
            pass
        assert contention.got == contention.put
        for info in store.queues():
            assert (info.open_transactions, info.reserving, info.used_bytes) == (0, 0, 0)
        assert store.admin.verify().findings == []
