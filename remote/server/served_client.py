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

import math
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, Final, TypeVar, cast

from quire.arguments import (
    Bytes,
    check_timeout,
)
from quire.batches.delivered_messages import Messages
from quire.calls.call_table import answer_bytes
from quire.errors import (
    LimitReached,
    QueueFull,
    QuireError,
    RemoteError,
    StoreClosed,
    StoreFailed,
)
from quire.interface.transaction import Transaction
from quire.messages.message import Message
from quire.messages.message_id import PutId
from quire.remote.access.use_limits import BYTES
from quire.remote.limits import HEAVY_BYTES
from quire.remote.wire.delivered_messages import Answer, message_answer, short_message
from quire.remote.wire.failures import describe_error, error_from_elsewhere
from quire.remote.wire.named_calls import (
    STEPS,
    WaitingStep,
    answer_call,
    answer_step,
    arguments_of,
    encode_result,
    request_row,
)
from quire.remote.wire.payload_streams import (
    READ_CHUNK,
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
from quire.remote.wire.wire_connection import RefusedFrame
from quire.reports.info import TransactionState

from .open_streams import OpenStreams
from .stream_context import ServedTransaction, StreamContext, end_transactions, state_of
from .stream_transaction import StreamTransaction
from .waiting_gets import WaitingGet

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
        self.transaction: Final = StreamTransaction(self, context)
        self.stream = 0  # of the request
        self.is_call: Final = is_call
        self.has_ended = False
        self.is_cancelled = False  # the client wants no answer to what is under way
        self.kept = deque[Bytes]()  # requests behind the one that is under way
        self.get: WaitingGet | None = None  # that is put aside
        self.began = math.inf  # what is under way and takes long, or waits
        self.late: LimitReached | None = None  # why that was ended (CL11)
        self._alone: ServedTransaction | None = None  # of a message alone, which waits for room
        self._delivering = False  # messages are taken, and on their way to the client
        self._doing = ""  # the change that it asks for
        self._answer_bytes = 0  # that are charged for an answer before it is made

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which a request waits for others."""
        return self._waiting(self)

    def check_begins(self) -> None:
        """Raises the error of a stream that has ended."""
        if self.has_ended:
            raise self._streams.refusal(self.stream)

    def end_stream(self) -> None:
        """Nothing of it is open."""
        self.late = None
        self._streams.end(self)

    def answer(self, data: Bytes) -> Answers:
        """Answer a frame (SS1)."""
        self._delivering = False
        self.transaction.named, self._doing = None, ""
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
        is_open = state_of(cast("ServedTransaction", get.transaction)) is TransactionState.OPEN
        return self._answer_get(get, lambda: get.nothing if is_open else get.take())

    def refuse_wait(self, get: WaitingGet, error: QuireError) -> Answers:
        """Answer a get that may not wait."""

        def refuse() -> Any:
            raise error

        return self._answer_get(get, refuse)

    def _answer_get(self, get: WaitingGet, take: Callable[[], Any]) -> Answers:
        self._delivering = False
        self.transaction.named, self._doing = cast("ServedTransaction", get.transaction), ""
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
        if data[4] in _LONG or len(data) + self.transaction.puts.size > HEAVY_BYTES:
            return self.is_call or not self.has_ended  # else it is refused
        return False

    def interrupt(self, reason: str) -> None:
        """Another thread ends what a request of this stream waits for."""
        end_transactions(self.under_way(), reason)

    def under_way(self) -> list[ServedTransaction]:
        """Return the transactions that a request of this stream may wait in."""
        return [found for found in (self.transaction.begun, self._alone) if found is not None]

    def close(self) -> None:
        """Roll back what is open (SS3); nothing is begun from here on."""
        self.has_ended = True
        self.transaction.roll_back()

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
            self.transaction.puts.refuse(frame.error)

    def _add(self, data: Bytes) -> None:
        if not self.has_ended:
            self.transaction.puts.add(data)

    def _get(self, data: Bytes) -> Answers:
        *_, seconds = GET_HEAD.unpack_from(data)
        source = str(data[GET_HEAD.size :], "utf-8")
        transaction = self.transaction.open_transaction()
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
        placing = self.transaction.commit(puts, None if math.isnan(seconds) else seconds)
        short = placing.short_answer(self.stream)
        if short is not None:
            return short
        answer: Header = {"placed": placing.answer(), "limits": placing.limits()}
        return self._frames(iter([(answer, ())]))

    def _rollback(self, data: Bytes) -> Answers:
        HEAD.unpack(data)
        self.check_begins()
        transaction = self.transaction.leave()  # None: it has not begun, perhaps at a limit
        if transaction is not None:
            self.transaction.named = transaction
            transaction.rollback()
        return b"".join(encode_call(RESULT, self.stream, {"state": None}))

    def _await(self, data: Bytes) -> None:
        self._awaited.add(str(data[HEAD.size :], "utf-8"))

    def _cancel(self, data: Bytes) -> bytes:
        self.is_cancelled = False
        self.transaction.roll_back()
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
        found = self._step(self.transaction.open_transaction(), op, frame)
        return found if isinstance(found, WaitingGet) else self._frames(found)

    def _tell(self, data: Bytes) -> None:
        """Begin the next transaction as the client describes it."""
        header = decode_call(data).header
        request_row(TELL, field(header, "op", str))
        self.transaction.begin_as(header)

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
        operation = StreamTransaction.operations.get(op)
        if operation is not None:
            return iter([(operation(self.transaction, transaction, frame), ())])
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
    # Inside

    def _used(self) -> RemoteError:
        return RemoteError(
            f"stream {self.stream} of this connection was begun before: a call has its own"
        )

    def _frames(self, answers: Iterator[Answer]) -> Iterator[list[Bytes]]:
        try:
            for header, bodies in answers:
                yield encode_call(
                    RESULT, self.stream, {**header, "state": self.transaction.state()}, bodies
                )
        except GeneratorExit:
            raise
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            yield [self._failed(error)]

    def _failed(self, error: Exception) -> bytes:
        """The answer that reports an error."""
        transaction = self.transaction
        if isinstance(error, StoreFailed):
            self._when_failed()
        if isinstance(error, LimitReached) and self.late is not None:
            error = self.late
        self.late = None
        if isinstance(error, struct.error | UnicodeDecodeError):
            error = RemoteError(f"a message cannot be read: {error}")
        on_purpose = isinstance(error, QuireError)
        if self._delivering or not on_purpose:
            transaction.roll_back()  # what was taken did not arrive, or nobody knows what happened
        taken, state = transaction.puts.count, transaction.state()
        if state is None and not self.is_call:
            transaction.end_stream()  # it has not begun
        if transaction.named is not None:  # it may have left the client
            state = _state_for_error(transaction.named)
        if not on_purpose:  # (SS4)
            stands = transaction.named is None or state in _MAY_STAND
            error = error_from_elsewhere(error, self._doing if stands else "")
        header = {**describe_error(error), "state": state, "taken": taken}
        return b"".join(encode_call(RESULT, self.stream, header))


def _is_answered(data: Bytes) -> bool:
    """Return True if the client waits for an answer to the frame.

    It waits for none to one that is the connection's and not known here (PR6).
    """
    kind = data[4]
    return kind in _ANSWERED or (kind not in _UNANSWERED and _stream_of(data)[0] != CONNECTION)


def _taking(take: Callable[[str], Found], source: object) -> Callable[[], Found]:
    """A get without waiting, from what is called so at that moment."""
    return lambda: take(str(source))


def _state_for_error(transaction: Transaction) -> str:
    """Return the state for an error. A client without the number of a prepared one has to look."""
    state = state_of(transaction)
    return _IN_DOUBT if state is TransactionState.PREPARED else state.value
