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
    18     6    reserved, 0                     18     6    reserved, 0
    24     8    id                              24     8    id
    32     8    store id                        32     8    store id
    40     4056 reserved, 0                     40     8    count of blocks
                                                48     8    count of messages
    directory entry (32 bytes)                  56     8    payload bytes of all messages
    offset size field                           64     8    charge bytes of all messages
    0      8    place of the block              72     8    place of the directory
    8      8    index of its first message      80     8    checksum of the directory
    16     4    length of the block             88     4008 reserved, 0
    20     4    count of its messages
    24     8    checksum of the block

All checksums are xxh3_64. Bit 62 of an id says that another process than the store's owner wrote the
file (a fragment); bit 63 is 0, and the rest is random. A file is valid when header, trailer and
directory match their checksums, agree on id and store, and the directory's entries follow each other
without overlap and add up to the trailer's counts.
"""

from __future__ import annotations

import struct

import numpy as np

PAGE_BYTES = 4096
VERSION = 1
HEADER_MAGIC = b"QLTDSHDR"
TRAILER_MAGIC = b"QLTDSEND"

HEADER = struct.Struct("<Q8sH6xQQ4056x")
TRAILER = struct.Struct("<Q8sH6xQQQQQQQQ4008x")
CHECKSUM = struct.Struct("<Q")
CHECKSUM_BYTES = 8

ENTRY = np.dtype(
    [
        ("offset", "<u8"),
        ("first_index", "<u8"),
        ("length", "<u4"),
        ("count", "<u4"),
        ("checksum", "<u8"),
    ]
)

FOREIGN_BIT = 1 << 62
SUFFIX = ".ltds"
ID_DIGITS = 16


def paged(offset: int) -> int:
    """The offset rounded up to the beginning of a page."""
    return -(-offset // PAGE_BYTES) * PAGE_BYTES


assert HEADER.size == PAGE_BYTES
assert TRAILER.size == PAGE_BYTES
assert ENTRY.itemsize == 32
