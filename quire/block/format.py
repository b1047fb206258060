"""The format of a block, versions 1 and 2. Little endian; every section begins on a multiple of 8 bytes.

A block holds `count` consecutive messages of one transaction in one queue, as columns.

    offset  size  field
    0       8     checksum, xxh3_64 of bytes [8, length)
    8       4     magic, "QBLK"
    12      2     version, 1; 2 for rows (see below)
    14      2     flags, 0
    16      4     columns, the bits of `Column` that are present
    20      4     count of messages, at least 1
    24      8     length of the whole block in bytes, a multiple of 8
    32      8     payload_bytes, the sum of the payloads' lengths
    40      24    reserved, 0
    64            section table: u64 length in bytes of each section of each present column,
                  in the order of `Column`; no bytes at all for a plain block (columns = 0)
                  payload offsets, int32[count + 1]
                  the sections of the present columns, in the same order
                  payload bytes

The first 8 fields up to `length` keep their places in all versions. Sections follow each other, each
padded with zeros to a multiple of 8, so that the places of all follow from the table.

    column                               sections
    priority, group                      u16[count]; absent value 0
    expires_at, deliver_at               i64[count], microseconds since the epoch; absent value -2**63
    id, time                             i64[count]; only in packed blocks. Elsewhere message i has the
                                         id first_id + i, and the one time of its transaction, both
                                         kept by what refers to the block
    sender, correlation_id, reply_to,    validity u8[count] (1 present, 0 absent; no bytes if all are
    content_type                         present), int32 offsets[count + 1], UTF-8 bytes
    attributes                           int32 list offsets[count + 1] counting pairs, int32 key
                                         offsets[pairs + 1], UTF-8 keys, int32 value offsets[pairs + 1],
                                         UTF-8 values
    stream                               u64 file, u64 length in bytes, u32 bytes of a chunk, u32 0; only
                                         in the block of a streamed message, which is alone in it and has
                                         no payload bytes there: they are the chunks of the large
                                         transaction's file with that id

Offsets begin with 0, never fall, and end with the length of what they point into; an absent string is
empty. A block is valid when its checksum matches and all the lengths and offsets above agree.

Versions 2 and 3 are a block of a typed queue: its messages are rows. It has the same header and the same
sections of header columns; the rows stand in the place of the payload bytes, and what they are in that
of the payload offsets:

    40      4     length of the schema in bytes
    44      4     length of the statistics in bytes; 0 if there are none
    48      4     length of the checksums of the columns in bytes; 0 in version 2, which has none
    52      4     reserved, 0
    56      8     checksum of the head: xxh3_64 of bytes [8, 56) and [64, the head's end)
    64            section table, as above
                  schema, in words (see `quire.definitions.row_schema`), UTF-8
                  statistics, JSON in UTF-8
                  u64 length in bytes, u64 xxh3_64 of each part of the rows: Arrow's message without its
                  body, then of the body each column, up to where the next one begins; the head ends
                  behind them
                  the sections of the present columns
                  rows: one encapsulated message of Arrow's IPC format, a RecordBatch of the schema,
                  not compressed and without dictionaries; `payload_bytes` is its length

The statistics are an object: by a column's name [nulls, least, greatest]. Integers, dates (days) and
timestamps (microseconds) are numbers, decimals strings of digits; of strings the first characters stand,
and the greatest is not there if it is longer. Where least or greatest is null it is not known. A column
that is not there is not told of. They are for skipping a block that has no row that is asked for, by its
head alone. The checksums of the columns are for reading some columns without the others; large blocks
have them. Both versions are valid when also the head's checksum matches, and Arrow finds the rows whole.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

MAGIC = b"QBLK"
VERSION = 1
ROWS_VERSION = 2
SUMS_VERSION = 3  # of rows, with checksums of the columns
ROWS_VERSIONS = ROWS_VERSION, SUMS_VERSION
HEADER = struct.Struct("<Q4sHHIIQQ24x")
HEADER_BYTES = 64
MAGIC_AT = 8
ROWS_HEAD = struct.Struct("<III4xQ")
"""The head of a block of rows: lengths of schema, statistics and columns' checksums, and its
checksum."""
COLUMN_SUM_BYTES = 16
ROWS_HEAD_AT = 40
HEAD_CHECKSUM_AT = 56
CHECKSUM = struct.Struct("<Q")
CHECKSUM_BYTES = 8
TABLE_ENTRY_BYTES = 8
PLAIN_ONE = struct.Struct("<4sHHIIQQ24xii")
"""Everything of a plain block of one message between the checksum and the payload."""
PLAIN_ONE_START = struct.pack("<4sHHII", MAGIC, VERSION, 0, 0, 1)
PLAIN_ONE_ENDS = struct.Struct("<16sQQ28xi")
"""A plain block of one message, of which `PLAIN_ONE_START` is packed already: fewer arguments."""

ABSENT_TIME = -(1 << 63)

PADDING = tuple(bytes(-size % 8) for size in range(8))


class Column:
    """The bits of the header columns, in the order of their sections.

    Plain ints: the operators of an enum would cost more than the rest of reading a small block.
    """

    PRIORITY: Final = 1 << 0
    GROUP: Final = 1 << 1
    EXPIRES_AT: Final = 1 << 2
    DELIVER_AT: Final = 1 << 3
    ID: Final = 1 << 4
    TIME: Final = 1 << 5
    SENDER: Final = 1 << 6
    CORRELATION_ID: Final = 1 << 7
    REPLY_TO: Final = 1 << 8
    CONTENT_TYPE: Final = 1 << 9
    ATTRIBUTES: Final = 1 << 10
    STREAM: Final = 1 << 11


FIXED_COLUMNS: dict[int, tuple[str, int]] = {
    Column.PRIORITY: ("<u2", 0),
    Column.GROUP: ("<u2", 0),
    Column.EXPIRES_AT: ("<i8", ABSENT_TIME),
    Column.DELIVER_AT: ("<i8", ABSENT_TIME),
    Column.ID: ("<i8", 0),
    Column.TIME: ("<i8", 0),
}
"""Fixed-width columns: numpy type and absent value."""

STRING_COLUMNS = (
    Column.SENDER,
    Column.CORRELATION_ID,
    Column.REPLY_TO,
    Column.CONTENT_TYPE,
)
STRING_SECTIONS = 3
ATTRIBUTES_SECTIONS = 5
STREAM = struct.Struct("<QQI4x")

ALL_COLUMNS = (1 << 12) - 1

COLUMN_NAMES = {bit: name.lower() for name, bit in vars(Column).items() if not name.startswith("_")}
"""The columns' names as attributes of messages and fields."""


_FIXED_BITS = sum(FIXED_COLUMNS)
_STRING_BITS = sum(STRING_COLUMNS)


@lru_cache(maxsize=64)
def section_count(columns: int) -> int:
    """Return the number of sections, and so of table entries, that the columns have."""
    return (
        (columns & _FIXED_BITS).bit_count()
        + STRING_SECTIONS * (columns & _STRING_BITS).bit_count()
        + (ATTRIBUTES_SECTIONS if columns & Column.ATTRIBUTES else 0)
        + (1 if columns & Column.STREAM else 0)
    )


def padded(size_bytes: int) -> int:
    """The size rounded up to a multiple of 8."""
    return (size_bytes + 7) & ~7


assert HEADER.size == HEADER_BYTES
assert ROWS_HEAD_AT + ROWS_HEAD.size == HEADER_BYTES
assert PLAIN_ONE_ENDS.pack(PLAIN_ONE_START, 5, 6, 7) == PLAIN_ONE.pack(
    MAGIC, VERSION, 0, 0, 1, 5, 6, 0, 7
)
assert PLAIN_ONE.size == HEADER_BYTES - CHECKSUM_BYTES + 8
assert sum(COLUMN_NAMES) == ALL_COLUMNS
