"""Packing whole groups of the journal into an entry.

- EP1: an entry has the shared part of every record, and nothing of where this machine keeps what
  the record names. So the same records have the same bytes, whoever packs them.
- EP2: a block that goes into an entry or a blob is read from the data file by the place in the
  record's local tail, and verified (SF1).
- Memory holds an entry, and a block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from quire.archive.objects import ObjectBytes
from quire.checksum import checksum
from quire.engine.records import format as records_format
from quire.engine.records.commit_record import CommitRecord, Part
from quire.engine.records.local_tail import shared
from quire.engine.state.fold import decode_record
from quire.engine.state.sections.attachment import Attachment
from quire.errors import StoreCorrupt
from quire.journal import KIND_GENERATION, RECORD_HEADER, RECORD_HEADER_BYTES, Group, Record

from . import format
from .journal_following import FollowedGroup
from .limits import (
    ENTRY_ATTACHED_BYTES,
    ENTRY_ATTACHMENT_BYTES,
    ENTRY_BYTES,
    MAX_CREATE_BYTES,
    READ_BYTES,
)
from .store_files import StoreFileReader

_TIME_AND_PARTS: Final = struct.Struct("<24xqI")  # of a COMMIT, from the record's header on
_PARTS_OFFSET: Final = RECORD_HEADER_BYTES + records_format.COMMIT_HEADER.size
_KIND_OFFSET: Final = _PARTS_OFFSET + struct.calcsize("<QQQIII")  # of a part's kind
_PART_BYTES: Final = records_format.PART.size
_COMMIT: Final = records_format.COMMIT
_LTDS: Final = records_format.LTDS


class EntryChain(NamedTuple):
    """The end of a log, which the next entry goes on with."""

    store_id: int
    history: int
    place: int  # of the latest entry; 0: there is none
    checksum: int  # its own
    number: int  # of its last record
    last_us: int  # commit time of its last record


class BlobSource(NamedTuple):
    """A large attachment: the parts of a record that are on pages, with their places."""

    blob_id: int
    parts: tuple[Part, ...]


class FileSource(NamedTuple):
    """A large transaction's file."""

    ltds_id: int
    checksum: int  # of its trailer


class EntryPacker:
    """Takes groups, one after another, and makes one entry of them."""

    def __init__(self, files: StoreFileReader, number: int, last_us: int) -> None:
        """`number`: of the latest record before; `last_us`: its commit time."""
        self.first_number = number + 1
        self.number = number  # of the latest record in it
        self.last_us = last_us  # commit time of that
        self.end_lsn = 0  # where its latest group ends; 0: it has none
        self.blobs: list[BlobSource] = []
        self.files: list[FileSource] = []
        self.records = bytearray()
        self.names = bytearray()
        self._files = files
        self._first_us = 0
        self._named: set[tuple[int, int]] = set()

    @property
    def is_full(self) -> bool:
        """Return True if no further group is to be added."""
        return len(self.records) >= ENTRY_BYTES

    @property
    def is_empty(self) -> bool:
        """Return True if there is no record in it."""
        return self.number < self.first_number

    def add(self, followed: FollowedGroup) -> None:
        """Add the next group. Raises StoreCorrupt."""
        group = followed.group
        body = group.body
        at, copied, end = 0, 0, len(body)
        last_us, number = self.last_us, self.number
        is_first = number < self.first_number
        while at < end:
            length, kind, flags, _ = RECORD_HEADER.unpack_from(body, at)
            following = at + ((length + 7) & -8)
            if length < RECORD_HEADER_BYTES or following > end:
                break
            has_files = False
            if kind == _COMMIT:
                last_us, parts = _TIME_AND_PARTS.unpack_from(body, at)
                if parts == 1:
                    has_files = body[at + _KIND_OFFSET] == _LTDS
                elif parts:
                    has_files = _names_files(body, at, parts)
            if is_first:
                self._first_us, is_first = last_us, False
            if flags or has_files:
                self.records += body[copied:at]
                self._add_record(group, at, length, kind, flags)
                copied = following
            elif kind == KIND_GENERATION:
                self.records += body[copied:at]
                copied, is_first = following, number < self.first_number
                number -= 1
            number += 1
            at = following
        if at != end or number != followed.number:
            raise StoreCorrupt(
                f"journal group at LSN {group.header.lsn:#x}: its records do not add up although"
                " its checksum is right: it was written by faulty software; report it"
            )
        self.records += body[copied:]
        self.number, self.last_us, self.end_lsn = number, last_us, group.end_lsn

    def entry(self, before: EntryChain) -> tuple[bytes, int]:
        """Return the entry's bytes, and its checksum. `before`: what it follows."""
        return self._packed(before, self.names, self.records, 0)

    @property
    def is_large(self) -> bool:
        """Return True if its records have to be in a blob, for `entry_of_blob`."""
        return format.ENTRY_HEAD.size + len(self.names) + len(self.records) > MAX_CREATE_BYTES

    def entry_of_blob(self, before: EntryChain, blob_id: int) -> tuple[bytes, int]:
        """Return an entry, and its checksum, whose records are in a blob of this random id."""
        names = format.ENTRY_NAME.pack(blob_id, format.BLOB, 0) + self.names
        return self._packed(before, names, b"", format.RECORDS_IN_BLOB)

    def blob(self, source: BlobSource) -> Iterator[ObjectBytes]:
        """Yield the bytes of a large attachment, some blocks at a time (EP2)."""
        piece = bytearray()
        for part in source.parts:
            piece += self._block(part)
            if len(piece) >= READ_BYTES:
                yield piece
                piece = bytearray()
        if piece:
            yield piece

    def _packed(
        self, before: EntryChain, names: bytes | bytearray, own: bytes | bytearray, flags: int
    ) -> tuple[bytes, int]:
        data = bytearray(
            format.ENTRY_HEAD.pack(
                0, format.ENTRY_MAGIC, format.VERSION, flags, before.store_id, before.history,
                before.place + 1, self.first_number, self.number - self.first_number + 1,
                len(names) // format.ENTRY_NAME.size, len(self.records), self._first_us,
                self.last_us, before.checksum, checksum(self.records),
            )
        )  # fmt: skip
        data += names
        digest = checksum(memoryview(data)[8:])
        struct.pack_into("<Q", data, 0, digest)
        data += own
        return bytes(data), digest

    def _add_record(self, group: Group, at: int, length: int, kind: int, flags: int) -> None:
        """Add a record that has a local tail, or names files."""
        lsn = group.header.lsn
        where = f"journal group at LSN {lsn:#x}, record at byte {at}"
        record = bytes(group.body[at : at + length])
        _, _, _, sequence = RECORD_HEADER.unpack_from(record)
        body = memoryview(record)[RECORD_HEADER_BYTES:]
        generation = group.header.generation
        decoded = decode_record(Record(kind, sequence, lsn, body, flags, generation), where)
        own = shared(record)
        self.records += own
        self.records += bytes(-len(own) & 7)
        if isinstance(decoded, CommitRecord):
            self._add_attachment(decoded)
            for part in decoded.parts:
                if part.kind == _LTDS and self._name(part.address, format.FILE):
                    self.files.append(FileSource(part.address, part.checksum))

    def _add_attachment(self, record: CommitRecord) -> None:
        attached: Attachment | None = record.section(records_format.ATTACHMENT)
        if attached is None or not attached.attachment_bytes:
            return
        size = attached.attachment_bytes
        parts = tuple(part for part in record.parts if part.kind == records_format.DATA)
        if size <= ENTRY_ATTACHMENT_BYTES and len(self.records) + size <= ENTRY_ATTACHED_BYTES:
            for part in parts:
                self.records += self._block(part)
        elif self._name(attached.attachment_id, format.BLOB):
            self.blobs.append(BlobSource(attached.attachment_id, parts))

    def _name(self, own: int, kind: int) -> bool:
        """Name a blob or file; False if it was named before."""
        if (own, kind) in self._named:
            return False
        self._named.add((own, kind))
        self.names += format.ENTRY_NAME.pack(own, kind, 0)
        return True

    def _block(self, part: Part) -> bytes:
        data = self._files.block(part.address, (part.checksum, part.count, part.length))
        return bytes(data) + bytes(-part.length & 7)


def shared_records(group: Group) -> Iterator[bytes]:
    """Yield the shared part of each record of a group that has a number (EP1)."""
    for record in group.records():
        if record.kind != KIND_GENERATION:
            length = RECORD_HEADER_BYTES + len(record.body)
            head = RECORD_HEADER.pack(length, record.kind, record.flags, record.sequence)
            yield shared(head + record.body)


def _names_files(body: memoryview, at: int, parts: int) -> bool:
    """Return True if a part of a COMMIT record is a large transaction's file."""
    first = at + _KIND_OFFSET
    return _LTDS in bytes(body[first : first + _PART_BYTES * parts : _PART_BYTES])
