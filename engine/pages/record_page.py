"""Record pages: queues' sealed records, one page of the data file each. Layout: `format`.

- Pages that went out of use wait in `retired` until a later checkpoint is durable: recovery reads
  the record pages of the checkpoint that it starts from. None of them is in the cache.
- The cache is one for the store, bounded by `RECORD_CACHE_BYTES` of what it truly takes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from quire.checksum import checksum
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef, packed
from quire.engine.records.packed_records import PackedRecords
from quire.errors import StoreCorrupt, StoreVersion
from quire.limits import RECORD_CACHE_BYTES

from .bounded_cache import BoundedCache, bounded_cache
from .data_files import DataFiles

# What a page in the cache takes besides its records, measured (see `tests/engine/test_caches.py`).
_ENTRY_BYTES: Final = 130


class RecordPages:
    """Packs, reads and verifies record pages of the data files. See the module.

    A queue's lock covers its pages: they are not retired while they are loaded.
    """

    def __init__(self, data: DataFiles) -> None:
        self._data = data
        self._cache: BoundedCache[int, PackedRecords] = bounded_cache(
            RECORD_CACHE_BYTES, _cached_bytes, _ENTRY_BYTES
        )
        self.retired: list[int] = []
        self.capacity = (data.page_size - format.PAGE_HEADER.size) // format.RECORD_BYTES

    def pack(self, queue_id: int, refs: list[BlockRef]) -> bytes:
        """The bytes of one page, to be written at a page's beginning."""
        assert 0 < len(refs) <= self.capacity
        header = format.PAGE_HEADER.pack(
            0,
            format.PAGE_MAGIC,
            format.VERSION,
            len(refs),
            queue_id,
            0,
            refs[0].position,
            refs[-1].end,
        )
        page = bytearray(header + packed(refs))
        struct.pack_into("<Q", page, 0, checksum(page[8:]))
        return bytes(page)

    def load(self, page: int, queue_id: int) -> PackedRecords:
        """A page's records, read only if they are not at hand; raises as `read` does."""
        records = self._cache.get(page)
        if records is None:
            records = self._read(page, queue_id)
            self._cache.add(page, records)
        return records

    def at_hand(self, page: int) -> bool:
        """Return True if `load` need not read the page."""
        return page in self._cache

    def retire(self, pages: Iterable[int]) -> None:
        """These go out of use."""
        for page in pages:
            self._cache.forget(page)
            self.retired.append(page)

    def read(self, page: int, queue_id: int) -> list[BlockRef]:
        """The records of a page; `StoreCorrupt` if it is not a record page of that queue."""
        return list(self._read(page, queue_id))

    def _read(self, page: int, queue_id: int) -> PackedRecords:
        size = self._data.page_size
        where = f"{self._data.where(page * size)} (records of queue {queue_id})"
        try:
            data = self._data.read(page * size, size)
        except StoreCorrupt as error:
            raise StoreCorrupt(f"{where}: {error}") from error
        return unpack(data, queue_id, where)[1]


def unpack(data: bytes | memoryview, queue_id: int | None, where: str) -> tuple[int, PackedRecords]:
    """The queue and the records of a whole page, whose queue must be the one asked for, if any.

    Raises `StoreCorrupt`, `StoreVersion`.
    """
    capacity = (len(data) - format.PAGE_HEADER.size) // format.RECORD_BYTES
    if capacity < 1:
        raise StoreCorrupt(f"{where}: the file ends within it; restore the store from a copy")
    digest, magic, version, count, owner, _, start, end = format.PAGE_HEADER.unpack_from(data)
    if magic != format.PAGE_MAGIC:
        raise StoreCorrupt(f"{where}: not a record page; restore the store from a copy")
    if version != format.VERSION:
        raise StoreVersion(
            f"{where}: format version {version}, this release reads {format.VERSION}: use a newer "
            "release"
        )
    if count == 0 or count > capacity or queue_id not in (None, owner):
        raise StoreCorrupt(f"{where}: contradictory header; restore the store from a copy")
    used = format.PAGE_HEADER.size + count * format.RECORD_BYTES
    if checksum(data[8:used]) != digest:
        raise StoreCorrupt(f"{where}: checksum differs; restore the store from a copy")
    records = PackedRecords.of(data[format.PAGE_HEADER.size : used])
    if records[0].position != start or records[count - 1].end != end:
        raise StoreCorrupt(f"{where}: contradictory positions; restore the store from a copy")
    return owner, records


def _cached_bytes(records: PackedRecords) -> int:
    return records.memory_bytes
