"""Shipped records, appended to a store that was restored of a base: the store that they are of."""

from __future__ import annotations

import random
from contextlib import closing
from io import BytesIO
from typing import Any

import pytest

from quire.archive import backup, restore
from quire.engine import EmbeddedStore as Store
from quire.engine.checkpoints.record_appending import RecordAppender
from quire.engine.layout import Layout
from quire.errors import StoreCorrupt
from tests.archive.shipped_records import Shipper, copy_file
from tests.archive.test_backup_and_restore import (
    ARCHIVE,
    GEOMETRIES,
    RESTORED,
    clock_machine,
    furnish,
    opened,
)
from tests.engine.test_state_hash import Clock, told
from tests.engine.workload import PATH
from tests.kit.limits import Limits

SOURCE, TARGET = Layout(PATH), Layout(RESTORED)


def go_on(
    env: Clock, store: Store, shipper: Shipper, rng: random.Random, steps: int = 30
) -> dict[int, tuple[Any, ...]]:
    """Work of all kinds in a furnished store; what it is like after some of its records."""
    seen = {}
    for number in range(steps):
        env.shown_us += rng.randrange(1, 3_000_000)
        if number == 3:
            store.create_queue("new", kind="work", max_deliveries=3, dead_letter="work")
            store.subscribe("topic", "late", start="earliest")
        if number == 12:
            store.drop_queue("tried")
            store.prepared.rollback("x19")
            store.cron.create("hourly", "new", "@hourly", b"hour")
            store.admin.create_alias("also", "new")
        with store.transaction(large=rng.random() < 0.3) as txn:
            txn.put_many("work", [rng.randbytes(rng.randrange(1, 5000)) for _ in range(3)])
            txn.get_many("work", rng.randrange(1, 60))
            txn.get_many("topic/a", 40)
            txn.get_many("topic/b", 40)
            txn.put("topic", b"%d" % number * rng.randrange(1, 900))
            txn.put("urgent", b"now", priority=number % 7, delay=number % 3 and 3600.0)
            txn.set_value("step", f"{number % 3}", b"%d" % number)
            txn.enter("later", number)
            if number > 3:
                txn.put_many("new", [rng.randbytes(3000)] * 2)
                txn.get_many("new", 1)
        if number % 7 == 3:
            store.session("caller").put("work", b"asked")
            store.admin.move("urgent", "work", max_messages=2)
            with store.transaction() as txn:
                txn.put_stream("work", BytesIO(rng.randbytes(100_000)))
        if number % 10 == 5:
            prepared = store.transaction()
            prepared.put_many("work", [rng.randbytes(3000)] * 3)
            prepared.get("urgent")
            prepared.prepare(f"y{number}")
            if number == 15:
                store.prepared.commit(f"y{number}")
        if number > 4 and rng.random() < 0.5:
            with store.transaction() as txn:
                found = txn.get("new")
                if found is not None:
                    txn.reject(found, "no", delay=1e-6)
                txn.rollback()
        if rng.random() < steps / 100 or number == steps - 1:
            looked = shipper.look()
            seen[looked[0]] = looked
    return seen


@pytest.mark.cases(2)
@pytest.mark.promise(8)
@pytest.mark.parametrize("options", GEOMETRIES, ids=["one file", "three files"])
def test_appended_records_give_the_store_that_they_are_of(
    seed: int, options: dict[str, Any], limits: Limits
) -> None:
    """Number, state and contents at each number, whenever records are folded (RA1, RA2)."""
    env, rng = clock_machine(seed), random.Random(seed)
    limits(APPENDED_BYTES=100_000)
    with opened(env, **options) as store:
        furnish(env, store, rng)
        report = backup(store, ARCHIVE, env=env)
        shipper = Shipper(env, store, report.backup.number)
        expected, records = go_on(env, store, shipper, rng), shipper.records
    assert [each.number for each in records] == [
        *range(report.backup.number + 1, max(expected) + 1)
    ]
    restore(ARCHIVE, RESTORED, env=env)
    lock = env.lock(TARGET.lock, "a test")
    try:
        fetched: list[int] = []

        def fetch(ltds_id: int, trailer: int) -> int:
            fetched.append(copy_file(env, SOURCE, TARGET, ltds_id))
            return fetched[-1]

        with closing(RecordAppender(env, TARGET, lock, fetch)) as appender:
            assert appender.number == report.backup.number
            assert appender.state_hash() == report.backup.state_hash
            for each in records:
                appender.append(each.record, each.attachment)
                assert appender.number == each.number
                if each.number in expected:
                    appender.finish()
                    assert appender.state_hash() == expected[each.number][1]
    finally:
        lock.release()
    assert any(fetched)
    with opened(env, RESTORED) as restored:
        assert told(restored, "contents") == expected[max(expected)]
        restored.put("also", b"next")
        restored.admin.checkpoint()
        assert restored.admin.verify().ok


def test_blocks_that_are_not_the_records_are_refused() -> None:
    """Before anything of the record is written (RA3): another block, one too few, one too many."""
    env = clock_machine(1)
    with opened(env, page_size=4096, inline_limit_bytes=16) as store:
        store.create_queue("q", kind="work")
        report = backup(store, ARCHIVE, env=env)
        shipper = Shipper(env, store, report.backup.number)
        store.put_many("q", [bytes(3000)])
        store.put_many("q", [b"another" * 500])
        shipper.ship()
    first, second = shipper.records
    restore(ARCHIVE, RESTORED, env=env)
    lock = env.lock(TARGET.lock, "a test")
    try:
        with closing(RecordAppender(env, TARGET, lock, lambda *_: 0)) as appender:
            before = appender.number, appender.state_hash()
            for attachment in (b"", second.attachment, first.attachment * 2, bytes(3016)):
                with pytest.raises(StoreCorrupt):
                    appender.append(first.record, attachment)
            for record in (b"", first.record[:-1], first.record[:40]):
                with pytest.raises(StoreCorrupt):
                    appender.append(record, first.attachment)
            appender.finish()
            assert (appender.number, appender.state_hash()) == before
            appender.append(second.record, second.attachment)  # its ids follow those of the first
            appender.append(first.record, first.attachment)
            appender.finish()
            assert appender.number == before[0] + 2
    finally:
        lock.release()
