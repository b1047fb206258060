"""The queue manager's inside: what transactions ask of the store they belong to.

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

import itertools
import math
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

from quire.block import EncodedBlock
from quire.env import Env
from quire.errors import (
    PositionLost,
    QueueNotFound,
    QuireError,
    StoreCorrupt,
    SubscriptionNotFound,
)
from quire.journal import Journal
from quire.limits import COMMIT_BYTES, MAX_DATA_BLOCK_BYTES, OPEN_BYTES
from quire.ltds import LtdsInfo, LtdsReader, LtdsWriter, codec_named, new_id
from quire.message import Delivered
from quire.writebuffer import TransactionBuffer, WriteBuffer, WriteBuffers

from . import format
from .block_reader import BlockMoved, BlockReader
from .commit import Commit
from .commit_record import Entry, Part, Read, pack
from .one_block import OneBlock
from .options import Options
from .overflow import Overflow
from .places import Extent, Places
from .queue import Queue
from .read_structure import Pointer
from .sequencer import Sequencer
from .spread import Share, Spread
from .state import QueueParts, State
from .subscription import Subscription
from .transaction import Transaction
from .two_phase import TwoPhase
from .written import Piece, Written, part_of

_CONTROL_BYTES = OPEN_BYTES + COMMIT_BYTES

Runs = list[tuple[int, int, int]]  # positions [start, end) and how often they are delivered now


class Manager:
    """See the module. Thread-safe."""

    def __init__(
        self,
        env: Env,
        options: Options,
        store_id: int,
        ltds_directory: str,
        journal: Journal,
        state: State,
        places: Places,
        reader: BlockReader,
    ) -> None:
        self.env = env
        self.options = options
        self.store_id = store_id
        self.ltds_directory = ltds_directory
        self.journal = journal
        self.state = state
        self.places = places
        self.reader = reader
        self.sequencer = Sequencer(journal)
        self.two_phase = TwoPhase(self)
        self.overflow = Overflow(places, self.sequencer)
        self.write_buffers = WriteBuffers(
            options.write_buffer_bytes,
            options.write_buffer_messages,
            per_queue=options.write_buffer == "per-queue",
        )
        self.inline_limit = options.inline_limit(journal.max_group_bytes)
        self.open_transactions: dict[int, Transaction] = {}
        self.after_commit: Callable[[], None] = lambda: None
        self.after_discard: Callable[[], None] = lambda: None
        self._ids = itertools.count(1)
        self._fragments: dict[int, int] = {}  # files written by others, held by open transactions
        self._lock = threading.Lock()

    # Transactions

    def begin(self, timeout: float | None, large: bool, owner: str | None = None) -> Transaction:
        """A new transaction. `owner`: who it is for, if not this thread."""
        seconds = self.options.transaction_timeout if timeout is None else timeout
        env = self.env
        transaction = Transaction(
            self,
            next(self._ids),
            env.now_us(),
            env.monotonic() + seconds,
            large,
            owner or threading.get_ident(),
        )
        self.open_transactions[transaction.id] = transaction
        return transaction

    def ended(self, transaction: Transaction) -> None:
        self.open_transactions.pop(transaction.id, None)

    def expire(self) -> int:
        """Roll back the transactions whose time is over; how many."""
        now = self.env.monotonic()
        late = [t for t in list(self.open_transactions.values()) if t.deadline <= now]
        return sum(transaction.expire() for transaction in late)

    def abort(self, transaction_id: int) -> bool:
        """Roll back somebody's transaction; False if it is not open (any more)."""
        transaction = self.open_transactions.get(transaction_id)
        return transaction is not None and transaction.abort()

    def empty_buffers(self) -> None:
        """Have transactions that are older than `write_buffer_seconds` leave the write buffer."""
        seconds = self.options.write_buffer_seconds
        if seconds == math.inf:
            return
        before = self.env.now_us() - int(seconds * 1e6)
        for transaction in list(self.open_transactions.values()):
            if transaction.opened_us < before:
                transaction.leave(None)

    def relieve_buffer(
        self, buffer: WriteBuffer, asking: int, leave: Callable[[WriteBuffer], bool]
    ) -> None:
        """The write buffer is full: the oldest transactions leave it, the asking one by `leave`."""

        def leaves(transaction_id: int) -> bool:
            if transaction_id == asking:
                return leave(buffer)
            other = self.open_transactions.get(transaction_id)
            with suppress(QuireError):  # its own trouble: if it was rolled back, its owner will see
                return other is not None and other.leave(buffer)
            return False

        self.overflow.relieve(buffer, leaves)

    # Writing

    def open_queue(self, name: str, buffer: TransactionBuffer) -> Written:
        """A transaction's first write to a queue (rule S1)."""
        queue = self.state.queue(name)
        with queue.admission:
            if queue.dropped:
                raise QueueNotFound(f"there is no queue {name!r}: it was just dropped")
            queue.space.open()
            queue.log.open(buffer.transaction_id, queue.end_position)
        return Written(queue, buffer.queue(queue.queue_id), self.new_file)

    def commit(
        self,
        transaction: Transaction,
        written: list[Written],
        reads: list[Read],
        entries: list[Entry],
    ) -> None:
        """Steps 1 to 5. The transaction knows its change from step 4 on."""
        if not self.state.strategy.locks_queues:
            self._commit(transaction, written, reads, entries)
            return
        with ExitStack() as held:
            self.lock_all(written, held)
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
        """Step 1: the parts by queue, and what each of them is made of."""
        groups: QueueParts = []
        pieces: list[Piece] = []
        touched = [w for w in written if w.count]
        for part in touched:
            with self.writing_file():
                own = part.pieces(MAX_DATA_BLOCK_BYTES)
            last = len(own) - 1
            queue_id = part.queue.queue_id
            groups.append(
                (part.queue, [part_of(p, queue_id, last=i == last) for i, p in enumerate(own)])
            )
            pieces.extend(own)
        return groups, pieces

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
        self._release_fragments(written)

    def _commit_block(self, transaction: Transaction, written: Written) -> bool:
        """The same for the usual transaction: one block to one queue, inside its record.

        False if this is another one; nothing has happened then.
        """
        block = written.only_block(MAX_DATA_BLOCK_BYTES)
        if block is None or len(block.data) > self.inline_limit:
            return False
        queue = written.queue
        charge = block.charge_bytes + OPEN_BYTES + COMMIT_BYTES
        with queue.lock:
            if queue.dropped:
                raise QueueNotFound(f"queue {queue.name!r} was dropped: roll back")
            queue.space.reserve()
        try:
            change = OneBlock(
                self.state, self.reader, transaction.id, queue, block.data, charge, block.count
            )
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
        if extents and not self.journal.failed:
            self.places.abandon(extents)

    # Files of large transactions

    def new_file(self) -> LtdsWriter:
        """For the messages of one transaction in one queue."""
        codec = codec_named(self.options.ltds_compression)
        return LtdsWriter(self.env, self.ltds_directory, self.store_id, new_id(self.env), codec)

    def inspect_fragment(self, ltds_id: int) -> LtdsInfo:
        """What a file written by another process holds, as its trailer says."""
        with LtdsReader(self.env, self.ltds_directory, ltds_id, self.store_id) as reader:
            return LtdsInfo(
                ltds_id, reader.count, reader.bytes, reader.charge_bytes, reader.payload_bytes
            )

    def hold_fragment(self, ltds_id: int, transaction_id: int) -> None:
        """Only one transaction can adopt a file."""
        with self._lock:
            if ltds_id in self._fragments or self.places.knows(ltds_id):
                raise PositionLost(
                    f"file {ltds_id:016x} belongs to a committed or open transaction already"
                )
            self._fragments[ltds_id] = transaction_id

    def let_fragment_go(self, ltds_id: int) -> None:
        """The file could not be adopted."""
        self._fragments.pop(ltds_id, None)

    def writing_file(self) -> AbstractContextManager[None]:
        """Work on a large transaction's file: a failed write or sync fails the store."""
        return self.sequencer.fail_stop("writing a large transaction's file")

    def _release_fragments(self, written: list[Written]) -> None:
        for part in written:
            for ltds_id in part.adopted:
                self._fragments.pop(ltds_id, None)

    def discard(self, transaction_id: int, written: list[Written]) -> None:
        """A transaction was rolled back: its own files and pages go, the files of others stay.

        They go later, as that takes long; until then, and if they cannot be removed, the next
        opening finds them.
        """
        for part in written:
            self.overflow.discard(transaction_id, part)
        self._release_fragments(written)
        files = [ltds_id for part in written for ltds_id in part.discard()]
        for ltds_id in files:
            self.places.discarded.add(ltds_id)
        if files:
            self.after_discard()

    # Reading

    def take(
        self,
        queue: Queue,
        subscription: Subscription,
        limit: int,
        timeout: float,
        wanted: Callable[[], bool],
    ) -> Runs:
        """The next positions for the subscription, up to `limit`, now in flight.

        Waits up to `timeout` seconds for the first, while `wanted()`.
        """
        runs: Runs = []
        with queue.lock:
            _check_there(queue, subscription)
            run = queue.take(subscription, limit)
            if run is None:
                if timeout <= 0 or not wanted():
                    return runs
                run = self._wait(queue, subscription, limit, timeout, wanted)
            while run is not None:
                runs.append(run)
                limit -= run[1] - run[0]
                run = queue.take(subscription, limit) if limit else None
        return runs

    def _wait(
        self,
        queue: Queue,
        subscription: Subscription,
        limit: int,
        timeout: float,
        wanted: Callable[[], bool],
    ) -> tuple[int, int, int] | None:
        found: list[tuple[int, int, int]] = []

        def ready() -> bool:
            if queue.dropped or not wanted() or subscription.removed:
                return True
            run = queue.take(subscription, limit)
            if run is not None:
                found.append(run)
            return run is not None

        queue.wait(timeout, ready)
        _check_there(queue, subscription)
        return found[0] if found else None

    def deliver(self, queue: Queue, subscription: Subscription, runs: Runs) -> list[Delivered]:
        """The messages at positions in flight."""
        parts: list[Delivered] = []
        for start, end, deliveries in runs:
            while start < end:
                with queue.lock:
                    pointers = queue.deliverable(subscription, start, end)
                for pointer in pointers:
                    parts += self.fetch(queue, pointer, deliveries)
                start = pointers[-1].end_position if pointers else end
        return parts

    def fetch(self, queue: Queue, pointer: Pointer, deliveries: int) -> list[Delivered]:
        """One pointer's messages; a block that is not there is looked up anew.

        A checkpoint may have moved it, or it was released: then there is nothing.
        """
        try:
            return self.reader.deliver(pointer, deliveries)
        except (BlockMoved, StoreCorrupt) as moved:
            start = pointer.ref.position + pointer.start
            end = pointer.end_position
            with queue.lock:
                again = [] if queue.dropped else queue.pointers(start, end)
            if [p.ref for p in again] == [pointer.ref]:
                raise StoreCorrupt(
                    f"queue {queue.name!r}, positions {start} to {end}: {moved}; run verify, and "
                    "restore the store from a copy"
                ) from moved
            return [part for p in again for part in self._fetch_again(queue, p, deliveries)]

    def _fetch_again(self, queue: Queue, pointer: Pointer, deliveries: int) -> list[Delivered]:
        try:
            return self.reader.deliver(pointer, deliveries)
        except (BlockMoved, StoreCorrupt) as moved:
            raise StoreCorrupt(
                f"queue {queue.name!r}, position {pointer.ref.position}: {moved}; run verify, and "
                "restore the store from a copy"
            ) from moved

    def give_back(
        self,
        queue: Queue,
        subscription: Subscription,
        runs: list[tuple[int, int]],
        *,
        counted: bool,
    ) -> None:
        """Positions in flight are available again."""
        with queue.lock:
            for start, end in runs:
                subscription.give_back(start, end, counted=counted)
            queue.wake()


def _check_there(queue: Queue, subscription: Subscription) -> None:
    if queue.dropped:
        raise QueueNotFound(f"queue {queue.name!r} was dropped")
    if subscription.removed:
        raise SubscriptionNotFound(
            f"subscription {subscription.name!r} of {queue.name!r} was removed"
        )
