"""An error inside the owner, not raised on purpose, as a joined caller is told of it (SS4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import OutcomeUnknown, QuireError, RemoteError, StoreFailed
from quire.interface.store import Store as Interface
from quire.interface.transaction import Transaction
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.server.served_client import ServedClient
from tests.behaviour.forms import SEGMENT_BYTES
from tests.engine.failing import SHOWN, Failing

pytestmark = SHOWN
ALL = 1_000_000


def _plain(txn: Transaction, payload: bytes) -> None:
    txn.put("work", payload)


def _large_record(txn: Transaction, payload: bytes) -> None:
    txn.put("work", payload)
    for number in range(40):
        txn.enter(f"{payload.decode()}-{number}" + "x" * 80, 1)


def _states(txn: Transaction, payload: bytes) -> None:
    txn.put_many("work", [payload, b"x"])
    txn.set_value("s", "k", payload)


TRANSACTIONS: dict[str, Callable[[Transaction, bytes], None]] = {
    "plain": _plain,
    "a large record": _large_record,
    "with states": _states,
}
ALONE: dict[str, Callable[[Interface, str], object]] = {
    "put": lambda store, name: store.put("work", name.encode()),
    "put with fields": lambda store, name: store.put("work", name.encode(), group=1),
    "put many": lambda store, name: store.put_many("work", [name.encode()]),
    "create a queue": lambda store, name: store.create_queue(name, kind="topic"),
}


def lazily(answers: Iterator[Any], failing: Failing) -> Iterator[Any]:
    """The client goes on when it has the last of them, and the owner looks for one more."""
    while True:
        with failing():
            part = next(answers, None)
        if part is None:
            return
        yield part


class Owner:
    """A store that is owned here and joined here, in which requests of the client may fail."""

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self.failing: Failing | None = None
        whole = ServedClient.answer

        def answer(client: ServedClient, data: Any) -> Any:
            failing = self.failing
            if failing is None:
                return whole(client, data)
            with failing():
                found = whole(client, data)
            return lazily(found, failing) if isinstance(found, Iterator) else found

        monkeypatch.setattr(ServedClient, "answer", answer)
        self.open()

    def open(self) -> None:
        owner = open_store(self._path, segment_bytes=SEGMENT_BYTES, inline_limit_bytes=3000)
        assert isinstance(owner, Store)
        joined = open_store(self._path)
        assert isinstance(joined, JoinedStore)
        self.owner, self.joined = owner, joined

    def close(self) -> None:
        self.joined.close()
        self.owner.close()

    def names(self) -> set[str]:
        """What is there, in the store opened again if it has failed."""
        if self.owner.failed:
            self.close()
            self.open()
        found = {p.decode() for p in self.owner.browse("work", max_messages=ALL).payloads()}
        return found | {info.name for info in self.owner.queues()}


@pytest.fixture
def pair(store_path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    """Both, with a queue."""
    found = Owner(store_path, monkeypatch)
    found.owner.create_queue("work", kind="work")
    yield found
    found.close()


@pytest.mark.promise(2)
@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("kind", TRANSACTIONS)
def test_promise_2_a_failure_inside_the_owner_tells_the_state_as_it_is(
    pair: Owner, rng: Random, spread: int, kind: str, *, prepare: bool
) -> None:
    """Never as rolled back what is there, nor as committed what is not."""
    moment, failing = 0, Failing(1)
    while failing.raised or not moment:
        moment += rng.randint(1, 4 * spread)
        name, failing = f"m{moment}", Failing(moment, rng.choice((MemoryError, AttributeError)))
        txn = pair.joined.transaction()
        TRANSACTIONS[kind](txn, name.encode())
        pair.joined.queues()  # what was put before is there
        pair.failing = failing
        raised: QuireError | None = None
        end = partial(txn.prepare, name) if prepare else txn.commit
        try:
            end()
        except QuireError as error:
            raised = error
        pair.failing = None
        assert isinstance(raised, RemoteError | StoreFailed | None)
        if raised is not None and not isinstance(raised, OutcomeUnknown | StoreFailed):
            if txn.state == "open":  # it could not begin: its puts were refused (TP1)
                end()
            else:
                assert txn.state == "rolled back"
        told = moment, txn.state, failing.where
        names = pair.names()
        listed = [info.xid for info in pair.owner.prepared.list()]
        is_there = name in listed if prepare else name in names
        stands = "prepared" if prepare else "committed"
        assert is_there is (txn.state == stands) or txn.state == "in doubt", told
        for xid in listed:
            pair.owner.prepared.rollback(xid)


@pytest.mark.promise(2)
@pytest.mark.parametrize("kind", ALONE)
def test_promise_2_a_failure_inside_the_owner_leaves_a_single_change_open(
    pair: Owner, rng: Random, spread: int, kind: str
) -> None:
    """A put or a definition that fails has not taken effect, unless the error says that it may."""
    moment, failing = 0, Failing(1)
    while failing.raised or not moment:
        moment += rng.randint(1, 4 * spread)
        name, failing = f"m{moment}", Failing(moment, rng.choice((MemoryError, AttributeError)))
        pair.failing, may_be, is_done = failing, False, False
        try:
            ALONE[kind](pair.joined, name)
            is_done = True
        except QuireError as error:
            may_be = isinstance(error, OutcomeUnknown | StoreFailed)
        pair.failing = None
        assert may_be or (name in pair.names()) is is_done, (moment, failing.where)
        pair.names()
