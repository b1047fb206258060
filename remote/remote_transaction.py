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
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from quire.arguments import (
    Bytes,
    check_key,
    check_names,
    check_preparable,
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
from quire.block import Rows, is_row, one_row, rows_of
from quire.call_table import Call, by_row, call_of
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
from quire.message import Fields, Message, check_payload
from quire.message_id import KnownId, MessageId, MessageIds, RequestedIds, id_of
from quire.row_schema import rows_one_by_one
from quire.single_calls import TransactionCalls
from quire.transaction import Payload, Payloads, Transaction
from quire.typed_message import row_payload
from quire.uninterrupted import OwnLock, call, giving, nested

from .calls import read_answer
from .channel import Channel, StreamEnded
from .deciding import LISTED, Decided, decide
from .delivery import read_message, read_short_message
from .joined_puts import JoinedTransactionIntegration
from .limits import ROLLBACK_SECONDS
from .protocol import (
    CALL,
    COMMIT,
    COMMIT_FRAME,
    COMMITTED,
    GET,
    GET_HEAD,
    HEAD,
    MESSAGE,
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
from .streams import ABANDON, RemoteSink
from .values import ready

if TYPE_CHECKING:
    from .client import RemoteStore

# Looking a member up in its class takes as long as a call.
_OPEN: Final = TransactionState.OPEN
_PREPARED: Final = TransactionState.PREPARED
_COMMITTED: Final = TransactionState.COMMITTED
_IN_DOUBT: Final = TransactionState.IN_DOUBT

_FROM_OUTSIDE: Final = TransactionTimeout, TransactionAborted

_GET_STATE: Final = call_of(Transaction.get_state)

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


@documented_by(Transaction)
class RemoteTransaction(TransactionCalls):
    """A `quire.Transaction`. Made by `RemoteStore`."""

    _requests: dict[tuple[str, str], MessageId] | None = None  # that this one has put
    _integration = JoinedTransactionIntegration
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
        self, queue: str, payload: Payload, *, timeout: float | None = None, **fields: object
    ) -> MessageId:
        wait = None if timeout is None else check_timeout(timeout)
        if type(payload) is not bytes and is_row(payload):
            return self._put_row(queue, payload, fields, wait)
        if fields:
            request_id = check_request_id(fields.pop("request_id", None))
            if request_id is not None:
                return self._put_once(queue, payload, fields, request_id, wait)
        with self._lock:
            queue = self._check_put(queue)
            message_id = self._puts.put(queue, payload, fields)
            self._tell_put(queue, wait)
            return message_id

    def _put_row(
        self, queue: str, value: object, fields: Mapping[str, object], wait: float | None
    ) -> MessageId:
        """One message of a typed queue."""
        given = dict(fields)
        request_id = check_request_id(given.pop("request_id", None))
        checked = Fields.of(**self._puts.checked(given)) if given else None
        with self._lock:
            queue = self._check_put(queue)
            found = self._fitting(queue, lambda words: [one_row(words, value, checked)])
            if request_id is None:
                ids = self._puts.put_rows(queue, found)
                self._tell_put(queue, wait)
                return ids[0]
        content = row_payload(found[0].batch)
        return self._put_once(queue, content, given, request_id, wait, row=True)

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
            return self._put_row(queue, payload, fields, None)
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

    # A message that is put as a stream (RT6)

    @call
    def begin_stream(
        self, queue: str, fields: Mapping[str, object], size: int | None, timeout: float | None
    ) -> RemoteSink:
        checked = self._puts.checked(fields)
        with self._lock:
            queue = self._check_put(queue)
            number = self._last_stream = self._last_stream + 1
        return RemoteSink(self, number, queue, checked, size, timeout)

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

    get_many = by_row(Transaction.get_many)
    get_scheduled = by_row(Transaction.get_scheduled)

    def _roll_back_whole(self) -> None:
        """What it has got did not reach its user: no commit may count it as delivered."""
        with self._lock:
            if self._state is _OPEN:
                self._roll_back()

    def _read_message(self, frame: Frame) -> Message | None:
        return read_message(frame, self._store.read_chunk)

    unget = by_row(Transaction.unget)
    reject = by_row(Transaction.reject)
    seek = by_row(Transaction.seek)

    @call
    def enter(self, key: str, version: int) -> None:
        entry = check_key(key), check_version(version)
        with self._lock:
            self._check_open()
            self._records.append(entry)

    @call
    def get_state(self, name: str, key: str) -> bytes | None:
        where = check_state_name(name), check_state_key(key)
        given = {"name": name, "key": key}
        with self._lock:
            self._check_open()
            if where in self._values:
                return self._values[where]
            found: bytes | None = self._read(_GET_STATE, self._step(_GET_STATE, given))
            return found

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
            self._store.own_prepared[self._prepared[1]] = self

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
        call["values"] = [[*where, value] for where, value in self._values.items()]
        wait = _seconds(call.get("wait"))
        parts = [*parts, *encode_call(CALL, call)]
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

    def make(self, row: Call, given: Mapping[str, object]) -> Any:
        """What the owner answers to a step."""
        return (self._take if row.brings_messages else self._ask)(row, given)

    @call
    def _ask(self, row: Call, given: Mapping[str, object]) -> Any:
        with self._lock:
            self._check_open()
            return self._read(row, self._step(row, given))

    @giving("_roll_back_whole")
    def _take(self, row: Call, given: Mapping[str, object]) -> Any:
        """Messages: they are got, or given back."""
        with self._lock:
            self._check_open()
            return self._delivered(self._read, row, self._step(row, given))

    def _read(self, row: Call, frames: Sequence[Frame]) -> Any:
        return read_answer(row, frames, self._store.read_chunk)

    def _step(self, row: Call, given: Mapping[str, object]) -> list[Frame]:
        seconds = None
        if row.facts.waits and "timeout" in given:
            seconds = check_wait(given["timeout"])
        arguments = ready(given)
        return self._at_owner(
            lambda channel: channel.request(
                {"op": row.op, "txn": self._number, "arguments": arguments}, (), seconds
            )
        )

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


if TYPE_CHECKING:
    _joined: type[Transaction] = RemoteTransaction
