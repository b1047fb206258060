"""All limits of the Spark data source, each with its reason, and the relations between them."""

from __future__ import annotations

from quire.limits import DEFAULT_INLINE_LIMIT_BYTES, FRAGMENT_AGE_SECONDS

# --- writing ---

# What one task may send to the commit inside its message: as much as the journal takes at once.
# A file in its stead is made, synced with its directory, and adopted: five operations of the file
# system in the place of none.
INLINE_BYTES = DEFAULT_INLINE_LIMIT_BYTES
# All messages of a write are in the driver's memory together, and Spark refuses more than
# spark.driver.maxResultSize: the tasks behind the first ones send less.
INLINE_TASKS = 256
LATER_INLINE_BYTES = 64 << 10
# What waits for one queue before it is written: several blocks of a file at once.
FLUSH_BYTES = 4 << 20
ROWS_FLUSH_BYTES = 8 << 20  # of rows, whose blocks are larger
PENDING_BYTES = 32 << 20  # what waits for all queues of a task
# From this on a queue's share of a task is worth a file of its own; below it, a sync for each queue
# costs more than putting the messages once more (measured, 16 queues: with 64 KiB each 143 ms in
# files of their own and 28 ms in a shared one, with 256 KiB 173 and 73, with 1 MiB 233 and 221).
OWN_FILE_BYTES = 1 << 20
# Rows of many queues are gathered up to this, so that a queue gets its share in few pieces: each
# costs some 50 us, whatever its size.
GATHER_BYTES = 16 << 20
CACHED_ROWS = 1 << 16  # rows of constant columns that batches share
# How often a commit looks into the ledger anew where another one came between.
LEDGER_TRIES = 5
QUEUE_FULL_PAUSE_SECONDS = 0.1  # before a commit that found no room is tried again

# Checkpoints of which a process knows what it has made durable; others are synced anew.
KNOWN_CHECKPOINTS = 64
# Of a ledger version's 63 bits: enough to tell inputs apart, and 31 are left for the micro-batch.
DIGEST_BITS = 32

assert DIGEST_BITS % 8 == 0
assert LATER_INLINE_BYTES <= INLINE_BYTES < OWN_FILE_BYTES <= FLUSH_BYTES < PENDING_BYTES
assert GATHER_BYTES < PENDING_BYTES

# --- reading ---

# A task costs some 40 ms whatever it reads, as much as reading 30 MB: one for each core is best, up
# to a size that is not too much to lose when a task fails.
PARTITION_BYTES = 256 << 20
SMALL_BYTES = 8 << 20  # below this, a second task costs more than it gains
ASSUMED_MESSAGE_BYTES = 128  # what a message is taken for where a piece does not tell its bytes
# Of a file at a server, fetched when it is opened: its trailer, and a directory of 1,500 blocks.
FILE_END_BYTES = 64 << 10
# A lease outlives the tasks that it was made for, which cannot end it, but not for ever.
LEASE_SECONDS = 600.0
# How often a range is looked for while its queue is dropped and made again under the reader.
LEASE_TRIES = 5

# How long a micro-batch waits for minOffsetsPerTrigger: as long as with Spark's Kafka connector.
DEFAULT_TRIGGER_DELAY_SECONDS = 900.0
# How many messages a byte limit looks at first, and how many times as many where they are too few.
FIRST_LOOK_MESSAGES = 1 << 10
LOOK_GROWTH = 4

# The last time by which a read may begin or end: dates go no further.
LAST_TIME_MS = 253_402_300_799_999  # the end of the year 9999

# Of a checkpoint's log: Spark begins with the last entry, and reads the one before it too.
LOG_ENTRIES_NEEDED = 2
# A source that has been stopped ends within moments; one that goes on so long is another reader.
HOLD_PATIENCE_SECONDS = 10.0
HOLD_PAUSE_SECONDS = 0.05
# Of names at a server: free so long after their holder was killed, who has renewed them three times
# as often.
NAMES_SECONDS = 9.0
# Sources that Spark makes of one load in one query: one for each side of its joins with itself.
MAX_SOURCES_OF_A_LOAD = 16

assert HOLD_PAUSE_SECONDS < NAMES_SECONDS < HOLD_PATIENCE_SECONDS
assert ASSUMED_MESSAGE_BYTES < SMALL_BYTES < PARTITION_BYTES
assert LEASE_SECONDS < FRAGMENT_AGE_SECONDS

# How long a source waits before it looks again where there was nothing, at most, and as a share of
# the time that there was nothing: a look at 50 queues takes some 10 ms of processor time in all, of
# which most is Spark's own, whatever the look finds.
IDLE_PAUSE_SECONDS = 1.0
IDLE_SHARE = 0.1

# Queues of which a process remembers that they are not volatile; it asks once for each.
QUEUES_KNOWN = 100_000

# --- graphs ---

MAX_TITLE = 60  # characters of the names of graphs and steps: others are made of both
# What a batch of a step takes where nothing is said: as much as a task or two read, and not more to
# do again when it fails.
DEFAULT_STEP_BYTES = 256 << 20
DEFAULT_STEP_MESSAGES = 1 << 24
# A batch of so many bytes at most, with what became of the batch before, is read in the driver
# and written there: two stages of Python workers cost 100 ms.
LOCAL_BYTES = 1 << 20
# Rows of states of so many bytes, about, are in memory together: more that a batch may ask for are
# found by tasks, bit by bit, and of more that are due the earliest ones fire first.
FOUND_BYTES = 16 << 20
BLOCK_ROWS = 10_000  # of such a batch in one task, as Spark has it where nothing is said
# Places that the tasks of a batch are told of, about: each takes some 100 bytes in every task.
STEP_PIECES = 50_000
# Where batches end behind markers and nowhere else: more places than these are refused, as the
# tasks' memory has to hold them.
MARKER_PIECES = 10 * STEP_PIECES
# What one look for markers reads, about: well below a second, so that a step ends when it is told.
MARKER_LOOK_BYTES = 64 << 20
MARKERS_BYTES = 1 << 20  # of the markers of an input that are known and not passed yet
MARKER_OBJECT_BYTES = 100  # that each of them takes beside the bytes of its value
MARKER_PAUSE_SECONDS = 0.2  # between looks for markers where something waits to be read
# A batch that finds no room keeps what its tasks have written for so long, and is done anew later:
# well before the owner takes the files for forgotten.
FULL_HOLD_SECONDS = 300.0
FULL_PAUSE_SECONDS = (0.02, 0.05, 0.1, 0.25, 0.5)  # between looks whether there is room
# How long a step waits before it tries again after an error, from the first one on in a row.
RETRY_PAUSE_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
ATTEMPTS_BEFORE_TELLING = 2  # of a batch, since most errors are not of a message
CONFLICTS_BEFORE_TELLING = 10  # of one batch with whoever else changes its states, in a row
# How long a batch is told apart before what is known of it is committed.
DEFAULT_POISON_SECONDS = 30.0
# So many rows are told apart by a plan of their own, which costs some ten trials; fewer without.
PLANNED_ROWS = 16
# Dead letters of one batch, each of which has a stack trace that the driver has in memory.
MOST_DEAD_LETTERS = 5000
# Rows of which a share that fails is told, and the share above which the function is wrong: a step
# that goes on then puts all its input to the dead letters.
POISON_WINDOW = 1000
DEFAULT_POISON_SHARE = 0.1
DEAD_TRACE_BYTES = 16 << 10  # of a stack trace, its end
DEAD_REASON_BYTES = 2 << 10
POSITION_DIGITS = 18  # of a message's position in the attributes of a dead letter
REPLAY_MESSAGES = 1000  # dead letters that are put back through a step in one transaction
# Of rows that were due about so many bytes: they are changes of a state, 64 MiB in a transaction.
REPLAY_BYTES = 16 << 20
REPLAY_ROWS_AT_ONCE = 25  # of them, each time until there are so many bytes
# With Spark Connect, which does not say how many cores there are, so many tasks try the executors.
EXECUTOR_TASKS = 16
EXECUTOR_TRIAL_SECONDS = 0.2  # that each of them takes at least
RATE_SECONDS = 60.0  # over which rates are told
LOOK_SECONDS = 10.0  # of a lease that is given back at once
WATCH_SECONDS = 1.0  # how often a run looks whether a step is to pause
STOP_SECONDS = 60.0  # how long a run waits for a step that was told to stop

assert FULL_HOLD_SECONDS < LEASE_SECONDS < FRAGMENT_AGE_SECONDS
assert FIRST_LOOK_MESSAGES < STEP_PIECES
# Ranges of keys that tasks share a state's rows by, where a batch is too large for the driver: each
# is a run with its commit.
STATE_RANGES = 8

assert LOCAL_BYTES < DEFAULT_STEP_BYTES

# --- connecting ---

# How long to go on trying to reach a store: an owner that died is started anew and recovers first.
PATIENCE_SECONDS = 60.0
LIMIT_PAUSE_SECONDS = 2.0  # at most, between two tries at a server that has no room
