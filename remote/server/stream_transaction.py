"""The transaction of a served stream: begun, put into, committed or prepared, and left."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from quire.arguments import (
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
from quire.errors import QueueFull, QuireError, RemoteError
from quire.messages.message import SETTABLE
from quire.messages.typed_message import row_of_payload
from quire.moments import Duration
from quire.remote.access.use_limits import TRANSACTIONS
from quire.remote.wire.payload_streams import ABANDON, FINISH, PUT_CHUNK, PUT_WHOLE
from quire.remote.wire.protocol import Frame, Header, field
from quire.remote.wire.put_places import Placing
from quire.remote.wire.values import read
from quire.reports.info import TransactionState
from quire.rows.open_block import check_block

from .stream_context import ServedTransaction, StreamContext, state_of
from .taken_puts import TakenPuts, message_fields

R = TypeVar("R")


class TransactionRest(Struct):
    """The fields of the request that ends a transaction."""

    puts: int  # that were made in it
    records: list[tuple[str, int]]  # entries of the ledger: key and version
    values: list[tuple[str, str, bytes | None]]  # of states: name, key and value
    wait: float | None = None  # seconds, for room


class _StreamStart(NamedTuple):
    """How a transaction is to begin, as its client says."""

    timeout: Duration | None = None
    large: bool = False
    owner: str | None = None
    durable: bool = True


_USUAL: Final = _StreamStart()


class ServedStream(Protocol):
    """The stream, which has one transaction after another."""

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which others are waited for."""

    def check_begins(self) -> None:
        """Raises the error of a stream that begins nothing any more."""

    def end_stream(self) -> None:
        """Nothing of it is open."""


class StreamTransaction:
    """The transaction that a stream has, if any, and its puts, which may come before it begins."""

    def __init__(self, stream: ServedStream, context: StreamContext) -> None:
        self.account: Final = context.account
        self.begun: ServedTransaction | None = None
        self.named: ServedTransaction | None = None  # that the request names
        self._stream = stream
        self._store = context.store
        self._client = context.client
        self._undecided = context.undecided
        self.puts = TakenPuts(self)
        self._start = _USUAL  # how it is to begin

    def waiting(self) -> AbstractContextManager[None]:
        """A block in which a request waits for others."""
        return self._stream.waiting()

    @property
    def commit_timeout(self) -> float:
        """The commit time-out of the store, in seconds."""
        return self._store.commit_timeout

    def begin_as(self, header: Header) -> None:
        """Begin it as the client describes it."""
        if self.begun:
            raise RemoteError("only what begins a new transaction is told")
        large = check_flag("large", header.get("large", False))
        durable = check_flag("durable", header.get("durable", True))
        self._start = _StreamStart(
            _lifetime(header), large, check_owner(header.get("owner")), durable
        )
        with contextlib.suppress(QuireError):  # the next request tries it again, and is told
            self._begin()

    def open_transaction(self) -> ServedTransaction:
        """The transaction of this stream, begun if it is not yet (SS2, PR2)."""
        transaction = self.begun
        if transaction is None:
            return self._begin()
        self.named = transaction
        return transaction

    def _begin(self) -> ServedTransaction:
        self._stream.check_begins()
        self.account.take(TRANSACTIONS)
        try:
            timeout, large, owner, durable = self._start
            transaction = self._store.transaction(timeout, large, owner or self._client, durable)
        except BaseException:
            self.account.give_back(TRANSACTIONS)
            raise
        self.begun = transaction
        transaction.put_timeout = 0.0  # see `TakenPuts.take_kept`
        self.named = transaction
        return transaction

    def leave(self) -> ServedTransaction | None:
        """The client's transaction, which is its no more."""
        transaction, self.begun = self.begun, None
        if transaction is not None:
            self.account.give_back(TRANSACTIONS)
        self.puts = TakenPuts(self)
        self.end_stream()
        return transaction

    def end_stream(self) -> None:
        """Nothing is open, and the next one begins as is usual."""
        self._start = _USUAL
        self._stream.end_stream()

    def end_transaction(self) -> None:
        """Roll back, and leave the transaction for its client's next request to find so."""
        if self.begun is not None:
            with contextlib.suppress(QuireError):
                self.begun.rollback()

    def commit(self, puts: int, wait: float | None) -> Placing:
        """Commit it, with so many puts; return where they are."""
        transaction = self.open_transaction()
        self.puts.take_kept(transaction, wait)
        self.puts.check(puts)
        return self._commit(transaction, wait)

    def _commit(self, transaction: ServedTransaction, wait: float | None) -> Placing:
        self._when_there_is_room(transaction.commit, wait)
        placing = self.puts.placing
        self.leave()
        return placing

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

    def roll_back(self) -> None:
        """Roll back what is open (SS3)."""
        transaction = self.leave()
        if transaction is not None and state_of(transaction) is not TransactionState.PREPARED:
            with contextlib.suppress(QuireError):
                transaction.rollback()

    def state(self) -> str | None:
        """The state for the client; None when there is none any more."""
        if self.begun is None:
            return None
        state = state_of(self.begun)
        if state is not TransactionState.OPEN:
            self.roll_back()
        return state.value

    # Requests with a header

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
            self.puts.placing.first.setdefault(queue, message_id)
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
                self.puts.placing.first.setdefault(queue, message_id)
        return {"found": [int(message_id) if message_id.is_known else None for message_id in ids]}

    def _put_where_there_is_room(
        self, transaction: ServedTransaction, header: Header, put: Callable[[], R]
    ) -> R:
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
        return self.puts.streams.put(transaction, frame, self.commit_timeout)

    def _tell_taken(self, transaction: ServedTransaction, frame: Frame) -> Header:
        """The client asks whether its puts are taken."""
        self.puts.take_kept(transaction, check_timeout(frame.header.get("wait", 0.0)))
        self.puts.check(field(frame.header, "puts", int))
        return {}

    def _take_rest(self, transaction: ServedTransaction, frame: Frame) -> float | None:
        """Take the fields of the request that ends a transaction; return how long it may wait."""
        rest = read(TransactionRest, frame.header)
        self.puts.take_kept(transaction, rest.wait)
        self.puts.check(rest.puts)
        for key, version in rest.records:
            transaction.enter(key, version)
        for name, key, value in rest.values:
            transaction.set_value(name, key, value)
        return rest.wait

    def _prepare(self, transaction: ServedTransaction, frame: Frame) -> Header:
        xid = check_xid(frame.header.get("xid"))
        seconds = self._take_rest(transaction, frame)
        self._when_there_is_room(lambda timeout: transaction.prepare(xid, timeout), seconds)
        number = self._undecided.add(xid, transaction, self.puts.placing)
        limits = self.puts.placing.limits()
        self.leave()
        return {"number": number, "limits": limits}

    def _commit_with_entries(self, transaction: ServedTransaction, frame: Frame) -> Header:
        placing = self._commit(transaction, self._take_rest(transaction, frame))
        return {"placed": placing.answer(), "limits": placing.limits()}

    def _finish_stream(self, transaction: ServedTransaction, frame: Frame) -> Header:
        return self.puts.streams.finish(frame)

    def _abandon_stream(self, transaction: ServedTransaction, frame: Frame) -> Header:
        return self.puts.streams.abandon(frame)

    operations: ClassVar[
        dict[str, Callable[[StreamTransaction, ServedTransaction, Frame], Header]]
    ] = {
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


def _lifetime(header: Header) -> float | None:
    """Return how long the transaction may stay open; None: as the store's options say."""
    if "timeout" not in header:
        return None
    return math.inf if header["timeout"] is None else check_lifetime(header["timeout"])
