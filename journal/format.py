"""The bytes of the journal. Little-endian throughout; version 1, and 2 of some groups.

The journal is an endless sequence of bytes, cut into segment files of `segment_bytes` each. An LSN is
an address in that sequence: segment number = LSN // segment_bytes, place in the file = LSN %
segment_bytes. A segment's file is named by its number: 16 hexadecimal digits and `.log`.

Segment header: the first 64 bytes of page 0 of each file; the rest of page 0 is zero.

    offset  size  field
         0     8  checksum       XXH3-64 of bytes [8, 64)
         8     4  magic          "QJSG"
        12     2  version        1
        14     2  flags          0
        16     4  page_size      bytes: a power of two from 4096 to 65536
        20     4  reserved       0
        24     8  segment_bytes  the size of this and every segment file; a multiple of page_size
        32     8  store_id       the store this journal belongs to
        40     8  base_lsn       segment number * segment_bytes
        48     8  created_us     when the header was written, microseconds since 1970
        56     8  capacity       bytes from the file's beginning that have space; 0 = all of them

Where the capacity ends the file reads as zeros, and the next group goes to page 1 of the next segment.
Valid: checksum and magic right. A valid header of another version is refused; in every version the
checksum covers bytes [8, 64), and magic and version stay where they are.

Group: what one write puts down, on a page boundary, zero-padded to a multiple of page_size. It never
straddles two segments; what does not fit begins on page 1 of the next one.

    offset  size  field
         0     8  checksum       XXH3-64 of bytes [8, 64 + body_length)
         8     4  magic          "QJGR"
        12     2  version        1; 2 where `unsynced` is not 0
        14     2  flags          0
        16     8  generation     high 32 bits: a counter; low 32 bits: random
        24     8  store_id
        32     8  lsn            the address of this group's byte 0
        40     8  previous_lsn   the LSN of the group before it; 0 = there is none
        48     4  body_length    bytes of records, their padding included; a multiple of 8
        52     4  record_count   at least 1
        56     8  unsynced       bytes between the end of the last synced group and this one
        64     -  body           records back to back

All before `lsn - unsynced` was durable when the group was written; the groups between, if any, are in
its own segment. So an intact group proves damage of what was before that, and of nothing else.

Valid: checksum and magic right, lsn equal to its place, store_id the store's, previous_lsn the LSN of
the group before, and generation the same as that group's or of a higher counter.

Record: starts at a multiple of 8; zero-padded to the next one.

    offset  size  field
         0     4  length         this header and the bytes after it, without the padding
         4     2  kind           0 = GENERATION, the journal's own; the others are the caller's
         6     2  flags          the caller's
         8     8  sequence       the caller's
        16     -  bytes

GENERATION record: the first record of the first group that an open writes, and the only one of the
first group of a segment that was begun before the last one was full; `sequence` is 0.

    offset  size  field
        16     8  generation     the same as the group's
        24     8  opened_us      microseconds since 1970
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from quire.checksum import checksum
from quire.errors import InvalidArgument
from quire.limits import MAX_PAGE_SIZE_BYTES, MIN_PAGE_SIZE_BYTES

VERSION: Final = 1
VERSION_OF_UNSYNCED: Final = 2  # of a group
SEGMENT_MAGIC: Final = int.from_bytes(b"QJSG", "little")
GROUP_MAGIC: Final = int.from_bytes(b"QJGR", "little")

CHECKSUM: Final = struct.Struct("<Q")
SEGMENT_FIELDS: Final = struct.Struct("<IHHIIQQQQQ")  # from offset 8
GROUP_FIELDS: Final = struct.Struct("<IHHQQQQIIQ")  # from offset 8
GROUP_START: Final = struct.Struct("<IHHQQ")  # those that stay the same for a generation
GROUP_ENDS: Final = struct.Struct("<24sQQIIQ")  # all, with these packed already
RECORD_HEADER: Final = struct.Struct("<IHHQ")
RECORD_LENGTH: Final = struct.Struct("<I")
GENERATION_BODY: Final = struct.Struct("<QQ")

SEGMENT_HEADER_BYTES: Final = 64
GROUP_HEADER_BYTES: Final = 64
RECORD_HEADER_BYTES: Final = 16
RECORD_ALIGNMENT: Final = 8
KIND_GENERATION: Final = 0

# What a search looks at of each page, without unpacking the rest: the magic and the LSN of a group.
GROUP_SOUGHT: Final = struct.Struct("<8xI20xQ")

MIN_SEGMENT_PAGES: Final = 4  # a header, the generation group, and room for something to be said
MAX_SEGMENT_BYTES: Final = 1 << 30  # body_length is 32 bits wide; a search reads whole segments

assert CHECKSUM.size + SEGMENT_FIELDS.size == SEGMENT_HEADER_BYTES
assert CHECKSUM.size + GROUP_FIELDS.size == GROUP_HEADER_BYTES
assert GROUP_START.size == 24
assert GROUP_ENDS.size == GROUP_FIELDS.size
assert RECORD_HEADER.size == RECORD_HEADER_BYTES
assert GROUP_HEADER_BYTES % RECORD_ALIGNMENT == RECORD_HEADER_BYTES % RECORD_ALIGNMENT == 0
assert MAX_SEGMENT_BYTES < 1 << 32


WholeRecord = bytes | bytearray | tuple[bytes | bytearray, ...]
"""A record with its header, in one piece or several."""


class Record(NamedTuple):
    """A record as it is read."""

    kind: int
    sequence: int
    address: int  # LSN of the record's header; its body begins RECORD_HEADER_BYTES further
    body: memoryview
    flags: int
    generation: int  # of its group


class Geometry(NamedTuple):
    """The sizes and the store id that all segments of one journal have in common."""

    store_id: int
    segment_bytes: int
    page_size: int


class SegmentHeader(NamedTuple):
    magic: int
    version: int
    flags: int
    page_size: int
    reserved: int
    segment_bytes: int
    store_id: int
    base_lsn: int
    created_us: int
    capacity: int


class GroupHeader(Struct):
    """The fields of a group's header, in their order; they are not changed."""

    magic: int
    version: int
    flags: int
    generation: int
    store_id: int
    lsn: int
    previous_lsn: int
    body_length: int
    record_count: int
    unsynced: int

    def end_lsn(self, page_size: int) -> int:
        """Return where the next group can begin: the pages of this one end there."""
        return self.lsn + ((GROUP_HEADER_BYTES + self.body_length + page_size - 1) & -page_size)


def checked_geometry(store_id: int, segment_bytes: int, page_size: int) -> Geometry:
    """Return the geometry. Raises InvalidArgument for sizes that no journal can have."""
    if not MIN_PAGE_SIZE_BYTES <= page_size <= MAX_PAGE_SIZE_BYTES or page_size & (page_size - 1):
        raise InvalidArgument(
            f"page_size {page_size}: give a power of two from {MIN_PAGE_SIZE_BYTES} to"
            f" {MAX_PAGE_SIZE_BYTES} bytes"
        )
    least = MIN_SEGMENT_PAGES * page_size
    if not least <= segment_bytes <= MAX_SEGMENT_BYTES or segment_bytes % page_size:
        raise InvalidArgument(
            f"segment_bytes {segment_bytes}: give a multiple of the page size ({page_size}) from"
            f" {least} to {MAX_SEGMENT_BYTES} bytes"
        )
    if not 0 <= store_id < 1 << 64:
        raise InvalidArgument(f"store_id {store_id}: give an unsigned 64-bit number")
    return Geometry(store_id, segment_bytes, page_size)


def round_up(size: int, unit: int) -> int:
    """`size`, or the next multiple of `unit`, which is a power of two."""
    return (size + unit - 1) & -unit


def succeeds(generation: int, predecessor: int) -> bool:
    """Return True if a group of `generation` can follow one of `predecessor`: the same, or a later
    open.

    The counter of an open that crashed before its first group was whole is used again; its random
    half tells the two apart, so an equal counter with another random half is not a successor.
    """
    return generation == predecessor or generation >> 32 > predecessor >> 32


def proves_damage(header: GroupHeader, generation: int | None, end_lsn: int) -> bool:
    """Return True if a group behind a chain's end shows that the next group there was durable once.

    `generation`: of the chain's last group; None where the chain has none.
    """
    if generation is not None and not succeeds(header.generation, generation):
        return False
    return not header.unsynced or header.lsn - header.unsynced > end_lsn


def pack_segment_header(
    page: memoryview | bytearray, geometry: Geometry, number: int, created_us: int, capacity: int
) -> None:
    """Fill a whole zeroed page with the header of segment `number`."""
    store_id, segment_bytes, page_size = geometry
    assert len(page) == page_size
    SEGMENT_FIELDS.pack_into(
        page, 8, SEGMENT_MAGIC, VERSION, 0, page_size, 0, segment_bytes, store_id,
        number * segment_bytes, created_us, capacity % segment_bytes,
    )  # fmt: skip
    CHECKSUM.pack_into(page, 0, checksum(memoryview(page)[8:SEGMENT_HEADER_BYTES]))


def unpack_segment_header(page: bytes) -> SegmentHeader | None:
    """The header, of whatever version; None if it is not valid."""
    if len(page) < SEGMENT_HEADER_BYTES:
        return None
    header = SegmentHeader._make(SEGMENT_FIELDS.unpack_from(page, 8))
    if header.magic != SEGMENT_MAGIC:
        return None
    if checksum(page[8:SEGMENT_HEADER_BYTES]) != CHECKSUM.unpack_from(page)[0]:
        return None
    return header


def unpack_group_header(data: bytes | memoryview, offset: int = 0) -> GroupHeader:
    """The fields as they stand at `offset`, valid or not."""
    return GroupHeader(*GROUP_FIELDS.unpack_from(data, offset + 8))


def pack_record(kind: int, sequence: int, body: bytes | bytearray | memoryview) -> bytes:
    """A whole record as `write_group` takes it (the padding is added there)."""
    length = RECORD_HEADER_BYTES + len(body)
    return b"".join((RECORD_HEADER.pack(length, kind, 0, sequence), body))


def next_generation(highest: int, chance: int) -> int:
    """The number of a generation behind the highest one, with 32 bits that nobody can guess."""
    return (((highest >> 32) + 1) << 32) | (chance & 0xFFFFFFFF)


def padded_bytes(record: WholeRecord) -> int:
    """Return the bytes that a record takes in a group."""
    length = sum(map(len, record)) if isinstance(record, tuple) else len(record)
    return (length + RECORD_ALIGNMENT - 1) & -RECORD_ALIGNMENT


def pack_records(buffer: memoryview, records: Sequence[WholeRecord]) -> None:
    """Put the records behind the place of a group's header. Raises InvalidArgument."""
    position = GROUP_HEADER_BYTES
    for record in records:
        start = next_position = position
        for piece in record if isinstance(record, tuple) else (record,):
            position = next_position
            next_position += len(piece)
            buffer[position:next_position] = piece
        length = next_position - start
        if length < RECORD_HEADER_BYTES or RECORD_LENGTH.unpack_from(buffer, start)[0] != length:
            raise InvalidArgument(
                f"a record of {length} bytes: it must begin with its header, which says its length"
            )
        position = (next_position + 7) & -8
        if position != next_position:
            buffer[next_position:position] = bytes(position - next_position)
