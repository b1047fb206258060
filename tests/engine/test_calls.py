"""What a commit costs, counted at the environment's seam; and what a backlog costs in memory."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from quire.engine import EmbeddedStore as Store
from quire.limits import BLOCK_CACHE_BYTES, INLINE_CACHE_BYTES
from quire.testing import SimEnv
from tests.engine.cached_bytes import cached_bytes


@pytest.mark.promise(1)
@pytest.mark.promise(2)
@pytest.mark.parametrize("queues", [1, 16, 200])
@pytest.mark.parametrize("direct", [True, False])
def test_a_commit_is_one_write_and_one_sync(queues: int, direct: bool) -> None:
    """Whatever the number of queues it puts to and gets from; a direct write needs no sync."""
    env = SimEnv(direct=direct)
    with Store.open("/s", env=env, background=False) as store:
        for n in range(queues):
            store.create_queue(f"q{n}", kind="work")
        while store.status()["journal"]["bytes"] < 4 << 20:  # its files are small at first
            store.put("q0", b"x" * 100_000)
        for _ in range(3):
            with store.transaction() as txn:
                for n in range(queues):
                    txn.put(f"q{n}", b"x" * 100)
                    txn.get(f"q{n}")
                txn.enter("key", env.calls.last_number)
                env.calls.clear()
            assert env.calls.kinds() == (["write"] if direct else ["write", "sync"])
        store.put("q0", b"x")
        env.calls.clear()
        store.put("q0", b"x")
        assert env.calls.kinds() == (["write"] if direct else ["write", "sync"])
        assert store.admin.verify().ok


def test_reads_rollbacks_and_empty_commits_write_nothing() -> None:
    """Only what changes something costs a write."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"x")
        env.calls.clear()
        with store.transaction():
            pass
        txn = store.transaction()
        assert txn.get("q") is not None
        txn.put("q", b"y")
        txn.rollback()
        store.browse("q")
        store.status()
        assert env.calls.kinds() == []


@pytest.mark.cases(4)
@pytest.mark.promise(9)
def test_memory_does_not_grow_with_the_backlog(store_path: str) -> None:
    """300,000 messages take no more than 50,000 do, beyond the configured caches."""

    def fill(store: Store, messages: int) -> None:
        batch = [b"%06d" % n * 10 for n in range(1000)]
        for _ in range(messages // 1000):
            with store.transaction() as txn:
                txn.put_many("q", batch)
        store.admin.checkpoint()

    def held(store: Store) -> int:
        store._maintenance.stop()  # what it does holds something meanwhile
        gc.collect()
        found = tracemalloc.get_traced_memory()[0] - cached_bytes(store._context.reader)
        store._maintenance._stopping = False
        store._maintenance.start()
        return found

    options = {"checkpoint_bytes": 4 << 20, "segment_bytes": 4 << 20}
    with Store.open(store_path, **options) as store:  # type: ignore[arg-type]
        store.create_queue("q", kind="topic")
        store.subscribe("q", "s")
        fill(store, 10_000)
        tracemalloc.start()
        try:
            fill(store, 40_000)
            few = held(store)
            fill(store, 250_000)
            many = held(store)
        finally:
            tracemalloc.stop()
        assert cached_bytes(store._context.reader) <= INLINE_CACHE_BYTES + BLOCK_CACHE_BYTES
        # 250,000 more messages are 250 more blocks: their records fill a few pages, on the disk.
        assert many - few < 1 << 20, f"{few} bytes with 50,000 messages, {many} with 300,000"


@pytest.mark.promise(9)
def test_memory_does_not_grow_with_a_large_transaction(store_path: str) -> None:
    """A large transaction of 100 MB holds a few buffers' worth at a time."""
    with Store.open(store_path, large_flush_bytes=1 << 20) as store:
        store.create_queue("q", kind="work")
        batch = [b"x" * 1000] * 1000
        tracemalloc.start()
        try:
            with store.transaction(large=True) as txn:
                for _ in range(100):
                    txn.put_many("q", batch)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 20 << 20
        assert store.queue("q").messages == 100_000


@pytest.mark.promise(4)
def test_a_commit_does_not_wait_for_a_checkpoint_that_is_under_way() -> None:
    """Without a maintenance thread a commit makes a checkpoint that is due, and waits for none."""
    env = SimEnv()
    with Store.open(
        "/store", env=env, background=False, segment_bytes=1 << 18, checkpoint_bytes=1 << 14
    ) as store:
        store.create_queue("work", kind="work")
        store.put("work", b"before")
        env.before_call = lambda call: put_beside(call.kind)
        beside = 0

        def put_beside(kind: str) -> None:
            nonlocal beside
            if kind == "rename":  # the checkpoint's file gets its name
                env.before_call = None
                for _ in range(20):
                    beside += store.put("work", b"beside") > 0

        store.admin.checkpoint()
        assert beside == 20
        assert store.queue("work").messages == 21
        assert store.admin.verify().ok
