"""A queue's records in the order in which they entered it, as far as they are not sealed.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0032, 0035-0037, 0047-0053: a queue
holds OPEN, message, COMMIT, ROLLBACK and INDIRECT records; the messages of a transaction that left
the write buffer before its end stand apart from each other, with those of others in between.

A transaction whose messages never left the buffer enters as a whole, when it commits: the log keeps
where it was opened and where it ended, its messages are in the record list. A checkpoint seals what
is committed into record pages, where every record is a message or INDIRECT record of a committed
transaction: no control record is needed there, and nothing interleaves any more.

- QL1: places are the queue's end position at the time, and a number that counts up.
- QL2: what a finished transaction left here goes with the checkpoint that seals it, and what was
  rolled back as soon as that is more than `LOGGED_ROLLBACKS` records and half of all (promise 9).
- QL3: messages here are those of transactions that left the buffer (the sublists of the figures).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from quire.engine.records import format
from quire.engine.records.block_ref import KIND_NAMES, BlockRef
from quire.engine.records.commit_record import Part
from quire.limits import LOGGED_ROLLBACKS
from quire.reports.info import QueueRecord

OPEN: Final = "OPEN"
MESSAGES: Final = "MESSAGES"
INDIRECT: Final = "INDIRECT"
COMMIT: Final = "COMMIT"
ROLLBACK: Final = "ROLLBACK"


class QueueLogPlace(NamedTuple):
    """A place in the order (QL1)."""

    number: int
    position: int


class QueueLogEntry(NamedTuple):
    """Messages that left the write buffer, or a ROLLBACK, which stands for its OPEN too."""

    place: QueueLogPlace
    kind: str
    transaction_id: int
    part: Part | None = None
    opened: tuple[int, int] | None = None  # as a QueueLogPlace


class Commit(NamedTuple):
    """A COMMIT record, which stands for its OPEN too; the messages are those of [start, end)."""

    number: int
    start: int
    end: int
    transaction_id: int
    opened_number: int
    opened_position: int


# Most transactions leave nothing here but this: it is kept small, and away from the collector.
_COMMIT: Final = struct.Struct("6q")
_pack_commit = _COMMIT.pack
_END: Final = Commit._fields.index("end")
_ID: Final = Commit._fields.index("transaction_id")


class Sealing(NamedTuple):
    """The part of the log that a checkpoint drops: entries, those of them to keep, commits."""

    entries: int
    kept: list[QueueLogEntry]
    commits: int


class QueueLog:
    """The records of a queue that are not sealed, in their order. Covered by the queue's lock."""

    __slots__ = ("_commits", "_number", "_rolled_back", "_spills", "entries", "opened", "sealing")

    def __init__(self) -> None:
        self.entries: list[QueueLogEntry] = []
        self.opened: dict[int, tuple[int, int]] = {}  # by transaction, as a QueueLogPlace
        self.sealing = False  # a checkpoint has looked at the entries
        self._commits = bytearray()
        self._spills: dict[int, int] = {}  # open transactions with messages here (QL3), in records
        self._number = 0
        self._rolled_back = 0

    def next_place(self, position: int) -> tuple[int, int]:
        """The place of an OPEN record, for `opened`."""
        self._number = number = self._number + 1
        return number, position

    def spilled(self, transaction_id: int, position: int, parts: Iterable[Part]) -> None:
        """Messages left the write buffer before their transaction's end."""
        for part in parts:
            self._spills[transaction_id] = self._spills.get(transaction_id, 0) + 1
            self._number += 1
            place = QueueLogPlace(self._number, position)
            self.entries.append(QueueLogEntry(place, MESSAGES, transaction_id, part))

    def commit(self, transaction_id: int, start: int, end: int) -> None:
        """The transaction's messages have the positions [start, end)."""
        opened = self.opened.pop(transaction_id, None)
        if opened is not None:
            if self._spills:
                self._spills.pop(transaction_id, None)
            self._number = number = self._number + 1
            opened_number, position = opened
            self._commits += _pack_commit(
                number, start, end, transaction_id, opened_number, position
            )

    def rollback(self, transaction_id: int, position: int) -> None:
        """Without messages in the queue there is nothing to be marked as rolled back."""
        opened = self.opened.pop(transaction_id, None)
        if opened is None or transaction_id not in self._spills:
            return
        self._rolled_back += self._spills.pop(transaction_id) + 1
        self._number += 1
        place = QueueLogPlace(self._number, position)
        self.entries.append(QueueLogEntry(place, ROLLBACK, transaction_id, None, opened))
        count = len(self.entries)
        if self._rolled_back > max(LOGGED_ROLLBACKS, count >> 1) and not self.sealing:
            self.drop(Sealing(count, self._without(self.entries, set()), 0))

    # Sealing (QL2)

    def begin_sealing(self) -> tuple[int, int]:
        """How much there is, for `to_seal`; it stays where it is until `drop`."""
        self.sealing = True
        return len(self.entries), len(self._commits)

    def to_seal(self, entries: int, commits: int, position: int) -> Sealing:
        """Return the part to drop when the position is sealed. Needs no lock until `drop`."""
        numbers = memoryview(bytes(self._commits[:commits])).cast("q")
        width = len(Commit._fields)
        sealed = bisect_right(numbers[_END::width], position)
        first = self.entries[:entries]
        apart = {entry.transaction_id for entry in first}
        ended = apart.intersection(numbers[_ID : sealed * width : width].tolist())
        return Sealing(entries, self._without(first, ended), sealed * _COMMIT.size)

    def drop(self, sealing: Sealing) -> None:
        """It is sealed."""
        self.entries[: sealing.entries] = sealing.kept
        del self._commits[: sealing.commits]
        ended = {entry.transaction_id for entry in self.entries if entry.kind == ROLLBACK}
        self._rolled_back = sum(1 for entry in self.entries if entry.transaction_id in ended)
        self.sealing = False

    def _without(self, entries: list[QueueLogEntry], ended: set[int]) -> list[QueueLogEntry]:
        """The entries but those of transactions that were rolled back, or have `ended`."""
        gone = ended | {e.transaction_id for e in entries if e.kind == ROLLBACK}
        return [entry for entry in entries if entry.transaction_id not in gone]

    # Looking

    def copy(self) -> QueueLog:
        """Return a copy for `records`, to be read without the queue's lock."""
        other = QueueLog()
        other.entries = list(self.entries)
        other.opened = dict(self.opened)
        other._commits = self._commits[:]
        return other

    def records(self, committed: Iterable[BlockRef]) -> Iterator[QueueRecord]:
        """All records of the queue in queue order; `committed` are those of its record list."""
        apart = {(e.transaction_id, e.part.address) for e in self.entries if e.part is not None}
        owned = list(self._owned(committed))
        positions = {  # of what left the buffer before; not by the place alone, which is used again
            (owner, ref.address): ref.position
            for ref, owner in owned
            if ref.kind == format.DATA and (owner, ref.address) in apart
        }
        events = deque(sorted(self._events(positions), key=lambda event: event[0]))
        for ref, owner in owned:
            while events and events[0][0].position <= ref.position:
                yield events.popleft()[1]
            if ref.kind != format.DATA or (owner, ref.address) not in apart:
                yield _record(ref, ref.position, owner)
        for _, record in events:
            yield record

    def _owned(self, committed: Iterable[BlockRef]) -> Iterator[tuple[BlockRef, int | None]]:
        """Each record with the transaction that committed it, as far as that is known."""
        owners = deque(self._committed())
        for ref in committed:
            while owners and owners[0].end <= ref.position:
                owners.popleft()
            owned = owners and owners[0].start <= ref.position
            yield ref, owners[0].transaction_id if owned else None

    def _committed(self) -> Iterator[Commit]:
        return (Commit(*fields) for fields in _COMMIT.iter_unpack(self._commits))

    def _events(
        self, positions: dict[tuple[int | None, int], int]
    ) -> Iterator[tuple[QueueLogPlace, QueueRecord]]:
        for transaction_id, place in self.opened.items():
            yield QueueLogPlace(*place), QueueRecord(OPEN, transaction_id)
        for commit in self._committed():
            opened = QueueLogPlace(commit.opened_number, commit.opened_position)
            yield opened, QueueRecord(OPEN, commit.transaction_id)
            yield (
                QueueLogPlace(commit.number, commit.end),
                QueueRecord(COMMIT, commit.transaction_id),
            )
        for place, kind, transaction_id, part, began in self.entries:
            if began is not None:
                yield QueueLogPlace(*began), QueueRecord(OPEN, transaction_id)
            if part is not None:
                position = positions.get((transaction_id, part.address))
                yield place, _record(part, position, transaction_id)
            else:
                yield place, QueueRecord(kind, transaction_id)


def _record(ref: BlockRef | Part, position: int | None, transaction_id: int | None) -> QueueRecord:
    kind = INDIRECT if ref.kind == format.LTDS else MESSAGES
    where = KIND_NAMES[ref.kind]
    return QueueRecord(kind, transaction_id, ref.count, position, where, ref.address, ref.length)
