"""The bytes of a run of a keyed state, version 1. Little endian.

A run holds rows by key, each key once, and is never changed. It is the payload of one message: of a
few rows in the message's block, of many in a file as a streamed message is (see above).

    pieces      each on a multiple of 8 bytes
    timers      one entry for each row that has a timer, ascending by time, then by hash
    index       one entry for each piece
    timer index one entry for each 256 timers
    filter      bits by which keys are known that the run has not
    schema      in words (see `quire.definitions.row_schema`), UTF-8; then zeros to 8 bytes
    trailer     128 bytes; it ends the run

    trailer
    offset size field
    0      8    checksum of [8, 128)
    8      4    magic, "QRUN"
    12     2    version, 1
    14     1    key columns: so many of the schema, the first ones
    15     1    shift
    16     8    id of the run, random
    24     8    rows, those that are deleted too
    32     8    deleted rows
    40     8    first hash of the run's range
    48     8    last hash of the run's range
    56     8    pieces
    64     8    bytes of the run
    72     8    place of the index
    80     8    checksum of index, timer index, filter and schema, with the zeros
    88     4    bytes of the schema, without the zeros
    92     4    bytes of a row's fixed part
    96     8    least time at which a row expires
    104    8    bytes of the filter: a power of 2 from 8 on, or 0
    112    8    timers
    120    1    1: rows have the time of a timer in their fixed part
    121    7    reserved, 0

    index entry (24 bytes)
    offset size field
    0      8    place of the piece
    8      8    checksum of the piece
    16     4    bytes of the piece
    20     4    rows in it

    timer (16 bytes)
    offset size field
    0      8    time, a number that whoever set it knows the meaning of
    8      8    hash of the row's key

    timer index entry (16 bytes)
    offset size field
    0      8    time of the first of its timers
    8      8    checksum of its timers

Piece n has all rows whose hash is from first hash + (n << shift) to before the next one's; it may
have none, and no bytes. So the piece of a key is computed, not searched for.

A piece has the fixed parts of its rows, ascending by hash, then the texts of its rows in the same
order. Rows of the same hash have different keys, and are in any order.

    fixed part of a row; its size is a multiple of 8
    offset size field
    0      8    hash of the key
    8      8    time at which it expires, microseconds since the epoch; 2**63 - 1: never
    16     4    place of its texts, from where those of the piece begin
    20     1    1: the key is deleted, and all columns but its own are null
    21     ..   null bits, one for each column, the lowest first; then, without padding:
                i64 time of its timer, in a run that has them; 2**63 - 1: none
                u32 length of its text in each column of strings or binary
                the values of the other columns: booleans u8, dates i32, timestamps i64, decimals 16
                bytes, numbers as they are; 0 where null
                zeros

The filter of n bytes has 8n bits, the lowest of each byte first. Of each row four are set, those
whose numbers are hash, hash >> 13, hash >> 26 and hash >> 39, each modulo 8n.

The texts of a row are those of its columns, back to back. The hash is xxh3_64 of the key's bytes:
of one column its value's; of several those of each, before a text its length as u32.
All checksums are xxh3_64. A run is valid when trailer, index and schema match their checksums; a
piece when it matches its entry's, and its rows are ascending, of its hashes, and their texts in it;
timers when they match theirs.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from quire.checksum import checksum
from quire.libraries import np

VERSION: Final = 1
MAGIC: Final = b"QRUN"
TRAILER: Final = struct.Struct("<Q4sHBBQQQQQQQQQIIqQQB7x")
CHECKSUM: Final = struct.Struct("<Q")
CHECKSUM_BYTES: Final = 8
NEVER: Final = (1 << 63) - 1
DELETED: Final = 1
TIMED: Final = 1
TIMERS_TOGETHER: Final = 256  # that one entry of their index is for
EMPTY_CHECKSUM: Final = checksum(b"")  # which the index does not have: it has 0 for no bytes
HASH_AT: Final = 0
LAST_HASH: Final = (1 << 64) - 1  # of those that there can be
NULLS_AT: Final = 21
FILTER_SHIFTS: Final = (0, 13, 26, 39)


@cache
def index_type() -> np.dtype[np.void]:
    """The index's entries."""
    entry = np.dtype([("offset", "<u8"), ("checksum", "<u8"), ("length", "<u4"), ("rows", "<u4")])
    assert entry.itemsize == 24
    return entry


@cache
def timer_type() -> np.dtype[np.void]:
    """A timer."""
    entry = np.dtype([("time", "<i8"), ("hash", "<u8")])
    assert entry.itemsize == 16
    return entry


@cache
def timer_index_type() -> np.dtype[np.void]:
    """The timer index's entries."""
    entry = np.dtype([("time", "<i8"), ("checksum", "<u8")])
    assert entry.itemsize == 16
    return entry


def row_type(widths: tuple[int, ...], *, timed: bool) -> np.dtype[np.void]:
    """The fixed part of a row: `widths` of its columns in bytes, 0 for a text."""
    texts = widths.count(0)
    nulls = -(-len(widths) // 8)
    names = ["hash", "expires", "heap", "flags", "nulls"]
    forms = ["<u8", "<i8", "<u4", "u1", ("u1", (nulls,))]
    places = [HASH_AT, 8, 16, 20, NULLS_AT]
    at = NULLS_AT + nulls
    if timed:
        names.append("timer")
        forms.append("<i8")
        places.append(at)
        at += 8
    if texts:
        names.append("lengths")
        forms.append(("<u4", (texts,)))
        places.append(at)
        at += 4 * texts
    for number, width in enumerate(widths):
        if width:
            names.append(f"c{number}")
            forms.append(("u1", (width,)))
            places.append(at)
            at += width
    return np.dtype(
        {"names": names, "formats": forms, "offsets": places, "itemsize": (at + 7) & -8}
    )


assert TRAILER.size == 128
