"""The packed tail of a record list, against a plain list of records."""

from __future__ import annotations

import gc
import random

from quire.engine import EmbeddedStore as Store
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.format import PACKED_RECORD
from quire.engine.records.packed_records import PackedRecords
from tests.engine.workload import new_machine, open_store

MOST = (1 << 64) - 1


def drawn(rng: random.Random, count: int) -> list[BlockRef]:
    """Records as commits append them: positions ascend, with gaps where messages were released."""
    refs: list[BlockRef] = []
    position = 0
    for _ in range(count):
        position += rng.choice([0, 0, 1, 1000])
        wide = (rng.getrandbits(64) for _ in range(4))
        first_id, address, charge, checksum = wide
        time_us = rng.getrandbits(62) * rng.choice([1, -1])
        length, messages = rng.getrandbits(32), rng.choice([1, 2, 5000])
        refs.append(
            BlockRef(
                position, first_id, time_us, address, charge, checksum, length, messages,
                rng.randrange(3),
            )
        )  # fmt: skip
        position += messages
    return refs


def add(tail: PackedRecords, ref: BlockRef) -> None:
    """As `DurableQueue.append` does it."""
    tail.data += PACKED_RECORD.pack(*ref)
    tail.starts.append(ref.position)


def tail_of(refs: list[BlockRef]) -> PackedRecords:
    """These records, packed."""
    tail = PackedRecords()
    for ref in refs:
        add(tail, ref)
    return tail


def test_it_is_the_list_that_was_appended(rng: random.Random) -> None:
    """More than is unpacked at once, and none."""
    for count in (0, 1, 2, 1023, 1024, 1025, 3000):
        refs = drawn(rng, count)
        tail = tail_of(refs)
        assert len(tail) == count
        assert list(tail.between(0, count)) == refs
        assert [tail[index] for index in range(count)] == refs


def test_extreme_values_fit() -> None:
    """Whatever a record page can hold."""
    ref = BlockRef(MOST, MOST, -(1 << 63), MOST, MOST, MOST, (1 << 32) - 1, (1 << 32) - 1, 255)
    assert tail_of([ref])[0] == ref


def test_what_overlaps_is_found(rng: random.Random) -> None:
    """Of any range, also in gaps and beyond both ends."""
    refs = drawn(rng, 300)
    tail = tail_of(refs)
    edges = [0, *(ref.position for ref in refs), *(ref.end for ref in refs), refs[-1].end + 10]
    for _ in range(2000):
        start, end = sorted(rng.choice(edges) + rng.choice([0, 0, 1]) for _ in range(2))
        expected = [ref for ref in refs if ref.position < end and ref.end > start]
        if start < end:
            assert list(tail.overlapping(start, end)) == expected


def test_the_first_are_dropped(rng: random.Random) -> None:
    """Some or all; a copy and an iteration that were made before do not notice an append."""
    refs = drawn(rng, 2500)
    tail = tail_of(refs[:2000])
    copy, running = tail.copy(), tail.between(0, 2000)
    assert next(running) == refs[0]
    for ref in refs[2000:]:
        add(tail, ref)
    assert list(running) == refs[1:2000]
    tail.replace(1200, [])
    assert list(tail.between(0, len(tail))) == refs[1200:]
    assert list(copy.between(0, len(copy))) == refs[:2000]
    tail.replace(1300, [])
    assert len(tail) == 0
    assert list(tail.overlapping(0, MOST)) == []


def test_commits_leave_nothing_for_the_garbage_collector(store_path: str) -> None:
    """Messages of 2,000 commits wait, of single puts and of transactions: no object is kept."""
    with Store.open(store_path, background=False) as store:
        for name in ("a", "b"):
            store.create_queue(name, kind="work")

        def commit(count: int) -> None:
            for _ in range(count):
                store.put("a", b"x")
                with store.transaction() as transaction:
                    transaction.put("a", b"x")
                    transaction.put("b", b"x")

        commit(10)
        gc.collect()
        before = len(gc.get_objects())
        commit(1000)
        gc.collect()
        assert len(gc.get_objects()) - before < 100
        assert store.queue("a").messages == 2 * 1010


def test_the_last_record_up_to_a_number(rng: random.Random) -> None:
    """By first id or by time, which ascend, some of them equal; below all of them there is none."""
    for count in (1, 2, 57):
        numbers = sorted(rng.randrange(1 << 62) for _ in range(count))
        numbers += numbers[-1:]
        refs = [
            ref._replace(first_id=number, time_us=number)
            for ref, number in zip(drawn(rng, count + 1), numbers, strict=True)
        ]
        tail = tail_of(refs)
        for field in (1, 2):
            assert tail.last_up_to(field, numbers[0] - 1) == -1
            assert tail.last_up_to(field, numbers[-1]) == count
            for index, number in enumerate(numbers):
                assert tail.number(index, field) == number == refs[index][field]
                assert numbers[tail.last_up_to(field, number)] == number
                assert tail.last_up_to(field, number - 1) == numbers.index(number) - 1


def test_a_record_at_hand_is_forgotten_with_a_checkpoint(seed: int) -> None:
    """L6: a checkpoint moves its block, and the journal's old segments go."""
    with open_store(new_machine(seed)) as store:
        store.create_queue("q", order="priority")
        records = store._context.state.queue("q").records
        with store.transaction() as txn:
            first = txn.put("q", b"0")
        ids = [int(first), *(store.put("q", b"%d" % n) for n in range(1, 150))]
        for turn in range(2):
            for n in (5, 149, 90):
                with store.transaction() as txn:
                    found = txn.read("q", id=ids[n])
                assert found is not None
                assert found.payload == b"%d" % n
                assert records._found is not None
                assert list(records.near(n, n + 1)) == [records._found]
                assert list(records.near(n - 4, n + 1)) == list(records.overlapping(n - 4, n + 1))
            before = [records._found]
            store.admin.checkpoint()  # the second one moves nothing
            assert list(records.near(90, 91)) == list(records.overlapping(90, 91))
            assert (list(records.near(90, 91)) != before) == (turn == 0)
            assert list(records.near(90, 90)) == []
