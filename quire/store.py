"""The interface of a store: what `quire.open` gives, whether it owns the store or has joined it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, Unpack, overload

from quire.arguments import Acknowledge, Bytes, QueueKind
from quire.limits import DEFAULT_CAPACITY_BYTES, DEFAULT_LEASE_SECONDS
from quire.message import Message, Messages
from quire.moments import Duration, Moment
from quire.payload_writer import Source
from quire.properties import QueueChanges, QueueOptions
from quire.put_options import MessageOptions, StorePutOptions
from quire.schedules import ScheduleChanges, ScheduleOptions
from quire.starts import Start, Time

from .consumer import Consumer
from .transaction import Payload, Payloads, Transaction

if TYPE_CHECKING:
    from quire.info import (
        CatalogItem,
        Lease,
        PreparedInfo,
        QueueInfo,
        QueueRecord,
        Report,
        ScheduleInfo,
        SubscriptionInfo,
        TransactionInfo,
    )

Status = dict[str, Any]  # numbers, texts, lists and further mappings by name: a JSON object


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
    def store_id(self) -> int:
        """A number of 64 bits, drawn when the store was made."""

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed: reads go on, commits are refused (StoreFailed).

        Opening the store again, by the process that owns it, recovers.
        """

    # Queues

    def create_queue(
        self,
        name: str,
        kind: QueueKind = "topic",
        capacity: int = DEFAULT_CAPACITY_BYTES,
        max_messages: int | None = None,
        data_file: int | None = None,
        exist_ok: bool = False,
        **options: Unpack[QueueOptions],
    ) -> QueueInfo:
        """Make a queue, durably.

        `name`: 1 to 200 of A-Z a-z 0-9 . _ - and no dot at the beginning. `kind`: in a "topic"
        every subscription gets every message, in a "work" queue each message goes to one reader.
        `capacity`: bytes, from 4,096 on, of payloads, strings and attributes as they were put, and
        16 for each message. `max_messages`: None for as many as the capacity admits. `data_file`:
        the number of the data file, from 0, that it keeps its blocks in; None: by its name.
        `options`: its properties, see `QueueOptions`. `exist_ok`: a queue of that name that is
        there already, and is as asked for, is fine; of its properties those that are given count.

        Raises QueueExists, which with `exist_ok` tells what differs, InvalidArgument.
        """

    def create_queues(self, queues: Iterable[str | Mapping[str, Any]]) -> list[QueueInfo]:
        """Make many queues with one commit, durably: all of them, or none.

        Each is a name, or a mapping of what `create_queue` takes: `{"name": "orders", "kind":
        "work"}`. Raises QueueExists, InvalidArgument, also where they do not fit one journal
        record (some 200 bytes each; segments of 64 MiB take more than the 100,000 that a store
        holds).
        """

    def catalog(self, type: str | None = None) -> list[CatalogItem]:
        """What is defined in the store, by type and number.

        Types are "queue", "subscription", "alias" (of a queue), "schedule" and "store" (while it is
        stopped as a whole). `type`: these only. Raises InvalidArgument.
        """

    def alter_queue(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change limits and properties of a queue, online and durably; as it is then.

        `changes`: `capacity` and `max_messages` as for `create_queue`, and what `QueueOptions`
        lists; what is not named stays. What the queue holds stays too, also where it is more than
        a new limit admits. Priorities may be switched while messages wait: all of them are
        delivered so from then on. Raises QueueNotFound, InvalidArgument.
        """

    def rename_queue(self, old: str, new: str) -> QueueInfo:
        """Give a queue another name, online and durably; as it is then.

        Messages, subscriptions, aliases and open transactions are of the queue and go on; where it
        takes the dead letters of other queues, these name it anew. Who uses the old name gets
        QueueNotFound, unless it is made an alias. Spark's streams know a queue by the name that
        they were given. Raises QueueNotFound, QueueExists, InvalidArgument (also for an alias).
        """

    def purge(self, queue: str, subscription: str | None = None) -> int:
        """Remove all that waits, durably; how many messages they were.

        What open and prepared transactions have got stays theirs, and what they have put comes
        when they commit. `subscription`: what waits for it; None: for all of the queue's, and of a
        topic what it keeps though all have read it. In one commit, or where there are more than
        65,536 messages in several: if the process ends in between, the rest is still there.

        Raises QueueNotFound, SubscriptionNotFound, QueueInUse while an open transaction moves one
        of them (`seek`), StoreCorrupt if it cannot be told what it holds.
        """

    def create_alias(self, name: str, queue: str, replace: bool = False) -> None:
        """Give a queue one more name, durably: every call that names a queue takes it.

        But for `drop_queue` and `rename_queue`, which take the queue's own. An alias stays with its
        queue when that is renamed; while it has one a queue is not dropped. `replace`: one that is
        there is given to this queue, in one step; what open transactions have done stays.

        Raises QueueNotFound, QueueExists for a name that a queue or alias has, InvalidArgument
        (also for a queue that is not there after a restart, `persistent=False`).
        """

    def drop_alias(self, name: str) -> None:
        """Take an alias away, durably; its queue stays.

        Raises QueueNotFound, InvalidArgument for a queue's own name, QueueInUse where it is the
        `dead_letter` of a queue.
        """

    def aliases(self) -> dict[str, str]:
        """All aliases in the order of their names, each with the name of its queue."""

    def disable(self, puts: bool = False, gets: bool = False) -> None:
        """Stop the store as a whole, durably: for what is True, or without arguments for both.

        Every put, or get, of any queue raises QueueDisabled then, also those that wait. What was
        put and got before may be committed. Queues keep their own properties `puts` and `gets`.
        Raises InvalidArgument.
        """

    def enable(self, puts: bool = False, gets: bool = False) -> None:
        """Let in again what `disable` has stopped: what is True, or without arguments both.

        Raises InvalidArgument.
        """

    def switch(self, puts: bool | None = None, gets: bool | None = None) -> dict[str, bool]:
        """Stop puts or gets of the store as a whole (False), or let them in (True), in one step.

        None: as it is. How both are then, by name: without arguments it tells that. See `disable`.
        Raises InvalidArgument.
        """

    def create_schedule(
        self,
        name: str,
        queue: str,
        cron: str,
        payload: Bytes = b"",
        exist_ok: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Have a message put into a queue whenever a cron text says, durably; the schedule then.

        `name`: as for queues. `cron`: minute, hour, day, month, day of the week, as
        "30 2 * * MON-FRI", a second before them where that is wanted, or one of @hourly, @daily,
        @weekly, @monthly, @yearly. `payload`: of each message. `options`: see `ScheduleOptions`;
        all of it together up to 16 KiB. `exist_ok`: a schedule of the name that is there already,
        and is as asked for, is fine.

        The message and the note that it was put are one transaction of the store's owner: for each
        due time there is one message, over crashes and changes of the owner, however clocks are
        set. What cannot be put is tried again, and shown (`ScheduleInfo.waiting`). The schedule is
        of the queue, and follows when that is renamed.

        Raises QueueNotFound, ScheduleExists (which with `exist_ok` tells what differs),
        InvalidArgument (also for a queue that is typed, or not there after a restart).
        """

    def alter_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleInfo:
        """Change a schedule, durably; as it is then. What is not named stays; None: not set.

        What is due while it is `paused` is not missed; with another `cron` or `timezone` due times
        count from now on. Raises ScheduleNotFound, QueueNotFound, InvalidArgument.
        """

    def drop_schedule(self, name: str) -> None:
        """Remove a schedule, durably; what it has put stays. Raises ScheduleNotFound."""

    def schedules(self) -> list[ScheduleInfo]:
        """All schedules, by name, with the last and the next due time of each."""

    def drop_queue(self, name: str) -> None:
        """Remove a queue with all its messages and subscriptions, durably.

        Raises QueueNotFound, QueueInUse while open or prepared transactions have messages in it or
        from it, while it has an alias or a schedule or is the `dead_letter` of another;
        InvalidArgument for an alias, StoreCorrupt if it cannot be told what it holds.
        """

    def queues(self, names: Iterable[str] | None = None) -> list[QueueInfo]:
        """All queues, by name; or those of the names, in their order.

        Raises QueueNotFound for a name that no queue has, InvalidArgument.
        """

    def queue(self, name: str) -> QueueInfo:
        """One queue. Raises QueueNotFound."""

    def positions(self, name: str) -> tuple[int, int]:
        """(the first position that is kept, the position that the next message gets).

        A position is a message's number in its queue's commit order, from 0. Raises QueueNotFound.
        """

    def positions_many(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """The same of many queues, by name, as they are at one point of the commit order.

        So of a transaction that has put to several of them either all its messages are before the
        ends, or none. Raises QueueNotFound, InvalidArgument.
        """

    def position_at(self, name: str, time: Time) -> int:
        """The first position that is kept whose message was committed at this time or later.

        Commit times ascend with the positions. Where there is no such message it is the position
        that the next one gets. `time`: a datetime with a time zone, or seconds since the epoch.
        A few record pages and one block at most are read, however many messages are kept.
        Raises QueueNotFound, InvalidArgument, StoreCorrupt.
        """

    def records(self, name: str, start: int = 0, limit: int = 10_000) -> list[QueueRecord]:
        """The queue's records since the last checkpoint, in queue order, open transactions' too.

        OPEN, MESSAGES, INDIRECT, COMMIT and ROLLBACK (paragraphs 0047-0053 of the patent). `limit`
        of them, after the first `start`; a checkpoint in between takes the oldest away, and
        `quire dump` lists them then. Raises QueueNotFound.
        """

    # Subscriptions

    def subscribe(
        self,
        queue: str,
        subscription: str,
        start: Start = "earliest",
        exclusive: bool = False,
        durable: bool = True,
    ) -> SubscriptionInfo:
        """Make a subscription of a topic, durably; one that is there already stays as it is.

        `start`: "earliest" (all that is kept), "latest" (what comes from now on), a position (an
        int), a time (a datetime with a time zone, or a float, seconds since the epoch: what was
        committed then or later), or a message (a `Message`, its `MessageId`, or "id:NUMBER"). Of
        what is before the first position that is kept it gets nothing.

        `exclusive`: one transaction at a time has messages of it; to others there is nothing to
        get meanwhile, and they wait. So the order holds over rollbacks too. Else it is shared: each
        message goes to one of those who read it, and what is rolled back comes after what others
        have got in between.

        `durable`: with False it ends with its client: it is removed when this store object is
        closed or dropped, or its process ends, in whatever way. Where several clients have asked
        for it so, it ends with the last of them. It outlives the store's owner: while the client
        finds the next one it stays, and what is put in between is kept for it. What an owner that
        was killed leaves behind of its own is removed a minute after the next opening.

        Raises QueueNotFound, InvalidArgument (a work queue; a position that is not there yet),
        PositionLost (a message that is not kept).
        """

    def subscribe_many(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool = False,
        durable: bool = True,
    ) -> list[SubscriptionInfo]:
        """Make subscriptions of topics with one commit: all of them, or none.

        `starts`: by queue, where `subscription` begins in it, as `subscribe` takes it; or with
        None for its name, by "queue/subscription", for subscriptions of several names. One that is
        there already stays as it is. Their order is that of the answer. Raises as `subscribe`.
        """

    def unsubscribe(self, queue: str, subscription: str) -> None:
        """Remove a subscription, durably; what only it had not read goes.

        Raises QueueNotFound, SubscriptionNotFound, QueueInUse while a prepared transaction has got
        messages of it.
        """

    def subscriptions(self, queue: str) -> list[SubscriptionInfo]:
        """The subscriptions of a topic, by name; of a work queue the built-in one, named "".

        Raises QueueNotFound.
        """

    # Transactions and messages

    def transaction(
        self,
        timeout: float | None = None,
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
        durable a second later, or with the next durable commit, or `sync` (docs/messages.md).
        """

    def sync(self) -> None:
        """Wait until all that was committed before is durable, with `durable=False` too.

        Raises StoreFailed where it can not be made so: what was committed since the last sync may
        be gone after the next power failure.
        """

    def transactions(self) -> list[TransactionInfo]:
        """All open transactions, whosever they are, the oldest first.

        One of a joined store is listed from the first request that reaches the owner.
        """

    def transaction_info(self, transaction_id: int) -> TransactionInfo:
        """One open transaction, by its id in `transactions`. Raises TransactionNotFound."""

    def abort(self, transaction_id: int) -> None:
        """Roll back an open transaction, whosever it is; its owner gets TransactionAborted.

        Waits for a call that is using it right now. Raises TransactionNotFound if it is not open.
        """

    def recover(self) -> list[PreparedInfo]:
        """The prepared transactions that wait for a decision, the oldest first."""

    def commit_prepared(self, xid: str) -> None:
        """Commit a prepared transaction (see `Transaction.prepare`), by whomever it was prepared.

        A queue that is full does not matter. Raises TransactionNotFound: it was decided already,
        or there was none; DiskFull, StoreFailed and OutcomeUnknown leave it prepared, or decided
        (see `recover`); StoreCorrupt, where what it has got cannot be released for damage, leaves
        it prepared.
        """

    def rollback_prepared(self, xid: str) -> None:
        """Roll a prepared transaction back. Raises as `commit_prepared`."""

    def put(
        self,
        queue: str,
        payload: Payload,
        **options: Unpack[StorePutOptions],
    ) -> int:
        """Put one message in a transaction of its own; its id. Durable on return.

        `payload` and `options` as for `Transaction.put`, and `durable` as for `transaction`.
        Raises QueueNotFound, QueueFull, DiskFull, StoreFailed and OutcomeUnknown (it may be there),
        InvalidArgument.
        """

    def put_many(
        self,
        queue: str,
        payloads: Payloads,
        *,
        timeout: float | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> list[int]:
        """Put many messages in a transaction of its own, all or none; their ids. Durable on return.

        Takes what `Transaction.put_many` takes, `timeout` in seconds. Raises as `put`.
        """

    def put_stream(
        self,
        queue: str,
        source: Source,
        *,
        size: int | None = None,
        timeout: Duration | None = None,
        durable: bool = True,
        **options: Unpack[MessageOptions],
    ) -> int:
        """Put one message of any size in a transaction of its own; its id. Durable on return.

        Takes what `Transaction.put_stream` takes, `timeout` in seconds, and `durable` as `put`.
        Raises what that and `put` raise; ConnectionLost, also where the owner of a joined store
        changes meanwhile, as the source was read: begin again.
        """

    def get(self, source: str, timeout: float | None = 0.0) -> Message | None:
        """Take the next message in a transaction of its own; None if none came.

        Waits `timeout` seconds for one (None: for ever). The transaction has committed on return:
        the message is delivered at most once, and is lost if this process ends before it is done
        with it. Where that matters, use `consume` or `transaction`. A streamed message comes with
        its payload in memory, and above 1 GiB not at all (InvalidArgument): get it in a
        transaction.

        `source` as for `Transaction.get`. Raises QueueNotFound, SubscriptionNotFound, StoreCorrupt
        (it stays where it is), DiskFull, StoreFailed and OutcomeUnknown (it may be gone).
        """

    def get_many(
        self, source: str, max_messages: int = 1000, timeout: float | None = 0.0
    ) -> Messages:
        """Take up to `max_messages` in a transaction of its own; empty if none came.

        Waits `timeout` seconds for the first (None: for ever). At most once, and raises, as `get`.
        """

    @overload
    def consume(
        self,
        source: str,
        max_messages: Literal[1] = 1,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Consumer[Message]: ...

    @overload
    def consume(
        self,
        source: str,
        max_messages: int,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Consumer[Any]: ...

    def consume(
        self,
        source: str,
        max_messages: int = 1,
        timeout: float | None = None,
        ack: Acknowledge = "auto",
    ) -> Consumer[Any]:
        """The messages of a source, for a loop that handles each in a transaction of its own.

            with store.consume("orders") as messages:
                for order in messages:
                    messages.transaction.put("bills", order.payload)

        A transaction commits when the loop comes for the next message. It is rolled back, and the
        message there again, if the body raises, or leaves the loop (`break`); `acknowledge`
        commits at once. With `max_messages` above 1 the loop is given `Messages`, up to so many as
        are there, with one transaction for all of them. `timeout`: seconds to wait for the next
        message before the loop ends; None: for ever.

        `ack`: "auto", as told; with "session" nothing commits before `acknowledge` or the end of
        the `with` block, which rolls back on an exception. "lazy" commits as "auto" does, but with
        `durable=False`: faster, and after a power failure messages that were handled in about the
        last second are delivered again, and what was put beside them is gone.

        Raises, from the loop, what `Transaction.get` and `Transaction.commit` raise: the loop is
        over then, and what was not committed is there again. InvalidArgument comes at once.
        """

    def browse(self, source: str, start: int | None = None, max_messages: int = 1000) -> Messages:
        """Look at up to `max_messages` committed messages without taking them.

        `source`: "queue" (all messages that are kept) or "queue/subscription" (those that it has
        not read). `start`: the position to begin at; None: the first. Raises QueueNotFound,
        SubscriptionNotFound, StoreCorrupt.
        """

    def when_ready(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` as soon as something may be there to get: waiting without a thread.

        It is called once, at once if something is there already: from any thread, under locks of
        the store, so it must not wait or use the store, but tell somebody who does; what it raises
        is logged (`quire.callbacks`). Also when the queue or the subscription goes, and when the
        store object is closed or its owner is lost. Nothing is taken: another reader may be
        faster. What is returned withdraws it.

        `source`: as for `Transaction.get`. Raises QueueNotFound, SubscriptionNotFound,
        InvalidArgument for a callback that is no function. Where the source is missing a joined
        store calls back instead, and the get raises it.
        """

    def scheduled(self, source: str, max_messages: int = 1000) -> Messages:
        """Look at up to `max_messages` that are not due yet, in the order in which they will be.

        `source`: as for `Transaction.get`; of a queue that is not `timed` there are none. Raises
        QueueNotFound, SubscriptionNotFound, StoreCorrupt.
        """

    def cancel(self, source: str, message_id: int) -> bool:
        """Take a message away before it is due; False: it was too late, or there is none.

        `source`: as for `Transaction.get`; of a topic, this subscription alone does not get it.
        Raises QueueNotFound, SubscriptionNotFound, InvalidArgument.
        """

    def reschedule(
        self,
        queue: str,
        message_id: int,
        *,
        deliver_at: Moment | None = None,
        delay: Duration | None = None,
    ) -> int | None:
        """Have a message of a work queue be due at another time; its new id, None: it was too late.

        It is put anew, in one transaction with taking it. `deliver_at`: a moment, or
        `delay`: seconds from now, as for a put; or neither: now. Its `expires_at` stays. Raises
        QueueNotFound, QueueFull, QueueDisabled, InvalidArgument.
        """

    def redrive(
        self,
        queue: str,
        where: Callable[[Message], bool] | None = None,
        max_messages: int | None = None,
        to: str | None = None,
    ) -> int:
        """Put dead letters back to the queues where they come from; how many they were.

        All that are there when the call begins, in their commit order, with what they were put
        with; the attributes that tell of their death are taken away. `where`: a function of a
        message that says which; the others stay, and so does what is no dead letter: they are not
        counted as delivered. What others have got, what is not due, and what waits for a retry
        stays, too. `max_messages`: how many to put back; None: all. `to`: the queue to put them to
        instead, also what is no dead letter. What comes from one subscription of a topic goes to
        all of it.

        In a transaction for each 1,000: if one fails, what those before it have put back stays put
        back, and the error tells how many that are. No room is waited for: of what a queue cannot
        take as many go as it takes, then QueueFull is raised. Raises QueueNotFound, QueueFull,
        QueueDisabled, InvalidArgument, and what `where` raises.
        """

    def ledger(self, key: str) -> int | None:
        """The last version committed for the key (see `Transaction.record`); None: none was."""

    def ledger_many(self, keys: Iterable[str]) -> dict[str, int]:
        """The last versions of many keys, in one call; without those for which none was committed.

        Raises InvalidArgument.
        """

    def get_state(self, name: str, key: str) -> bytes | None:
        """A value of a state (see `Transaction.set_state`), as it is committed; None: none is.

        Raises InvalidArgument.
        """

    def state_items(self, name: str) -> dict[str, bytes]:
        """All values of a state, in the order of their keys, as they are between two commits.

        Empty where there is none. Raises InvalidArgument.
        """

    def state_names(self) -> list[str]:
        """The names of all states that have a value, in their order."""

    def drop_state(self, name: str) -> int:
        """Delete all values of a state; how many they were.

        With one commit; with several where they are too many for one record of the journal: that is
        a million keys, fewer with smaller segments. Raises KeyHeld where a prepared transaction
        sets one of them, InvalidArgument.
        """

    # Leases

    def lease(
        self,
        queue: str,
        start: int,
        end: int,
        seconds: float = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> Lease:
        """Keep the messages of the positions [start, end) in place, for `engine.PieceReader`.

        Until `release`, or for so many seconds; it ends with the owner's process too: then `renew`
        raises PositionLost, and a new lease is to be taken. Raises
        QueueNotFound, PositionLost if some of them are not there (any more). With `gaps` those are
        left out instead, and the pieces are of the messages that nobody had released yet.
        """

    def lease_many(
        self,
        ranges: Iterable[tuple[str, int, int]],
        seconds: float = DEFAULT_LEASE_SECONDS,
        gaps: bool = False,
    ) -> list[Lease]:
        """Keep many ranges in place, each a queue and its positions from start to end: or none.

        All are one lease: they have one id, by which `renew` and `release` are for all of them.
        `seconds` and `gaps` as for `lease`. Raises as `lease`.
        """

    def renew(self, lease_id: int, seconds: float = DEFAULT_LEASE_SECONDS) -> None:
        """Let a lease last so many seconds from now. Raises PositionLost if it has ended."""

    def release(self, lease_id: int) -> None:
        """End a lease; nothing happens if it has ended already."""

    # Care

    def checkpoint(self) -> None:
        """Make a checkpoint now: recovery will begin here, the journal's space is given back.

        Checkpoints are made by themselves; nobody has to ask. Raises StoreFailed, DiskFull.
        """

    def status(self) -> Status:
        """Numbers on everything, as plain values that JSON can hold. Sizes in bytes."""

    def verify(self, *, contents: bool = False) -> Report:
        """Read and check all that the store holds; commits go on meanwhile.

        What is damaged is told in the report's `findings`. Its `checked` has the `number` of the
        latest record and the `state_hash`; with `contents` also a digest of all messages in their
        order. They are equal in stores that hold the same, whatever their pages and files.
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
    ) -> None: ...
