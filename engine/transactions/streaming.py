"""Putting one message as a stream into an embedded store.

- STR1: its chunks go to a file of its own as they come; the queue's space is taken with each, or
  for all of them at first where the size is said. Once finished, the file is the transaction's, and
  its commit puts it as any large transaction's file.
- Until then its transaction puts nothing else into the queue, so that messages keep their put
  order, and does not commit. It can be rolled back by anybody at any time.
- STR3: what is refused or abandoned leaves no trace: the space is given back, the file is removed.
- STR4: open files, and the buffers of their writers, are bounded by `LTDS_WRITERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from quire.arguments import Bytes
from quire.block import EncodedBlock, encode_streamed
from quire.engine.commits.queue_writes import QueueWrites
from quire.engine.lookup.requested_reports import arrival_of
from quire.engine.queues.header_rules import check_obeyed, requested_bits
from quire.engine.queues.queue import Queue
from quire.engine.queues.reservation import WRITE
from quire.errors import InvalidArgument, QueueFull, TransactionClosed
from quire.limits import CHUNK_BYTES, LTDS_WRITERS, MESSAGE_OVERHEAD_BYTES
from quire.ltds import LtdsWriter
from quire.messages.message_fields import Fields
from quire.messages.message_id import MessageId, id_of
from quire.messages.payload_reader import Stream

from .context import Context
from .writes import TransactionWrites

R = TypeVar("R")


class StreamOwner(Protocol):
    """The transaction, as far as this is concerned."""

    def putting(self, action: Callable[[TransactionWrites], R], timeout: float | None = None) -> R:
        """Put something."""

    def if_open(self, action: Callable[[TransactionWrites], None]) -> None:
        """Do something with what it has put, if it is open."""


class StreamPut:
    """A put of one message as a stream. Its interface is `quire.messages.payload_writer.Sink`.

    Making it raises QueueNotFound, InvalidArgument.
    """

    def __init__(
        self,
        context: Context,
        transaction: StreamOwner,
        queue: str,
        fields: Fields | None,
        is_moved: bool,
        size: int | None,
        timeout: float | None,
    ) -> None:
        self._context = context
        self._transaction = transaction
        self._queue = queue
        self._fields = fields
        self._is_moved = is_moved  # it is there already, and its header is taken as it is
        self._size = size  # of the payload, if it is known
        self.timeout = timeout  # seconds, each time there is no room
        self._charge = 0  # that the queue's space holds
        self._done = 0  # bytes of the payload that are in the file
        self._chunk_bytes = 0  # of the first chunk
        self._written: QueueWrites | None = None  # from the first chunk on
        self._writer: LtdsWriter | None = None
        self._ended = False
        self._header_bytes = 0 if fields is None else fields.extra_bytes
        self._check_size(size or 0)

    def whole(self, payload: bytes) -> MessageId:
        self._check_open()
        target = self._check_size(len(payload))
        most = target.space.most_bytes
        if payload and most is not None and len(payload) + self._header_bytes > most:
            self.chunk(payload)  # more than a put may take
            return self.finish()
        charge = MESSAGE_OVERHEAD_BYTES + self._header_bytes + len(payload)
        message_id = self._transaction.putting(
            lambda writes: writes.put_message(
                self._queue, payload, self._fields, charge, is_moved=self._is_moved
            ),
            self.timeout,
        )
        self._ended = True
        return message_id

    def chunk(self, data: Bytes) -> None:
        self._check_open()
        size = len(data)
        was_last = self._chunk_bytes and self._done % self._chunk_bytes  # as it was short
        if was_last or not 0 < size <= (self._chunk_bytes or CHUNK_BYTES):
            raise InvalidArgument(
                f"a chunk of {size} bytes: give {CHUNK_BYTES} each time, less as the last one"
            )
        self._check_size(self._done + size)
        self._transaction.putting(partial(self._take_space, size), self.timeout)
        self._transaction.putting(partial(self._write, data), None)

    def finish(self) -> MessageId:
        self._check_open()
        message_id = self._transaction.putting(self._finish, None)
        self._ended = True
        return message_id

    def abandon(self) -> None:
        if not self._ended:
            self._ended = True
            self._transaction.if_open(self._abandon)

    # Inside; the transaction's lock is held

    def _take_space(self, size: int, writes: TransactionWrites) -> None:
        """For the next chunk; for the message, too, with the first (STR1)."""
        written, charge, messages = self._written, size, 0
        if written is None:
            messages = 1
            charge = MESSAGE_OVERHEAD_BYTES + self._header_bytes + (self._size or size)
            self._check_fits(charge)
            if self._fields is not None:
                target = self._context.state.queue(self._queue)
                check_obeyed(target.config, requested_bits(self._fields), is_moved=self._is_moved)
            written = writes.open_queue(self._queue)
            writes.take_space(written, charge, 1, is_whole=False)  # else there is nothing (STR3)
            writes.streams += 1
            self._written = written
        elif self._size is None:
            self._check_fits(self._charge + charge)
            writes.take_space(written, charge, 0, is_whole=False)
        else:
            charge = 0
        self._charge += charge
        if messages:
            self._writer = written.stream = writer = self._context.new_file(streamed=True)
            self._context.streams.add(writer)
        writes.lost = False

    def _write(self, data: Bytes, writes: TransactionWrites) -> None:
        writer = self._writer
        assert writer is not None
        with self._context.sequencer.writing_file():
            writer.append_chunk(data)
            if len(self._context.streams) > LTDS_WRITERS:  # STR4
                writer.write_out(close=True)
        self._chunk_bytes = self._chunk_bytes or len(data)
        self._done += len(data)

    def _finish(self, writes: TransactionWrites) -> MessageId:
        writer, written = self._writer, self._written
        assert writer is not None
        assert written is not None
        stream = Stream(writer.id, self._done, self._chunk_bytes)
        header = encode_streamed(stream, writes.granted(written, self._fields))
        charge = MESSAGE_OVERHEAD_BYTES + self._header_bytes
        with self._context.sequencer.writing_file():
            writer.append([EncodedBlock(header, 1, charge, 0)])
            info = writer.finish(sync_name=False)
        self._context.streams.discard(writer)
        writes.lost = True  # until the file is among what was put (PU3)
        with self._context.sequencer.writing_file():
            written.finish_stream(info)
        writes.lost = False
        writes.streams -= 1
        if self._fields is not None and not self._is_moved:
            writes.owe(arrival_of(self._queue, self._fields))
        return id_of(written, written.count - 1)

    def _abandon(self, writes: TransactionWrites) -> None:
        written, self._written = self._written, None
        if written is None:
            return
        writer, written.stream = written.stream, None
        writes.streams -= 1
        with written.queue.lock:
            written.queue.space.unwrite(self._charge, 1)
        written.charge -= self._charge
        written.count -= 1
        writes.leave_untouched(written.queue)
        if writer is not None:
            self._context.spiller.discard_file(writer)

    # Checks

    def _check_open(self) -> None:
        if self._ended:
            raise TransactionClosed("the message is finished or abandoned: begin another one")

    def _check_size(self, size: int) -> Queue:
        """Against what the queue takes. Raises InvalidArgument."""
        target = self._context.state.queue(self._queue)
        if target.is_volatile:
            raise InvalidArgument(
                f"queue {target.name!r} is volatile, and a stream goes to a file: put it into a "
                "persistent queue, or as messages of up to 1 GiB"
            )
        target.space.check_form(is_row=False)
        most = target.config.properties.most_stream_bytes
        if size + self._header_bytes > most:
            raise InvalidArgument(
                f"a stream of {size + self._header_bytes} bytes: queue {target.name!r} takes up to "
                f"{most} each (max_stream_bytes, or max_message_bytes where it has none), payload, "
                "strings and attributes together; put a smaller one, or alter_queue it"
            )
        return target

    def _check_fits(self, charge: int) -> None:
        """Nothing need give way, and nobody wait, for what the empty queue could not hold."""
        target = self._context.state.queue(self._queue)
        most = max(target.config.capacity, target.config.properties.grow_to or 0)
        if charge > most:
            full = QueueFull(
                f"queue {target.name!r} holds up to {most} bytes, and the message has {charge} or "
                "more: enlarge the queue (alter_queue, capacity), or put a smaller one"
            )
            full.queue, full.refused = target.name, (WRITE, charge, 1)
            raise full
