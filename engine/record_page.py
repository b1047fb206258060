"""Record pages: a queue's sealed records, one page of the data file each. Layout: `format`."""

from __future__ import annotations

import struct

import numpy as np

from quire.checksum import checksum
from quire.errors import StoreCorrupt, StoreVersion

from . import format
from .block_ref import BlockRef, from_array, to_array
from .data_files import DataFiles


class RecordPages:
    """Packs, reads and verifies record pages of the data files.

    Pages that went out of use wait in `retired` until a later checkpoint is durable: recovery reads
    the record pages of the checkpoint that it starts from.
    """

    def __init__(self, data: DataFiles) -> None:
        self._data = data
        self.retired: list[int] = []
        self.capacity = (data.page_size - format.PAGE_HEADER.size) // format.RECORD.itemsize

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
        page = bytearray(header + to_array(refs).tobytes())
        struct.pack_into("<Q", page, 0, checksum(page[8:]))
        return bytes(page)

    def read(self, page: int, queue_id: int) -> list[BlockRef]:
        """The records of a page; `StoreCorrupt` if it is not a record page of that queue."""
        size = self._data.page_size
        data = self._data.read(page * size, size)
        where = f"{self._data.where(page * size)} (records of queue {queue_id})"
        return unpack(data, queue_id, where)[1]


def unpack(
    data: bytes | memoryview, queue_id: int | None, where: str
) -> tuple[int, list[BlockRef]]:
    """The queue and the records of a whole page, whose queue must be the one asked for, if any.

    Raises `StoreCorrupt`, `StoreVersion`.
    """
    capacity = (len(data) - format.PAGE_HEADER.size) // format.RECORD.itemsize
    if capacity < 1:
        raise StoreCorrupt(f"{where}: the file ends within it; restore the store from a copy")
    digest, magic, version, count, owner, _, start, end = format.PAGE_HEADER.unpack_from(data)
    if magic != format.PAGE_MAGIC:
        raise StoreCorrupt(f"{where}: not a record page; restore the store from a copy")
    if version != format.VERSION:
        raise StoreVersion(
            f"{where}: format version {version}, this release reads {format.VERSION}"
        )
    if count == 0 or count > capacity or queue_id not in (None, owner):
        raise StoreCorrupt(f"{where}: contradictory header; restore the store from a copy")
    used = format.PAGE_HEADER.size + count * format.RECORD.itemsize
    if checksum(data[8:used]) != digest:
        raise StoreCorrupt(f"{where}: checksum differs; restore the store from a copy")
    refs = from_array(
        np.frombuffer(data, dtype=format.RECORD, count=count, offset=format.PAGE_HEADER.size)
    )
    if refs[0].position != start or refs[-1].end != end:
        raise StoreCorrupt(f"{where}: contradictory positions; restore the store from a copy")
    return owner, refs
