"""kill -9 of a process that commits in a loop: every acknowledged commit is there, nothing half."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import quire
from tests.crash.audit import Audit
from tests.crash.committing import OPTIONS, commit, create
from tests.kit.violation import Violation

ROOT = Path(__file__).resolve().parents[2]
FEW, MANY = 5, 100
MOST_SECONDS = 0.8  # that a process lives after its first commit


def kill_while_committing(path: str, seconds: float, acknowledge: str) -> int:
    """Let a process commit for so long, kill it; the last transaction that it acknowledged."""
    command = [sys.executable, "-m", "tests.crash.committing", path, acknowledge]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "the process ended before its first commit"
        time.sleep(seconds)
        assert process.poll() is None, "the process ended by itself"
        process.kill()
        lines = (first + process.stdout.read()).splitlines(keepends=True)
    whole = [int(line) for line in lines if line.endswith(b"\n")]
    return whole[-1]


def kill_again_and_again(path: str, kills: int, rng: random.Random, acknowledge: str) -> None:
    """Kill and look, so many times over the life of one store."""
    create(path)
    audit = Audit(path)
    for _ in range(kills):
        before = audit.seen
        acknowledged = kill_while_committing(path, rng.random() ** 2 * MOST_SECONDS, acknowledge)
        assert audit.look(acknowledged) > before, "nothing was committed: nothing was shown"


@pytest.mark.cases(6)
@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.promise(3)
@pytest.mark.promise(8)
@pytest.mark.crash
def test_five_kills_lose_nothing_and_leave_nothing_half(
    store_path: str, rng: random.Random
) -> None:
    """The short slice of the test below, for every run."""
    kill_again_and_again(store_path, FEW, rng, "after")


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.crash
@pytest.mark.long
def test_a_hundred_kills_lose_nothing_and_leave_nothing_half(
    store_path: str, rng: random.Random
) -> None:
    """One store lives through a hundred kills at random moments."""
    kill_again_and_again(store_path, MANY, rng, "after")


@pytest.mark.cases(6)
@pytest.mark.promise(14)
@pytest.mark.crash
def test_promise_14_kills_lose_nothing_that_is_not_synced(
    store_path: str, rng: random.Random
) -> None:
    """The end of the process takes none of the commits that need not be durable."""
    kill_again_and_again(store_path, FEW, rng, "unsynced")


@pytest.mark.crash
def test_an_acknowledgement_before_the_commit_is_caught(
    store_path: str, rng: random.Random
) -> None:
    """The canary: a process that acknowledges too early is found out within a few kills."""
    with pytest.raises(Violation, match="was acknowledged"):
        kill_again_and_again(store_path, 4 * FEW, rng, "before")


@pytest.mark.crash
@pytest.mark.parametrize("source", ["first/audit", "second/audit", "burst/audit", "work"])
def test_a_transaction_of_which_a_message_is_gone_is_caught(store_path: str, source: str) -> None:
    """The canary for half transactions: whichever queue lacks a message, the audit finds it."""
    create(store_path)
    with quire.open(store_path, **OPTIONS) as store:
        for number in (1, 2, 3):
            commit(store, number)
        with store.transaction() as transaction:
            assert transaction.get(source) is not None
    with pytest.raises(Violation, match=source.partition("/")[0]):
        Audit(store_path).look(acknowledged=3)
