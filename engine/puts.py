"""What a transaction has put, queue by queue, until it ends. Its lock covers all of this.

- W1: a put takes its queue's space first (rules S1, S2 of `reservation`); what is refused leaves
  everything as it was, and a queue that nothing was put to as if it had not been opened.
- W2: before a message is added, room is made in the write buffer (see `overflow`); past the limits
  of a large transaction its messages go to files.
- W3: when that fails, part of them is lost: `lost` is called, and the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.arguments import Bytes, check_name
from quire.block import EncodedBlock, check_block
from quire.errors import QueueFull, QueueNotFound, QuireError
from quire.limits import LTDS_WRITERS, MAX_DATA_BLOCK_BYTES
from quire.ltds import check_foreign
from quire.message import Fields
from quire.writebuffer import WriteBuffer

from .arrow_slices import measure, slices_of
from .message_id import MessageId, MessageIds
from .written import Written

if TYPE_CHECKING:
    from .manager import Manager


class Puts:
    """See the module."""

    def __init__(
        self, manager: Manager, transaction_id: int, large: bool, lost: Callable[[], None]
    ) -> None:
        self.large = large
        self.by_queue: dict[str, Written] = {}
        self._manager = manager
        self._transaction_id = transaction_id
        self._lost = lost
        self._buffer = manager.write_buffers.open(transaction_id)
        self._charge = self._messages = 0  # of all that was put
        self._closed = False

    def __iter__(self) -> Iterator[Written]:
        return iter(list(self.by_queue.values()))

    def __bool__(self) -> bool:
        return bool(self.by_queue)

    # Putting

    def one(self, queue: str, content: bytes, fields: Fields | None, charge: int) -> MessageId:
        written = self._claim(queue, charge, 1)
        written.buffer.builder.append(content, fields, charge)
        index = written.count
        self._note(written, charge, 1)
        return MessageId(written, index)

    def many(self, queue: str, payloads: Any) -> MessageIds:
        """All of them or, with an error, none."""
        is_arrow = isinstance(payloads, (pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table))
        if is_arrow and len(parts := slices_of(payloads)) > 1:
            return self._slices(queue, parts)
        written = self._written(queue)
        self._make_room(written)
        builder = written.buffer.builder
        mark = builder.mark()
        before = builder.charge_bytes
        try:
            count = builder.add_arrow(payloads) if is_arrow else builder.add_many(payloads)
        except BaseException:
            self._leave_untouched(queue)
            raise
        charge = builder.charge_bytes - before
        try:
            self._take_space(written, charge, count)
        except BaseException:
            builder.undo(mark)
            raise
        index = written.count
        if count:
            self._note(written, charge, count)
        return MessageIds(written, index, count)

    def _slices(self, queue: str, parts: list[Any]) -> MessageIds:
        """All are checked, and the queue's space is taken for all, before the first is put."""
        self._written(queue)
        try:
            sizes = [measure(part) for part in parts]
        except BaseException:
            self._leave_untouched(queue)
            raise
        charge, count = (sum(size) for size in zip(*sizes, strict=True))
        written = self._claim(queue, charge, count)
        index = written.count
        written.charge += charge
        written.count += count
        try:
            for part, (own_charge, own_count) in zip(parts, sizes, strict=True):
                self._make_room(written)
                written.buffer.builder.add_arrow(part)
                written.charge -= own_charge  # which is noted now
                written.count -= own_count
                self._note(written, own_charge, own_count)
        except BaseException:
            if not self._closed:  # all of them or none
                self._lost()
            raise
        return MessageIds(written, index, count)

    def block(self, queue: str, data: Bytes) -> MessageIds:
        """The messages of one encoded block, verified first."""
        block = check_block(data)
        charge = block.charge_bytes
        encoded = EncodedBlock(bytes(data), block.count, charge, block.payload_bytes)
        written = self._claim(queue, charge, block.count)
        written.buffer.add_block(encoded, MAX_DATA_BLOCK_BYTES)
        index = written.count
        self._note(written, charge, block.count)
        return MessageIds(written, index, block.count)

    def file(self, queue: str, ltds_id: int) -> MessageIds:
        """The messages of a file that another process wrote."""
        check_name(queue, "queue")
        check_foreign(ltds_id)
        manager = self._manager
        manager.adoptions.hold(ltds_id, self._transaction_id)
        try:
            info = manager.adoptions.inspect(ltds_id)
            written = self._claim(queue, info.charge_bytes, info.count)
            index = written.count
            written.count += info.count
            written.charge += info.charge_bytes
            with manager.sequencer.writing_file():
                written.adopt(info, MAX_DATA_BLOCK_BYTES)
        except BaseException:
            manager.adoptions.let_go(ltds_id)
            if self.broken:
                self._lost()
            raise
        return MessageIds(written, index, info.count)

    # Space (W1)

    def _written(self, queue: str) -> Written:
        try:
            written = self.by_queue.get(queue)
        except TypeError:
            check_name(queue, "queue")  # what cannot be looked up is none
            raise
        if written is None:
            written = self._manager.open_queue(queue, self._buffer)
            self.by_queue[queue] = written
        elif written.queue.dropped:
            raise QueueNotFound(f"queue {queue!r} was dropped: roll back")
        return written

    def _claim(self, queue: str, charge: int, messages: int) -> Written:
        written = self._written(queue)
        if written.buffer.account.shared.full:
            self._make_room(written)
        self._take_space(written, charge, messages)
        return written

    def _take_space(self, written: Written, charge: int, messages: int) -> None:
        queue = written.queue
        try:
            with queue.admission:
                queue.space.write(charge, messages)
        except QueueFull:
            self._leave_untouched(queue.name)
            raise

    def _leave_untouched(self, queue: str) -> None:
        written = self.by_queue[queue]
        if not written.count:
            del self.by_queue[queue]
            with written.queue.lock:
                written.queue.leave(self._transaction_id)

    # Memory (W2)

    def _make_room(self, written: Written) -> None:
        buffer = written.buffer.account.shared
        if buffer.full:
            try:
                self._manager.relieve_buffer(buffer, self._transaction_id, self.leave)
            except QuireError:
                if not self._closed:
                    self._leave_untouched(written.queue.name)
                raise

    def _note(self, written: Written, charge: int, messages: int) -> None:
        written.charge += charge
        written.count += messages
        self._charge += charge
        self._messages += messages
        account = written.buffer.account
        account.grow(charge, messages)
        options = self._manager.options
        if self.large:
            full = account.bytes >= options.large_flush_bytes
        else:
            full = (
                self._charge > options.large_limit_bytes
                or self._messages > options.large_limit_messages
            )
        if full:
            self._to_files(options.large_flush_bytes)

    def leave(self, buffer: WriteBuffer | None) -> bool:
        """Leave a write buffer (None: all of them); whether there was anything."""
        leaving = [
            written
            for written in self.by_queue.values()
            if not written.buffer.empty and buffer in (None, written.buffer.account.shared)
        ]
        if self.large or self._manager.options.when_full == "large":
            if leaving:
                self._to_files(0)
        else:
            for written in leaving:
                self._spill(written)
        return bool(leaving)

    def _spill(self, written: Written) -> None:
        try:
            self._manager.overflow.spill(self._transaction_id, written)
        except QuireError:  # nothing has left
            raise
        except BaseException:  # an interrupt: what has left is not known (W3)
            self._lost()
            raise

    def _to_files(self, may_wait_bytes: int) -> None:
        """Move what waits to files (W3). So much of all files together may wait for a write."""
        self.large = True
        written = self.by_queue.values()
        try:
            with self._manager.sequencer.writing_file():
                many = len(written) > LTDS_WRITERS
                for part in written:
                    part.flush(MAX_DATA_BLOCK_BYTES)
                    if many:
                        part.write_out(close=True)
                if sum(part.waiting_bytes for part in written) > may_wait_bytes:
                    for part in written:
                        part.write_out(close=False)
        except BaseException:
            self._lost()
            raise

    # Looking, ending

    @property
    def broken(self) -> bool:
        """Whether a file could not be completed (W3)."""
        return any(written.broken for written in self.by_queue.values())

    @property
    def buffered_bytes(self) -> int:
        """In the write buffer, as charged."""
        return self._buffer.bytes

    def drop(self) -> None:
        """The transaction is rolled back: give its queues' space, pages and files back."""
        for written in self.by_queue.values():
            with written.queue.lock:
                written.queue.space.abandon(written.charge, written.count)
        self._manager.discard(self._transaction_id, list(self.by_queue.values()))

    def forget(self) -> None:
        """It is prepared: the store has all of it."""
        for written in self.by_queue.values():
            written.forget()

    def close(self) -> None:
        """The transaction has ended, or was prepared: nothing waits in memory."""
        self._closed = True
        self._buffer.close()
