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
# March 1973. Moments are ints of microseconds: what is before is seconds, or milliseconds, by
# mistake. Those of today are 1.8 and 1,800 billion, so that they are found for a thousand years.
EARLIEST_INT_US = 100_000_000_000_000

# Up to this, a small block's bytes are copied a second time for the checksum; above it the checksum
# is patched into the one copy.
COPY_TWICE_BYTES = 16 << 10

# Rows of constant columns (the queue's name, a delivery count) that batches share.
ARROW_CACHED_ROWS = 1 << 16

# What `put_many` takes of an Arrow array as it is; more it takes in slices of this many rows, or of
# fewer where these are larger, so that no copy of the whole is made.
ARROW_WHOLE_ROWS = 1 << 18
ARROW_WHOLE_BYTES = 16 << 20
ARROW_SLICE_ROWS = 1 << 16
ARROW_SLICE_BYTES = 4 << 20

# The blocks of a large transaction's file: one is in memory at a time.
MAX_LTDS_BLOCK_BYTES = 1 << 20

# What one write to a large transaction's file takes along: larger ones are no faster.
LTDS_WRITE_BYTES = 4 << 20

# A reader of leased places on another host has so much of them by one request, and a writer of a
# fragment sends as much by one: the owner has it in memory for each of them.
PLACES_BYTES = 4 << 20

# A process with ports gives memory of so many bytes at once back to the system as it is freed.
LARGE_BLOCK_BYTES = 1 << 20

# A streamed payload: a reader, and a client that sends it, have one chunk in memory at a time. The
# places of all its chunks are in memory while it is written or read: 12 MiB for the largest.
CHUNK_BYTES = 1 << 20
MAX_STREAM_BYTES = 256 << 30

# How much of a large transaction's file may wait for a sync, so that finishing it costs little.
LTDS_SYNC_BYTES = 64 << 20

# A file that is not needed any more is cut by so much at a time, with a pause after it, so that
# commits do not wait while the file system frees it (measured: see
# `quire.engine.pages.discarded_files`).
REMOVAL_SLICE_BYTES = 16 << 20
REMOVAL_PAUSE_SECONDS = 0.005

# Of a typed queue's schema: its words as JSON in the catalog, its columns, and how deep they nest.
MAX_SCHEMA_BYTES = 8 << 10
MAX_COLUMNS = 1000
MAX_SCHEMA_DEPTH = 16

# Of a condition on columns: what a program writes is shorter, and each level is a call.
MAX_FILTER_BYTES = 16 << 10
MAX_FILTER_DEPTH = 64

# Of a selector. A text that is read as a number has no more characters than the longest double that
# is written out (some 330). Of those of up to 18 digits, which 64 bits hold in any case, many are
# read at once. Up to so many messages of a block are asked one by one: for fewer than some 20,
# arrays cost more (measured: decision 27).
MAX_NUMBER_CHARACTERS = 400
PLAIN_NUMBER_DIGITS = 18
CHECKED_ONE_BY_ONE = 8

# From this length on a block is read into memory that is mapped for it, in huge pages of this size.
# Below it the C library keeps what was freed at hand, which is faster; from it on it maps memory
# itself, in small pages, for each allocation (measured: decision 22).
MAPPED_READ_BYTES = 32 << 20
HUGE_PAGE_BYTES = 2 << 20

# Of several places of a file that are read, after so many it is looked at whether a medium had to
# read some of them: then it is asked for the rest at once.
PLACES_TOGETHER = 32

# A block of rows in a large transaction's file, and one that is told in how far its columns reach:
# for fewer rows to tell it takes longer than to read them.
ROWS_BLOCK_BYTES = 4 << 20
HEADED_BYTES = 64 << 10  # from this length on a block's head is read before the block
HEAD_READ_BYTES = 4096  # what is read of a block for its head; more if it is longer
STATISTICS_ROWS = 256
STATISTICS_COLUMNS = 64
STATISTICS_TEXT = 64  # characters of a string that are told
# A block of so many bytes of rows has a checksum for each column, unless these were more than one
# of so many bytes.
COLUMN_SUMS_BYTES = HEADED_BYTES
COLUMN_SUMS_SHARE = 64

# What a block of rows takes beside them and its schema, about; and what its objects take in memory
# besides those of any block: always, and for each column.
ROWS_HEAD_BYTES = 1024
ROWS_OBJECT_BYTES = 900
ROWS_COLUMN_BYTES = 400

# A message of the largest payload and headers fits a block of its own.
assert MAX_PAYLOAD_BYTES + 4 * MAX_STRING_BYTES + MAX_ATTRIBUTES_BYTES + (1 << 20) < MAX_BLOCK_BYTES
assert ARROW_SLICE_ROWS <= ARROW_WHOLE_ROWS
assert ARROW_SLICE_BYTES <= ARROW_WHOLE_BYTES
assert MAX_LTDS_BLOCK_BYTES <= LTDS_WRITE_BYTES <= LTDS_SYNC_BYTES
assert MAX_LTDS_BLOCK_BYTES <= MAX_BLOCK_BYTES
assert MAX_LTDS_BLOCK_BYTES <= ROWS_BLOCK_BYTES <= LTDS_WRITE_BYTES
assert CHUNK_BYTES <= LTDS_WRITE_BYTES <= PLACES_BYTES
assert HUGE_PAGE_BYTES <= MAPPED_READ_BYTES
assert MAX_PAYLOAD_BYTES <= MAX_STREAM_BYTES

# --- space ---

# What the control records of a transaction count against a queue's capacity: one fixed-width record
# each, whatever the form in which they are kept.
OPEN_BYTES = 64
COMMIT_BYTES = 64
CONTROL_BYTES = OPEN_BYTES + COMMIT_BYTES

DEFAULT_CAPACITY_BYTES = 1 << 30
MIN_CAPACITY_BYTES = 4096
MAX_CAPACITY_BYTES = 1 << 60

assert CONTROL_BYTES < MIN_CAPACITY_BYTES <= DEFAULT_CAPACITY_BYTES
assert DEFAULT_CAPACITY_BYTES <= MAX_CAPACITY_BYTES

# --- the catalog ---

# Each queue and subscription is some 5 KB of objects in memory, and noted by every checkpoint.
MAX_QUEUES = 100_000
MAX_SUBSCRIPTIONS = 100_000
MAX_ALIASES = 100_000  # of queues

# Archives: the journal and the released space that wait to be shipped. Beyond the limit `full` says
# what happens; the least is what a store needs to go on between two looks at it.
DEFAULT_ARCHIVE_LIMIT_BYTES = 10 << 30
MIN_ARCHIVE_LIMIT_BYTES = 64 << 10
UNSHIPPED_ENDS = 100  # of the journal, told to a shipper, whose times are kept for status
UNSHIPPED_STEP_BYTES = 1 << 20  # of the journal: what is released meanwhile waits as one
MAX_ARCHIVE_URL_BYTES = 500  # so that it fits an entry of the catalog

# Schedules, each in memory and noted by every checkpoint, with the message that it puts.
MAX_SCHEDULES = 10_000
MAX_SCHEDULE_ENTRY_BYTES = 16 << 10
MAX_CRON_CHARACTERS = 200
LATE_SECONDS = 60.0  # after which a due time is missed: that long a take-over may last
MAX_MISSED = 1000  # of these, that a schedule puts
# Missed ones are looked for in the last minute, and then in so many times as long a time each.
FIRST_WINDOW_US = 60_000_000
WIDER_WINDOW = 4
PUT_AT_ONCE = 100  # messages of schedules, before the maintenance does something else

# A queue's or a subscription's entry: a name takes up to 200 bytes, each of its numbers up to 20.
MAX_CATALOG_ENTRY_BYTES = 1024

# Of a queue's properties: its text and its free words, each. A queue with any of them has a longer
# entry; in JSON a byte of UTF-8 takes up to six.
MAX_TEXT_BYTES = 1024
MAX_PROPERTIES = 100
MAX_DELIVERIES = 0xFFFF
MAX_TTL_SECONDS = 100 * 366 * 86400
MAX_KEPT = 1 << 60  # messages of a queue; bytes or messages that a topic keeps when all have read
LET_GO_AT_ONCE = 65_536  # of these, by one commit: their records are looked up under one lock
LET_GO_PART = (
    64  # of a full topic's capacity: so much gives way at least, not a little for each put
)

# Of a message that is rejected: why, and how long it stays hidden.
MAX_REASON_BYTES = 4096
MAX_DELAY_SECONDS = 366 * 86400
FOREVER_SECONDS = 9_000_000_000.0  # 285 years: a wait without an end; a lock takes a little more
MAX_DOUBLINGS = 64  # of a retry's delay, which is above any cap then
REASONS_KEPT = 10_000  # of one subscription, until their messages are in the dead-letter queue
DEAD_LETTERS_AT_ONCE = 100  # that are moved by one commit
REDRIVEN_AT_ONCE = 1000  # messages that are looked at for one commit which puts dead letters back
STUCK_AT_ONCE = 8  # that never find room where they are to go: each time they are read in vain
EXPIRED_AT_ONCE = 4096  # messages that one commit drops: each takes a microsecond of a lock
# What one commit of a purge takes: more would hold up other commits while it is applied.
PURGED_AT_ONCE = 65_536  # messages
ROOM_TRIES = 100  # of one put or commit: others may take the room that was made for it
PURGED_RUNS = 1024  # of positions: they fit the smallest segments
ROWS_LOOKED_UP = 257  # offsets of payloads of a block that is read one by one, at a time
BYTES_LOOKED_UP = 65_536  # of these payloads, that are copied at once
RUNS_JOINED = 64  # that a transaction has got, and more, are joined before they are committed
MAX_SUBSCRIPTION_ENTRY_BYTES = MAX_CATALOG_ENTRY_BYTES + 6 * MAX_TEXT_BYTES  # with its selector
HANDOUT_RUNS = 1024  # of positions that one record notes: it fits the smallest segments
MAX_QUEUE_ENTRY_BYTES = (
    MAX_CATALOG_ENTRY_BYTES + 2 * 6 * MAX_TEXT_BYTES + 8 * MAX_PROPERTIES + MAX_SCHEMA_BYTES
)

# Request ids of a queue's puts, each some 300 bytes of memory and noted by every checkpoint.
MAX_REQUESTS = 100_000
MAX_REQUEST_ID_BYTES = 200
MAX_REQUESTS_BYTES = 1 << 20  # in the record of one transaction; half of what a record can have

# State: values by name and key that transactions set. All of it is in memory, some 600 bytes a key
# besides its bytes, and in every checkpoint.
MAX_STATE_KEYS = 100_000  # of all names together
MAX_STATE_KEY_BYTES = 1024
MAX_STATE_VALUE_BYTES = 1 << 20  # larger ones belong in a message, or in a file
FILES_NOTED = 64  # of an owner, closed ones too, before those are looked for
STATE_ENTRY_BYTES = 64  # what a key counts besides its own bytes and those of its value
MAX_STATE_NAME_BYTES = 16 << 20  # of one name; they come in one answer of the owner
MAX_STATE_BYTES = 32 << 20  # of all names: written again by each checkpoint
MAX_STATE_CHANGE_BYTES = 4 << 20  # that one transaction sets, as the journal has it
STATE_DROP_BYTES = 64  # of a key that is dropped, in the journal, at most

# --- transactions ---

# Up to this, a transaction's blocks travel inside its journal record. Measured with direct writes:
# a 256 KiB group takes 120 us where 4 KiB take 75 us, so one larger write beats two of any size.
DEFAULT_INLINE_LIMIT_BYTES = 256 << 10

# What a lone message takes in its commit's record beyond what it is charged, at most: its part, and
# the head and the columns of its block.
LIGHT_BLOCK_BYTES = 512

# Up to this, a record's blocks are copied behind its head: the journal has one piece to handle.
JOINED_RECORD_BYTES = 16 << 10

# Past either, a transaction's messages go to files of their own as they arrive.
DEFAULT_LARGE_LIMIT_BYTES = 16 << 20
DEFAULT_LARGE_LIMIT_MESSAGES = 1_000_000

# All uncommitted messages in memory; past either, the oldest transactions leave the write buffer.
DEFAULT_WRITE_BUFFER_BYTES = 128 << 20
DEFAULT_WRITE_BUFFER_MESSAGES = 4_000_000

# Of these a transaction takes steps from its write buffer: it tells the buffer only now and then.
BUFFER_STEP_BYTES = 64 << 10
BUFFER_STEP_MESSAGES = 4096

# A large transaction's messages wait for this much before they are written to its file.
LARGE_FLUSH_BYTES = 4 << 20

# The largest block in the data file; a reader holds a few in memory.
MAX_DATA_BLOCK_BYTES = 1 << 20

# The same in a queue whose order is by keys. Each message may be in another block than the one
# before it, and takes the reading and verification of all of that: measured, 50 us of 256 KiB, 30
# of 64 KiB and 24 of 16 KiB.
SCATTERED_BLOCK_BYTES = 16 << 10

# Bytes of records that one group takes, so that the first of its commits does not wait for long.
GROUP_BYTES = 1 << 20

# Changes that one thread has written together: each waits in the calls of the one before, a dozen
# frames of Python's stack, of which there may be 1,000.
GATHERED_CHANGES = 32

# Records that a queue's log holds of what was rolled back, before it drops them: once they are half
# of all.
LOGGED_ROLLBACKS = 1024

# What is committed without a sync is synced after so long, or once it is so much of the journal.
UNSYNCED_SECONDS = 1.0
UNSYNCED_BYTES = 4 << 20

DEFAULT_TRANSACTION_TIMEOUT = 3600.0  # seconds, as the patent suggests (paragraph 0037)
DEFAULT_COMMIT_TIMEOUT = 5.0  # seconds that a commit waits for space (paragraph 0062)
MAX_LEDGER_KEY_BYTES = 1024

# A prepared transaction's name, in UTF-8: other transaction managers' ids fit (XA takes 128 bytes,
# PostgreSQL 199).
MAX_XID_BYTES = 200

assert JOINED_RECORD_BYTES <= DEFAULT_INLINE_LIMIT_BYTES <= DEFAULT_LARGE_LIMIT_BYTES
assert DEFAULT_LARGE_LIMIT_BYTES <= DEFAULT_WRITE_BUFFER_BYTES
assert DEFAULT_LARGE_LIMIT_MESSAGES <= DEFAULT_WRITE_BUFFER_MESSAGES
assert BUFFER_STEP_BYTES < DEFAULT_WRITE_BUFFER_BYTES
assert BUFFER_STEP_MESSAGES < DEFAULT_WRITE_BUFFER_MESSAGES
assert GROUP_BYTES <= MAX_DATA_BLOCK_BYTES * 4
assert MAX_STATE_VALUE_BYTES * 2 < MAX_STATE_CHANGE_BYTES < MAX_STATE_NAME_BYTES < MAX_STATE_BYTES
assert MAX_CATALOG_ENTRY_BYTES < MAX_SCHEDULE_ENTRY_BYTES < GROUP_BYTES
assert MAX_CATALOG_ENTRY_BYTES < MAX_SUBSCRIPTION_ENTRY_BYTES < GROUP_BYTES
assert MAX_CATALOG_ENTRY_BYTES < MAX_QUEUE_ENTRY_BYTES < GROUP_BYTES
assert DEFAULT_COMMIT_TIMEOUT < DEFAULT_TRANSACTION_TIMEOUT

# --- files ---

# How much of a group that is torn or damaged is tried with other bits, 4,096 times.
MAX_TRIED_BYTES = 1 << 20
# Of the journal and of data files alike. Direct writes need 4096; larger pages waste more at the
# end of each commit's group.
MIN_PAGE_SIZE_BYTES = 4096
MAX_PAGE_SIZE_BYTES = 65536
DEFAULT_PAGE_SIZE = 4096
DEFAULT_SEGMENT_BYTES = 64 << 20
# Of journal since the last checkpoint: bounds recovery (measured: 10 us a small commit, so 0.4 s).
# More of it lets more messages be read before they would have to be moved.
DEFAULT_CHECKPOINT_BYTES = 128 << 20
# Of shipped records, their blocks and files, that a restore appends before it has them folded: so
# much more the disk holds, and recovery's memory is bounded by it.
APPENDED_BYTES = 128 << 20
# Small files of the journal that only what makes room may use on a full disk: while one of them is
# written to, a checkpoint sets the other one free.
KEPT_BACK_SEGMENTS = 2
# Of space, that the first segment and those for relieving groups have before they are used; no
# fewer pages than these, where pages are large.
FIRST_SEGMENT_BYTES = 128 << 10
FIRST_SEGMENT_PAGES = 8
# Released segments that wait for their next use; the rest is removed.
MAX_SPARES = 2
# Checkpoints that a compaction makes at most, each of which moves some of what is at a file's end.
COMPACT_ROUNDS = 64
# A group is gathered in a buffer that begins with the first of these and is kept up to the second;
# larger groups get one of their own, given back after.
FIRST_BUFFER_BYTES = 1 << 16
KEPT_BUFFER_BYTES = 1 << 20
# Segments that inline blocks are read from at one time, and some more.
READ_HANDLES = 16
# How much a scan of the journal reads at once, and a search for a later group behind its end.
SCAN_WINDOW_BYTES = 1 << 20
SEARCH_CHUNK_BYTES = 4 << 20
# What an opening writes to the journal itself; no reason for a checkpoint when it is closed.
IDLE_JOURNAL_BYTES = 64 << 10

# What things take in a checkpoint besides names and the records of messages, in bytes, rounded up:
# by these is counted what spare files have to be kept back for it.
CHECKPOINT_FIXED_BYTES = 4096
CHECKPOINT_QUEUE_BYTES = 768
CHECKPOINT_SUBSCRIPTION_BYTES = 256
CHECKPOINT_ARCHIVE_BYTES = 512  # the position and the times of what waits to be shipped
CHECKPOINT_ENTRY_BYTES = 32  # of the ledger, or a large transaction's file
CHECKPOINT_INTERVAL_BYTES = 16
CHECKPOINT_ATTEMPTS_BYTES = 40
# A set as bits has two bounds of its first run and two of its last one before the bits, which fill
# words; so it takes so many bytes besides an eighth for each integer in between.
RUNS_BOUNDS = 4
RUNS_WORD_BITS = 64
RUNS_BITS_BYTES = (RUNS_BOUNDS + 1) * RUNS_WORD_BITS // 8
CHECKPOINT_DIRECTORY_BYTES = 32
CHECKPOINT_REQUEST_BYTES = 17  # and its id
CHECKPOINT_STATE_BYTES = 96  # of a key's entry, besides name, key and value
# How much a checkpoint may grow before it is counted anew, and more for each queue: counting takes
# some microseconds a queue. So many messages are counted beforehand.
SPARE_STEP_BYTES = 80 << 10
SPARE_STEP_BYTES_PER_QUEUE = 2 << 10
COUNTED_MESSAGES = 1024
SPARE_MARGIN_BYTES = 32 << 10  # for what makes room and yet makes a checkpoint larger
# A byte of the journal adds two to a checkpoint at most, to the records and to the map of pages: 64
# and 32 for the 48 of a block of 1 MiB. Of a small group counts what is in it, so many times: most
# for an alias, 1024 of some 128 bytes.
GROWTH_TIMES = 2
COUNTED_TIMES = 8
SPARE_MOST_TIMES = 4  # what is wanted; spares that are larger are cut
MAX_DATA_FILE_BYTES = 1 << 48  # addresses keep the file's number above it
# Each has a thread and write buffers of its own once files are written at the same time.
MAX_DATA_FILES = 16

# A small data file grows by as much as it has, but by no less than the first of these and no more
# than the second, unless `grow_bytes` says otherwise. At its end stays free what the next commits
# need, so that they need not grow it again.
FIRST_GROW_BYTES = 256 << 10
DEFAULT_GROW_BYTES = 16 << 20
FILE_SLACK_BYTES = 1 << 20
# One write to a data file; a longer extent takes several. They are gathered in aligned buffers:
# more disk writes at a time than these bring no more throughput, and two are kept for the next.
MAX_WRITE_BYTES = 8 << 20
MIN_BUFFER_BYTES = 64 << 10
MAX_LENT_BUFFERS = 4
MAX_IDLE_BUFFERS = 2
# Free extents are taken as the lowest of this many smallest fitting ones. With 2 or more of them
# the extent at the end of the file, which has the highest address, is never taken before another.
FREE_SPACE_CANDIDATES = 8

# A file that is cut or zeroed gets zeros in pieces of this size.
ZERO_CHUNK_BYTES = 1 << 20

# What a checkpoint moves to a data file is written together, this much at a time.
MOVED_WRITE_BYTES = 4 << 20
# A checkpoint works beside commits in steps: so many between two looks at the clock, for as long as
# a commit may wait, and then it rests long enough for one that waits to go on.
PACE_STEPS = 16
PACE_WORK_SECONDS = 200e-6
PACE_REST_SECONDS = 50e-6

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

assert MIN_PAGE_SIZE_BYTES <= DEFAULT_PAGE_SIZE <= MAX_PAGE_SIZE_BYTES
assert MAX_PAGE_SIZE_BYTES % MIN_PAGE_SIZE_BYTES == 0
assert MIN_BUFFER_BYTES % MAX_PAGE_SIZE_BYTES == MAX_WRITE_BYTES % MIN_BUFFER_BYTES == 0
assert MAX_IDLE_BUFFERS <= MAX_LENT_BUFFERS
assert FIRST_GROW_BYTES <= DEFAULT_GROW_BYTES
assert FIRST_SEGMENT_BYTES < DEFAULT_SEGMENT_BYTES <= DEFAULT_CHECKPOINT_BYTES
assert FIRST_SEGMENT_PAGES * MAX_PAGE_SIZE_BYTES < DEFAULT_SEGMENT_BYTES
assert DEFAULT_INLINE_LIMIT_BYTES * 4 <= DEFAULT_SEGMENT_BYTES
assert FIRST_BUFFER_BYTES <= KEPT_BUFFER_BYTES
assert SCAN_WINDOW_BYTES % MAX_PAGE_SIZE_BYTES == SEARCH_CHUNK_BYTES % MAX_PAGE_SIZE_BYTES == 0
assert IDLE_JOURNAL_BYTES < DEFAULT_CHECKPOINT_BYTES
assert PACKED_BLOCK_BYTES <= MAX_DATA_BLOCK_BYTES <= MOVED_WRITE_BYTES <= MAX_WRITE_BYTES
assert SCATTERED_BLOCK_BYTES <= PACKED_BLOCK_BYTES
assert MAX_DATA_BLOCK_BYTES <= REORGANISE_BYTES
assert FREE_SPACE_CANDIDATES >= 2

# --- memory ---

RECORD_CACHE_BYTES = 16 << 20  # record pages of all queues: 3,400 of the default size
SCAN_AHEAD = 64  # records that a read structure holds
RECORDS_AT_ONCE = 1024  # that are unpacked together
INTERVALS_CHUNK = 1024  # intervals of a set that stand together: a change moves them
INDEXED_AT_ONCE = 65536  # messages whose headers are looked at together
GROUPED_AT_ONCE = 4096  # the same where they are grouped: each takes a microsecond of the lock
GROUP_NUMBER_BYTES = 32  # an int, in a dictionary of groups
GROUPS_PAGE, GROUPS_PAGE_BYTES = 32, 368  # positions whose groups stand together; what they take
GROUP_NUMBERS = (1 << 60) - 1  # the largest of those
POSITION_BITS = 47  # of a place in a queue's order: its rank is above them
POSITIONS = (1 << POSITION_BITS) - 1
assert (MAX_PRIORITY + 1) << POSITION_BITS <= 1 << 63  # as an array holds them
# Of an order by texts, how many bytes of each count: what waits takes some 120 bytes then.
ORDERED_TEXT_BYTES = 64
# Where somebody asks why a message is not delivered: how many headers are looked at for that at
# most, and how many pages of states, so that no queue takes longer than a moment.
EXPLAINED_MESSAGES = 65536
EXPLAINED_PAGES = 1024
EXPLAINED_SLACK_US = 1_000_000  # between two clocks, which are read one after another
ORDERED_AT_ONCE = 8192  # messages put in an order of many ranks together: some 5 ms of the lock
# Of an order by sequences: how long a message waits for those before it, and how many of a sender.
DEFAULT_SEQUENCE_SECONDS = 5.0
DEFAULT_SEQUENCE_HELD = 1000
MAX_SEQUENCE_HELD = 10_000
MAX_SEQUENCE_NUMBER = (1 << 63) - 1
# Of so many senders it is known which number is next, and of as many again that were heard before.
SEQUENCE_SENDERS = 50_000
# So many messages of a sender may follow one that was committed after them.
SEQUENCE_STEP_BITS = 20
assert DEFAULT_SEQUENCE_HELD <= MAX_SEQUENCE_HELD < 1 << SEQUENCE_STEP_BITS
# Parts of the ints that stand for messages in an order: a rank in one by sequences, when one that
# waits is due, whose it is.
SEQUENCE_RANK_BITS = POSITION_BITS + SEQUENCE_STEP_BITS + 1
SEQUENCE_RANKS = (1 << SEQUENCE_RANK_BITS) - 1
DUE_BITS = 64
DUES = (1 << DUE_BITS) - 1
SENDER_BITS = 60
assert GROUP_NUMBERS >> SENDER_BITS == 0
# In an order by numbers: the sign of a 64-bit float; how far a whole number within 64 bits and the
# float next to it may be apart; the rank of what is no number or text.
SIGN = 1 << 63
APART_BITS = 11
MIDDLE = 1 << APART_BITS - 1
LAST_RANK = 1 << 8 * ORDERED_TEXT_BYTES
LONGEST_CODE = (1 << 63) - 1  # of a place in an order, as an array holds them
LINE_RUN = 8192  # of them that are sorted together: some 3 ms
RUN_BYTES = 176  # what those take beside their codes: a list, a tuple, and the lowest code
# Of a position in a selection, measured: waiting, come back, in flight, with a time of its own.
LANE_BYTES, RETURNED_BYTES, TAKEN_BYTES, TIMED_BYTES = 8, 40, 150, 140
# Where each message is that is not read in commit order: a byte, in pages of so many, and what a
# page takes. By smaller ones all take more, by larger ones the few that are left of many.
POSITION_STATES_PAGE = 256
POSITION_STATES_PAGE_BYTES = 400
HEAPIFIED = 64  # that are pushed to a heap together; fewer are pushed one by one
NEVER_US = (1 << 63) - 1  # a time that does not come
MAX_MESSAGE_ID = (1 << 63) - 1  # as records hold them
LANE_SLACK = 1024  # positions that were taken in front of a lane, cut off when they are half of it
VOLATILE_RECORDS = 1024  # of a volatile queue's records, so many may be of messages that were read
# Blocks of volatile queues count until all of their messages were read: they are no larger.
VOLATILE_BLOCK_BYTES = 64 << 10
VOLATILE_BITS = 36  # an opening gives so many (2**36) ids and positions of volatile queues at most
VOLATILE_IDS = 1 << 62  # ids of messages in volatile queues are above it: others never get there
MEMORY_PAGE_BYTES = 64 << 10  # what a file of a store in memory takes at once
TEMPORARY_IDS = 1 << 31  # from here on, numbers of queues and subscriptions that no file knows
POINTERS_AT_ONCE = 1024  # looked up under one hold of a queue's lock: about 1 ms
INLINE_CACHE_BYTES = 64 << 20  # committed blocks that a reader probably takes soon
BLOCK_CACHE_BYTES = 16 << 20  # verified blocks that single gets take one message after another from
LTDS_READERS = 16  # open files of large transactions
LTDS_WRITERS = 64  # queues of a large transaction, past which their files are not kept open

assert MAX_PAGE_SIZE_BYTES * 64 <= RECORD_CACHE_BYTES

# --- leases and fragments ---

DEFAULT_LEASE_SECONDS = 600.0
MAX_LEASES = 10_000
FRAGMENT_AGE_SECONDS = 24 * 3600.0  # a fragment that no commit adopted is removed after it

# A reader of leased pieces hands out batches of up to so many rows and bytes.
BATCH_ROWS = 65536
BATCH_BYTES = 32 << 20
WHOLE_BATCH_ROWS = 8192  # rows of a block that are handed out as they lie, not joined with others
# How often a reader of the files looks for the newest checkpoint anew, while an owner makes one
# after the other; and a dump, which starts over.
CHECKPOINT_TRIES = 10
DUMP_TRIES = 10

assert DEFAULT_TRANSACTION_TIMEOUT < FRAGMENT_AGE_SECONDS
assert DEFAULT_LEASE_SECONDS < FRAGMENT_AGE_SECONDS

# --- showing ---

GRAPH_LINE_SECONDS = 5.0  # between two looks of `quire graph run` at what it tells
LAYOUT_PASSES = 8  # over the layers of a graph that is drawn, each untangles some crossings
DRAWN_WIDTH, DRAWN_HEIGHT = 158, 52  # of its node, in pixels
DRAWN_ACROSS, DRAWN_DOWN = 214, 76  # from one node to the next
DRAWN_MARGIN = 20
DRAWN_PADDING = 8  # on both sides of a node's text, which is made to fit
DRAWN_SMALLEST = 0.74  # how small letters get, of their size, before text is cut
DRAWN_NAME_SIZE, DRAWN_WORDS_SIZE = 13, 11  # of the letters of a name, and of what is below it
FIELD_START_CHARACTERS = 300  # of a field of the catalog, that a dump shows
PAYLOAD_START_BYTES = 40  # of a message's payload, that a dump shows
DUMPED_RECORDS = 100_000  # of a queue, that a dump asks the owner for
COMMAND_BATCH_MESSAGES = 1000  # that the command line puts or shows at once
COMMAND_VARIABLE_BYTES = 131_072  # of the environment of a command on a message, as Linux has it

NOTICE_IDS = 1000  # ids in one answer to a listener
NOTICE_ATTEMPTS = 10  # calls with a notice, after which a named listener whose function raises ends
NOTICE_LOOKS = 65_536  # messages that are looked at for them
RECENT_REMOVALS_KEPT = 4096  # parts of blocks that were read, for all who listen to a queue
RETURNS_KEPT = 4096  # runs of messages that became available after their put, likewise
RECENT_REMOVALS_BYTES = 4 << 20  # of these

# --- time ---

# How long opening waits for an owner that is just starting or just ending, on a machine that has
# much else to do, too (where eight processes started at once beside other work, 5 seconds were too
# few); for an owner process, which may have a journal to recover from; and between two looks.
JOIN_SECONDS = 15.0
START_SECONDS = 60.0
JOIN_POLL_SECONDS = 0.02

# How long a call waits for the successor of an owner that has ended, which has a journal to recover
# from; and how long a candidate pauses that could not open the store, in seconds.
HAND_OVER_SECONDS = 60.0
OWNERS_LOST = 10  # one after the other, while a loop takes a message: then it says so
CANDIDATE_PAUSE_SECONDS = 0.5

# How long a joined process waits for an owner that does not answer, as it is stopped: for calls
# that have no time-out of their own; beside the time-out of those that have one; and for an answer
# that is on its way when the task that waits for it is cancelled. In seconds.
DEFAULT_CALL_TIMEOUT = 60.0
ANSWER_SECONDS = 10.0
CANCEL_SECONDS = 0.5

# How long a subscription with `durable=False` waits for its clients after the store's opening: so
# long they have to find the next owner. In seconds.
CLAIM_SECONDS = HAND_OVER_SECONDS

# How often the store looks for what is over its time, in seconds.
INTERVAL_SECONDS = 0.5

# Of so many commits, and syncs, the time of one is counted.
TIMED_ONE_IN = 16
# Counts of times, by powers of two of microseconds: the last but one ends at 8.4 s.
TIME_COUNTS = 25
# Counts of groups by their size, by powers of two: the last one is of more than 1024 changes.
SIZE_COUNTS = 12

# How much more free space than its mark ends a warning: a sixteenth of the mark.
FREE_MARGIN_PART = 16

# How often a listener looks though nothing has woken it, so that its queue's owner knows that it
# still listens; and how long an owner keeps what is read for listeners that do not, in seconds.
LISTENER_POLL_SECONDS = 20.0
LISTENED_SECONDS = 60.0

# How long after its function has raised a named listener calls it again, in seconds; twice as long
# after each further time.
NOTICE_RETRY_SECONDS = 0.5

# How often free space at the data files' ends is given back besides checkpoints, in seconds: where
# bursts follow each other faster, the next one finds the space still there.
TRIM_SECONDS = 60.0

# How long after a checkpoint that was made to shorten a data file the next one may be, in seconds:
# the disk is the commits' for most of the time.
REORGANISE_SECONDS = 2.0

# --- the stack ---

# Calls within calls that there must be room for where one of the store's begins: 29 were seen in an
# open store, of which 23 came after a commit's write. And the same of a put to or a get from an
# open transaction, with what it does to step back: 17.
CALL_LEVELS = 48
PUT_LEVELS = 24

# --- asyncio ---

# Threads of a store object that make its calls: so many commits meet in one group of the journal.
# Half of them may wait for room in a queue.
AIO_THREADS = 32
AIO_PUTS = 28  # threads that put: one may wait for room, which who gets makes in another

# --- finding ---
# What a view of a queue holds that others have released since: blocks, and bytes of them; with
# more it is lost. And the ends of pages that it knows.
VIEWED_BLOCKS, VIEWED_BYTES, VIEWED_PAGES = 100_000, 256 << 20, 64
CHOSEN_WAIT_SECONDS = 0.5  # that a thread waits for what is asked for by what it is, at a time
PASSED_POSITIONS = 10_000  # that one who waits knows of, as others have them; else it looks anew
INDEXED_POSITIONS = 1 << 16  # messages whose values are hashed before they are sorted into an index
PATTERNS_KEPT = 1000  # of sources, whose turns are known
KEYS_IN_VAIN = 1000  # that are known of messages that are gone, beside as many as are there
HASHED_ONE_BY_ONE = 64  # bytes of a text that is looked for in an index: longer ones as arrays
LATE_INDEXED = 16  # new messages that are looked at rather than put into an index, each at each get
MAX_INDEXED_NAME, MAX_INDEXED = 200, 16  # characters of a name that is indexed; of a queue's names

# --- errors ---
# Among so many names it is looked for the one that was meant, which takes some milliseconds; a name
# that is longer or shorter by more characters was not.
NEAR_NAMES = 1000
NEAR_CHARACTERS = 3

# --- consumers ---

# Messages that a loop which found nothing waits for before it looks, at most (LM7): so many looks
# in vain are spared, and a backlog that comes then is taken at once after so many.
WAITED_FIRST = 64

# --- workers ---

# Threads of one handler: each holds a transaction, and in a joined store a connection.
MAX_CONCURRENCY = 256

# Seconds for messages in work when workers stop: service managers kill after some 30 s to 90 s.
WORKERS_GRACE_SECONDS = 20.0

# When a message comes again whose handler has failed, in seconds: twice as late after each further
# failure, up to the second. What is gone after a moment is tried soon; what stays costs little.
WORKERS_RETRY_SECONDS = 0.5
WORKERS_LONGEST_RETRY_SECONDS = 300.0

# How long a worker rests after a failure that every message would meet; twice as long after each
# further one, up to the second.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 30.0

# How long a transaction waits that is begun again after others were in its way; twice as long after
# each further attempt, up to the second.
FIRST_REPEAT_SECONDS, MAX_REPEAT_SECONDS = 0.02, 2.0

# How often it is looked, while workers end, whether they have, in seconds.
STOP_POLL_SECONDS = 0.05

# What images of a simulated machine take in memory that are kept of one run of a crash test; where
# more are wanted, another run goes on.
IMAGES_BYTES = 64 << 20

assert PUT_LEVELS <= CALL_LEVELS
assert STOP_POLL_SECONDS < WORKERS_GRACE_SECONDS
assert FIRST_PAUSE_SECONDS <= LONGEST_PAUSE_SECONDS
assert FIRST_REPEAT_SECONDS <= MAX_REPEAT_SECONDS
assert WORKERS_RETRY_SECONDS <= WORKERS_LONGEST_RETRY_SECONDS
assert LISTENER_POLL_SECONDS * 2 < LISTENED_SECONDS
assert JOIN_POLL_SECONDS < INTERVAL_SECONDS < JOIN_SECONDS < START_SECONDS
assert REMOVAL_PAUSE_SECONDS < INTERVAL_SECONDS < REORGANISE_SECONDS < TRIM_SECONDS
assert INTERVAL_SECONDS < UNSYNCED_SECONDS
