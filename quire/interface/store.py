"""The interface of a store: what `quire.open` gives, whether it owns the store or has joined it.

A method with a body is made of others, alike for every store.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Protocol, Self, Unpack, overload

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
    count_of,
)
from quire.batches import delivered_messages
from quire.calls.call_table import change, look
from quire.definitions import existing_queue
from quire.definitions.properties import (
    DEFAULT,
    MADE_WITH,
    Properties,
    QueueChanges,
    QueueOptions,
    check_properties,
)
from quire.errors import (
    AlreadyCommitted,
    ConnectionLost,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
    StoreClosed,
)
from quire.interface.sessions import requesting
from quire.interface.sessions import session as sessions
from quire.libraries import pa  # noqa: F401 - Python 3.14 looks here for what `Payloads` names
from quire.limits import DEFAULT_CAPACITY_BYTES
from quire.messages import payload_writer, put_options, streamed_message
from quire.messages.message import Message
from quire.messages.message_id import PutId
from quire.moments import Duration
from quire.reports.info import QueueInfo, SubscriptionInfo
from quire.selectors import template
from quire.sizes import Size

from . import consumer, lookup
from . import starts as start_places
from .integration import Integration
from .namespaces import Admin, Cron, Delayed, Listeners, Prepared, States
from .transaction import Payload, Payloads, Transaction

Status = dict[str, Any]  # numbers, texts, lists and further mappings by name: a JSON object


class Begins(Protocol):
    """Begins transactions."""

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Transaction:
        """As `Store.transaction`."""


class Store(Protocol):
    """An open store: queues, subscriptions, transactions. Made by `quire.open`; thread-safe.

    The process that owns the store has an embedded one; others join the owner over its socket, and
    have the same methods. As a `with` block it is closed at the end.

        with quire.open("orders.quire") as store:
            store.create_queue("orders", kind="work")
            store.put("orders", b"3 apples")

    Every method raises StoreClosed once the store was closed, InvalidArgument for arguments that
    cannot be used, StoreFailed or DiskFull if the disk fails or is full where it has to write.

    When the owner ends, one of the processes that have joined takes over, and store objects live
    on: a method waits for the next owner, a minute at most, and then raises ConnectionLost. A
    method that changes something raises OutcomeUnknown, if the owner was lost after it was asked
    and nobody can tell whether it was done: look. What `connect` gives has one owner only: every
    method raises ConnectionLost once that is gone.
    """

    @property
    def role(self) -> str:
        """ "owner" where this process owns the store, "joined" where another one does.

        It becomes "owner" where this process takes over.
        """

    @property
    def path(self) -> str:
        """The store's directory."""

    @property
    def failed(self) -> bool:
        """True once a write or sync has failed: reads go on, commits are refused (StoreFailed).

        Opening the store again, by the process that owns it, recovers. A joined store asks its
        owner; for asyncio, where nothing may wait, it tells what the calls so far have met.
        """

    # By subject

    @property
    def admin(self) -> Admin:
        """Queues in bulk and by other names, open transactions, care of the files."""
        return Admin(self)

    @property
    def cron(self) -> Cron:
        """Schedules: messages that are put by the clock."""
        return Cron(self)

    @property
    def delayed(self) -> Delayed:
        """Messages that are not due yet."""
        return Delayed(self)

    @property
    def states(self) -> States:
        """Values by key, which transactions set."""
        return States(self)

    @property
    def prepared(self) -> Prepared:
        """Prepared transactions that wait for a decision."""
        return Prepared(self)

    @property
    def listeners(self) -> Listeners:
        """The listeners of messages that are put, or that leave."""
        return Listeners(self)

    @property
    def integration(self) -> Integration:
        """The calls for connectors to other systems."""
        return Integration(self)

    # Queues

    def create_queue(
        self,
        name: str,
        kind: QueueKind = "work",
        capacity: Size | None = None,
        max_messages: int | None = None,
        data_file: int | None = None,
        exist_ok: bool = False,
        **options: Unpack[QueueOptions],
    ) -> QueueInfo:
        """Make a queue, durably.

        `name`: 1 to 200 of A-Z a-z 0-9 . _ - and no dot at the beginning. `kind`: in a "topic"
        every subscription gets every message, in a "work" queue each message goes to one reader.
        `capacity`: bytes, from 4,096 on, or a text as "64m", of payloads, strings and attributes as
        they were put, and 16 for each message; None: 1 GiB. `max_messages`: None for as many as the
        capacity admits. `data_file`: the number of the data file, from 0, that it keeps its blocks
        in; None: by its name. `options`: its properties, see `QueueOptions`. `exist_ok`: a queue of
        that name that is there already is fine if it is of this `kind` and `type`, and has all else
        that the call says. What is left out, or None, may be as it is there: somebody may have
        altered it. A capacity that has grown (`grow_to`) is as asked for.

        Raises QueueExists, which with `exist_ok` tells what differs; InvalidArgument, also for an
        option that would have no effect.
        """
        most = DEFAULT_CAPACITY_BYTES if capacity is None else check_capacity(capacity)
        check_queue(name, kind, most, max_messages)
        properties = DEFAULT
        if options:
            properties = Properties(**check_properties(options, (*MADE_WITH, "exist_ok")))
        queue = NewQueue(name, kind, most, max_messages, data_file, properties)
        if not check_flag("exist_ok", exist_ok):
            return self.admin.create_queues([queue.to_dict()])[0]
        limit = None if capacity is None else most
        wanted = {"kind": kind, "type": properties.type, "capacity": limit}
        wanted |= {"max_messages": max_messages, "data_file": data_file}
        wanted |= {option: getattr(properties, option) for option in options}
        unknown: OutcomeUnknown | None = None  # of the first time, which may have made it
        while True:
            try:
                with suppress(QueueExists):
                    return self.admin.create_queues([queue.to_dict()])[0]
                with suppress(QueueNotFound):  # it was dropped in between
                    return existing_queue.check_same(self.queue(name), wanted)
            except OutcomeUnknown as error:
                if unknown is not None or error.late:
                    raise
                unknown = error
            except (ConnectionLost, StoreClosed):
                if unknown is None:
                    raise
                raise unknown from None

    @change(
        again=True,
        queues="name",
        needs="manage queue:name, put dead_letter_of:name",
        shows="queue",
    )
    def alter_queue(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change limits and properties of a queue, online and durably; as it is then.

        `changes`: `capacity` and `max_messages` as for `create_queue`, and what `QueueOptions`
        lists; what is not named stays. What the queue holds stays too, also where it is more than
        a new limit admits. Priorities may be switched while messages wait: all of them are
        delivered so from then on. Raises QueueNotFound, InvalidArgument.
        """

    @change(queues="name", needs="manage queue:name")
    def drop_queue(self, name: str) -> None:
        """Remove a queue with all its messages and subscriptions, durably.

        Raises QueueNotFound, QueueInUse while open or prepared transactions have messages in it or
        from it, while it has an alias or a schedule, is the `dead_letter` of another
        or takes the replies of a session;
        InvalidArgument for an alias, StoreCorrupt if it cannot be told what it holds.
        """

    @look(needs="see queues:names", shows="queues")
    def queues(self, names: Iterable[str] | None = None) -> list[QueueInfo]:
        """All queues, by name; or those of the names, in their order.

        Raises QueueNotFound for a name that no queue has, InvalidArgument.
        """

    def queue(self, name: str) -> QueueInfo:
        """One queue. Raises QueueNotFound."""
        return self.queues([check_name(name, "queue")])[0]

    # Subscriptions

    def subscribe(
        self,
        queue: str,
        subscription: str,
        start: start_places.Start = "earliest",
        exclusive: bool | None = None,
        durable: bool | None = None,
        where: str | None = None,
    ) -> SubscriptionInfo:
        """Make a subscription of a topic, durably; one that is there already stays as it is.

        So it may be asked for again and again. Of one that is there, `exclusive`, `durable` and
        `where` must be as asked for, where given; `start` only says where a new one begins.

        `start`: "earliest" (all that is kept), "latest" (what comes from now on), a position (an
        int), a time (a datetime with a time zone, or a float, seconds since the epoch: what was
        committed then or later), or a message (a `Message`, its `MessageId`, or "id:NUMBER"). Of
        what is before the first position that is kept it gets nothing.

        `exclusive`: one transaction at a time has messages of it; to others there is nothing to
        get meanwhile, and they wait. So the order holds over rollbacks too. Else (False, and what a
        new one is where nothing is given) it is shared: each message goes to one of those who read
        it, and what is rolled back comes after what others have got in between.

        `durable`: True where nothing is given. With False it ends with its client: it is removed
        when this store object is closed or dropped, or its process ends, in whatever way. Where
        several clients have asked for it so, it ends with the last of them. It outlives the store's
        owner: while the client finds the next one it stays, and what is put in between is kept for
        it. What an owner that was killed leaves behind of its own is removed a minute after the
        next opening.

        `where`: a selector (docs/selectors.md), up to 1 KiB; what it does not hold for counts as
        read by this subscription, and is no delivery. So that takes no room for long; until then it
        is `pending`. It stays as it was made, too.

        Raises QueueNotFound, SubscriptionExists (one is there, and not as asked for: it tells what
        differs), InvalidSelector, InvalidArgument (a work queue; a position that is not there yet),
        PositionLost (a message that is not kept).
        """
        starts = {check_name(queue, "queue"): start}
        return self.integration.subscribe_many(subscription, starts, exclusive, durable, where)[0]

    @change(needs="manage queue:queue")
    def unsubscribe(self, queue: str, subscription: str) -> None:
        """Remove a subscription, durably; what only it had not read goes.

        Raises QueueNotFound, SubscriptionNotFound, QueueInUse while a prepared transaction has got
        messages of it.
        """

    @look(needs="browse queue:queue")
    def subscriptions(self, queue: str) -> list[SubscriptionInfo]:
        """The subscriptions of a topic, by name; of a work queue the built-in one, named "".

        Raises QueueNotFound.
        """

    # Transactions and messages

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Transaction:
        """A new transaction, for use in a `with` block.

        `timeout`: seconds above 0 after which it is rolled back if it is still open; math.inf:
        never; None: the store's option `transaction_timeout`, an hour. `large`: its messages go to
        files as they arrive, some MiB at a time, and stay there. `owner`: who it is for, as
        `transactions` shows it; by default the calling thread, or the joined process. `durable`:
        with False its commit returns before it is durable. The end of processes, also by kill -9,
        loses nothing of it; a power failure may, and then all that was committed after it. It is
        durable a second later, or with the next durable commit, or `sync` (docs/handling.md).
        """

    @change(again=True, needs="")
    def sync(self) -> None:
        """Wait until all that was committed before is durable, with `durable=False` too.

        Raises StoreFailed where it can not be made so: what was committed since the last sync may
        be gone after the next power failure.
        """

    def put(
        self,
        queue: str,
        payload: Payload,
        **options: Unpack[put_options.StorePutOptions],
    ) -> int:
        """Put one message in a transaction of its own; its id. Durable on return.

        `payload` and `options` as for `Transaction.put`, and `durable` as for `transaction`.
        Raises QueueNotFound, QueueFull, DiskFull, StoreFailed and OutcomeUnknown (it may be there),
        InvalidArgument.
        """

    def put_many(
        self: Begins,
        queue: str,
        payloads: Payloads,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> list[int]:
        """Put many messages in a transaction of its own, all or none; their ids. Durable on return.

        Takes what `Transaction.put_many` takes, `timeout` in seconds. Raises as `put`.
        """
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
        self,
        queue: str,
        source: payload_writer.Source,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        durable: bool = True,
        **options: Unpack[put_options.MessageOptions],
    ) -> int:
        """Put one message of any size in a transaction of its own; its id. Durable on return.

        Takes what `Transaction.put_stream` takes, `timeout` in seconds, and `durable` as `put`.
        Raises what that and `put` raise; ConnectionLost, also where the owner of a joined store
        changes meanwhile, as the source was read: begin again.
        """
        with self.transaction(durable=durable) as txn:
            message_id = txn.put_stream(queue, source, size=size, timeout=timeout, **options)
        return PutId.of(int(message_id), message_id.expires_by)

    def get(
        self: Begins,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: lookup.MessageKey | None = None,
        where: lookup.Where | None = None,
    ) -> Message | None:
        """Take the next message in a transaction of its own; None if none came.

        Waits `timeout` seconds for one (None: for ever). The transaction has committed on return:
        the message is delivered at most once, and is lost if this process ends, or a signal's
        handler raises, after the commit and before the caller is done with it. Where that matters,
        use `consume` or `transaction`. In asyncio one that raises CancelledError has taken nothing;
        one that is cancelled when its commit has begun returns the message (docs/core.md).

        A streamed message comes with its payload in memory, and above 1 GiB not at all
        (InvalidArgument): get it in a transaction.

        `source` as for `Transaction.get`. Raises QueueNotFound, SubscriptionNotFound, StoreCorrupt
        (it stays where it is), DiskFull, StoreFailed and OutcomeUnknown (it may be gone).
        """
        with self.transaction(lifetime_of(timeout)) as txn:
            message = txn.get(source, timeout, id=id, where=where)
            kind = streamed_message.StreamedMessage
            return message.whole() if isinstance(message, kind) else message

    def get_many(
        self: Begins,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: lookup.Where | None = None,
    ) -> delivered_messages.Messages:
        """Take up to `max_messages` in a transaction of its own; empty if none came.

        Waits `timeout` seconds for the first (None: for ever). At most once, and raises, as `get`.
        """
        with self.transaction(lifetime_of(timeout)) as txn:
            messages = txn.get_many(source, max_messages, timeout, where=where)
            return delivered_messages.with_payloads(messages)

    @overload
    def consume(  # type: ignore[overload-overlap]
        self,
        source: str,
        max_messages: Literal[1] = 1,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: template.SelectorOrTemplate | None = None,
    ) -> consumer.Consumer[Message]: ...

    @overload
    def consume(
        self,
        source: str,
        max_messages: int,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: template.SelectorOrTemplate | None = None,
    ) -> consumer.Consumer[delivered_messages.Messages]: ...

    def consume(
        self,
        source: str,
        max_messages: int = 1,
        timeout: Duration | None = None,
        ack: Acknowledge = "auto",
        *,
        where: template.SelectorOrTemplate | None = None,
    ) -> consumer.Consumer[Any]:
        """The messages of a source, for a loop that handles each in a transaction of its own.

            with store.consume("orders") as messages:
                for order in messages:
                    messages.transaction.put("bills", order.payload)

        `source` may be a pattern, as "orders.*", by whose queues it goes in turn.

        A transaction commits when the loop comes for the next message. It is rolled back, and the
        message there again, if the body raises, or leaves the loop (`break`); `acknowledge`
        commits at once. With `max_messages` above 1 the loop is given `Messages`, up to so many as
        are there, with one transaction for all of them. `timeout`: seconds to wait for the next
        message before the loop ends; None: for ever. `where`: only what a selector or a `Template`
        holds for (docs/selectors.md); the rest is left to others. Such a loop looks through what is
        there, and waits with a thread of the owner.

        `ack`: "auto", as told; with "block" nothing commits before `acknowledge` or the end of
        the `with` block, which rolls back on an exception. "lazy" commits as "auto" does, but with
        `durable=False`: faster, and after a power failure messages that were handled in about the
        last second are delivered again, and what was put beside them is gone.

        Raises, from the loop, what `Transaction.get` and `Transaction.commit` raise: the loop is
        over then, and what was not committed is there again. InvalidArgument comes at once.
        """
        options = consumer.ConsumerOptions.of(source, max_messages, timeout, ack, where)
        return consumer.Consumer(self, options)

    @look(needs="browse source:source")
    def browse(
        self,
        source: str,
        max_messages: int = 1000,
        *,
        start: int | None = None,
        after: lookup.Seen | None = None,
        where: lookup.Where | None = None,
    ) -> delivered_messages.Messages:
        """Look at up to `max_messages` committed messages without taking them, in commit order.

        `source`: "queue" (all messages that are kept) or "queue/subscription" (those that it has
        not read). `start`: the position to begin at; None: the first. `after`: begin behind this
        message (or its id), whether it is still there or not: the last one of a page, to go on from
        there. `where`: only those that a selector or a `Template` holds for (docs/selectors.md), or
        the message with this id. Raises QueueNotFound, SubscriptionNotFound, StoreCorrupt,
        InvalidSelector.
        """

    # Requests

    def session(
        self, name: str, replies: str | None = None, *, watch: bool = False
    ) -> sessions.Session:
        """Open a session: a client's requests, each executed once, each reply taken once.

        Durable: whoever opens it by the same `name`, up to 180 characters, goes on with its
        requests; what has it open already raises SessionFenced from then on. `replies`: the work
        queue for its replies, which others may share; None: one of its own, "quire.replies.NAME".
        `watch`: only look, at a session that is there, and fence nobody.

        Raises NotFound (there is none to watch), QueueNotFound, InvalidArgument (it has its replies
        elsewhere).
        """
        return sessions.open_session(self, name, replies, watch=watch)

    def request(
        self,
        queue: str,
        payload: Bytes,
        timeout: Duration | None = None,
        *,
        replies: str | None = None,
        **options: Unpack[put_options.MessageOptions],
    ) -> Message:
        """Put a request, wait for its reply, and take that; None: wait for ever.

        For what may be asked again: a client that ends meanwhile knows nothing of it (`session`
        does). `timeout`: seconds. `replies`: the work queue for the reply; None: "quire.replies",
        which is made if need be, and where a reply that comes too late expires. `options`: what a
        put may say, but for `correlation_id` and `reply_to`; with `ttl` a request that nobody has
        begun by then is not executed, in a queue that is `timed`.

        Raises RequestFailed where it is answered by an error, was delivered too often or has
        expired, RequestTimeout, and what `put` and `get` raise.
        """
        return requesting.request(self, queue, payload, timeout, replies, options)

    # Care

    @look(needs="", shows="status")
    def status(self) -> Status:
        """Numbers on everything, as plain values that JSON can hold. Sizes in bytes.

        A user of a served store who has not `admin` on it gets the own use of limits alone.
        """

    def close(self) -> None:
        """Roll back what this object has open, and let go of the store; twice is once.

        What is prepared stays so. The owner makes a checkpoint, and hands over to one of those that
        have joined.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _put_once(
    store: Begins,
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
    """Return a transaction's lifetime: without end if it waits; None: the store's option."""
    try:
        return None if timeout == 0.0 else math.inf
    except ValueError:  # an array, which is refused where it is looked at
        return None
