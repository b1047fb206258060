"""The shipper: a store's records are in the archive, all of them, in order, with what they name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quire.archive import format
from quire.archive.entry_reading import ShippedRecord, heads, named
from quire.archive.object_reading import ObjectReading
from quire.archive.shipper import Shipper
from tests.archive.shipping_kit import URL, folded_hash, journal_records, ship_all, shipped
from tests.archive.test_backup_and_restore import clock_machine, opened
from tests.engine.test_state_hash import Follower, told, work
from tests.kit.memory_objects import MemoryObjects

GEOMETRIES: list[dict[str, Any]] = [
    {"page_size": 4096, "data_files": 1},
    {"page_size": 16384, "data_files": 3, "inline_limit_bytes": 2000},
]


@pytest.mark.parametrize(
    ("steps", "geometry"),
    [("at the end", GEOMETRIES[0]), ("meanwhile", GEOMETRIES[0]), ("meanwhile", GEOMETRIES[1])],
)
def test_all_records_are_shipped(seed: int, geometry: dict[str, Any], steps: str) -> None:
    """Those of every kind of commit: the same bytes as in the journal, and the same state."""
    env = clock_machine(seed)
    objects = MemoryObjects(env)
    with opened(env, **geometry) as store:
        store.admin.set_archive(URL)
        shipper = Shipper(store, objects, env)
        ship_all(shipper)

        class Steps(Follower):
            def catch_up(self) -> tuple[Any, ...]:
                ship_all(shipper)
                return ()

        share = 1.0 if steps == "meanwhile" else 0.0
        work(store, Steps(env, store), random.Random(seed), checkpoints=share)
        ship_all(shipper)
        number, digest = told(store)
        found = shipped(objects)
        first = found[0].number
        assert [record.number for record in found] == list(range(first, number + 1))
        if not share:
            expected = journal_records(env, store)
            assert [record.record for record in found] == expected[first - 1 :]
            before = [ShippedRecord(0, 0, record, b"") for record in expected[: first - 1]]
            assert folded_hash([*before, *found]) == digest
        read = ObjectReading(objects, None)
        names = named(objects, read, heads(objects, read))
        assert any(name.startswith(format.FILES) for name in names)
        assert names <= set(objects.contents)
