"""SIGKILL to whatever works on a graph with keyed states: all is counted once, and nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from quire import keyed as plain
from quire.errors import NotFound
from quire.spark_graphs import connection
from tests.keyed.conftest import SMALL_RUNS
from tests.kit.descendants import is_java, kill_descendants, kill_session
from tests.kit.limits import Limits
from tests.kit.waiting import eventually
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.session import ROOT
from tests.spark.state_driver import make
from tests.spark.test_killed_processes import owned_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.promise(2)]

KINDS = ("steps", "steps", "program", "jvm", "worker", "owner")  # what is killed
STEPS = 30  # of a program, after which it has done most of what a round puts
START_SECONDS = 600
ROUND = 60  # numbers that a round puts


def state_of(store: Any, name: str) -> list[dict[str, Any]]:
    """All rows of a state; none where the graph has not made it yet."""
    with suppress(NotFound):
        batches = plain.open_state(store, name).rows()
        return [row for batch in batches for row in batch.to_pylist()]
    return []


class KilledStates:
    """A store at its owner, another process, and what was put into it."""

    def __init__(self, path: str, control: Path, rng: random.Random) -> None:
        self.path, self.control, self.rng = path, control, rng
        self.put = 0
        connection.call(path, lambda store: topic(store, "in", "fresh", "counted", "echo"))

    def more(self) -> None:
        """Put numbers, of which some were put before: late, and repeated."""
        new = list(range(self.put, self.put + ROUND))
        old = [self.rng.randrange(self.put + ROUND) for _ in range(ROUND // 2)]
        self.rng.shuffle(new)
        numbers = new + old
        connection.call(self.path, lambda store: put_numbers(store, "in", numbers, len(numbers)))
        self.put += ROUND

    def kill_owner(self) -> None:
        """The next call starts another one."""
        owner = connection.call(self.path, lambda store: store.owner_process_id)
        os.kill(owner, signal.SIGKILL)
        connection.forget(self.path)

    def check(self, *, ended: bool = False) -> None:
        """What the states say is what was handed on; twice, as the store is opened anew."""
        for _ in range(2):
            connection.call(self.path, lambda store: self._check(store, ended))
            connection.forget(self.path)

    def _check(self, store: Any, ended: bool) -> None:
        fresh, counted = numbers_in(store, "fresh"), numbers_in(store, "counted")
        assert set(fresh.values()) <= {1}
        assert fresh.keys() <= set(range(self.put))
        assert {row["number"] for row in state_of(store, "seen")} == fresh.keys()
        assert not counted - fresh
        times = Counter(number % 10 for number in counted)
        total: Counter[int] = Counter()
        for number in counted:
            total[number % 10] += number
        found = {row["digit"]: row for row in state_of(store, "digits")}
        assert {digit: row["times"] for digit, row in found.items()} == times
        assert {digit: row["total"] for digit, row in found.items()} == {d: total[d] for d in found}
        echo, held = numbers_in(store, "echo"), {row["number"] for row in state_of(store, "held")}
        assert not echo - counted
        assert not echo.keys() & held
        if ended:
            assert counted == fresh == echo == Counter(range(self.put))
            assert not held
        report = store.admin.verify()
        assert report.ok, report.findings


def started(game: KilledStates, log: Path) -> subprocess.Popen[bytes]:
    """Return the program, at work."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.state_driver", game.path, str(game.control)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def put_down(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the program, its JVM and all workers."""
    children = kill_session(process.pid) if process.poll() is None else []
    process.kill()
    process.wait()
    psutil.wait_procs(children, timeout=10)


def is_worker(process: psutil.Process) -> bool:
    """Return True if it is a Python of a task."""
    return "pyspark" in " ".join(process.cmdline())


def killed_round(game: KilledStates, log: Path, kind: str) -> None:
    """Start the program, and kill what the kind says at a moment by chance."""
    by_tasks = game.control / "by-tasks"
    by_tasks.touch() if kind == "worker" or game.rng.random() < 0.5 else by_tasks.unlink(True)
    kill = game.control / "kill-at"
    kill.write_text(str(game.rng.randrange(1, STEPS))) if kind == "steps" else kill.unlink(True)
    game.more()
    before = game.rng.randrange(ROUND)
    process = started(game, log)

    def number() -> int:
        last = connection.call(game.path, lambda s: s.integration.ledger("graph/kills/unique"))
        return -1 if last is None else int(last)

    first = number()

    def is_at_work() -> bool:
        return process.poll() is not None or number() > first

    try:
        eventually(is_at_work, START_SECONDS)
        if kind == "steps":
            eventually(lambda: process.poll() is not None, START_SECONDS)
            return
        time.sleep(before / ROUND)
        if process.poll() is not None:
            return
        chosen: dict[str, Callable[[], Any]] = {
            "jvm": lambda: kill_descendants(process.pid, is_java),
            "worker": lambda: kill_descendants(process.pid, is_worker),
            "owner": game.kill_owner,
            "program": lambda: put_down(process),
        }
        chosen[kind]()
        if kind != "program":
            eventually(lambda: process.poll() is not None, START_SECONDS)
    finally:
        put_down(process)


@pytest.mark.long
def test_a_graph_with_states_killed_at_any_moment(
    store_path: str, tmp_path: Path, control: Path, kills: int, rng: random.Random
) -> None:
    """Driver, JVM, workers, owner; between a run and its commit, and in the middle of a merge."""
    owned_elsewhere(store_path).close()
    game = KilledStates(store_path, control, rng)
    for number in range(max(kills, len(KINDS))):
        killed_round(game, tmp_path / "driver.log", KINDS[number % len(KINDS)])
        game.check()
    game.more()
    (control / "kill-at").unlink(True)
    process = started(game, tmp_path / "driver.log")
    try:
        assert process.wait(START_SECONDS) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    finally:
        put_down(process)
    game.check(ended=True)
    connection.forget(store_path)


def test_an_owner_killed_under_states(
    spark: SparkSession,
    store_path: str,
    control: Path,
    kills: int,
    rng: random.Random,
    limits: Limits,
) -> None:
    """The graph goes on with the next owner."""
    limits(**SMALL_RUNS)
    owned_elsewhere(store_path).close()
    game = KilledStates(store_path, control, rng)
    with make(spark, store_path).start() as run:
        for _ in range(kills):
            game.more()
            time.sleep(rng.random())
            game.kill_owner()
            run.drain(timeout=START_SECONDS)
            game.check(ended=True)
    connection.call(store_path, miscount)
    with pytest.raises(AssertionError):  # the canary
        game.check(ended=True)
    connection.forget(store_path)


def miscount(store: Any) -> None:
    """Count a number once more in a state, and nowhere else."""
    state = plain.open_state(store, "digits")
    with store.transaction() as txn, state.within(txn) as rows:
        (row,) = rows.get([3]).to_pylist()
        rows.put([{**row, "times": row["times"] + 1}])
