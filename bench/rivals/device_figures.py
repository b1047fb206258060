"""Measurements of a queueing system for small devices, for reference.

Source: the thesis from Stuttgart on indirect and asynchronous communication for ubiquitous systems
on the middleware BASE, its tables 4, 5 and 8 and section 7. Java without a just-in-time compiler on
a Pentium M of 1.7 GHz, remote over 100 Mbit/s to an Athlon XP 2000+; queues with priorities and
times of life, made anew for each of 20 rounds. Local are 1,000 messages, remote 100. What it calls
SimpleQueue holds messages in memory, SimplePersistentQueue on the disk.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ARCHIVE_KB", "LOCAL", "MEMORY_KB", "REMOTE", "DeviceRow", "Spread"]

LOCAL, REMOTE = 1_000, 100  # messages in what it measured
ARCHIVE_KB = 147  # the Java archive, BASE and the queues
MEMORY_KB = {"no queue": 122, "volatile": 124, "persistent": 126}  # with BASE


class Spread(NamedTuple):
    """Milliseconds of all messages: the average, and the least and most where they are told."""

    average: float
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        if self.least is None:
            return f"{self.average:g}"
        return f"{self.average:g} ({self.least:g} to {self.most:g})"


class DeviceRow(NamedTuple):
    """A row of its tables: an operation on all messages."""

    name: str
    characters: int
    volatile_local: Spread
    persistent_local: Spread
    volatile_remote: Spread
    persistent_remote: Spread


# Of its getAllMessages, local: about 0 to 10 ms, which its clock did not tell better.
_INSTANT = Spread(5, 0, 10)

TABLE_8 = (
    DeviceRow("put", 0, Spread(20, 10, 30), Spread(2546, 2483, 3483), Spread(713, 687, 750),
              Spread(848, 703, 922)),
    DeviceRow("get", 0, Spread(15, 10, 20), Spread(2495, 2414, 2533), Spread(710, 687, 750),
              Spread(900, 672, 1036)),
    DeviceRow("put", 1000, Spread(20, 20, 21), Spread(3365, 3345, 3395), Spread(807, 750, 985),
              Spread(892, 672, 1235)),
    DeviceRow("get", 1000, Spread(18, 10, 20), Spread(3378, 3345, 3425), Spread(982, 750, 1125),
              Spread(1016, 625, 1328)),
    DeviceRow("put all", 1000, Spread(20, 20, 20), Spread(3374, 3334, 3455), Spread(185, 171, 203),
              Spread(335, 219, 438)),
    DeviceRow("get all", 1000, _INSTANT, _INSTANT, Spread(202, 140, 234), Spread(200, 109, 360)),
)  # fmt: skip
