"""Sequences: messages of one sender wait for those that it has numbered before them.

It stands between what a selection learns and what stands ready. What is let through gets a rank by
which it comes behind what its sender has numbered before it, and else by its position; so it keeps
its place whatever is rolled back, and groups and rollbacks need to know nothing of sequences.

Source: "Message Queues Service", section 4: an order by the sending, by numbers that
clients give, and a buffer of messages that follow others which have not come yet.

- SQ1: of a sender the next number is let through, and a lower one, which is late or comes again,
  at its own position. Others wait. A sender of which nothing is known begins with 0 or 1.
- SQ2: a message waits no longer than until it is due, and no more than so many of a sender wait.
  What is let through then, in the order of the numbers, is a gap: `gaps` tells what is missing.
  Times are the monotonic clock's (SL9).
- SQ3: which number is next is known of the senders that were heard last: of what is read by the
  records that read it, of the rest as long as the selection. Of others it is not known whether
  anything is missing before their first number: it waits.
- A sender is known by 60 bits of its name's checksum. Two that share them are one, of whose numbers
  some come late.
- SQ5: what waits takes some 60 bytes, a sender some 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from sys import getsizeof
from typing import Any, Final

from quire.limits import (
    DUE_BITS,
    DUES,
    GROUP_NUMBERS,
    LANE_SLACK,
    POSITION_BITS,
    POSITIONS,
    SENDER_BITS,
    SEQUENCE_RANK_BITS,
    SEQUENCE_RANKS,
    SEQUENCE_SENDERS,
    SEQUENCE_STEP_BITS,
)

from .ready_positions import held_between, int_bytes

UNKNOWN: Final = -1
"""Missing before a message, where it is not known which number was next."""
_NOTHING: Final[Mapping[int, int]] = {}
NO_SEQUENCE: Final = 0
"""The link of a message without a number."""


def link_of(number: int, sender: int) -> int:
    """The place of a message in its sender's sequence: its number, and its sender."""
    return (number + 1) << SENDER_BITS | sender


def number_of(link: int) -> tuple[int, int]:
    """The number, and the sender, of a link that is one."""
    return (link >> SENDER_BITS) - 1, link & GROUP_NUMBERS


class Sequences:
    """The sequences of a subscription's senders. Covered by the queue's lock."""

    __slots__ = (
        "_behind",
        "_due",
        "_known",
        "_latest",
        "_most",
        "_older",
        "_read",
        "_waiting",
        "gaps",
        "missed",
        "wait_us",
    )

    def __init__(self, wait_seconds: float, most: int, read: Mapping[int, int] = _NOTHING) -> None:
        """`read`: by sender, the number after the highest that is read; kept by who makes this."""
        self._read = read
        self.wait_us = int(wait_seconds * 1e6)
        self._most = most
        # By sender: the next number, and in the lowest bits the rank of the one before it.
        self._known: dict[int, int] = {}
        self._older: dict[int, int] = {}  # of senders that were not heard lately
        # By sender, a heap: number, position, when it is due, group.
        self._waiting: dict[int, list[int]] = {}
        self._due: list[tuple[int, int]] = []  # a heap: when something of a sender is due
        self._latest = 0  # when the last of all that came is due
        self.gaps: dict[int, int] = {}  # by position, how many numbers are missing before it
        self._behind: dict[int, int] = {}  # by position, the ranks that are not its own
        self.missed = 0  # gaps so far

    # What comes

    def arrive(
        self, position: int, link: int, group: int, time_us: int
    ) -> list[tuple[int, int, int]]:
        """A message is there since then; what is let through by that: position, rank and group."""
        if link == NO_SEQUENCE:
            return [(position, position << SEQUENCE_STEP_BITS, group)]
        number, sender = number_of(link)
        known = self._next_of(sender)
        expected = known >> SEQUENCE_RANK_BITS if known else 1
        if number < expected and known:
            return [(position, position << SEQUENCE_STEP_BITS, group)]
        if number <= expected:
            shown = [self._rank_behind(position, sender, number, known & SEQUENCE_RANKS, group)]
            self._follow(sender, shown)
            return shown
        waiting = self._waiting.get(sender)
        due = time_us + self.wait_us
        if waiting is None:
            waiting = self._waiting[sender] = []
            self._call_at(due, sender)
        elif due < self._latest:  # it came back: perhaps it is due before those that wait
            self._call_at(due, sender)
        self._latest = max(self._latest, due)
        code = (number << POSITION_BITS | position) << DUE_BITS | due
        heappush(waiting, code << SENDER_BITS | group)
        if len(waiting) <= self._most:
            return []
        return self._release_lowest(sender, 1)

    def note_number(self, sender: int, number: int) -> list[tuple[int, int, int]]:
        """All of a sender below this number is read; what is let through by that."""
        known = self._next_of(sender)
        if number > known >> SEQUENCE_RANK_BITS:
            self._know(sender, number, known & SEQUENCE_RANKS)
        shown: list[tuple[int, int, int]] = []
        self._follow(sender, shown)
        return shown

    def overdue(self, now_us: int) -> list[tuple[int, int, int]]:
        """Let go of the messages that have waited long enough, and return them (SQ2)."""
        shown: list[tuple[int, int, int]] = []
        while self._due and self._due[0][0] <= now_us:
            _, sender = heappop(self._due)
            waiting = self._waiting.get(sender, [])
            over = [code for code in waiting if _due_of(code) <= now_us]
            if over:
                last = max(over)
                shown += self._release_lowest(sender, sum(code <= last for code in waiting))
                waiting = self._waiting.get(sender, [])
            if waiting:
                heappush(self._due, (min(map(_due_of, waiting)), sender))
        return shown

    def _call_at(self, due: int, sender: int) -> None:
        """Look at the sender then, at the latest."""
        heappush(self._due, (due, sender))
        if len(self._due) > LANE_SLACK + 2 * len(self._waiting):  # of most nothing waits any more
            self._due = [
                (min(map(_due_of, codes)), key) for key, codes in self._waiting.items() if codes
            ]
            self._due.append((due, sender))
            heapify(self._due)

    @property
    def next_due_us(self) -> int | None:
        """Return when something may be overdue; None: nothing waits."""
        return self._due[0][0] if self._waiting and self._due else None

    # Letting through

    def _rank_behind(
        self, position: int, sender: int, number: int, before: int, group: int
    ) -> tuple[int, int, int]:
        """Behind the rank of the one before it."""
        rank = max(position << SEQUENCE_STEP_BITS, before + 1)
        if rank == before + 1:
            self._behind[position] = rank
        self._know(sender, number + 1, rank)
        return position, rank, group

    def _follow(self, sender: int, shown: list[tuple[int, int, int]]) -> None:
        """Let those through that have waited for nothing else."""
        waiting = self._waiting.get(sender)
        while waiting:
            known = self._next_of(sender)
            number, position, group = _split(waiting[0])
            if number > known >> SEQUENCE_RANK_BITS:
                return
            heappop(waiting)
            if number == known >> SEQUENCE_RANK_BITS:
                shown.append(
                    self._rank_behind(position, sender, number, known & SEQUENCE_RANKS, group)
                )
            else:  # it comes again
                shown.append((position, position << SEQUENCE_STEP_BITS, group))
        if waiting is not None:
            del self._waiting[sender]

    def _release_lowest(self, sender: int, count: int) -> list[tuple[int, int, int]]:
        """So many of the lowest numbers that wait, whatever is missing."""
        shown: list[tuple[int, int, int]] = []
        while len(shown) < count:
            known = self._next_of(sender)
            number, position, group = _split(heappop(self._waiting[sender]))
            self.gaps[position] = number - (known >> SEQUENCE_RANK_BITS) if known else UNKNOWN
            self.missed += 1
            shown.append(self._rank_behind(position, sender, number, known & SEQUENCE_RANKS, group))
            self._follow(sender, shown)
        return shown

    # Who is known (SQ3)

    def _next_of(self, sender: int) -> int:
        known = self._known.get(sender)
        if known is None:
            known = self._older.get(sender)
        return self._read.get(sender, 0) << SEQUENCE_RANK_BITS if known is None else known

    def _know(self, sender: int, number: int, rank: int) -> None:
        if len(self._known) >= SEQUENCE_SENDERS and sender not in self._known:
            self._older, self._known = self._known, {}
        self._older.pop(sender, None)
        self._known[sender] = number << SEQUENCE_RANK_BITS | rank

    # All of it

    def rank_of(self, position: int) -> int:
        """With which it was let through."""
        return self._behind.get(position, position << SEQUENCE_STEP_BITS)

    def forget(self, start: int, end: int) -> None:
        """[start, end) is read."""
        for position in held_between(self._behind, start, end):
            del self._behind[position]
        for position in held_between(self.gaps, start, end):
            del self.gaps[position]
        if not self.gaps:
            self.gaps = {}  # the space of many that there were
        if not self._behind:
            self._behind = {}  # the same

    def awaited(self, position: int, link: int) -> tuple[int | None, int]:
        """Return which number a message waits for, and until when; None: that is not known.

        By the clock that nobody sets; 0: it does not wait.
        """
        _, sender = number_of(link)
        known = self._next_of(sender)
        dues = [
            _due_of(code) for code in self._waiting.get(sender, ()) if _split(code)[1] == position
        ]
        return known >> SEQUENCE_RANK_BITS if known else None, min(dues, default=0)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that the sequences take (SQ5)."""
        tables: list[Any] = [self._known, self._older, self._waiting, self._due, self.gaps]
        tables.append(self._behind)
        size = sum(map(getsizeof, tables))
        size += (len(self._known) + len(self._older)) * (32 + int_bytes(list(self._known.values())))
        for waiting in self._waiting.values():
            size += getsizeof(waiting) + len(waiting) * int_bytes(waiting)
        return size + 120 * len(self._due) + 32 * (len(self.gaps) + 2 * len(self._behind))


def _split(code: int) -> tuple[int, int, int]:
    """Number, position and group."""
    place = code >> DUE_BITS + SENDER_BITS
    return place >> POSITION_BITS, place & POSITIONS, code & GROUP_NUMBERS


def _due_of(code: int) -> int:
    return code >> SENDER_BITS & DUES
