"""A served client: a stream of a connection at the owner, what comes by it, and its transaction.

SS1. Whatever comes, the answer is a result or an error; nothing a client sends ends the owner.
SS2. A request of a transaction reaches that one or none (see `OpenStreams`).
SS3. When the connection ends, its open transactions are rolled back; one also when messages that it
    took cannot be delivered, so that no commit counts them as read. What is prepared is not the
    client's any more (see `undecided`).
SS4. What fails inside the owner, other than on purpose, is told with what became of the transaction
    that the request named, as the store tells it; a change that is no transaction's may have taken
    effect then (OutcomeUnknown).
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeVar, cast

from msgspec import Struct

from quire.arguments import (
    Bytes,
    check_flag,
    check_lifetime,
    check_name,
    check_owner,
    check_request_id,
    check_request_ids,
    check_timeout,
    check_xid,
)
from quire.batches.delivered_messages import Messages
from quire.batches.delivered_slice import Delivered
from quire.block.format import Column
from quire.calls.call_table import answer_bytes
from quire.errors import (
    LimitReached,
    QueueFull,
    QuireError,
    RemoteError,
    StoreClosed,
    StoreFailed,
)
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.messages.message import SETTABLE, Message
from quire.messages.message_id import PutId
from quire.messages.typed_message import row_of_payload
from quire.moments import Duration
from quire.remote.access.use_limits import BYTES, TRANSACTIONS
from quire.remote.limits import HEAVY_BYTES
from quire.remote.wire.delivered_messages import Answer, message_answer, short_message
from quire.remote.wire.failures import describe_error, error_from_elsewhere
from quire.remote.wire.named_calls import (
    STEPS,
    HoldingStore,
    WaitingStep,
    answer_call,
    answer_step,
    arguments_of,
    encode_result,
    request_row,
)
from quire.remote.wire.payload_streams import (
    ABANDON,
    FINISH,
    PUT_CHUNK,
    PUT_WHOLE,
    READ_CHUNK,
    Chunks,
    answer_chunk,
)
from quire.remote.wire.protocol import (
    ADD,
    AWAIT,
    CALL,
    CANCEL,
    COMMIT,
    COMMIT_FRAME,
    CONNECTION,
    DRAIN,
    DRAINED,
    GET,
    GET_HEAD,
    HEAD,
    ID,
    NOTHING,
    NUMBER_FRAME,
    PING,
    PONG,
    PUT,
    PUT_HEAD,
    RESULT,
    ROLLBACK,
    STEP,
    STREAM,
    TELL,
    Decision,
    Frame,
    Header,
    decode_call,
    encode_call,
    field,
)
from quire.remote.wire.put_places import Placing
from quire.remote.wire.values import read
from quire.remote.wire.wire_connection import RefusedFrame
from quire.reports.info import TransactionState
from quire.rows.open_block import check_block

from .awaited_sources import AwaitedSources
from .open_streams import OpenStreams
from .taken_puts import ServedPuts, TakenPuts, message_fields
from .waiting_gets import AwaitingTransaction, WaitingGet

if TYPE_CHECKING:
    from quire.remote.access.use_account import UseAccount

_DECISIONS: Final = {decision.value: decision for decision in Decision}
_CLOSING: Final = "the owner has closed the store: open it again"
_LONG: Final = (CALL, STEP)
_ANSWERED: Final = frozenset({PUT, GET, COMMIT, ROLLBACK, CALL, STEP, PING, CANCEL})
_UNANSWERED: Final = frozenset({ADD, TELL, AWAIT, DRAIN})
_stream_of: Final = STREAM.unpack_from
_IN_DOUBT: Final = TransactionState.IN_DOUBT.value
_MAY_STAND: Final = (TransactionState.COMMITTED.value, _IN_DOUBT)
Found = TypeVar("Found")
# Nothing; one frame; frames one after another, each in parts; or nothing yet.
Answers = bytes | Iterator[list[Bytes]] | WaitingGet | None


class ServedTransaction(ServedPuts, AwaitingTransaction, Protocol):
    """A transaction of a store that can be served."""

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """Roll it back for this reason, also while another thread waits in a call of it."""


class ServedStore(Store, HoldingStore, Chunks, Protocol):
    """A store that can be served to clients."""

    def together(self, actions: Iterable[Callable[[], None]]) -> None:
        """Do the actions, so that their commits share writes."""

    def put_now(self, queue: str, payload: bytes) -> int:
        """Put a message, by a thread that must not wait."""

    def await_get(
        self, source: str, callback: Callable[[], None], taker: object
    ) -> Callable[[], None] | None:
        """Have it called once a get finds something; what withdraws it, None: it may now.

        `taker`: see `AwaitingTransaction.own_taker`.
        """

    def own_name(self, name: str) -> str | None:
        """Return the name of the queue that is called so, by an alias too; None: there is none."""

    def has_verified_sender(self, name: str | None) -> bool:
        """Return True if the senders of the queue, or with None of any queue, are verified."""

    def follow(self, source: str) -> object:
        """Return what the source is, over changes of its name; its text is the name of then."""

    @property
    def commit_timeout(self) -> float:
        """Seconds that a commit waits for room in its queues, unless its client says otherwise."""

    @property
    def fixed_options(self) -> dict[str, int]:
        """The options that the store was made with, and keeps."""

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> ServedTransaction: ...


class TransactionRest(Struct):
    """The fields of the request that ends a transaction."""

    puts: int  # that were made in it
    records: list[tuple[str, int]]  # entries of the ledger: key and version
    values: list[tuple[str, str, bytes | None]]  # of states: name, key and value
    wait: float | None = None  # seconds, for room


class Closing(Protocol):
    """The server, which may be closing."""

    is_closing: bool


class PreparedDecisions(Protocol):
    """Decides prepared transactions, and knows those of its clients."""

    def add(self, xid: str, transaction: Transaction, placing: Placing) -> int:
        """A transaction was prepared; its number."""

    def answer(self, decision: Decision, header: Header) -> Iterator[Answer]:
        """Decide; tell what is known of the transaction."""


class StreamContext(NamedTuple):
    """The parts that the streams of a connection share."""

    connection: object
    account: UseAccount
    awaited: AwaitedSources
    store: ServedStore
    undecided: PreparedDecisions
    client: str  # whose transactions they are
    server: Closing
    waiting: Callable[[ServedClient], AbstractContextManager[None]]  # others are waited for in it
    when_failed: Callable[[], None]  # called after an answer that the store has failed


class _StreamStart(NamedTuple):
    """How a transaction is to begin, as its client says."""

    timeout: Duration | None = None
    large: bool = False
    owner: str | None = None
    durable: bool = True


_USUAL: Final = _StreamStart()


class MustWait(BaseException):
    """The request waits for other clients, and this thread may not."""


class ServedClient:
    """Answers the requests of one stream, one after another, or calls outside of transactions."""

    def __init__(
        self, streams: OpenStreams[ServedClient], context: StreamContext, is_call: bool
    ) -> None:
        self._streams = streams
        self.connection: Final[Any] = context.connection
        self.account: Final = context.account
        self._awaited = context.awaited
        self._when_failed = context.when_failed
        self._store = context.store
        self._undecided = context.undecided
        self._client = context.client
        self._server = context.server
        self._waiting = context.waiting
        self._transaction: ServedTransaction | None = None
        self.stream = 0  # of the request
        self.is_call: Final = is_call
        self.has_ended = False
        self.is_cancelled = False  # the client wants no answer to what is under way
        self.kept = deque[Bytes]()  # requests behind the one that is under way
        self.get: WaitingGet | None = None  # that is put aside
        self.began = math.inf  # what is under way and takes long, or waits
        self.late: LimitReached | None = None  # why that was ended (CL11)
        self._puts = TakenPuts(self)
        self._alone: ServedTransaction | None = None  # of a message alone, which waits for room
        self._delivering = False  # messages are taken, and on their way to the client
        self._start = _USUAL  # how its transaction is to begin
        self._named: ServedTransaction | None = None  # that the request names
        self._doing = ""  # the change that it asks for
        self._answer_bytes = 0  # that are charged for an answer before it is made

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which a request waits for others."""
        return self._waiting(self)

    @property
    def commit_timeout(self) -> float:
        """The commit time-out of the store, in seconds."""
        return self._store.commit_timeout

    def answer(self, data: Bytes) -> Answers:
        """Answer a frame (SS1)."""
        self._delivering = False
        self._named, self._doing = None, ""
        try:
            if self._server.is_closing:
                raise StoreClosed(_CLOSING)
            if type(data) is RefusedFrame:
                self._refuse(data)
                return None
            action = self._short.get(data[4])
            if action is None:
                raise RemoteError(f"a message of kind {data[4]} is no request")
            return action(self, data)
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            failed = self._failed(error)
            return failed if _is_answered(data) else None

    def try_again(self, get: WaitingGet) -> Answers:
        """Answer a get that was put aside, if it finds something now; else return it."""
        return self._answer_get(get, lambda: get.take() or get)

    def end_wait(self, get: WaitingGet) -> Answers:
        """Answer a get that waited in vain: by nothing, or by why its transaction was ended."""
        is_open = _state(cast("ServedTransaction", get.transaction)) is TransactionState.OPEN
        return self._answer_get(get, lambda: get.nothing if is_open else get.take())

    def refuse_wait(self, get: WaitingGet, error: QuireError) -> Answers:
        """Answer a get that may not wait."""

        def refuse() -> Any:
            raise error

        return self._answer_get(get, refuse)

    def _answer_get(self, get: WaitingGet, take: Callable[[], Any]) -> Answers:
        self._delivering = False
        self._named, self._doing = cast("ServedTransaction", get.transaction), ""
        self.stream = get.stream
        try:
            found = take()
            return get if found is get else get.encode(found)  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            return self._failed(error)

    def end_answer(self) -> None:
        """Give back what was charged for the answer beforehand: now it is charged itself."""
        size, self._answer_bytes = self._answer_bytes, 0
        self.account.give_back(BYTES, size)

    def is_heavy(self, data: Bytes) -> bool:
        """Return True if answering the frame may take long, even if nothing is to be waited for."""
        if data[4] in _LONG or len(data) + self._puts.size > HEAVY_BYTES:
            return self.is_call or not self.has_ended  # else it is refused
        return False

    def interrupt(self, reason: str) -> None:
        """Another thread ends what a request of this stream waits for."""
        end_transactions(self.under_way(), reason)

    def under_way(self) -> list[ServedTransaction]:
        """Return the transactions that a request of this stream may wait in."""
        return [found for found in (self._transaction, self._alone) if found is not None]

    def close(self) -> None:
        """Roll back what is open (SS3); nothing is begun from here on."""
        self.has_ended = True
        self._roll_back()

    def _roll_back(self) -> None:
        transaction = self._leave()
        if transaction is not None and _state(transaction) is not TransactionState.PREPARED:
            with contextlib.suppress(QuireError):
                transaction.rollback()

    # Short requests

    def _put(self, data: Bytes) -> bytes:
        if not self.is_call:
            raise self._used()
        self._doing = "a commit"
        start = PUT_HEAD.size + PUT_HEAD.unpack_from(data)[3]
        if start > len(data):
            raise RemoteError("a put is cut off in its queue's name")
        queue = str(data[PUT_HEAD.size : start], "utf-8")
        payload = data[start:] if type(data) is bytes else bytes(memoryview(data)[start:])
        self.account.take_puts()
        try:
            message_id = self._store.put_now(queue, payload)
        except QueueFull as full:
            if not full.has_remedy:
                raise
            message_id = self._put_where_room_is_made(queue, payload)
        if isinstance(message_id, PutId):
            answer: Header = {"id": int(message_id), "expires_by": message_id.expires_by}
            return b"".join(encode_call(RESULT, self.stream, {**answer, "state": None}))
        return NUMBER_FRAME.pack(8, ID, self.stream, message_id)

    def _put_where_room_is_made(self, queue: str, payload: bytes) -> int:
        """Put a message, waiting for room; the end of the client ends that."""
        self._alone = transaction = self._store.transaction(None, False, self._client)
        transaction.put_timeout = self._store.commit_timeout
        try:
            with self.waiting(), transaction:
                message_id = transaction.put(queue, payload)
            return PutId.of(int(message_id), message_id.expires_by)
        finally:
            self._alone = None
            transaction.rollback()  # if it is open: this thread may not wait

    def _refuse(self, frame: RefusedFrame) -> None:
        """Raise the error of a request that is not taken; that of puts is told by the next one."""
        if frame[4] != ADD:
            raise frame.error
        if not self.has_ended:
            self._puts.refuse(frame.error)

    def _add(self, data: Bytes) -> None:
        if not self.has_ended:
            self._puts.add(data)

    def _get(self, data: Bytes) -> Answers:
        *_, seconds = GET_HEAD.unpack_from(data)
        source = str(data[GET_HEAD.size :], "utf-8")
        transaction = self.open_transaction()
        message = transaction.get(source)
        if message is None and seconds != 0:
            encode, followed = partial(self._encode_short, source), self._store.follow(source)
            take = _taking(transaction.get, followed)
            return WaitingGet(
                self.stream, transaction, followed, check_timeout(seconds), take, encode
            )
        return self._encode_short(source, message)

    def _encode_short(self, source: str, message: Message | None) -> Answers:
        if message is None:
            return HEAD.pack(0, NOTHING, self.stream)
        self._delivering = True
        if message.queue != source.partition("/")[0]:  # by an alias: the answer has to say
            return self._frames(iter([message_answer(message)]))
        return short_message(message, self.stream) or self._frames(iter([message_answer(message)]))

    def _commit(self, data: Bytes) -> Answers:
        self._doing = "a commit"
        *_, puts, seconds = COMMIT_FRAME.unpack(data)
        transaction = self.open_transaction()
        wait = None if math.isnan(seconds) else seconds
        self._puts.take_kept(self._transaction, wait)
        self._puts.check(puts)
        self._when_there_is_room(transaction.commit, wait)
        placing = self._puts.placing
        self._leave()
        short = placing.short_answer(self.stream)
        if short is not None:
            return short
        answer: Header = {"placed": placing.answer(), "limits": placing.limits()}
        return self._frames(iter([(answer, ())]))

    def _rollback(self, data: Bytes) -> Answers:
        HEAD.unpack(data)
        if self.has_ended:
            raise self._streams.refusal(self.stream)
        transaction = self._leave()  # None: it has not begun, perhaps at a limit
        if transaction is not None:
            self._named = transaction
            transaction.rollback()
        return b"".join(encode_call(RESULT, self.stream, {"state": None}))

    def _await(self, data: Bytes) -> None:
        self._awaited.add(str(data[HEAD.size :], "utf-8"))

    def _cancel(self, data: Bytes) -> bytes:
        self.is_cancelled = False
        self._roll_back()
        return HEAD.pack(0, CANCEL, self.stream)

    def _ping(self, data: Bytes) -> bytes:
        number = NUMBER_FRAME.unpack(data)[3]
        return NUMBER_FRAME.pack(8, PONG, self.stream, number)

    def _drain(self, data: Bytes) -> bytes | None:
        """Begin no more transactions on the connection; the answer says that none is open."""
        HEAD.unpack(data)
        self._streams.begin_no_more()
        if self._streams.has_open or self.connection.busy:
            return None
        return HEAD.pack(0, DRAINED, self.stream)

    # Requests with a header

    def _call(self, data: Bytes) -> Answers:
        if not self.is_call:
            raise self._used()
        return self._frames(self._make_call(decode_call(data)))

    def _ask_step(self, data: Bytes) -> Answers:
        frame = decode_call(data)
        op = field(frame.header, "op", str)
        if request_row(STEP, op).facts.changes:
            self._doing = op
        found = self._step(self.open_transaction(), op, frame)
        return found if isinstance(found, WaitingGet) else self._frames(found)

    def _tell(self, data: Bytes) -> None:
        """Begin the next transaction as the client describes it."""
        header = decode_call(data).header
        request_row(TELL, field(header, "op", str))
        if self._transaction:
            raise RemoteError("only what begins a new transaction is told")
        large = check_flag("large", header.get("large", False))
        durable = check_flag("durable", header.get("durable", True))
        self._start = _StreamStart(
            _lifetime(header), large, check_owner(header.get("owner")), durable
        )
        with contextlib.suppress(QuireError):  # the next request tries it again, and is told
            self._begin()

    def _make_call(self, frame: Frame) -> Iterator[Answer]:
        op = field(frame.header, "op", str)
        row = request_row(CALL, op)
        if row.facts.changes:
            self._doing = op
        if op in _DECISIONS:
            return self._undecided.answer(_DECISIONS[op], frame.header)
        if op == READ_CHUNK:
            return iter([answer_chunk(self._store, frame.header)])
        if row.facts.brings:
            size = answer_bytes(row.facts, arguments_of(frame.header))
            self.account.take(BYTES, size)
            self._answer_bytes = size
        if row.facts.held:
            self._streams.holds |= arguments_of(frame.header).get("durable", False) is False
        return answer_call(self._store, op, frame.header, self._streams)

    def _step(
        self, transaction: ServedTransaction, op: str, frame: Frame
    ) -> Iterator[Answer] | WaitingGet:
        operation = self._operations.get(op)
        if operation is not None:
            return iter([(operation(self, transaction, frame), ())])
        found = answer_step(transaction, STEPS[op], frame.header, self.waiting)
        if isinstance(found, WaitingStep):
            source, seconds, take, nothing = found
            encode, followed = self._encode_call, self._store.follow(source)
            return WaitingGet(
                self.stream,
                transaction,
                followed,
                seconds,
                _taking(take, followed),
                encode,
                nothing,
                is_heavy=True,
            )
        return self._encode_step(found)

    def _encode_step(self, found: object) -> Iterator[Answer]:
        self._delivering = isinstance(found, Message | Messages)
        return encode_result(found)

    def _encode_call(self, found: object) -> Answers:
        return self._frames(self._encode_step(found))

    def _put_with_request_id(self, transaction: ServedTransaction, frame: Frame) -> Header:
        header = frame.header
        queue = check_name(header.get("queue"), "queue")
        fields: dict[str, Any] = {
            **message_fields(field(header, "fields", dict)),
            "request_id": check_request_id(header.get("request_id")),
        }
        if len(frame.bodies) != 1:
            raise RemoteError("a put has one payload")
        payload: Any = bytes(frame.bodies[0])
        if header.get("row"):
            payload = row_of_payload(payload)
        self.account.take_puts()
        message_id = self._put_where_there_is_room(
            transaction, header, lambda: transaction.put(queue, payload, **fields)
        )
        found = int(message_id) if message_id.is_known else None
        if found is None:
            self._puts.placing.first.setdefault(queue, message_id)
        return {"found": found}

    def _put_many_with_request_ids(self, transaction: ServedTransaction, frame: Frame) -> Header:
        header = frame.header
        queue = check_name(header.get("queue"), "queue")
        blocks = [check_block(bytes(body)) for body in frame.bodies]
        slices = [Delivered(block, 0, block.count, 0, 0, 1) for block in blocks]
        has_priority = any(block.columns & Column.PRIORITY for block in blocks)  # see PU5
        names = [name for name in SETTABLE if has_priority or name != "priority"]
        batch = Messages(queue, slices).to_arrow().select([*names, "payload"])
        known = check_request_ids(header.get("request_ids"), batch.num_rows)
        self.account.take_puts(batch.num_rows)
        ids = self._put_where_there_is_room(
            transaction, header, lambda: transaction.put_many(queue, batch, request_ids=known)
        )
        for message_id in ids:
            if not message_id.is_known:
                self._puts.placing.first.setdefault(queue, message_id)
        return {"found": [int(message_id) if message_id.is_known else None for message_id in ids]}

    def _put_where_there_is_room(
        self, transaction: ServedTransaction, header: Header, put: Callable[[], Found]
    ) -> Found:
        """A put; while its queue has no room, wait for it, where the queue says so."""
        try:
            return put()
        except QueueFull as full:
            if not full.has_remedy:
                raise
        wait = header.get("wait")
        transaction.put_timeout = self.commit_timeout if wait is None else check_timeout(wait)
        try:
            with self.waiting():
                return put()
        finally:
            transaction.put_timeout = 0.0

    def _put_chunk(self, transaction: ServedTransaction, frame: Frame) -> Header:
        if "queue" in frame.header:  # the first one
            self.account.take_puts()
        return self._puts.streams.put(transaction, frame, self.commit_timeout)

    def _tell_taken(self, transaction: Transaction, frame: Frame) -> Header:
        """The client asks whether its puts are taken."""
        self._puts.take_kept(self._transaction, check_timeout(frame.header.get("wait", 0.0)))
        self._puts.check(field(frame.header, "puts", int))
        return {}

    def _take_rest(self, transaction: Transaction, frame: Frame) -> float | None:
        """Take the fields of the request that ends a transaction; return how long it may wait."""
        rest = read(TransactionRest, frame.header)
        self._puts.take_kept(self._transaction, rest.wait)
        self._puts.check(rest.puts)
        for key, version in rest.records:
            transaction.enter(key, version)
        for name, key, value in rest.values:
            transaction.set_value(name, key, value)
        return rest.wait

    def _prepare(self, transaction: ServedTransaction, frame: Frame) -> Header:
        xid = check_xid(frame.header.get("xid"))
        seconds = self._take_rest(transaction, frame)
        self._when_there_is_room(lambda timeout: transaction.prepare(xid, timeout), seconds)
        number = self._undecided.add(xid, transaction, self._puts.placing)
        limits = self._puts.placing.limits()
        self._leave()
        return {"number": number, "limits": limits}

    def _commit_with_entries(self, transaction: ServedTransaction, frame: Frame) -> Header:
        self._when_there_is_room(transaction.commit, self._take_rest(transaction, frame))
        placing = self._puts.placing
        self._leave()
        return {"placed": placing.answer(), "limits": placing.limits()}

    def _finish_stream(self, transaction: ServedTransaction, frame: Frame) -> Header:
        return self._puts.streams.finish(frame)

    def _abandon_stream(self, transaction: ServedTransaction, frame: Frame) -> Header:
        return self._puts.streams.abandon(frame)

    _short: ClassVar[dict[int, Callable[[ServedClient, Bytes], Answers]]] = {
        PUT: _put,
        ADD: _add,
        GET: _get,
        COMMIT: _commit,
        ROLLBACK: _rollback,
        AWAIT: _await,
        PING: _ping,
        CANCEL: _cancel,
        DRAIN: _drain,
        CALL: _call,
        STEP: _ask_step,
        TELL: _tell,
    }
    _operations: ClassVar[dict[str, Callable[[ServedClient, ServedTransaction, Frame], Header]]] = {
        "put_once": _put_with_request_id,
        "put_many_once": _put_many_with_request_ids,
        "puts": _tell_taken,
        "commit": _commit_with_entries,
        "prepare": _prepare,
        PUT_CHUNK: _put_chunk,
        PUT_WHOLE: _put_chunk,
        FINISH: _finish_stream,
        ABANDON: _abandon_stream,
    }

    # Inside

    def _used(self) -> RemoteError:
        return RemoteError(
            f"stream {self.stream} of this connection was begun before: a call has its own"
        )

    def open_transaction(self) -> ServedTransaction:
        """The transaction of this stream, begun if it is not yet (SS2, PR2)."""
        transaction = self._transaction
        if transaction is None:
            return self._begin()
        self._named = transaction
        return transaction

    def _begin(self) -> ServedTransaction:
        if self.has_ended:
            raise self._streams.refusal(self.stream)
        self.account.take(TRANSACTIONS)
        try:
            timeout, large, owner, durable = self._start
            transaction = self._store.transaction(timeout, large, owner or self._client, durable)
        except BaseException:
            self.account.give_back(TRANSACTIONS)
            raise
        self._transaction = transaction
        transaction.put_timeout = 0.0  # see `TakenPuts.take_kept`
        self._named = transaction
        return transaction

    def _leave(self) -> ServedTransaction | None:
        """The client's transaction, which is its no more."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            self.account.give_back(TRANSACTIONS)
        self._puts = TakenPuts(self)
        self.late = None
        self._end_stream()
        return transaction

    def _end_stream(self) -> None:
        self._start = _USUAL
        self._streams.end(self)

    def end_transaction(self) -> None:
        """Roll back, and leave the transaction for its client's next request to find so."""
        if self._transaction is not None:
            with contextlib.suppress(QuireError):
                self._transaction.rollback()

    def _when_there_is_room(
        self, end: Callable[[float | None], None], seconds: float | None
    ) -> None:
        """Commit or prepare; while a queue has no room, wait for it, as long as the client does."""
        if seconds is not None:
            check_timeout(seconds)
        try:
            end(0.0)
        except QueueFull as full:
            wait = self.commit_timeout if seconds is None else seconds
            if not (wait or full.has_remedy):
                raise
            with self.waiting():
                end(wait)

    def _frames(self, answers: Iterator[Answer]) -> Iterator[list[Bytes]]:
        try:
            for header, bodies in answers:
                yield encode_call(RESULT, self.stream, {**header, "state": self._state()}, bodies)
        except GeneratorExit:
            raise
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            yield [self._failed(error)]

    def _failed(self, error: Exception) -> bytes:
        """The answer that reports an error."""
        if isinstance(error, StoreFailed):
            self._when_failed()
        if isinstance(error, LimitReached) and self.late is not None:
            error = self.late
        self.late = None
        if isinstance(error, struct.error | UnicodeDecodeError):
            error = RemoteError(f"a message cannot be read: {error}")
        on_purpose = isinstance(error, QuireError)
        if self._delivering or not on_purpose:
            self._roll_back()  # what was taken did not arrive, or nobody knows what happened
        taken, state = self._puts.count, self._state()
        if state is None and not self.is_call:
            self._end_stream()  # it has not begun
        if self._named is not None:  # it may have left the client
            state = _state_for_error(self._named)
        if not on_purpose:  # (SS4)
            stands = self._named is None or state in _MAY_STAND
            error = error_from_elsewhere(error, self._doing if stands else "")
        header = {**describe_error(error), "state": state, "taken": taken}
        return b"".join(encode_call(RESULT, self.stream, header))

    def _state(self) -> str | None:
        """The transaction's state for the client; None when there is none any more."""
        if self._transaction is None:
            return None
        state = _state(self._transaction)
        if state is not TransactionState.OPEN:
            self._roll_back()
        return state.value


def end_transactions(
    transactions: list[ServedTransaction], reason: str, kind: type[QuireError] = StoreClosed
) -> None:
    """Roll them back for this reason, also while another thread waits in a call of them."""
    for transaction in transactions:
        transaction.end_by(kind, reason, wait=True)


def _is_answered(data: Bytes) -> bool:
    """Return True if the client waits for an answer to the frame.

    It waits for none to one that is the connection's and not known here (PR6).
    """
    kind = data[4]
    return kind in _ANSWERED or (kind not in _UNANSWERED and _stream_of(data)[0] != CONNECTION)


def _taking(take: Callable[[str], Found], source: object) -> Callable[[], Found]:
    """A get without waiting, from what is called so at that moment."""
    return lambda: take(str(source))


def _lifetime(header: Header) -> float | None:
    """Return how long the transaction may stay open; None: as the store's options say."""
    if "timeout" not in header:
        return None
    return math.inf if header["timeout"] is None else check_lifetime(header["timeout"])


def _state_for_error(transaction: Transaction) -> str:
    """Return the state for an error. A client without the number of a prepared one has to look."""
    state = _state(transaction)
    return _IN_DOUBT if state is TransactionState.PREPARED else state.value


def _state(transaction: Transaction) -> TransactionState:
    return TransactionState(transaction.state)
