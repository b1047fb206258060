"""State: values by name and key that transactions set and get, of every form of a store."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    KeyHeld,
    StateConflict,
    StateFull,
    TransactionClosed,
)
from quire.limits import MAX_STATE_VALUE_BYTES
from quire.opening import open as open_store
from tests.behaviour.forms import AnyStore
from tests.kit.actors import OPTIONS, actor
from tests.kit.limits import Limits


@pytest.fixture
def work(owner: Store) -> str:
    """A work queue with a message."""
    owner.create_queue("work", kind="work")
    owner.put("work", b"7")
    return "work"


@pytest.mark.promise(2)
def test_it_is_part_of_the_commit(store: AnyStore, work: str) -> None:
    """With what is put and got: nothing is seen before, all after, and nothing of a rollback."""
    with store.transaction() as txn:
        message = txn.get(work)
        assert message is not None
        assert txn.get_value("sums", "all") is None
        txn.set_value("sums", "all", message.payload)
        txn.set_value("sums", "empty", b"")
        txn.put(work, b"more")
        assert txn.get_value("sums", "all") == b"7"
        assert txn.get_value("sums", "empty") == b""
        assert store.states.items("sums") == {}
    assert store.states.get("sums", "all") == b"7"
    assert store.states.items("sums") == {"all": b"7", "empty": b""}
    assert store.states.names() == ["sums"]
    assert store.status()["state"] == {"names": 1, "keys": 2, "bytes": 2 * 64 + 8 + 1}
    txn = store.transaction()
    assert txn.get(work) is not None
    txn.set_value("sums", "all", b"8")
    txn.set_value("sums", "empty", None)
    assert txn.get_value("sums", "empty") is None
    txn.rollback()
    assert store.states.items("sums") == {"all": b"7", "empty": b""}
    assert store.queue(work).messages == 1
    with pytest.raises(TransactionClosed):
        txn.set_value("sums", "all", b"9")
    with pytest.raises(TransactionClosed):
        txn.get_value("sums", "all")


def test_values_are_deleted(store: AnyStore) -> None:
    """One by one, also where there was none, and a name as a whole."""
    with store.transaction() as txn:
        for key in ("b", "a", "ü “x” \\ ,                    ,"):
            txn.set_value("one", key, key.encode())
        txn.set_value("two", "a", b"2")
    assert list(store.states.items("one")) == ["a", "b", "ü “x” \\ ,                    ,"]
    with store.transaction() as txn:
        txn.set_value("one", "a", None)
        txn.set_value("one", "none", None)
        txn.set_value("none", "none", None)
    assert store.states.names() == ["one", "two"]
    assert store.states.get("one", "a") is None
    assert store.states.drop("one") == 2
    assert store.states.drop("one") == 0
    assert (store.states.names(), store.states.items("one")) == (["two"], {})
    with store.transaction() as txn:
        txn.set_value("two", "a", b"3")
        txn.set_value("two", "a", None)
        txn.set_value("two", "a", bytearray(b"4"))
    assert store.states.items("two") == {"a": b"4"}


def test_who_has_read_a_value_that_changed_begins_again(store: AnyStore) -> None:
    """So nothing that is counted is lost; what only reads is not refused."""
    with store.transaction() as txn:
        txn.set_value("count", "n", b"1")
        txn.set_value("count", "other", b"1")
    first, second, looking = store.transaction(), store.transaction(), store.transaction()
    for txn in (first, second, looking):
        assert txn.get_value("count", "n") == b"1"
    first.set_value("count", "n", b"2")
    second.set_value("count", "other", b"2")
    first.commit()
    assert second.get_value("count", "n") == b"1"  # as it was
    with pytest.raises(StateConflict, match="'n' of state 'count'"):
        second.commit()
    assert second.state == "rolled back"
    looking.commit()
    assert store.states.items("count") == {"n": b"2", "other": b"1"}


def test_a_value_that_is_there_again_has_changed(store: AnyStore) -> None:
    """Also where it was not there when it was read, and where it was deleted in between."""
    for key, begin in (("absent", None), ("present", b"1")):
        with store.transaction() as txn:
            txn.set_value("s", key, begin)
        late = store.transaction()
        assert late.get_value("s", key) == begin
        late.set_value("s", key, b"late")
        for value in (None if begin else b"2", begin):
            with store.transaction() as txn:
                txn.set_value("s", key, value)
        if begin is None:  # it is as it was: there is none
            late.commit()
            assert store.states.get("s", key) == b"late"
        else:
            with pytest.raises(StateConflict):
                late.commit()


def test_what_was_not_read_is_set_by_the_last_commit(store: AnyStore) -> None:
    """Whoever has set it first; a new key likewise."""
    first, second = store.transaction(), store.transaction()
    first.set_value("s", "k", b"first")
    second.set_value("s", "k", b"second")
    second.commit()
    first.commit()
    assert store.states.items("s") == {"k": b"first"}
    assert store.status()["state"]["keys"] == 1


def test_a_prepared_transaction_holds_its_keys(store: AnyStore, work: str) -> None:
    """Nobody else changes them, or commits what it has read of them, until it is decided."""
    with store.transaction() as txn:
        txn.set_value("s", "k", b"1")
    prepared = store.transaction()
    assert prepared.get(work) is not None
    prepared.set_value("s", "k", None)
    prepared.set_value("s", "new", b"2")
    prepared.set_value("s", "gone", None)
    prepared.prepare("x1")
    assert store.states.items("s") == {"k": b"1"}
    other = store.transaction()
    other.set_value("s", "k", b"3")
    with pytest.raises(KeyHeld, match="'x1' sets key 'k'"):
        other.commit()
    assert other.state == "open"
    with pytest.raises(KeyHeld):
        store.states.drop("s")
    free = store.transaction()
    free.set_value("s", "free", b"4")
    free.commit()
    prepared.commit()
    assert store.states.items("s") == {"free": b"4", "new": b"2"}
    other.commit()
    assert store.states.get("s", "k") == b"3"
    undone = store.transaction()
    undone.set_value("s", "k", b"5")
    undone.prepare("x2")
    store.prepared.rollback("x2")
    assert store.states.get("s", "k") == b"3"
    assert store.states.drop("s") == 3


def test_preparing_checks_what_was_read(store: AnyStore) -> None:
    """So that the decision cannot be refused."""
    late = store.transaction()
    assert late.get_value("s", "k") is None
    late.set_value("s", "k", b"late")
    with store.transaction() as txn:
        txn.set_value("s", "k", b"1")
    with pytest.raises(StateConflict):
        late.prepare("x1")
    assert late.state == "rolled back"
    assert store.prepared.list() == []


@pytest.mark.promise(9)
def test_there_are_limits(store: AnyStore, limits: Limits) -> None:
    """On what a transaction sets, a name and all names have: refused before it is committed."""

    txn = store.transaction()
    with pytest.raises(InvalidArgument, match="at most"):
        txn.set_value("s", "k", bytes(MAX_STATE_VALUE_BYTES + 1))
    if store.role == "owner":  # of its segments
        txn.set_value("s", "k", bytes(MAX_STATE_VALUE_BYTES // 2))
        with pytest.raises(InvalidArgument, match="several transactions"):
            txn.set_value("s", "l", bytes(MAX_STATE_VALUE_BYTES // 2))
    txn.rollback()
    limits(MAX_STATE_NAME_BYTES=1000, MAX_STATE_BYTES=1500, MAX_STATE_KEYS=3)

    def set_all(values: dict[tuple[str, str], bytes | None]) -> None:
        txn = store.transaction()
        try:
            for (name, key), value in values.items():
                txn.set_value(name, key, value)
            txn.commit()
        finally:
            txn.rollback()

    set_all({("s", "a"): bytes(800)})
    with pytest.raises(StateFull, match="state 's' would take"):
        set_all({("s", "b"): bytes(200)})
    with pytest.raises(StateFull, match="of all names would take"):
        set_all({("t", "b"): bytes(700)})
    set_all({("s", "a"): bytes(900)})
    set_all({("s", "a"): bytes(10), ("s", "b"): b"", ("s", "c"): b""})
    with pytest.raises(StateFull, match="4 keys"):
        set_all({("t", "b"): b""})
    set_all({("s", "b"): None})
    set_all({("t", "b"): bytes(700)})
    assert store.status()["state"]["keys"] == 3


def test_room_is_taken_by_open_transactions(owner: Store, limits: Limits) -> None:
    """So no commit is refused for it; they give it back when they end."""
    limits(MAX_STATE_NAME_BYTES=1000)
    first, second = owner.transaction(), owner.transaction()
    first.set_value("s", "a", bytes(600))
    with pytest.raises(StateFull):
        second.set_value("s", "b", bytes(600))
    second.set_value("s", "b", bytes(100))
    second.commit()
    first.set_value("s", "a", bytes(700))
    first.rollback()
    third = owner.transaction()
    third.set_value("s", "a", bytes(700))
    third.prepare("x1")
    fourth = owner.transaction()
    with pytest.raises(StateFull):
        fourth.set_value("s", "c", bytes(100))
    fourth.rollback()
    owner.prepared.rollback("x1")
    with owner.transaction() as txn:
        txn.set_value("s", "c", bytes(700))
    assert owner.status()["state"] == {"names": 1, "keys": 2, "bytes": 2 * 64 + 2 + 800}


def test_with_everything_else_in_one_commit(store: AnyStore, owner: Store) -> None:
    """A moved subscription, a volatile queue, a ledger entry, a commit that is not synced."""
    owner.create_queue("kept", kind="topic", keep_forever=True)
    owner.create_queue("memory", kind="work", type="volatile")
    store.subscribe("kept", "a")
    store.put("kept", b"1")
    with store.transaction(durable=False) as txn:
        txn.seek("kept/a", "latest")
        txn.put("memory", b"2")
        txn.enter("key", 3)
        txn.set_value("s", "k", b"4")
    assert (store.get("kept/a"), store.integration.ledger("key")) == (None, 3)
    assert store.states.items("s") == {"k": b"4"}
    with store.transaction() as txn:
        message = txn.get("memory")
        assert message is not None
        txn.set_value("s", "k", message.payload)
    with store.transaction() as txn:
        txn.seek("kept/a", "earliest")
        txn.set_value("s", "k", None)
    assert store.states.items("s") == {}


def test_many_count_at_once(store: AnyStore) -> None:
    """Threads that read and set one value: each that commits counts once."""
    counted: list[int] = []

    def count() -> None:
        done = 0
        while done < 10:
            try:
                with store.transaction() as txn:
                    seen = int(txn.get_value("s", "n") or b"0")
                    txn.set_value("s", "n", b"%d" % (seen + 1))
                done += 1
            except StateConflict:
                continue
        counted.append(done)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.states.get("s", "n") == b"40"
    assert counted == [10] * 4


@pytest.mark.promise(12)
def test_it_is_there_with_the_next_owner(store_path: str) -> None:
    """And a transaction that was open is lost with its owner."""
    with actor(store_path, **OPTIONS) as first:
        first.ask("store.role")
        with open_store(store_path, **OPTIONS) as store:
            with store.transaction() as txn:
                txn.set_value("s", "k", b"1")
            first.kill()
            assert store.states.items("s") == {"k": b"1"}
            with store.transaction() as txn:
                assert txn.get_value("s", "k") == b"1"
                txn.set_value("s", "k", b"2")
            assert (store.states.get("s", "k"), store.states.drop("s")) == (b"2", 1)


BAD: dict[str, list[Any]] = {
    "name": ["", "a/b", 5, None, b"a", ".", "a" * 201],
    "key": ["", 5, None, b"a", "a\nb", "\ud800", "ü" * 513],
    "value": ["a", 5, [1], True],
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("what", BAD)
def test_bad_arguments(store: AnyStore, what: str) -> None:
    """Refused at once; the transaction goes on."""
    txn = store.transaction()
    for bad in BAD[what]:
        arguments: dict[str, Any] = {"name": "s", "key": "k", "value": b"1"} | {what: bad}
        with pytest.raises(InvalidArgument):
            txn.set_value(**arguments)
        del arguments["value"]
        if what == "value":
            continue
        with pytest.raises(InvalidArgument):
            txn.get_value(**arguments)
        with pytest.raises(InvalidArgument):
            store.states.get(**arguments)
        if what == "name":
            with pytest.raises(InvalidArgument):
                store.states.items(bad)
            with pytest.raises(InvalidArgument):
                store.states.drop(bad)
    txn.set_value("s", "k", memoryview(b"1"))
    txn.commit()
    assert store.states.items("s") == {"k": b"1"}
