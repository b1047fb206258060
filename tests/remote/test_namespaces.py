"""What a store has by subject, and what it is as a block and as an object."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import quire
from quire import aio, errors
from quire.engine import EmbeddedStore as Store
from quire.opening import open as open_store
from tests.kit.children import join

JOINING: list[Callable[[str], Any]] = [join, open_store]


@pytest.mark.parametrize("opened", JOINING)
def test_a_closed_store_is_no_block(owner: Store, opened: Callable[[str], Any]) -> None:
    """StoreClosed, as from every other call; also of the owner, and for asyncio."""
    store = opened(owner.path)
    store.close()
    with pytest.raises(errors.StoreClosed), store:
        pass
    owner.close()
    with pytest.raises(errors.StoreClosed), owner:
        pass


def test_a_closed_store_is_no_block_for_asyncio(owner: Store) -> None:
    """Likewise; and whether it has failed is told without an await."""

    async def use() -> None:
        async with aio.open(owner.path) as store:
            assert store.failed is False
        with pytest.raises(errors.StoreClosed):
            async with store:
                pass

    asyncio.run(use())


def test_a_namespace_keeps_its_store_and_no_circle_does(owner: Store) -> None:
    """A store ends with the last who uses it, without the garbage collector."""
    gc.disable()
    try:
        store = join(owner.path)
        admin = store.admin
        assert store.cron.list() == []
        store.close()
        gone = weakref.ref(store)
        del store
        assert gone() is not None
        del admin
        assert gone() is None
    finally:
        gc.enable()


def test_errors_of_one_nature_have_a_base(store: quire.Store) -> None:
    """One `except` for all that is missing, in the way, or does not fit; in every form."""
    store.create_queue("work", kind="work", capacity=4096)
    missing: list[Callable[[], object]] = [
        lambda: store.queue("nothing"),
        lambda: store.cron.drop("nothing"),
        lambda: store.prepared.commit("nothing"),
        lambda: store.admin.abort(1 << 40),
    ]
    for call in missing:
        with pytest.raises(quire.NotFound):
            call()
    with pytest.raises(quire.AlreadyExists):
        store.create_queue("work")
    with pytest.raises(quire.NoRoom):
        store.put("work", bytes(5000))
    with store.transaction() as txn:
        txn.enter("key", 1)
    again = store.transaction()
    again.enter("key", 1)
    with pytest.raises(quire.Conflict):
        again.commit()


def test_errors_name_the_interface(store: quire.Store) -> None:
    """What Python says of a wrong call is of `Store`, whichever class is behind."""
    untyped: Any = store
    calls: list[Callable[[], object]] = [
        untyped.alter_queue,
        lambda: untyped.unsubscribe("a", "b", "c"),
        untyped.admin.purge,
        lambda: untyped.states.get("a"),
        lambda: untyped.get("a", "b", "c"),
    ]
    for call in calls:
        with pytest.raises(TypeError) as caught, suppress(quire.QuireError):
            call()
        for inside in ("Embedded", "Joined", "Remote", "Shared", "SingleCalls"):
            assert inside not in str(caught.value)
