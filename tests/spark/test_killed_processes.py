"""Killed processes: Spark's JVM, and the store's owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import quire
from quire.opening import open_or_serve
from quire.spark_graphs import connection
from tests.kit.descendants import kill_session
from tests.kit.waiting import eventually
from tests.spark.checkpoint_logs import last_logged
from tests.spark.driver import OUTPUTS
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, spread, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.promise(2),
    pytest.mark.cases(4, of_file=True),
]


class Driver:
    """The program of driver.py, in a session of its own."""

    def __init__(
        self, store: Any, tmp_path: Path, control: Path, format: str, master: str = ""
    ) -> None:
        arguments = [store.path, str(tmp_path / "checkpoint"), str(control), format, master]
        self.log = (tmp_path / "driver.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and all Python workers; an owner has its own session."""
        children = kill_session(self.process.pid)
        self.process.kill()
        self.end()
        psutil.wait_procs(children, timeout=10)

    def end(self) -> int:
        """Wait for its end."""
        code = self.process.wait(300)
        self.log.close()
        return code


@pytest.mark.long
@pytest.mark.parametrize("format", ["quire_steered", "quire_forgetful"])
def test_a_jvm_killed_between_the_two_commits(
    store: Any, tmp_path: Path, control: Path, format: str
) -> None:
    """The ledger holds the micro-batch, Spark's commit log does not: the next start repeats it."""
    topic(store, "in", *OUTPUTS)
    put_numbers(store, "in", range(100))
    (control / "hold-after").touch()
    driver = Driver(store, tmp_path, control, format)
    eventually((control / "committed-0").exists, 120)
    assert last_logged(tmp_path / "checkpoint", "offsets") == 0
    assert last_logged(tmp_path / "checkpoint", "commits") is None
    driver.kill()
    (control / "hold-after").unlink()
    assert numbers_in(store, *OUTPUTS) == Counter(range(40))

    assert Driver(store, tmp_path, control, format).end() == 0
    exact = numbers_in(store, *OUTPUTS) == Counter(range(100))
    assert exact == (format == "quire_steered")


def owned_elsewhere(store_path: str) -> Any:
    """The store, with a process of its own as owner."""
    quire.open(store_path).close()
    return open_or_serve(store_path, create=False)


@pytest.mark.cases(4)
def test_an_owner_killed_in_the_middle_of_a_commit(
    spark: SparkSession, store_path: str, tmp_path: Path, control: Path
) -> None:
    """The commit is tried again with the next owner, and the ledger knows whether it must be."""
    store = owned_elsewhere(store_path)
    topic(store, "in", *OUTPUTS)
    put_numbers(store, "in", range(100))
    (control / "kill-owner").touch()
    rows = spread(stream(spark, store, "in", maxMessagesPerTrigger=40), *OUTPUTS)
    writer = sink(rows, store, tmp_path / "c", "quire_steered", control=str(control))
    run_to_end(writer.trigger(availableNow=True).start())
    assert not (control / "kill-owner").exists()
    found = connection.call(store_path, lambda again: numbers_in(again, *OUTPUTS))
    assert found == Counter(range(100))
    connection.forget(store_path)
    store.close()


def test_owners_killed_while_a_stream_runs(
    spark: SparkSession, store_path: str, tmp_path: Path
) -> None:
    """The query goes on, whatever it was doing when the owner went."""
    store = owned_elsewhere(store_path)
    topic(store, "in", *OUTPUTS)
    put_numbers(store, "in", range(200))
    rows = spread(stream(spark, store, "in", maxMessagesPerTrigger=40), *OUTPUTS)
    query = sink(rows, store, tmp_path / "c").trigger(processingTime="0 seconds").start()
    for kills in range(3):
        eventually(lambda done=kills: (last_logged(tmp_path / "c", "commits") or -1) >= done)  # type: ignore[misc]
        owner = connection.call(store_path, lambda again: again.owner_process_id)
        os.kill(owner, signal.SIGKILL)
        connection.forget(store_path)
        assert query.isActive
    eventually(
        lambda: (
            connection.call(store_path, lambda again: numbers_in(again, *OUTPUTS)).total() >= 200
        )
    )
    query.stop()
    found = connection.call(store_path, lambda again: numbers_in(again, *OUTPUTS))
    assert found == Counter(range(200))
    connection.forget(store_path)
    store.close()
