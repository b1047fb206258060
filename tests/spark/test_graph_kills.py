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

from quire.graphs import set_paused
from quire.spark_graphs import connection
from tests.kit.descendants import is_java, kill_descendants, kill_session
from tests.kit.waiting import eventually
from tests.spark.cluster import cluster
from tests.spark.graph_driver import KEY, OUTPUTS, make
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.session import ROOT
from tests.spark.test_killed_processes import owned_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.promise(2),
    pytest.mark.at_server,
]

ROUNDS_OF_A_DRIVER = 10  # where it is not what dies
START_SECONDS = 600  # a Spark that starts on a machine that has much else to do


def killed(process: subprocess.Popen[bytes], *, alone: bool = False) -> None:
    """SIGKILL to a program, its JVM and all Python workers; an owner has its own session.

    `alone`: to the program, whose JVM and workers end by themselves when they notice.
    """
    children = [] if alone else kill_session(process.pid)
    process.kill()
    process.wait()
    psutil.wait_procs(children, timeout=10)


class Rounds:
    """One graph and its store; each round a program that is killed, or a process of it."""

    def __init__(self, store: Any, tmp_path: Path, control: Path) -> None:
        topic(store, "in", *OUTPUTS)
        self._store, self.tmp_path, self.control = store, tmp_path, control
        self.path: str = store.path
        self.put = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def store(self) -> Any:
        """The store, which this process owns."""
        return self._store

    def more(self, count: int = 60) -> None:
        """More messages, by default more than two batches take."""
        put_numbers(self.store, "in", range(self.put, self.put + count))
        self.put += count

    def start(self, master: str = "") -> subprocess.Popen[bytes]:
        """And a program that runs the graph; every other one reads and writes by tasks."""
        self.more()
        by_tasks = self.control / "by-tasks"
        by_tasks.unlink() if by_tasks.exists() else by_tasks.touch()
        with (self.tmp_path / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.graph_driver"),
                    *(self.path, str(self.control), master),
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
        last = self.store.integration.ledger(KEY)
        return -1 if last is None else int(last)

    def check(self, *, ended: bool) -> None:
        """Nothing twice, nothing invented; and everything, when the graph has come to its end."""
        expected = Counter(range(self.put))
        halves = numbers_in(self.store, "odd", "even")
        assert not halves - expected
        whole = numbers_in(self.store, "sum")
        assert not whole - halves
        total = self.store.states.get("graph.kills.step.add", "sum")
        assert int(total or 0) == sum(whole.elements())
        assert not ended or whole == halves == expected

    def end_staying(self) -> None:
        """A program that stays, if there is one, comes to its end."""
        if (self.control / "stay").exists():
            (self.control / "stay").unlink()
            assert self.process is not None
            assert self.process.wait(START_SECONDS) == 0, self.said()

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


class RoundsElsewhere(Rounds):
    """The store's owner is a process of its own, which may be killed too."""

    @property
    def store(self) -> Any:
        """The store at its owner, and where that was killed at the next one."""
        return connection.store_at(self.path)

    def kill_owner(self) -> None:
        """SIGKILL, as to the program."""
        os.kill(self.store.owner_process_id, signal.SIGKILL)
        connection.forget(self.path)


@pytest.fixture
def game_elsewhere(store_path: str, tmp_path: Path, control: Path) -> Iterator[RoundsElsewhere]:
    """The same with the store's owner elsewhere."""
    with owned_elsewhere(store_path) as store:
        made = RoundsElsewhere(store, tmp_path, control)
    yield made
    if made.process is not None and made.process.poll() is None:
        killed(made.process)
    assert made.store.admin.verify().ok
    connection.forget(store_path)


@pytest.mark.long
def test_a_driver_killed_between_planning_and_commit(
    game: Rounds, kills: int, rng: random.Random
) -> None:
    """Alone or with JVM and workers: the tasks have written, and nothing of it is there."""
    for _ in range(kills):
        before = game.number()
        (game.control / "hold-before").touch()
        (game.control / "holding").unlink(missing_ok=True)
        process = game.start()
        game.wait_for((game.control / "holding").exists)
        killed(process, alone=rng.random() < 0.5)
        (game.control / "hold-before").unlink()
        assert game.number() == before
        game.check(ended=False)
    game.end()


@pytest.mark.long
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


@pytest.mark.long
def test_a_jvm_killed_at_any_moment(game: Rounds, kills: int, rng: random.Random) -> None:
    """The driver's Python outlives it; its steps end, and it fails."""
    for _ in range(kills):
        before = game.number()
        process = game.start()
        game.wait_for(lambda last=before: game.number() > last)  # type: ignore[misc]
        time.sleep(rng.random())
        kill_descendants(process.pid, is_java)
        code = process.wait(START_SECONDS)
        game.check(ended=code == 0)
    game.end()


@pytest.mark.long
def test_an_executor_killed_while_it_writes(game: Rounds, kills: int) -> None:
    """A JVM of its own, in the middle of a task: another one starts and tries the task again."""
    for number in range(kills):
        (game.control / "hold-write").touch()
        (game.control / "writing").unlink(missing_ok=True)
        if number % ROUNDS_OF_A_DRIVER == 0:
            game.end_staying()
            (game.control / "stay").touch()
            game.start("local-cluster[1,2,1024]")
        else:
            game.more(20)
        game.wait_for((game.control / "writing").exists)
        worker = psutil.Process(int((game.control / "writing").read_text()))
        executor = next(parent for parent in worker.parents() if parent.name() == "java")
        assert game.process is not None
        assert executor.ppid() != game.process.pid
        executor.kill()
        (game.control / "hold-write").unlink()
        game.wait_for(lambda: numbers_in(game.store, "sum").total() >= game.put)
        game.check(ended=True)
    game.end_staying()


@pytest.mark.long
def test_a_slow_task_is_begun_again_elsewhere(game: Rounds, kills: int, tmp_path: Path) -> None:
    """By speculation: both attempts come to their end at about the same time, and one counts."""
    (game.control / "stay").touch()
    (game.control / "by-tasks").unlink(missing_ok=True)
    with cluster(tmp_path, 2) as master:
        for number in range(kills):
            (game.control / "slow-task").touch()
            game.more(20) if number else game.start(master)
            game.wait_for((game.control / "again").exists)
            game.wait_for(lambda: numbers_in(game.store, "sum").total() >= game.put)
            game.check(ended=True)
            (game.control / "again").unlink()
        game.end_staying()


@pytest.mark.long
def test_a_whole_graph_killed_at_any_moment(
    game_elsewhere: RoundsElsewhere, kills: int, rng: random.Random
) -> None:
    """Driver, JVM, workers and the store's owner, while several steps are at work."""
    game = game_elsewhere
    for _ in range(kills):
        before = game.number()
        process = game.start()
        game.wait_for(lambda last=before: game.number() > last)  # type: ignore[misc]
        time.sleep(rng.random() * 3)
        game.kill_owner()
        if process.poll() is None:
            killed(process)
        game.check(ended=False)
    game.end()


@pytest.mark.long
def test_a_whole_graph_killed_while_it_is_paused(
    game_elsewhere: RoundsElsewhere, kills: int
) -> None:
    """Started again it is paused still, and goes on where it was when it is told to."""
    game, before = game_elsewhere, -1
    (game.control / "stay").touch()
    for number in range(kills):
        process = game.start()
        if number:
            game.wait_for((game.control / "paused").exists)
            assert game.number() == before
            set_paused(game.store, "kills", None, False)
        game.wait_for(lambda last=before: game.number() > last)  # type: ignore[misc]
        (game.control / "paused").unlink(missing_ok=True)
        set_paused(game.store, "kills", None, True)
        game.wait_for((game.control / "paused").exists)
        before = game.number()
        game.more(20)
        game.kill_owner()
        killed(process)
        (game.control / "paused").unlink()
        game.check(ended=False)
    set_paused(game.store, "kills", None, False)
    (game.control / "stay").unlink()
    game.end()


@pytest.mark.long
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


@pytest.mark.cases(2)
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
    store.close()
