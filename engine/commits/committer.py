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

One that is prepared (two-phase commit) takes them too, so that all that can fail fails here. Its
record is held, and its blocks always go to the data files, from which no checkpoint has to move
them. The decision is a record of its own. Message ids are given with it, in commit order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Protocol, TypeVar

from quire.block import EncodedBlock
from quire.engine.live_state.live_state import State
from quire.engine.pages.block_places import Extent, Places
from quire.engine.queues.prepared_transactions import PreparedParticipant, PreparedTransaction
from quire.engine.queues.queue import Queue, TakenRow
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.block_reader import BlockReader
from quire.engine.reading.indexing import numbers_in
from quire.engine.reading.looking_before import look_before
from quire.engine.records import format
from quire.engine.records.commit_record import (
    Packed,
    Part,
    Read,
    attached_bytes,
    pack,
    pack_light,
    pack_lone,
)
from quire.engine.records.local_tail import mark_of
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.state.durable_state import DurableQueue
from quire.engine.state.sections.attachment import Attachment
from quire.engine.state.sections.decides import Decides, DecidesSection
from quire.engine.state.sections.deliveries import Deliveries, DeliveriesSection, Untouched
from quire.engine.state.sections.failures import Failure, Failures
from quire.engine.state.sections.held import HeldSection
from quire.engine.state.sections.kinds import pack_sections
from quire.engine.state.sections.numbers import Heard, Numbers
from quire.engine.state.sections.section import PendingSection, Section
from quire.env.interpreter import has_gil
from quire.errors import QueueNotFound, QuireError
from quire.journal import Journal
from quire.limits import COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES

from .adoptions import Adoptions
from .commit_plan import CommitPlan
from .memory_section import MemorySection, Volatile, apart
from .sequencer import Sequencer
from .transaction_change import TransactionChange
from .written_messages import Written, lone_block

Pieces = list[tuple[Queue, list[EncodedBlock | Part]]]
N = TypeVar("N", Read, Failure)


class Committing(PreparedParticipant, Protocol):
    """The transaction that is committed."""

    id: int
    durable: bool  # when its commit returns
    # What the journal was asked to hold.
    change: TransactionChange | None
    prepared: PreparedTransaction | None  # what the store holds for it


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
        after_commit: Callable[[], None],
    ) -> None:
        self._state = state
        self._reader = reader
        self._places = places
        self._journal = journal
        self.sequencer = sequencer
        self._adoptions = adoptions
        self.volatile = volatile
        self.inline_limit = inline_limit
        self._after_commit = after_commit  # there may be something to do; it must not raise
        self.due_lsn = 0  # that need not be called before the journal ends there
        self._locks_queues = state.strategy.locks_queues
        # For each commit record: then R needs no lock (S4).
        self._plenty_bytes = COMMIT_BYTES if has_gil() else sys.maxsize

    @property
    def failed(self) -> bool:
        """Whether what was submitted may be in the journal though it was not applied."""
        return self._journal.failed or self.sequencer.failure is not None

    def commit(self, transaction: Committing, plan: CommitPlan) -> None:
        """All steps. The transaction knows its change from step 4 on.

        One that is prepared takes effect once it is decided; `transaction.prepared` tells so.
        """
        state = self._state
        written, taken, skipped, moves = plan.written, plan.taken, plan.skipped, plan.seeks
        reads: Sequence[Read | TakenRow] = [*taken, *skipped] if skipped else taken
        memory: MemorySection | None = None
        journaled = written
        sections: Sequence[PendingSection] = ()
        if state.apart and self.volatile.concerns(written, reads, moves):
            heard = self.heard(reads) if plan.held is None else ()
            if state.listened and plan.held is None:
                look_before(self._reader, state.listened, reads)
            own, heard = apart(heard, state.volatile) if heard else ((), ())
            memory, journaled, reads, moves = self.volatile.share(
                transaction.id, written, reads, moves, own
            )
            sections = (PendingSection(state.fold, Numbers(heard)),) if heard else ()
        if moves is not None or plan.values is not None or memory is not None:
            sections = (*sections, *filter(None, (moves, plan.values, memory)))
        if (
            moves is None
            and not self._locks_queues
            and (not reads or (not skipped and _all_known(taken)) or state.at_hand(reads))
        ):
            self._commit(transaction, plan, journaled, reads, sections)
        else:
            with ExitStack() as locks:
                self.lock_all(written, locks)
                released = reads if moves is None else [*reads, *moves.passed()]
                locks.enter_context(state.releasing(released))
                self._commit(transaction, plan, journaled, reads, sections)
        if not plan.is_light:
            self.leave_unused(transaction.id, written)
        if self._journal.end_lsn >= self.due_lsn:
            self._after_commit()

    def heard(self, reads: Sequence[Read | TakenRow]) -> Sequence[Heard]:
        """What is read of sequences by that: in an order by them, of each sender the last."""
        found: dict[tuple[int, int, int], int] = {}
        numbered = self._state.numbered
        for read in reads:
            queue = numbered.get(read[0])
            if queue is not None:
                for sender, number in numbers_in(self._reader, queue, read).items():
                    key = *read[:2], sender
                    found[key] = max(number, found.get(key, 0))
        return [Heard(*key, number) for key, number in found.items()]

    def after_commit(self) -> None:
        """For other changes than these: see whether there is something to do."""
        if self._journal.end_lsn >= self.due_lsn:
            self._after_commit()

    def lock_all(self, written: Collection[Written], held: ExitStack) -> None:
        """Under a strategy that wants it: keep writers out of all the queues."""
        if self._locks_queues:
            for part in sorted(written, key=lambda part: part.queue.queue_id):
                part.queue.writers.acquire()
                held.callback(part.queue.writers.release)

    def _commit(
        self,
        transaction: Committing,
        plan: CommitPlan,
        written: Collection[Written],
        reads: Sequence[Read | TakenRow],
        sections: Sequence[PendingSection],
    ) -> None:
        """The steps. `written`, `reads`: without the share in volatile queues."""
        transaction_id = transaction.id
        entries, held = plan.entries, plan.held
        reserved: list[Queue] = []
        extents: list[Extent] = []
        packed: Packed[DurableQueue] | None = None
        if plan.is_light and not sections:
            packed = pack_light(transaction_id, written, reads, entries)
            if len(packed[0]) > self.inline_limit:
                packed = None  # its blocks may have to go to pages
        memory = _memory_in(sections) if sections else None
        try:
            if packed is not None:
                if written:
                    self.reserve(written, reserved)
            else:
                self._keep(memory, reserved)
                groups: Pieces = []
                if written:
                    groups = self.encode(written)
                    self.reserve(written, reserved)
                    extents += self.place(groups, self.inline_limit if held is None else 0)
                packed, sections = self._pack(transaction, plan, groups, reads, sections)
                if held is not None and packed is not None:  # no more takes effect
                    packed, reads, entries = (*packed[:2], (), (), 0), (), ()
            transaction.change = change = TransactionChange(
                self._state, self._reader, transaction_id, packed, reads, entries,
                transaction.durable, sections,
            )  # fmt: skip
            if memory is None or packed is not None:
                self.sequencer.submit(change)
            else:
                self._apply_alone(change, memory)
        except BaseException:
            if transaction.change is None or not transaction.change.applied:
                self.undo(reserved, extents)
                if memory is not None:
                    memory.discard()
                transaction.prepared = None
            raise

    def _keep(self, memory: MemorySection | None, reserved: list[Queue]) -> None:
        """Steps 1 to 3 of what is written to volatile queues, which stays in memory."""
        if memory is not None and memory.written:
            memory.hold(self.encode(memory.written))
            self.reserve(memory.written, reserved)

    def _pack(
        self,
        transaction: Committing,
        plan: CommitPlan,
        groups: Pieces,
        reads: Sequence[Read | TakenRow],
        sections: Sequence[PendingSection],
    ) -> tuple[Packed[DurableQueue] | None, Sequence[PendingSection]]:
        """The record of what is not light, if there is one, and its sections."""
        entries, held = plan.entries, plan.held
        attached = attached_bytes(groups) if groups else 0
        attachment = self._places.new_id() if attached else 0
        if held is not None:  # its blocks have become parts, all of them
            state = self._state
            parts = [each for _, own in groups for each in own if isinstance(each, Part)]
            record = PrepareRecord(
                held.xid, held.taken, 0, parts, [Read(*read[:4]) for read in reads], entries,
                attachment=attachment,
            )  # fmt: skip
            transaction.prepared = prepared = PreparedTransaction(
                record, transaction, transaction.id
            )
            holding = HeldSection(
                state.prepared, state.check_entries, state.fold, prepared, plan.values
            )
            sections = (*sections, holding)
        has_more = groups or reads or entries or len(sections) != 1
        if not has_more and _memory_in(sections) is not None:
            return None, sections
        mark = mark_of(self._journal.generation)
        more = pack_sections(sections, Attachment(attachment, attached) if attached else None)
        return pack(transaction.id, groups, reads, entries, more, mark), sections

    def decide(
        self, xid: str, *, commit: bool, expected: PreparedTransaction | None = None
    ) -> None:
        """Commit or roll back a prepared transaction. Raises TransactionNotFound, StoreCorrupt."""
        state = self._state
        said = Decides(xid, commit, 0)
        with state.releasing(state.prepared.reads_of(xid) if commit else ()):
            decides = DecidesSection(
                state.prepared, state.values.changing, state.fold, said, expected
            )
            before: list[PendingSection] = []
            if commit:
                heard = self.heard(state.prepared.reads_of(xid))
                before += [PendingSection(state.fold, Numbers(heard))] if heard else []
                if state.listened:
                    look_before(self._reader, state.listened, state.prepared.reads_of(xid))
            elif failures := state.prepared.failing(xid):
                before.append(PendingSection(state.fold, Failures(failures)))
            self._record(*before, decides)
        self.after_commit()

    def hand_out(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, int, int]]
    ) -> None:
        """Note that these positions are about to be delivered. Raises StoreFailed, DiskFull."""
        said = Deliveries(_reads_of(queue, subscription, runs))
        if queue.is_volatile:
            PendingSection(self._state.memory, said).apply(0)
        else:
            self._record(DeliveriesSection(self._state.fold, said))

    def take_back(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, ...]]
    ) -> None:
        """Note that these positions were not delivered after all. Does not raise, as `fail`."""
        self._note(Untouched, _reads_of(queue, subscription, runs))

    def fail(self, failures: Sequence[Failure]) -> None:
        """Note that these deliveries failed. Does not raise: what cannot be recorded holds until
        the store ends.

        What is recorded is durable with the next that waits for a sync.
        """
        self._note(Failures, failures)

    def _note(self, said: Callable[[list[N]], Section], rows: Sequence[N]) -> None:
        state = self._state
        volatile, recorded = apart(rows, state.volatile)
        if volatile:
            PendingSection(state.memory, said(volatile)).apply(0)
        if not recorded:
            return
        section = PendingSection(state.fold, said(recorded))
        try:
            self._record(section, durable=False)
        except QuireError:
            section.apply(0)
        else:
            self.after_commit()

    def _record(self, *sections: PendingSection, durable: bool = True) -> None:
        """Commit sections and nothing else: no message, no read."""
        packed: Packed[DurableQueue] = pack(0, (), (), (), pack_sections(sections))
        self.sequencer.submit(
            TransactionChange(
                self._state, self._reader, 0, packed, durable=durable, sections=sections
            )
        )

    def _apply_alone(self, change: TransactionChange, memory: MemorySection) -> None:
        """Steps 4 and 5 of what is in volatile queues only: nothing is written (VO1)."""
        self.sequencer.check()  # no write tells of a failure (VO3)
        if memory.comes_first:  # what its check finds is so when it is applied
            self.sequencer.exclusive(partial(self._apply, change, memory))
        else:
            self._apply(change, memory)

    def _apply(self, change: TransactionChange, memory: MemorySection) -> None:
        """It takes effect; an interrupt in it fails the store (VO3)."""
        try:
            memory.check()
            change.applied = True
            memory.apply(0)
        except BaseException as error:
            if change.applied:
                self.sequencer.fail(error)
            else:
                memory.withdraw()
            raise

    def put(self, queue: Queue, payload: bytes, durable: bool = True) -> int:
        """One plain message in a transaction of its own, which is never open to others: its id.

        The same steps, with the queue's space taken and reserved under one hold of its lock.
        """
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        packed: Packed[DurableQueue] | None = None
        sections: Sequence[MemorySection] = ()
        if queue.puts_are_plain:
            packed = pack_lone(0, queue.durable, payload, None, charge)
        else:
            sections = (MemorySection(self.volatile, 0),)
        change = TransactionChange(self._state, self._reader, 0, packed, (), (), durable, sections)
        with queue.admission:
            if queue.dropped:
                raise QueueNotFound(f"there is no queue {queue.name!r}: it was just dropped")
            queue.space.whole(charge)
        try:
            if packed is not None:
                self.sequencer.submit(change)
            else:
                sections[0].hold(((queue, (lone_block(payload, None, charge),)),))
                self._apply_alone(change, sections[0])
        except BaseException:
            if change.applied:
                raise  # an interrupt: the message stands
            with queue.lock:
                queue.space.abandon_whole(charge)
            for memory in sections:
                memory.discard()
            raise
        if self._journal.end_lsn >= self.due_lsn:
            self._after_commit()
        return change.first_id or sections[0].first_id

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

    def reserve(self, written: Iterable[Written], reserved: list[Queue]) -> None:
        """Step 2; `reserved` grows queue by queue, for `undo`."""
        for part in written:
            if not part.count:
                continue  # nothing was put
            queue = part.queue
            space = queue.space
            reserving = space.reserving + 1
            plenty = self._plenty_bytes * (space.open_transactions + reserving)
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


def _reads_of(
    queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, ...]]
) -> list[Read]:
    """Runs of positions of a subscription, as records name them."""
    ids = queue.queue_id, subscription.subscription_id
    return [Read(*ids, run[0], run[1]) for run in runs]


def _all_known(taken: Sequence[TakenRow]) -> bool:
    """Whether the record of each is known, as it still is: none is to be looked up."""
    for _, _, _, _, queue, _, record, epoch in taken:
        if record is None or epoch != queue.epoch:
            return False
    return True


def _memory_in(sections: Sequence[PendingSection]) -> MemorySection | None:
    """Return the share in volatile queues, if there is one."""
    return next((each for each in sections if isinstance(each, MemorySection)), None)
