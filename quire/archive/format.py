"""The objects of an archive that hold bases, version 1. All integers are little endian.

A base is the whole durable state of a store at one record number, with all messages that were not
released then. It needs nothing of any other base but files of large transactions, which it names.

    store                      which store the archive is of: a sealed document
    bases/<base>/manifest      a sealed document, made last: without it there is no such base
    bases/<base>/state         a checkpoint file (see above), whose records are elsewhere
    bases/<base>/table-<n>     the records of the blocks in pack n, and others in between
    packs/<base>-<n>           blocks of messages, back to back; n has 8 decimal digits, from 0
    files/<id>                 a large transaction's file, byte for byte; its id as 16 hex digits

<base> is the number of the latest record in it as 16 hex digits, a dash, and 16 random hex digits.

A sealed document is one line of 16 hex digits, the checksum of all that follows it, and JSON.

    store       "version" 1, "store_id" (16 hex digits), "made_us"
    manifest    "version" 1, "base", "store_id", "number", "time_us" (microseconds since the epoch),
                "state_hash", "generation" (the journal's, 16 hex digits), "payload_bytes" (of all blocks and files), "state", "tables", "packs", "files".
                These name objects: "name", "bytes", "checksum" (of all its bytes, 16 hex digits), for
                files "trailer", too: the checksum of the file's trailer. Tables and packs in order

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
"""

from __future__ import annotations

import re
import struct
from typing import Final

VERSION: Final = 1
TABLE_MAGIC: Final = int.from_bytes(b"QTAB", "little")
TABLE_HEADER: Final = struct.Struct("<QIHHQII")
TABLE_RUN: Final = struct.Struct("<II")
PACK_NUMBER: Final = struct.Struct("<60xI")  # where a record has its pack's number

STORE: Final = "store"
BASES: Final = "bases/"
PACKS: Final = "packs/"
FILES: Final = "files/"
PROBE: Final = "probe/"
MANIFEST: Final = "manifest"
PREPARED: Final = "prepared"
PREPARED_QUEUE: Final = 0

_BASE: Final = "[0-9a-f]{16}-[0-9a-f]{16}"
_NAME: Final = re.compile(
    rf"{BASES}{_BASE}/(?:manifest|state|table-[0-9]{{8,}})|{PACKS}{_BASE}-[0-9]{{8,}}"
    rf"|(?:{FILES}|{PROBE})[0-9a-f]{{16}}"
)

assert TABLE_HEADER.size == 32
assert TABLE_RUN.size == 8
assert PACK_NUMBER.size == 64


def is_name(name: str) -> bool:
    """Return True for the name of an object that is or was part of a base, or a probe."""
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
