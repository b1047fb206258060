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
from typing import Final, Protocol, TypeVar

from quire.block import EncodedBlock
from quire.engine.live_state.engine_state import EngineState
from quire.engine.options import Options
from quire.engine.pages.block_places import Extent, Places
from quire.engine.queues.prepared_transactions import PreparedTransaction
from quire.engine.queues.queue import InFlightRange, Queue
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
)
from quire.engine.records.local_tail import mark_of
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.state.durable_state import DurableQueue
from quire.engine.state.fold import FoldedCommit
from quire.engine.state.sections.attachment import Attachment
from quire.engine.state.sections.decides import Decides
from quire.engine.state.sections.deliveries import Deliveries, Untouched
from quire.engine.state.sections.failures import Failure, Failures
from quire.engine.state.sections.section import Section
from quire.engine.state.sections.sequence_numbers import SequenceNumbers, SequenceProgress
from quire.env import Env
from quire.env.interpreter import has_gil
from quire.errors import QueueNotFound, QuireError
from quire.journal import Journal
from quire.limits import CHECKPOINT_ATTEMPTS_BYTES, COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES

from .adoptions import Adoptions
from .commit_plan import CommitPlan
from .memory_section import Volatile, split_rows
from .pending_sections import (
    DecidesSection,
    HeldSection,
    MovesSection,
    PendingSection,
    pack_sections,
)
from .queue_writes import QueueWrites, lone_block, lone_put
from .sequencer import Sequencer
from .transaction_change import TransactionChange, new_change

Pieces = list[tuple[Queue, list[EncodedBlock | Part]]]
N = TypeVar("N", Read, Failure)
_NOTHING: Final = CommitPlan()  # but what the change says itself


class Committing(Protocol):
    """The transaction that is committed."""

    durable: bool  # when its commit returns
    # What the journal is asked to hold.
    change: TransactionChange | None

    @property
    def id(self) -> int:
        """By which queues know it; 0: they do not, as it was never open."""


class OpenedStore(Protocol):
    """The opened files of a store, as far as commits use them."""

    @property
    def env(self) -> Env: ...

    @property
    def options(self) -> Options: ...

    @property
    def journal(self) -> Journal: ...

    @property
    def state(self) -> EngineState: ...

    @property
    def places(self) -> Places: ...

    @property
    def reader(self) -> BlockReader: ...


class Committer:
    """The way of every commit. Thread-safe."""

    def __init__(
        self,
        opened: OpenedStore,
        sequencer: Sequencer,
        adoptions: Adoptions,
        after_commit: Callable[[], None],
    ) -> None:
        self._state = state = opened.state
        self._reader = opened.reader
        self._places = opened.places
        self._journal = journal = opened.journal
        self.sequencer = sequencer
        self._adoptions = adoptions
        self._volatile = Volatile(opened.env, state, opened.places.memory)
        self.inline_limit = opened.options.inline_limit(journal.max_group_bytes)
        self._after_commit = after_commit  # there may be something to do; it must not raise
        self.due_lsn = 0  # that need not be called before the journal ends there
        self._locks_queues = state.strategy.locks_queues
        # For each commit record: then R needs no lock (S4).
        self._plenty_bytes = COMMIT_BYTES if has_gil() else sys.maxsize

    @property
    def failed(self) -> bool:
        """Return True if a change may be in the journal though it was not applied."""
        return self._journal.failed or self.sequencer.failure is not None

    def commit(self, transaction: Committing, plan: CommitPlan) -> None:
        """Go through all steps; `transaction.change` tells from now on whether it stands.

        One that is prepared takes effect once it is decided.
        """
        state = self._state
        taken, seeks = plan.taken, plan.seeks
        transaction.change = change = new_change(
            state, self._reader, transaction.id, transaction.durable, plan
        )
        if plan.skipped:
            change.reads = [*taken, *plan.skipped]
        reads = change.reads
        if state.special or seeks is not None or plan.values is not None:
            seeks = self._add_sections(plan, change)
        if (
            seeks is None
            and not self._locks_queues
            and (not reads or (reads is taken and _all_known(taken)) or state.at_hand(reads))
        ):
            self._take_steps(plan, change)
        else:
            with ExitStack() as locks:
                if self._locks_queues:
                    lock_all(plan.written, locks)
                released = reads if seeks is None else [*reads, *seeks.passed()]
                locks.enter_context(state.releasing(released))
                self._take_steps(plan, change)
        if not plan.is_light:
            self.leave_unused(transaction.id, plan.written)
        if self._journal.end_lsn >= self.due_lsn:
            self._after_commit()

    def put(self, queue: Queue, payload: bytes, durable: bool = True) -> int:
        """Commit one plain message in a transaction of its own; return its id."""
        lone = lone_put(queue, payload, len(payload) + MESSAGE_OVERHEAD_BYTES)
        change = new_change(self._state, self._reader, 0, durable, _NOTHING)
        change.written = (lone,)
        if queue.config.is_volatile:
            change.split_volatile(self._volatile, None, ())
        self._take_steps(_NOTHING, change)
        if self._journal.end_lsn >= self.due_lsn:
            self._after_commit()
        return change.first_id if change.memory is None else change.memory.first_id

    def decide(
        self, xid: str, *, commit: bool, expected: PreparedTransaction | None = None
    ) -> None:
        """Commit or roll back a prepared transaction. Raises TransactionNotFound, StoreCorrupt."""
        state = self._state
        reads = state.prepared.reads_of(xid) if commit else ()
        with state.releasing(reads):
            notes: list[PendingSection] = []
            if state.listened:
                look_before(self._reader, state.listened, reads)
            if progress := self.sequence_progress(reads):
                notes.append(PendingSection(SequenceNumbers(progress)))
            if not commit and (failures := state.prepared.failing(xid)):
                notes.append(PendingSection(Failures(failures)))
            notes.append(DecidesSection(state.prepared, Decides(xid, commit, 0), expected))
            self._record(notes)
        self.after_commit()

    def hand_out(
        self, queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, int, int]]
    ) -> None:
        """Note that these positions are about to be delivered. Raises StoreFailed, DiskFull."""
        recorded = self._keep_own(Deliveries, _reads_of(queue, subscription, runs))
        if recorded:  # the transaction that reads comes next: it makes room
            growth = 2 * CHECKPOINT_ATTEMPTS_BYTES * len(recorded)  # as each may part another run
            self._record([PendingSection(Deliveries(recorded), room=-1, growth=growth)])

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

    def _note(self, note: Callable[[list[N]], Section], rows: Sequence[N]) -> None:
        recorded = self._keep_own(note, rows)
        if not recorded:
            return
        section = note(recorded)
        try:
            self._record([PendingSection(section)], durable=False)
        except QuireError:
            self._state.fold.commit(FoldedCommit(sections=(section,)), 0)
        else:
            self.after_commit()

    def _keep_own(self, note: Callable[[list[N]], Section], rows: Sequence[N]) -> list[N]:
        """Note rows of volatile queues in memory; return the others."""
        own, recorded = split_rows(rows, self._state.volatile)
        if own:
            self._state.memory.commit(FoldedCommit(sections=(note(own),)), 0)
        return recorded

    def _record(self, notes: Sequence[PendingSection], *, durable: bool = True) -> None:
        """Commit sections and nothing else: no message, no read."""
        change = new_change(self._state, self._reader, 0, durable, _NOTHING)
        change.pending = notes
        self._take_steps(_NOTHING, change)

    def after_commit(self) -> None:
        """For other changes than these: see whether there is something to do."""
        if self._journal.end_lsn >= self.due_lsn:
            self._after_commit()

    def sequence_progress(
        self, reads: Sequence[Read | InFlightRange]
    ) -> Sequence[SequenceProgress]:
        """Return the progress of sequences by these reads: of each sender the last number."""
        found: dict[tuple[int, int, int], int] = {}
        numbered = self._state.numbered
        for read in reads:
            queue = numbered.get(read[0])
            if queue is not None:
                for sender, number in numbers_in(self._reader, queue, read).items():
                    key = *read[:2], sender
                    found[key] = max(number, found.get(key, 0))
        return [SequenceProgress(*key, number) for key, number in found.items()]

    def _add_sections(self, plan: CommitPlan, change: TransactionChange) -> MovesSection | None:
        """Add what few transactions do to the change; return its seeks in recorded queues."""
        state, seeks = self._state, plan.seeks
        progress: Sequence[SequenceProgress] = ()
        if plan.xid:
            change.check_not_volatile()
        elif state.special:
            progress = self.sequence_progress(change.reads)
            if state.listened:
                look_before(self._reader, state.listened, change.reads)
            if state.volatile:
                own, progress = split_rows(progress, state.volatile)
                seeks = change.split_volatile(self._volatile, seeks, own)
        numbers = PendingSection(SequenceNumbers(progress)) if progress else None
        change.pending = [each for each in (numbers, seeks, plan.values) if each is not None]
        return seeks

    def _take_steps(self, plan: CommitPlan, change: TransactionChange) -> None:
        """The five steps; where the record is not written, none of them leaves a trace."""
        try:
            if plan.is_light and not (change.pending or change.memory):
                written = change.written
                packed = pack_light(change.transaction_id, written, change.reads, change.entries)
                if written:
                    self.reserve(written, change)
            else:
                packed = self._pack(plan, change)
            change.record, change.head, change.groups, change.blocks, change.messages = packed
            if change.record:
                self.sequencer.submit(change)
            else:
                self._apply_alone(change)
        except BaseException:
            if not change.applied:
                self._undo(plan, change)
            raise

    def _pack(self, plan: CommitPlan, change: TransactionChange) -> Packed[DurableQueue]:
        """Steps 1 to 3 of what is not light; its record, which is empty where there is none."""
        memory, groups, attachment = change.memory, Pieces(), None
        if memory is not None and memory.written:  # which stays there
            memory.hold(self.encode(memory.written))
            self.reserve(memory.written, change)
        if change.written:
            groups = self.encode(change.written)
            self.reserve(change.written, change)
            if not plan.is_light:
                change.extents = self.place(groups, 0 if plan.xid else self.inline_limit)
                if attached := attached_bytes(groups):
                    attachment = Attachment(self._places.new_id(), attached)
        reads, entries = change.reads, change.entries
        if plan.xid:  # nothing but its sections is folded
            change.pending = [*change.pending, self._hold(plan, change, groups, attachment)]
            change.reads = change.entries = ()
        elif memory is not None and not (groups or reads or entries or change.pending):
            return b"", bytearray(), (), (), 0
        more = pack_sections(change.pending, attachment) if change.pending or attachment else ()
        mark = mark_of(self._journal.generation) if attachment else 0
        packed = pack(change.transaction_id, groups, reads, entries, more, mark)
        return (*packed[:2], (), (), 0) if plan.xid else packed

    def _hold(
        self,
        plan: CommitPlan,
        change: TransactionChange,
        groups: Pieces,
        attachment: Attachment | None,
    ) -> HeldSection:
        """Have the transaction know what the store is to hold for it; return the section."""
        preparing = plan.preparing
        assert preparing is not None
        parts = [each for _, own in groups for each in own if isinstance(each, Part)]
        record = PrepareRecord(
            plan.xid, len(plan.taken), 0, parts, [Read(*read[:4]) for read in change.reads],
            [*change.entries], attachment=0 if attachment is None else attachment.attachment_id,
        )  # fmt: skip
        preparing.prepared = PreparedTransaction(record, preparing, change.transaction_id)
        return HeldSection(self._state, preparing.prepared, plan.values)

    def _apply_alone(self, change: TransactionChange) -> None:
        """Steps 4 and 5 of what is in volatile queues only: nothing is written (VO1)."""
        self.sequencer.check()  # no write tells of a failure (VO3)
        try:
            if change.comes_first:  # what its check finds is so when it is applied
                self.sequencer.exclusive(change.apply_unrecorded)
            else:
                change.apply_unrecorded()
        except BaseException as error:
            if change.applied:  # an interrupt (VO3)
                self.sequencer.fail(error)
            raise

    def encode(self, written: Collection[QueueWrites]) -> Pieces:
        """Step 1: blocks and parts by queue; files are durable."""
        groups: Pieces = []
        unsynced: list[QueueWrites] = []
        for part in written:
            if not part.is_filled:
                groups.append((part.queue, [lone_block(part.payload, part.fields, part.charge)]))
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

    def reserve(self, written: Iterable[QueueWrites], change: TransactionChange) -> None:
        """Step 2; `change.reserved` grows queue by queue, for `_undo`."""
        reserved = change.reserved
        if not change.transaction_id:  # its space was not taken before
            (part,) = written
            queue = part.queue
            with queue.admission:
                if queue.dropped:
                    raise QueueNotFound(f"there is no queue {queue.name!r}: it was just dropped")
                queue.space.whole(part.charge)
                reserved += (part,)  # no call: an interrupt cannot come in between
            return
        for part in written:
            if not part.count:
                continue  # nothing was put
            queue = part.queue
            space = queue.space
            reserving = space.reserving + 1
            plenty = self._plenty_bytes * (space.open_transactions + reserving)
            if not queue.dropped and space.capacity - space.used >= plenty:
                space.reserving = reserving  # in one step with the look (S4 of `reservation`)
                reserved += (part,)
                continue
            with queue.lock:
                if queue.dropped:
                    raise QueueNotFound(f"queue {queue.name!r} was dropped: roll back")
                space.reserve()
                reserved += (part,)

    def leave_unused(self, transaction_id: int, written: Collection[QueueWrites]) -> None:
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

    def _undo(self, plan: CommitPlan, change: TransactionChange) -> None:
        """The record was not written: undo steps 2 and 3."""
        for part in change.reserved:
            queue = part.queue
            with queue.lock:
                if change.transaction_id:
                    queue.space.unreserve()
                else:
                    queue.space.abandon_whole(part.charge)
        if change.extents and not self.failed:
            self._places.abandon(change.extents)
        if change.memory is not None:
            change.memory.discard()
        if plan.preparing is not None:
            plan.preparing.prepared = None


def lock_all(written: Collection[QueueWrites], locks: ExitStack) -> None:
    """Under a strategy that wants it: keep writers out of all the queues."""
    for part in sorted(written, key=lambda part: part.queue.queue_id):
        part.queue.writers.acquire()
        locks.callback(part.queue.writers.release)


def _reads_of(
    queue: Queue, subscription: Subscription, runs: Sequence[tuple[int, ...]]
) -> list[Read]:
    """Runs of positions of a subscription, as records name them."""
    ids = queue.queue_id, subscription.subscription_id
    return [Read(*ids, run[0], run[1]) for run in runs]


def _all_known(taken: Sequence[InFlightRange]) -> bool:
    """Return True if the record of each is known, as it still is: none is to be looked up."""
    for _, _, _, _, queue, _, record, epoch in taken:
        if record is None or epoch != queue.epoch:
            return False
    return True
