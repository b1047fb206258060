"""A message that a transaction has moved is in one queue, whatever is done with it besides."""

from __future__ import annotations

from pathlib import Path

import pytest

from quire.errors import InvalidArgument, QueueFull, QueueNotFound

from .forms import AnyStore


@pytest.fixture
def work(store: AnyStore) -> str:
    """A queue of four messages; there is another one beside it."""
    store.create_queue("work")
    store.create_queue("to")
    store.put_many("work", [b"%d" % n for n in range(4)])
    return "work"


def test_a_message_is_moved_once(store: AnyStore, work: str) -> None:
    """Also in two calls; the first holds."""
    with store.transaction() as txn:
        first, second, third = txn.get_many(work, 3)
        assert txn.move([first, second], "to") == 2
        for again in ([first], [third, second]):
            with pytest.raises(InvalidArgument, match="is moved already"):
                txn.move(again, "to")
        assert txn.move([third], "to") == 1
    assert store.browse("to").payloads() == [b"0", b"1", b"2"]
    assert store.get_many(work).payloads() == [b"3"]


def test_what_is_moved_is_not_given_back(store: AnyStore, work: str) -> None:
    """It would be in both queues; what is not moved is."""
    with store.transaction() as txn:
        first, second = txn.get_many(work, 2)
        assert txn.move([first], "to") == 1
        with pytest.raises(InvalidArgument, match="cannot be given back"):
            txn.reject(first)
        with pytest.raises(InvalidArgument, match="cannot be given back"):
            txn.unget()
        txn.reject(second)
        assert txn.get_many(work, 1).payloads() == [b"1"]
        txn.unget()
    assert store.browse("to").payloads() == [b"0"]
    assert store.get_many(work).payloads() == [b"1", b"2", b"3"]


def test_a_move_that_fails_is_made_again(store: AnyStore, work: str) -> None:
    """Nothing of it was moved."""
    store.create_queue("small", max_messages=1)
    with store.transaction() as txn:
        got = list(txn.get_many(work, 2))
        with pytest.raises((QueueNotFound, QueueFull)):
            txn.move(got, "none")
        with pytest.raises(InvalidArgument):
            txn.move(got, "a b")
        assert txn.move(got[:1], "small") == 1
        assert txn.move(got[1:], "to") == 1
    assert store.browse("small").payloads() == [b"0"]
    assert store.browse("to").payloads() == [b"1"]


def test_what_is_rolled_back_may_be_moved_again(store: AnyStore, work: str) -> None:
    """By the next transaction."""
    with store.transaction() as txn:
        txn.move(txn.get_many(work, 2), "to")
        txn.rollback()
    with store.transaction() as txn:
        assert txn.move(txn.get_many(work, 2), "to") == 2
    assert store.browse("to").payloads() == [b"0", b"1"]


def test_each_subscription_s_message_is_one(store: AnyStore) -> None:
    """What two of them gave may be moved twice, and no more."""
    store.create_queue("t", kind="topic")
    store.create_queue("to")
    for name in "ab":
        store.subscribe("t", name)
    store.put("t", b"m")
    with store.transaction() as txn:
        [one], [other] = txn.get_many("t/a"), txn.get_many("t/b")
        assert txn.move([one], "to") == 1
        assert txn.move([other], "to") == 1
        with pytest.raises(InvalidArgument, match="is moved already"):
            txn.move([one], "to")
    assert store.browse("to").payloads() == [b"m", b"m"]


def test_streams_are_moved_once(store: AnyStore, work: str, tmp_path: Path) -> None:
    """Chunk by chunk, too."""
    large = tmp_path / "large"
    large.write_bytes(b"x" * (2 << 20))
    with large.open("rb") as source:
        store.put_stream(work, source)
    with store.transaction() as txn:
        got = txn.get_many(work)
        assert txn.move(got, "to") == 5
        with pytest.raises(InvalidArgument, match="is moved already"):
            txn.move(got[4:], "to")
    assert store.queue("to").messages == 5
