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

# How much of a large transaction's file may wait for a sync, so that finishing it costs little.
LTDS_SYNC_BYTES = 64 << 20

# A message of the largest payload and headers fits a block of its own.
assert MAX_PAYLOAD_BYTES + 4 * MAX_STRING_BYTES + MAX_ATTRIBUTES_BYTES + (1 << 20) < MAX_BLOCK_BYTES
