"""The space kept back for checkpoints is enough for any later one, whatever is read until then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.pages.free_space import FreeSpace
from quire.engine.records.checkpoint_file import path_of
from quire.engine.records.checkpoint_spares import next_spare_bytes
from quire.engine.records.format import CHECKPOINT_HEADER
from quire.engine.records.packed_runs import most_bytes, pack_bits, unpack_bits
from quire.engine.state.attempts import Attempts
from quire.errors import DiskFull
from quire.intervals import IntervalSet
from quire.limits import COUNTED_MESSAGES
from quire.testing import SimEnv

SOURCES = ("ranked", "counted", "numbered", "topic/reads", "topic/lags", "large0", "large1")


def open_store(env: SimEnv) -> Store:
    """A store whose larger messages go into the data file at once."""
    return Store.open(
        "/s", env=env, background=False, inline_limit_bytes=2048, segment_bytes=1 << 20,
        grow_bytes=1 << 18,
    )  # fmt: skip


def make(store: Store) -> None:
    """Queues of every kind whose reading makes something of a checkpoint larger."""
    store.create_queue("ranked", kind="work", order="priority")
    store.create_queue("dead", kind="work")
    store.create_queue("counted", kind="work", max_deliveries=99, dead_letter="dead")
    store.create_queue("numbered", kind="work", order={"sequence": "number", "wait": 0.0})
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "reads")
    store.subscribe("topic", "lags")
    for number in range(2):
        store.create_queue(f"large{number}", kind="work")


def fill(store: Store, rng: Random, rounds: int) -> None:
    """Put messages that leave many pieces when they are read in a random order."""
    for _ in range(rounds):
        with store.transaction() as txn:
            for _ in range(20):
                number = rng.randrange(1 << 20)
                txn.put("ranked", b"x", priority=rng.randrange(10))
                txn.put("topic", b"x", attributes={"odd": str(number % 2)})
                txn.put("counted", b"x", attributes={"odd": str(number % 2)})
                txn.put("numbered", b"x", attributes={"number": "1"}, sender=f"{number}")
        for number in range(2):
            store.put(f"large{number}", bytes(4000))


def sparing_bytes(store: Store) -> int:
    """The size of a checkpoint that moves nothing, made now."""
    store._checkpointer._make(sparing=True)
    env, lsn = store._opened.env, store._checkpointer.last_lsn
    file = env.open_file(path_of("/s/checkpoint", lsn), read_only=True)
    length: int = CHECKPOINT_HEADER.unpack(file.read(0, CHECKPOINT_HEADER.size))[6]
    file.close()
    return length


def move(store: Store, source: str, position: int) -> None:
    """Move a subscription."""
    with store.transaction() as txn:
        txn.seek(source, position)


def each_of(names: list[str], action: Callable[[str], None]) -> None:
    """Do it with each."""
    for name in names:
        action(name)


def read_some(store: Store, rng: Random) -> None:
    """Read from anywhere, in a transaction that may roll back first."""
    source = rng.choice(SOURCES)
    where = f"odd = '{rng.randrange(2)}'" if source[0] in "ct" and rng.random() < 0.5 else None
    with store.transaction() as txn:
        txn.get_many(source, rng.choice((1, 3, 10)), where=where)


@pytest.mark.cases(2)
@pytest.mark.promise(5)
@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("opened_anew", [False, True])
def test_promise_5_reading_makes_no_checkpoint_larger_than_was_counted(
    rng: Random, opened_anew: bool, archived: bool
) -> None:
    """KB1: the bound never grows by reads, and no checkpoint is larger than it.

    Also where all that is released waits for an archive, which nothing is shipped to.
    """
    env = SimEnv(rng.randrange(1 << 30))
    store = open_store(env)
    make(store)
    if archived:
        store.admin.set_archive("archive")
    fill(store, rng, 30)
    assert store._opened.kept_back.needed_bytes() <= store._opened.kept_back.bytes
    for _ in range(40):  # deliveries that come to nothing
        txn = store.transaction()
        txn.get_many("counted", rng.choice((1, 2, 5)), where=f"odd = '{rng.randrange(2)}'")
        txn.rollback()
    kept_back = store._opened.kept_back
    bound = kept_back.needed_bytes()
    assert bound <= kept_back.bytes
    pieces = 0
    for number in range(150):
        read_some(store, rng)
        if number % 10 == 0:
            assert sparing_bytes(store) <= kept_back.needed_bytes()
            if opened_anew:
                env = env.kill()
                store = open_store(env)
                kept_back = store._opened.kept_back
        after = kept_back.needed_bytes()
        assert after <= bound, number
        bound = after
        pieces = max(pieces, store._context.places.managers[0].space.fragments)
    for source in SOURCES:
        store.get_many(source, 10_000)
        assert kept_back.needed_bytes() <= bound
    assert pieces > 5 or archived
    assert not archived or store.status()["archive"]["held_bytes"]
    assert store.admin.verify().ok


@pytest.mark.promise(5)
def test_promise_5_what_is_added_is_counted_before(seed: int) -> None:
    """Whatever it makes larger: many messages, a subscription to them, a move back to them."""
    store = open_store(SimEnv(seed))
    make(store)
    kept_back = store._opened.kept_back
    added: list[Callable[[], object]] = [
        lambda: store.put_many("topic", [b""] * 500_000),
        lambda: move(store, "topic/reads", 500_000),
        lambda: store.subscribe("topic", "more"),
        lambda: move(store, "topic/reads", 1),
    ]
    for number, add in enumerate(added):
        needed = kept_back.needed_bytes()
        add()
        if number != 1:  # which makes less of it
            assert kept_back.needed_bytes() > needed + 500_000 // 8 - COUNTED_MESSAGES, number
        assert kept_back.is_enough, number
    store.close()


@pytest.mark.cases(4)
@pytest.mark.promise(5)
def test_promise_5_what_is_not_kept_back_is_refused_alone(seed: int) -> None:
    """On a full disk: moves back, versions of ever more keys. Reading goes on.

    What adds to a checkpoint beside what it takes is refused once no spare has room for it (KB3).
    """
    env = SimEnv(seed)
    store = open_store(env)
    make(store)
    sources = [f"topic/{number}" for number in range(8)]
    store.put_many("topic", [b""] * 600_000)
    for source in sources:
        store.subscribe("topic", source[6:], start="latest")
    store.put_many("ranked", [b"x"] * 3000)
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        fill(store, Random(seed), 1000)
    done: list[str] = []

    def move_back(source: str) -> None:
        env.capacity_bytes = env.used_bytes()  # others take what becomes free
        move(store, source, 0)
        done.append(source)

    with pytest.raises(DiskFull):
        each_of(sources, move_back)
    assert len(done) < len(sources)
    kept_back = store._opened.kept_back
    for number in range(300):
        env.capacity_bytes = env.used_bytes()
        with suppress(DiskFull), store.transaction() as txn:
            assert txn.get("ranked") is not None
            txn.enter(f"{number:0200}", 1)
        assert next_spare_bytes(env, "/s/checkpoint") >= kept_back.needed_bytes()
    for source in (*SOURCES, *sources):
        env.capacity_bytes = env.used_bytes()
        while store.get_many(source, 100_000):
            env.capacity_bytes = env.used_bytes()
    store.admin.checkpoint()
    assert store.queue("topic").messages == 0
    assert store.admin.verify().ok
    store.close()


@pytest.mark.promise(5)
def test_promise_5_checkpoints_of_a_full_disk_keep_the_spares(seed: int) -> None:
    """As many as are asked for: one of the same state takes no spare, as that would be lost."""
    env = SimEnv(seed)
    store = open_store(env)
    make(store)
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        fill(store, Random(seed), 1000)
    store.admin.checkpoint()
    kept = next_spare_bytes(env, "/s/checkpoint")
    for _ in range(5):
        env.capacity_bytes = env.used_bytes()
        store.admin.checkpoint()
        assert next_spare_bytes(env, "/s/checkpoint") == kept
    assert kept >= store._opened.kept_back.needed_bytes()
    store.close()


@pytest.mark.promise(5)
def test_promise_5_a_checkpoint_that_moves_is_counted(seed: int) -> None:
    """Where its maps of free pages would need more than is kept back, it is not made (KB2)."""
    env = SimEnv(seed)
    store = open_store(env)
    kept_back = store._opened.kept_back
    free = store._context.places.managers[0].space
    kept_back.expect([FreeSpace.from_extents(free.total_pages, free.extents())])
    kept_back.check()
    pages = 8 * kept_back.bytes
    kept_back.expect([FreeSpace.from_extents(pages, [(1, 1)])])
    with pytest.raises(DiskFull, match="kept back"):
        kept_back.check()
    store.admin.checkpoint()  # by which nothing is expected any more
    kept_back.check()
    store.close()


# The forms in a checkpoint ------------------------------------------------------------------------


def test_runs_as_bits(rng: Random) -> None:
    """They are read as they were written, and take what `most_bytes` says at most."""
    as_bits = 0
    for _ in range(300):
        end, density = rng.randrange(1, 3000), rng.choice((0.02, 0.5, 0.98))
        start = rng.choice((0, 0, 5, 1 << 40))
        runs = IntervalSet()
        for position in range(end):
            if rng.random() < density:
                runs.add(start + position, start + position + 1)
        listed = runs.to_list()
        bits = pack_bits(listed)
        size = 16 * len(listed) if bits is None else 8 * len(bits)
        assert size <= min(16 * len(listed), most_bytes(runs, start + end)[0])
        if bits is not None:
            as_bits += 1
            assert unpack_bits(bits, len(listed)) == listed
    assert as_bits > 50


def test_bits_that_contradict_themselves_are_refused() -> None:
    """Whatever number of them is wrong."""
    runs = [(0, 3), (5, 6), (8, 20), (22, 23), (25, 27), (30, 40)]
    bits = pack_bits(runs)
    assert bits is not None
    assert unpack_bits(bits, len(runs)) == runs
    with pytest.raises(ValueError, match="contradicts"):
        unpack_bits(bits, len(runs) + 1)
    for index, value in ((0, 3), (1, 31), (2, 3), (3, 30), (4, -1), (4, 1)):
        wrong = bits[:]
        wrong[index] = value
        with pytest.raises(ValueError, match="contradicts"):
            unpack_bits(wrong, len(runs))
    for short in (bits[:3], bits[:4], bits + bits[:1]):
        with pytest.raises(ValueError, match=r"contradict|unpack"):
            unpack_bits(short, len(runs))


def test_what_came_of_deliveries_is_joined_over_what_is_read(rng: Random) -> None:
    """Reading never makes more rows of it, and what is loaded is what there was."""
    for _ in range(100):
        attempts, done = Attempts(), IntervalSet()
        for _ in range(rng.randrange(1, 8)):
            start = rng.randrange(100)
            attempts.add(start, start + rng.randrange(1, 40))
        rows = attempts.rows_beside(done)
        assert rows == attempts.rows()
        for _ in range(30):
            start = rng.randrange(140)
            end = start + rng.choice((1, 1, 3, 20))
            done.add(start, end)
            attempts.forget(start, end)
            after = attempts.rows_beside(done)
            assert len(after) <= len(rows)
            assert Attempts.beside(after, done).rows() == attempts.rows()
            rows = after
