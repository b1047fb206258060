"""All limits of Quire, each with its reason, and the relations between them."""

from __future__ import annotations

# --- messages and blocks ---

# One message's payload: larger objects belong in a file or object store, with a pointer here.
MAX_PAYLOAD_BYTES = 1 << 30

# A block's offsets are int32, so that Arrow can use them as they are.
MAX_BLOCK_BYTES = (1 << 31) - (1 << 12)

# What a message counts against its queue's capacity besides its bytes: its share of offsets,
# headers and bookkeeping. It bounds the number of empty messages.
MESSAGE_OVERHEAD_BYTES = 16

# Priority and group are stored in 16 bits.
MAX_PRIORITY = 0xFFFF
MAX_GROUP = 0xFFFF

# Headers are for routing; what is larger belongs in the payload.
MAX_STRING_BYTES = 64 << 10
MAX_ATTRIBUTES = 1000
MAX_ATTRIBUTES_BYTES = 64 << 10

# 9999-12-31T23:59:59.999999Z, the last instant that Python's datetime can show.
MAX_TIME_US = 253_402_300_799_999_999

# The blocks of a large transaction's file: one is in memory at a time.
MAX_LTDS_BLOCK_BYTES = 1 << 20

# What one write to a large transaction's file takes along: larger ones are no faster.
LTDS_WRITE_BYTES = 4 << 20

# How much of a large transaction's file may wait for a sync, so that finishing it costs little.
LTDS_SYNC_BYTES = 64 << 20

# A file that is not needed any more is cut by so much at a time, with a pause after it, so that
# commits do not wait while the file system frees it (measured: see `quire.engine.discarded`).
REMOVAL_SLICE_BYTES = 16 << 20
REMOVAL_PAUSE_SECONDS = 0.005

# A message of the largest payload and headers fits a block of its own.
assert MAX_PAYLOAD_BYTES + 4 * MAX_STRING_BYTES + MAX_ATTRIBUTES_BYTES + (1 << 20) < MAX_BLOCK_BYTES

# --- space ---

# What the control records of a transaction count against a queue's capacity: one fixed-width record
# each, whatever the form in which they are kept.
OPEN_BYTES = 64
COMMIT_BYTES = 64

DEFAULT_CAPACITY_BYTES = 1 << 30
MIN_CAPACITY_BYTES = 4096
MAX_CAPACITY_BYTES = 1 << 60

# --- the catalog ---

# Each queue and subscription is some 5 KB of objects in memory, and noted by every checkpoint.
MAX_QUEUES = 100_000
MAX_SUBSCRIPTIONS = 100_000

# A queue's or a subscription's entry: a name takes up to 200 bytes, each of its numbers up to 20.
MAX_CATALOG_ENTRY_BYTES = 1024

# --- transactions ---

# Up to this, a transaction's blocks travel inside its journal record. Measured with direct writes:
# a 256 KiB group takes 120 us where 4 KiB take 75 us, so one larger write beats two of any size.
DEFAULT_INLINE_LIMIT_BYTES = 256 << 10

# Past either, a transaction's messages go to files of their own as they arrive.
DEFAULT_LARGE_LIMIT_BYTES = 16 << 20
DEFAULT_LARGE_LIMIT_MESSAGES = 1_000_000

# All uncommitted messages in memory; past either, the oldest transactions leave the write buffer.
DEFAULT_WRITE_BUFFER_BYTES = 128 << 20
DEFAULT_WRITE_BUFFER_MESSAGES = 4_000_000

# A large transaction's messages wait for this much before they are written to its file.
LARGE_FLUSH_BYTES = 4 << 20

# The largest block in the data file; a reader holds a few in memory.
MAX_DATA_BLOCK_BYTES = 1 << 20

# Bytes of records that one group takes, so that the first of its commits does not wait for long.
GROUP_BYTES = 1 << 20

DEFAULT_TRANSACTION_TIMEOUT = 3600.0  # seconds, as the patent suggests (paragraph 0037)
DEFAULT_COMMIT_TIMEOUT = 5.0  # seconds that a commit waits for space (paragraph 0062)
MAX_LEDGER_KEY_BYTES = 1024

# A prepared transaction's name, in UTF-8: other transaction managers' ids fit (XA takes 128 bytes,
# PostgreSQL 199).
MAX_XID_BYTES = 200

# --- files ---

DEFAULT_PAGE_SIZE = 4096
DEFAULT_SEGMENT_BYTES = 64 << 20
# Of journal since the last checkpoint: bounds recovery (measured: 10 us a small commit, so 0.4 s).
# More of it lets more messages be read before they would have to be moved.
DEFAULT_CHECKPOINT_BYTES = 128 << 20
# Small files of the journal that only what makes room may use on a full disk: while one of them is
# written to, a checkpoint sets the other one free.
KEPT_BACK_SEGMENTS = 2
MAX_DATA_FILE_BYTES = 1 << 48  # addresses keep the file's number above it
# Each has a thread and write buffers of its own once files are written at the same time.
MAX_DATA_FILES = 16

# A checkpoint packs small blocks into blocks of about this size.
PACKED_BLOCK_BYTES = 256 << 10
PACKED_BLOCK_MESSAGES = 8192

# What a checkpoint moves, at most, so that a data file gets shorter: half a second of a disk that
# writes 128 MiB a second. At least one block is moved, whatever its size.
REORGANISE_BYTES = 64 << 20
# How many blocks and record pages that may be: each takes a moment of its queue's lock at the end
# (measured: 2,048 of each take 2 ms).
REORGANISE_BLOCKS = 2048
# How many record pages it reads to find what lies at a file's end: measured, these take 0.6 s.
REORGANISE_RECORD_PAGES = 16_384

# --- memory ---

RECORD_CACHE_BYTES = 16 << 20  # record pages of all queues: 3,400 of the default size
SCAN_AHEAD = 64  # records that a read structure holds
POINTERS_AT_ONCE = 1024  # looked up under one hold of a queue's lock: about 1 ms
INLINE_CACHE_BYTES = 64 << 20  # committed blocks that a reader probably takes soon
BLOCK_CACHE_BYTES = 16 << 20  # verified blocks that single gets take one message after another from
LTDS_READERS = 16  # open files of large transactions
LTDS_WRITERS = 64  # queues of a large transaction, past which their files are not kept open

# --- leases and fragments ---

DEFAULT_LEASE_SECONDS = 600.0
MAX_LEASES = 10_000
FRAGMENT_AGE_SECONDS = 24 * 3600.0  # a fragment that no commit adopted is removed after it

assert GROUP_BYTES <= MAX_DATA_BLOCK_BYTES * 4
assert DEFAULT_INLINE_LIMIT_BYTES <= DEFAULT_LARGE_LIMIT_BYTES
assert DEFAULT_INLINE_LIMIT_BYTES * 4 <= DEFAULT_SEGMENT_BYTES

# How often the store looks for what is over its time, in seconds.
INTERVAL_SECONDS = 0.5

# How often free space at the data files' ends is given back besides checkpoints, in seconds: where
# bursts follow each other faster, the next one finds the space still there.
TRIM_SECONDS = 60.0

# How long after a checkpoint that was made to shorten a data file the next one may be, in seconds:
# the disk is the commits' for most of the time.
REORGANISE_SECONDS = 2.0
