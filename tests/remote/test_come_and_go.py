"""Eight processes share a store, start, end and are killed at random: it is reconciled exactly."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest

import quire
from quire.env import OsEnv
from quire.remote import read_address
from tests.kit.violation import Violation
from tests.remote.come_and_go import (
    OPTIONS,
    Event,
    Found,
    create,
    look,
    read_logs,
    reconcile,
    take_over_times,
)
from tests.source_tree import ROOT

PROCESSES = 8
END_SECONDS = 240.0
MANY = 1000


class Nursery:
    """Starts workers, and ends them."""

    def __init__(self, path: str, logs: Path, seed: int) -> None:
        self._seed = seed
        self._started = 0
        self.ends: list[tuple[float, int]] = []  # when which process was told to end, or killed
        self.running: set[int] = set()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.remote.come_and_go", path, str(logs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._born: Queue[int] = Queue()
        self._changed = threading.Condition()
        self.statuses: dict[int, int] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def start(self) -> None:
        """One more worker."""
        assert self._process.stdin is not None
        self._started += 1
        self._process.stdin.write(f"w{self._started} {self._seed}\n")
        self._process.stdin.flush()
        self.running.add(self._born.get(timeout=END_SECONDS))

    def end(self, worker: int, number: signal.Signals) -> None:
        """Tell one to end, or kill it."""
        self.running.discard(worker)
        self.ends.append((time.monotonic(), worker))
        os.kill(worker, number)

    def wait_for(self, workers: set[int]) -> None:
        """Until they have ended. A process that is stuck is a failure."""
        with self._changed:
            in_time = self._changed.wait_for(lambda: workers <= self.statuses.keys(), END_SECONDS)
        assert in_time, f"stuck: {sorted(workers - self.statuses.keys())}"

    def close(self) -> None:
        """End what is left of it."""
        for worker in self.running - self.statuses.keys():
            os.kill(worker, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(END_SECONDS)
        self._listener.join(END_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, worker, status = line.split()
            if what == "born":
                self._born.put(int(worker))
                continue
            with self._changed:
                self.statuses[int(worker)] = int(status)
                self._changed.notify_all()


@contextmanager
def nursery(path: str, logs: Path, seed: int) -> Iterator[Nursery]:
    """One for the length of a block."""
    made = Nursery(path, logs, seed)
    try:
        yield made
    finally:
        made.close()


def come_and_go(path: str, logs: Path, rng: random.Random, rounds: int) -> int:
    """So many starts, ends and kills; how many owners there were."""
    logs.mkdir()
    create(path)
    with nursery(path, logs, rng.getrandbits(32)) as workers:
        gone: set[int] = set()
        for _ in range(PROCESSES):
            workers.start()
        for _ in range(rounds):
            time.sleep(rng.random() * 0.4)
            if len(workers.running) < PROCESSES and rng.random() < 0.7:
                workers.start()
                continue
            if len(workers.running) == 1:
                continue  # one at least, so that there is a successor
            address = read_address(OsEnv(), path)
            worker = rng.choice(sorted(workers.running))
            if address and address.process_id in workers.running and rng.random() < 0.5:
                worker = address.process_id
            gone.add(worker)
            workers.end(worker, rng.choice((signal.SIGTERM, signal.SIGKILL)))
        time.sleep(1.0)
        last = set(workers.running)
        for worker in last:
            workers.end(worker, signal.SIGTERM)
        workers.wait_for(gone | last)
        assert set(workers.statuses.values()) <= {0, -signal.SIGKILL}, workers.statuses
    events = read_logs(logs)
    with quire.open(path, **OPTIONS) as store:
        for info in store.prepared.list():  # of workers that were killed before their decision
            store.prepared.commit(info.xid)
        assert store.admin.verify().ok
        counts = reconcile(events, look(store))
    times = take_over_times(events, workers.ends[: -len(last)])
    print(f"\n{rounds} rounds, {dict(counts)}; {len(times)} hand-overs", end="")
    if len(times) > 1:
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        print(f": p50 {p50:.3f} s, p99 {p99:.3f} s, max {max(times):.3f} s")
    return len({event.more for event in events if event.what == "done"})


@pytest.mark.cases(8)
@pytest.mark.crash
@pytest.mark.promise(1, 2, 12)
def test_processes_come_and_go(
    store_path: str, tmp_path: Path, rng: random.Random, rounds: int
) -> None:
    """No acknowledged transaction is lost, none is there twice or half, and nobody is stuck."""
    owners = come_and_go(store_path, tmp_path / "logs", rng, 2 * rounds)
    assert owners > 1, "no owner ended: nothing was shown"


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.promise(1, 2, 12)
def test_a_thousand_rounds_of_processes_that_come_and_go(
    store_path: str, tmp_path: Path, rng: random.Random, rounds: int
) -> None:
    """The same for long: 1,000 rounds for the 500 of `make crash`."""
    come_and_go(store_path, tmp_path / "logs", rng, max(MANY, 2 * rounds))


EVENTS = [
    Event("begins", 1.0, "w1.1", "keyed"),
    Event("done", 1.1, "w1.1", "7"),
    Event("begins", 1.2, "w1.2", "plain"),
    Event("doubt", 1.3, "w1.2", "7"),
    Event("begins", 1.4, "w1.3", "plain"),
    Event("refused", 1.5, "w1.3", "8"),
    Event("begins", 1.6, "w1.4", "plain"),
]


def found() -> Found:
    """What belongs to these events, if the one in doubt took effect, and the last did not."""
    it = Found()
    it.messages.update(["w1.1 1/2", "w1.1 2/2", "w1.2 1/1"])
    it.receipts["w1.2"] = ["w1.1 1/2"]
    it.left.update(["w1.1 2/2", "w1.2 1/1"])
    return it


def test_the_reconciliation_finds_each_kind_of_violation() -> None:
    """The canary: what is right passes; what is lost, twice, half, or not refused does not."""
    assert reconcile(EVENTS, found()) == {"done": 1, "doubt": 1, "refused": 1, "killed": 1}
    lost = Found()
    twice, taken_twice, half, unrefused, vanished = (found() for _ in range(5))
    twice.messages["w1.1 1/2"] += 1
    taken_twice.receipts["w1.4"] = ["w1.1 1/2"]
    del half.messages["w1.1 2/2"]
    del half.left["w1.1 2/2"]
    unrefused.messages["w1.3 1/1"] += 1
    unrefused.left["w1.3 1/1"] += 1
    del vanished.left["w1.2 1/1"]
    for wrong, words in (
        (lost, "acknowledged"),
        (twice, "put 2 times"),
        (taken_twice, "taken 2 times"),
        (half, "only"),
        (unrefused, "refused, and is there"),
        (vanished, "taken and left"),
    ):
        with pytest.raises(Violation, match=words):
            reconcile(EVENTS, wrong)
    keyed = [Event("begins", 1.2, "w1.2", "keyed") if e == EVENTS[2] else e for e in EVENTS]
    with pytest.raises(Violation, match="despite the ledger"):
        reconcile(keyed, found())


def test_times_of_hand_over() -> None:
    """From the end of an owner to the first transaction with another."""
    assert take_over_times(EVENTS, [(1.2, 9)]) == []
    later = [*EVENTS, Event("done", 1.8, "w2.1", "7"), Event("done", 2.0, "w2.2", "8")]
    assert take_over_times(later, [(1.2, 7)]) == [pytest.approx(0.8)]
