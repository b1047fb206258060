"""Stores, and a PostgreSQL for all tests of this folder together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv
from tests.coordination.postgres import Cluster, NotInstalled


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running PostgreSQL; skips, with the reason, where it is not installed."""
    try:
        cluster = Cluster()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    yield cluster
    cluster.stop()


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """An open store with the work queue `work`; verified at the end."""
    with quire.open(store_path, segment_bytes=4 << 20) as store:
        store.create_queue("work", kind="work")
        yield store
        report = store.admin.verify()
        assert report.ok, report.findings


@pytest.fixture
def sim_store() -> Iterator[Store]:
    """The same on a simulated machine, which is quicker."""
    with Store.open("/store", env=SimEnv(), background=False, segment_bytes=1 << 20) as store:
        store.create_queue("work", kind="work")
        yield store
        report = store.admin.verify()
        assert report.ok, report.findings
