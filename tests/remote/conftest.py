"""Stores for the tests of sharing: embedded and joined, also through the API for asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import StoreClosed
from quire.opening import open as open_store
from quire.remote import ElectedStore, RemoteStore
from quire.store import Store as Interface
from tests.aio.behind_loop import behind_loop
from tests.remote.children import join

AnyStore = Interface
SEGMENT_BYTES = 4 << 20  # quickly made


@pytest.fixture
def owner(store_path: str) -> Iterator[Store]:
    """A store that this process owns and serves. It verifies at the end."""
    with open_store(store_path, segment_bytes=SEGMENT_BYTES, data_files=2) as store:
        assert isinstance(store, Store)
        yield store
        with suppress(StoreClosed):  # a test may have closed it
            report = store.verify()
            assert report.ok, report.findings


@pytest.fixture
def joined(owner: Store) -> Iterator[RemoteStore]:
    """The same store, joined, for as long as this owner lives."""
    with join(owner.path) as store:
        yield store


@pytest.fixture
def elected(owner: Store) -> Iterator[ElectedStore]:
    """The same store, joined by a store object that would live on."""
    with open_store(owner.path) as store:
        assert isinstance(store, ElectedStore)
        yield store


@pytest.fixture
def async_owner(store_path: str) -> Iterator[AnyStore]:
    """A store that this process owns, through the API for asyncio."""
    with behind_loop(store_path, segment_bytes=SEGMENT_BYTES, data_files=2) as store:
        yield store
        with suppress(StoreClosed):
            report = store.verify()
            assert report.ok, report.findings


@pytest.fixture
def async_joined(owner: Store) -> Iterator[AnyStore]:
    """A joined store, through the API for asyncio."""
    with behind_loop(owner.path) as store:
        assert store.role == "joined"
        yield store


@pytest.fixture(params=["embedded", "joined", "elected"])
def store(request: pytest.FixtureRequest) -> AnyStore:
    """Each of them: what is tested with it holds for all."""
    name = {"embedded": "owner"}.get(request.param, request.param)
    value: AnyStore = request.getfixturevalue(name)
    return value
