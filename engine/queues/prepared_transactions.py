"""Prepared transactions: durable, undecided, and kept until somebody decides (two-phase commit).

What can fail fails when a transaction is prepared; the decision then only has to be recorded. Its
commit records in particular have their space from then on: "Managing message queues" (JP
2008-547130), paragraph 0062, says what goes wrong when a promised commit finds none.

- H1: a prepared transaction holds its queues' space, its commit records included, the pages and
  files of its messages, the messages that it has got, and its ledger keys. So its commit lacks
  nothing, and its rollback gives back exactly that.
- H2: it belongs to the store, not to who prepared it: nothing but a decision ends it (promise 7),
  and checkpoints and the journal tell recovery all of it.
- H3: it is decided once: a second decision, and one that comes while another is being written,
  finds nothing. It is found by its xid, and by the object where one is given: a late decision
  never reaches a later transaction of the same xid.
- Everything here is changed in the journal's order, by one thread at a time; others look at single
  values only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct

from quire.engine.pages.block_places import Places
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import LedgerEntry, Part, Read
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.state.durable_state import PartsByQueue
from quire.engine.state.sections.failures import Failure
from quire.errors import KeyHeld, TransactionNotFound, XidExists
from quire.ltds import is_foreign
from quire.reports.info import PreparedInfo

from .queue import Queue
from .subscription import Subscription


class PreparedPhase(Enum):
    """PLACED -> PREPARED <-> DECIDING, which stays once the decision is durable."""

    PLACED = "placed"  # the PREPARE record is being written
    PREPARED = "prepared"  # it is durable
    DECIDING = "deciding"  # a decision is being written


class PreparedParticipant(Protocol):
    """The transaction object that was prepared, as long as its process lives."""

    def turn_prepared(self) -> None:
        """The PREPARE record is durable."""

    def turn_decided(self, first_id: int | None) -> None:
        """It is committed, its messages' ids begin there; None: it is rolled back."""

    def abandon(self, reason: str) -> None:
        """The object cannot be used any more."""


class PreparedTransaction(Struct, eq=False):
    """One of them. A queue that it has written to stays."""

    record: PrepareRecord
    participant: PreparedParticipant | None = None
    transaction_id: int = 0  # by which the queues' logs know it; 0 after recovery
    phase: PreparedPhase = PreparedPhase.PLACED

    @property
    def stands(self) -> bool:
        """Return True if its preparation is durable; also when it is decided by now."""
        return self.phase is not PreparedPhase.PLACED


class PreparedTransactions:
    """All of a store. See the module."""

    def __init__(self, queues: dict[int, Queue], places: Places) -> None:
        self._queues = queues
        self._places = places
        self._by_xid: dict[str, PreparedTransaction] = {}
        # Ledger keys and request ids that are held, and the xid that holds each.
        self._keys: dict[str | tuple[int, str], str] = {}

    def __iter__(self) -> Iterator[PreparedTransaction]:
        """Those that are durable and not decided, in the order in which they were prepared."""
        return (p for p in list(self._by_xid.values()) if p.stands)

    # Looking

    def check_entries(self, entries: Sequence[LedgerEntry]) -> None:
        """Raise `KeyHeld` if a ledger entry must wait for a decision (H1)."""
        for entry in entries:
            holder = self._keys.get(entry.held_as)
            if holder is not None:
                kind = "request id" if entry.queue_id else "ledger key"
                raise KeyHeld(
                    f"the {kind} {entry.key!r} is held by the prepared transaction {holder!r}: "
                    "try again when it is decided (store.prepared)"
                )

    def reader_of(self, subscription_id: int) -> str | None:
        """The xid of a prepared transaction that has got messages of the subscription."""
        for prepared in list(self._by_xid.values()):
            for read in prepared.record.reads[: prepared.record.taken]:
                if read.subscription_id == subscription_id:
                    return prepared.record.xid
        return None

    def taker_of(self, subscription_id: int, position: int) -> PrepareRecord | None:
        """Return the record of the prepared transaction that has got a message."""
        for prepared in self:
            for read in prepared.record.reads[: prepared.record.taken]:
                if read.subscription_id == subscription_id and read.start <= position < read.end:
                    return prepared.record
        return None

    def putter_to(self, queue_id: int) -> PrepareRecord | None:
        """Return the record of the first prepared transaction that has put to a queue."""
        for prepared in self:
            if any(part.queue_id == queue_id for part in prepared.record.parts):
                return prepared.record
        return None

    def info(self, now_us: int) -> list[PreparedInfo]:
        return [self._info(prepared.record, now_us) for prepared in self]

    def _info(self, record: PrepareRecord, now_us: int) -> PreparedInfo:
        ids = {part.queue_id for part in record.parts} | {read.queue_id for read in record.reads}
        queues = (self._queues.get(queue_id) for queue_id in ids)
        return PreparedInfo(
            xid=record.xid,
            prepared_us=record.prepared_us,
            age_seconds=max(0, now_us - record.prepared_us) / 1_000_000,
            queues=tuple(sorted(queue.name for queue in queues if queue is not None)),
            messages=record.messages,
            bytes=sum(part.charge for part in record.parts),
        )

    def held(self, queue: Queue) -> tuple[int, int, int]:
        """Count transactions that hold of a queue (H1), their charge and messages; for checks."""
        queue_id = queue.queue_id
        held = [[p for p in one.record.parts if p.queue_id == queue_id] for one in self]
        return sum(map(bool, held)), *_sums([part for own in held for part in own])

    # Preparing

    def place(self, prepared: PreparedTransaction) -> None:
        """A PREPARE record takes its place in the order. Raises `XidExists`."""
        record = prepared.record
        if record.xid in self._by_xid:
            raise XidExists(
                f"there is a prepared transaction {record.xid!r} already: decide it "
                "(store.prepared), or prepare under another xid"
            )
        keys = {entry.held_as: record.xid for entry in record.entries}
        self._by_xid[record.xid] = prepared
        self._keys |= keys

    def hold(self, record: PrepareRecord, groups: PartsByQueue, *, counted: bool) -> None:
        """The PREPARE record is durable: see `Effects.held`."""
        prepared = self._by_xid.get(record.xid)
        live = prepared is not None  # an open transaction held all of it until now
        if prepared is None:
            prepared = PreparedTransaction(record)
            self.place(prepared)
        for durable, parts in groups:
            charge, messages = _sums(parts)
            queue = self._queues[durable.queue_id]
            with queue.lock:
                if live:
                    queue.space.prepare(charge, messages)
                elif counted:
                    queue.space.keep_prepared(charge, messages)
                else:
                    queue.space.recovered_prepared(charge, messages)
            for part in parts:
                if part.kind == format.DATA and not counted:
                    self._places.commit(part, live)
        if not live:
            for _, subscription, start, end in self._taken(prepared):
                subscription.delivered += end - start
        prepared.phase = PreparedPhase.PREPARED
        if prepared.participant is not None:
            prepared.participant.turn_prepared()

    # Deciding

    def decide(self, xid: str, expected: PreparedTransaction | None) -> PreparedTransaction:
        """A decision takes its place in the order (H3). Raises `TransactionNotFound`."""
        prepared = self._by_xid.get(xid)
        if (
            prepared is None
            or prepared.phase is not PreparedPhase.PREPARED
            or expected not in (None, prepared)
        ):
            raise TransactionNotFound(
                f"there is no prepared transaction {xid!r} (any more): store.prepared.list() "
                "lists them"
            )
        prepared.phase = PreparedPhase.DECIDING
        return prepared

    def reads_of(self, xid: str) -> Sequence[Read]:
        """Return the positions that the transaction reads when it is committed."""
        prepared = self._by_xid.get(xid)
        return () if prepared is None else prepared.record.reads

    def failing(self, xid: str) -> list[Failure]:
        """Return the failures to note if the transaction is rolled back (U7 of `subscription`)."""
        prepared = self._by_xid.get(xid)
        failures: list[Failure] = []
        for reader, subscription, start, end in [] if prepared is None else self._taken(prepared):
            with reader.lock:
                if subscription.retry is not None:
                    failures += subscription.failing(start, end, subscription.retry)
        return failures

    def undecide(self, prepared: PreparedTransaction) -> None:
        """The decision was not written."""
        prepared.phase = PreparedPhase.PREPARED

    def known_as(self, record: PrepareRecord) -> int:
        """Return the transaction's id in the queues' logs: see `Effects.known_as`."""
        return self._by_xid[record.xid].transaction_id

    def end(self, record: PrepareRecord, groups: PartsByQueue, first_id: int | None) -> None:
        """The decision is durable: see `Effects.ended`."""
        prepared = self._by_xid[record.xid]
        if first_id is None:
            self._give_back(prepared, groups)
        for reader, subscription, start, end in self._taken(prepared):
            with reader.lock:
                if first_id is None:
                    noted = subscription.retry is not None
                    subscription.give_back(start, end, counted=True, noted=noted)
                    reader.wake()
                else:
                    subscription.delivered -= end - start
                    if subscription.is_guarded:
                        reader.wake()
        self.withdraw(prepared)
        if prepared.participant is not None:
            prepared.participant.turn_decided(first_id)
            prepared.participant = None

    def _give_back(self, prepared: PreparedTransaction, groups: PartsByQueue) -> None:
        """Give back space, log entries, pages and files of a rolled-back transaction."""
        for durable, parts in groups:
            queue = self._queues[durable.queue_id]
            with queue.lock:
                queue.space.rollback_prepared(*_sums(parts))
                queue.log.rollback(prepared.transaction_id, queue.end_position)
            for part in parts:
                # A file that another process wrote is its writer's again.
                if part.kind != format.LTDS or not is_foreign(part.address):
                    self._places.free([ref_of(part)])

    def withdraw(self, prepared: PreparedTransaction) -> None:
        """The PREPARE record was not written, or the decision is."""
        del self._by_xid[prepared.record.xid]
        for entry in prepared.record.entries:
            del self._keys[entry.held_as]

    # Messages in flight

    def _taken(
        self, prepared: PreparedTransaction
    ) -> Iterator[tuple[Queue, Subscription, int, int]]:
        """Yield the positions that it has got, in subscriptions that are still there."""
        for read in prepared.record.reads[: prepared.record.taken]:
            queue = self._queues.get(read.queue_id)
            if queue is not None and read.subscription_id in queue.subscriptions:
                yield queue, queue.subscriptions[read.subscription_id], read.start, read.end

    def resume_reading(self, last_start_us: int) -> None:
        """At the end of recovery: what is not in flight is delivered again, in order.

        `last_start_us`: when something may have started that counts for a rate (PK2).
        """
        in_flight: dict[Subscription, list[tuple[int, int]]] = {}
        for prepared in self:
            for _, subscription, start, end in self._taken(prepared):
                in_flight.setdefault(subscription, []).append((start, end))
        for queue in self._queues.values():
            for subscription in queue.subscriptions.values():
                subscription.attempts.recovered()
                spent = subscription.attempts.no_fewer(subscription.most)
                subscription.resume(in_flight.get(subscription, []), spent)
                if subscription.pace is not None:
                    subscription.pace.rest(last_start_us)

    # For the end of the process

    def abandon(self, reason: str) -> None:
        """The objects cannot decide any more; the store that is opened next can (H2)."""
        for prepared in self:
            if prepared.participant is not None:
                prepared.participant.abandon(reason)


def ref_of(part: Part) -> BlockRef:
    """The part as it would stand in a queue's records."""
    return BlockRef(
        0, 0, 0, part.address, part.charge, part.checksum, part.length, part.count, part.kind
    )


def _sums(parts: Sequence[Part]) -> tuple[int, int]:
    return sum(part.charge for part in parts), sum(part.count for part in parts)
