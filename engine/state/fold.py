"""The fold: a record of the journal changes the durable state.

Records in, state out, in the journal's order. Live commits, recovery and `dump` use it alike, and
it is as pure as the state (see `durable_state`). What else a record brings about (space, pages,
files, who waits) is for those that stand beside: beside each queue (`QueueEffects`), and beside the
store (`Effects`). What is in memory only is folded by a second one.

- FO1: a COMMIT is applied here only (`Fold.commit`), whatever its shape and whoever applies it: the
  messages, what is read, the entries, then the further sections.
- Nothing is looked up but in the state and the record.
- What a record contradicts is told by `Effects.fault`. Recovery raises there; who goes on has the
  rest of the record applied as far as it makes sense.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from quire.engine.records import format
from quire.engine.records.commit_record import (
    CommitRecord,
    LedgerEntry,
    Part,
    ReadRow,
    attached_bytes,
    unpack,
)
from quire.engine.records.local_tail import mark_of, split
from quire.engine.records.prepared_record import PrepareRecord
from quire.errors import StoreCorrupt, StoreVersion
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES, Record

from . import catalog
from .catalog import CatalogChange, add_queue, change
from .durable_state import (
    LOST,
    NOBODY,
    PREPARED,
    DurableQueue,
    DurableState,
    Effects,
    QueueConfig,
    RowsByQueue,
)
from .sections.attachment import Attachment
from .sections.held import Held, Prepares
from .sections.kinds import read_sections
from .sections.section import Row, Section, Stamp, Verdict
from .sections.values import Values

RecordBody = CommitRecord | list[CatalogChange] | None


def decode(
    kind: int, body: memoryview, where: str, flags: int = 0, mark: int | None = None
) -> RecordBody:
    """Return the content of a record; None for a kind that this release does not know.

    `flags`: of its header. `mark`: of the group that it is in; None: it is in none. Raises
    StoreCorrupt, StoreVersion.
    """
    if flags & ~(format.TAIL | format.SECTIONS):
        raise StoreVersion(f"{where}: a record with flags {flags:#x}: use a newer release")
    if kind == format.COMMIT:
        try:
            return _commit(body, where, flags, mark)
        except (ValueError, OverflowError, struct.error) as error:
            raise StoreCorrupt(f"{where}: unreadable record of kind {kind} ({error})") from error
    if flags:
        raise StoreCorrupt(f"{where}: a record of kind {kind} with sections or a local tail")
    return catalog.unpack(bytes(body), where) if kind == format.CATALOG else None


def _commit(body: memoryview, where: str, flags: int, mark: int | None) -> CommitRecord:
    places: Sequence[int] = ()
    if flags & format.TAIL:
        body, places = split(body, where, mark)
    record = unpack(body, where, read_sections if flags & format.SECTIONS else None, places)
    attachment: Attachment | None = record.section(format.ATTACHMENT)
    attached = 0 if attachment is None else attachment.attachment_bytes
    if attached != attached_bytes([(None, record.parts)]) or bool(attached) != bool(places):
        raise StoreCorrupt(
            f"{where}: an attachment of {attached} bytes, and {len(places)} places of its blocks: "
            "a record without its local tail is another machine's"
        )
    held: Held | None = record.section(format.HELD)
    return record if held is None else held.checked(record)


def decode_record(record: Record, where: str) -> RecordBody:
    """Return the content of a record in the journal."""
    mark = mark_of(record.generation)
    return decode(record.kind, record.body, where, record.flags, mark)


def prepared_in(record: memoryview, where: str) -> PrepareRecord:
    """Return a prepared transaction's record, from its bytes. Raises StoreCorrupt."""
    _, kind, flags, _ = RECORD_HEADER.unpack_from(record)
    decoded = decode(kind, record[RECORD_HEADER_BYTES:], where, flags)
    held: Held | None = decoded.section(format.HELD) if isinstance(decoded, CommitRecord) else None
    if held is None or not isinstance(decoded, CommitRecord):
        raise StoreCorrupt(f"{where}: a record that is held, of kind {kind}: it is not prepared")
    return held.record(decoded)


class Committed(Protocol):
    """The changes of a commit, as they are folded."""

    @property
    def first_id(self) -> int:
        """The id of its first message."""

    @property
    def time_us(self) -> int: ...

    @property
    def groups(self) -> RowsByQueue:
        """The parts that it puts, by queue."""

    @property
    def reads(self) -> Sequence[ReadRow]: ...

    @property
    def entries(self) -> Sequence[LedgerEntry]: ...

    @property
    def sections(self) -> Sequence[Section]: ...

    @property
    def transaction_id(self) -> int:
        """By which the queues know it; 0: they do not."""


class FoldedCommit(Struct, frozen=True):
    """A commit that is folded from what a record says, or of sections alone."""

    first_id: int = 0
    time_us: int = 0
    groups: RowsByQueue = ()
    reads: Sequence[ReadRow] = ()
    entries: Sequence[LedgerEntry] = ()
    sections: Sequence[Section] = ()
    transaction_id: int = 0


class Fold:
    """Changes one durable state."""

    __slots__ = ("_effects", "state")

    def __init__(self, state: DurableState, effects: Effects) -> None:
        self.state = state
        self._effects = effects

    def take(
        self, kind: int, transaction_id: int, address: int, decoded: RecordBody, where: str
    ) -> None:
        """The next record of the journal, which is at the address; `said` is its `decode`.

        Raises StoreVersion for what only a newer release knows.
        """
        if isinstance(decoded, CommitRecord):
            self.commit(self._folded(decoded, transaction_id, where), address, where=where)
        elif decoded is not None:
            self.define(decoded, where)
        else:
            raise StoreVersion(
                f"{where}: a record of kind {kind}, unknown to this release: use a newer one"
            )

    def _folded(self, decoded: CommitRecord, transaction_id: int, where: str) -> FoldedCommit:
        """Return what takes effect of a record: all of it, or nothing before a decision."""
        held: Held | None = decoded.section(format.HELD)
        if held is not None:
            sections = (Prepares(held.record(decoded)),)
            return FoldedCommit(decoded.first_id, decoded.time_us, sections=sections)
        return FoldedCommit(
            decoded.first_id, decoded.time_us, self.groups(decoded.parts, where), decoded.reads,
            decoded.entries, decoded.sections, transaction_id,
        )  # fmt: skip

    def groups(self, parts: Sequence[Part], where: str) -> list[tuple[DurableQueue, list[Part]]]:
        """The parts with their queues; those of one queue stand together."""
        groups: list[tuple[DurableQueue, list[Part]]] = []
        queue_id = None
        for part in parts:
            if part.queue_id != queue_id:
                queue_id = part.queue_id
                groups.append((self._queue(queue_id, where), []))
            groups[-1][1].append(part)
        return groups

    def _queue(self, queue_id: int, where: str) -> DurableQueue:
        queue = self.state.queues.get(queue_id)
        if queue is None:
            self._effects.fault(where, f"names queue {queue_id}, which is not known")
            queue = self.lost_queue(queue_id)
        return queue

    def lost_queue(self, queue_id: int) -> DurableQueue:
        """In the stead of one whose definition is not known."""
        config = QueueConfig(queue_id, f"#{queue_id}", LOST, 0, None, 0, 0)
        queue = DurableQueue(config, self.state.ltds)
        add_queue(self.state, self._effects, queue, 0)
        return queue

    def commit(
        self, made: Committed, address: int, held_by: str = NOBODY, where: str = "a commit"
    ) -> None:
        """A transaction's record is durable at the address, or it has none: it is applied (FO1).

        `held_by`: what holds its space and its places until now.
        """
        state, first_id, time_us = self.state, made.first_id, made.time_us
        if made.entries:
            self._enter(made)
        for queue, parts in made.groups:
            first_id += queue.append(
                parts, first_id, time_us, address, held_by, made.transaction_id
            )
        if made.reads:
            queues = state.queues
            for read in made.reads:
                reader = queues.get(read[0])
                if reader is not None:  # else it was dropped after the transaction had read
                    reader.acknowledge(read)
        if first_id > state.next_id:
            state.next_id = first_id
        if time_us > state.last_time_us:
            state.last_time_us = time_us
        if made.sections:
            stamp = Stamp(address, made.first_id, time_us)
            for section in made.sections:
                section.fold(self, stamp, where)

    def _enter(self, made: Committed) -> None:
        """Entries of the ledger, and request ids of what is put."""
        first: dict[int, tuple[DurableQueue, int]] = {}
        first_id = made.first_id
        for queue, parts in made.groups:
            first[queue.queue_id] = queue, first_id
            first_id += sum(part[5] for part in parts)
        for key, version, queue_id in made.entries:
            if not queue_id:
                self.state.ledger[key] = version
            elif queue_id in first:
                queue, begin = first[queue_id]
                queue.keep_request(key, begin + version, made.time_us)

    def queues_of(self, rows: Iterable[Row]) -> Iterator[tuple[DurableQueue, Row]]:
        """Rows of a section with their queues; without those of queues that were dropped since."""
        queues = self.state.queues
        return ((queues[row[0]], row) for row in rows if row[0] in queues)

    def prepare(self, record: PrepareRecord, where: str, *, counted: bool = False) -> None:
        """A transaction is prepared. `counted`: it is in the checkpoint that the state is from."""
        state = self.state
        if record.xid in state.prepared:
            self._effects.fault(where, f"transaction {record.xid!r} is prepared twice")
        groups = self.groups(record.parts, where)
        state.prepared[record.xid] = record
        try:
            state.values.hold(record.xid, record.sets)
        except ValueError as error:
            self._effects.fault(where, f"contradictory ({error!r})")
        for queue, parts in groups:
            queue.hold(parts)
        self._effects.held(record, groups, counted=counted)

    def decide(self, decision: Verdict, stamp: Stamp, where: str) -> None:
        """A prepared transaction is committed, or rolled back."""
        state, commit = self.state, decision.commit
        record = state.prepared.get(decision.xid)
        if record is None or record.messages != decision.messages:
            text = f"decides {decision.xid!r}, which is not prepared like that"
            self._effects.fault(where, text)
        if record is None:
            return
        groups = self.groups(record.parts, where)
        del state.prepared[decision.xid]
        state.values.let_go(decision.xid, record.sets)
        if commit:
            sections = (Values(record.sets),) if record.sets else ()
            transaction_id = self._effects.known_as(record)
            made = FoldedCommit(
                stamp.first_id, stamp.time_us, groups, record.reads, record.entries, sections,
                transaction_id,
            )  # fmt: skip
            self.commit(made, stamp.address, PREPARED, where)
        self._effects.ended(record, groups, stamp.first_id if commit else None)
        if not commit:
            for part in record.parts:
                if part.kind == format.LTDS:
                    state.ltds.pop(part.address, None)

    def define(self, changes: Sequence[CatalogChange], where: str) -> None:
        """Entries of the catalog are put and deleted."""
        with self._effects.defining:
            for made in changes:
                try:
                    change(self.state, self._effects, made, where)
                except (KeyError, TypeError, ValueError, OverflowError) as error:
                    self._effects.fault(where, f"contradictory ({error!r})")
