"""Stores for the tests of the engine, on the real and on a simulated disk; verified at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv
from tests.engine.workload import new_machine
from tests.kit.folded_state import stores_are_folded

__all__ = ["stores_are_folded"]

SMALL: dict[str, Any] = {
    "segment_bytes": 1 << 20,
    "grow_bytes": 1 << 16,
    "checkpoint_bytes": 1 << 18,
}


@pytest.fixture
def env(seed: int) -> SimEnv:
    """A simulated machine with a directory for the store, on the run's seed."""
    return new_machine(seed)


@pytest.fixture
def sim() -> SimEnv:
    """A simulated machine."""
    return SimEnv()


@pytest.fixture
def sim_store(sim: SimEnv) -> Iterator[Store]:
    """A store on the simulated machine, without threads of its own."""
    with Store.open("/store", env=sim, background=False, **SMALL) as store:
        yield store
        report = store.admin.verify()
        assert report.ok, report.findings


@pytest.fixture
def os_store(store_path: str) -> Iterator[Store]:
    """A store on the real disk, as users have it."""
    with Store.open(store_path) as store:
        yield store
        report = store.admin.verify()
        assert report.ok, report.findings


@pytest.fixture(params=["os", "sim"])
def store(request: pytest.FixtureRequest) -> Store:
    """Either: what is tested with it holds on both."""
    value: Store = request.getfixturevalue(f"{request.param}_store")
    return value


@pytest.fixture
def work(store: Store) -> str:
    """A work queue."""
    return store.create_queue("work", kind="work").name


@pytest.fixture
def topic(store: Store) -> str:
    """A topic with the subscriptions "a" and "b"."""
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    store.subscribe("topic", "b")
    return "topic"
