"""The bytes that the engine puts into journal records, record pages and checkpoints. Version 1.

All integers are little endian. Journal records travel in the journal's groups, whose checksum covers
them; record pages and checkpoints carry a checksum of their own. A reader refuses a version it does not
know (`StoreVersion`) and bytes that contradict this description (`StoreCorrupt`).

Journal record kinds (the u16 `kind` of the journal's record header; its u64 `sequence` is the
transaction id, 0 for the others; bit 0 of its u16 `flags` says that the record has a local tail, bit 1 that it
has sections, the others are 0)

    1 COMMIT               one transaction: the atomic point of all its queues, reads and ledger entries
    2 CATALOG              JSON array of changes, made together: [type, number, entry], or null for an entry
                           that is deleted. "queue": name, kind, capacity, max_messages, created_us,
                           subscription_id (0: none built in), data_file (modulo the
                           number of files that are there), and those
                           properties (`quire.definitions.properties`) that are not as by default; put again with
                           another name, other limits and properties where it was altered. "volatile": true
                           where no record tells of its messages; of such a queue a checkpoint says that it
                           has none. "dropped": how many of its messages gave way to later ones while it had
                           no subscription (0 if it is missing); those of other times are the version of the
                           ledger key "quire.dropped:" with the queue's number
                           "subscription": queue_id, name, start (a position), exclusive (false if it is
                           missing), durable (true if it is missing), where (a
                           selector, if it asks for part only), keeper (it holds what a topic keeps
                           beyond its readers; it has the empty name). "alias": name, queue_id; aliases
                           and queues are numbered together. "store", number 1: puts, gets (booleans),
                           while the store is stopped for either; number 2: opening (the high 32 bits of
                           the journal's generation), last_start_us, as its owner closed it: when a message
                           of a queue with a rate was started last (0: none was). "state": name, key, value (base64); number
                           0 is deleted where there was none.
                           "schedule": name, queue_id, cron, timezone, missed, paused, payload (in base64),
                           those fields of the message that are given (`quire.schedules`), created_us,
                           since_us (only due times after it count); numbered with queues and aliases. The
                           version of the ledger key "quire.schedule:" with its number is the last due time
                           for which it has put a message; it stays when the entry goes
                           "archive", number 1: url ("": records are not shipped now), history (a number that
                           all entries of the archive have), keep_seconds (0: for ever), limit (bytes), full
                           ("gap" or "wait"), boundary_place (entries up to it are not needed any more)

COMMIT body

    offset  type  field
    0       u64   first_id       id of the transaction's first message; the others count up in part order
    8       i64   time_us        commit time, microseconds since the epoch
    16      u32   parts          number of parts
    20      u32   reads          number of reads
    24      u32   entries        number of ledger entries
    28      u32   messages       number of messages in all parts
    32      parts * 48 bytes     one block, or one large transaction's file, of one queue each, in queue order:
            u64   address        inline: bytes from the record's start; data: the
                                 offset in the transaction's attachment; ltds: the file's id
            u64   charge         bytes that count against the queue's capacity
            u64   checksum       the block's checksum; for ltds that of the file's trailer
            u32   queue_id
            u32   length         bytes of the block; 0 for ltds
            u32   count          messages
            u8    kind           0 inline, 1 data, 2 ltds
            u8    flags          0
            u16   reserved       0
            u64   payload_bytes  of all its messages (ltds), 0 otherwise
    then    reads * 24 bytes     u32 queue_id, u32 subscription_id, u64 start, u64 end: positions read
    then    entries              u16 key length, u16 reserved, u32 queue_id, i64 version, key in UTF-8, to 8 bytes
                                 queue_id 0: of the ledger; else the key is the request id of a message of
                                 the queue, the version its place among those of the transaction there
    then    the sections, where the record has them
    then    the inline blocks, each at a multiple of 8 bytes from the record's start

Sections of a COMMIT: they say what else a transaction is or does

    offset  type  field
    0       u32   sections       number of sections, at least 1, no kind twice
    4       u32   reserved       0
    8       sections             u16 kind, u16 reserved, u32 length of its body; the body; zeros to 8 bytes

  Body of a section, by its kind

    1 MOVES                16 bytes for each subscription that is moved: u32 queue_id, u32 subscription_id, u64
                           position: what is kept from there on is unread afterwards, and all before it is read
    2 VALUES               values of states. u64 0; then for each: u64 number of its
                           entry in the catalog, 0 where one is deleted that was not there; u16 length of its name,
                           u16 of its key, u32 of its value and 1 more, 0 where it is deleted; name and key in UTF-8;
                           the value
    3 ATTACHMENT           the blocks of the parts that are data, back to back in the order of parts, each to a
                           multiple of 8 bytes: u64 random id of it, u64 bytes. There where there are such parts
    4 HELD                 the transaction is prepared: durable, and nothing of it takes effect before it is decided.
                           u16 length of its xid; u16 0; u32 taken: so many of the reads, the first ones, are
                           messages in flight; the xid in UTF-8. No part is inline, time_us is when it was prepared
    5 DECIDES              a prepared transaction is committed, or rolled back; first_id is that of its first message.
                           u32 messages in all parts of it; u16 length of its xid; u8 1 committed, 0 rolled back;
                           u8 0; the xid in UTF-8
    6 DELIVERIES           deliveries, noted before they happen, of queues with max_deliveries. 24 bytes for each run
                           of positions: u32 queue_id, u32 subscription_id, u64 start, u64 end: delivered once more
    7 FAILURES             deliveries that have failed, where they come again later or the queue has `retry`. 32 bytes
                           for each run of positions: u32 queue_id, u32 subscription_id, u64 start, u64 end, i64
                           due_us: when they come again, microseconds since the epoch; 0: at once, or they are spent
    8 NUMBERS              what is read of the sequences of queues with such an order. 24 bytes for each sender: u32
                           queue_id, u32 subscription_id, u64 sender (the checksum of its name, 60 bits), u64 next: the
                           number after the highest one that is read
    9 UNTOUCHED            deliveries that were noted and did not happen: given back as if they had not been asked
                           for. 24 bytes for each run of positions, as for DELIVERIES: delivered once less

Local tail: the end of a COMMIT record with an ATTACHMENT. What is before it is the shared part: the same
bytes on every machine, once length and flags in the header are those without it

            u64   place          for each part that is data, in order: byte offset in the data file (file number
                                 in the top 16 bits)
    then    u32   count          number of places, at least 1
            u32   mark           the low 32 bits of the generation of the journal's group; 0 in checkpoints

Record page (one page of the data file; header 64 bytes, then records of 64 bytes)

    header: u64 checksum over [8, 64 + 64 * records), u32 magic "QREC", u16 version, u16 records, u32 queue_id,
            u32 reserved, u64 first_position, u64 end_position, zeros to 64
    record: RECORD below

Checkpoint file (checkpoint/<lsn as 16 hex digits>.qck)

    offset  type  field
    0       u64   checksum over [8, length)
    8       u32   magic "QCKP"
    12      u16   version        1
    14      u16   reserved
    16      u64   store_id
    24      u64   lsn            the journal's state up to this address is in the checkpoint
    32      u64   length         of what is said here; the file may be longer
    40      u64   json_length
    48      u64   arrays         int64 numbers that follow the JSON
    56      u64   reserved
    64      JSON document, zeros to a multiple of 8, then the numbers; the JSON names slices of them.
            "number" counts the records up to there, without the journal's own. A name that is not described here
            is refused (`StoreVersion`), in the document and in the objects of it.
            "catalog" has a row for each entry: [type, number, version, entry], as in CATALOG records.
            "ltds" names the queue of each large transaction's file. "released"
            lists the files of other processes that commits held and that may still have their names, so
            that none is adopted twice. "held" (none if it is missing) lists the records of the prepared
            transactions that are not decided, in base64, with their headers.
            "unshipped" (none if it is missing) is what waits for the store's archive: "position", the LSN up to
            which all is shipped, the number of the record before, and the place of an entry of the archive;
            "pages", for each data file the runs (first page, end) of those that were released and are not
            shipped, which are not free; "files", those of large transactions; "since_us", when the archive was
            set; "base_number", the record of its newest base; "gap", whether records up to the position were
            not shipped and no base has them, and "gap_since_us", since when some were let go of (0: none were).
            "data_files" is their number, "spaces" has for each "total_pages" and
            "extents", the free pages: rows (first page, pages). A queue's "released", and a subscription's
            "done", are rows (start, end) of positions. Where bits take less, these are named by three
            numbers, the last of which is how many runs there are: first start and end of the first run, start
            and end of the last one, then 64-bit words with a bit for each page or position between these two,
            the lowest bit first. A queue's "directory"
            has a row for each record page (position, end, page, records), whose page number is an
            address divided by the page size, and so names the file in the same way. Its "tail" (none
            if it is missing) lists the records behind these that are in no record page, as the disk
            was too full to write one, or to move their blocks: each as in a record page, as eight
            numbers. A block that such a record names may be in a journal segment below the restart
            LSN, which is kept for it. Its "requests" (none if it is missing) are the request ids of its
            puts, the oldest first, both as numbers: "ids", in UTF-8, each with a newline behind it, together
            filled up with zeros to 8 bytes; and "rows" (the message's id, its commit time). What came of the
            deliveries of a subscription is in "attempts" (none if it is missing), rows (start, end, how often given
            back, how often failed, due_us), of which what is read between start and end is not a part. Its "numbers" (none if it is missing) are rows
            (sender, next), as in NUMBERS, who was heard last at the end

    The highest LSN counts. Files that end in ".qck.tmp" are unfinished and hold nothing;
    "uncertain.qck.tmp" is there while the newest checkpoint's name may not be durable. Files that end in
    ".spare" have space for checkpoints of a full disk.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final

from quire.libraries import np

VERSION: Final = 1

COMMIT: Final = 1
CATALOG: Final = 2
KIND_NAMES: Final = {0: "GENERATION", COMMIT: "COMMIT", CATALOG: "CATALOG"}  # 0: the journal's own

NO_ENTRY: Final = 0  # the number of a state's entry that is not there, where one is deleted

MOVES: Final = 1
VALUES: Final = 2
ATTACHMENT: Final = 3
HELD: Final = 4
DECIDES: Final = 5
DELIVERIES: Final = 6
FAILURES: Final = 7
NUMBERS: Final = 8
UNTOUCHED: Final = 9

TAIL: Final = 1  # bits of a COMMIT record's flags
SECTIONS: Final = 2

INLINE: Final = 0
DATA: Final = 1
LTDS: Final = 2
MEMORY: Final = 4  # of a volatile queue: in no file, ever
ON_DISK_APART: Final = DATA | LTDS  # bits of the kinds of what is in a file beside the journal

COMMIT_HEADER: Final = struct.Struct("<QqIIII")
ID_AND_TIME: Final = struct.Struct("<Qq")
PART: Final = struct.Struct("<QQQIIIBBHQ")
READ: Final = struct.Struct("<IIQQ")
FAILURE: Final = struct.Struct("<IIQQq")
SENDER: Final = struct.Struct("<IIQQ")
ENTRY: Final = struct.Struct("<HHIq")
SEEK: Final = struct.Struct("<IIQ")
SECTIONS_HEADER: Final = struct.Struct("<II")
SECTION: Final = struct.Struct("<HHI")
VALUES_HEADER: Final = struct.Struct("<Q")
VALUE: Final = struct.Struct("<QHHI")
NUMBER: Final = struct.Struct("<Q")
ATTACHMENT_BODY: Final = struct.Struct("<QQ")
PLACE: Final = struct.Struct("<Q")
TAIL_END: Final = struct.Struct("<II")
HELD_HEADER: Final = struct.Struct("<HHI")
DECIDES_HEADER: Final = struct.Struct("<IHBB")

PAGE_MAGIC: Final = int.from_bytes(b"QREC", "little")
PAGE_HEADER: Final = struct.Struct("<QIHHIIQQ24x")
_RECORD_FIELDS: Final = [
    ("position", "<u8"),
    ("first_id", "<u8"),
    ("time_us", "<i8"),
    ("address", "<u8"),
    ("charge", "<u8"),
    ("checksum", "<u8"),
    ("length", "<u4"),
    ("count", "<u4"),
    ("kind", "<u1"),
    ("flags", "<u1"),
    ("reserved", "<u2"),
    ("reserved2", "<u4"),
]
PACKED_RECORD: Final = struct.Struct("<QQqQQQIIB7x")  # the same, its fields up to the kind
RECORD_BYTES: Final = PACKED_RECORD.size

CHECKPOINT_VERSION: Final = 1
CHECKPOINT_MAGIC: Final = int.from_bytes(b"QCKP", "little")
CHECKPOINT_HEADER: Final = struct.Struct("<QIHHQQQQQ8x")

assert COMMIT_HEADER.size == 32
assert PART.size == 48
assert READ.size == SENDER.size == 24
assert FAILURE.size == 32
assert ENTRY.size == 16
assert SEEK.size == 16
assert SECTIONS_HEADER.size == SECTION.size == 8
assert VALUE.size == 16
assert HELD_HEADER.size == DECIDES_HEADER.size == 8
assert PAGE_HEADER.size == 64
assert RECORD_BYTES == 64
assert CHECKPOINT_HEADER.size == 64


@cache
def record_type() -> np.dtype[np.void]:
    """A record in an array of them."""
    record = np.dtype(_RECORD_FIELDS)
    assert record.itemsize == RECORD_BYTES
    return record
