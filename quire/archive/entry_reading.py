"""Reading the entries of an archive: which there are, what they need, and their records.

- EY1: whatever bytes an object has, the only error is ArchiveCorrupt, which names the object, or
  ArchiveRefused for a format of a newer release; and no more memory is taken than the object has
  bytes.
- EY2: records are handed out only of an entry that was verified as a whole, and follows the one
  before it: its place is the next one, it names the other's checksum, and its numbers go on.
- EY3: an entry that is in merged entries and in `log/` is read from the merged ones: a late one in
  `log/`, of whatever content, does not count.
- EY4: an entry that is merged while it is read, and was removed then, is read from the merged ones.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from typing import Final, NamedTuple, TypeVar

from quire.checksum import checksum
from quire.engine.records import format as records_format
from quire.engine.records.commit_record import CommitRecord, Part, attached_bytes, unpack
from quire.engine.state.sections.attachment import Attachment
from quire.engine.state.sections.kinds import read_sections
from quire.errors import (
    ArchiveCorrupt,
    ArchiveError,
    ArchiveRefused,
    ObjectNotFound,
    StoreCorrupt,
    StoreVersion,
)
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES
from quire.rows.open_block import open_block

from . import format
from .limits import (
    ENTRY_HEAD_READ_BYTES,
    LISTINGS,
    MAX_CREATE_BYTES,
    MAX_MERGED_BYTES,
    MAX_UPLOAD_BYTES,
    READ_BYTES,
)
from .object_reading import ObjectReading, ObjectSpan, damaged
from .objects import ObjectInfo, Objects

T = TypeVar("T")

_COMMIT_TIME: Final = struct.Struct("<8xq")
_NAMES_COUNT: Final = struct.Struct("<52xI")
# Errors of values that no entry has (EY1).
_WRONG: Final = (ValueError, OverflowError, struct.error)


class EntryHead(NamedTuple):
    """An entry, and where it is."""

    place: int
    history: int
    first_number: int  # of its records
    count: int  # type: ignore[assignment]  # of records; tuple.count is not needed
    first_us: int
    last_us: int
    previous: int  # the checksum of the entry before it; 0: there was none
    checksum: int  # of its head, which has that of its records
    name: str  # of the object
    offset: int
    length: int  # bytes there

    @property
    def last_number(self) -> int:
        """The number of its latest record."""
        return self.first_number + self.count - 1


class ShippedRecord(NamedTuple):
    """A record of an entry."""

    number: int
    time_us: int  # of its commit; of the one before it if it has none
    record: bytes  # with its header, without a local tail
    attachment: bytes  # its blocks on pages, each to 8 bytes


class OpenedEntry(NamedTuple):
    """An entry whose bytes were verified, but for those of blobs."""

    head: EntryHead
    store_id: int
    is_in_blob: bool  # its records are, the first that it names
    names: Sequence[str]  # of the blobs and files that it needs
    records_bytes: int
    records_checksum: int
    records: memoryview = memoryview(b"")  # empty where they are in a blob

    @property
    def own_bytes(self) -> int:
        """The bytes of its records that stand in it."""
        return 0 if self.is_in_blob else self.records_bytes

    @property
    def packed_head(self) -> bytes:
        """The head as it stands in the entry."""
        head = self.head
        return format.ENTRY_HEAD.pack(
            head.checksum, format.ENTRY_MAGIC, format.VERSION,
            format.RECORDS_IN_BLOB if self.is_in_blob else 0, self.store_id, head.history,
            head.place, head.first_number, head.count, len(self.names), self.records_bytes,
            head.first_us, head.last_us, head.previous, self.records_checksum,
        )  # fmt: skip


def heads(
    objects: Objects, read: ObjectReading, damage: dict[str, ArchiveError] | None = None
) -> list[EntryHead]:
    """Return all entries, by place (EY3). Raises ArchiveRefused, ArchiveCorrupt.

    `damage`: gets the objects that are left out as they cannot be read, by name.
    """
    for tries in range(LISTINGS):
        merged = _listed(objects, format.MERGED)
        single = _listed(objects, format.LOG)
        left_out: dict[str, ArchiveError] = {}
        try:
            found = _heads(read, merged, single, None if damage is None else left_out)
        except ArchiveCorrupt as error:  # or merged, and removed, since it was listed
            if not isinstance(error.__context__, ObjectNotFound) or tries == LISTINGS - 1:
                raise
        else:
            if damage is not None:
                damage |= left_out
            return found
    return []


def named(objects: Objects, read: ObjectReading, heads: Sequence[EntryHead]) -> set[str]:
    """Return the names of the blobs and files that entries need.

    Raises ArchiveCorrupt, ArchiveRefused.
    """
    names: set[str] = set()
    alone: list[EntryHead] = []  # those whose own names are to be read
    for name, own in groupby(heads, lambda head: head.name):
        group = list(own)
        if name.startswith(format.MERGED):
            first, last = format.places_of(name)
            index = merged_index(read, name, objects.size(name))
            if len(group) == last - first + 1 or not index.names:
                names.update(index.names)
                continue
        alone += group
    for entry in _where_they_are(read, alone, _fronts_of):
        names.update(entry.names)
    return names


def records(read: ObjectReading, heads: Sequence[EntryHead]) -> Iterator[ShippedRecord]:
    """Yield the records of entries, in order (EY2). Raises ArchiveCorrupt, ArchiveRefused."""
    before: EntryHead | None = None
    for head, data in entry_bytes(read, heads):
        check_follows(before, head)
        entry = opened(data, head.name, head)
        yield from records_of(entry, read)
        before = head


def check_follows(before: EntryHead | None, head: EntryHead) -> None:
    """Raise ArchiveCorrupt unless an entry is the next one behind the other."""
    if before is None:
        return
    if head.place != before.place + 1:
        missing = format.entry_name(before.place + 1)
        raise damaged(missing, "the entry is missing, and a later one is there")
    if (head.previous, head.history) != (before.checksum, before.history):
        raise damaged(head.name, f"entry {head.place} is not the one that follows {before.name}")
    if head.first_number <= before.last_number:
        raise damaged(head.name, f"entry {head.place} has numbers that were there before")


def opened(data: bytes, name: str, known: EntryHead | None = None) -> OpenedEntry:
    """Return the entry whose bytes these are, all of them. `known`: what it has to be.

    Raises ArchiveCorrupt, ArchiveRefused.
    """
    entry = _front(data, name, 0 if known is None else known.offset)
    if known is not None and entry.head != known:
        raise damaged(name, f"the entry there is not entry {known.place}, as it was before")
    if len(data) != entry.head.length:
        raise damaged(name, f"it has not the {entry.head.length} bytes of entry {entry.head.place}")
    data_of = memoryview(data)[len(data) - entry.own_bytes :]
    if not entry.is_in_blob and checksum(data_of) != entry.records_checksum:
        raise damaged(name, f"the checksum of the records of entry {entry.head.place} differs")
    return entry._replace(records=data_of)


def records_of(
    entry: OpenedEntry, read: ObjectReading, *, attachments: bool = True
) -> Iterator[ShippedRecord]:
    """Yield the records of an entry that was opened, without `attachments` if they are not needed.

    Raises ArchiveCorrupt, ArchiveRefused.
    """
    head, name, data = entry.head, entry.head.name, entry.records
    blobs = {name for name in entry.names if name.startswith(format.BLOBS)}
    if entry.is_in_blob:
        name = entry.names[0]
        data = memoryview(_blob(read, name, entry.records_bytes))
        if checksum(data) != entry.records_checksum:
            raise damaged(name, "its checksum differs")
    cursor = _RecordCursor(read if attachments else None, blobs, data, head.first_us)
    for number in range(head.first_number, head.first_number + head.count):
        where = f"{name}, record {number}"
        try:
            record, attachment = cursor.next(where)
        except _WRONG as error:
            raise damaged(where, f"it contradicts itself ({error})") from error
        except StoreVersion as error:
            raise ArchiveRefused(str(error)) from error
        yield ShippedRecord(number, cursor.time_us, record, attachment)
    if cursor.offset != len(data):
        raise damaged(name, f"it has more than the {head.count} records of entry {head.place}")


class _RecordCursor:
    """Goes through the records of an entry."""

    def __init__(
        self, read: ObjectReading | None, blobs: Container[str], data: memoryview, time_us: int
    ) -> None:
        self.offset = 0
        self.time_us = time_us  # of the latest commit
        self._read = read
        self._blobs = blobs
        self._data = data

    def next(self, where: str) -> tuple[bytes, bytes]:
        """Return the next record and its attachment.

        Raises ValueError, OverflowError, struct.error for contradictions, StoreVersion,
        ArchiveCorrupt.
        """
        length, kind, flags, _ = RECORD_HEADER.unpack_from(self._data, self.offset)
        record = self._take(length)
        if kind != records_format.COMMIT:
            if flags or length < RECORD_HEADER_BYTES:
                raise ValueError(f"{length} bytes, flags {flags:#x}")
            return record, b""
        (self.time_us,) = _COMMIT_TIME.unpack_from(record, RECORD_HEADER_BYTES)
        commit = with_attachment(record, flags, where)
        return record, b"" if commit is None else self._attachment(commit)

    def _attachment(self, commit: CommitRecord) -> bytes:
        attached: Attachment = commit.section(records_format.ATTACHMENT)
        blob = format.blob_name(attached.attachment_id)
        if blob not in self._blobs:
            return self._take(attached.attachment_bytes)
        if self._read is None:
            return b""
        attachment = _blob(self._read, blob, attached.attachment_bytes)
        _check_blocks(commit.parts, attachment, blob)
        return attachment

    def _take(self, length: int) -> bytes:
        data = bytes(self._data[self.offset : self.offset + length])
        if len(data) != length:
            raise ValueError(f"{length} bytes, of which {len(data)} are there")
        self.offset += (length + 7) & -8
        return data


def with_attachment(record: bytes, flags: int, where: str) -> CommitRecord | None:
    """Return the content of a COMMIT record, without a local tail, if it has an attachment.

    Raises ValueError, OverflowError, struct.error for contradictions, and StoreVersion.
    """
    if flags & ~records_format.SECTIONS:
        raise ValueError(f"flags {flags:#x}")
    if not flags:
        return None
    decoded = unpack(memoryview(record)[RECORD_HEADER_BYTES:], where, read_sections)
    attachment: Attachment | None = decoded.section(records_format.ATTACHMENT)
    size = 0 if attachment is None else attachment.attachment_bytes
    if size != attached_bytes([(None, decoded.parts)]):
        raise ValueError(f"an attachment of {size} bytes, which are not those of its parts")
    return decoded if size else None


class MergedIndex(NamedTuple):
    """The beginning of merged entries."""

    heads: list[EntryHead]
    names: list[str]  # of all blobs and files that its entries need


def merged_index(read: ObjectReading, name: str, size: int) -> MergedIndex:
    """Return what is in merged entries of so many bytes. Raises ArchiveCorrupt, ArchiveRefused."""
    first, last = format.places_of(name)
    data = read_span(read, ObjectSpan(name, 0, ENTRY_HEAD_READ_BYTES))
    (digest, magic, version, _, _, history, place, entries, names_count, *_) = _unpacked(
        format.MERGED_HEAD, data, name
    )
    names_at = format.MERGED_HEAD.size + format.ENTRY_HEAD.size * entries
    end = names_at + format.ENTRY_NAME.size * names_count
    if magic != format.MERGED_MAGIC or end > size or size > MAX_MERGED_BYTES:
        raise damaged(name, "these are no merged entries")
    if end > len(data):
        data += read_span(read, ObjectSpan(name, len(data), end - len(data)))
    if checksum(memoryview(data)[8:end]) != digest:
        raise damaged(name, "its checksum differs")
    _check_version(version, name)
    heads, offset = [], end
    for row in format.ENTRY_HEAD.iter_unpack(memoryview(data)[format.MERGED_HEAD.size : names_at]):
        heads.append(_entry(row, name, offset, ()).head)
        offset += heads[-1].length
    places = [head.place for head in heads]
    has_all = places == [*range(first, first + len(heads))] and last == first + len(heads) - 1
    if place != first or not heads or not has_all or offset != size:
        raise damaged(name, "its index contradicts it")
    if any(head.history != history for head in heads):
        raise damaged(name, "its entries are of several histories")
    return MergedIndex(heads, _names(memoryview(data)[names_at:end], name))


def _listed(objects: Objects, prefix: str) -> list[ObjectInfo]:
    return sorted(
        (info for info in objects.list(prefix) if format.is_name(info.name)),
        key=lambda info: info.name,
    )


def _heads(
    read: ObjectReading,
    merged: Sequence[ObjectInfo],
    single: Sequence[ObjectInfo],
    damage: dict[str, ArchiveError] | None,
) -> list[EntryHead]:
    """Return the entries. `damage`: where what is damaged is noted; None: it is raised."""
    found: dict[int, EntryHead] = {}
    for info in merged:
        first, last = format.places_of(info.name)
        if first not in found or last not in found:
            with _noting(info.name, damage):
                for head in merged_index(read, info.name, info.bytes).heads:
                    found.setdefault(head.place, head)
    sizes = {info.name: info.bytes for info in single if format.place_of(info.name) not in found}
    spans = (ObjectSpan(name, 0, ENTRY_HEAD_READ_BYTES) for name in sizes)
    for span, data in read.spans(spans):
        with _noting(span.name, damage):
            head = front_of(read, span, data).head
            if head.length != sizes[span.name] or head.place != format.place_of(span.name):
                raise damaged(span.name, "its head is that of another entry")
            found[head.place] = head
    return [found[place] for place in sorted(found)]


@contextmanager
def _noting(name: str, damage: dict[str, ArchiveError] | None) -> Iterator[None]:
    """Note damage in the block, unless the object is gone, which was merged or removed then."""
    try:
        yield
    except (ArchiveCorrupt, ArchiveRefused) as error:
        if damage is None or isinstance(error.__context__, ObjectNotFound):
            raise
        damage[name] = error


def entry_bytes(
    read: ObjectReading, heads: Sequence[EntryHead]
) -> Iterator[tuple[EntryHead, bytes]]:
    """Yield each entry with its bytes, and with its head as it is now (EY4)."""
    return _where_they_are(read, heads, _bytes_of)


def _where_they_are(
    read: ObjectReading,
    heads: Sequence[EntryHead],
    read_each: Callable[[ObjectReading, Sequence[EntryHead]], Iterator[T]],
) -> Iterator[T]:
    """Yield what is read of each entry, wherever it is by then (EY4)."""
    rest = heads
    while rest:
        done = 0
        try:
            for found in read_each(read, rest):
                yield found
                done += 1
        except ArchiveCorrupt as error:
            rest = _moved(read, rest[done:], error)
        else:
            return


def _moved(
    read: ObjectReading, heads: Sequence[EntryHead], error: ArchiveCorrupt
) -> list[EntryHead]:
    """Return entries as they are now (EY4). Raises the error if the first one is where it was."""
    if not isinstance(error.__context__, ObjectNotFound) or heads[0].name.startswith(format.MERGED):
        raise error
    places = {head.place for head in heads}
    found: dict[tuple[int, int], EntryHead] = {}
    for info in _listed(read.objects, format.MERGED):
        first, last = format.places_of(info.name)
        if any(first <= place <= last for place in places):
            for head in merged_index(read, info.name, info.bytes).heads:
                found[head.place, head.checksum] = head
    if (heads[0].place, heads[0].checksum) not in found:
        raise error
    return [found.get((head.place, head.checksum), head) for head in heads]


def _bytes_of(read: ObjectReading, heads: Sequence[EntryHead]) -> Iterator[tuple[EntryHead, bytes]]:
    """Yield each entry with its bytes: small neighbours by one read, large ones by several."""
    planned: deque[tuple[list[EntryHead], int]] = deque()  # of each run, and how often it is read

    def spans() -> Iterator[ObjectSpan]:
        for run in _runs(heads):
            offset, end = run[0].offset, run[-1].offset + run[-1].length
            starts = range(offset, end, READ_BYTES)
            planned.append((run, len(starts)))
            for start in starts:
                yield ObjectSpan(run[0].name, start, min(READ_BYTES, end - start))

    found = read.spans(spans())
    for _, data in found:
        run, reads = planned.popleft()
        if reads > 1:
            data = b"".join([data, *(more for _, more in islice(found, reads - 1))])
        start = run[0].offset
        for head in run:
            offset = head.offset - start
            yield head, data[offset : offset + head.length]


def _runs(heads: Iterable[EntryHead]) -> Iterator[list[EntryHead]]:
    """Yield entries that stand one behind the other, up to the bytes of a read."""
    run: list[EntryHead] = []
    for head in heads:
        if run and (
            head.name != run[-1].name
            or head.offset != run[-1].offset + run[-1].length
            or head.offset + head.length - run[0].offset > READ_BYTES
        ):
            yield run
            run = []
        run.append(head)
    if run:
        yield run


def front_of(read: ObjectReading, span: ObjectSpan, data: bytes) -> OpenedEntry:
    """Return the entry at the beginning of an object, of which a span was read; not its records.

    Raises ArchiveCorrupt, ArchiveRefused.
    """
    return _front(_whole_front(read, span, data), span.name, 0)


def _front(data: bytes, name: str, offset: int) -> OpenedEntry:
    """Return an entry of whose bytes the head and the names are there, verified."""
    row = _unpacked(format.ENTRY_HEAD, data, name)
    digest, magic, version, names_count = row[0], row[1], row[2], row[9]
    end = format.ENTRY_HEAD.size + format.ENTRY_NAME.size * names_count
    if magic != format.ENTRY_MAGIC or end > len(data) or checksum(data[8:end]) != digest:
        raise damaged(name, "the checksum of an entry's head differs")
    _check_version(version, name)
    names = _names(memoryview(data)[format.ENTRY_HEAD.size : end], name)
    entry = _entry(row, name, offset, names)
    head = entry.head
    if not head.count or (entry.is_in_blob and not names) or head.length > MAX_CREATE_BYTES:
        raise damaged(name, f"the head of entry {head.place} contradicts itself")
    return entry


def _entry(row: tuple[int, ...], name: str, offset: int, names: Sequence[str]) -> OpenedEntry:
    """Return the entry of a head's fields, which was verified."""
    (digest, _, _, flags, store_id, history, place, first_number, count, names_count, length,
     first_us, last_us, previous, records_checksum) = row  # fmt: skip
    is_in_blob = bool(flags & format.RECORDS_IN_BLOB)
    size = format.ENTRY_HEAD.size + format.ENTRY_NAME.size * names_count
    size += 0 if is_in_blob else length
    head = EntryHead(
        place, history, first_number, count, first_us, last_us, previous, digest, name, offset, size
    )
    return OpenedEntry(head, store_id, is_in_blob, names, length, records_checksum)


def _whole_front(read: ObjectReading, span: ObjectSpan, data: bytes) -> bytes:
    """Return the head and the names of an entry, of which so much was read."""
    (names_count,) = _NAMES_COUNT.unpack_from(data) if len(data) >= format.ENTRY_HEAD.size else (0,)
    end = format.ENTRY_HEAD.size + format.ENTRY_NAME.size * names_count
    if not len(data) < end <= MAX_CREATE_BYTES:
        return data
    return read_span(read, span._replace(length=end))


def _fronts_of(read: ObjectReading, heads: Sequence[EntryHead]) -> Iterator[OpenedEntry]:
    """Yield each entry without its records."""
    spans = (
        ObjectSpan(head.name, head.offset, min(ENTRY_HEAD_READ_BYTES, head.length))
        for head in heads
    )
    for span, data in read.spans(spans):
        yield _front(_whole_front(read, span, data), span.name, span.offset)


def _names(data: memoryview, name: str) -> list[str]:
    names = []
    for own, kind, _ in format.ENTRY_NAME.iter_unpack(data):
        if kind not in (format.BLOB, format.FILE):
            raise damaged(name, f"it names something of kind {kind}")
        names.append(format.blob_name(own) if kind == format.BLOB else format.file_name(own))
    return names


def _unpacked(layout: struct.Struct, data: bytes, name: str) -> tuple[int, ...]:
    if len(data) < layout.size:
        raise damaged(name, "it is too short")
    return layout.unpack_from(data)


def _check_version(version: int, name: str) -> None:
    if version != format.VERSION:
        raise ArchiveRefused(
            f"the archive's object {name} is of a format that this release cannot read: use a newer"
            " one"
        )


def _blob(read: ObjectReading, name: str, size: int) -> bytes:
    """Return a blob of so many bytes, which are not verified."""
    pieces, end = [], 0
    if size <= MAX_UPLOAD_BYTES:
        starts = range(0, size, READ_BYTES)
        for _, data in read.spans(  # the last one with a byte more, so that a longer one is found
            ObjectSpan(name, at, READ_BYTES if at + READ_BYTES < size else size - at + 1)
            for at in starts
        ):
            pieces.append(data)
            end += len(data)
            if len(data) != READ_BYTES:
                break
    if end != size:
        raise damaged(name, f"it has not {size} bytes")
    return b"".join(pieces)


def _check_blocks(parts: Iterable[Part], attachment: bytes, name: str) -> None:
    """Raise ArchiveCorrupt unless the blocks of an attachment are those that its parts name."""
    view = memoryview(attachment)
    for part in parts:
        if part.kind == records_format.DATA:
            try:
                block = open_block(view[part.address : part.address + part.length], name)
            except StoreCorrupt as error:
                raise damaged(name, str(error)) from error
            known = part.checksum, part.count, part.length
            if (block.checksum, block.count, block.length) != known:
                raise damaged(f"{name}, offset {part.address}", "another block is there")


def read_span(read: ObjectReading, span: ObjectSpan) -> bytes:
    """Return the bytes of a span. Raises ArchiveCorrupt for an object that is not there."""
    (found,) = read.spans([span])
    return found[1]
