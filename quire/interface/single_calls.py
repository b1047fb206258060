"""Calls for one thing, made of those for many: alike whether the store is owned or joined."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    Unpack,
    overload,
)

from quire.arguments import (
    Acknowledge,
    Bytes,
    NewQueue,
    QueueKind,
    check_capacity,
    check_flag,
    check_name,
    check_queue,
    check_request_ids,
    check_source,
    check_timeout,
    count_of,
)
from quire.batches import delivered_messages
from quire.batches.moved_messages import messages_given, move
from quire.calls.documented import documented_by
from quire.calls.uncopied import not_copied
from quire.definitions import existing_queue
from quire.definitions.properties import (
    DEFAULT,
    MADE_WITH,
    Properties,
    QueueOptions,
    check_properties,
)
from quire.errors import (
    AlreadyCommitted,
    InvalidArgument,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
)
from quire.interface.sessions import requesting
from quire.interface.sessions import session as sessions
from quire.libraries import pa
from quire.limits import DEFAULT_CAPACITY_BYTES
from quire.messages import payload_writer, streamed_message
from quire.messages.message import Message
from quire.messages.message_id import MessageId, PutId
from quire.moments import Duration
from quire.reports.info import (
    Description,
    QueueInfo,
    SubscriptionInfo,
)
from quire.sizes import Size

from . import consumer, finding
from .integration import Integration, TransactionIntegration
from .namespaces import Admin, Cron, Delayed, Listeners, Prepared, States
from .store import Store
from .transaction import Payloads, Streaming, Transaction

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages
    from quire.interface.sessions.session import Session
    from quire.messages.payload_writer import PayloadWriter, Source
    from quire.messages.put_options import MessageOptions
    from quire.selectors.template import SelectorOrTemplate

    from .consumer import Consumer
    from .finding import MessageKey, Where
    from .listening import ListenerCallbacks
    from .starts import Start


@documented_by(Store)
class SingleCalls:
    """For a class that has the other methods of `Store`.

    Subjects are made when they are asked for: a store that had them would never end by itself.
    """

    __reduce_ex__ = not_copied
    _callbacks: ListenerCallbacks | None = None  # of listeners, once one calls back

    @property
    def admin(self) -> Admin:
        return Admin(self)

    @property
    def cron(self) -> Cron:
        return Cron(self)

    @property
    def delayed(self) -> Delayed:
        return Delayed(self)

    @property
    def states(self) -> States:
        return States(self)

    @property
    def prepared(self) -> Prepared:
        return Prepared(self)

    @property
    def listeners(self) -> Listeners:
        return Listeners(self)

    @property
    def integration(self) -> Integration:
        return Integration(self)

    def __repr__(self: Store) -> str:
        return f"<{type(self).__name__} {self.path}, {self.role}>"

    def create_queue(
        self: Store,
        name: str,
        kind: QueueKind = "work",
        capacity: Size | None = None,
        max_messages: int | None = None,
        data_file: int | None = None,
        exist_ok: bool = False,
        **options: Unpack[QueueOptions],
    ) -> QueueInfo:
        most = DEFAULT_CAPACITY_BYTES if capacity is None else check_capacity(capacity)
        check_queue(name, kind, most, max_messages)
        properties = DEFAULT
        if options:
            properties = Properties(**check_properties(options, (*MADE_WITH, "exist_ok")))
        queue = NewQueue(name, kind, most, max_messages, data_file, properties)
        if not check_flag("exist_ok", exist_ok):
            return self.admin.create_queues([queue.to_dict()])[0]
        unknown = 0
        while True:
            try:
                return self.admin.create_queues([queue.to_dict()])[0]
            except QueueExists:
                pass
            except OutcomeUnknown:
                unknown += 1
                if unknown > 1:
                    raise
            limit = None if capacity is None else most
            asked = {"kind": kind, "type": properties.type, "capacity": limit}
            asked |= {"max_messages": max_messages, "data_file": data_file}
            asked |= {option: getattr(properties, option) for option in options}
            with suppress(QueueNotFound):  # it was dropped in between
                return existing_queue.as_asked(self.queue(name), asked)

    def queue(self: Store, name: str) -> QueueInfo:
        return self.queues([check_name(name, "queue")])[0]

    def subscribe(
        self: Store,
        queue: str,
        subscription: str,
        start: Start = "earliest",
        exclusive: bool | None = None,
        durable: bool | None = None,
        where: str | None = None,
    ) -> SubscriptionInfo:
        starts = {check_name(queue, "queue"): start}
        return self.integration.subscribe_many(subscription, starts, exclusive, durable, where)[0]

    def put_many(
        self: Store,
        queue: str,
        payloads: Payloads,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> list[int]:
        if request_ids is not None:
            return _put_once(self, queue, payloads, timeout, request_ids)
        with self.transaction() as txn:
            ids = txn.put_many(queue, payloads, timeout=timeout)
        if not ids:
            return []
        first, expires_by = int(ids[0]), ids[0].expires_by
        numbers = range(first, first + len(ids))
        if expires_by is None:
            return list(numbers)
        return [PutId.of(number, expires_by) for number in numbers]

    def put_stream(
        self: Store,
        queue: str,
        source: Source,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        durable: bool = True,
        **options: Unpack[MessageOptions],
    ) -> int:
        with self.transaction(durable=durable) as txn:
            message_id = txn.put_stream(queue, source, size=size, timeout=timeout, **options)
        return PutId.of(int(message_id), message_id.expires_by)

    def get(
        self: Store,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
    ) -> Message | None:
        with self.transaction(lifetime_of(timeout)) as txn:
            message = txn.get(source, timeout, id=id, where=where)
            kind = streamed_message.StreamedMessage
            return message.whole() if isinstance(message, kind) else message

    def get_many(
        self: Store,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        with self.transaction(lifetime_of(timeout)) as txn:
            messages = txn.get_many(source, max_messages, timeout, where=where)
            return delivered_messages.with_payloads(messages)

    @overload
    def consume(  # type: ignore[overload-overlap]
        self: Store,
        source: str,
        max_messages: Literal[1] = 1,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: SelectorOrTemplate | None = None,
    ) -> Consumer[Message]: ...

    @overload
    def consume(
        self: Store,
        source: str,
        max_messages: int,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: SelectorOrTemplate | None = None,
    ) -> Consumer[Messages]: ...

    def consume(
        self: Store,
        source: str,
        max_messages: int = 1,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: SelectorOrTemplate | None = None,
    ) -> Consumer[Any]:
        options = consumer.ConsumerOptions.of(source, max_messages, timeout, ack, where)
        return consumer.Consumer(self, options)

    def session(
        self: Store, name: str, replies: str | None = None, *, watch: bool = False
    ) -> Session:
        return sessions.open_session(self, name, replies, watch=watch)

    def request(
        self: Store,
        queue: str,
        payload: Bytes,
        timeout: Duration | None = None,
        *,
        replies: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> Message:
        return requesting.request(self, queue, payload, timeout, replies, options)

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""

    def __enter__(self) -> Self:
        self.check_usable()
        return self

    def __exit__(
        self: Store,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _put_once(
    store: Store,
    queue: str,
    payloads: Payloads,
    timeout: Duration | None,
    request_ids: Sequence[str],
) -> list[int]:
    if isinstance(payloads, Iterator):
        payloads = list(payloads)
    request_ids = check_request_ids(request_ids, count_of(payloads))
    while True:
        with suppress(AlreadyCommitted):  # others put with some of them, which are known now
            with store.transaction() as txn:
                ids = txn.put_many(queue, payloads, timeout=timeout, request_ids=request_ids)
            return [PutId.of(int(one), one.expires_by) for one in ids]


def lifetime_of(timeout: Duration | None) -> float | None:
    """Of a transaction that waits so many seconds: that is not cut short by the store's option."""
    try:
        return None if timeout == 0.0 else math.inf
    except ValueError:  # an array, which is refused where it is looked at
        return None


@documented_by(Transaction)
class TransactionCalls:
    """For a class that has the other methods of `Transaction`."""

    __slots__ = ()
    __reduce_ex__ = not_copied
    _integration: ClassVar[type]  # a class of `TransactionIntegration`

    @property
    def integration(self) -> TransactionIntegration:
        made: TransactionIntegration = self._integration(self)
        return made

    def __repr__(self: Transaction) -> str:
        return f"<{type(self).__name__} {self.id}, {self.state}>"

    def get_arrow(
        self: Transaction, source: str, max_messages: int = 65536, timeout: Duration | None = 0.0
    ) -> pa.RecordBatch:
        return self.get_many(source, max_messages, timeout).to_arrow()

    def read(
        self: Transaction,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
        hold: bool = False,
    ) -> Message | None:
        wanted = finding.where_of(id, where)
        return finding.first_of(self.read_many(source, 1, timeout, where=wanted, hold=hold))

    def attributes(
        self: Transaction, source: str, id: MessageKey, timeout: Duration | None = 0.0
    ) -> Description | None:
        found = self.describe(source, 1, timeout, where=finding.check_key_of(id))
        return found[0] if found else None

    def exists(
        self: Transaction,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> bool:
        return bool(self.describe(source, 1, timeout, where=where))

    def put_writer(
        self: Streaming,
        queue: str,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[MessageOptions],
    ) -> PayloadWriter:
        fields: dict[str, Any] = dict(options)
        if fields.pop("request_id", None) is not None:
            raise InvalidArgument(
                "a message that is put as a stream has no request_id: leave it out"
            )
        length = payload_writer.check_size(size)
        wait = None if timeout is None else check_timeout(timeout)
        sink = self.begin_stream(check_name(queue, "queue"), fields, length, wait)
        return payload_writer.PayloadWriter(sink, length)

    def put_stream(
        self: Streaming,
        queue: str,
        source: Source,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[MessageOptions],
    ) -> MessageId:
        with self.put_writer(queue, size=size, timeout=timeout, **options) as writer:
            for piece in payload_writer.pieces_of(source):
                writer.write(piece)
        return writer.message_id

    def move(
        self: Streaming,
        source: str | Iterable[Message],
        queue: str,
        max_messages: int = 1000,
        *,
        where: Where | None = None,
    ) -> int:
        if not isinstance(source, str):
            if where is not None:
                raise InvalidArgument(
                    "where chooses among the messages of a queue: give it with the queue's name as "
                    "source; of messages that were got give those that are to be moved"
                )
            source = messages_given(source)
            self.mark_moved(source)
        return move(self, source, queue, max_messages, where)

    def withdraw_refused(self, put: MessageId) -> bool:
        """Take back the last put, if it is this one and its queue has refused it; False: it is not.

        Where a put itself raises what refuses it, as here, there is nothing to be taken back.
        """
        return False

    def read_to(self: Transaction, source: str, position: int) -> None:
        self.integration.read_to_many({check_source(source): position})

    def __enter__(self) -> Self:
        return self
