"""Many puts with request ids at once, of every form of a store."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import AlreadyCommitted, InvalidArgument, QueueFull, QueueNotFound
from quire.opening import open as open_store
from tests.behaviour.forms import AnyStore
from tests.kit.actors import OPTIONS, actor
from tests.kit.waiting import SECONDS


@pytest.fixture
def once(owner: Store) -> str:
    """A work queue that keeps request ids."""
    owner.create_queue("once", kind="work", dedup_count=100_000)
    return "once"


def test_those_that_are_known_are_not_put_again(store: AnyStore, once: str) -> None:
    """Put by themselves, by many, or twice in one list; the answer has the first one's id."""
    first = store.put(once, b"a", request_id="a")
    ids = store.put_many(once, [b"a", b"b", b"c", b"b"], request_ids=["a", "b", "c", "b"])
    assert ids == [first, first + 1, first + 2, first + 1]
    assert store.browse(once).payloads() == [b"a", b"b", b"c"]
    store.get_many(once)
    again: Any = iter(["c", "d"])
    more = store.put_many(once, iter([b"c", b"d"]), request_ids=again)
    assert more == [ids[2], first + 3]
    assert store.put_many(once, [b"d"], request_ids=["d"]) == [first + 3]
    assert store.put(once, b"b", request_id="b") == ids[1]
    assert store.put_many(once, [], request_ids=[]) == []
    assert store.browse(once).payloads() == [b"d"]


def test_within_a_transaction(store: AnyStore, once: str) -> None:
    """Among other puts, in their order; a rollback leaves no trace."""
    store.create_queue("other", kind="work", dedup_seconds=60.0)
    with store.transaction() as txn:
        ids = [
            txn.put(once, b"0"),
            *txn.put_many(once, [b"1", b"2"], request_ids=["a", "b"]),
            txn.put(once, b"3", request_id="c"),
            *txn.put_many("other", [b"4"], request_ids=["a"]),
            *txn.put_many(once, [b"2", b"5", b"3"], request_ids=["b", "d", "c"]),
            *txn.put_many(once, [b"6"]),
            txn.put(once, b"1", request_id="a"),
        ]
    payloads = {m.id: m.payload for m in [*store.browse(once), *store.browse("other")]}
    shown = [payloads[int(one)] for one in ids]
    assert shown == [b"0", b"1", b"2", b"3", b"4", b"2", b"5", b"3", b"6", b"1"]
    assert store.browse(once).payloads() == [b"0", b"1", b"2", b"3", b"5", b"6"]
    txn = store.transaction()
    assert txn.put_many(once, [b"", b""], request_ids=["a", "x"])[0] == ids[1]
    txn.rollback()
    [again] = store.put_many(once, [b"x"], request_ids=["x"])
    assert again > int(ids[-2])


def test_slices_of_what_is_answered(store: AnyStore, once: str) -> None:
    """It is a sequence of ids as that of any put of many."""
    with store.transaction() as txn:
        ids = txn.put_many(once, [b"1", b"2", b"3"], request_ids=["a", "b", "c"])
    assert [int(one) for one in ids[1:]] == [int(ids[0]) + 1, int(ids[0]) + 2]
    assert ids[-1] == ids[2]
    assert len(ids) == 3
    with pytest.raises(IndexError):
        ids[3]


def test_columns_of_what_is_new_are_kept(store: AnyStore, once: str) -> None:
    """Columns of what is new are kept of Arrow data of any form."""
    store.put(once, b"", request_id="r1")
    batch = pa.RecordBatch.from_pydict({"payload": [b"0", b"1", b"2"], "group": [7, 8, 9]})
    names = ["r0", "r1", "r2"]
    for data in (batch, pa.Table.from_batches([batch])):
        store.put_many(once, data, request_ids=names)
        assert [(m.payload, m.group) for m in store.browse(once)][1:] == [(b"0", 7), (b"2", 9)]
    count = 5000
    array = pa.chunked_array([[b"x"] * 3, [b"x"] * (count - 3)])
    store.admin.purge(once)
    ids = store.put_many(once, array, request_ids=["r2", *map(str, range(1, count))])
    assert store.queue(once).messages == count - 1
    assert ids[1:] == list(range(ids[1], ids[1] + count - 1))


def test_of_two_at_once_each_is_there_once(store: AnyStore, once: str) -> None:
    """A transaction that comes later is told; `store.put_many` begins again by itself."""
    first, second = store.transaction(), store.transaction()
    [one] = first.put_many(once, [b"1"], request_ids=["a"])
    second.put_many(once, [b"1", b"2"], request_ids=["a", "b"])
    first.commit()
    with pytest.raises(AlreadyCommitted):
        second.commit()
    names = [f"n{number}" for number in range(40)]
    answers: list[list[int]] = []

    def put() -> None:
        for start in range(0, 40, 5):
            part = names[start : start + 8]
            answers.append(store.put_many(once, [n.encode() for n in part], request_ids=part))

    threads = [threading.Thread(target=put) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 24
    there = {message.id: message.payload.decode() for message in store.browse(once)}
    assert sorted(there.values()) == sorted(["1", *names])
    assert int(one) in there


@pytest.mark.promise(13)
def test_wrong_ones_are_refused(store: AnyStore, once: str) -> None:
    """Wrong request ids are refused; nothing is put, and no id is known."""
    store.create_queue("none", kind="work")
    wrong: list[tuple[Any, Any]] = [
        ([b"1"], []), ([b"1"], ["a", "b"]), ([b"1"], "a"), ([b"1"], [None]), ([b"1"], [5]),
        ([b"1"], [""]), ([b"1"], ["x" * 201]), ([b"1"], 5), (b"1", ["a"]), (5, ["a"]),
        ([b"1", "2"], ["a", "b"]), (["1"], ["a"]),
    ]  # fmt: skip
    with store.transaction() as txn:
        for payloads, names in wrong:
            with pytest.raises(InvalidArgument):
                txn.put_many(once, payloads, request_ids=names)
            with pytest.raises(InvalidArgument):
                store.put_many(once, payloads, request_ids=names)
        with pytest.raises(InvalidArgument, match="keeps no request ids"):
            txn.put_many("none", [b"1"], request_ids=["a"])
        with pytest.raises(QueueNotFound):
            txn.put_many("nowhere", [b"1"], request_ids=["a"])
        store.alter_queue(once, max_messages=1)
        with pytest.raises(QueueFull):
            txn.put_many(once, [b"1", b"2"], request_ids=["a", "b"])
        store.alter_queue(once, max_messages=None)
        txn.put_many(once, [b"1", b"2"], request_ids=["a", "b"])
    assert store.browse(once).payloads() == [b"1", b"2"]
    assert store.queue(once).request_ids == 2


def test_an_owner_that_is_killed(store_path: str) -> None:
    """The call asks the next one, and each is there once."""
    with actor(store_path) as owner:
        owner.ask('store.create_queue("q", kind="work", dedup_count=100)')
        with open_store(store_path, **OPTIONS) as store:
            owner.ask('hang(EmbeddedTransaction, "commit", "after")')
            answers: list[list[int]] = []
            names = ["a", "b", "c"]
            thread = threading.Thread(
                target=lambda: answers.append(
                    store.put_many("q", [b"1", b"2", b"3"], request_ids=names)
                )
            )
            thread.start()
            assert owner.line() == "hanging"
            owner.kill()
            thread.join(SECONDS)
            assert answers == [[message.id for message in store.browse("q")]]
            assert store.browse("q").payloads() == [b"1", b"2", b"3"]


def test_rows_are_put_one_by_one(store: AnyStore, owner: Store) -> None:
    """Many rows with ids are refused and nothing is put; one row with its id is put once."""
    owner.create_queue("rows", kind="work", dedup_count=100, schema="id bigint")
    with pytest.raises(InvalidArgument, match="put each by itself"):
        store.put_many("rows", [{"id": 1}], request_ids=["a"])
    assert store.put("rows", {"id": 1}, request_id="a") == store.put(
        "rows", {"id": 1}, request_id="a"
    )
    assert owner.queue("rows").messages == 1
