"""Bounds of an archive, with their reasons."""

from __future__ import annotations

from typing import Final

# An object that is made by one exclusive request; it and its answer are in memory as a whole.
MAX_CREATE_BYTES: Final = 16 << 20

# What one request carries of a larger object; at least 5 MiB, the least part of an upload to S3.
TRANSFER_BYTES: Final = 8 << 20

# The longest name of an object: a path in a directory, of at most 255 bytes a part, with room for
# what stands before it. S3 takes 1,024.
MAX_NAME_LENGTH: Final = 200

# When a temporary file in a directory is taken for what a process that was killed has left. Every
# write makes it younger, and an object is written in one go.
TEMPORARY_AGE_SECONDS: Final = 24 * 3600.0

# How long one request may take: a part on a line of 0.3 MB/s. A server that answers no connection
# is found sooner.
CALL_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 5.0

# How often, and for how long, a request is repeated after a failure that may pass: servers ask for
# pauses up to seconds when they have too much to do, and are replaced within a minute.
MAX_TRIES: Final = 10
RETRY_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 5.0

# How often an object that is refused and not there is tried: each time others had begun and failed.
CREATE_TRIES: Final = 10

# How many objects one request deletes, as S3 takes them.
DELETE_BATCH: Final = 1000

# The parts of an upload that are on their way at a time, and in memory; S3 takes 10,000 in all.
CONCURRENT_PARTS: Final = 4
MAX_UPLOAD_BYTES: Final = 10_000 * TRANSFER_BYTES

# The blocks of a base go into objects of so many bytes: few requests for a large store, and a small
# loss of work where one is broken off.
PACK_BYTES: Final = 64 << 20
PACK_RECORDS: Final = 1 << 16

# Of an object that is read from its beginning to its end: a read, and how many are under way at a
# time where each takes its way to another machine.
READ_BYTES: Final = 1 << 20
READS_AT_ONCE: Final = 64

# The lease under which a base is made: renewed while it is read, it ends by itself after a crash.
BASE_LEASE_SECONDS: Final = 600.0
BASE_RENEW_SECONDS: Final = 60.0

# Objects that no base names are of one that was broken off, or that is being made: the younger ones
# are spared.
UNNAMED_AGE_SECONDS: Final = 24 * 3600.0

# How long a clean-up waits for the store's record of it to be shipped.
BOUNDARY_SECONDS: Final = 120.0

# A base is made once the entries since the newest one weigh as much as it, but no less than this,
# as making one reads the whole store; or once that is so old.
MIN_BASE_ENTRY_BYTES: Final = 64 << 20
BASE_SECONDS: Final = 24 * 3600.0

# A restored store numbers its openings from so many after that of the backup: a store that went on
# had others, and of volatile queues each opening gives ids of its own. Some 2**26 are told apart.
OPENINGS_PASSED: Final = 1 << 20

# An entry of records ends with the group that makes it so large, or after so long.
ENTRY_BYTES: Final = 4 << 20
ENTRY_SECONDS: Final = 1.0

# An attachment up to this size stands in its entry, as long as that is no larger than the second.
ENTRY_ATTACHMENT_BYTES: Final = 1 << 20
ENTRY_ATTACHED_BYTES: Final = 8 << 20

# Where the head of an entry and the names in it are: read at once.
ENTRY_HEAD_READ_BYTES: Final = 4096

# Small entries are merged into one object once they are so many bytes, or so many, or so old; those
# of a larger mean stay what they are, as reading them takes few requests.
MERGED_BYTES: Final = 64 << 20
MERGED_ENTRIES: Final = 1 << 14
MERGED_SECONDS: Final = 3600.0
MERGED_MEAN_BYTES: Final = 1 << 20

# What merged entries are at most, with the last one that was added: an object that is larger is
# none.
MAX_MERGED_BYTES: Final = MERGED_BYTES + 2 * MAX_CREATE_BYTES

assert ENTRY_BYTES + ENTRY_ATTACHED_BYTES < MAX_CREATE_BYTES

# How often an archive is listed anew, as its entries are merged while it is read.
LISTINGS: Final = 5

# After an error a shipper waits, twice as long each time, and tries again.
SHIP_PAUSE_SECONDS: Final = 1.0
MAX_SHIP_PAUSE_SECONDS: Final = 60.0
# A base that was not made, or was found not to be due, is looked at again after so long.
BASE_PAUSE_SECONDS: Final = 60.0

# The end of a store's owner waits for its shipper a little longer than that ships what is left.
LAST_STEPS_SECONDS: Final = 4.0
