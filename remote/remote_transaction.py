"""A transaction in a store that another process owns.

RT1. The first put to a queue is told to the owner at once, without waiting for an answer, so that
    the transaction is listed, counted in the queue, timed out and bounded there as an embedded one.
    Blocks that are put together are told together. Further puts of every kind (messages, blocks,
    files to adopt) wait at the client and travel with the commit, which is one round trip; when
    much waits, it is sent ahead.
RT2. A put that the owner refuses (QueueFull) is told by the commit, the prepare, or a later put
    that has what waits sent ahead. The transaction is open then, with its puts: it can be tried
    again, or rolled back.
RT3. A put with a request id is asked of the owner at once, after all that was put before it: only
    the owner knows whether it is one that is repeated.
RT4. The owner keeps what a queue has refused that says what to do then, and takes it by the commit,
    which waits for room (see `Session`). A put with a timeout is told at once, and waits itself.
RT5. What is set of states waits at the client and travels with the commit or the prepare. A value
    that is read is asked of the owner, which notes that this transaction has read it.
RT6. Each chunk of a message that is put as a stream is one request, made after all that was put
    before. Until it is finished nothing else is put into its queue, and nothing is committed.

| state | how |
|---|---|
| open | from the beginning |
| prepared | `prepare` returned: it belongs to the owner, the connection's end does nothing to it |
| committed | `commit` returned |
| rolled back | by `rollback`, a failed commit, its timeout, `abort`, or loss of the connection |
| in doubt | the owner was lost during the commit (OutcomeUnknown), or its disk failed |

A commit or prepare that raised for a reason that can go away (QueueFull, DiskFull) leaves it open.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar, Unpack

import pyarrow as pa

from quire.arguments import (
    Bytes,
    check_blocks,
    check_delay,
    check_ends,
    check_flag,
    check_key,
    check_max_messages,
    check_message_id,
    check_names,
    check_preparable,
    check_reason,
    check_request_id,
    check_request_ids,
    check_source,
    check_state_bytes,
    check_state_key,
    check_state_name,
    check_state_value,
    check_timeout,
    check_version,
    check_wait,
    check_xid,
    count_of,
    state_bytes,
)
from quire.block import BlockBuilder, RowBuilder, Rows, is_row, one_row, rows_of
from quire.documented import documented_by
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QuireError,
    TransactionAborted,
    TransactionClosed,
    TransactionError,
    TransactionTimeout,
)
from quire.info import TransactionState
from quire.limits import MAX_STATE_CHANGE_BYTES
from quire.message import Fields, Message, Messages, check_message, check_payload
from quire.message_id import KnownId, MessageId, MessageIds, RequestedIds, id_of
from quire.moments import Duration
from quire.put_options import MessageOptions
from quire.retry import Retry
from quire.row_schema import rows_one_by_one
from quire.single_calls import TransactionCalls
from quire.starts import Start, check_start
from quire.transaction import Payload, Payloads, Transaction
from quire.typed_message import row_payload
from quire.uninterrupted import OwnLock, call, giving, nested

from .channel import Channel, StreamEnded
from .deciding import LISTED, Decided, decide
from .delivery import read_message, read_messages, read_short_message, read_value
from .limits import ROLLBACK_SECONDS, TELL_BYTES
from .protocol import (
    CALL,
    COMMIT,
    COMMIT_FRAME,
    COMMITTED,
    GET,
    GET_HEAD,
    HEAD,
    MESSAGE,
    MOVED_FIELDS,
    NOTHING,
    RESULT,
    ROLLBACK,
    ROLLBACK_FRAME,
    TELL,
    Decision,
    Frame,
    Header,
    decode_call,
    encode_call,
    encode_wait,
    field,
)
from .put_buffer import PutBuffer
from .results import read_list
from .streams import ABANDON, RemoteSink

if TYPE_CHECKING:
    from .client import RemoteStore

# Looking a member up in its class takes as long as a call.
_OPEN: Final = TransactionState.OPEN
_PREPARED: Final = TransactionState.PREPARED
_COMMITTED: Final = TransactionState.COMMITTED
_IN_DOUBT: Final = TransactionState.IN_DOUBT

_FROM_OUTSIDE: Final = TransactionTimeout, TransactionAborted

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


@documented_by(Transaction)
class RemoteTransaction(TransactionCalls):
    """A `quire.Transaction`. Made by `RemoteStore`."""

    _requests: dict[tuple[str, str], MessageId] | None = None  # that this one has put
    _streams: frozenset[str] = frozenset()  # queues into which a message is being put as a stream
    _last_stream = 0

    def __init__(
        self,
        store: RemoteStore,
        number: int,
        *,
        timeout: float | None,
        large: bool,
        owner: str | None = None,
        durable: bool = True,
    ) -> None:
        self.id: Final = number
        self._state = _OPEN
        self._store = store
        self._connection = store.connection
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._large = large
        self._owner = owner
        self._durable = durable
        self._lock = OwnLock(threading.Lock())
        self._channel: Channel | None = None
        self._number = 0  # on the channel
        self._refused = False  # a put, by the owner
        self._puts = PutBuffer()
        self._aliases: dict[str, str] | None = None  # that were used, each with its queue's name
        self._records: list[tuple[str, int]] = []
        self._values: dict[tuple[str, str], bytes | None] = {}  # of states, that it sets
        self._value_bytes = 0
        self._cause: QuireError | None = None  # why it was rolled back, if not by its user
        self._prepared: tuple[str, int] = "", 0  # its xid, and its number at the owner

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is None:
            return
        channel.broken = True  # which rolls it back at the owner
        self._connection.give_back(channel)
        if self._state is _OPEN and self._connection.usable:
            warnings.warn(
                f"transaction {self.id} was dropped while it was open: it is rolled back; use it "
                "in a with block, or end it by commit() or rollback()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._state is _PREPARED:
            return
        if kind is not None:
            self.rollback()
        elif self._state is _OPEN or self._cause is not None:
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise

    @property
    def state(self) -> str:
        return self._state.value

    @property
    def is_open(self) -> bool:
        """Whether its state is "open"."""
        return self._state is _OPEN

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
        if type(payload) is not bytes and is_row(payload):
            return self._put_row(queue, payload, options, check_request_id(request_id), wait)
        if request_id is not None:
            check_request_id(request_id)
            return self._put_once(queue, payload, options, request_id, wait)
        with self._lock:
            queue = self._check_put(queue)
            message_id = self._puts.put(queue, payload, options)
            self._tell_put(queue, wait)
            return message_id

    @call
    def put_moved(self, queue: str, content: Any, fields: Mapping[str, object]) -> MessageId:
        """Put a message that is there already once more: its header is taken as it is."""
        if is_row(content):
            checked = Fields.of(**self._puts.checked(fields, is_moved=True))
            return self._move_rows(queue, lambda words: [one_row(words, content, checked)])[0]
        with self._lock:
            queue = self._check_put(queue)
            message_id = self._puts.put(queue, content, fields, MOVED_FIELDS)
            self._tell_put(queue, None)
            return message_id

    @call
    def put_moved_many(self, queue: str, payloads: pa.RecordBatch) -> MessageIds:
        """The same of many."""
        if self._at_store(lambda: self._store.schema_of(queue)) is not None:
            return self._move_rows(queue, lambda words: rows_of(words, payloads))
        builder = BlockBuilder()
        builder.add_arrow(payloads)
        with self._lock:
            queue = self._check_put(queue)
            ids = self._puts.put_moved(queue, builder)
            self._tell_put(queue, None)
            return ids

    def _move_rows(self, queue: str, made_for: Callable[[str], list[Rows]]) -> MessageIds:
        with self._lock:
            queue = self._check_put(queue)
            builder = RowBuilder()
            for rows in self._fitting(queue, made_for):
                builder.add(rows)
            ids = self._puts.put_moved(queue, builder)
            self._tell_put(queue, None)
            return ids

    def _put_row(
        self,
        queue: str,
        value: object,
        fields: Mapping[str, object],
        request_id: str | None,
        wait: float | None,
    ) -> MessageId:
        """One message of a typed queue."""
        checked = Fields.of(**self._puts.checked(fields)) if fields else None
        with self._lock:
            queue = self._check_put(queue)
            found = self._fitting(queue, lambda words: [one_row(words, value, checked)])
            if request_id is None:
                ids = self._puts.put_rows(queue, found)
                self._tell_put(queue, wait)
                return ids[0]
        content = row_payload(found[0].batch)
        return self._put_once(queue, content, fields, request_id, wait, row=True)

    def _fitting(self, queue: str, rows_of: Callable[[str], list[Rows]]) -> list[Rows]:
        """Rows that are made for the queue's schema; which may be another than is known here."""
        words = self._at_store(lambda: self._store.schema_of(queue))
        try:
            if words is not None:
                return rows_of(words)
        except InvalidArgument:
            before, words = words, self._at_store(lambda: self._store.queue(queue).schema)
            if words == before:
                raise
        else:
            words = self._at_store(lambda: self._store.queue(queue).schema)
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
            queue = self._check_put(queue)
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
        """The same of many, all by one request, or none (RT3)."""
        if self._at_store(lambda: self._store.schema_of(queue)) is not None:
            raise rows_one_by_one(queue)
        bodies = self._puts.encoded(payloads)
        with self._lock:
            queue = self._check_put(queue)
            if not self._puts.is_empty:
                self._send_ahead()
            requests = self._requests = self._requests or {}
            call = {"queue": queue, "request_ids": request_ids, "wait": wait}
            header = self._request("put_many_once", call, bodies)[-1].header
            found = field(header, "found", list)
            if len(found) != len(request_ids):
                raise self._fail(StreamEnded("the owner's answer tells of other puts", sent=True))
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
        """The same of the only put, which the commit follows at once: that finds out."""
        if type(payload) is not bytes and is_row(payload):
            return self._put_row(queue, payload, fields, None, None)
        with self._lock:
            self._check_open()
            message_id = self._puts.put(queue, payload, fields)
            self._announce(queue)
            return message_id

    @call
    def put_many(
        self,
        queue: str,
        payloads: Payloads,
        *,
        timeout: float | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> MessageIds:
        wait = None if timeout is None else check_timeout(timeout)
        if isinstance(payloads, Iterable) and not isinstance(payloads, Sized):
            payloads = nested(list, payloads)  # the program's code
        if request_ids is not None:
            known = check_request_ids(request_ids, count_of(payloads))
            return self._put_many_once(queue, payloads, known, wait)
        with self._lock:
            queue = self._check_put(queue)
            if self._at_store(lambda: self._store.schema_of(queue)) is None:
                ids = self._puts.put_many(queue, payloads)
            else:
                rows = payloads
                found = self._fitting(queue, lambda words: rows_of(words, rows))
                ids = self._puts.put_rows(queue, found)
            self._tell_put(queue, wait)
            return ids

    @call
    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        with self._lock:
            queue = self._check_put(queue)
            ids = self._puts.put_block(queue, data)
            if not self._puts.knows(queue):
                self._announce(queue)
            return ids

    @call
    def put_blocks(self, blocks: Iterable[tuple[str, Bytes]]) -> list[MessageIds]:
        made = []
        for some in _some_at_once(check_blocks(blocks)):
            with self._lock:
                self._check_open()
                names = self._own_names([queue for queue, _ in some])
                self._check_streams(names.values())
                for queue, data in some:
                    self._check_full()
                    made.append(self._puts.put_block(names[queue], data))
                if self._puts.waits:
                    self._announce(None)
        return made

    @call
    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        with self._lock:
            queue = self._check_put(queue)
            ids = self._puts.adopt(queue, ltds_id)
            if not self._puts.knows(queue):
                self._announce(queue)
            return ids

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
            queue = self._check_put(queue)
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
                self._request(ABANDON, {"stream": number})

    @giving("_roll_back_whole")
    def get(self, source: str, timeout: float | None = 0.0) -> Message | None:
        name, wait = check_source(source).encode(), check_wait(timeout)
        length = GET_HEAD.size - HEAD.size + len(name)
        with self._lock:
            self._check_open()
            try:
                channel = self._channel or self._enter(wait)
            except QuireError as error:
                self._take_state(error)
                raise
            request = GET_HEAD.pack(length, GET, self._number, wait) + name
            answer = self._at_owner(Channel.exchange, [request], wait)
            kind = answer[4]
            if kind == MESSAGE:
                return self._delivered(read_short_message, answer, source.partition("/")[0])
            if kind == NOTHING:
                return None
            if kind != RESULT:
                raise self._fail(channel.unexpected())
            return self._delivered(lambda data: self._read_message(decode_call(data)), answer)

    @giving("_roll_back_whole")
    def get_many(
        self, source: str, max_messages: int = 1000, timeout: float | None = 0.0
    ) -> Messages:
        arguments = {
            "source": check_source(source),
            "max_messages": check_max_messages(max_messages),
            "wait": check_wait(timeout),
        }
        with self._lock:
            self._check_open()
            answer = self._request("get_many", arguments)
            return self._delivered(read_messages, answer, self._store.read_chunk)

    @giving("_roll_back_whole")
    def get_scheduled(
        self, source: str, message_id: int, *, to_change: bool = False
    ) -> Message | None:
        arguments: Header = {
            "source": check_source(source),
            "message_id": check_message_id(message_id),
            "to_change": check_flag("to_change", to_change),
        }
        with self._lock:
            self._check_open()
            answer = self._request("get_scheduled", arguments)
            return self._delivered(lambda frames: self._read_message(frames[0]), answer)

    def _roll_back_whole(self) -> None:
        """What it has got did not reach its user: no commit may count it as delivered."""
        with self._lock:
            if self._state is _OPEN:
                self._roll_back()

    def _read_message(self, frame: Frame) -> Message | None:
        return read_message(frame, self._store.read_chunk)

    @call
    def unget(self) -> None:
        with self._lock:
            self._check_open()
            self._request("unget", {})

    @call
    def reject(
        self, message: Message, reason: str = "", delay: float | Retry | None = None
    ) -> None:
        found = check_message(message)
        arguments: Header = {
            "queue": found.queue,
            "message_id": found.id,
            "reason": check_reason(reason),
            "delay": check_delay(delay),
        }
        with self._lock:
            self._check_open()
            self._request("reject", arguments)

    @call
    def read_to_many(self, positions: Mapping[str, int]) -> dict[str, int]:
        sources = check_ends(positions)
        with self._lock:
            self._check_open()
            header = self._request("read_to", {"positions": sources})[0].header
        created_us = read_list(int, field(header, "created_us", list))
        return dict(zip(sources, created_us, strict=True))

    @call
    def seek(self, source: str, to: Start, timeout: float = 0.0) -> None:
        arguments: Header = {
            "source": check_source(source), "to": check_start(to), "wait": check_timeout(timeout)
        }  # fmt: skip
        with self._lock:
            self._check_open()
            self._request("seek", arguments)

    @call
    def record(self, key: str, version: int) -> None:
        entry = check_key(key), check_version(version)
        with self._lock:
            self._check_open()
            self._records.append(entry)

    @call
    def get_state(self, name: str, key: str) -> bytes | None:
        where = check_state_name(name), check_state_key(key)
        with self._lock:
            self._check_open()
            if where in self._values:
                return self._values[where]
            answer = self._request("read_state", {"name": name, "key": key})
            return read_value(answer[-1])

    @call
    def set_state(self, name: str, key: str, value: Bytes | None) -> None:
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

    @call
    def prepare(self, xid: str, timeout: float | None = None) -> None:
        check_xid(xid)
        check_preparable(self._durable)
        wait = None if timeout is None else check_timeout(timeout)
        with self._lock:
            self._check_open()
            request = {"op": "prepare", "xid": xid, "wait": wait}
            header = self._ended_by(self._last_call, request, f"prepare of {xid!r}", LISTED)
            self._puts.limit(field(header, "limits", dict))
            self._prepared = xid, field(header, "number", int)
            self._state = _PREPARED
            self._store.prepared[self._prepared[1]] = self

    def decided(self, decided: Decided) -> None:
        """What the owner tells of the transaction once it is decided."""
        self._state = decided.state or TransactionState.ROLLED_BACK
        self._puts.settle(decided.placed)

    def _decide(self, decision: Decision) -> bool:
        """Whether this has committed it, and not somebody else before."""
        xid, number = self._prepared
        decided = decide(self._connection, decision, xid, number)
        self.decided(decided)
        return decided.committed

    @call
    def commit(self, timeout: float | None = None) -> None:
        wait = None if timeout is None else check_timeout(timeout)
        with self._lock:
            if self._state is _PREPARED:
                if not self._decide(Decision.COMMIT):
                    self._check_open()  # it is not
                return
            self._check_open()
            more = self._records or self._values
            is_nothing = self._channel is None and self._puts.is_empty and not more
            if is_nothing and not self._durable:  # else what came before is to be durable
                self._state = _COMMITTED
                return
            header = self._ended_by(self._commit, wait, "a commit", "whether it took effect")
            self._state = _COMMITTED
            if header:
                self._puts.settle(field(header, "placed", dict))
                self._puts.limit(field(header, "limits", dict))

    @call
    def rollback(self) -> None:
        with self._lock:
            if self._state is _PREPARED:
                self._decide(Decision.ROLLBACK)
            elif self._state is _OPEN:
                self._roll_back()

    def _ended_by(self, ask: Callable[[A], Header], how: A, doing: str, look: str) -> Header:
        """Make the request that ends the transaction here, unless it is refused.

        `doing` and `look` are for OutcomeUnknown: what it is, and how its outcome is found out.
        """
        self._state = _IN_DOUBT  # unless the owner answers
        try:
            return ask(how)
        except StreamEnded as error:
            if not error.sent:
                self._state = TransactionState.ROLLED_BACK
            raise self._connection.lose_request(error, doing, look) from None
        except QuireError as error:
            self._take_state(error)
            raise
        finally:
            if self._state is not _OPEN:
                self._leave()

    def _commit(self, wait: float | None) -> Header:
        """What the answer tells beside the first ids."""
        if self._records or self._values:
            return self._last_call({"op": "commit", "wait": wait})
        channel = self._enter(wait)
        parts = self._rest()
        parts.append(
            COMMIT_FRAME.pack(
                COMMIT_FRAME.size - HEAD.size,
                COMMIT,
                self._number,
                self._puts.count,
                encode_wait(wait),
            )
        )
        answer = channel.exchange(parts, wait, strictly=False)
        if answer[4] == RESULT:
            return decode_call(answer).header
        if answer[4] != COMMITTED:
            raise channel.unexpected()
        channel.transaction_state = None
        self._puts.settle_short(answer)
        return {}

    def _last_call(self, request: Header) -> Header:
        channel = self._enter()
        parts = self._rest()
        call = {**request, "txn": self._number, "puts": self._puts.count, "records": self._records}
        values, bodies = self._values, []
        if values:
            call["values"] = [[n, k, None if v is None else len(v)] for (n, k), v in values.items()]
            bodies = [b"".join(v for v in values.values() if v)]
        wait = _seconds(call.get("wait"))
        parts = [*parts, *encode_call(CALL, call, bodies)]
        answer = channel.exchange(parts, wait, strictly=False)
        if answer[4] != RESULT:
            raise channel.unexpected()
        return decode_call(answer).header

    def _rest(self) -> list[Bytes]:
        """The puts that the owner does not have."""
        puts = self._puts
        if not (self._refused or puts.waits):
            return []
        return puts.again(self._number) if self._refused else puts.frames(self._number)

    def _request(self, op: str, arguments: Header, bodies: Sequence[Bytes] = ()) -> list[Frame]:
        """Ask for something in the transaction at the owner."""
        seconds = _seconds(arguments.get("wait"))
        return self._at_owner(
            lambda channel: channel.request(
                {"op": op, "txn": self._number, **arguments}, bodies, seconds
            )
        )

    def _at_owner(
        self, ask: Callable[Concatenate[Channel, P], A], *args: P.args, **kwargs: P.kwargs
    ) -> A:
        try:
            return ask(self._channel or self._enter(), *args, **kwargs)
        except StreamEnded as error:
            raise self._fail(error) from None
        except QuireError as error:
            self._take_state(error)
            raise
        except BaseException:
            self._end()
            raise

    def _at_store(self, ask: Callable[[], R]) -> R:
        """Ask the owner for something beside the transaction, which ends if that is lost."""
        try:
            return nested(ask)
        except ConnectionLost:
            self._end()
            raise

    def _fail(self, error: StreamEnded) -> QuireError:
        """The owner is gone, and so is the transaction."""
        self._end()
        return self._connection.lose(error)

    def _delivered(self, read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What an answer brings. If it cannot be read, no commit may count it as delivered."""
        try:
            return read(*args, **kwargs)
        except BaseException:
            self._roll_back()
            raise

    def _check_put(self, queue: str) -> str:
        """Raise what keeps from putting, or what refused an earlier put (RT2); the queue's name.

        An alias means the queue that it meant at the transaction's first put: else puts into one
        queue by two names would have no order here.
        """
        self._check_open()
        aliases = self._aliases
        name = aliases.get(queue) if aliases and isinstance(queue, str) else None
        if name is None:
            name = self._at_store(lambda: self._store.own_name(queue))
            if name != queue:
                self._aliases = {**(aliases or {}), queue: name}
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
        """The same for many queues."""
        known = self._aliases or {}
        unknown = [name for name in check_names(names) if name not in known]
        found = self._at_store(lambda: self._store.own_names(unknown))
        aliases = {name: own for name, own in found.items() if own != name}
        if aliases:
            self._aliases = {**known, **aliases}
        return {**known, **found}

    def _tell_put(self, queue: str, wait: float | None) -> None:
        """What is to be told of a put at once: nothing, that it is the first, or all (RT4)."""
        if wait is not None:
            self._send_ahead(wait)
        elif not self._puts.knows(queue):
            self._announce(queue)

    def _announce(self, queue: str | None) -> None:
        """Tell the owner of the first put to a queue (RT1); None: of all that waits."""
        self._at_owner(self._tell, queue)

    def _tell(self, channel: Channel, queue: str | None) -> None:
        channel.tell(self._puts.frames(self._number, queue))

    def _send_ahead(self, wait: float = 0.0) -> None:
        """Have the owner take all that was put, or raise why it does not; it waits for room."""

        def send(channel: Channel) -> None:
            puts = self._puts
            channel.tell(self._rest())
            request = {"op": "puts", "txn": self._number, "puts": puts.count, "wait": wait}
            channel.request(request, wait=wait)
            puts.taken(puts.count)
            self._refused = False

        self._at_owner(send)

    def _enter(self, wait: float | None = None) -> Channel:
        """The channel that carries the transaction, from the first request to its end."""
        if self._channel is None:
            channel = self._connection.borrow(wait)
            channel.transaction_state = _OPEN
            self._number = channel.next_transaction()  # first: without it the channel is no use
            self._channel = channel
            if self._deadline is not None or self._large or self._owner or not self._durable:
                header: dict[str, object] = {
                    "op": "begin", "txn": self._number, "large": self._large, "owner": self._owner,
                    "durable": self._durable,
                }  # fmt: skip
                if self._deadline is not None:
                    left = max(0.001, self._deadline - time.monotonic())
                    header["timeout"] = None if left == math.inf else left
                try:
                    channel.tell(encode_call(TELL, header))
                except StreamEnded as error:
                    raise self._fail(error) from None
        return self._channel

    def _leave(self) -> None:
        channel, self._channel = self._channel, None
        self._puts.clear()
        if channel is not None:
            if channel.transaction_state is _OPEN:
                channel.close()  # which rolls it back at the owner
            self._connection.give_back(channel)

    def _end(self, state: TransactionState = TransactionState.ROLLED_BACK) -> None:
        self._state = state
        self._leave()

    def _take_state(self, error: QuireError) -> None:
        """The transaction's state after an error: what the owner says, if it knows it."""
        self._cause = error if isinstance(error, _FROM_OUTSIDE) else None
        if isinstance(error, InvalidArgument):  # perhaps for the columns that its queue has by now
            self._store.forget_queues()
        channel = self._channel
        state = None if channel is None else channel.transaction_state
        if channel is not None and state is _OPEN:
            self._state = state
            if channel.taken < self._puts.count:
                self._refused = True
            self._puts.taken(channel.taken)
        else:
            self._end(state or TransactionState.ROLLED_BACK)

    def _roll_back(self) -> None:
        """At the owner too. If it is gone, the transaction is rolled back all the same."""
        channel = self._channel
        try:
            if channel is not None and not channel.broken:
                # Should no answer come for long, the channel's end rolls it back.
                channel.exchange(
                    [ROLLBACK_FRAME.pack(ROLLBACK_FRAME.size - HEAD.size, ROLLBACK, self._number)],
                    ROLLBACK_SECONDS,
                )
                channel.transaction_state = None
        except StreamEnded as error:
            self._connection.lose(error)
        finally:
            self._end()

    def _check_open(self) -> None:
        if self._state is _OPEN:
            try:
                self._connection.check()
            except QuireError:
                self._end()
                raise
            if (
                self._channel is None  # else the owner finds out
                and self._deadline is not None
                and time.monotonic() > self._deadline
            ):
                self._cause = TransactionTimeout(
                    "the transaction was open for too long and has been rolled back: begin anew, "
                    "or give transaction(timeout=...) more seconds"
                )
                self._end()
        if self._cause is not None:
            raise type(self._cause)(str(self._cause))
        if self._state is _PREPARED:
            raise TransactionClosed(
                f"the transaction is prepared as {self._prepared[0]!r}: only commit() and "
                "rollback() can follow"
            )
        if self._state is not _OPEN:
            raise TransactionClosed(
                f"the transaction is {self.state}: begin a new one with store.transaction()"
            )


def _seconds(wait: object) -> float | None:
    """The time-out of a request, if it has one."""
    return wait if isinstance(wait, int | float) else None


def _some_at_once(blocks: Iterable[tuple[str, Bytes]]) -> Iterator[list[tuple[str, Bytes]]]:
    """All of them in their order, some `TELL_BYTES` at a time."""
    some: list[tuple[str, Bytes]] = []
    size = 0
    for queue, data in blocks:
        some.append((queue, data))
        size += len(data) if isinstance(data, bytes | bytearray | memoryview) else 0  # a mistake
        if size >= TELL_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


if TYPE_CHECKING:
    _joined: type[Transaction] = RemoteTransaction
