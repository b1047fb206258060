"""All limits of the Spark data source, each with its reason, and the relations between them."""

from __future__ import annotations

from quire.limits import DEFAULT_INLINE_LIMIT_BYTES, FRAGMENT_AGE_SECONDS

# --- writing ---

# What one task may send to the commit inside its message: as much as a small transaction.
INLINE_BYTES = 64 << 10
# What waits for one queue before it is written: several blocks of a file at once.
FLUSH_BYTES = 4 << 20
PENDING_BYTES = 32 << 20  # what waits for all queues of a task
CACHED_ROWS = 1 << 16  # rows of constant columns that batches share
QUEUE_FULL_PAUSE_SECONDS = 0.1  # before a commit that found no room is tried again

assert INLINE_BYTES <= DEFAULT_INLINE_LIMIT_BYTES
assert INLINE_BYTES < FLUSH_BYTES < PENDING_BYTES

# --- reading ---

# A task costs some 40 ms whatever it reads, as much as reading 30 MB: one for each core is best, up
# to a size that is not too much to lose when a task fails.
PARTITION_BYTES = 256 << 20
SMALL_BYTES = 8 << 20  # below this, a second task costs more than it gains
ASSUMED_MESSAGE_BYTES = 128  # what a message is taken for where a piece does not tell its bytes
# A lease outlives the tasks that it was made for, which cannot end it, but not for ever.
LEASE_SECONDS = 600.0
# How often a range is looked for while its queue is dropped and made again under the reader.
LEASE_TRIES = 5

# Of a checkpoint's log: Spark begins with the last entry, and reads the one before it too.
LOG_ENTRIES_NEEDED = 2
# A source that has been stopped ends within moments; one that goes on so long is another reader.
HOLD_PATIENCE_SECONDS = 10.0
HOLD_PAUSE_SECONDS = 0.05

assert HOLD_PAUSE_SECONDS < HOLD_PATIENCE_SECONDS
assert ASSUMED_MESSAGE_BYTES < SMALL_BYTES < PARTITION_BYTES
assert LEASE_SECONDS < FRAGMENT_AGE_SECONDS

# --- connecting ---

# How long to go on trying to reach a store: an owner that died is started anew and recovers first.
PATIENCE_SECONDS = 60.0
