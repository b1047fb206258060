"""The messages that a transaction has put, by queue, until it ends. Its lock covers all of this.

It begins light: one small message for each of a few queues, held by itself. With a second message
for a queue, a batch, a file, or more than `light_bytes` it takes its full form, in which messages
wait in the write buffer, and leave it.

- PU1: a put takes its queue's space first (rules S1, S2 of `reservation`); what is refused leaves
  everything as it was, and a queue that nothing was put to as if it had not been opened.
- PU2: before a message is added, room is made in the write buffer (see `overflow`); past the limits
  of a large transaction its messages go to files. What is light is less than what a transaction
  may hold before it tells the buffer.
- PU3: messages whose space is taken are `lost` until all of them are where they wait. Whatever ends
  a put in between, an error or an interrupt, leaves it so: the transaction is to be rolled back.
- PU4: a queue's first put is all there or nothing of it: its space is taken and it is noted here by
  statements without a call, between which CPython raises no signal's exception. A rollback gives
  back queue by queue, each in such a step, so it may be interrupted and begun again.
- PU5: what a queue grants to messages that do not say it (when they expire, their priority) is put
  into their headers, as the queue's properties are when this transaction first puts to it. Without
  a column of priorities a block says none, with one each has its own. What is moved keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from quire.arguments import Bytes, check_name
from quire.block import EncodedBlock
from quire.block.header_columns import Headers
from quire.definitions.properties import Granted
from quire.engine.commits.adoptions import FileCheck
from quire.engine.commits.queue_writes import QueueWrites, add_block, move_to_files, written_to
from quire.engine.lookup.requested_reports import RequestedReport, arrival_of, arrivals_in
from quire.engine.queues.header_rules import check_headers, check_obeyed, requested_bits
from quire.engine.queues.queue import Queue
from quire.engine.queues.reservation import OPEN
from quire.errors import (
    InvalidArgument,
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    QuireError,
    TransactionError,
)
from quire.ltds import check_foreign
from quire.messages import encoded_values as value_encoding
from quire.messages.message_fields import Fields
from quire.messages.message_id import MessageId, MessageIds, id_of
from quire.rows.open_block import check_block
from quire.rows.row_block import RowBlock
from quire.rows.row_input import Rows, one_row, rows_of
from quire.writebuffer import Account, TransactionBuffer, WriteBuffer

from .arrow_slices import PayloadParts, row_slices
from .context import Context
from .own_requests import OwnRequests
from .waiting_for_room import put_on_behalf


class TransactionWrites:
    """The messages that a transaction has put, by queue."""

    __slots__ = (
        "_buffer", "_charge", "_context", "_granted", "_messages", "_owed", "_transaction_id",
        "by_queue", "is_light", "large", "lost", "requests", "streams",
    )  # fmt: skip

    def __init__(self, context: Context, transaction_id: int, large: bool) -> None:
        self.large = large
        self.by_queue: dict[Queue, QueueWrites] = {}  # those whose space holds something for it
        self.is_light = True  # nothing waits in the write buffer, or has left it
        self.lost = False  # part of the messages (PU3)
        self.requests: OwnRequests | None = None
        self.streams = 0  # messages that are being put
        self._granted: dict[Queue, Granted] | None = None  # by queues that grant anything
        self._buffer: TransactionBuffer | None = None
        self._context = context
        self._transaction_id = transaction_id
        self._charge = self._messages = 0  # of all that was put
        if large:
            self.fill()

    def fill(self) -> TransactionBuffer:
        """Take the full form."""
        buffer = self._buffer
        if buffer is None:
            self.lost = True  # until all have their messages in the buffer
            buffer = self._context.write_buffers.open(self._transaction_id)
            for written in self.by_queue.values():
                written.fill(buffer.queue(written.queue.queue_id), self._context.new_file)
                if self._granted:
                    self._grant(written)
            self._owed: list[RequestedReport] = []  # which the commit is to put, too
            self._buffer, self.is_light, self.lost = buffer, False, False
        return buffer

    # Putting

    def put_message(
        self,
        queue: str,
        content: bytes,
        fields: Fields | None,
        charge: int,
        *,
        is_moved: bool = False,
    ) -> MessageId:
        context = self._context
        target = context.state.names.get(queue) if type(queue) is str else None
        if fields is not None and target is not None and fields.columns & target.space.looked_at:
            check_obeyed(target.config, requested_bits(fields), is_moved=is_moved)
            if fields.reply_to and not is_moved and (reports := arrival_of(queue, fields)):
                found = self.put_message(queue, content, fields, charge, is_moved=True)
                self.owe(reports)
                return found
        if self.is_light:
            total, messages = self._charge + charge, self._messages + 1
            if (
                target is not None
                and target not in self.by_queue
                and total < context.light_bytes
                and messages < context.light_messages
                and not context.write_buffers.common.full
            ):
                written = written_to(target, charge, 1, content, fields)
                if target.asks_more:
                    self._tell_unread(target)
                    if target.grants:
                        self._grant_lone(written)
                self._open(written, total, messages)
                return id_of(written, 0)
            self.fill()
        known = None if target is None else self.by_queue.get(target)
        if (
            target is None
            or known is None
            or target.dropped
            or target.space.is_typed
            or known.stream is not None
            or known.buffer.account.shared.full
        ):
            known = self._claim(queue, charge, 1)
        else:
            self.take_space(known, charge, 1)
        if self._granted:
            fields = self.granted(known, fields)
        buffer = known.buffer
        buffer.builder.append(content, fields, charge)
        self._note(buffer.account, charge, 1)
        self.lost = False
        return id_of(known, known.count - 1)

    def put_row(
        self, queue: str, value: object, fields: Fields | None, *, is_moved: bool = False
    ) -> MessageId:
        """One row, of a mapping or a batch."""
        ids = self.put_rows(
            queue,
            lambda words, priority: [one_row(words, value, fields, priority)],
            is_moved=is_moved,
        )
        return ids[0]

    def put_once(
        self, request_id: str | None, queue: str, put: Callable[[], MessageId]
    ) -> MessageId:
        """Call `put`; or return the id of the earlier put where the request id is known."""
        return put() if request_id is None else self.own_requests().once(request_id, queue, put)

    def own_requests(self) -> OwnRequests:
        """Those that were put with a request id, and what is known of request ids."""
        if self.requests is None:
            state, journal = self._context.state, self._context.journal
            self.requests = OwnRequests(state, journal.max_group_bytes)
        return self.requests

    def put_rows(
        self, queue: str, made_for: Callable[[str, int], list[Rows]], *, is_moved: bool = False
    ) -> MessageIds:
        """All rows made for the queue's schema and default priority or, with an error, none."""
        target = self._context.state.queue(queue)
        target.space.check_form(is_row=True)
        granted = self._granted_by(target)
        found = made_for(target.schema or "", 0 if granted is None else granted.priority)
        reports = self._arrival_reports(target, [rows.headers for rows in found], is_moved=is_moved)
        charge, count = sum(rows.charge_bytes for rows in found), sum(len(r.sizes) for r in found)
        most = partial(max, (rows.largest_charge for rows in found), default=0)

        def add(written: QueueWrites) -> None:
            granted = self._granted_by(written.queue)
            for rows in found:
                for part in row_slices(rows):
                    self._make_room(written)
                    written.buffer.add_rows(part if granted is None else part.with_granted(granted))
                    self._note(written.buffer.account, part.charge_bytes, len(part.sizes))

        return self._put_all(queue, charge, count, add, most, reports, is_row=True)

    def put_batch(self, queue: str, payloads: Any, *, is_moved: bool = False) -> MessageIds:
        """All of them or, with an error, none."""
        target = self._context.state.queue(queue)
        if (codec := target.config.properties.codec) is not None:
            payloads = value_encoding.encoded_values(queue, codec, payloads)
        if target.space.is_typed:
            return self.put_rows(
                queue,
                lambda words, priority: rows_of(words, payloads, priority),
                is_moved=is_moved,
            )
        granted = self._granted_by(target)
        parts = PayloadParts(payloads, 0 if granted is None else granted.priority)
        reports = self._arrival_reports(target, parts.headers, is_moved=is_moved)

        def add(written: QueueWrites) -> None:
            for runs, charge, count in parts:
                self._make_room(written)
                written.buffer.builder.add_runs(runs)
                self._note(written.buffer.account, charge, count)

        return self._put_all(queue, parts.charge, parts.count, add, parts.largest_charge, reports)

    def put_block(self, queue: str, data: Bytes, *, is_moved: bool = False) -> MessageIds:
        """The messages of one encoded block, verified first."""
        block = check_block(data)
        words = block.words if isinstance(block, RowBlock) else None
        target = self._context.state.queue_of(queue, words)
        reports = (
            self._arrival_reports(target, [block.headers], is_moved=is_moved)
            if block.columns
            else ()
        )
        charge, count = block.charge_bytes, block.count
        encoded = EncodedBlock(bytes(data), count, charge, block.payload_bytes)

        def add(written: QueueWrites) -> None:
            add_block(written, encoded, self._granted_by(written.queue), is_moved=is_moved)
            self._note(written.buffer.account, charge, count)

        is_row = words is not None
        most = block.largest_charge
        return self._put_all(queue, charge, count, add, most, reports, is_row=is_row)

    def adopt_file(self, queue: str, ltds_id: int, check: FileCheck | None = None) -> MessageIds:
        """The messages of a file that another process wrote. `check`: see there."""
        check_name(queue, "queue")
        check_foreign(ltds_id)
        context = self._context
        if context.state.queue(queue).is_volatile:
            raise InvalidArgument(
                f"queue {queue!r} is volatile: it adopts no files (as Spark's tasks write them); "
                "put the messages, or use a persistent queue"
            )
        context.adoptions.hold(ltds_id)
        try:
            info, words = context.adoptions.inspect(ltds_id, check)
            target = self._context.state.queue_of(queue, words)
            bits = context.adoptions.bits(ltds_id, target.space.looked_at)
            check_obeyed(target.config, bits, is_moved=False)
            most = partial(context.adoptions.largest, ltds_id)

            def add(written: QueueWrites) -> None:
                with context.sequencer.writing_file():
                    written.adopt(info)

            is_row = words is not None
            return self._put_all(queue, info.charge_bytes, info.count, add, most, is_row=is_row)
        except Exception:
            context.adoptions.let_go(ltds_id)
            raise

    def _put_all(
        self,
        queue: str,
        charge: int,
        count: int,
        add: Callable[[QueueWrites], None],
        largest: Callable[[], int],
        reports: Sequence[RequestedReport] = (),
        *,
        is_row: bool = False,
    ) -> MessageIds:
        """All messages that `add` adds or, with an error, none (PU3); see `_claim`."""
        written = self._claim(queue, charge, count, largest, is_row=is_row)
        add(written)
        self._owed += reports
        self.lost = False
        return MessageIds(written, written.count - count, count)

    def _arrival_reports(
        self, queue: Queue, parts: list[Headers], *, is_moved: bool
    ) -> list[RequestedReport]:
        """Those of arrivals that are asked for. Raises as `check_headers`."""
        check_headers(queue.config, parts, is_moved=is_moved)
        return [] if is_moved else arrivals_in(queue.name, parts)

    def owe(self, reports: Sequence[RequestedReport]) -> None:
        """The commit is to put these, too."""
        self.fill()
        self._owed += reports

    def complete(self) -> None:
        """For the commit: put what is owed, each once (WR1). Raises TransactionError."""
        if self.streams:
            raise TransactionError(
                f"{self.streams} messages are being put as streams: finish or abandon them first"
            )
        put_on_behalf(self._context, self._owed, self.put_message)

    def _tell_unread(self, queue: Queue) -> None:
        """Warn that nobody reads the queue, for transactions of this process's user only (NR1)."""
        own = self._context.registry.open.get(self._transaction_id)
        transaction = None if own is None else own()
        if transaction is not None and transaction.put_timeout is None:
            queue.tell_unread()

    # What a queue grants (PU5)

    def _granted_by(self, queue: Queue) -> Granted | None:
        """Return what the queue grants to messages, if anything."""
        if self._granted is None:
            if not queue.grants:
                return None
            self._granted = {}
        if queue not in self.by_queue:
            self._granted.pop(queue, None)  # of a put that was refused
            if queue.grants:
                self._granted[queue] = queue.config.properties.granted(self._context.env.now_us())
        return self._granted.get(queue)

    def _grant(self, written: QueueWrites) -> None:
        """To messages that are put from now on."""
        granted = written.buffer.builder.granted = self._granted_by(written.queue)
        if granted is not None:
            written.expires_by = granted.latest

    def _grant_lone(self, written: QueueWrites) -> None:
        """To a lone message."""
        granted = self._granted_by(written.queue)
        if granted is not None:
            written.fields = Fields.with_granted(written.fields, granted)
            written.expires_by = granted.latest

    def granted(self, written: QueueWrites, fields: Fields | None) -> Fields | None:
        """Return the fields of a message's put, with what its queue grants."""
        granted = self._granted.get(written.queue) if self._granted else None
        return fields if granted is None else Fields.with_granted(fields, granted)

    # Space (PU1)

    def _open(self, written: QueueWrites, total: int, messages: int) -> None:
        """The first put to a queue; so much, and so many, are put with it in all (PU4)."""
        queue = written.queue
        log = queue.log
        with queue.admission:
            if queue.dropped:
                raise QueueNotFound(f"there is no queue {queue.name!r}: it was just dropped")
            place = log.next_place(queue.durable.end_position)
            queue.space.open(written.charge, written.count)
            log.opened[self._transaction_id] = place
            self.by_queue[queue] = written
            self._charge, self._messages = total, messages

    def _abandon(self, queue: Queue) -> None:
        """Give the queue's space back (PU4)."""
        written = self.by_queue[queue]
        with queue.lock:
            queue.log.rollback(self._transaction_id, queue.durable.end_position)
            queue.space.abandon(written.charge, written.count)
            del self.by_queue[queue]

    def open_queue(self, queue: str) -> QueueWrites:
        """Return the writes to the queue, which is opened if it was not."""
        buffer = self.fill()
        target = self._context.state.queue(queue)
        written = self.by_queue.get(target)
        if written is None:
            written = written_to(target, 0, 0, b"", None)
            written.fill(buffer.queue(target.queue_id), self._context.new_file)
            if target.asks_more:
                self._tell_unread(target)
                if target.grants:
                    self._grant(written)
            self._open(written, self._charge, self._messages)
        elif written.queue.dropped:
            raise QueueNotFound(f"queue {queue!r} was dropped: roll back")
        elif written.stream is not None:
            raise TransactionError(
                f"a message is being put into queue {queue!r} as a stream: finish it first"
            )
        return written

    def _claim(
        self,
        queue: str,
        charge: int,
        messages: int,
        largest: Callable[[], int] | None = None,
        *,
        is_row: bool = False,
    ) -> QueueWrites:
        """`largest`: tells the largest charge, where they are more than one."""
        space = self._context.state.queue(queue).space
        space.check_form(is_row=is_row)
        if largest is not None and space.most_bytes is not None:
            space.check_size(largest())
        written = self.open_queue(queue)
        self._make_room(written)
        self.take_space(written, charge, messages)
        return written

    def take_space(
        self, written: QueueWrites, charge: int, messages: int, is_whole: bool = True
    ) -> None:
        """Take space of its queue, for messages that are lost until they are put (PU3).

        `is_whole`: a message's charge is known, as it is not of a stream's.
        """
        queue = written.queue
        try:
            with queue.admission:
                queue.space.write(charge, messages, is_whole)
                written.charge += charge
                written.count += messages
                self.lost = True
        except (QueueFull, QueueDisabled, InvalidArgument) as error:
            self.leave_untouched(queue)
            if isinstance(error, QueueFull) and queue not in self.by_queue:
                error.refused = OPEN, charge, messages  # which comes with it when it is done again
            raise

    def leave_untouched(self, queue: Queue) -> None:
        """Drop a queue's writes if nothing was put to it, as if it had not been opened."""
        written = self.by_queue.get(queue)
        if written is not None and not written.count:
            self._abandon(queue)

    # Memory (PU2)

    def _make_room(self, written: QueueWrites) -> None:
        buffer = written.buffer.account.shared
        if buffer.full:
            try:
                self._context.registry.relieve(buffer, self._transaction_id, self)
            except QuireError:
                self.leave_untouched(written.queue)
                raise

    def _note(self, account: Account, charge: int, messages: int) -> None:
        self._charge = total = self._charge + charge
        self._messages = count = self._messages + messages
        account.grow(charge, messages)
        options = self._context.options
        if self.large:
            full = account.bytes >= options.large_flush_bytes
        else:
            full = total > options.large_limit_bytes or count > options.large_limit_messages
        if full:
            self._to_files(options.large_flush_bytes)

    def leave(self, buffer: WriteBuffer | None) -> bool:
        """Leave a write buffer (None: all of them); whether there was anything."""
        self.fill()
        leaving = [
            written
            for written in self.by_queue.values()
            if not written.buffer.empty and buffer in (None, written.buffer.account.shared)
        ]
        if self.large or self._context.options.when_full == "large":
            if leaving:
                self._to_files(0)
            return bool(leaving)
        was_lost, self.lost = self.lost, True
        try:
            for written in leaving:
                self._context.spiller.spill(self._transaction_id, written)
        except QuireError:  # of that one nothing has left
            self.lost = was_lost
            raise
        self.lost = was_lost
        return bool(leaving)

    def _to_files(self, may_wait_bytes: int) -> None:
        """Move what waits to files (PU3). So much of all files together may wait for a write."""
        self.large, was_lost, self.lost = True, self.lost, True
        with self._context.sequencer.writing_file():
            move_to_files(self.by_queue.values(), may_wait_bytes)
        self.lost = was_lost

    @property
    def broken(self) -> bool:
        """Return True if messages are lost, or a file could not be completed (PU3)."""
        return self.lost or any(written.broken for written in self.by_queue.values())

    @property
    def buffered_bytes(self) -> int:
        """In memory, as charged."""
        return self._charge if self._buffer is None else self._buffer.bytes

    def drop(self) -> None:
        """The transaction is rolled back: give its queues' space, pages and files back.

        Files go later, as that takes long; until then, and if they cannot be removed, the next
        opening finds them.
        """
        if self._buffer is not None:
            self._context.spiller.discard(self.by_queue.values())
            self._context.adoptions.release(self.by_queue.values())
        for queue in list(self.by_queue):
            self._abandon(queue)

    def give_ids(self, first_id: int) -> None:
        """The transaction is committed: ids count up in part order."""
        for written in self.by_queue.values():
            written.first_id = first_id
            first_id += written.count

    def give_ids_of_both(self, first_id: int, volatile_first_id: int) -> None:
        """The transaction is committed; messages in volatile queues have ids of their own."""
        firsts = [first_id, volatile_first_id]
        for written in self.by_queue.values():
            which = int(written.queue.is_volatile)
            written.first_id = firsts[which]
            firsts[which] += written.count

    def close(self) -> None:
        """The transaction has ended, or was prepared: nothing waits in memory."""
        if self._buffer is not None:
            for written in self.by_queue.values():
                written.placed = []
            self._buffer.close()
