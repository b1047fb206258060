"""All limits of sharing a store between processes, each with its reason, and their relations."""

from __future__ import annotations

# --- frames ---

MAX_HEADER_BYTES = 64 << 20  # a lease of a long range lists its pieces here
MAX_FRAME_BYTES = (1 << 31) - (1 << 20)  # gRPC counts the bytes of a message in 31 bits
ANSWER_BYTES = 32 << 20  # an answer is cut into frames of about this size
SEND_AHEAD_BYTES = 8 << 20  # what a client buffers for one transaction before it sends it

assert SEND_AHEAD_BYTES + MAX_HEADER_BYTES < MAX_FRAME_BYTES
assert ANSWER_BYTES + MAX_HEADER_BYTES < MAX_FRAME_BYTES

# --- streams ---

MAX_STREAMS = 256  # each occupies a thread of the owner
MAX_IDLE_STREAMS = 4  # that a client keeps open for its next transactions
REMEMBERED_DECISIONS = 256  # of prepared transactions, the latest, for clients that ask again

assert MAX_IDLE_STREAMS < MAX_STREAMS

# --- time ---

HELLO_SECONDS = 5.0  # that a client waits for an owner's first answer
FINISH_SECONDS = 5.0  # for requests under way when the server closes
WAIT_SECONDS = 0.25  # between two looks whether the client of a waiting request is there

assert WAIT_SECONDS < FINISH_SECONDS

# --- the owner process ---

LOG_TAIL_BYTES = 4096  # where its last words are looked for
