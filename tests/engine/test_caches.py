"""What is kept in memory of blocks: bounded by what it truly takes, gone when it is released."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable

import pytest

from quire.block import encode_one
from quire.engine import EmbeddedStore as Store
from quire.engine.pages.bounded_cache import BoundedCache, bounded_cache
from quire.engine.reading.block_reader import BlockReader
from quire.limits import BLOCK_CACHE_BYTES
from quire.messages.message_fields import Fields
from quire.rows.open_block import verified_block
from quire.testing import SimEnv
from tests.engine.cached_bytes import cached_bytes
from tests.kit.messages import FIELDS, take

SIZES = (0, 20, 1000)


def allocated(work: Callable[[], object]) -> int:
    """The bytes that are held after it, by what it returns or has changed."""
    gc.collect()
    gc.freeze()  # what is there: the collector of a free-threaded interpreter takes memory for it
    tracemalloc.start()
    try:
        result = work()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        del result
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return held


def reader_of(store: Store) -> BlockReader:
    """Who keeps the blocks of a store."""
    return store._context.reader


def copy_of(block: bytes | bytearray) -> bytes:
    """With a buffer of its own."""
    return bytes(memoryview(block))


@pytest.mark.cases(3)
@pytest.mark.promise(9)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [12_000, 50_000])
def test_fresh_blocks_are_counted_as_what_they_take(size: int, count: int) -> None:
    """Within 15 % of what the interpreter allocates, down to empty messages."""
    with Store.open("/s", env=SimEnv(), background=False) as store:
        reader = reader_of(store)
        block = encode_one(bytes(size))

        def fill() -> None:
            for number in range(count):
                reader.remember((1 << 40) + 4096 * number + 208, copy_of(block))

        held = allocated(fill)
        assert cached_bytes(reader) == pytest.approx(held, rel=0.15)


@pytest.mark.cases(4)
@pytest.mark.promise(9)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chosen", [(), ("priority",), ("sender", "reply_to"), tuple(FIELDS)])
def test_verified_blocks_are_counted_as_what_they_take(size: int, chosen: tuple[str, ...]) -> None:
    """A verified block is counted as the memory it takes, with and without header columns."""
    with Store.open("/s", env=SimEnv(), background=False) as store:
        reader = reader_of(store)
        encoded = encode_one(bytes(size), Fields(**{name: FIELDS[name] for name in chosen}))

        def fill() -> None:
            for number in range(2000):
                block = verified_block(copy_of(encoded), "here")
                reader._blocks.add((0, (1 << 40) + 4096 * number, (1 << 63) + number), (block, 0))

        held = allocated(fill)
        assert cached_bytes(reader) == pytest.approx(held, rel=0.15)


@pytest.mark.cases(2)
@pytest.mark.promise(9)
@pytest.mark.parametrize("page_size", [4096, 16384])
def test_record_pages_are_counted_as_what_they_take(page_size: int) -> None:
    """The same; of all queues together, and none of a queue that is gone."""
    env = SimEnv()
    with Store.open(
        "/s", env=env, background=False, page_size=page_size, inline_limit_bytes=1
    ) as store:  # blocks in the data file, which no checkpoint puts together
        pages = store._context.state.pages
        per_queue = 2 * pages.capacity
        for name in ("a", "b"):
            store.create_queue(name, kind="topic")
            store.subscribe(name, "s")
            for _ in range(per_queue):
                store.put(name, b"x")
        store.admin.checkpoint()

        def load() -> None:
            for name in ("a", "b"):
                list(store._context.state.queue(name).records)

        held = allocated(load)
        assert len(pages._cache) == 4
        assert pages._cache.size_bytes == pytest.approx(held, rel=0.15)
        with store.transaction() as txn:
            txn.read_to("a/s", per_queue)
        assert len(pages._cache) == 2
        store.drop_queue("b")
        assert pages._cache.size_bytes == 0


@pytest.mark.promise(9)
def test_a_cache_stays_below_its_bound() -> None:
    """The oldest go; what is empty holds no table of a larger time."""
    cache: BoundedCache[int, bytes] = BoundedCache(10_000, len, 0)
    for number in range(200):
        cache.add(number, bytes(number))
        assert cache.size_bytes == sum(cache.list_keys()) <= 10_000
    assert cache.list_keys()[-1] == 199
    assert cache.list_keys()[0] > 100
    cache.add(199, bytes(5))
    assert len(cache.get(199) or b"") == 199
    cache.add(1000, bytes(10_001))
    assert len(cache) == cache.size_bytes == 0
    many: BoundedCache[int, bytes] = BoundedCache(1 << 30, len, 0)

    def come_and_go() -> None:
        for number in range(50_000):
            many.add(number, b"x")
        for number in range(50_000):
            many.forget(number)

    assert allocated(come_and_go) < 4096


def test_a_cache_counts_right_whatever_its_threads_do() -> None:
    """With the GIL it takes no lock: each of its steps is one (BC3). Without it has one."""
    cache: BoundedCache[int, bytes] = bounded_cache(2000, len, 8)
    interval = sys.getswitchinterval()

    def come_and_go(number: int) -> None:
        for step in range(3000):
            key = (step * 7 + number * 13) % 60
            cache.add(key, bytes(key + 2))  # of shorter ones the interpreter has one of each
            cache.forget((key * 3) % 60)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=come_and_go, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    kept = cache.list_keys()
    assert cache.size_bytes == sum(kept) + 10 * len(kept) <= 2000
    cache.clear()
    assert len(cache) == cache.size_bytes == 0


def put_and_release(store: Store, release: str) -> None:
    """Put messages, look at them, and release them in one of the ways there are."""
    with store.transaction() as txn:
        for number in range(50):
            txn.put("topic", b"%d" % number)
    for number in range(50):
        store.put("topic", b"%d" % number)
    assert len(store.browse("topic")) == 100
    if release == "get":
        for name in ("a", "b"):
            assert len(take(store, f"topic/{name}")) == 100
    elif release == "one by one":
        for name in ("a", "b"):
            for _ in range(100):
                with store.transaction() as txn:
                    assert txn.get(f"topic/{name}") is not None
    elif release == "read_to":
        with store.transaction() as txn:
            txn.read_to("topic/a", store.queue("topic").end_position)
            txn.read_to("topic/b", store.queue("topic").end_position)
    elif release == "unsubscribe":
        take(store, "topic/a")
        store.unsubscribe("topic", "b")
    else:
        store.drop_queue("topic")


@pytest.mark.promise(9)
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("release", ["get", "one by one", "read_to", "unsubscribe", "drop"])
def test_what_is_released_is_forgotten(sim_store: Store, release: str, moved: bool) -> None:
    """Blocks of the journal and, moved to the data file by a checkpoint, of that."""
    reader = reader_of(sim_store)
    sim_store.create_queue("topic", kind="topic")
    sim_store.subscribe("topic", "a")
    sim_store.subscribe("topic", "b")
    with sim_store.transaction() as txn:
        txn.put_many("topic", [b"first", b"second"])
    if moved:
        sim_store.admin.checkpoint()
        assert len(sim_store.browse("topic")) == 2
        assert len(reader._blocks) == 1
        assert len(reader._fresh) == 0
    take(sim_store, "topic/a")
    take(sim_store, "topic/b")
    assert cached_bytes(reader) == 0
    put_and_release(sim_store, release)
    assert cached_bytes(reader) == 0


@pytest.mark.promise(9)
def test_moved_blocks_are_forgotten(store: Store, topic: str) -> None:
    """Their old places are looked at no more."""
    reader = reader_of(store)
    for _ in range(3):
        with store.transaction() as txn:
            txn.put_many(topic, [b"one", b"two"])
    assert len(store.browse(topic)) == 6
    assert len(reader._blocks) == len(reader._fresh) == 3
    store.admin.checkpoint()
    assert cached_bytes(reader) == 0


@pytest.mark.promise(9)
def test_blocks_of_a_large_transaction_go_with_its_file(store: Store, work: str) -> None:
    """Those of another file stay."""
    reader = reader_of(store)
    for _ in range(2):
        with store.transaction(large=True) as txn:
            txn.put_many(work, [b"x" * 1000] * 3000)
    assert len(store.browse(work, max_messages=6000)) == 6000
    kept = len(reader._blocks)
    assert kept >= 4
    with store.transaction() as txn:
        assert len(txn.get_many(work, 3000)) == 3000
    store.admin.checkpoint()
    assert len(reader._blocks) == kept // 2
    take(store, work)
    store.admin.checkpoint()
    assert cached_bytes(reader) == 0


def test_a_block_of_one_message_is_not_kept_a_second_time(store: Store, work: str) -> None:
    """Nobody takes a second message from it."""
    store.put(work, b"x")
    assert store.browse(work).payloads() == [b"x"]
    assert len(reader_of(store)._blocks) == 0


@pytest.mark.promise(9)
def test_many_small_verified_blocks_stay_below_the_bound(store: Store, topic: str) -> None:
    """What another subscription has still to read stays: up to the bound."""
    reader = reader_of(store)
    encoded = encode_one(b"x")
    for number in range(BLOCK_CACHE_BYTES // 1000 + 1000):
        reader._keep((0, number, 0), verified_block(encoded, "here"), 0)
    assert len(reader._blocks) == 0
    with store.transaction() as txn:
        txn.put_many(topic, [b"x", b"y"])
    assert len(store.browse(topic)) == 2
    block = next(iter(reader._blocks._values.values()))[0]
    for number in range(BLOCK_CACHE_BYTES // 1000 + 1000):
        reader._keep((0, number, 0), block, 0)
    assert 0.99 * BLOCK_CACHE_BYTES < reader._blocks.size_bytes <= BLOCK_CACHE_BYTES


def soak(role: str, path: str, rounds: int, messages: int, **options: int) -> list[float]:
    """The megabytes of a process's own after each round of so many messages, put and read."""
    command = [sys.executable, "-m", "tests.engine.soak_process", role, path]
    done = subprocess.run(
        [*command, str(rounds), str(messages), json.dumps(options)],
        check=True,
        capture_output=True,
        text=True,
    )
    sizes: list[float] = json.loads(done.stdout)
    return sizes


@pytest.mark.cases(8)
@pytest.mark.promise(9)
def test_memory_is_flat_while_messages_go_through(store_path: str) -> None:
    """4,500 messages, one by one, with checkpoints among them: within 5 % after the first 1,500."""
    first, *later = soak("one_after_another", store_path, 3, 1500, checkpoint_bytes=4 << 20)
    assert max(later) < 1.05 * first, (first, later)


@pytest.mark.long
@pytest.mark.promise(9)
@pytest.mark.parametrize(("role", "growth"), [("one_after_another", 1.05), ("backlog", 1.25)])
def test_memory_is_flat_in_the_long_run(store_path: str, role: str, growth: float) -> None:
    """260,000 messages with the options that users have: no more in the second half.

    What the allocator keeps of a checkpoint's lists varies with when a backlog meets it.
    """
    sizes = soak(role, store_path, 8, 32_500)
    assert max(sizes[4:]) < growth * max(sizes[:4]), sizes
