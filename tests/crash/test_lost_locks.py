"""LOCK is removed under load, with a process that waits for the store, and owners are killed."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import quire
from tests.crash.waiting_owners import CHURN, KEPT, OPTIONS, text

ROOT = Path(__file__).resolve().parents[2]
FEW, MANY = 4, 100


class Waiting:
    """A process that waits for the store."""

    def __init__(self, path: str, name: str) -> None:
        self.name = name
        command = [sys.executable, "-m", "tests.crash.waiting_owners", path, name]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        self._puts = 0  # that have returned before its end

    def begin(self) -> bool:
        """Return True when it owns the store and has put something.

        False: it has lost its lock before that, when the owner before it lost one once more.
        """
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"owner\n"
        if self._process.stdout.readline():
            self._puts = 1
        return self._puts > 0

    def end(self, *, kill: bool) -> int:
        """Kill it, or let it notice that it has lost its lock; how many puts have returned."""
        if kill:
            self._process.kill()
        assert self._process.stdout is not None
        with self._process.stdout as output:
            lines = output.read().splitlines(keepends=True)
        self._process.wait(60)
        return self._puts + sum(line.endswith(b"\n") for line in lines)


def lose_locks(path: str, rounds: int, rng: random.Random) -> None:
    """Each owner loses its lock at some moment, and then ends, or is killed at another one."""
    with quire.open(path, **OPTIONS) as store:
        store.create_queue(KEPT, kind="work")
        store.create_queue(CHURN, kind="work")
    owner = Waiting(path, "0")
    acknowledged: dict[str, int] = {}
    for number in range(1, rounds + 1):
        removals = rng.choice((1, 1, 2)) if owner.begin() else 0
        waiting = Waiting(path, str(number))
        time.sleep(rng.random() * 0.5)
        for _ in range(removals):
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{path}/LOCK")
            time.sleep(rng.random() * 0.2)
        acknowledged[owner.name] = owner.end(kill=rng.random() < 0.7)
        owner = waiting
    owner.begin()
    acknowledged[owner.name] = owner.end(kill=True)
    with quire.open(path, **OPTIONS) as store:
        report = store.admin.verify()
        assert report.ok, report.findings
        found = store.browse(KEPT, max_messages=1_000_000).payloads()
    expected = iter(found)
    for name, count in acknowledged.items():
        for number in range(count):
            assert next(expected) == text(name, number), f"{name}: {number} of {count}"
        rest = found[len(found) - sum(1 for _ in expected) :]  # one more may have been put
        if rest[:1] == [text(name, count)]:
            rest = rest[1:]
        expected = iter(rest)
        found = rest
    assert found == []


@pytest.mark.cases(6)
@pytest.mark.promise(1)
@pytest.mark.promise(11)
@pytest.mark.crash
def test_a_lost_lock_loses_nothing(store_path: str, rng: random.Random) -> None:
    """The short slice of the test below, for every run."""
    lose_locks(store_path, FEW, rng)


@pytest.mark.promise(1)
@pytest.mark.promise(11)
@pytest.mark.crash
@pytest.mark.long
def test_a_hundred_lost_locks_lose_nothing(store_path: str, rng: random.Random) -> None:
    """Every put that has returned is there, once and in its order, whoever owned when."""
    lose_locks(store_path, MANY, rng)
