"""The format of a large transaction's file, version 1. Little endian.

The file `<id as 16 hex digits>.ltds` holds one transaction's messages for one queue. It is written
once, from its beginning to its end, and never changed after. A file without a valid trailer was not
finished, and holds nothing.

    header page, at 0
    blocks, each beginning on a page; in the order of their messages
    directory, beginning on a page: one entry per block
    trailer page, beginning on a page; it ends the file

    header page (4096 bytes)                    trailer page (4096 bytes)
    offset size field                           offset size field
    0      8    checksum of [8, 4096)           0      8    checksum of [8, 4096)
    8      8    magic, "QLTDSHDR"               8      8    magic, "QLTDSEND"
    16     2    version, 1                      16     2    version, 1
    18     2    codec                           18     2    codec
    20     2    content                         20     2    content
    22     2    reserved, 0                     22     2    reserved, 0
    24     8    id                              24     8    id
    32     8    store id                        32     8    store id
    40     8    writer                          40     8    count of blocks
    48     4048 reserved, 0                     48     8    count of messages
                                                56     8    payload bytes of all messages
                                                64     8    charge bytes of all messages
                                                72     8    place of the directory
                                                80     8    checksum of the directory
                                                88     4008 reserved, 0

    directory entry (40 bytes)
    offset size field
    0      8    place of the block
    8      8    index of its first message
    16     4    length of the block, as stored
    20     4    count of its messages
    24     8    checksum
    32     4    length of the block, decompressed
    36     4    reserved, 0

The codec is 0 (none), 1 (zstd) or 2 (lz4, its block format). With a codec each block is compressed
by itself, so that any of them can be read without the others; where both lengths are the same the
block is stored as it is. A stored page becomes 1 MiB at most: a block that would be more is stored
as it is, so that what a reader allocates for a block is bounded by what lies on the disk.

The content is 0 (messages) or 1 (one streamed message): the chunks of its payload, and behind them
the block of the message, which names the file. A chunk is bytes of the payload and nothing else; its
entry has 0 as its count of messages. Chunks have the same length but the last, which may be shorter.

The checksum of an entry is that of the stored bytes; in a file of messages without a codec it is the
block's own, which is in its first bytes and covers the others.

A file of the same form, written by a Spark task, may hold messages for many queues. Which blocks are
whose stands in the task's message to its commit, which puts the blocks; such a file is never the
store's own, and goes after the commit. Another process may also write a file of one streamed
message, as it does for a run of a keyed state; the commit adopts that.

The writer is 0, or where the store's server has written a fragment for a user the checksum of the
user's name: no other user reaches the file.

All checksums are xxh3_64. Bit 62 of an id says that another process than the store's owner wrote the
file (a fragment); bit 63 is 0, and the rest is random. A file is valid when header, trailer and
directory match their checksums, agree on version, codec, id and store, and the directory's entries
follow each other without overlap and add up to the trailer's counts.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import cache

from quire.libraries import np

PAGE_BYTES = 4096
VERSION = 1
HEADER_MAGIC = b"QLTDSHDR"
TRAILER_MAGIC = b"QLTDSEND"

HEADER = struct.Struct("<Q8sHHH2xQQQ4048x")
TRAILER = struct.Struct("<Q8sHHH2xQQQQQQQQ4008x")
CHECKSUM = struct.Struct("<Q")
CHECKSUM_BYTES = 8

_FIELDS = [
    ("offset", "<u8"),
    ("first_index", "<u8"),
    ("length", "<u4"),
    ("count", "<u4"),
    ("checksum", "<u8"),
    ("plain_length", "<u4"),
    ("reserved", "<u4"),
]

# What a stored page may become, decompressed.
PLAIN_BYTES_PER_PAGE = 1 << 20

FOREIGN_BIT = 1 << 62
SUFFIX = ".ltds"
ID_DIGITS = 16


class Compression(IntEnum):
    """The codecs by which the blocks of a file may be compressed."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


class FileContent(IntEnum):
    """The content of a file."""

    MESSAGES = 0
    STREAM = 1


@cache
def entry_type() -> np.dtype[np.void]:
    """The directory's entries."""
    entry = np.dtype(_FIELDS)
    assert entry.itemsize == 40
    return entry


def paged(offset: int) -> int:
    """The offset rounded up to the beginning of a page."""
    return -(-offset // PAGE_BYTES) * PAGE_BYTES


assert HEADER.size == PAGE_BYTES
assert TRAILER.size == PAGE_BYTES
