"""Bounds of sessions and requests, with their reasons."""

from __future__ import annotations

from typing import Final

MAX_SESSION_NAME: Final = 180  # characters: the names made of it, of a queue and a state, have 200

# Requests of a session that have ended, of which it keeps what became of them until it is told to
# forget them: those of the last minutes of a busy client, in some 30 KiB and ten values. They
# are moved, and dropped, so many at a time, and in one transaction.
FINISHED_KEPT: Final = 1000
FINISHED_AT_ONCE: Final = 100

# How much of the reason of a failure is kept with many that have ended, so that a hundred of them
# fit a value of a state (1 MiB) whatever they say.
ENDED_REASON_CHARACTERS: Final = 1000

# How long after nobody waits for it any more a reply to `Store.request` is kept, in seconds.
LATE_REPLY_SECONDS: Final = 60.0

# How long a reply without a time of its own is kept in the queue that clients share, in seconds:
# one to a request without a time-out, or by a server that knows no Quire. Who waits takes it at
# once; what is left after a day is a dead client's.
UNCLAIMED_REPLY_SECONDS: Final = 86400.0

# How long a request that has failed for good is kept from others, in seconds: until its error is
# put as its reply, by a commit that may have to wait for a sync.
FAILED_REQUEST_SECONDS: Final = 10.0
