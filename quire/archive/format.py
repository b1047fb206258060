"""The objects of an archive, version 1. All integers are little endian.

An archive has bases, and entries of the records that were committed between them and since. A base is the whole durable state of a store at one record number, with all messages that were not
released then. It needs nothing of any other base but files of large transactions, which it names.

    store                      which store the archive is of: a sealed document
    bases/<base>/manifest      a sealed document, made last: without it there is no such base
    bases/<base>/state         a checkpoint file (see above), whose records are elsewhere
    bases/<base>/table-<n>     the records of the blocks in pack n, and others in between
    packs/<base>-<n>           blocks of messages, back to back; n has 8 decimal digits, from 0
    files/<id>                 a large transaction's file, byte for byte; its id as 16 hex digits
    log/<hi>/<place>           an entry; its place, 1, 2, 3, ..., as 16 hex digits, <hi> the first 13 of them
    merged/<first>-<last>      the entries of these places, 16 hex digits each, in one object
    blobs/<id>                 an attachment that is not in its entry, or an entry's records; 16 random hex digits
    boundary/<n>               a sealed document, n as 16 hex digits, from 1; the highest n counts
    probe/<id>                 made and deleted before "store" is made, to try what the place promises

<base> is the number of the latest record in it as 16 hex digits, a dash, and 16 random hex digits.

A sealed document is one line of 16 hex digits, the checksum of all that follows it, and JSON.

    store       "version" 1, "store_id" (16 hex digits), "made_us"
    manifest    "version" 1, "base", "store_id", "number", "time_us" (microseconds since the epoch),
                "state_hash", "generation" (the journal's, 16 hex digits), "payload_bytes" (of all blocks and files), "state", "tables", "packs", "files",
                "history" (16 hex digits; those of the entries that go on from it; 0 or missing: none do).
                These name objects: "name", "bytes", "checksum" (of all its bytes, 16 hex digits), for
                files "trailer", too: the checksum of the file's trailer. Tables and packs in order
    boundary    "version" 1, "place", "number", "time_us": entries at or before "place" are not needed any more, the
                latest record of which has this "number"

The state is a checkpoint file with LSN 0, without "restart_lsn", "spaces" and "held"; the queues' "directory"
is empty and they have no "tail". Its "prepared" (none if it is missing) has a row for each prepared transaction:
the shared part of its record, in base64, with its header, and how many blocks it has.

Table

    offset  type  field
    0       u64   checksum over [8, its end)
    8       u32   magic "QTAB"
    12      u16   version        1
    14      u16   reserved       0
    16      u64   store_id
    24      u32   number         of the table and its pack
    28      u32   runs
    32      runs * 8 bytes       u32 queue_id, u32 records: so many of the following ones are the queue's. Queue 0:
                                 blocks of prepared transactions, in the order of "prepared" and of their parts
    then    records of 64 bytes  RECORD (see record page), each queue's in the order of positions; those of a block
                                 have kind 1 (data), the block's offset in its pack as address, and the number of the
                                 pack in the manifest's order as reserved2. Those of kind 2 (ltds) name a file

A record whose messages are all released is in no table. A queue's records may go on in the next table.

Entry: whole groups of the journal, without padding and without what is of this machine

    offset  type  field
    0       u64   checksum       over [8, 96 + 16 * names)
    8       u32   magic "QENT"
    12      u16   version        1
    14      u16   flags          1: its records are in a blob, which is the first of its names
    16      u64   store_id
    24      u64   history        drawn when the store got the archive
    32      u64   place
    40      u64   first_number   of its first record
    48      u32   records        at least 1; their numbers count up
    52      u32   names          of the blobs and files that it needs
    56      u64   length         bytes of its records
    64      i64   first_us       commit time of its first record, microseconds since the epoch; of the latest before
                                 it that has such a time, if it has none; 0 if none has
    72      i64   last_us        commit time of its last record
    80      u64   previous       checksum of the entry before it; 0: there was none
    88      u64   records_checksum   over its records
    96      names * 16 bytes     u64 id, u32 kind (1 blob, 2 file), u32 reserved
    then    its records          each the shared part of a record of the journal with its header (see above: a COMMIT
                                 without its local tail), zeros to 8 bytes; and its attachment, where it
                                 has one, unless blobs/<id> is among the names, by the id of the ATTACHMENT

An attachment is what its section says: the blocks of the parts that are data, each filled up with zeros to 8 bytes.
Where an entry's first number is greater than that of the record after the entry before, the numbers between were
never shipped: there is a gap, over which no restore goes.

Merged entries

    offset  type  field
    0       u64   checksum       over [8, the end of the names)
    8       u32   magic "QMRG"
    12      u16   version        1
    14      u16   reserved       0
    16      u64   store_id
    24      u64   history
    32      u64   first_place
    40      u32   entries        at least 1, of consecutive places
    44      u32   names          all blobs and files that its entries name
    48      u64   first_number   of the first record
    56      u64   last_number    of the last one
    64      i64   first_us       as the first entry has it
    72      i64   last_us        as the last one has it
    80      entries * 96 bytes   the first 96 bytes of each entry
    then    names * 16 bytes     as in an entry
    then    the entries, as they were, back to back

An entry that is in merged entries may be in log/, too, and is the same, or was made late and is not counted.
"""

from __future__ import annotations

import re
import struct
from typing import Final

VERSION: Final = 1
TABLE_MAGIC: Final = int.from_bytes(b"QTAB", "little")
TABLE_HEADER: Final = struct.Struct("<QIHHQII")
TABLE_RUN: Final = struct.Struct("<II")
ENTRY_MAGIC: Final = int.from_bytes(b"QENT", "little")
ENTRY_HEAD: Final = struct.Struct("<QIHHQQQQIIQqqQQ")
ENTRY_NAME: Final = struct.Struct("<QII")
RECORDS_IN_BLOB: Final = 1  # a flag of an entry
BLOB: Final = 1  # kinds of names
FILE: Final = 2
MERGED_MAGIC: Final = int.from_bytes(b"QMRG", "little")
MERGED_HEAD: Final = struct.Struct("<QIHHQQQIIQQqq")
PACK_NUMBER: Final = struct.Struct("<60xI")  # where a record has its pack's number

STORE: Final = "store"
BASES: Final = "bases/"
PACKS: Final = "packs/"
FILES: Final = "files/"
LOG: Final = "log/"
MERGED: Final = "merged/"
BLOBS: Final = "blobs/"
BOUNDARY: Final = "boundary/"
PROBE: Final = "probe/"
OF_BASES: Final = (BASES, PACKS, FILES, PROBE)  # prefixes
OF_ENTRIES: Final = (LOG, MERGED, BLOBS, BOUNDARY)
MANIFEST: Final = "manifest"
PREPARED: Final = "prepared"
CATALOG_ENTRY: Final = "archive"  # the type of the entry in a store's catalog
PREPARED_QUEUE: Final = 0

_BASE: Final = "[0-9a-f]{16}-[0-9a-f]{16}"
_NAME: Final = re.compile(
    rf"{BASES}{_BASE}/(?:manifest|state|table-[0-9]{{8,}})|{PACKS}{_BASE}-[0-9]{{8,}}"
    rf"|(?:{FILES}|{PROBE}|{BLOBS}|{BOUNDARY})[0-9a-f]{{16}}"
    rf"|{LOG}([0-9a-f]{{13}})/\1[0-9a-f]{{3}}|{MERGED}[0-9a-f]{{16}}-[0-9a-f]{{16}}"
)

assert TABLE_HEADER.size == 32
assert TABLE_RUN.size == 8
assert PACK_NUMBER.size == 64
assert ENTRY_HEAD.size == 96
assert ENTRY_NAME.size == 16
assert MERGED_HEAD.size == 80


def is_name(name: str) -> bool:
    """Return True for the name of an object that an archive makes, but for that of its store."""
    return _NAME.fullmatch(name) is not None


def table_name(base: str, number: int) -> str:
    """Return the name of a table."""
    return f"{BASES}{base}/table-{number:08}"


def pack_name(base: str, number: int) -> str:
    """Return the name of a pack."""
    return f"{PACKS}{base}-{number:08}"


def state_name(base: str) -> str:
    """Return the name of a base's state."""
    return f"{BASES}{base}/state"


def manifest_name(base: str) -> str:
    """Return the name of a base's manifest."""
    return f"{BASES}{base}/{MANIFEST}"


def file_name(ltds_id: int) -> str:
    """Return the name of a large transaction's file."""
    return f"{FILES}{ltds_id:016x}"


def entry_name(place: int) -> str:
    """Return the name of the entry at a place."""
    return f"{LOG}{place >> 12:013x}/{place:016x}"


def merged_name(first: int, last: int) -> str:
    """Return the name of the merged entries of these places."""
    return f"{MERGED}{first:016x}-{last:016x}"


def blob_name(blob_id: int) -> str:
    """Return the name of a blob."""
    return f"{BLOBS}{blob_id:016x}"


def boundary_name(number: int) -> str:
    """Return the name of a boundary."""
    return f"{BOUNDARY}{number:016x}"


def place_of(name: str) -> int:
    """Return the place of an entry's name."""
    return int(name[-16:], 16)


def places_of(name: str) -> tuple[int, int]:
    """Return the first and the last place of the name of merged entries."""
    return int(name[-33:-17], 16), int(name[-16:], 16)
