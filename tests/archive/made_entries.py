"""Entries of an archive, made of shipped records by the description of their bytes alone."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence

from quire.archive import format
from quire.archive.objects import Objects
from quire.checksum import checksum
from quire.engine.records import format as records
from quire.engine.records.commit_record import Part, unpack
from quire.engine.state.sections.kinds import read_sections
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES
from tests.archive.shipped_records import Shipped

ReadFile = Callable[[int], bytes]
"""The bytes of a large transaction's file, by its id."""


class EntryMaker:
    """Puts entries into an archive."""

    def __init__(
        self, objects: Objects, store_id: int, history: int, read_file: ReadFile, *, blob_bytes: int
    ) -> None:
        """`blob_bytes`: larger attachments become blobs."""
        self.place = self.checksum = 0  # of the latest entry
        self.last_us = 0
        self.entries: dict[int, bytes] = {}
        self._objects = objects
        self._store_id, self._history = store_id, history
        self._read_file = read_file
        self._blob_bytes = blob_bytes

    def add(self, shipped: Sequence[Shipped], *, in_blob: bool = False) -> None:
        """Make the next entry, and before it what it names."""
        names: dict[tuple[int, int], None] = {}
        data = bytearray()
        for each in shipped:
            data += _padded(each.record)
            for part, attachment_id in _parts(each.record):
                if part.kind == records.LTDS:
                    names[part.address, format.FILE] = None
                    self._objects.upload(
                        format.file_name(part.address), [self._read_file(part.address)]
                    )
                elif len(each.attachment) > self._blob_bytes:
                    names[attachment_id, format.BLOB] = None
                    self._objects.upload(format.blob_name(attachment_id), [each.attachment])
            if len(each.attachment) <= self._blob_bytes:
                data += each.attachment
        digest, length, flags = checksum(data), len(data), 0
        if in_blob:
            self._objects.upload(format.blob_name(digest), [bytes(data)])
            names = {(digest, format.BLOB): None, **names}
            data, flags = bytearray(), format.RECORDS_IN_BLOB
        self.place += 1
        first_us = shipped[0].time_us or self.last_us
        self.last_us = shipped[-1].time_us or self.last_us
        entry = bytearray(
            format.ENTRY_HEAD.pack(
                0, format.ENTRY_MAGIC, format.VERSION, flags, self._store_id, self._history,
                self.place, shipped[0].number, len(shipped), len(names), length, first_us,
                self.last_us, self.checksum, digest,
            )
        )  # fmt: skip
        for own, kind in names:
            entry += format.ENTRY_NAME.pack(own, kind, 0)
        self.checksum = checksum(memoryview(entry)[8:])
        struct.pack_into("<Q", entry, 0, self.checksum)
        self.entries[self.place] = bytes(entry + data)
        assert self._objects.create(format.entry_name(self.place), self.entries[self.place])

    def merge(self, first: int, last: int, *, keep: Iterable[int] = ()) -> str:
        """Merge the entries of these places, and remove them, but for some; the object's name."""
        entries = [self.entries[place] for place in range(first, last + 1)]
        names = dict.fromkeys(each for entry in entries for each in _names(entry))
        heads = [format.ENTRY_HEAD.unpack_from(entry) for entry in entries]
        data = bytearray(
            format.MERGED_HEAD.pack(
                0, format.MERGED_MAGIC, format.VERSION, 0, self._store_id, self._history, first,
                len(entries), len(names), heads[0][7], heads[-1][7] + heads[-1][8] - 1,
                heads[0][11], heads[-1][12],
            )
        )  # fmt: skip
        for entry in entries:
            data += entry[: format.ENTRY_HEAD.size]
        for each in names:
            data += each
        struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:]))
        for entry in entries:
            data += entry
        name = format.merged_name(first, last)
        self._objects.upload(name, [bytes(data)])
        going = set(range(first, last + 1)) - set(keep)
        self._objects.delete(format.entry_name(place) for place in sorted(going))
        return name


def _padded(record: bytes) -> bytes:
    return record + bytes(-len(record) & 7)


def _parts(record: bytes) -> list[tuple[Part, int]]:
    """Return the parts of a record that are in files beside the journal, with its attachment."""
    _, kind, flags, _ = RECORD_HEADER.unpack_from(record)
    if kind != records.COMMIT:
        return []
    read_more = read_sections if flags & records.SECTIONS else None
    commit = unpack(memoryview(record)[RECORD_HEADER_BYTES:], "here", read_more)
    attached = commit.section(records.ATTACHMENT)
    own = 0 if attached is None else attached.attachment_id
    return [(part, own) for part in commit.parts if part.kind in (records.DATA, records.LTDS)]


def _names(entry: bytes) -> list[bytes]:
    count = format.ENTRY_HEAD.unpack_from(entry)[9]
    start, size = format.ENTRY_HEAD.size, format.ENTRY_NAME.size
    return [entry[start + size * i : start + size * (i + 1)] for i in range(count)]
