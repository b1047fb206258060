"""Tables of a base: the records of the blocks in one pack. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from quire.checksum import checksum
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.format import PACKED_RECORD, RECORD_BYTES
from quire.errors import ArchiveCorrupt

from . import format


class TableBuilder:
    """Collects the records of one table."""

    def __init__(self, store_id: int, number: int) -> None:
        self.number = number
        self._store_id = store_id
        self.records = 0
        self._runs: list[list[int]] = []
        self._records = bytearray()

    def add(self, queue_id: int, ref: BlockRef) -> None:
        """Add a record, whose address is that in the archive."""
        if not self._runs or self._runs[-1][0] != queue_id:
            self._runs.append([queue_id, 0])
        self._runs[-1][1] += 1
        self.records += 1
        record = bytearray(PACKED_RECORD.pack(*ref))
        struct.pack_into("<I", record, RECORD_BYTES - 4, self.number)
        self._records += record

    def pack(self) -> bytes:
        """Return the object's bytes."""
        data = bytearray(
            format.TABLE_HEADER.pack(
                0, format.TABLE_MAGIC, format.VERSION, 0, self._store_id, self.number,
                len(self._runs),
            )
        )  # fmt: skip
        for run in self._runs:
            data += format.TABLE_RUN.pack(*run)
        data += self._records
        struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:]))
        return bytes(data)


def rows(data: bytes, name: str, store_id: int, number: int) -> Iterator[tuple[int, BlockRef]]:
    """Yield each record of a table behind its queue's number. Raises ArchiveCorrupt."""
    size = format.TABLE_HEADER.size
    if len(data) < size:
        raise _corrupt(name, "it is too short")
    digest, magic, version, _, owner, found, runs = format.TABLE_HEADER.unpack_from(data)
    if magic != format.TABLE_MAGIC or checksum(memoryview(data)[8:]) != digest:
        raise _corrupt(name, "its checksum differs")
    start = size + format.TABLE_RUN.size * runs
    named = list(format.TABLE_RUN.iter_unpack(data[size:start]))
    if (version, owner, found) != (format.VERSION, store_id, number) or (
        len(data) != start + RECORD_BYTES * sum(count for _, count in named)
    ):
        raise _corrupt(name, "its header contradicts it")
    records = PACKED_RECORD.iter_unpack(memoryview(data)[start:])
    for queue_id, count in named:
        for _, record in zip(range(count), records, strict=False):
            yield queue_id, BlockRef._make(record)


def _corrupt(name: str, reason: str) -> ArchiveCorrupt:
    return ArchiveCorrupt(f"the archive's object {name} is damaged: {reason}; restore another base")
