"""Large transactions, middle-sized ones, and what a full disk does to each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    AlreadyCommitted,
    DiskFull,
    TransactionClosed,
    TransactionError,
)
from quire.testing import SimEnv
from tests.kit.messages import FIELDS, put_until_full, take

OBEYED = {"priority", "expires_at", "deliver_at"}  # by queues that have these options only


@contextmanager
def small_disk() -> Iterator[tuple[SimEnv, Store]]:
    """A store with two work queues on a machine whose disk can be full; verified at the end."""
    env = SimEnv()
    with Store.open(
        "/s", env=env, background=False, segment_bytes=1 << 20, grow_bytes=1 << 16,
        inline_limit_bytes=1 << 16,
    ) as store:  # fmt: skip
        store.create_queue("q", kind="work")
        store.create_queue("other", kind="work")
        yield env, store
        assert store.admin.verify().ok


def ltds_files(store: Store) -> list[str]:
    """The files of large transactions on the disk."""
    return [n for n in store._env.list_directory(f"{store.path}/ltds") if not n.startswith(".")]


def swept(store: Store) -> list[str]:
    """Those files, once the ones that are not needed any more are removed."""
    store._context.places.sweep()
    return ltds_files(store)


@pytest.mark.promise(9)
def test_a_large_transaction_goes_to_files(store: Store, topic: str, work: str) -> None:
    """`large=True`: a file for each queue, in place until it is read, gone afterwards."""
    payloads = [b"%d" % n * 50 for n in range(20_000)]
    fields = {name: FIELDS[name] for name in FIELDS.keys() - OBEYED}
    with store.transaction(large=True) as txn:
        txn.put_many(work, pa.array(payloads[:10]))
        txn.put(topic, b"first")
        ids = txn.put_many(topic, payloads)
        txn.put(topic, b"last", **fields)
        assert store.status()["transactions"][0]["large"]
    assert len(ltds_files(store)) == 2
    assert int(ids[-1]) - int(ids[0]) == len(payloads) - 1
    assert take(store, work) == payloads[:10]
    assert len(swept(store)) == 1
    expected = [b"first", *payloads, b"last"]
    with store.transaction() as txn:
        got = [txn.get("topic/a") for _ in range(3)]
        assert [m.payload for m in got if m] == expected[:3]
        assert txn.get_many("topic/a", 10_000).payloads() == expected[3:10_003]
    with store.transaction() as txn:
        rest = txn.get_many("topic/a", 100_000)
        assert rest.payloads() == expected[10_003:]
        for name, value in fields.items():
            assert getattr(rest[-1], name) == value
        assert txn.get_arrow("topic/b", 100_000).num_rows == len(expected)
    assert swept(store) == []
    assert store.queue(topic).used_bytes == 0


def test_a_large_transaction_rolled_back_leaves_no_file(store: Store, topic: str) -> None:
    """Its files are removed, whether they are being written or finished."""
    txn = store.transaction(large=True)
    txn.put_many(topic, [b"x" * 100_000] * 100)
    assert len(ltds_files(store)) == 1
    txn.rollback()
    assert swept(store) == []
    with store.transaction() as txn:
        txn.enter("key", 1)
    txn = store.transaction(large=True)
    txn.put_many(topic, [b"x" * 1000] * 100)
    txn.enter("key", 1)
    with pytest.raises(AlreadyCommitted):
        txn.commit()
    assert swept(store) == []
    assert store.queue(topic).used_bytes == 0


@pytest.mark.promise(9)
@pytest.mark.parametrize(
    "option",
    [{"large_limit_bytes": 100_000}, {"large_limit_messages": 500}],
    ids=["bytes", "count"],
)
@pytest.mark.parametrize("how", ["put", "put_many", "arrow"])
def test_a_transaction_that_grows_becomes_large(option: dict[str, Any], how: str) -> None:
    """Past either limit the messages go to a file on the fly, in their order."""
    payloads = [b"%04d" % n * 60 for n in range(1000)]
    with Store.open("/s", env=SimEnv(), background=False, **option) as store:
        store.create_queue("q", kind="work")
        with store.transaction() as txn:
            if how == "put":
                for payload in payloads:
                    txn.put("q", payload)
            else:
                for start in range(0, 1000, 100):
                    part = payloads[start : start + 100]
                    txn.put_many("q", part if how == "put_many" else pa.array(part))
            assert len(ltds_files(store)) == 1
            (shown,) = store.status()["transactions"]
            assert shown["large"]
            assert shown["messages"] == 1000
        assert store.admin.verify().ok
        assert take(store, "q", 300) == payloads[:300]
        assert take(store, "q") == payloads[300:]
        assert swept(store) == []


@pytest.mark.promise(9)
@pytest.mark.parametrize("when_full", ["spill", "large"])
def test_a_full_write_buffer_lets_the_oldest_transaction_leave(when_full: str) -> None:
    """All open transactions together stay within the buffer; the others stay in it."""
    with Store.open(
        "/s", env=SimEnv(), background=False, write_buffer_bytes=1 << 20, when_full=when_full
    ) as store:
        store.create_queue("q", kind="work")
        small, large, last = (store.transaction() for _ in range(3))
        for n in range(4):
            small.put_many("q", [b"s%d" % n * 50_000])
        for n in range(6):
            large.put_many("q", [b"l%d" % n * 50_000])
        for n in range(3):
            last.put_many("q", [b"t%d" % n * 50_000])
        assert [t.large for t in (small, large, last)] == [when_full == "large", False, False]
        assert [t.buffered_bytes > 0 for t in store.admin.transactions()] == [False, True, True]
        assert store.admin.transactions()[0].spilled_bytes == (
            0 if when_full == "large" else store.admin.transactions()[0].bytes
        )
        assert store.status()["write_buffer_bytes"] <= 1 << 20
        for txn in (last, large, small):
            txn.commit()
        assert take(store, "q") == [
            *(b"t%d" % n * 50_000 for n in range(3)),
            *(b"l%d" % n * 50_000 for n in range(6)),
            *(b"s%d" % n * 50_000 for n in range(4)),
        ]
        assert store.admin.verify().ok


def test_a_middle_sized_transaction_goes_to_pages(store: Store, work: str) -> None:
    """Past the inline limit the blocks are written to pages of the data file, and come back."""
    payloads = [b"%03d" % n * 1000 for n in range(300)]
    before = store.status()["data"]
    with store.transaction() as txn:
        txn.put_many(work, payloads)
    after = store.status()["data"]
    used = after["bytes"] - after["free_bytes"] - (before["bytes"] - before["free_bytes"])
    assert used >= 900_000
    assert ltds_files(store) == []
    assert take(store, work) == payloads
    now = store.status()["data"]
    assert now["bytes"] - now["free_bytes"] == before["bytes"] - before["free_bytes"]


# A full disk


@pytest.mark.promise(5)
@pytest.mark.parametrize("size", [60_000, 200_000], ids=["journal", "pages"])
def test_a_full_disk_refuses_a_commit_and_the_same_one_succeeds_later(size: int) -> None:
    """DiskFull changes nothing: the transaction can be committed again once there is room."""
    with small_disk() as (env, store):
        env.capacity_bytes = env.used_bytes()
        txn = store.transaction()
        txn.put("q", b"x" * size)
        txn.enter("key", 1)
        if size < 1 << 16:
            with pytest.raises(DiskFull):
                put_until_full(store, "other", 50_000)
        with pytest.raises(DiskFull):
            txn.commit()
        assert txn.state == "open"
        assert store.queue("q").reserving == 0
        env.capacity_bytes = None
        txn.commit()
        assert store.integration.ledger("key") == 1
        assert take(store, "q") == [b"x" * size]


@pytest.mark.promise(5)
def test_a_full_disk_refuses_definitions_and_the_same_ones_succeed_later() -> None:
    """A queue that could not be dropped goes on as before."""
    with small_disk() as (env, store):
        env.capacity_bytes = env.used_bytes()

        def create_and_drop() -> None:
            for _ in range(100_000):
                store.create_queue("dropped", kind="work")
                store.drop_queue("dropped")

        with pytest.raises(DiskFull):
            create_and_drop()
        env.capacity_bytes = None
        if "dropped" in [queue.name for queue in store.queues()]:
            store.put("dropped", b"x")
            assert take(store, "dropped") == [b"x"]
            store.drop_queue("dropped")
        store.create_queue("dropped", kind="topic")


@pytest.mark.promise(13)
@pytest.mark.parametrize("how", ["declared", "converted", "buffer"])
def test_a_full_disk_while_a_large_transaction_is_written(how: str) -> None:
    """The put fails, and so does everything after it but the rollback: nothing is half there."""
    env = SimEnv()
    with Store.open(
        "/s", env=env, background=False, segment_bytes=1 << 20, grow_bytes=1 << 16,
        large_limit_bytes=1 << 20, large_flush_bytes=1 << 16, write_buffer_bytes=3 << 20,
        when_full="large",
    ) as store:  # fmt: skip
        store.create_queue("q", kind="work")
        env.capacity_bytes = env.used_bytes() + (1 << 18)
        txn = store.transaction(large=how == "declared")
        others = [store.transaction() for _ in range(5 if how == "buffer" else 0)]
        puts = 0
        for other in others:
            other.put("q", b"o" * 700_000)

        def fill() -> None:
            nonlocal puts
            for _ in range(100):
                txn.put_many("q", [b"%d" % puts * 10_000] * 10)
                puts += 1

        with pytest.raises((DiskFull, TransactionClosed)):
            fill()
        for other in others:
            other.rollback()
        env.capacity_bytes = None
        try:
            txn.commit()
            committed = True
        except TransactionError:
            committed = False
        got = take(store, "q")
        assert len(got) == (puts * 10 if committed else 0)
        assert store.queue("q").used_bytes == 0
        assert store.admin.verify().ok
