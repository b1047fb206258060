"""Bounds of keyed states, with their reasons."""

from __future__ import annotations

from typing import Final

MAX_KEYED_NAME: Final = 180  # characters: the names made of it, of a queue and a state, have 200

# Runs that one look for a key goes through at most: a transaction that finds so many merges some
# of them first.
MAX_RUNS: Final = 8

# Ranges of hashes that tasks share the keys of a state by; each may write a run with a commit.
MAX_RANGES: Final = 1024

# The runs of one commit that are messages, of all ranges together, about: those who look are given
# them, which is up to `MAX_RUNS` times as much for each task.
LOOK_MESSAGE_BYTES: Final = 1 << 20

# From so many on a merge that is asked for merges some.
MERGED_RUNS: Final = 4

# A thread that merges beside begins where a transaction does not yet. The sooner, the more often
# each row is written: of 200 changes of 1,000 of 3 million rows from 4 runs on 550 MB, from 7 on
# 165, and by transactions alone 154.
AHEAD_RUNS: Final = MAX_RUNS - 1

# A merge takes the newest runs, and each older one that is smaller than so many times all that are
# newer: the larger, the fewer runs there are, and the more often each row is written again.
MERGE_RATIO: Final = 3

# A piece is read and verified as a whole for one row: between half of so many bytes and all of
# them. Its entry in the index, which is in memory while the run is open, takes 24 bytes.
PIECE_BYTES: Final = 4 << 10

# The filter of a run, by which most keys that it has not are known: a byte or two for each row, in
# memory while the run is open. The few runs of more rows have none.
MAX_FILTER_BYTES: Final = 4 << 20

# A look for more keys than this reads the pieces of so many at a time: some 16 MiB.
KEYS_AT_ONCE: Final = 4096

# So many bytes of pieces that lie together are read at once.
SPAN_BYTES: Final = 1 << 20

# Up to this a run is a message by itself, written with the record or to a page; a larger one is a
# file, which its writer makes durable before the commit names it.
RUN_MESSAGE_BYTES: Final = 256 << 10

# Rows that a merge, or a look at all rows, has in memory at a time, of all runs together, about.
# Where their texts are gathered, so many bytes take 24 times as many for a moment.
WINDOW_BYTES: Final = 4 << 20

# Rows that are due which are returned together, unless the caller says another number.
DUE_ROWS: Final = 10_000

# The changes of one transaction, which are in memory until they are written as a run.
MAX_PENDING_BYTES: Final = 64 << 20

# Runs that are messages are kept in memory once they were read, the latest ones.
CACHED_RUN_BYTES: Final = 32 << 20

# The indexes and filters of the latest runs are kept in memory: those of 100 million rows of 100
# bytes have some 300 MiB. And so many runs at most, most of which are open files.
OPEN_RUN_BYTES: Final = 640 << 20
MOST_OPEN_RUNS: Final = 640

# The key columns of a state: their number is a byte of a run's trailer.
MAX_KEY_COLUMNS: Final = 255

# Rows that are found together: the places of texts in a column of Arrow have 32 bits.
MAX_FOUND_BYTES: Final = (1 << 31) - 1

# Texts of so many bytes and more, on average, are gathered one by one, shorter ones byte by byte:
# that is faster for them, and takes 24 times their bytes for a moment.
LONG_TEXT_BYTES: Final = 64

# A merge reads so many bytes of runs, about, and then commits: more are merged range by range.
RANGE_BYTES: Final = 64 << 20

# Messages of runs that are looked through together, which are fewer.
MOST_MESSAGES: Final = 1_000_000

# While another process merges, and where a merge of all ranges would be larger than one of them, a
# hash may be in so many runs.
MOST_RUNS: Final = 2 * MAX_RUNS

# A merge holds a lock for so long after its last sign of life, and who waits for it looks so often.
MERGE_LOCK_SECONDS: Final = 10.0
MERGE_POLL_SECONDS: Final = 0.02

# How long a merge waits for another one of the same runs, in seconds.
MERGE_WAIT_SECONDS: Final = 3600.0

# The same of one that may be given up: it asks as often whether it is.
GIVE_UP_WAIT_SECONDS: Final = 1.0

# How long a thread that merges states waits after an error, from the first one on in a row.
MERGE_RETRY_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0)

# A look that finds its runs merged meanwhile begins anew.
LOOKS: Final = 100

assert RUN_MESSAGE_BYTES <= CACHED_RUN_BYTES <= OPEN_RUN_BYTES
assert 1 < MERGED_RUNS < MAX_RUNS
assert PIECE_BYTES <= RUN_MESSAGE_BYTES
