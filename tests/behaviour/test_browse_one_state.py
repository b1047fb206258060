"""A queue is browsed as it was at one moment, page by page, whatever others do meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import quire
from quire import Template, limits
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, PositionLost, QueueNotFound, TransactionError
from quire.interface.transaction import Transaction

from .forms import AnyStore

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by priority": {"order": "priority"},
    "grouped": {"grouped": True},
    "counted": {"max_deliveries": 5, "dead_letter": "dead"},
    "volatile": {"type": "volatile"},
    "rows": {"schema": "n bigint"},
    "indexed": {"indexed": ["odd"]},
}


def fill(store: AnyStore, kind: str, count: int, queue: str = "q") -> list[int]:
    """Messages 0, 1, ..., some put together, others one by one; their ids."""
    ids: list[int] = []
    for n in range(count):
        content: Any = {"n": n} if kind == "rows" else b"%d" % n
        ids.append(store.put(queue, content, attributes={"odd": str(n % 2)}))
    with store.transaction() as txn:
        together = [
            txn.put(
                queue,
                {"n": n} if kind == "rows" else b"%d" % n,
                attributes={"odd": str(n % 2)},
            )
            for n in range(count, 2 * count)
        ]
    return [*ids, *map(int, together)]


def numbers(messages: quire.Messages) -> list[int]:
    """What they are."""
    batch = messages.to_arrow()
    if "n" in batch.schema.names:
        found: list[int] = batch.column("n").to_pylist()
        return found
    return list(map(int, messages.payloads()))


def pages(txn: Transaction, source: str, most: int, **where: Any) -> list[int]:
    """All that is seen, and no page is larger."""
    seen: list[int] = []
    page = txn.browse(source, most, **where)
    while page:
        assert len(page) <= most
        seen += numbers(page)
        page = txn.browse(source, most, after=page[-1], **where)
    return seen


def test_how_many_is_the_second_argument_everywhere(store: AnyStore) -> None:
    """Of a store and of a transaction, as of `get_many`; a position has to be named."""
    store.create_queue("many")
    store.put_many("many", [b"%d" % number for number in range(6)])
    with store.transaction() as txn:
        for browse in (store.browse, txn.browse):
            assert browse("many", 3).payloads() == [b"0", b"1", b"2"]
    assert store.browse("many", 2, start=3).payloads() == [b"3", b"4"]
    with pytest.raises(TypeError):
        store.browse("many", 2, 3)  # type: ignore[call-arg]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", KINDS)
def test_pages_show_one_state(store: AnyStore, owner: Store, kind: str) -> None:
    """What is read, put, purged, and moved between two pages changes nothing (QV1)."""
    store.create_queue("dead")
    store.create_queue("q", **KINDS[kind])
    ids = fill(store, kind, 10)
    with store.transaction() as txn:
        first = txn.browse("q", 3)
        assert numbers(first) == [0, 1, 2]
        assert first.ids == ids[:3]
        assert len(store.get_many("q", 7)) == 7
        owner.admin.checkpoint()
        fill(store, kind, 2)
        assert numbers(txn.browse("q", 6, after=first[-1])) == [3, 4, 5, 6, 7, 8]
        assert store.admin.purge("q", where="odd = '1'") > 0
        owner.admin.checkpoint()
        store.get_many("q")
        owner.admin.checkpoint()
        fill(store, kind, 3)
        assert store.admin.purge("q") == 6
        assert numbers(txn.browse("q", 6, after=ids[8])) == [9, 10, 11, 12, 13, 14]
        assert pages(txn, "q", 4) == list(range(20))
        assert pages(txn, "q", 4, where="odd = '1'") == list(range(1, 20, 2))
        assert pages(txn, "q", 30, where=Template(attributes={"odd": "0"})) == [*range(0, 20, 2)]
        assert numbers(txn.browse("q", where=ids[13])) == [13]
        assert numbers(txn.browse("q", after=ids[19])) == []
    with store.transaction() as txn:
        assert pages(txn, "q", 5) == []
    assert store.queue("q").messages == 0


def test_each_subscription_has_its_own(store: AnyStore) -> None:
    """And the topic as a whole; others that come meanwhile read, too."""
    store.create_queue("t", kind="topic")
    for name in "ab":
        store.subscribe("t", name)
    store.subscribe("t", "odd", where="odd = '1'")
    fill(store, "plain", 5, "t")
    store.get_many("t/a", 4)
    with store.transaction() as txn:
        assert numbers(txn.browse("t/a", 2)) == [4, 5]
        assert numbers(txn.browse("t", 2)) == [0, 1]
        assert numbers(txn.browse("t/odd", 2)) == [1, 3]
        for name in ("a", "b", "odd"):
            store.get_many(f"t/{name}")
        store.subscribe("t", "late")
        store.get_many("t/late")
        store.unsubscribe("t", "b")
        assert pages(txn, "t/a", 3) == list(range(4, 10))
        assert pages(txn, "t", 3) == list(range(10))
        assert pages(txn, "t/odd", 3) == [1, 3, 5, 7, 9]
        assert pages(txn, "t/late", 3) == []


def test_what_the_transaction_does_itself_is_not_seen(store: AnyStore) -> None:
    """It sees what is committed; what it has got it may browse still."""
    store.create_queue("q")
    fill(store, "plain", 2)
    with store.transaction() as txn:
        txn.put("q", b"7")
        assert numbers(txn.get_many("q", 1)) == [0]
        assert pages(txn, "q", 3) == [0, 1, 2, 3]
        with pytest.raises(TransactionError, match="cannot be prepared"):
            txn.prepare("x")
    assert numbers(store.browse("q")) == [1, 2, 3, 7]


def test_streams_are_seen_whole(store: AnyStore) -> None:
    """Whose payloads are read while they are there."""
    store.create_queue("q")
    store.put_stream("q", b"x" * (3 << 20))
    with store.transaction() as txn:
        [seen] = txn.browse("q")
        assert seen.size == 3 << 20
        store.get("q")
        [again] = txn.browse("q")
        assert (again.id, again.size) == (seen.id, 3 << 20)


def test_a_queue_that_is_dropped(store: AnyStore) -> None:
    """There is nothing to see any more, and the transaction goes on."""
    store.create_queue("q")
    store.create_queue("other")
    fill(store, "plain", 2)
    txn = store.transaction()
    assert numbers(txn.browse("q", 1)) == [0]
    store.drop_queue("q")
    with pytest.raises(QueueNotFound):
        txn.browse("q", 1, after=1)
    txn.put("other", b"m")
    txn.commit()
    assert store.queue("other").messages == 1


def test_too_much_that_is_read_meanwhile(
    store: AnyStore, owner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, and nothing is held any more."""
    monkeypatch.setattr("quire.engine.lookup.queue_view.VIEWED_BLOCKS", 5)
    store.create_queue("q")
    fill(store, "plain", 10)
    with store.transaction() as txn:
        assert numbers(txn.browse("q", 2)) == [0, 1]
        assert len(store.get_many("q", 5)) == 5
        assert numbers(txn.browse("q", 2)) == [0, 1]
        assert len(store.get_many("q", 1)) == 1
        with pytest.raises(PositionLost, match="begin anew"):
            txn.browse("q", 2)
        txn.rollback()
    with store.transaction() as txn:
        assert pages(txn, "q", 7) == list(range(6, 20))
    assert limits.VIEWED_BLOCKS > 5


def test_while_others_put_and_read(store: AnyStore, owner: Store) -> None:
    """All of the time, with checkpoints in between: each look through it is one state."""
    store.create_queue("q")
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            owner.put_many("q", [b"%d" % n for n in range(number, number + 20)])
            number += 20
            if number > 200:
                owner.get_many("q", 20)
            if number % 400 == 0:
                owner.admin.checkpoint()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for size in (3, 17, 40, 100):
            with store.transaction() as txn:
                seen = pages(txn, "q", size)
                if seen:
                    assert len(seen) % 20 == 0
                    assert seen == list(range(seen[0], seen[0] + len(seen)))
                    assert pages(txn, "q", 1000) == seen
    finally:
        stop.set()
        thread.join()


def test_what_is_wrong(store: AnyStore) -> None:
    """Nothing is held for it."""
    store.create_queue("q")
    with store.transaction() as txn:
        for wrong in (0, -1, "x"):
            with pytest.raises(InvalidArgument):
                txn.browse("q", wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            txn.browse("q", after="x")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            txn.browse("q", where=1.5)  # type: ignore[arg-type]
        with pytest.raises(QueueNotFound):
            txn.browse("none")
        txn.prepare("x")
        txn.rollback()
