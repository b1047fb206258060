"""A store object's part at one owner: its connection, and all that is known of that owner's store.

Thread-safe. With another owner there is another session, as a whole. Each open transaction that has
reached the owner has a stream of its own, so that one which waits for a message holds up no other.
"""

from __future__ import annotations

import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from quire.arguments import (
    Bytes,
    check_name,
    check_names,
    check_timeout,
    check_transaction,
    check_xid,
)
from quire.callbacks import check_callback
from quire.calls.call_table import CallRow, call_of
from quire.calls.signal_safety import OwnLock, begin_short, call, end, inside
from quire.definitions.existing_queue import check_waits
from quire.definitions.properties import WAIT, priority_of_puts
from quire.env.interpreter import numbers_from
from quire.errors import AlreadyCommitted, QueueNotFound
from quire.interface.awaited import Awaited
from quire.interface.starts import Start
from quire.interface.store import Store
from quire.interface.transaction import Payload
from quire.limits import DEFAULT_CALL_TIMEOUT, MAX_PAYLOAD_BYTES
from quire.messages.message_id import PutId
from quire.messages.payload_reader import Stream
from quire.messages.put_options import PutOptions
from quire.moments import Duration
from quire.remote.wire.named_calls import FAILED, HoldingStore, changes, read_answer
from quire.remote.wire.payload_streams import READ_CHUNK, chunk_of
from quire.remote.wire.protocol import Decision, Frame, Header
from quire.remote.wire.values import SentArguments, read, ready
from quire.reports.info import QueueInfo, SubscriptionInfo
from quire.reports.topic_readers import is_unread, tell_unread

from .awaiting import Awaiting
from .channel import Channel, StreamEnded
from .connection import OwnerConnection
from .deciding import decide
from .fail_over import CallOwner
from .joined_transaction import JoinedTransaction
from .request_outcomes import Request
from .transaction_life import TransactionLife

if TYPE_CHECKING:
    from quire.remote.access.tokens import UserToken
    from quire.tls import Tls

SUBSCRIBE: Final = call_of(HoldingStore.subscribe_for)
CLAIM: Final = call_of(HoldingStore.claim_for)
QUEUES: Final = call_of(Store.queues)
UNSUBSCRIBE: Final = call_of(Store.unsubscribe)


class OwnerSession:
    """The calls of one store object at one owner, which is lost once it has ended.

    `close` rolls back what is open here, and leaves the owner alone.
    """

    role: Final = "joined"

    def __init__(
        self,
        url: str,
        *,
        epoch: str | None = None,
        call_timeout: float = DEFAULT_CALL_TIMEOUT,
        tls: Tls | None = None,
        token: UserToken | None = None,
    ) -> None:
        """Connect to the owner that listens at `url`. Raises ConnectionLost if nobody does.

        `call_timeout`: seconds that an owner which does not answer is waited for.
        """
        self.connection: Final = OwnerConnection(
            url, epoch=epoch, call_timeout=call_timeout, tls=tls, token=token
        )
        self.url: Final = url
        self.path = self.connection.path
        self.store_id: Final = self.connection.store_id
        self.owner_process_id: Final = self.connection.owner_process_id
        self._awaiting = Awaiting(self.connection)
        self._new_number = numbers_from(1)
        self._encoded: dict[str, bytes] = {}  # names that were used, aliases too
        self._own_names: set[str] = set()  # of queues, as far as they were asked for; but of those
        self._warned: set[str] = set()  # that nobody reads only if that was said (NR1)
        self._infos: dict[str, QueueInfo] = {}  # of queues by their own names, likewise
        self.put_priorities: Final[dict[str, int]] = {}  # what some grant to puts without one
        # Subscriptions that end with this object, queue and name, and the channel they hang on.
        self._held: set[tuple[str, str]] = set()
        self._holder: Channel | None = None
        self._holding = OwnLock(threading.Lock())
        # Those of this object that are prepared, by the number that the owner gave them.
        self.own_prepared: Final[weakref.WeakValueDictionary[int, TransactionLife]] = (
            weakref.WeakValueDictionary()
        )

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():  # the interpreter may have cleared this module
            return
        connection = getattr(self, "connection", None)
        if connection is None or not connection.usable:
            return
        connection.close()
        warnings.warn(
            f"the store {self.url} was dropped while it was joined: the connection is ended; use "
            "it in a with block, or close it",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    @property
    def failed(self) -> bool:
        """Asks the owner."""
        return read(bool, self._frames(FAILED, {})[-1].header.get("result"))

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""
        if not self.connection.usable:
            self.connection.check()

    # Queues and subscriptions

    def queues(self, names: Iterable[str] | None = None) -> list[QueueInfo]:
        """See `Store.queues`. What is asked for by name is known then."""
        checked = None if names is None else check_names(names)
        infos: list[QueueInfo] = self._make(QUEUES, {} if checked is None else {"names": checked})
        if checked is not None:
            self._own_names.update(
                name
                for name, info in zip(checked, infos, strict=True)
                if info.name == name and not (is_unread(info) and name not in self._warned)
            )
            for info in infos:
                self._infos[info.name] = info
                priority = priority_of_puts(info.order, info.default_priority)
                if priority:
                    self.put_priorities[info.name] = priority
                else:
                    self.put_priorities.pop(info.name, None)
        return infos

    def queue(self, name: str) -> QueueInfo:
        """See `Store.queue`."""
        return self.queues([check_name(name, "queue")])[0]

    def make_subscriptions(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None,
    ) -> list[SubscriptionInfo]:
        """See `Integration`: what is not durable hangs on a channel of its own."""
        arguments: Header = {
            "subscription": subscription, "starts": starts, "exclusive": exclusive,
            "durable": durable, "where": where,
        }  # fmt: skip
        ask = self._hold if durable is False else self._frames
        infos: list[SubscriptionInfo] = self._read(SUBSCRIBE, ask(SUBSCRIBE.op, arguments))
        if durable is False:
            self._held |= {(info.queue, info.name) for info in infos}
        return infos

    def claim(self, names: Iterable[tuple[str, str]]) -> None:
        """Subscriptions, queue and name, that end with this store object, of another owner's."""
        self._held |= set(names)
        self._hold(CLAIM.op, {"names": sorted(self._held)})

    # Transactions and messages

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> JoinedTransaction:
        """See `Store.transaction`."""
        self.connection.check()
        if timeout is not None or large is not False or owner is not None or durable is not True:
            timeout = check_transaction(timeout, large, owner, durable)
        return JoinedTransaction(
            self, self._new_number(), timeout=timeout, large=large, owner=owner, durable=durable
        )

    @call
    def decide(self, xid: str, *, commit: bool) -> None:
        """Decide a prepared transaction, which may be one of this object's."""
        decision = Decision.COMMIT if commit else Decision.ROLLBACK
        decided = decide(self.connection, decision, check_xid(xid))
        transaction = self.own_prepared.get(decided.number or 0)
        if transaction is not None:
            transaction.decided(decided)

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        durable: bool = True,
        **options: Unpack[PutOptions],
    ) -> int:
        """See `Store.put`."""
        name = self._encoded.get(queue) if type(queue) is str else None
        if name is None:
            name = check_name(queue, "queue").encode()
            self.own_name(queue)  # the first put to it from here (NR1)
        if (
            options
            or durable is not True
            or type(payload) is not bytes
            or len(payload) > MAX_PAYLOAD_BYTES
        ):
            return self._put_with_options(queue, payload, options, durable)
        thread = begin_short()  # a call, without the wrapper's steps
        try:
            channel = self.connection.borrow()
            try:
                message_id = channel.put(name, payload)
                self._encoded[queue] = name
                return message_id
            except StreamEnded as error:
                raise self.connection.error_of(
                    error, Request.CHANGE, "a commit", "whether it took effect"
                ) from None
            except QueueNotFound:
                self.forget_queues()
                raise
            finally:
                self.connection.give_back(channel)
        finally:
            del inside[thread]
            end(thread)

    def _put_with_options(
        self, queue: str, payload: Payload, options: PutOptions, durable: bool
    ) -> int:
        timeout, request_id = options.get("timeout"), options.get("request_id")
        fields: dict[str, object] = dict(options)
        wait = None if timeout is None else check_timeout(timeout)
        fields.pop("timeout", None)
        fields.pop("request_id", None)
        if wait:
            self.check_waits(self.own_name(queue), wait)
        while True:
            try:
                with self.transaction(durable=durable) as txn:
                    if request_id is not None:
                        message_id = txn.put(queue, payload, **options)
                    else:
                        message_id = txn.put_alone(queue, payload, fields)
                    txn.commit(wait)
                return PutId.of(int(message_id), message_id.expires_by)
            except AlreadyCommitted:  # another one was put with the request id, and is known now
                continue
            except QueueNotFound:
                self.forget_queues()
                raise

    def read_chunk(self, stream: Stream, number: int) -> Bytes:
        """Part of a streamed message's payload. Raises PositionLost once the message is gone."""
        arguments: Header = {"stream": stream, "number": number}
        return chunk_of(self._frames(READ_CHUNK, arguments), stream, number)

    @call
    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Integration`."""
        return self._awaiting.add(str(Awaited.of(source)), check_callback(callback))

    def own_name(self, name: str) -> str:
        """Return the own name of a queue, by its name or an alias. Raises QueueNotFound.

        It was so when it was asked for last; an alias is asked for each time.
        """
        if isinstance(name, str) and name in self._own_names:
            return name
        return self._to_put_to([name])[0].name  # which is known then

    def _to_put_to(self, names: list[str]) -> list[QueueInfo]:
        """The queues of these names, of which it is said, once, if nobody reads them (NR1)."""
        infos = self.queues(names)
        for info in infos:
            if is_unread(info) and info.name not in self._warned:
                self._warned.add(info.name)
                if info.name in names:
                    self._own_names.add(info.name)
                tell_unread(info.name)
        return infos

    def own_names(self, names: Iterable[str]) -> dict[str, str]:
        """Queues by the names given: one request asks for all."""
        checked = check_names(names)
        known = self._own_names
        unknown = [name for name in dict.fromkeys(checked) if name not in known]
        found = {name: name for name in checked}
        if unknown:
            found |= {n: i.name for n, i in zip(unknown, self._to_put_to(unknown), strict=True)}
        return found

    def schema_of(self, name: str) -> str | None:
        """Return the schema of the queue of this name, no alias, as of the latest look at it."""
        info = self._infos.get(name) or self.queue(name)
        return info.schema

    def codec_of(self, name: str) -> str | None:
        """Return the codec of the queue of this name, or alias, for a value that is no bytes."""
        own = self.own_name(name)
        info = self._infos.get(own)
        if info is None or (info.codec is None and info.schema is None):
            info = self.queue(own)  # it may have got one since
        return info.codec

    def check_waits(self, name: str, seconds: float) -> None:
        """Raises InvalidArgument where the queue of this name, no alias, has no put wait."""
        info = self._infos.get(name)
        if info is None or info.overflow != WAIT:  # as it was when it was asked for last
            check_waits(name, self.queue(name).overflow, seconds)

    def forget_queues(self) -> None:
        """A commit met a queue that is gone, or another than it was."""
        self._encoded.clear()
        self._own_names.clear()
        self._infos.clear()
        self.put_priorities.clear()

    # The store as a whole

    @call
    def close(self) -> None:
        """End the session, and what is open in it."""
        self.connection.close()

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Return the owner's answer to a call."""
        if row.op == QUEUES.op:
            return self.queues(arguments.get("names"))
        found = self._make(row, arguments)
        if row.op == UNSUBSCRIBE.op:
            self._held.discard((arguments["queue"], arguments["subscription"]))
            self.forget_queues()  # perhaps nobody reads it now
        return found

    def _make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        return self._read(row, self._frames(row.op, ready(arguments)))

    def _read(self, row: CallRow, frames: list[Frame]) -> Any:
        if row.facts.queues:
            self.forget_queues()
        return read_answer(row, frames, self.read_chunk)

    @call
    def _hold(self, op: str, arguments: Header) -> list[Frame]:
        """Over a channel of its own, whose end is that of what it asks for."""
        with self._holding:
            if self._holder is None or self._holder.broken:
                before, self._holder = self._holder, self.connection.borrow()
                if self._held and op != CLAIM.op:
                    self._ask(self._holder, CLAIM.op, {"names": sorted(self._held)})
                if before is not None:
                    self.connection.give_back(before)
            return self._ask(self._holder, op, arguments)

    @call
    def _frames(self, op: str, arguments: SentArguments) -> list[Frame]:
        channel = self.connection.borrow()
        try:
            return self._ask(channel, op, arguments)
        finally:
            self.connection.give_back(channel)

    def _ask(self, channel: Channel, op: str, arguments: SentArguments) -> list[Frame]:
        try:
            return channel.request({"op": op, "arguments": arguments})
        except StreamEnded as error:
            request = Request.CHANGE if changes(op) else Request.LOOK
            raise self.connection.error_of(error, request, op, "whether it took effect") from None
        except QueueNotFound:
            self.forget_queues()
            raise


if TYPE_CHECKING:
    _owner: type[CallOwner] = OwnerSession
