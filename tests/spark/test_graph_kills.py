"""Rounds of SIGKILL at the places where a graph may be half done; each is reconciled exactly.

`make crash` runs 20 rounds of each at its default length, `make test` one of those that need no
program of their own. Every round goes on from what the one before left behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from quire.spark_graphs import connection
from tests.spark.graph_driver import KEY, OUTPUTS, make
from tests.spark.kit import eventually, numbers_in, put_numbers, topic
from tests.spark.session import ROOT
from tests.spark.test_crash import owned_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.promise(2)]

START_SECONDS = 240  # a Spark that starts on a machine that has much else to do


@pytest.fixture
def kills(rounds: int) -> int:
    """20 for the 500 rounds of `make crash`, one for the 25 of `make test`."""
    return max(1, rounds // 25)


def killed(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a program, its JVM and all Python workers; an owner has its own session."""
    children = psutil.Process(process.pid).children(recursive=True)
    session = os.getsid(process.pid)
    for child in children:
        if child.is_running() and os.getsid(child.pid) == session:
            child.kill()
    process.kill()
    process.wait()
    psutil.wait_procs(children, timeout=10)


class Rounds:
    """One graph and its store; each round a program that is killed, or a process of it."""

    def __init__(self, store: Any, tmp_path: Path, control: Path) -> None:
        topic(store, "in", *OUTPUTS)
        self.store, self.tmp_path, self.control = store, tmp_path, control
        self.put = 0
        self.process: subprocess.Popen[bytes] | None = None

    def more(self) -> None:
        """More messages than two batches take."""
        put_numbers(self.store, "in", range(self.put, self.put + 60))
        self.put += 60

    def start(self, master: str = "") -> subprocess.Popen[bytes]:
        """And a program that runs the graph; every other one reads and writes by tasks."""
        self.more()
        by_tasks = self.control / "by-tasks"
        by_tasks.unlink() if by_tasks.exists() else by_tasks.touch()
        with (self.tmp_path / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.graph_driver"),
                    *(self.store.path, str(self.control), master),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.process

    def wait_for(self, condition: Callable[[], bool]) -> None:
        def happened() -> bool:
            assert self.process is None or self.process.poll() is None, self.said()
            return condition()

        eventually(happened, START_SECONDS)

    def said(self) -> str:
        """What the program has written at last."""
        return (self.tmp_path / "driver.log").read_text()[-3000:]

    def number(self) -> int:
        """The last batch of the first step."""
        last = self.store.ledger(KEY)
        return -1 if last is None else int(last)

    def check(self, *, ended: bool) -> None:
        """Nothing twice, nothing invented; and everything, when the graph has come to its end."""
        expected = Counter(range(self.put))
        halves = numbers_in(self.store, "odd", "even")
        assert not halves - expected
        whole = numbers_in(self.store, "sum")
        assert not whole - halves
        total = self.store.get_state("graph.kills.step.add", "sum")
        assert int(total or 0) == sum(whole.elements())
        assert not ended or whole == halves == expected

    def end(self) -> None:
        """The last round is not disturbed."""
        assert self.start().wait(START_SECONDS) == 0, self.said()
        self.check(ended=True)


@pytest.fixture
def game(store: Any, tmp_path: Path, control: Path) -> Iterator[Rounds]:
    """The same for all that kill a program; a failed test leaves none behind."""
    made = Rounds(store, tmp_path, control)
    yield made
    if made.process is not None and made.process.poll() is None:
        killed(made.process)


@pytest.mark.slow
def test_a_driver_killed_between_planning_and_commit(game: Rounds, kills: int) -> None:
    """The driver, its JVM and its workers: the tasks have written, and nothing of it is there."""
    for _ in range(kills):
        before = game.number()
        (game.control / "hold-before").touch()
        (game.control / "holding").unlink(missing_ok=True)
        process = game.start()
        game.wait_for((game.control / "holding").exists)
        killed(process)
        (game.control / "hold-before").unlink()
        assert game.number() == before
        game.check(ended=False)
    game.end()


@pytest.mark.slow
def test_a_driver_killed_between_commit_and_the_next_batch(
    game: Rounds, kills: int, rng: random.Random
) -> None:
    """At once, or some time after it: other steps are in the middle of theirs."""
    for _ in range(kills):
        before, held = game.number(), rng.random() < 0.5
        if held:
            (game.control / "hold-after").touch()
        process = game.start()
        game.wait_for(lambda last=before: game.number() > last)  # type: ignore[misc]
        if not held:
            time.sleep(rng.random() * 0.5)
        killed(process)
        (game.control / "hold-after").unlink(missing_ok=True)
        game.check(ended=False)
    game.end()


@pytest.mark.slow
def test_a_jvm_killed_at_any_moment(game: Rounds, kills: int, rng: random.Random) -> None:
    """The driver's Python outlives it; its steps end, and it fails."""
    for _ in range(kills):
        before = game.number()
        process = game.start()
        game.wait_for(lambda last=before: game.number() > last)  # type: ignore[misc]
        time.sleep(rng.random())
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "java":
                child.kill()
        code = process.wait(START_SECONDS)
        game.check(ended=code == 0)
    game.end()


@pytest.mark.slow
def test_an_executor_killed_while_it_writes(game: Rounds, kills: int) -> None:
    """A JVM of its own, in the middle of a task: another one starts and tries the task again."""
    for _ in range(kills):
        (game.control / "hold-write").touch()
        (game.control / "writing").unlink(missing_ok=True)
        process = game.start("local-cluster[1,2,1024]")
        game.wait_for((game.control / "writing").exists)
        worker = psutil.Process(int((game.control / "writing").read_text()))
        executor = next(parent for parent in worker.parents() if parent.name() == "java")
        assert executor.ppid() != process.pid
        executor.kill()
        (game.control / "hold-write").unlink()
        assert process.wait(START_SECONDS) == 0, game.said()
        game.check(ended=True)
    game.end()


@pytest.mark.slow
def test_a_whole_graph_killed_at_any_moment(game: Rounds, kills: int, rng: random.Random) -> None:
    """Driver, JVM and workers, while several steps are at work."""
    for _ in range(kills):
        before = game.number()
        process = game.start()
        game.wait_for(lambda last=before: game.number() > last)  # type: ignore[misc]
        time.sleep(rng.random() * 3)
        if process.poll() is None:
            killed(process)
        game.check(ended=False)
    game.end()


def test_a_worker_killed_while_it_writes(
    spark: SparkSession, store: Any, tmp_path: Path, control: Path, kills: int
) -> None:
    """The Python of a task: the task is tried again, and nothing is there twice."""
    game = Rounds(store, tmp_path, control)
    with make(spark, store.path, str(control)).start() as run:
        for _ in range(kills):
            (control / "writing").unlink(missing_ok=True)
            (control / "hold-write").touch()
            game.more()
            eventually((control / "writing").exists, START_SECONDS)
            os.kill(int((control / "writing").read_text()), signal.SIGKILL)
            (control / "hold-write").unlink()
            run.drain(timeout=START_SECONDS)
            game.check(ended=True)


def test_an_owner_killed_at_any_moment(
    spark: SparkSession, store_path: str, control: Path, kills: int, rng: random.Random
) -> None:
    """The store's owner, another process than Spark's: the graph goes on with the next one."""
    store = owned_elsewhere(store_path)
    topic(store, "in", *OUTPUTS)
    with make(spark, store_path, str(control)).start() as run:
        for end in range(60, 60 * kills + 60, 60):
            numbers = range(end - 60, end)
            connection.call(store_path, lambda s, n=numbers: put_numbers(s, "in", n, 60))  # type: ignore[misc]
            time.sleep(rng.random())
            owner = connection.call(store_path, lambda again: again.owner_process_id)
            os.kill(owner, signal.SIGKILL)
            run.drain(timeout=START_SECONDS)
            found = connection.call(store_path, lambda again: numbers_in(again, "sum"))
            assert found == Counter(range(end))
    connection.forget(store_path)
