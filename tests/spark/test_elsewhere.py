"""Spark on other hosts than the store's: they see none of its files, and go through its server."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import quire
from quire.spark_graphs import connection
from tests.kit.printed_pages import PrintedPage
from tests.kit.waiting import SECONDS, eventually
from tests.source_tree import ROOT
from tests.spark.cluster import can_hide, cluster, without
from tests.spark.driver import OUTPUTS
from tests.spark.elsewhere import NUMBERS
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import sink, spread, stream
from tests.spark.served_store import TOKEN, ServerProcess, served, served_elsewhere
from tests.spark.session import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long]


@contextmanager
def hidden_store(directory: Path) -> Iterator[tuple[Any, str]]:
    """A store in a directory that Spark's hosts do not see, and the URL of its server."""
    directory.mkdir()
    with quire.open(str(directory / "store")) as store:
        for name in ("in", "middle", "out"):
            store.create_queue(name, kind="topic")
            store.subscribe(name, "reader")
        with served(store, directory) as url:
            yield store, url
        assert store.admin.verify().ok


@pytest.fixture
def server(tmp_path: Path, rng: random.Random) -> Iterator[ServerProcess]:
    """A store that is served to Spark by a process of its own."""
    (tmp_path / "hidden").mkdir()
    with served_elsewhere(tmp_path / "hidden", rng) as made:
        connection.call(made.path, lambda store: topic(store, "in", *OUTPUTS))
        yield made


@pytest.mark.crash
@pytest.mark.promise(2)
def test_a_server_killed_at_any_moment(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, kills: int, rng: random.Random
) -> None:
    """The query goes on with the next one: nothing is lost, and nothing comes twice."""

    def found() -> Counter[int]:
        return connection.call(server.path, lambda store: numbers_in(store, *OUTPUTS))

    place = SimpleNamespace(path=server.path)
    rows = spread(stream(spark, place, "in", maxMessagesPerTrigger=2000), *OUTPUTS)
    query = sink(rows, place, tmp_path / "c").trigger(processingTime="0 seconds").start()
    put = 0

    def is_through() -> bool:
        return found().total() >= put or not query.isActive

    for _ in range(kills):
        numbers = range(put, put + 6000)
        put += len(numbers)
        connection.call(
            server.path, partial(put_numbers, queue="in", numbers=numbers, at_once=1000)
        )
        time.sleep(rng.random() * 2)
        server.kill()
        eventually(is_through, 4 * SECONDS)
        assert query.isActive, query.exception()
        assert found() == Counter(range(put))
    query.stop()
    assert query.exception() is None


def test_the_page_sets_up_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands, settings and program, word for word; no host of Spark sees the store."""
    if not can_hide():
        pytest.skip("this user may not have directories that others do not see")
    hidden, secrets, spark = (tmp_path / name for name in ("hidden", "etc", "spark"))
    for each in (hidden, secrets, spark, tmp_path / "conf"):
        each.mkdir()
    with PrintedPage("spark.md", hidden) as page:
        page.serve()
        for name in ("spark.token", "server.pem"):
            shutil.copy(hidden / name, secrets)
        [settings] = page.blocks("sh")
        (tmp_path / "conf" / "spark-env.sh").write_text(
            settings.replace("/etc/quire", str(secrets))
        )
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        [program] = [each for each in page.blocks("python") if "quire://localhost" in each]
        (tmp_path / "orders.py").write_text(program)
        with cluster(spark, 2, hidden, from_all=True) as master:
            home = spark_home(spark)
            done = subprocess.run(
                [*without(hidden), str(home / "bin" / "spark-submit"), "--master", master,
                 str(tmp_path / "orders.py")],
                env=os.environ | {
                    "SPARK_HOME": str(home),
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                    "PYTHONPATH": str(ROOT),
                },
                capture_output=True, text=True, timeout=2 * SECONDS, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        assert done.stdout.splitlines()[-1] == "1000"


@pytest.mark.parametrize("master", ["standalone", "local-cluster[2,1,1024]"])
def test_a_cluster_without_the_stores_files(tmp_path: Path, master: str) -> None:
    """Reads, writes, a stream and a graph; and the token is nowhere to be seen.

    Neither is it in any file that Spark has written: event logs, logs of the cluster, work files.
    """
    if not can_hide():
        pytest.skip("this user may not have directories that others do not see")
    hidden, spark = tmp_path / "hidden", tmp_path / "spark"
    spark.mkdir()
    with hidden_store(hidden) as (store, url):

        def run(master: str) -> str:
            command = [sys.executable, "-m", "tests.spark.elsewhere", master, url, str(spark)]
            done = subprocess.run(
                [*without(hidden), *command],
                cwd=ROOT, capture_output=True, text=True, timeout=2 * SECONDS, check=False,
            )  # fmt: skip
            assert TOKEN.text not in done.stdout + done.stderr
            assert done.returncode == 0, "\n".join(
                line for line in done.stderr.splitlines() if not line.startswith("\tat ")
            )[-5000:]
            return done.stdout

        if master == "standalone":
            with cluster(spark, 2, hidden, from_all=True) as address:
                said = run(address)
        else:
            said = run(master)
        assert f"CAME {NUMBERS} {NUMBERS}" in said
        assert store.queue("out").messages == NUMBERS
        written = [path for path in spark.rglob("*") if path.is_file() and not path.is_symlink()]
        assert any(path.parent.name == "events" or "eventlog" in str(path) for path in written)
        text = TOKEN.text.encode()
        assert [path for path in written if text in path.read_bytes()] == []
