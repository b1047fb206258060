"""Measurements of a queueing system for small devices, for reference.

Source: the thesis from Stuttgart on indirect and asynchronous communication for ubiquitous systems
on the middleware BASE, its tables 4, 5 and 8 and section 7. Java without a just-in-time compiler on
a Pentium M of 1.7 GHz, remote over 100 Mbit/s to an Athlon XP 2000+; queues with priorities and
times of life, made anew for each of 20 rounds. Local are 1,000 messages, remote 100. What it calls
SimpleQueue holds messages in memory, SimplePersistentQueue on the disk.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ARCHIVE_KB", "LOCAL", "MEMORY_KB", "REMOTE", "Operation", "Taken"]

LOCAL, REMOTE = 1_000, 100  # messages in what it measured
ARCHIVE_KB = 147  # the Java archive, BASE and the queues
MEMORY_KB = {"no queue": 122, "volatile": 124, "persistent": 126}  # with BASE


class Taken(NamedTuple):
    """Milliseconds of all messages: the average, and the least and most where they are told."""

    average: float
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        if self.least is None:
            return f"{self.average:g}"
        return f"{self.average:g} ({self.least:g} to {self.most:g})"


class Operation(NamedTuple):
    """What was done with all messages, in one of its rows."""

    name: str
    characters: int
    volatile_local: Taken
    persistent_local: Taken
    volatile_remote: Taken
    persistent_remote: Taken


# Of its getAllMessages, local: about 0 to 10 ms, which its clock did not tell better.
_INSTANT = Taken(5, 0, 10)

TABLE_8 = (
    Operation("put", 0, Taken(20, 10, 30), Taken(2546, 2483, 3483), Taken(713, 687, 750),
              Taken(848, 703, 922)),
    Operation("get", 0, Taken(15, 10, 20), Taken(2495, 2414, 2533), Taken(710, 687, 750),
              Taken(900, 672, 1036)),
    Operation("put", 1000, Taken(20, 20, 21), Taken(3365, 3345, 3395), Taken(807, 750, 985),
              Taken(892, 672, 1235)),
    Operation("get", 1000, Taken(18, 10, 20), Taken(3378, 3345, 3425), Taken(982, 750, 1125),
              Taken(1016, 625, 1328)),
    Operation("put all", 1000, Taken(20, 20, 20), Taken(3374, 3334, 3455), Taken(185, 171, 203),
              Taken(335, 219, 438)),
    Operation("get all", 1000, _INSTANT, _INSTANT, Taken(202, 140, 234), Taken(200, 109, 360)),
)  # fmt: skip
