"""The queue manager's inside: what transactions ask of the store they belong to.

See `committer` for the order of a commit, `delivery` for that of a get.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from contextlib import suppress

from quire.env import Env
from quire.errors import QueueNotFound, QuireError
from quire.journal import Journal
from quire.ltds import LtdsWriter, codec_named, new_id
from quire.writebuffer import TransactionBuffer, WriteBuffer, WriteBuffers

from .adoptions import Adoptions
from .block_reader import BlockReader
from .committer import Committer
from .delivery import Delivery
from .info import TransactionInfo
from .options import Options
from .overflow import Overflow
from .places import Places
from .sequencer import Sequencer
from .state import State
from .transaction import Transaction
from .two_phase import TwoPhase
from .written import Written


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
        self.overflow = Overflow(places, self.sequencer)
        self.write_buffers = WriteBuffers(
            options.write_buffer_bytes,
            options.write_buffer_messages,
            per_queue=options.write_buffer == "per-queue",
        )
        self.adoptions = Adoptions(env, ltds_directory, store_id, places)
        self.committer = Committer(
            state,
            reader,
            places,
            journal,
            self.sequencer,
            self.adoptions,
            options.inline_limit(journal.max_group_bytes),
        )
        self.delivery = Delivery(reader)
        self.two_phase = TwoPhase(self)
        self.open_transactions: dict[int, Transaction] = {}
        self.after_discard: Callable[[], None] = lambda: None
        self._ids = itertools.count(1)

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

    def info(self, transaction_id: int) -> TransactionInfo | None:
        """What is to be told of a transaction; None if it is not open (any more)."""
        transaction = self.open_transactions.get(transaction_id)
        if transaction is None:
            return None
        info = transaction.info()
        return info if transaction.state == "open" else None  # else it ended meanwhile

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

    # Files of large transactions

    def new_file(self) -> LtdsWriter:
        """For the messages of one transaction in one queue."""
        codec = codec_named(self.options.ltds_compression)
        return LtdsWriter(self.env, self.ltds_directory, self.store_id, new_id(self.env), codec)

    def discard(self, transaction_id: int, written: list[Written]) -> None:
        """A transaction was rolled back: its own files and pages go, the files of others stay.

        They go later, as that takes long; until then, and if they cannot be removed, the next
        opening finds them.
        """
        for part in written:
            self.overflow.discard(transaction_id, part)
        self.adoptions.release(written)
        files = [ltds_id for part in written for ltds_id in part.discard()]
        for ltds_id in files:
            self.places.discarded.add(ltds_id)
        if files:
            self.after_discard()
