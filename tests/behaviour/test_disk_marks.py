"""A disk with less free space than the marks of its store's owner: the same for any store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import StoreClosed, StoreFull
from quire.opening import open as open_store
from tests.behaviour.forms import SEGMENT_BYTES, AnyStore
from tests.kit.waiting import eventually

GIB = 1 << 30


class ToldDisk:
    """The free space that the stores of this process are told."""

    def __init__(self) -> None:
        self.free: int | None = 10 * GIB


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> ToldDisk:
    """A disk whose free space is what a test says."""
    told = ToldDisk()
    monkeypatch.setattr(OsEnv, "free_bytes", lambda env, path: told.free)
    return told


@pytest.fixture
def owner(store_path: str, disk: ToldDisk) -> Iterator[Store]:
    """A store that warns below 2 GiB, and refuses puts below 1 GiB."""
    with open_store(
        store_path,
        segment_bytes=SEGMENT_BYTES,
        warn_below_bytes=2 * GIB,
        refuse_below_bytes=GIB,
    ) as store:
        assert isinstance(store, Store)
        yield store
        with suppress(StoreClosed):  # a loop may have closed it
            assert store.admin.verify().ok


def has_level(store: AnyStore, level: str) -> None:
    """Wait until the store has seen how full the disk is."""
    eventually(lambda: store.status()["disk"]["level"] == level)


def put_and_commit(txn: Any, payload: bytes) -> None:
    """A joined store may tell of a put only then."""
    txn.put("news", payload)
    txn.commit()


def refused(store: AnyStore, payload: bytes, *, large: bool) -> None:
    """A transaction that has got a message cannot put one, and gives the first one back."""
    with store.transaction(large=large) as txn:
        assert txn.get("q") is not None
        with pytest.raises(StoreFull):
            put_and_commit(txn, payload)
        txn.rollback()


def test_puts_are_refused_and_all_else_goes_on(store: AnyStore, disk: ToldDisk) -> None:
    """Gets, commits of what was put before, moves of subscriptions, definitions, checkpoints."""
    store.create_queue("q", kind="work", overflow="wait")
    store.create_queue("empty", kind="work")
    store.create_queue("news", kind="topic")
    store.subscribe("news", "reader")
    store.create_queue("memory", kind="work", type="volatile")
    store.put_many("q", [b"1", b"2", b"3"])
    store.put("news", b"1")
    before = store.transaction()
    before.put("q", b"before")
    prepared = store.transaction()
    prepared.put("q", b"prepared")
    prepared.prepare("x")
    assert before.get("empty") is None  # so the owner has what was put before
    disk.free = GIB - 1
    has_level(store, "full")
    with pytest.raises(StoreFull, match=r"refuse_below_bytes=.*make room"):
        store.put("q", b"refused")
    with pytest.raises(StoreFull):
        store.put_many("q", [b"refused"] * 3)
    refused(store, b"refused", large=False)
    refused(store, b"refused" * 1000, large=True)
    store.put("memory", b"taken")
    before.commit()
    store.prepared.commit("x")
    assert [m.payload for m in store.get_many("q", 3)] == [b"1", b"2", b"3"]
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message)
    with store.transaction() as txn:
        txn.seek("news/reader", "latest")
    store.create_queue("new", kind="work")
    with pytest.raises(StoreFull):
        store.put("new", b"refused")
    store.drop_queue("new")
    store.admin.checkpoint()
    assert {m.payload for m in store.get_many("q", 9)} == {b"before", b"prepared"}
    disk.free = GIB + GIB // 10
    has_level(store, "low")
    store.put("q", b"taken")
    disk.free = 3 * GIB
    has_level(store, "ok")
    status = store.status()["disk"]
    assert (status["free_bytes"], status["refuse_below_bytes"]) == (3 * GIB, GIB)
    assert [m.payload for m in store.get_many("q", 9)] == [b"taken"]
