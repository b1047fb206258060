"""Rounds of SIGKILL at the places where a micro-batch may be half done; each is reconciled exactly.

`make crash` runs 20 rounds of each at its default length, `make test` one of those that need no
program of their own. Every round goes on from what the one before left behind.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from quire.spark_graphs import connection
from tests.kit.descendants import is_java, kill_descendants
from tests.kit.waiting import eventually
from tests.spark.checkpoint_logs import last_logged
from tests.spark.driver import OUTPUTS
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import sink, spread, stream
from tests.spark.test_killed_processes import Driver, owned_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.promise(2),
    pytest.mark.at_server,
]

START_SECONDS = 600  # a Spark that starts on a machine that has much else to do


class Rounds:
    """One query and its store; each round a program that is killed, or a process of it."""

    def __init__(self, store: Any, tmp_path: Path, control: Path) -> None:
        topic(store, "in", *OUTPUTS)
        self.store, self.tmp_path, self.control = store, tmp_path, control
        self.checkpoint = tmp_path / "checkpoint"
        self.put = 0
        self.driver: Driver | None = None

    def start(self, master: str = "") -> Driver:
        """More messages than two micro-batches take, and a program that copies them."""
        put_numbers(self.store, "in", range(self.put, self.put + 60))
        self.put += 60
        self.driver = Driver(self.store, self.tmp_path, self.control, "quire_steered", master)
        return self.driver

    def wait_for(self, driver: Driver, condition: Callable[[], bool]) -> None:
        def happened() -> bool:
            assert driver.process.poll() is None, (self.tmp_path / "driver.log").read_text()[-3000:]
            return condition()

        eventually(happened, START_SECONDS)

    def planned(self) -> int:
        """The last micro-batch in Spark's offset log."""
        last = last_logged(self.checkpoint, "offsets")
        return -1 if last is None else last

    def reports(self) -> list[Path]:
        """The sink's reports of micro-batches that are committed, or were found to be."""
        return list(self.control.glob("committed-*"))

    def check(self, *, ended: bool) -> None:
        """Nothing twice, nothing invented; and everything, when a query has ended."""
        found = numbers_in(self.store, *OUTPUTS)
        expected = Counter(range(self.put))
        assert not found - expected
        assert not ended or found == expected

    def end(self) -> None:
        """The last round is not disturbed."""
        driver = self.start()
        assert driver.end() == 0
        self.check(ended=True)


@pytest.fixture
def game(store: Any, tmp_path: Path, control: Path) -> Iterator[Rounds]:
    """The same for all that kill a program; a failed test leaves none behind."""
    made = Rounds(store, tmp_path, control)
    yield made
    if made.driver is not None and made.driver.process.poll() is None:
        made.driver.kill()


@pytest.mark.long
def test_a_driver_killed_between_planning_and_commit(game: Rounds, kills: int) -> None:
    """The driver, its JVM and its workers: the micro-batch is in the offset log and not done."""
    for _ in range(kills):
        planned = game.planned()
        (game.control / "hold-before").touch()
        (game.control / "holding").unlink(missing_ok=True)
        driver = game.start()
        game.wait_for(driver, (game.control / "holding").exists)
        assert game.planned() >= max(planned, 0)
        driver.kill()
        (game.control / "hold-before").unlink()
        game.check(ended=False)
    game.end()


@pytest.mark.long
def test_a_driver_killed_between_commit_and_the_next_batch(
    game: Rounds, kills: int, rng: random.Random
) -> None:
    """Before Spark's commit log has the micro-batch, or some time after that."""
    for _ in range(kills):
        held = rng.random() < 0.5
        if held:
            (game.control / "hold-after").touch()
        for report in game.reports():  # the first one may be of the last one again
            report.unlink()
        driver = game.start()
        game.wait_for(driver, lambda: bool(game.reports()))
        if not held:
            time.sleep(rng.random() * 0.3)
        driver.kill()
        (game.control / "hold-after").unlink(missing_ok=True)
        game.check(ended=False)
    game.end()


@pytest.mark.long
def test_a_jvm_killed_at_any_moment(game: Rounds, kills: int, rng: random.Random) -> None:
    """The driver's Python outlives it, and fails."""
    for _ in range(kills):
        planned = game.planned()
        driver = game.start()
        game.wait_for(driver, lambda last=planned: game.planned() != last)  # type: ignore[misc]
        time.sleep(rng.random() * 4)
        kill_descendants(driver.process.pid, is_java)
        code = driver.end()
        game.check(ended=code == 0)
    game.end()


@pytest.mark.long
def test_an_executor_killed_while_it_writes(game: Rounds, kills: int) -> None:
    """A JVM of its own, in the middle of a task: another one starts and tries the task again."""
    for _ in range(kills):
        (game.control / "hold-write").touch()
        (game.control / "writing").unlink(missing_ok=True)
        driver = game.start("local-cluster[1,2,1024]")
        game.wait_for(driver, (game.control / "writing").exists)
        worker = psutil.Process(int((game.control / "writing").read_text()))
        executor = next(parent for parent in worker.parents() if parent.name() == "java")
        assert executor.ppid() != driver.process.pid
        executor.kill()
        (game.control / "hold-write").unlink()
        assert driver.end() == 0
        game.check(ended=True)
    game.end()


@pytest.mark.cases(8)
def test_a_worker_killed_while_it_writes(
    spark: SparkSession, store: Any, tmp_path: Path, control: Path, kills: int
) -> None:
    """The Python of a task, with its fragments written: the task is tried again."""
    game = Rounds(store, tmp_path, control)
    rows = spread(stream(spark, store, "in", maxMessagesPerTrigger=40), *OUTPUTS)
    writer = sink(rows, store, tmp_path / "c", "quire_steered", control=str(control))
    query = writer.trigger(processingTime="0 seconds").start()
    for _ in range(kills):
        (control / "writing").unlink(missing_ok=True)
        (control / "hold-write").touch()
        put_numbers(store, "in", range(game.put, game.put + 60))
        game.put += 60
        eventually((control / "writing").exists, START_SECONDS)
        os.kill(int((control / "writing").read_text()), signal.SIGKILL)
        (control / "hold-write").unlink()
        eventually(
            lambda: numbers_in(store, *OUTPUTS).total() >= game.put or not query.isActive,
            START_SECONDS,
        )
        assert query.isActive, query.exception()
        game.check(ended=True)
    query.stop()


@pytest.mark.long
def test_an_owner_killed_at_any_moment(
    spark: SparkSession, store_path: str, tmp_path: Path, kills: int, rng: random.Random
) -> None:
    """The store's owner, another process than Spark's: the query goes on with the next one."""
    store = owned_elsewhere(store_path)
    topic(store, "in", *OUTPUTS)

    def found() -> Counter[int]:
        return connection.call(store_path, lambda again: numbers_in(again, *OUTPUTS))

    def put(numbers: range) -> None:
        connection.call(store_path, lambda again: put_numbers(again, "in", numbers, 60))

    def has_come(count: int) -> bool:
        return found().total() >= count or not query.isActive

    rows = spread(stream(spark, store, "in", maxMessagesPerTrigger=40), *OUTPUTS)
    query = sink(rows, store, tmp_path / "c").trigger(processingTime="0 seconds").start()
    for end in range(60, 60 * kills + 60, 60):
        put(range(end - 60, end))
        time.sleep(rng.random() * 2)
        owner = connection.call(store_path, lambda again: again.owner_process_id)
        os.kill(owner, signal.SIGKILL)
        connection.forget(store_path)
        eventually(partial(has_come, end), START_SECONDS)
        assert query.isActive, query.exception()
        assert found() == Counter(range(end))
    query.stop()
    connection.forget(store_path)
    store.close()
