"""The forms of a store: embedded, joined, elected, over TLS; all but "joined" for asyncio, too.

What a test of this folder shows with the fixture `store` holds for each of them. A run has it
embedded and in one more form, which its seed draws (`tests/kit/drawn_items.py`).

"network" is a store that is served to users, opened by a token of one who has all rights; "asyncio
network" is served to whoever has a certificate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import StoreClosed
from quire.interface.store import Store as Interface
from quire.opening import open as open_store
from quire.remote import JoinedStore
from tests.kit.behind_loop import joined_behind_loop, owned_behind_loop, tls_behind_loop
from tests.kit.children import join
from tests.kit.drawn_items import FORMS as NAMES
from tests.kit.users import over_tls_with_all_rights

AnyStore = Interface
SEGMENT_BYTES = 4 << 20  # quickly made


class Clock:
    """The clocks of all stores of this process. They go on, and a test puts them forward.

    So a message is due or over when the test says so, however slow the machine is. Where a test
    counts what happens in a second, it stops them; then nobody may wait for a moment to come.
    """

    def __init__(self) -> None:
        self._ahead_seconds = 0.0
        self._stopped_at: tuple[int, float] | None = None

    def forward(self, seconds: float) -> None:
        """Put them forward."""
        self._ahead_seconds += seconds

    def stop(self) -> None:
        """Stop them where they are; they can still be put forward."""
        self._stopped_at = time.time_ns() // 1000, time.monotonic()

    def go_on(self) -> None:
        """Let them go on, from the moment that it is without a stop."""
        self._stopped_at = None

    def now_us(self) -> int:
        """The wall clock, in microseconds since 1970."""
        now = self._stopped_at[0] if self._stopped_at else time.time_ns() // 1000
        return now + int(self._ahead_seconds * 1e6)

    def monotonic(self) -> float:
        """Seconds from some fixed moment."""
        now = self._stopped_at[1] if self._stopped_at else time.monotonic()
        return now + self._ahead_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the stores of this process take for the time."""
    clock = Clock()
    monkeypatch.setattr(OsEnv, "now_us", lambda _: clock.now_us())
    monkeypatch.setattr(OsEnv, "monotonic", lambda _: clock.monotonic())
    return clock


def own(path: str) -> Store:
    """The store, whose owner has gone."""
    store = open_store(path)
    assert isinstance(store, Store)
    return store


@pytest.fixture
def owner(store_path: str, clock: Clock) -> Iterator[Store]:
    """A store that this process owns and serves. It verifies at the end."""
    with open_store(store_path, segment_bytes=SEGMENT_BYTES, data_files=2) as store:
        assert isinstance(store, Store)
        yield store
        with suppress(StoreClosed):  # a test may have closed it
            report = store.admin.verify()
            assert report.ok, report.findings


@pytest.fixture
def joined(owner: Store) -> Iterator[JoinedStore]:
    """The same store, joined, for as long as this owner lives."""
    with join(owner.path) as store:
        yield store


@pytest.fixture
def elected(owner: Store) -> Iterator[JoinedStore]:
    """The same store, joined by a store object that would live on."""
    with open_store(owner.path) as store:
        assert isinstance(store, JoinedStore)
        yield store


# Each gives a store object over a store that this process owns and serves.
FORMS: dict[str, Callable[[Store], AbstractContextManager[AnyStore]]] = {
    "embedded": nullcontext,
    "joined": lambda owner: join(owner.path),
    "elected": lambda owner: open_store(owner.path),
    "asyncio": owned_behind_loop,
    "asyncio joined": lambda owner: joined_behind_loop(owner.path),
    "network": over_tls_with_all_rights,
    "asyncio network": tls_behind_loop,
}
assert tuple(FORMS) == NAMES
# For `pytest.mark.parametrize("store", ..., indirect=True)`, where something holds for these only.
JOINED = ["joined", "elected", "asyncio joined", "network", "asyncio network"]
WITH_CALLBACKS = ["embedded", "joined", "elected", "network"]
TOLD_AT_ONCE = ["embedded", "joined", "elected", "asyncio"]  # that a transaction was ended


@pytest.fixture(params=FORMS)
def store(owner: Store, request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    """Each of them: what is tested with it holds for all."""
    with FORMS[request.param](owner) as store:
        assert (store.role == "joined") == (request.param in JOINED)
        yield store
