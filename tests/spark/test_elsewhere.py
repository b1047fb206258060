"""Spark on other hosts than the store's: they see none of its files, and go through its server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import quire
from tests.kit.waiting import SECONDS
from tests.source_tree import ROOT
from tests.spark.cluster import can_hide, cluster, without
from tests.spark.elsewhere import NUMBERS
from tests.spark.served_store import TOKEN, served

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
