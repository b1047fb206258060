"""A transaction in a store that another process owns.

RT1. The first put to a queue is told to the owner at once, without waiting for an answer, so that
    the transaction is listed, counted in the queue, timed out and bounded there as an embedded one.
    Blocks that are put together are told together. Further puts of every kind (messages, blocks,
    files to adopt) wait at the client and travel with the commit, which is one round trip; when
    much waits, it is sent ahead. A put that is all of its transaction is told by its commit alone.
RT2. A put that the owner refuses (QueueFull) is told by the commit, the prepare, or a later put
    that has what waits sent ahead. The transaction is open then, with its puts: it can be tried
    again, or rolled back. The last one, where it is that, can be withdrawn.
RT3. A put with a request id is asked of the owner at once, after all that was put before it: only
    the owner knows whether it is one that is repeated.
RT4. The owner keeps what a queue has refused that says what to do then, and takes it by the commit,
    which waits for room (see `ServedClient`). A put with a timeout is told at once, and waits
    itself.
- What is set of states waits at the client and travels with the commit or the prepare. A value that
  is read is asked of the owner, which notes that this transaction has read it.
RT6. Each chunk of a message that is put as a stream is one request, made after all that was put
    before. Until it is finished nothing else is put into its queue, and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack
from weakref import ReferenceType

from quire.arguments import (
    Bytes,
    check_key,
    check_names,
    check_request_id,
    check_request_ids,
    check_sources,
    check_state_bytes,
    check_state_key,
    check_state_name,
    check_state_value,
    check_timeout,
    check_version,
    check_wait,
    count_of,
    state_bytes,
)
from quire.block import BlockBuilder
from quire.calls.call_table import CallRow, by_row, call_of
from quire.calls.documented import documented_by
from quire.calls.signal_safety import allow_reentry, call, undo_on_interrupt
from quire.definitions.row_schema import rows_one_by_one
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QuireError,
    StoreClosed,
    TransactionClosed,
    TransactionError,
)
from quire.interface.lookup import MessageKey, Where, where_of
from quire.interface.starts import Start, check_start
from quire.interface.store_objects import TransactionCalls
from quire.interface.transaction import Payload, Payloads, Streaming, Transaction
from quire.libraries import pa
from quire.limits import MAX_STATE_CHANGE_BYTES
from quire.messages.encoded_values import encoded_value, encoded_values, is_value
from quire.messages.message import Message
from quire.messages.message_fields import Fields, check_payload
from quire.messages.message_id import KnownId, MessageId, MessageIds, RequestedIds, id_of
from quire.messages.put_options import MessageOptions
from quire.messages.typed_message import row_payload
from quire.moments import Duration
from quire.remote.wire.delivered_messages import read_message, read_short_message
from quire.remote.wire.named_calls import read_answer
from quire.remote.wire.payload_streams import ABANDON, RemoteSink
from quire.remote.wire.protocol import (
    GET,
    GET_HEAD,
    HEAD,
    MESSAGE,
    NOTHING,
    RESULT,
    STEP,
    Frame,
    Header,
    decode_call,
    field,
)
from quire.remote.wire.values import ready
from quire.reports.info import TransactionState
from quire.rows.row_builder import RowBuilder
from quire.rows.row_input import Rows, is_row, one_row, rows_of

from .channel import Channel, StreamEnded
from .integration import JoinedTransactionIntegration
from .put_buffer import PutBuffer
from .request_outcomes import RequestProgress
from .transaction_life import TransactionLife

# Looking a member up in its class takes as long as a call.
_OPEN: Final = TransactionState.OPEN
_GET_STATE: Final = call_of(Transaction.get_value)
_GET_BY: Final = call_of(Transaction.get)
_SEEK: Final = call_of(Transaction.seek)

A = TypeVar("A")
P = ParamSpec("P")
M = TypeVar("M", bound=Mapping[str, Any])
R = TypeVar("R")


@documented_by(Transaction)
class JoinedTransaction(TransactionLife, TransactionCalls):
    """A `quire.Transaction`. Made by an `OwnerSession`."""

    _requests: dict[tuple[str, str], MessageId] | None = None  # that this one has put
    _integration = JoinedTransactionIntegration
    _streams: frozenset[str] = frozenset()  # queues into which a message is being put as a stream
    _last_stream = 0

    @call
    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        timeout: Duration | None = None,
        request_id: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> MessageId:
        wait = None if timeout is None else check_timeout(timeout)
        if type(payload) is not bytes:
            payload, options = self._encoded(queue, payload, options)
            if is_row(payload):
                return self._put_row(queue, payload, options, check_request_id(request_id), wait)
        if request_id is not None:
            check_request_id(request_id)
            return self._put_once(queue, payload, options, request_id, wait)
        with self._lock:
            queue = self._check_put(queue, wait)
            message_id = self._puts.put(queue, payload, options, self._session.put_priorities)
            self._tell_put(queue, wait)
            return message_id

    @call
    def put_moved(self, queue: str, content: Any, fields: Mapping[str, object]) -> MessageId:
        """Put a message that is there already once more: its header is taken as it is."""
        if is_row(content):
            checked = Fields.of(**self._puts.checked(fields, is_moved=True))
            return self._move_rows(queue, lambda words: [one_row(words, content, checked)])[0]
        return self.putting(queue, lambda puts, name: puts.put_moved(name, content, fields))

    @call
    def put_moved_many(self, queue: str, payloads: pa.RecordBatch) -> MessageIds:
        """Put many messages that are there already once more, with the headers that they have."""
        if self._at_store(lambda: self._session.schema_of(queue)) is not None:
            return self._move_rows(queue, lambda words: rows_of(words, payloads))
        builder = BlockBuilder()
        builder.add_arrow(payloads)
        return self.putting(queue, lambda puts, name: puts.put_moved_many(name, builder))

    def _move_rows(self, queue: str, made_for: Callable[[str], list[Rows]]) -> MessageIds:
        def put(puts: PutBuffer, name: str) -> MessageIds:
            builder = RowBuilder()
            for rows in self._fitting(name, made_for):
                builder.add(rows)
            return puts.put_moved_many(name, builder)

        return self.putting(queue, put)

    def _put_row(
        self,
        queue: str,
        value: object,
        fields: Mapping[str, object],
        request_id: str | None,
        wait: float | None,
    ) -> MessageId:
        """One message of a typed queue."""
        checked = self._puts.fields_of(fields)
        with self._lock:
            queue = self._check_put(queue, wait)
            priority = self._session.put_priorities.get(queue, 0)
            found = self._fitting(queue, lambda words: [one_row(words, value, checked, priority)])
            if request_id is None:
                ids = self._puts.put_rows(queue, found)
                self._tell_put(queue, wait)
                return ids[0]
        content = row_payload(found[0].batch)
        return self._put_once(queue, content, fields, request_id, wait, row=True)

    def _encoded(self, queue: str, payload: Any, options: M) -> tuple[Any, M]:
        """A value by its queue's codec, if that has one; what is bytes as it is."""
        if not is_value(payload):
            return payload, options
        codec = self._at_store(lambda: self._session.codec_of(queue))
        return encoded_value(queue, codec, payload, options)

    def _fitting(self, queue: str, rows_of: Callable[[str], list[Rows]]) -> list[Rows]:
        """Rows that are made for the queue's schema; which may be another than is known here."""
        words = self._at_store(lambda: self._session.schema_of(queue))
        try:
            if words is not None:
                return rows_of(words)
        except InvalidArgument:
            before, words = words, self._at_store(lambda: self._session.queue(queue).schema)
            if words == before:
                raise
        else:
            words = self._at_store(lambda: self._session.queue(queue).schema)
        if words is None:
            raise InvalidArgument(
                f"queue {queue!r} holds bytes: encode the value first (quire.codecs), or make a "
                "queue with a schema"
            )
        return rows_of(words)

    def _put_once(
        self,
        queue: str,
        payload: object,
        fields: Mapping[str, object],
        request_id: str,
        wait: float | None,
        *,
        row: bool = False,
    ) -> MessageId:
        """Ask the owner whether it is known, and have it put if not (RT3)."""
        content, fields = check_payload(payload), self._puts.checked(fields)
        with self._lock:
            queue = self._check_put(queue, wait)
            requests = self._requests = self._requests or {}
            if (queue, request_id) in requests:
                return requests[queue, request_id]
            if not self._puts.is_empty:
                self._send_ahead()
            call = {"queue": queue, "request_id": request_id, "fields": fields, "wait": wait}
            if row:
                call["row"] = True
            header = self._request("put_once", call, [content])[-1].header
            if header.get("found") is not None:
                return id_of(KnownId(field(header, "found", int)), 0)
            message_id = requests[queue, request_id] = self._puts.put_at_owner(queue)
            return message_id

    def _put_many_once(
        self, queue: str, payloads: Payloads, request_ids: list[str], wait: float | None
    ) -> MessageIds:
        """Have the owner put many that are not known, by one request, all or none (RT3)."""
        if self._at_store(lambda: self._session.schema_of(queue)) is not None:
            raise rows_one_by_one(queue)
        with self._lock:
            queue = self._check_put(queue, wait)
            bodies = self._puts.encoded(payloads, self._session.put_priorities.get(queue, 0))
            if not self._puts.is_empty:
                self._send_ahead()
            requests = self._requests = self._requests or {}
            call = {"queue": queue, "request_ids": request_ids, "wait": wait}
            header = self._request("put_many_once", call, bodies)[-1].header
            found = field(header, "found", list)
            if len(found) != len(request_ids):
                words = "the owner's answer tells of other puts"
                raise self._fail(StreamEnded(words, RequestProgress.SENT))
            ids = []
            for request_id, message_id in zip(request_ids, found, strict=True):
                if type(message_id) is int:
                    ids.append(id_of(KnownId(message_id), 0))
                    continue
                if (queue, request_id) not in requests:
                    requests[queue, request_id] = self._puts.put_at_owner(queue)
                ids.append(requests[queue, request_id])
            return RequestedIds(ids)

    @call
    def put_alone(self, queue: str, payload: Payload, fields: Mapping[str, object]) -> MessageId:
        """Put the only message; the commit follows at once and finds out if it is known."""
        if type(payload) is not bytes:
            payload, fields = self._encoded(queue, payload, fields)
            if is_row(payload):
                return self._put_row(queue, payload, fields, None, None)
        with self._lock:
            self._check_open()
            return self._puts.put(queue, payload, fields, {})  # its owner knows it

    @call
    def put_many(
        self,
        queue: str,
        payloads: Payloads,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> MessageIds:
        wait = None if timeout is None else check_timeout(timeout)
        if isinstance(payloads, Iterable) and not isinstance(payloads, Sized):
            payloads = allow_reentry(list, payloads)  # the program's code
        is_list = isinstance(payloads, Sequence) and not isinstance(payloads, memoryview)
        if is_list and payloads and is_value(payloads[0]):
            codec = self._at_store(lambda: self._session.codec_of(queue))
            payloads = payloads if codec is None else encoded_values(queue, codec, payloads)
        if request_ids is not None:
            known = check_request_ids(request_ids, count_of(payloads))
            return self._put_many_once(queue, payloads, known, wait)

        def put(puts: PutBuffer, name: str) -> MessageIds:
            priority = self._session.put_priorities.get(name, 0)
            if self._at_store(lambda: self._session.schema_of(name)) is None:
                return puts.put_many(name, payloads, priority)
            return puts.put_rows(
                name, self._fitting(name, lambda words: rows_of(words, payloads, priority))
            )

        return self.putting(queue, put, wait)

    def putting(
        self, queue: str, put: Callable[[PutBuffer, str], R], wait: float | None = None
    ) -> R:
        """Put something into a queue, which `put` is given by its own name."""
        with self._lock:
            queue = self._check_put(queue, wait)
            made = put(self._puts, queue)
            self._tell_put(queue, wait)
            return made

    @call
    def withdraw_refused(self, put: MessageId) -> bool:
        with self._lock:
            found = self._state is _OPEN and self._refused and self._puts.withdraw(put)
            self._refused = self._refused and not found
            return found

    # What connectors put besides (see `integration`)

    def keep_blocks(self, blocks: Sequence[tuple[str, Bytes]]) -> list[MessageIds]:
        """Put blocks, each into its queue, and tell of them together."""
        made = []
        with self._lock:
            self._check_open()
            names = self._own_names([queue for queue, _ in blocks])
            self._check_streams(names.values())
            for queue, data in blocks:
                self._check_full()
                made.append(self._puts.put_block(names[queue], data))
            if self._puts.waits:
                self._announce(None)
        return made

    # A message that is put as a stream (RT6)

    @call
    def begin_stream(
        self,
        queue: str,
        fields: Mapping[str, object],
        size: int | None,
        timeout: float | None,
        *,
        is_moved: bool = False,
    ) -> RemoteSink:
        checked = self._puts.checked(fields, is_moved=is_moved)
        with self._lock:
            queue = self._check_put(queue, timeout)
            number = self._last_stream = self._last_stream + 1
        return RemoteSink(self, number, queue, checked, size, timeout, is_moved)

    @call
    def ask_in_turn(
        self, op: str, arguments: Header, bodies: Sequence[Bytes], *, is_first: bool
    ) -> None:
        with self._lock:
            self._check_open()
            if self._puts.waits or (is_first and not self._puts.is_empty):
                self._send_ahead()
            if is_first:
                self._streams |= {field(arguments, "queue", str)}
            self._request(op, arguments, bodies)

    @call
    def put_at_owner(self, queue: str) -> MessageId:
        with self._lock:
            self._streams -= {queue}
            return self._puts.put_at_owner(queue)

    @call
    def abandon_stream(self, queue: str, number: int) -> None:
        with self._lock:
            self._streams -= {queue}
            if self._state is _OPEN and self._channel is not None:
                with suppress(
                    ConnectionLost, StoreClosed, TransactionClosed
                ):  # what is lost is abandoned
                    self._request(ABANDON, {"stream": number})

    def get(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
    ) -> Message | None:
        if id is not None or where is not None:
            return self._get_chosen(source, timeout, where_of(id, where))
        return self._get(source, timeout)

    @undo_on_interrupt("_roll_back_whole")
    def _get_chosen(
        self, source: str, timeout: Duration | None, where: Where | None
    ) -> Message | None:
        arguments = {"source": source, "timeout": timeout, "where": where}
        found: Message | None = allow_reentry(self.make, _GET_BY, arguments)
        return found

    @undo_on_interrupt("_roll_back_whole")
    def _get(self, source: str, timeout: Duration | None) -> Message | None:
        name, wait = check_sources(source).encode(), check_wait(timeout)
        length = GET_HEAD.size - HEAD.size + len(name)
        with self._lock:
            self._check_open()
            try:
                channel = self._channel or self._enter(wait)
            except QuireError as error:
                self._take_state(error)
                raise self._lost(error) from None
            answer = self._at_owner(
                Channel.exchange,
                lambda stream: (GET_HEAD.pack(length, GET, stream, wait), name),
                wait,
            )
            kind = answer[4]
            if kind == MESSAGE:
                return self._delivered(read_short_message, answer, source.partition("/")[0])
            if kind == NOTHING:
                return None
            if kind != RESULT:
                raise self._fail(channel.unexpected())
            return self._delivered(lambda data: self._read_message(decode_call(data)), answer)

    get_many = by_row(Transaction.get_many)
    read_many = by_row(Transaction.read_many)
    browse = by_row(Transaction.browse)
    describe = by_row(Transaction.describe)
    count = by_row(Transaction.count)
    remove = by_row(Transaction.remove)
    get_delayed = by_row(Transaction.get_delayed)

    def _roll_back_whole(self) -> None:
        """Roll back, as its reads did not reach its user: they may not count as delivered."""
        with self._lock:
            if self._state is _OPEN:
                self._roll_back()

    def _read_message(self, frame: Frame) -> Message | None:
        return read_message(frame, self._session.read_chunk)

    unget = by_row(Transaction.unget)
    reject = by_row(Transaction.reject)
    mark_moved = by_row(Streaming.mark_moved)
    unmark_moved = by_row(Streaming.unmark_moved)
    extend = by_row(Transaction.extend)

    def seek(self, source: str, to: Start, timeout: Duration = 0.0) -> None:
        check_timeout(timeout)  # it has an end, where the wait for a message need not
        self.make(_SEEK, _SEEK.bind((source, check_start(to), timeout), {}))

    @call
    def enter(self, key: str, version: int) -> None:
        entry = check_key(key), check_version(version)
        with self._lock:
            self._check_open()
            self._records.append(entry)

    @call
    def get_value(self, name: str, key: str) -> bytes | None:
        where = check_state_name(name), check_state_key(key)
        arguments = {"name": name, "key": key}
        with self._lock:
            self._check_open()
            if where in self._values:
                return self._values[where]
            found: bytes | None = self._read(_GET_STATE, self._step(_GET_STATE, arguments))
            return found

    @call
    def set_value(self, name: str, key: str, value: Bytes | None) -> None:
        where = check_state_name(name), check_state_key(key)
        checked = check_state_value(value)
        with self._lock:
            self._check_open()
            more = state_bytes(*where, checked)
            if where in self._values:
                more -= state_bytes(*where, self._values[where])
            check_state_bytes(self._value_bytes + more, MAX_STATE_CHANGE_BYTES)
            self._values[where] = checked
            self._value_bytes += more

    def end_after(self, check: ReferenceType[Callable[[], object]]) -> None:
        self._checks.append(check)

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Return the owner's answer to a step."""
        is_delivered = row.brings_messages or row.result is bool  # a removal, too
        return (self._take if is_delivered else self._ask)(row, arguments)

    @call
    def _ask(self, row: CallRow, arguments: Mapping[str, object]) -> Any:
        with self._lock:
            self._check_open()
            return self._read(row, self._step(row, arguments))

    @undo_on_interrupt("_roll_back_whole")
    def _take(self, row: CallRow, arguments: Mapping[str, object]) -> Any:
        """Deliver a step's messages to the caller, or give them back."""
        with self._lock:
            self._check_open()
            return self._delivered(self._read, row, self._step(row, arguments))

    def _read(self, row: CallRow, frames: Sequence[Frame]) -> Any:
        return read_answer(row, frames, self._session.read_chunk)

    def _step(self, row: CallRow, arguments: Mapping[str, object]) -> list[Frame]:
        seconds = None
        if row.facts.waits and "timeout" in arguments:
            seconds = check_wait(arguments["timeout"])
        prepared = ready(arguments)
        return self._at_owner(
            lambda channel: channel.request(
                {"op": row.op, "arguments": prepared}, (), seconds, kind=STEP
            )
        )

    def _delivered(self, read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Read an answer. If it cannot be read, no commit may count its messages as delivered."""
        try:
            return read(*args, **kwargs)
        except BaseException:
            self._roll_back()
            raise

    def _check_put(self, queue: str, wait: float | None = None) -> str:
        """Raise what keeps from putting, or what refused an earlier put (RT2); the queue's name.

        `wait`: how long the put says that it waits for room.

        An alias means the queue that it meant at the transaction's first put: else puts into one
        queue by two names would have no order here.
        """
        self._check_open()
        aliases = self._aliases
        name = aliases.get(queue) if aliases and isinstance(queue, str) else None
        if name is None:
            name = self._at_store(lambda: self._session.own_name(queue))
            if name != queue:
                self._aliases = {**(aliases or {}), queue: name}
        if wait:
            seconds, own = wait, name
            self._at_store(lambda: self._session.check_waits(own, seconds))
        if self._streams:
            self._check_streams([name])
        self._check_full()
        return name

    def _check_full(self) -> None:
        if self._puts.is_full:
            self._send_ahead()

    def _check_streams(self, queues: Iterable[str]) -> None:
        """Nothing is put there before the stream is finished (RT6)."""
        for queue in queues:
            if queue in self._streams:
                raise TransactionError(
                    f"a message is being put into queue {queue!r} as a stream: finish it first"
                )

    def _own_names(self, names: Iterable[str]) -> dict[str, str]:
        """Many queues by their own names."""
        known = self._aliases or {}
        unknown = [name for name in check_names(names) if name not in known]
        found = self._at_store(lambda: self._session.own_names(unknown))
        aliases = {name: own for name, own in found.items() if own != name}
        if aliases:
            self._aliases = {**known, **aliases}
        return {**known, **found}

    def _tell_put(self, queue: str, wait: float | None) -> None:
        """Send the owner what it has to know of a put at once: nothing, the queue, or all (RT4)."""
        if wait is not None:
            self._send_ahead(wait)
        elif not self._puts.knows(queue):
            self._announce(queue)

    def _announce(self, queue: str | None) -> None:
        """Tell the owner of the first put to a queue (RT1); None: of all that waits."""
        self._at_owner(self._tell, queue)

    def _tell(self, channel: Channel, queue: str | None) -> None:
        channel.tell(lambda stream: self._puts.frames(stream, queue))

    def _send_ahead(self, wait: float = 0.0) -> None:
        """Have the owner take all that was put, or raise why it does not; it waits for room."""

        def send(channel: Channel) -> None:
            puts = self._puts
            channel.tell(self._unsent_frames)
            request = {"op": "puts", "puts": puts.count, "wait": wait}
            channel.request(request, wait=wait, kind=STEP)
            puts.taken(puts.count)
            self._refused = False

        self._at_owner(send)


if TYPE_CHECKING:
    _joined: type[Transaction] = JoinedTransaction
