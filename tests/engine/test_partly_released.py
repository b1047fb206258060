"""How many messages of each record are released, without counting them with every read."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.queues.partly_released import PartlyReleased
from quire.engine.records.block_ref import BlockRef
from quire.intervals import IntervalSet


class Counting(IntervalSet):
    """A set that tells how often it was counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counted = 0

    def count(self, lo: int, hi: int) -> int:
        self.counted += 1
        return super().count(lo, hi)


def record(position: int, count: int) -> BlockRef:
    """Of so many messages from the position on, with a charge that does not divide evenly."""
    return BlockRef(position, 0, 0, 0, 1000 * count + 7, 0, 0, count, 0)


def release(partly: PartlyReleased, released: IntervalSet, ref: BlockRef, at: int) -> int:
    """One position of the record is released; what `add` tells of it."""
    now = released.add(at, at + 1)
    return partly.add(ref, now)


def test_a_record_is_counted_once(rng: random.Random) -> None:
    """However many of its messages are released one by one, in any order (PT1, PT2)."""
    released = Counting()
    partly = PartlyReleased(released)
    ref = record(100, 500)
    for done, at in enumerate(rng.sample(range(100, 600), 500), 1):
        assert release(partly, released, ref, at) == done
        assert len(partly) == (1 if done < 500 else 0)
    assert released.counted == 1


def test_it_is_what_the_set_says(rng: random.Random) -> None:
    """Of many records, of which some were partly released before, and some are merged (PT1)."""
    sizes = [rng.choice([2, 3, 10, 100]) for _ in range(60)]
    refs, end = [], 0
    for size in sizes:
        refs.append(record(end, size))
        end += size
    released = IntervalSet()
    for at in rng.sample(range(end), end // 3):
        released.add(at, at + 1)
    partly = PartlyReleased(released)
    rest = [at for lo, hi in released.gaps(0, end) for at in range(lo, hi)]
    rng.shuffle(rest)
    for at in rest:
        if rng.random() < 0.02 and len(refs) > 1:
            first = rng.randrange(len(refs) - 1)
            old = refs[first : first + rng.choice([1, 2])]
            new = record(old[0].position, sum(ref.count for ref in old))
            count = released.count(new.position, new.end)
            charge = sum(r.released_charge(released.count(r.position, r.end)) for r in old)
            assert partly.replace(old, new) == (charge, count)
            refs[first : first + len(old)] = [new]
        [ref] = [ref for ref in refs if ref.position <= at < ref.end]
        assert release(partly, released, ref, at) == released.count(ref.position, ref.end)
    assert len(partly) == 0


ORDERS: list[dict[str, Any]] = [{"order": "priority"}, {"order": {"attribute": "key"}}]


@pytest.mark.cases(2)
@pytest.mark.parametrize("properties", ORDERS)
@pytest.mark.parametrize("large", [False, True])
def test_the_space_of_a_queue_that_is_drained_in_its_order(
    store: Store, rng: random.Random, properties: dict[str, Any], large: bool
) -> None:
    """Each read gives back what it charged, with checkpoints and rollbacks, down to nothing."""
    store.create_queue("q", kind="work", **properties)
    pairs = [[("key", f"{rng.random()}")] for _ in range(600)]
    columns = {
        "payload": pa.array([b"x" * rng.randrange(50) for _ in pairs], pa.binary()),
        "attributes": pa.array(pairs, pa.map_(pa.string(), pa.string())),
    }
    if properties["order"] == "priority":
        columns["priority"] = pa.array([rng.randrange(4) for _ in pairs], pa.int32())
    with store.transaction(large=large) as txn:
        txn.put_many("q", pa.table(columns))
    left = 600
    while left:
        with store.transaction() as txn:
            got = len(txn.get_many("q", rng.choice([1, 1, 7])))
            if rng.random() < 0.1:
                txn.rollback()
                got = 0
        left -= got
        if rng.random() < 0.1:
            store.admin.checkpoint()
        if rng.random() < 0.2:
            assert store.admin.verify().ok  # it counts the space anew
    assert store.queue("q").used_bytes == 0
