"""What the Spark tests share: one session, stores, and the check for exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire
from quire.spark_graphs import Graph, connection
from tests.kit.draws import drawn
from tests.kit.waiting import SECONDS
from tests.spark.served_store import AtServer, credentials, directory, served, variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from quire.spark_graphs.graphs.run import Run


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests: starting one takes seconds."""
    from tests.spark.session import start_session

    with variables(credentials()):  # its workers have the environment that it is started with
        session = start_session(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    """What a test has joined in this process does not outlive it."""
    yield
    for process, path in list(connection._stores):
        if process == os.getpid():
            connection.forget(path)


@pytest.fixture
def drained(graph: Graph) -> Iterator[Callable[..., Run]]:
    """Runs a module's `graph` until its inputs are empty."""
    runs = []

    def drain(**options: Any) -> Run:
        runs.append(graph.start(**options))
        runs[-1].drain(timeout=SECONDS)
        return runs[-1]

    yield drain
    for run in runs:
        run.stop()


@pytest.fixture
def control(tmp_path: Path) -> Path:
    """The control directory of the steered sinks (doubles.py)."""
    path = tmp_path / "control"
    path.mkdir()
    return path


@pytest.fixture
def is_served(request: pytest.FixtureRequest, seed: int) -> bool:
    """True where Spark has the URL of the store's server, and not its directory.

    Only in tests with the mark `at_server`, as the seed draws; with `--forms network` in all of
    them, with `--forms embedded` in none.
    """
    if request.node.get_closest_marker("at_server") is None:
        return False
    forms: str = request.config.getoption("--forms")
    if forms in ("network", "embedded"):
        return forms == "network"
    return drawn((False, True), seed, request.node.name)


@pytest.fixture
def store(is_served: bool, store_path: str, tmp_path: Path) -> Iterator[Any]:
    """A store that the test's own process owns; Spark's processes join it (`is_served`)."""
    with quire.open(store_path) as opened, ExitStack() as stack:
        if is_served:
            url = stack.enter_context(served(opened, tmp_path))
            yield AtServer(opened, connection.check_url(url))
            for process, path in list(connection._stores):
                if process == os.getpid():
                    connection.forget(path)
        else:
            yield opened
        report = opened.admin.verify()
        assert report.ok, report.findings


@pytest.fixture
def graph(spark: SparkSession, store: Any) -> Graph:
    """A graph without steps."""
    return Graph("shop", spark, store.path, f"{directory(store)}-checkpoints")


@pytest.fixture
def kills(rounds: int) -> int:
    """20 for the 500 rounds of `make crash`, one for the 25 of `make test`."""
    return max(1, rounds // 25)
