"""A week of entries of a second each, restored over a network that takes its time."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from quire.archive import (
    backup,
    base_making,
    base_restoring,
    format,
    restore,
)
from quire.archive.objects import Objects
from quire.checksum import checksum
from quire.engine import EmbeddedStore as Store
from quire.engine.records.commit_record import ID_AND_TIME_OFFSET
from quire.engine.records.format import COMMIT_HEADER, ID_AND_TIME, PART, READ
from quire.env import Env, OsEnv
from quire.journal import RECORD_HEADER_BYTES
from tests.archive.shipped_records import Shipper
from tests.kit.memory_objects import MemoryObjects

HOUR = 3600
LATENCY_SECONDS = 0.04
READ_OFFSET = RECORD_HEADER_BYTES + COMMIT_HEADER.size + PART.size


class DistantObjects(MemoryObjects):
    """Objects each read of which takes its time."""

    reads = 0

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        time.sleep(LATENCY_SECONDS)
        DistantObjects.reads += 1
        return super().read(name, offset, length)

    def size(self, name: str) -> int:
        time.sleep(LATENCY_SECONDS)
        return super().size(name)


class Generator:
    """Makes merged entries, each with one record: a message is put, and an earlier one is got."""

    def __init__(self, objects: Objects, store_id: int, history: int, number: int, record: bytes):
        self._objects = objects
        self._ids = store_id, history
        self._record = bytearray(record)
        self._first_id, self._time_us = ID_AND_TIME.unpack_from(record, ID_AND_TIME_OFFSET)
        self._read = READ.unpack_from(record, READ_OFFSET)
        self._number = number
        self._place = self._checksum = 0

    def hour(self, seconds: int = HOUR) -> None:
        """Make the merged entries of an hour."""
        first_place, first_number = self._place + 1, self._number
        heads, entries = bytearray(), bytearray()
        queue_id, subscription_id, start, end = self._read
        record, head = self._record, bytearray(format.ENTRY_HEAD.size)
        first_us = self._time_us
        for _ in range(seconds):
            ID_AND_TIME.pack_into(record, ID_AND_TIME_OFFSET, self._first_id, self._time_us)
            READ.pack_into(record, READ_OFFSET, queue_id, subscription_id, start, end)
            self._place += 1
            format.ENTRY_HEAD.pack_into(
                head, 0, 0, format.ENTRY_MAGIC, format.VERSION, 0, *self._ids, self._place,
                self._number, 1, 0, len(record), self._time_us, self._time_us, self._checksum,
                checksum(record),
            )  # fmt: skip
            self._checksum = checksum(memoryview(head)[8:])
            struct.pack_into("<Q", head, 0, self._checksum)
            heads += head
            entries += head + record
            self._first_id += 1
            self._number += 1
            self._time_us += 1_000_000
            start, end = start + 1, end + 1
        self._read = queue_id, subscription_id, start, end
        data = bytearray(
            format.MERGED_HEAD.pack(
                0, format.MERGED_MAGIC, format.VERSION, 0, *self._ids, first_place, seconds, 0,
                first_number, self._number - 1, first_us, self._time_us - 1_000_000,
            )
        )  # fmt: skip
        data += heads
        struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:]))
        name = format.merged_name(first_place, self._place)
        self._objects.upload(name, [bytes(data + entries)])

    @property
    def last(self) -> int:
        """The number of the latest record."""
        return self._number - 1


@pytest.mark.parametrize("hours", [2, pytest.param(7 * 24, marks=pytest.mark.long)])
def test_a_week_of_seconds(hours: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged by the hour: it is read by 64 requests at a time; all of it is there."""
    env = OsEnv()
    objects = DistantObjects(env)

    def open_distant(url: str, machine: Env) -> Objects:
        return objects

    for module in (base_making, base_restoring):
        monkeypatch.setattr(module, "open_objects", open_distant)
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    with Store.open(source, env=env, background=False) as store:
        info = store.admin.set_archive("s3://distant/store")
        store.create_queue("q", kind="work")
        store.put_many("q", [bytes(100)] * 10)
        number = backup(store, "s3://distant/store", env=env).backup.number
        shipper = Shipper(env, store, number)
        with store.transaction() as txn:
            assert txn.get("q") is not None
            txn.put("q", bytes(100))
        shipper.ship()
        [shipped] = shipper.records
        assert not len(shipped.record) % 8
        store_id = store.integration.store_id
    generator = Generator(objects, store_id, info.history, shipped.number, shipped.record)
    for _ in range(hours):
        generator.hour()
    began, used = time.monotonic(), time.process_time()
    made = restore("s3://distant/store", target, env=env)
    took, processor = time.monotonic() - began, time.process_time() - used
    size = sum(len(data) for data, _ in objects.contents.values())
    print(
        f"{hours} hours of entries, {size >> 20} MiB in {len(objects.contents)} objects: restored "
        f"in {took:.1f} s, {processor:.1f} s of processor time, {objects.reads} reads"
    )
    assert made.number == generator.last
    with Store.open(target, env=env, background=False) as store:
        assert store.queue("q").messages == 10
