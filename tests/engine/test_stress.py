"""Threads on the real disk: writers, readers, checkpoints, leases and `verify` all at once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import PieceReader
from quire.errors import PositionLost

pytestmark = pytest.mark.crash

TOPICS = ("t0", "t1")
GROUPS = ("a", "b")
OPTIONS: dict[str, Any] = {
    "segment_bytes": 256 << 10,
    "inline_limit_bytes": 8000,
    "large_limit_bytes": 60_000,
    "large_flush_bytes": 16_384,
    "checkpoint_bytes": 400_000,
    "grow_bytes": 256 << 10,
    "data_files": 3,
}


class Crew:
    """Threads that all stop when the first of them fails, or the time is over and it is enough."""

    def __init__(self, seed: int, seconds: float, enough: Callable[[], bool]) -> None:
        self.seed = seed
        self.until = time.monotonic() + seconds
        self.enough = enough
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[random.Random], None]) -> None:
        rng = random.Random(f"{self.seed} {name}")

        def run() -> None:
            try:
                while self.go_on:
                    work(rng)
            except BaseException as error:  # noqa: BLE001  # raised again by `Crew.run`
                error.add_note(f"in thread {name}")
                self.errors.append(error)

        self._threads.append(threading.Thread(target=run, name=name))

    @property
    def go_on(self) -> bool:
        return not self.errors and (time.monotonic() < self.until or not self.enough())

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


class Stress:
    """A store under all kinds of work; messages read `<transaction>:<index>/<count>`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lock = threading.Lock()
        self.put: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}
        self.works = 0
        self.got: dict[str, list[bytes]] = {f"{t}/{g}": [] for t in TOPICS for g in GROUPS}
        self.worked: Counter[bytes] = Counter()
        self.numbers = iter(range(1, 1 << 30))

    def write(self, rng: random.Random) -> None:
        """One transaction over all queues, committed or rolled back."""
        number = next(self.numbers)
        count = rng.choice([1, 1, 2, 5])
        size = rng.choice([30, 200, 2500, 20_000 if count < 3 else 30])
        payloads = [b"%d:%d/%d".ljust(size) % (number, n, count) for n in range(count)]
        transaction = self.store.transaction()
        for topic in TOPICS:
            transaction.put_many(topic, payloads)
        transaction.put("work", b"%d" % number)
        if rng.random() < 0.15:
            transaction.rollback()
            return
        transaction.enter(f"writer {threading.current_thread().name}", number)
        transaction.commit()
        with self.lock:
            for topic in TOPICS:
                self.put[topic] += payloads
            self.works += 1

    def read(self, source: str) -> Callable[[random.Random], None]:
        """A reader of its own for each subscription: what it gets is in order and complete."""

        def work(rng: random.Random) -> None:
            transaction = self.store.transaction()
            got = transaction.get_many(source, rng.choice([1, 7, 60]), timeout=0.01).payloads()
            if rng.random() < 0.2:
                transaction.rollback()
                return
            transaction.commit()
            self.got[source] += got

        return work

    def consume(self, rng: random.Random) -> None:
        """Many consumers of one work queue, who end their transactions in any order."""
        first, second = self.store.transaction(), self.store.transaction()
        got = [
            t.get_many("work", rng.randint(1, 4), timeout=0.01).payloads() for t in (first, second)
        ]
        for transaction, payloads in ((second, got[1]), (first, got[0])):
            if rng.random() < 0.2:
                transaction.rollback()
            else:
                transaction.commit()
                with self.lock:
                    self.worked.update(payloads)

    def lease(self, rng: random.Random) -> None:
        """Pieces are read past the store, while all else goes on."""
        topic = rng.choice(TOPICS)
        first, end = self.store.integration.positions(topic)
        if first == end:
            time.sleep(0.002)
            return
        start = rng.randrange(first, end)
        stop = min(end, start + rng.randint(1, 40))
        try:
            lease = self.store.integration.lease(topic, start, stop, seconds=60)
        except PositionLost:
            return
        reader = PieceReader(self.store.path)
        try:
            rows = sum(batch.num_rows for batch in reader.read_all(lease.pieces, topic))
            assert rows == stop - start
        finally:
            reader.close()
            self.store.integration.end_lease(lease.lease_id)

    def care(self, rng: random.Random) -> None:
        """Checkpoints and verify."""
        if rng.random() < 0.7:
            self.store.admin.checkpoint()
        else:
            report = self.store.admin.verify()
            assert report.ok, report.findings
        time.sleep(0.01)

    def come_and_go(self, rng: random.Random) -> None:
        """Subscriptions and queues that are made, used and removed beside all else."""
        topic = rng.choice(TOPICS)
        self.store.subscribe(topic, "passing", start="latest")
        with self.store.transaction() as transaction:
            transaction.get_many(f"{topic}/passing", 5)
        self.store.unsubscribe(topic, "passing")
        self.store.create_queue("passing", kind="work")
        self.store.put("passing", b"x" * rng.choice([10, 9000]))
        self.store.drop_queue("passing")
        time.sleep(0.005)

    def finish(self) -> None:
        """Everything that was committed was got once, by everyone, in one order."""
        for source in self.got:
            with self.store.transaction() as transaction:
                self.got[source] += transaction.get_many(source, 1_000_000).payloads()
        with self.store.transaction() as transaction:
            self.worked.update(transaction.get_many("work", 1_000_000).payloads())
        for topic in TOPICS:
            one, two = (self.got[f"{topic}/{group}"] for group in GROUPS)
            assert one == two
            assert Counter(one) == Counter(self.put[topic])
            self.check_whole(one)
        assert self.got["t0/a"] == self.got["t1/a"]  # commits of both have one order
        assert set(self.worked.values()) <= {1}
        assert self.worked.total() == self.works

    def check_whole(self, payloads: list[bytes]) -> None:
        """The messages of a transaction stand together, in put order."""
        expected = 0
        for payload in payloads:
            index, count = map(int, payload.partition(b":")[2].split(b"/"))
            assert index == expected
            expected = (index + 1) % count


@pytest.mark.cases(8)
@pytest.mark.promise(2, 3)
def test_promise_2_3_everything_at_once(seed: int, rounds: int, store_path: str) -> None:
    """Nothing is lost, doubled or out of order, and no space is left over, whatever meets what."""
    store = Store.open(store_path, **OPTIONS)
    for topic in TOPICS:
        store.create_queue(topic, kind="topic")
        for group in GROUPS:
            store.subscribe(topic, group)
    store.create_queue("work", kind="work")
    stress = Stress(store)
    crew = Crew(seed, seconds=rounds / 4, enough=lambda: stress.works > 20)
    for n in range(3):
        crew.start(f"writer {n}", stress.write)
    for source in stress.got:
        crew.start(source, stress.read(source))
    for n in range(2):
        crew.start(f"worker {n}", stress.consume)
    crew.start("lease", stress.lease)
    crew.start("care", stress.care)
    crew.start("passing", stress.come_and_go)
    try:
        crew.run()
        stress.finish()
        for info in store.queues():
            assert (info.used_bytes, info.messages) == (0, 0), info
            assert (info.open_transactions, info.reserving) == (0, 0), info
        assert store.admin.verify().ok
        assert store.status()["maintenance_error"] is None
        assert stress.works > 20
    finally:
        store.close()
    with Store.open(store_path, **OPTIONS) as again:
        assert again.admin.verify().ok
        assert not any(info.messages for info in again.queues())
