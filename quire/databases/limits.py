"""The limits of outboxes and inboxes."""

from quire.limits import MAX_STATE_VALUE_BYTES

# What a relay moves in one transaction: so many messages share the sync of its commit, and that of
# the database's. One that is larger than the bytes goes alone.
RELAY_BATCH_MESSAGES = 1000
RELAY_BATCH_BYTES = 4 << 20

# How often a relay looks whether anything waits, in seconds: two short queries.
RELAY_POLL_SECONDS = 0.1

# What is kept of the reason why a message was refused: those of a whole batch are one value.
RELAY_REASON_CHARACTERS = 200

# How long an inbox keeps the ids of what was read, in seconds: so old may the copy of a store be
# that one goes back to, and nothing is handled twice.
INBOX_KEEP_SECONDS = 7 * 24 * 3600.0

# How long a transaction on a file of SQLite waits for others that write, in seconds.
DATABASE_BUSY_SECONDS = 30.0

assert RELAY_BATCH_MESSAGES * (4 * RELAY_REASON_CHARACTERS + 32) < MAX_STATE_VALUE_BYTES
