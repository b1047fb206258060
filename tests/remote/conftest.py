"""Stores for the tests of sharing: embedded and joined, also through the API for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import StoreClosed
from quire.opening import open as open_store
from quire.remote import RemoteStore
from quire.remote.elected_store import ElectedStore
from quire.store import Store as Interface
from tests.aio.behind_loop import joined_behind_loop, owned_behind_loop
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


# How a store is had. Each gives one over a store that this process owns and serves.
FORMS: dict[str, Callable[[Store], AbstractContextManager[AnyStore]]] = {
    "embedded": nullcontext,
    "joined": lambda owner: join(owner.path),
    "elected": lambda owner: open_store(owner.path),
    "asyncio": owned_behind_loop,
    "asyncio joined": lambda owner: joined_behind_loop(owner.path),
}
# For `pytest.mark.parametrize("store", ..., indirect=True)`, where something holds for these only.
JOINED = ["joined", "elected", "asyncio joined"]
WITH_CALLBACKS = ["embedded", "joined", "elected"]
TOLD_AT_ONCE = ["embedded", "joined", "elected", "asyncio"]  # that a transaction was ended


@pytest.fixture(params=FORMS)
def store(owner: Store, request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    """Each of them: what is tested with it holds for all."""
    with FORMS[request.param](owner) as store:
        assert (store.role == "joined") == (request.param in JOINED)
        yield store
