"""Following the chain of groups, and telling where and why it ends.

Invariants:

JS1  A group belongs to the chain only if its checksum, its place (LSN), its store, its
    predecessor's LSN and its generation are right; the chain ends at the first place where no such
    group is.
JS2  Where the chain ends and a later group of the same or a newer generation is valid that says
    that what is missing was durable, or a watermark lies beyond the end, something that was durable
    is damaged: StoreCorrupt. So it is where the last group itself shows that it was whole once
    (`torn_or_damaged`). Otherwise what is at the end was never acknowledged as durable, or it is
    the very last group and cannot be told from such: it is cut, and reported.
JS3  A search for later groups reads all that the file holds, and passes over holes alone: what
    reads as zeros, as the file system says. A group begins with its checksum and its
    magic, so none begins there.

Nothing of a group is shown before the whole group was verified.

Why an intact later group proves damage: groups are written one at a time, and each is synced before
the next is written, unless the next says that it was not (`unsynced`). So a group that is not whole
has nothing of its generation behind it, unless it was whole once, or what is behind it says so.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from enum import Enum

from msgspec import Struct

from quire.checksum import checksum
from quire.errors import StoreCorrupt, StoreVersion
from quire.limits import MAX_TRIED_BYTES, SEARCH_CHUNK_BYTES

from .format import (
    CHECKSUM,
    GROUP_FIELDS,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    GROUP_SOUGHT,
    RECORD_ALIGNMENT,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    VERSION,
    VERSION_OF_UNSYNCED,
    Geometry,
    GroupHeader,
    Record,
    proves_damage,
    round_up,
    succeeds,
    unpack_group_header,
)
from .segment import Directory, SegmentReader
from .torn_or_damaged import was_whole


class Group(Struct):
    """A group that was verified; it is not changed. (`frozen` would make it dearer.)"""

    header: GroupHeader
    image: memoryview  # header and body as they are in the file
    end_lsn: int  # where the next group can begin

    @property
    def body(self) -> memoryview:
        """The records, with their padding."""
        return self.image[GROUP_HEADER_BYTES:]

    def records(self) -> Iterator[Record]:
        """The records, in order. Raises StoreCorrupt if the body is not exactly made of records."""
        lsn, body, generation = self.header.lsn, self.body, self.header.generation
        end = len(body)
        offset = count = 0
        while offset < end:
            # body_length is a multiple of the alignment, but not yet known to hold a whole header
            if offset + RECORD_HEADER_BYTES > end:
                break
            length, kind, flags, sequence = RECORD_HEADER.unpack_from(body, offset)
            if not RECORD_HEADER_BYTES <= length <= end - offset:
                break
            address = lsn + GROUP_HEADER_BYTES + offset
            own = body[offset + RECORD_HEADER_BYTES : offset + length]
            yield Record(kind, sequence, address, own, flags, generation)
            offset += round_up(length, RECORD_ALIGNMENT)
            count += 1
        if offset != end or count != self.header.record_count:
            raise StoreCorrupt(
                f"journal group at LSN {lsn:#x}: its records do not add up (record {count} of"
                f" {self.header.record_count}, byte {offset} of {end}) although its checksum is"
                " right: it was written by faulty software; report it and restore from a copy"
            )


class Tail(Enum):
    """The kinds of a chain's end."""

    CLEAN = "clean"  # nothing that was begun after the last group
    TORN = "torn"  # a group that was being written when the power failed or the process died
    STALE = "stale"  # a whole group of an older generation, cut off by an earlier recovery


class RecoveryReport(Struct, frozen=True):
    """The report of a recovery: the records it read and those it dropped.

    LSNs, bytes and counts.
    """

    first_lsn: int
    last_lsn: int
    end_lsn: int
    generation: int
    groups: int
    records: int
    segments: int
    tail: Tail
    tail_file: str
    tail_offset: int  # in the file
    dropped_bytes: int  # what the header of the torn or stale group says that it had
    dropped_records: int

    @property
    def words(self) -> str:
        """A sentence about the group that was cut at the journal's end; empty if nothing was
        cut.
        """
        if self.tail is not Tail.TORN:
            return ""
        return (
            f"{self.tail_file}: a group of {self.dropped_bytes} bytes, {self.dropped_records} "
            f"records, was cut at offset {self.tail_offset}: it was being written when the power "
            "failed or its process ended, and was acknowledged to nobody; or it is the last one, "
            "and several of its sectors are damaged or one that is not its first"
        )


class Chain:
    """Iterates over the groups from a place on; afterwards tells how the chain ended.

    `start_lsn` is the LSN of a group, or any place in page 0 of a segment (= its first group).
    """

    def __init__(self, directory: Directory, start_lsn: int, segments: Collection[int]) -> None:
        self._directory = directory
        self._geometry = geometry = directory.geometry
        self._segments = segments
        self._reader: SegmentReader | None = None
        offset = start_lsn % geometry.segment_bytes
        self.start_lsn = start_lsn - offset + max(offset, geometry.page_size)
        self.end_lsn = self.start_lsn
        self.last: Group | None = None  # the latest group, as it was verified
        self.groups = 0
        self.segments_read: set[int] = set()

    def __iter__(self) -> Iterator[Group]:
        try:
            while (group := self._next()) is not None:
                self.last, self.end_lsn = group, group.end_lsn
                self.groups += 1
                yield group
        finally:
            self.close()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @property
    def last_lsn(self) -> int:
        """The LSN of the latest group; 0: there is none."""
        return 0 if self.last is None else self.last.header.lsn

    @property
    def generation(self) -> int:
        """The generation of the latest group; 0: there is none."""
        return 0 if self.last is None else self.last.header.generation

    def admits(self, header: GroupHeader) -> bool:
        """Return True if a group that is valid in itself is the next one of the chain (JS1)."""
        if self.last is None:
            return True
        last = self.last.header
        return header.previous_lsn == last.lsn and succeeds(header.generation, last.generation)

    def whole_group_at(self, lsn: int) -> Group | None:
        """Return the group at this place if it is valid in itself, whatever its predecessor."""
        reader = self._reader_for(lsn // self._geometry.segment_bytes)
        return None if reader is None else read_group(reader, self._geometry, lsn)

    def header_at(self, lsn: int) -> GroupHeader | None:
        """A group's header that claims this place, whether the group is whole or not."""
        number, offset = divmod(lsn, self._geometry.segment_bytes)
        reader = self._reader_for(number)
        data = b"" if reader is None else reader.read(offset, GROUP_HEADER_BYTES)
        if len(data) < GROUP_HEADER_BYTES:
            return None
        header = unpack_group_header(data)
        own = header.magic == GROUP_MAGIC and header.store_id == self._geometry.store_id
        return header if own and header.lsn == lsn else None

    def claim(self) -> tuple[int, GroupHeader | None]:
        """The place where the chain broke, and the header there of a group that is not part of it.

        That is the end, unless a group which says that it follows the last one is on page 1 of the
        next segment.
        """
        for index, lsn in enumerate(self.places()):
            header = self.header_at(lsn)
            if header is not None and (index == 0 or header.previous_lsn == self.last_lsn):
                return lsn, header
        return self.places()[0], None

    def damaged(self) -> int | None:
        """The place of a group behind the last one that was whole once, and is damaged (JT1)."""
        for lsn in self.places() if self.groups else ():
            reader = self._reader_for(lsn // self._geometry.segment_bytes)
            if reader is None or read_group(reader, self._geometry, lsn) is not None:
                continue
            offset = lsn % self._geometry.segment_bytes
            data = reader.read(offset, self._geometry.page_size)
            if len(data) < self._geometry.page_size:
                continue
            length = unpack_group_header(data).body_length
            read_bytes = max(len(data), round_up(GROUP_HEADER_BYTES + length, len(data)))
            read_bytes = min(
                max(read_bytes, MAX_TRIED_BYTES), self._geometry.segment_bytes - offset
            )
            data = reader.read(offset, read_bytes)
            known = self._geometry.store_id, lsn, self.last_lsn
            if was_whole(data, known, self.generation):
                return lsn
        return None

    def later(self, segments: Iterable[int], until_lsn: int | None = None) -> int | None:
        """A valid group behind the end that shows that something durable is missing there (JS2)."""
        generation = self.generation if self.groups else None
        for group in search_groups(self._directory, segments, self.end_lsn):
            if until_lsn is not None and group.header.lsn >= until_lsn:
                return None
            if proves_damage(group.header, generation, self.end_lsn):
                return group.header.lsn
        return None

    def fault(
        self, later: int | None, damaged: int | None, durable_lsn: int
    ) -> tuple[int, str] | None:
        """The place of damage at the end, and what it is (JS2); None: what is there is cut.

        `later` and `damaged`: what these say. `durable_lsn`: an end that was durable.
        """
        broken_lsn, _ = self.claim()
        if durable_lsn > self.end_lsn and later is None:
            return broken_lsn, (
                f"the journal ends here (LSN {self.end_lsn:#x}), but it was durable up to LSN"
                f" {durable_lsn:#x}"
            )
        if later is not None:
            return broken_lsn, (
                f"no valid group here (LSN {broken_lsn:#x}), but a later one is whole"
                f" ({self._directory.location(later)})"
            )
        if damaged is not None:
            text = f"the last group of the journal (LSN {damaged:#x}) was written whole"
            return damaged, text
        return None

    def report(self, records: int) -> RecoveryReport:
        """Return what lies at the end, where there is no damage.

        `records`: the number handed out.
        """
        tail, dropped, dropped_records = Tail.CLEAN, 0, 0
        place, header = self.claim()
        if header is not None:
            tail = Tail.TORN if self.whole_group_at(place) is None else Tail.STALE
            dropped = GROUP_HEADER_BYTES + header.body_length
            dropped_records = header.record_count
        else:
            place = self.end_lsn - 1  # perhaps a segment's end, not yet in a file of its own
        self.close()
        number, offset = divmod(place, self._geometry.segment_bytes)
        return RecoveryReport(
            first_lsn=self.start_lsn if self.groups else 0,
            last_lsn=self.last_lsn,
            end_lsn=self.end_lsn,
            generation=self.generation,
            groups=self.groups,
            records=records,
            segments=len(self.segments_read),
            tail=tail,
            tail_file=self._directory.path_of(number),
            tail_offset=offset if header is not None else offset + 1,
            dropped_bytes=dropped,
            dropped_records=dropped_records,
        )

    def places(self) -> list[int]:
        """Return the places where the next group can be: at the end, or on page 1 of the next
        segment.
        """
        segment_bytes, page_size = self._geometry.segment_bytes, self._geometry.page_size
        number, offset = divmod(self.end_lsn, segment_bytes)
        if offset == 0:
            return [self.end_lsn + page_size]
        if self.groups == 0:
            return [self.end_lsn]
        return [self.end_lsn, (number + 1) * segment_bytes + page_size]

    def _next(self) -> Group | None:
        reader, lsn = self._reader, self.end_lsn
        if reader is not None and lsn // self._geometry.segment_bytes == reader.number:
            group = read_group(reader, self._geometry, lsn)  # nearly every one is found here
            if group is not None and self.admits(group.header):
                return group
        for lsn in self.places():
            group = self.whole_group_at(lsn)
            if group is not None and self.admits(group.header):
                return group
        return None

    def _reader_for(self, number: int) -> SegmentReader | None:
        if self._reader is not None and self._reader.number == number:
            return self._reader
        if number not in self._segments:
            return None
        reader = SegmentReader(self._directory, number)
        self.close()
        self._reader = reader
        self.segments_read.add(number)
        return reader


def read_group(reader: SegmentReader, geometry: Geometry, lsn: int) -> Group | None:
    """The group at a place, verified but for its relation to its predecessor; None if none is."""
    store_id, segment_bytes, page_size = geometry
    offset = lsn % segment_bytes
    window, at = reader.window, offset - reader.start
    if at < 0 or at + page_size > len(window):
        window, at = reader.move(offset, page_size), 0
        if len(window) < page_size:
            return None
    header = GroupHeader(*GROUP_FIELDS.unpack_from(window, at + 8))
    if header.magic != GROUP_MAGIC or header.lsn != lsn or header.store_id != store_id:
        return None
    size = GROUP_HEADER_BYTES + header.body_length
    if offset + size > segment_bytes:
        return None
    if at + size > len(window):
        window, at = reader.move(offset, size), 0
        if len(window) < size:
            return None
    image = window[at : at + size]
    if checksum(image[8:]) != CHECKSUM.unpack_from(image)[0]:
        return None
    if header.version not in (VERSION, VERSION_OF_UNSYNCED):
        raise StoreVersion(
            f"{reader.path}: page {offset // page_size}, offset {offset}: journal group of"
            f" format version {header.version}; this release reads up to {VERSION_OF_UNSYNCED}: use"
            " the release that wrote it"
        )
    return Group(header, image, header.end_lsn(page_size))


def search_groups(directory: Directory, segments: Iterable[int], from_lsn: int) -> Iterator[Group]:
    """Every valid group at any page from a place on, in a chain or not.

    Only pages that carry the magic and their own LSN are looked at by Python code.
    """
    geometry = directory.geometry
    for number in segments:
        base = number * geometry.segment_bytes
        if base + geometry.segment_bytes <= from_lsn:
            continue
        with closing(SegmentReader(directory, number)) as reader:
            start = max(from_lsn - base, geometry.page_size)
            for lsn in _candidates(reader, geometry, base, start):
                group = read_group(reader, geometry, lsn)
                if group is not None:
                    yield group


def _candidates(reader: SegmentReader, geometry: Geometry, base: int, offset: int) -> Iterator[int]:
    """Pages that carry the magic and their own LSN; not one in a hole of the file (JS3)."""
    page_size = geometry.page_size
    while data := reader.next_data(offset):
        offset = max(offset, data.start // page_size * page_size)
        end = min(round_up(data.stop, page_size), geometry.segment_bytes)
        chunk = reader.read(offset, min(SEARCH_CHUNK_BYTES, end - offset))
        pages = len(chunk) // page_size
        if pages == 0:
            return
        page = struct.Struct(f"{GROUP_SOUGHT.format}{page_size - GROUP_SOUGHT.size}x")
        places = range(base + offset, base + offset + pages * page_size, page_size)
        whole = page.iter_unpack(chunk[: pages * page_size])
        for place, (magic, lsn) in zip(places, whole, strict=True):
            if lsn == place and magic == GROUP_MAGIC:
                yield place
        offset += pages * page_size
