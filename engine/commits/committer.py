"""Committing a transaction.

The order of a commit (DESIGN: one write, one sync):

1. encode: the messages become blocks; large transactions' files are finished (durable);
2. reserve: each queue, one after another, goes into reserve mode and is checked for its commit
   record (S3);
3. place: blocks past the inline limit are written to pages of their queues' data files, in one
   extent each, and synced, all files at the same time;
4. write: the COMMIT record goes through the sequencer: one write, one sync for its group. This is
   the atomic point. Failure before it undoes 2 and 3; after it nothing can fail for space (promise
   5);
5. apply: the record is applied to each queue under that queue's lock, which also leaves reserve
   mode.

One that need not be `durable` when it returns takes the same steps; in step 4 its record is
written, and synced later. What it writes to other files is synced in steps 1 and 3 all the same: a
record never becomes durable before the blocks that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from quire.block import EncodedBlock
from quire.engine.pages.places import Extent, Places
from quire.engine.queues.queue import Queue, Taken
from quire.engine.queues.state import State
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import format
from quire.engine.records.commit_record import (
    Entry,
    Packed,
    Part,
    Read,
    pack,
    pack_light,
    pack_lone,
)
from quire.engine.records.seek_record import pack_sought
from quire.errors import QueueNotFound
from quire.journal import Journal
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES

from .adoptions import Adoptions
from .commit import Commit, Moves, MovingCommit
from .sequencer import Sequencer
from .value_changes import CommitWithValues, ValueChanges
from .volatile import MixedCommit, Volatile, VolatileCommit
from .written import Written, written_to

Pieces = list[tuple[Queue, list[EncodedBlock | Part]]]


class Committing(Protocol):
    """The transaction that is committed."""

    id: int
    durable: bool  # when its commit returns
    # What the journal was asked to hold.
    change: Commit | MixedCommit | VolatileCommit | CommitWithValues | None


@dataclass(frozen=True, slots=True)
class More:
    """What few transactions do: they move subscriptions, and set and read states."""

    moves: Moves | None = None
    values: ValueChanges | None = None


class Committer:
    """See the module. Thread-safe."""

    def __init__(
        self,
        state: State,
        reader: BlockReader,
        places: Places,
        journal: Journal,
        sequencer: Sequencer,
        adoptions: Adoptions,
        volatile: Volatile,
        inline_limit: int,
    ) -> None:
        self._state = state
        self._reader = reader
        self._places = places
        self._journal = journal
        self.sequencer = sequencer
        self._adoptions = adoptions
        self.volatile = volatile
        self.inline_limit = inline_limit
        self.after_commit: Callable[[], None] = lambda: None
        self.due_lsn = 0  # it need not be called before the journal ends there

    @property
    def failed(self) -> bool:
        """Whether what was submitted may be in the journal though it was not applied."""
        return self._journal.failed or self.sequencer.failure is not None

    def commit(
        self,
        transaction: Committing,
        written: Collection[Written],
        taken: Sequence[Taken],
        passed: Sequence[Read],
        entries: Sequence[Entry],
        light: bool,
        more: More | None = None,
    ) -> None:
        """All steps. The transaction knows its change from step 4 on.

        `light`: all that is written is so (see `Puts`), whatever its record takes.
        """
        state = self._state
        reads: Sequence[Read | Taken] = [*taken, *passed] if passed else taken
        moves = None if more is None else more.moves
        if state.volatile and self.volatile.concerns(written, reads, moves):
            self._commit_mixed(transaction, written, reads, entries, more or More())
            if not light:
                self.leave_unused(transaction.id, written)
            self.after_commit()
            return
        if (
            moves is None
            and not state.strategy.locks_queues
            and (not reads or (not passed and _all_known(taken)) or state.at_hand(reads))
        ):
            self._commit(transaction, written, reads, entries, light, more)
            return
        released = reads
        if moves is not None:
            released = [*reads, *moves.passed()]
        with ExitStack() as held:
            self.lock_all(written, held)
            held.enter_context(state.releasing(released))
            self._commit(transaction, written, reads, entries, light, more)

    def lock_all(self, written: Collection[Written], held: ExitStack) -> None:
        """Under a strategy that wants it: keep writers out of all the queues."""
        if self._state.strategy.locks_queues:
            for part in sorted(written, key=lambda part: part.queue.queue_id):
                held.enter_context(part.queue.writers)

    def _commit(
        self,
        transaction: Committing,
        written: Collection[Written],
        reads: Sequence[Read | Taken],
        entries: Sequence[Entry],
        light: bool,
        more: More | None = None,
    ) -> None:
        transaction_id = transaction.id
        reserved: list[Queue] = []
        extents: Collection[Extent] = ()
        packed: Packed[Queue] | None = None
        if light:
            packed = pack_light(transaction_id, written, reads, entries)
            if len(packed[0]) > self.inline_limit:
                packed = None  # its blocks may have to go to pages
        try:
            if packed is not None:
                if written:
                    self.reserve(packed[2], reserved)
            else:
                groups = self.encode(written)
                self.reserve(groups, reserved)
                extents = self.place(groups, self.inline_limit)
                packed = pack(transaction_id, groups, reads, entries)
            if more is not None:
                self._submit_more(transaction, packed, reads, entries, more)
            else:
                transaction.change = change = Commit().fill(
                    self._state, self._reader, transaction_id, packed, reads, entries,
                    transaction.durable,
                )  # fmt: skip
                self.sequencer.submit(change)
        except BaseException:
            if transaction.change is None or not transaction.change.applied:
                self.undo(reserved, extents)
            raise
        if not light:
            self.leave_unused(transaction.id, written)
        if self._journal.end_lsn >= self.due_lsn:
            self.after_commit()

    def _submit_more(
        self,
        transaction: Committing,
        packed: Packed[Queue],
        reads: Sequence[Read | Taken],
        entries: Sequence[Entry],
        more: More,
    ) -> None:
        """Step 4 of a transaction that moves subscriptions, or has to do with states."""
        own = (
            self._state, self._reader, transaction.id, packed, reads, entries, transaction.durable,
        )  # fmt: skip
        moves = more.moves
        if moves is None:
            transaction.change = change = _with_values(Commit().fill(*own), more.values)
            self.sequencer.submit(change)
            return
        moving = MovingCommit().fill(*own)
        moving.moves = moves
        transaction.change = change = _with_values(moving, more.values)
        self.sequencer.submit_alone(change, (pack_sought(transaction.id, moves.seeks),))

    def _commit_mixed(
        self,
        transaction: Committing,
        written: Collection[Written],
        reads: Sequence[Read | Taken],
        entries: Sequence[Entry],
        more: More,
    ) -> None:
        """The same where volatile queues are concerned, perhaps no others (see `volatile`)."""
        own, moves = self._state.volatile, more.moves
        journaled = [part for part in written if not part.queue.is_volatile]
        recorded = [read for read in reads if read[0] not in own]
        sought, own_moves = (None, None) if moves is None else moves.split(own)
        if not (journaled or recorded or entries or sought or more.values):
            self._commit_volatile(transaction, written, reads, moves)
            return
        released = [*recorded, *(() if sought is None else sought.passed())]
        reserved: list[Queue] = []
        extents: Collection[Extent] = ()
        with ExitStack() as held:
            self.lock_all(written, held)
            held.enter_context(self._state.releasing(released))
            groups = self.encode(journaled)
            blocks = self.encode([part for part in written if part.queue.is_volatile])
            own_reads = [read for read in reads if read[0] in own]
            beside = VolatileCommit(self.volatile, transaction.id, own_reads, own_moves)
            try:
                beside.hold(blocks)
                self.reserve([*groups, *blocks], reserved)
                extents = self.place(groups, self.inline_limit)
                packed = pack(transaction.id, groups, recorded, entries)
                own_more = More(sought, more.values)
                self._submit_mixed(transaction, packed, recorded, entries, own_more, beside)
            except BaseException:
                if transaction.change is None or not transaction.change.applied:
                    self.undo(reserved, extents)
                    beside.discard()
                raise

    def _submit_mixed(
        self,
        transaction: Committing,
        packed: Packed[Queue],
        reads: Sequence[Read | Taken],
        entries: Sequence[Entry],
        more: More,
        beside: VolatileCommit,
    ) -> None:
        """Step 4 of a transaction of both. `more`: the subscriptions of others that it moves."""
        own = (
            self._state, self._reader, transaction.id, packed, reads, entries, transaction.durable,
        )  # fmt: skip
        commit, sought = Commit().fill(*own), more.moves
        if sought is None and beside.moves is None:
            mixed = MixedCommit(commit, beside, self.volatile)
            transaction.change = change = _with_values(mixed, more.values)
            self.sequencer.submit(change)
            return
        records: tuple[bytes, ...] = ()
        if sought is not None:
            commit = moving = MovingCommit().fill(*own)
            moving.moves = sought
            records = (pack_sought(transaction.id, sought.seeks),)
        mixed = MixedCommit(commit, beside, self.volatile)
        transaction.change = change = _with_values(mixed, more.values)
        self.sequencer.submit_alone(change, records, self.volatile.applying)

    def _commit_volatile(
        self,
        transaction: Committing,
        written: Collection[Written],
        reads: Sequence[Read | Taken],
        moves: Moves | None,
    ) -> None:
        """The same where no others are concerned: nothing is written and nothing synced (VO1)."""
        self.sequencer.check()  # no write tells of a failure (VO3)
        reserved: list[Queue] = []
        with ExitStack() as held:
            self.lock_all(written, held)
            blocks = self.encode(written)
            beside = VolatileCommit(self.volatile, transaction.id, reads, moves)
            transaction.change = beside
            try:
                beside.hold(blocks)
                self.reserve(blocks, reserved)
                if moves is None:
                    self._apply(beside)
                else:  # what its check finds is so when it is applied
                    self.sequencer.exclusive(partial(self._apply, beside))
            except BaseException:
                if not beside.applied:
                    self.undo(reserved, ())
                    beside.discard()
                raise

    def _apply(self, beside: VolatileCommit) -> None:
        """A commit that has no record takes effect; an interrupt in it fails the store (VO3)."""
        with self.volatile.applying:
            beside.place()
            try:
                beside.apply()
            except BaseException as error:
                if beside.applied:
                    self.sequencer.fail(error)
                raise

    def put_volatile(self, queue: Queue, payload: bytes, durable: bool = True) -> int:
        """As `put`, where the queue is volatile; nothing is durable."""
        self.sequencer.check()
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        written = written_to(queue, charge, 1, payload, None)
        blocks = self.encode((written,))
        beside = VolatileCommit(self.volatile, 0, ())
        is_counted = False
        try:
            beside.hold(blocks)
            with queue.admission:
                if queue.dropped:
                    raise QueueNotFound(f"there is no queue {queue.name!r}: it was just dropped")
                queue.space.whole(charge)
                is_counted = True
            self._apply(beside)
        except BaseException:
            if not beside.applied:
                beside.discard()
                if is_counted:
                    with queue.lock:
                        queue.space.abandon_whole(charge)
            raise
        self.after_commit()
        return beside.first_id

    def put(self, queue: Queue, payload: bytes, durable: bool = True) -> int:
        """One plain message in a transaction of its own, which is never open to others: its id.

        The same steps, with the queue's space taken and reserved under one hold of its lock.
        """
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        packed = pack_lone(0, queue, payload, None, charge)
        change = Commit().fill(self._state, self._reader, 0, packed, (), (), durable)
        with queue.admission:
            if queue.dropped:
                raise QueueNotFound(f"there is no queue {queue.name!r}: it was just dropped")
            queue.space.whole(charge)
        try:
            self.sequencer.submit(change)
        except BaseException:
            if change.applied:
                raise  # an interrupt: the message stands
            with queue.lock:
                queue.space.abandon_whole(charge)
            raise
        if self._journal.end_lsn >= self.due_lsn:
            self.after_commit()
        return change.first_id

    def encode(self, written: Collection[Written]) -> Pieces:
        """Step 1: blocks and parts by queue; files are durable."""
        groups: Pieces = []
        unsynced: list[Written] = []
        for part in written:
            only = part.only_block()
            if only is not None:
                groups.append((part.queue, [only]))
            elif part.count:
                with self.sequencer.writing_file():
                    groups.append((part.queue, part.pieces()))
                if part.unsynced:
                    unsynced.append(part)
        if unsynced:  # the names of files that were completed: one sync, however many there are
            with self.sequencer.writing_file():
                self._places.sync_names()
            for part in unsynced:
                part.unsynced = False
        return groups

    def reserve(self, groups: Iterable[tuple[Queue, object]], reserved: list[Queue]) -> None:
        """Step 2; `reserved` grows queue by queue, for `undo`."""
        for queue, _ in groups:
            space = queue.space
            reserving = space.reserving + 1
            plenty = COMMIT_BYTES * (space.open_transactions + reserving)
            if not queue.dropped and space.capacity - space.used >= plenty:
                space.reserving = reserving  # in one step with the look (S4 of `reservation`)
                reserved += (queue,)
                continue
            with queue.lock:
                if queue.dropped:
                    raise QueueNotFound(f"queue {queue.name!r} was dropped: roll back")
                queue.space.reserve()
                reserved += (queue,)  # no call: an interrupt cannot come in between

    def leave_unused(self, transaction_id: int, written: Collection[Written]) -> None:
        """The transaction's record is durable: let go of what it opened and did not use."""
        for part in written:
            if not part.count:  # nothing was put
                with part.queue.lock:
                    part.queue.leave(transaction_id)
        self._adoptions.release(written)

    def place(self, groups: Pieces, inline_limit: int) -> Collection[Extent]:
        """Step 3; the extents, one in each file; none when the blocks travel in the record.

        What was spilled before is durable then too. Blocks that are placed become parts.
        """
        size = 0
        spilled: set[int] = set()  # to these files
        for queue, pieces in groups:
            for piece in pieces:
                if isinstance(piece, EncodedBlock):
                    size += len(piece.data)
                elif piece.kind == format.DATA:
                    spilled.add(queue.data_file)
        if spilled:
            with self.sequencer.fail_stop("writing blocks"):
                self._places.sync(spilled)
        if size <= inline_limit:
            return ()
        by_file: dict[int, list[bytes | bytearray]] = {}
        for queue, pieces in groups:
            own = by_file.setdefault(queue.data_file, [])
            own += [piece.data for piece in pieces if isinstance(piece, EncodedBlock)]
        places = self._places
        with self.sequencer.fail_stop("writing blocks"):
            extents = places.write_each({file: own for file, own in by_file.items() if own})
        pages = {file: extent.first for file, extent in extents.items()}
        for queue, pieces in groups:
            for index, piece in enumerate(pieces):
                if isinstance(piece, EncodedBlock):
                    page = pages[queue.data_file]
                    part = places.part_at(page, piece, queue.queue_id)
                    pages[queue.data_file] = page + places.pages_for(part.length)
                    pieces[index] = part
        return extents.values()

    def undo(self, reserved: list[Queue], extents: Collection[Extent]) -> None:
        """The record was not written: undo steps 2 and 3."""
        for queue in reserved:
            with queue.lock:
                queue.space.unreserve()
        if extents and not self.failed:
            self._places.abandon(extents)


def _with_values(
    commit: Commit | MixedCommit, values: ValueChanges | None
) -> Commit | MixedCommit | CommitWithValues:
    """The commit, and what its transaction has to do with states."""
    return commit if values is None else CommitWithValues(commit, values)


def _all_known(taken: Sequence[Taken]) -> bool:
    """Whether the record of each is known, as it still is: none is to be looked up."""
    for got in taken:  # noqa: SIM110 - a generator would take longer than the look itself
        if got[6] is None or got[7] != got[4].epoch:
            return False
    return True
