"""Committing a transaction.

The order of a commit (DESIGN: one write, one sync):

1. the messages become blocks; large transactions' files are finished (durable);
2. each queue, one after another, goes into reserve mode and is checked for its commit record (S3);
3. blocks past the inline limit are written to pages of their queues' data files, in one extent
   each, and synced, all files at the same time;
4. the COMMIT record goes through the sequencer: one write, one sync for its group. This is the
   atomic point. Failure before it undoes 2 and 3; after it nothing can fail for space (promise 5);
5. the record is applied to each queue under that queue's lock, which also leaves reserve mode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack

from quire.block import EncodedBlock
from quire.errors import QueueNotFound
from quire.journal import Journal
from quire.limits import COMMIT_BYTES, MAX_DATA_BLOCK_BYTES, OPEN_BYTES

from . import format
from .adoptions import Adoptions
from .block_reader import BlockReader
from .commit import Commit
from .commit_record import Entry, Part, Read, pack
from .one_block import OneBlock
from .places import Extent, Places
from .queue import Queue
from .sequencer import Sequencer
from .spread import Share, Spread
from .state import QueueParts, State
from .transaction import Transaction
from .written import Piece, Written, part_of

_CONTROL_BYTES = OPEN_BYTES + COMMIT_BYTES


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
        inline_limit: int,
    ) -> None:
        self.state = state
        self.reader = reader
        self.places = places
        self.journal = journal
        self.sequencer = sequencer
        self.inline_limit = inline_limit
        self.after_commit: Callable[[], None] = lambda: None
        self._adoptions = adoptions

    @property
    def failed(self) -> bool:
        """Whether what was submitted may be in the journal though it was not applied."""
        return self.journal.failed or self.sequencer.failure is not None

    def commit(
        self,
        transaction: Transaction,
        written: list[Written],
        reads: list[Read],
        entries: list[Entry],
    ) -> None:
        """Steps 1 to 5. The transaction knows its change from step 4 on."""
        state = self.state
        if not state.strategy.locks_queues and (not reads or state.at_hand(reads)):
            self._commit(transaction, written, reads, entries)
            return
        with ExitStack() as held:
            self.lock_all(written, held)
            held.enter_context(state.releasing(reads))
            self._commit(transaction, written, reads, entries)

    def lock_all(self, written: list[Written], held: ExitStack) -> None:
        """Under a strategy that wants it: keep writers out of all the queues."""
        if self.state.strategy.locks_queues:
            for part in sorted(written, key=lambda part: part.queue.queue_id):
                held.enter_context(part.queue.writers)

    def _commit(
        self,
        transaction: Transaction,
        written: list[Written],
        reads: list[Read],
        entries: list[Entry],
    ) -> None:
        usual = len(written) == 1 and not reads and not entries
        if usual and self._commit_block(transaction, written[0]):
            return
        if not entries and self._commit_spread(transaction, written, reads):
            return
        groups, pieces = self.pieces_of(written)
        reserved: list[Queue] = []
        extents: Collection[Extent] = ()
        try:
            self.reserve(groups, reserved)
            extents = self.write_data(groups, pieces, self.inline_limit)
            change = self._pack(transaction.id, groups, pieces, reads, entries)
            transaction.change = change
            self.sequencer.submit(change)
        except BaseException:
            if not transaction.stands:
                self.undo(reserved, extents)
            raise
        self.leave_unused(transaction.id, written)
        self.after_commit()

    def pieces_of(self, written: list[Written]) -> tuple[QueueParts, list[Piece]]:
        """Step 1: the parts by queue, and what each of them is made of; its files are durable."""
        groups: QueueParts = []
        pieces: list[Piece] = []
        touched = [w for w in written if w.count]
        for part in touched:
            with self.sequencer.writing_file():
                own = part.pieces(MAX_DATA_BLOCK_BYTES)
            last = len(own) - 1
            queue_id = part.queue.queue_id
            groups.append(
                (part.queue, [part_of(p, queue_id, last=i == last) for i, p in enumerate(own)])
            )
            pieces.extend(own)
        self._sync_names(touched)
        return groups, pieces

    def _sync_names(self, written: list[Written]) -> None:
        """Of the files that were completed: one sync, however many there are."""
        unsynced = [part for part in written if part.unsynced]
        if unsynced:
            with self.sequencer.writing_file():
                self.places.sync_names()
            for part in unsynced:
                part.unsynced = False

    def reserve(self, groups: QueueParts, reserved: list[Queue]) -> None:
        """Step 2; `reserved` grows queue by queue, for `undo`."""
        for queue, _ in groups:
            with queue.lock:
                if queue.dropped:
                    raise QueueNotFound(f"queue {queue.name!r} was dropped: roll back")
                queue.space.reserve()
            reserved.append(queue)

    def leave_unused(self, transaction_id: int, written: list[Written]) -> None:
        """The transaction's record is durable: let go of what it opened and did not use."""
        for part in written:
            if not part.count:  # nothing was put
                with part.queue.lock:
                    part.queue.leave(transaction_id)
        self._adoptions.release(written)

    def _commit_block(self, transaction: Transaction, written: Written) -> bool:
        """The same for the usual transaction: one block to one queue, inside its record.

        False if this is another one; nothing has happened then.
        """
        # A small message is encoded here, past the steps that many and large ones need.
        data = written.single() if written.charge <= self.inline_limit else None
        if data is None:
            block = written.only_block(MAX_DATA_BLOCK_BYTES)
            if block is None:
                return False
            data = block.data
        if len(data) > self.inline_limit:
            return False
        queue = written.queue
        charge, count = written.charge + _CONTROL_BYTES, written.count
        with queue.lock:
            if queue.dropped:
                raise QueueNotFound(f"queue {queue.name!r} was dropped: roll back")
            queue.space.reserve()
        try:
            change = OneBlock(self.state, self.reader, transaction.id, queue, data, charge, count)
            transaction.change = change
            self.sequencer.submit(change)
        except BaseException:
            if not transaction.stands:
                self.undo([queue], ())
            raise
        self.after_commit()
        return True

    def _commit_spread(
        self, transaction: Transaction, written: list[Written], reads: list[Read]
    ) -> bool:
        """The same for reads and for one block to each of several queues."""
        shares: list[Share] = []
        total = 0
        for part in written:
            block = part.single()
            if block is None:
                encoded = part.only_block(MAX_DATA_BLOCK_BYTES)
                if encoded is None or len(encoded.data) & 7:
                    return False
                block = encoded.data
            total += len(block)
            shares.append((part.queue, block, part.charge + _CONTROL_BYTES, part.count))
        if total > self.inline_limit:
            return False
        reserved: list[Queue] = []
        try:
            for share in shares:
                queue = share[0]
                with queue.lock:
                    if queue.dropped:
                        raise QueueNotFound(f"queue {queue.name!r} was dropped: roll back")
                    queue.space.reserve()
                reserved.append(queue)
            change = Spread(self.state, self.reader, transaction.id, shares, reads)
            transaction.change = change
            self.sequencer.submit(change)
        except BaseException:
            if not transaction.stands:
                self.undo(reserved, ())
            raise
        self.after_commit()
        return True

    def write_data(
        self, groups: QueueParts, pieces: Sequence[Piece], inline_limit: int
    ) -> Collection[Extent]:
        """Step 3; the extents, one in each file; none when the blocks travel in the record.

        What was spilled before is durable then too.
        """
        blocks = [piece for piece in pieces if isinstance(piece, EncodedBlock)]
        if len(blocks) < len(pieces):
            self._sync_spilled(groups)
        if sum(len(block.data) for block in blocks) <= inline_limit:
            return ()
        places = self.places
        by_file: dict[int, list[bytes | bytearray]] = {}
        rest = iter(blocks)
        for queue, parts in groups:
            own = by_file.setdefault(queue.data_file, [])
            own += [next(rest).data for part in parts if part.kind == format.INLINE]
        with self.sequencer.fail_stop("writing blocks"):
            extents = places.write_each({file: own for file, own in by_file.items() if own})
        pages = {file: extent.first for file, extent in extents.items()}
        for queue, parts in groups:
            for index, part in enumerate(parts):
                if part.kind == format.INLINE:
                    page = pages[queue.data_file]
                    part = part._replace(kind=format.DATA, address=page * places.page_size)
                    pages[queue.data_file] = page + places.pages_for(part.length)
                    parts[index] = part
        return extents.values()

    def _sync_spilled(self, groups: QueueParts) -> None:
        files = {
            queue.data_file
            for queue, parts in groups
            if any(part.kind == format.DATA for part in parts)
        }
        if files:
            with self.sequencer.fail_stop("writing blocks"):
                self.places.sync(files)

    def _pack(
        self,
        transaction_id: int,
        groups: list[tuple[Queue, list[Part]]],
        pieces: Sequence[Piece],
        reads: list[Read],
        entries: list[Entry],
    ) -> Commit:
        """The change for any transaction; inline parts get their addresses."""
        flat = [part for _, parts in groups for part in parts]
        blocks = [
            piece.data
            for piece, part in zip(pieces, flat, strict=True)
            if part.kind == format.INLINE and isinstance(piece, EncodedBlock)
        ]
        head, following = pack(transaction_id, flat, blocks, reads, entries)
        position = 0
        for _, parts in groups:
            parts[:] = flat[position : position + len(parts)]
            position += len(parts)
        places = [part.address for part in flat if part.kind == format.INLINE]
        return Commit(
            self.state,
            self.reader,
            transaction_id,
            (head, *following),
            groups,
            sum(part.count for part in flat),
            reads,
            entries,
            list(zip(places, blocks, strict=True)),
        )

    def undo(self, reserved: list[Queue], extents: Collection[Extent]) -> None:
        for queue in reserved:
            with queue.lock:
                queue.space.unreserve()
        if extents and not self.failed:
            self.places.abandon(extents)
