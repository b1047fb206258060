"""Old names of calls: each is the new one, with a warning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import aio
from quire.calls.deprecated import STORE, TRANSACTION
from quire.engine import EmbeddedStore, EmbeddedTransaction
from quire.remote import RemoteStore, RemoteTransaction
from quire.remote.ownership.elected_store import ElectedStore
from quire.remote.ownership.elected_transaction import ElectedTransaction

STORES: list[type] = [EmbeddedStore, RemoteStore, ElectedStore, aio.AsyncStore]
TRANSACTIONS: list[type] = [
    EmbeddedTransaction, RemoteTransaction, ElectedTransaction, aio.AsyncTransaction
]  # fmt: skip


@pytest.mark.parametrize("made", STORES)
@pytest.mark.parametrize("old", STORE)
def test_an_old_name_of_a_store_is_there(made: type, old: str) -> None:
    """In every kind of store, and nowhere in the interface."""
    assert isinstance(vars(_giver(made, old))[old], property)
    assert not hasattr(quire.Store, old)


@pytest.mark.parametrize("made", TRANSACTIONS)
@pytest.mark.parametrize("old", TRANSACTION)
def test_an_old_name_of_a_transaction_is_there(made: type, old: str) -> None:
    """An old name of a transaction is in every kind of it, and nowhere in the interface."""
    assert isinstance(vars(_giver(made, old))[old], property)
    assert not hasattr(quire.Transaction, old)


def _giver(made: type, name: str) -> type:
    return next(base for base in made.__mro__ if name in vars(base))


def _is_same(of: object, old: str, new: str) -> bool:
    """Whether the old name warns, and is what the new one is."""
    with pytest.warns(DeprecationWarning, match=f"'{old}' goes with 0.2.0: use '{new}'"):
        found = getattr(of, old)
    expected = attrgetter(new)(of)
    if old in ("disable", "enable"):
        return callable(found)
    if not callable(expected):
        return bool(found == expected)
    same: Callable[[Any], Any] = attrgetter("__func__")
    return bool(same(found) is same(expected))


def test_old_names_are_the_new_ones(tmp_path: Path) -> None:
    """Each warns, names the new one, and is the same call; what it takes is as before."""
    with quire.open(str(tmp_path / "store")) as store:
        assert [old for old, new in STORE.items() if not _is_same(store, old, new)] == []
        with store.transaction() as txn:
            assert [old for old, new in TRANSACTION.items() if not _is_same(txn, old, new)] == []
        untyped: Any = store
        for old, given, told in (
            ("disable", {}, {"puts": False, "gets": False}),
            ("enable", {"gets": True}, {"puts": False, "gets": True}),
            ("enable", {}, {"puts": True, "gets": True}),
        ):
            with pytest.warns(DeprecationWarning, match=old):
                getattr(untyped, old)(**given)
            assert store.admin.switch() == told


def test_a_loop_that_is_a_session_is_a_block() -> None:
    """`ack="session"` warns, and does what "block" does."""
    with quire.open(":memory:") as store:
        store.create_queue("work")
        store.put_many("work", [b"1", b"2"])
        with pytest.warns(DeprecationWarning, match='use ack="block"'):
            loop = store.consume("work", timeout=0.0, ack="session")  # type: ignore[call-overload]
        with loop as messages:
            assert [message.payload for message in messages] == [b"1", b"2"]
        assert store.queue("work").messages == 0


def test_old_names_for_asyncio(tmp_path: Path) -> None:
    """They are awaited, as the new ones are."""

    async def look() -> None:
        async with aio.open(str(tmp_path / "store")) as store:
            untyped: Any = store
            with pytest.warns(DeprecationWarning, match="admin.create_queues"):
                await untyped.create_queues(["a", "b"])
            assert [info.name for info in await store.queues()] == ["a", "b"]

    asyncio.run(look())
