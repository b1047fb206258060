"""One connection at the owner's side: what its client asks for, and its open transaction.

SS1. Whatever comes, the answer is a result or an error; nothing a client sends ends the owner.
SS2. A request that names a transaction reaches that one or none.
SS3. When the session ends, its open transaction is rolled back; also when messages that it took
    cannot be delivered, so that no commit counts them as read. What is prepared is not the
    session's any more (see `undecided`).
SS4. A put that is refused leaves the transaction open, as in an embedded store; the client is told
    by the request that needs it, and has it still (PR4).
SS5. One that found no room in a queue that says what to do then is kept, with what follows it, up
    to `HELD_BYTES`, and taken by the request that needs it, which may wait.
SS6. What fails inside the owner, other than on purpose, is told with what became of the transaction
    that the request named, as the store tells it; a change that is no transaction's may have taken
    effect then (OutcomeUnknown).
"""

from __future__ import annotations

import contextlib
import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar

from quire.arguments import (
    Bytes,
    check_delay,
    check_ends,
    check_flag,
    check_key,
    check_lifetime,
    check_max_messages,
    check_message_id,
    check_name,
    check_owner,
    check_reason,
    check_request_id,
    check_request_ids,
    check_source,
    check_state_key,
    check_state_name,
    check_timeout,
    check_version,
    check_xid,
    is_int,
)
from quire.block import check_block
from quire.errors import (
    QueueFull,
    QueueInUse,
    QuireError,
    RemoteError,
    StoreClosed,
    StoreFailed,
    TransactionClosed,
)
from quire.info import TransactionState
from quire.ltds import check_foreign
from quire.message import SETTABLE, Delivered, Message, Messages
from quire.message_id import MessageId, MessageIds, PutId
from quire.starts import check_start
from quire.store import Store
from quire.transaction import Transaction
from quire.typed_message import row_of_payload

from .awaited import Awaited
from .calls import (
    SUBSCRIBING,
    Holding,
    answer_call,
    answer_subscribing,
    changes,
    is_lasting,
)
from .delivery import Answer, message_answer, messages_answers, short_message, value_answer
from .failures import describe_error, error_from_elsewhere
from .limits import HEAVY_BYTES, HELD_BYTES
from .placing import Placing
from .protocol import (
    ADD,
    ADD_HEAD,
    AWAIT,
    BLOCK,
    CALL,
    COMMIT,
    COMMIT_FRAME,
    ENTRY,
    FIELDS,
    FILE,
    FILE_ID,
    GET,
    GET_HEAD,
    HEAD,
    ID,
    ID_FRAME,
    MOVED_BLOCK,
    MOVED_FIELDS,
    NOTHING_FRAME,
    PLAIN,
    PUT,
    PUT_HEAD,
    RESULT,
    ROLLBACK,
    ROLLBACK_FRAME,
    TELL,
    Decision,
    Frame,
    Header,
    decode_call,
    decode_json,
    encode_call,
    field,
)
from .streams import (
    ABANDON,
    FINISH,
    PUT_CHUNK,
    PUT_WHOLE,
    READ_CHUNK,
    Beginning,
    Chunks,
    ServedStreams,
    answer_chunk,
)
from .undecided import Undecided

_DECISIONS: Final = {decision.value: decision for decision in Decision}
_CLOSING: Final = "the owner has closed the store: open it again"
_ROLLED_BACK: Final = b"".join(encode_call(RESULT, {"state": None}))
_SIZE: Final = struct.Struct("<I")
_IN_DOUBT: Final = TransactionState.IN_DOUBT.value
_MAY_STAND: Final = (TransactionState.COMMITTED.value, _IN_DOUBT)
Found = TypeVar("Found")
# Nothing; one frame; frames one after another, each in parts.
Answers = bytes | Iterator[list[Bytes]] | None


class ServedTransaction(Transaction, Beginning, Protocol):
    """A transaction of a store that can be served."""

    put_timeout: float | None  # seconds that puts wait for room

    def put_moved(self, queue: str, content: Any, fields: Mapping[str, Any]) -> MessageId:
        """Put a message that is moved (see `quire.moving`)."""

    def put_block(self, queue: str, data: Bytes, *, is_moved: bool = False) -> MessageIds: ...

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """Roll it back for this reason, also while another thread waits in a call of it."""


class ServedStore(Store, Holding, Chunks, Protocol):
    """A store that can be served to clients."""

    def together(self, actions: Iterable[Callable[[], None]]) -> None:
        """Do the actions, so that their commits share writes."""

    def put_now(self, queue: str, payload: bytes) -> int:
        """The same as `put`, by a thread that must not wait."""

    @property
    def commit_timeout(self) -> float:
        """Seconds that a commit waits for room in its queues, unless its client says otherwise."""

    def transaction(
        self,
        timeout: float | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> ServedTransaction: ...


class MustWait(BaseException):
    """The request waits for other clients, and this thread may not."""


class Session:
    """Answers the requests of one connection, one after another."""

    def __init__(
        self,
        store: ServedStore,
        undecided: Undecided,
        client: str,
        is_closing: Callable[[], bool],
        waiting: Callable[[], AbstractContextManager[None]],
        ready: Callable[[str], None],
        when_failed: Callable[[], None] = lambda: None,
    ) -> None:
        """`waiting`: a block in which a request waits for other clients. `ready`: see `Awaited`.

        `when_failed` is called after an answer that the store has failed.
        """
        self._when_failed = when_failed
        self._store = store
        self._undecided = undecided
        self._client = client
        self._is_closing = is_closing
        self._waiting = waiting
        self._transaction: ServedTransaction | None = None
        self._number = 0
        self._taken = 0  # of the transaction's puts
        self._refusal: QuireError | None = None  # of the next of them
        self._put_bytes = 0  # of the transaction
        self._held: list[tuple[Bytes, int]] = []  # frames of puts, each from where on (SS5)
        self._alone: ServedTransaction | None = None  # of a message alone, which waits for room
        self._delivering = False  # messages are taken, and on their way to the client
        self._asked: ServedTransaction | None = None  # that the request names
        self._doing = ""  # the change that it asks for
        self._placing = Placing()
        self._streams = ServedStreams(self._placing, waiting)
        self._holds = False  # subscriptions that end with it
        self._awaited = Awaited(store, ready)
        self._short: dict[int, Callable[[Bytes], Answers]] = {
            PUT: self._put,
            ADD: self._add,
            GET: self._get,
            COMMIT: self._commit,
            ROLLBACK: self._rollback,
            AWAIT: self._await,
            CALL: self._call,
            TELL: self._tell,
        }
        self._operations: dict[str, Callable[[ServedTransaction, Frame], Iterator[Answer]]] = {
            "get_many": self._get_many,
            "put_once": self._put_once,
            "put_many_once": self._put_many_once,
            "get_scheduled": self._get_scheduled,
            "unget": self._unget,
            "reject": self._reject,
            "read_to": self._read_to,
            "seek": self._seek,
            "read_state": self._read_state,
            "puts": self._puts,
            "commit": self._commit_with_records,
            "prepare": self._prepare,
            PUT_CHUNK: self._put_chunk,
            PUT_WHOLE: self._put_chunk,
            FINISH: self._finish_stream,
            ABANDON: self._abandon_stream,
        }

    def answer(self, data: Bytes) -> Answers:
        """What answers a frame (SS1)."""
        self._delivering = False
        self._asked, self._doing = None, ""
        try:
            if self._is_closing():
                raise StoreClosed(_CLOSING)
            action = self._short.get(data[4])
            if action is None:
                raise RemoteError(f"a message of kind {data[4]} is no request")
            return action(data)
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            return self._failed(error)

    def is_heavy(self, data: Bytes) -> bool:
        """Whether to answer the frame may take long, even if nothing is to be waited for."""
        return data[4] in (CALL, TELL) or len(data) + self._put_bytes > HEAVY_BYTES

    def interrupt(self, reason: str) -> None:
        """Another thread ends what a request of this session waits for."""
        for transaction in (self._transaction, self._alone):
            if transaction is not None:
                transaction.end_by(StoreClosed, reason, wait=True)

    def close(self) -> None:
        """Roll back what is open (SS3)."""
        self._awaited.close()
        transaction = self._leave()
        if transaction is not None and _state(transaction) is not TransactionState.PREPARED:
            with contextlib.suppress(QuireError):
                transaction.rollback()
        if self._holds and not self._is_closing():
            self._store.let_go_of(self)

    # Short requests

    def _put(self, data: Bytes) -> bytes:
        self._doing = "a commit"
        start = PUT_HEAD.size + PUT_HEAD.unpack_from(data)[2]
        if start > len(data):
            raise RemoteError("a put is cut off in its queue's name")
        queue = str(data[PUT_HEAD.size : start], "utf-8")
        payload = data[start:] if type(data) is bytes else bytes(memoryview(data)[start:])
        try:
            message_id = self._store.put_now(queue, payload)
        except QueueFull as full:
            if not full.has_remedy:
                raise
            message_id = self._put_where_room_is_made(queue, payload)
        if isinstance(message_id, PutId):
            told: Header = {"id": int(message_id), "expires_by": message_id.expires_by}
            return b"".join(encode_call(RESULT, {**told, "state": self._state()}))
        return ID_FRAME.pack(8, ID, message_id)

    def _put_where_room_is_made(self, queue: str, payload: bytes) -> int:
        """It may wait; the end of the client ends that."""
        self._alone = transaction = self._store.transaction(None, False, self._client)
        try:
            with self._waiting(), transaction:
                message_id = transaction.put(queue, payload)
            return PutId.of(int(message_id), message_id.expires_by)
        finally:
            self._alone = None
            transaction.rollback()  # if it is open: this thread may not wait

    def _add(self, data: Bytes) -> None:
        """Puts, which nobody waits for an answer of (SS4)."""
        _, _, number, first = ADD_HEAD.unpack_from(data)
        if self._held and number == self._number:
            self._hold(data, ADD_HEAD.size)
            return
        if first != (self._taken if number == self._number else 0):
            return  # it follows one that was refused
        self._refusal = None
        self._put_bytes += len(data)
        refused_at = self._take_from(number, data, ADD_HEAD.size)
        if _has_remedy(self._refusal):
            self._hold(data, refused_at)

    def _hold(self, data: Bytes, start: int) -> None:
        """Keep a frame for the request that needs it; with too much of it, none (SS5)."""
        held = sum(len(frame) for frame, _ in self._held)
        if self._held and held + len(data) > HELD_BYTES:
            self._held = []
        else:
            self._held.append((data if type(data) is bytes else bytes(data), start))

    def _take_held(self, seconds: float | None) -> None:
        """Take what is kept, waiting for room for so long; None: as the store's options say."""
        transaction = self._transaction
        if not self._held or transaction is None:
            return
        with self._waiting():
            wait = self._store.commit_timeout if seconds is None else check_timeout(seconds)
            deadline = time.monotonic() + wait
            held, self._held = self._held, []
            try:
                for data, start in held:
                    _, _, number, first = ADD_HEAD.unpack_from(data)
                    if start == ADD_HEAD.size and first != self._taken:
                        return
                    self._refusal = None
                    transaction.put_timeout = max(0.0, deadline - time.monotonic())
                    if self._take_from(number, data, start) < len(data):
                        return
            finally:
                transaction.put_timeout = 0.0

    def _take_from(self, number: int, data: Bytes, start: int) -> int:
        """The puts of a frame from there on; where the one begins that is refused, or the end."""
        at, end = start, len(data)
        try:
            transaction = self._transaction_of(number)
            while at < end:
                size, form, length = ENTRY.unpack_from(data, at)
                name = at + ENTRY.size
                start = name + size
                stop = start + length
                queue = str(data[name:start], "utf-8")
                if stop > end:
                    raise RemoteError("a put is cut off")
                self._take(transaction, queue, form, data, start, stop)
                self._taken += 1
                at = stop
        except QuireError as error:
            self._refusal = error
        except (struct.error, UnicodeDecodeError) as error:
            self._refusal = RemoteError(f"a put cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            self._refusal = error_from_elsewhere(error)
            self._end()  # nobody knows what happened
        return at

    def _take(
        self,
        transaction: ServedTransaction,
        queue: str,
        form: int,
        data: Bytes,
        start: int,
        end: int,
    ) -> None:
        """One put: messages, a block or a file."""
        placing = self._placing
        if form == PLAIN:
            payload = data[start:end] if type(data) is bytes else bytes(memoryview(data)[start:end])
            message_id = transaction.put(queue, payload)
            placing.first.setdefault(queue, message_id)
            return
        view = memoryview(data)[start:end]
        if form in (BLOCK, MOVED_BLOCK):
            placing.put_block(transaction, queue, view, is_moved=form == MOVED_BLOCK)
        elif form in (FIELDS, MOVED_FIELDS):
            length = _SIZE.unpack_from(view)[0] + _SIZE.size
            fields = _message_fields(decode_json(view[_SIZE.size : length]))
            payload = bytes(view[length:])
            if form == MOVED_FIELDS:
                message_id = transaction.put_moved(queue, payload, fields)
            else:
                message_id = transaction.put(queue, payload, **fields)
            placing.first.setdefault(queue, message_id)
        elif form == FILE:
            placing.adopt(transaction, queue, check_foreign(FILE_ID.unpack(view)[0]))
        else:
            raise RemoteError(f"a put of form {form} is none")

    def _get(self, data: Bytes) -> Answers:
        _, _, number, seconds = GET_HEAD.unpack_from(data)
        source = str(data[GET_HEAD.size :], "utf-8")
        transaction = self._transaction_of(number)
        message = transaction.get(source)
        if message is None and seconds != 0:
            check_timeout(seconds)
            with self._waiting():
                message = transaction.get(source, timeout=seconds)
        if message is None:
            return NOTHING_FRAME
        self._delivering = True
        if message.queue != source.partition("/")[0]:  # by an alias: the answer has to say
            return self._frames(iter([message_answer(message)]))
        return short_message(message) or self._frames(iter([message_answer(message)]))

    def _commit(self, data: Bytes) -> Answers:
        self._doing = "a commit"
        _, _, number, puts, seconds = COMMIT_FRAME.unpack(data)
        transaction = self._transaction_of(number)
        wait = None if math.isnan(seconds) else seconds
        self._take_held(wait)
        self._check_taken(puts)
        self._when_there_is_room(transaction.commit, wait)
        placing = self._placing
        self._leave()
        short = placing.short_answer()
        if short is not None:
            return short
        told: Header = {"placed": placing.answer(), "limits": placing.limits()}
        return self._frames(iter([(told, ())]))

    def _rollback(self, data: Bytes) -> Answers:
        transaction = self._transaction_of(ROLLBACK_FRAME.unpack(data)[2])
        self._leave()
        transaction.rollback()
        return _ROLLED_BACK

    def _await(self, data: Bytes) -> None:
        self._awaited.add(str(data[HEAD.size :], "utf-8"))

    # Requests with a header

    def _call(self, data: Bytes) -> Answers:
        return self._frames(self._dispatch(decode_call(data)))

    def _tell(self, data: Bytes) -> None:
        """How the next transaction is to be."""
        header = decode_call(data).header
        number = field(header, "txn", int)
        if field(header, "op", str) != "begin" or number <= self._number or self._transaction:
            raise RemoteError("only what begins a new transaction is told")
        large = check_flag("large", header.get("large", False))
        durable = check_flag("durable", header.get("durable", True))
        self._begin(number, _lifetime(header), large, check_owner(header.get("owner")), durable)

    def _dispatch(self, frame: Frame) -> Iterator[Answer]:
        op = field(frame.header, "op", str)
        if changes(op):
            self._doing = op
        if op in _DECISIONS:
            return self._undecided.answer(_DECISIONS[op], frame.header)
        operation = self._operations.get(op)
        if op in SUBSCRIBING:
            self._holds |= not is_lasting(frame.header)
            return answer_subscribing(self._store, self, frame.header)
        if op == READ_CHUNK:
            return iter([answer_chunk(self._store, frame.header)])
        if operation is None:
            return answer_call(self._store, op, frame.header)
        return operation(self._transaction_of(field(frame.header, "txn", int)), frame)

    def _get_many(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        source = check_source(frame.header.get("source"))
        count = check_max_messages(frame.header.get("max_messages"))
        seconds = check_timeout(frame.header.get("wait", 0.0))
        messages = transaction.get_many(source, count)
        if not messages and seconds:
            with self._waiting():
                messages = transaction.get_many(source, count, timeout=seconds)
        self._delivering = True
        yield from messages_answers(messages)

    def _put_once(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        header = frame.header
        queue = check_name(header.get("queue"), "queue")
        fields: dict[str, Any] = {
            **_message_fields(field(header, "fields", dict)),
            "request_id": check_request_id(header.get("request_id")),
        }
        if len(frame.bodies) != 1:
            raise RemoteError("a put has one payload")
        payload: Any = bytes(frame.bodies[0])
        if header.get("row"):
            payload = row_of_payload(payload)
        try:
            message_id = transaction.put(queue, payload, **fields)
        except QueueFull as full:
            if not full.has_remedy:
                raise
            wait = header.get("wait")
            seconds = self._store.commit_timeout if wait is None else check_timeout(wait)
            with self._waiting():
                message_id = transaction.put(queue, payload, timeout=seconds, **fields)
        found = int(message_id) if message_id.is_known else None
        if found is None:
            self._placing.first.setdefault(queue, message_id)
        yield {"found": found}, ()

    def _put_many_once(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        header = frame.header
        queue = check_name(header.get("queue"), "queue")
        blocks = [check_block(bytes(body)) for body in frame.bodies]
        slices = [Delivered(block, 0, block.count, 0, 0, 1) for block in blocks]
        batch = Messages(queue, slices).to_arrow().select([*SETTABLE, "payload"])
        known = check_request_ids(header.get("request_ids"), batch.num_rows)
        try:
            ids = transaction.put_many(queue, batch, request_ids=known)
        except QueueFull as full:
            if not full.has_remedy:
                raise
            wait = header.get("wait")
            seconds = self._store.commit_timeout if wait is None else check_timeout(wait)
            with self._waiting():
                ids = transaction.put_many(queue, batch, timeout=seconds, request_ids=known)
        for one in ids:
            if not one.is_known:
                self._placing.first.setdefault(queue, one)
        yield {"found": [int(one) if one.is_known else None for one in ids]}, ()

    def _put_chunk(self, transaction: ServedTransaction, frame: Frame) -> Iterator[Answer]:
        yield self._streams.put(transaction, frame, self._store.commit_timeout)

    def _finish_stream(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        yield self._streams.finish(frame)

    def _abandon_stream(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        yield self._streams.abandon(frame)

    def _get_scheduled(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        source = check_source(frame.header.get("source"))
        message_id = check_message_id(frame.header.get("message_id"))
        to_change = check_flag("to_change", frame.header.get("to_change"))
        message = transaction.get_scheduled(source, message_id, to_change=to_change)
        self._delivering = message is not None
        yield message_answer(message)

    def _reject(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        header = frame.header
        message_id, queue = (
            field(header, "message_id", int),
            check_name(header.get("queue"), "queue"),
        )
        reason, delay = check_reason(header.get("reason")), check_delay(header.get("delay"))
        transaction.reject(Message(message_id, queue, b""), reason, delay)
        yield {}, ()

    def _unget(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        transaction.unget()
        yield {}, ()

    def _read_to(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        created_us = transaction.read_to_many(check_ends(frame.header.get("positions")))
        yield {"created_us": list(created_us.values())}, ()

    def _seek(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        source = check_source(frame.header.get("source"))
        to = check_start(frame.header.get("to"))
        seconds = check_timeout(frame.header.get("wait", 0.0))
        try:
            transaction.seek(source, to)
        except QueueInUse:
            if not seconds:
                raise
            with self._waiting():
                transaction.seek(source, to, timeout=seconds)
        yield {}, ()

    def _read_state(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        name = check_state_name(frame.header.get("name"))
        yield value_answer(transaction.get_state(name, check_state_key(frame.header.get("key"))))

    def _puts(self, transaction: Transaction, frame: Frame) -> Iterator[Answer]:
        """The client asks whether its puts are taken."""
        self._take_held(check_timeout(frame.header.get("wait", 0.0)))
        self._check_taken(field(frame.header, "puts", int))
        yield {}, ()

    def _take_rest(self, transaction: Transaction, frame: Frame) -> float | None:
        """What comes with the request that ends a transaction; how long it may wait."""
        wait = frame.header.get("wait")
        seconds = None if wait is None else check_timeout(wait)
        self._take_held(seconds)
        self._check_taken(field(frame.header, "puts", int))
        for entry in field(frame.header, "records", list):
            if not isinstance(entry, list) or len(entry) != 2:
                raise RemoteError("a ledger entry is a key and a version")
            transaction.record(check_key(entry[0]), check_version(entry[1]))
        self._set_values(transaction, frame)
        return seconds

    def _set_values(self, transaction: Transaction, frame: Frame) -> None:
        """What the client sets of states: the lengths of the values, and they themselves."""
        if "values" not in frame.header:
            return
        data, at = memoryview(b"".join(frame.bodies)), 0
        for entry in field(frame.header, "values", list):
            if not isinstance(entry, list) or len(entry) != 3:
                raise RemoteError("what is set of a state is a name, a key and a length")
            name, key, length = entry
            if length is None:
                transaction.set_state(name, key, None)
                continue
            if not is_int(length) or not 0 <= length <= len(data) - at:
                raise RemoteError("a value of a state is cut off")
            transaction.set_state(name, key, data[at : at + length])
            at += length

    def _prepare(self, transaction: ServedTransaction, frame: Frame) -> Iterator[Answer]:
        xid = check_xid(frame.header.get("xid"))
        seconds = self._take_rest(transaction, frame)
        self._when_there_is_room(lambda timeout: transaction.prepare(xid, timeout), seconds)
        number = self._undecided.add(xid, transaction, self._placing)
        limits = self._placing.limits()
        self._leave()
        yield {"number": number, "limits": limits}, ()

    def _commit_with_records(
        self, transaction: ServedTransaction, frame: Frame
    ) -> Iterator[Answer]:
        seconds = self._take_rest(transaction, frame)
        self._when_there_is_room(transaction.commit, seconds)
        told: Header = {"placed": self._placing.answer(), "limits": self._placing.limits()}
        self._leave()
        yield told, ()

    # Inside

    def _transaction_of(self, number: int) -> ServedTransaction:
        """The transaction that a request names, begun if it is a new one (SS2)."""
        transaction = self._transaction
        if number == self._number and transaction is not None:
            self._asked = transaction
            return transaction
        if number <= self._number:
            raise TransactionClosed(f"transaction {number} of this connection has ended")
        if transaction is not None:
            raise RemoteError(f"transaction {self._number} of this connection has not ended")
        return self._begin(number)

    def _begin(
        self,
        number: int,
        timeout: float | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> ServedTransaction:
        self._transaction = transaction = self._store.transaction(
            timeout, large, owner or self._client, durable
        )
        transaction.put_timeout = 0.0  # see `_take_held`
        self._asked = transaction
        self._number = number
        return transaction

    def _leave(self) -> ServedTransaction | None:
        """The session's transaction, which is its no more."""
        transaction, self._transaction = self._transaction, None
        self._placing = Placing()
        self._streams = ServedStreams(self._placing, self._waiting)
        self._taken = self._put_bytes = 0
        self._refusal = None
        self._held = []
        return transaction

    def _end(self) -> None:
        """Roll back, and leave the transaction for its client's next request to find so."""
        if self._transaction is not None:
            with contextlib.suppress(QuireError):
                self._transaction.rollback()

    def _check_taken(self, puts: int) -> None:
        """Raises what refused a put, if the client has put more than was taken."""
        self._placing.check()
        if puts != self._taken:
            self._held = []  # its client has it still
            raise self._refusal or RemoteError(
                f"{self._taken} puts of the transaction are here, not {puts}"
            )

    def _when_there_is_room(
        self, end: Callable[[float | None], None], seconds: float | None
    ) -> None:
        """Commit or prepare; while a queue has no room, wait for it, as long as the client does."""
        if seconds is not None:
            check_timeout(seconds)
        try:
            end(0.0)
        except QueueFull as full:
            wait = self._store.commit_timeout if seconds is None else seconds
            if not (wait or full.has_remedy):
                raise
            with self._waiting():
                end(wait)

    def _frames(self, answers: Iterator[Answer]) -> Iterator[list[Bytes]]:
        try:
            for header, bodies in answers:
                yield encode_call(RESULT, {**header, "state": self._state()}, bodies)
        except GeneratorExit:
            raise
        except Exception as error:  # noqa: BLE001 it is told to the client (SS1)
            yield [self._failed(error)]

    def _failed(self, error: Exception) -> bytes:
        """The answer that reports an error."""
        if isinstance(error, StoreFailed):
            self._when_failed()
        if isinstance(error, struct.error | UnicodeDecodeError):
            error = RemoteError(f"a message cannot be read: {error}")
        on_purpose = isinstance(error, QuireError)
        if self._delivering or not on_purpose:
            self.close()  # what was taken did not arrive, or nobody knows what happened
        taken, state = self._taken, self._state()
        if self._asked is not None:  # it may have left the session
            state = _told(self._asked)
        if not on_purpose:  # (SS6)
            stands = self._asked is None or state in _MAY_STAND
            error = error_from_elsewhere(error, self._doing if stands else "")
        return b"".join(
            encode_call(RESULT, {**describe_error(error), "state": state, "taken": taken})
        )

    def _state(self) -> str | None:
        """The transaction's state for the client; None when there is none any more."""
        if self._transaction is None:
            return None
        state = _state(self._transaction)
        if state is not TransactionState.OPEN:
            self.close()
        return state.value


def is_answered(data: Bytes) -> bool:
    """Whether the client waits for an answer to the frame."""
    return data[4] not in (ADD, TELL, AWAIT)


def _message_fields(fields: Header) -> Any:
    """Of a put, which checks them: how long it waits is not for its message to say."""
    if "timeout" in fields:
        raise RemoteError("a message has no field 'timeout'")
    return fields


def _has_remedy(refusal: QuireError | None) -> bool:
    return isinstance(refusal, QueueFull) and refusal.has_remedy


def _lifetime(header: Header) -> float | None:
    """How long the transaction may stay open; None: as the store's options say."""
    if "timeout" not in header:
        return None
    return math.inf if header["timeout"] is None else check_lifetime(header["timeout"])


def _told(transaction: Transaction) -> str:
    """Its state, with an error. Who does not know the number of what is prepared has to look."""
    state = _state(transaction)
    return _IN_DOUBT if state is TransactionState.PREPARED else state.value


def _state(transaction: Transaction) -> TransactionState:
    return TransactionState(transaction.state)
