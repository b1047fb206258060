"""A transaction: puts to and gets from any number of queues, committed as one or not at all.

States (`quire.info.TransactionState`):

    OPEN -> COMMITTED      commit() returned
    OPEN -> ROLLED_BACK    rollback(), an exception in the with block, a time-out, store.abort(),
                           the store's close
    OPEN -> OPEN           commit() raised for a reason that can go away (QueueFull, DiskFull)
    OPEN -> ROLLED_BACK    commit() or prepare() found no room for a large transaction's file (X3)
    OPEN -> IN_DOUBT       the journal's write failed or was interrupted: reopening the store tells
    OPEN -> PREPARED       prepare() returned: only commit() or rollback() can follow, from this
                           object or by the xid (store.commit_prepared, rollback_prepared)
    OPEN -> OPEN           prepare() raised for such a reason (also XidExists, KeyHeld)
    PREPARED -> COMMITTED, ROLLED_BACK     somebody decided, this object or another
    PREPARED -> PREPARED   the decision could not be written; a time-out, an exception in the with
                           block and the store's close do nothing to it (promise 7)

- X1: nothing of the transaction is visible to others, or durable, before its journal record is.
- X2: what it has got is in flight: hidden from others until it ends, read for good by its commit,
  available again at its place in the order by its rollback.
- X3: an error raised by a put or a get leaves the transaction as it was before the call; but when
  a file of a large transaction could not be written (DiskFull), it is rolled back, and raises
  from then on, also at the end of its with block: that may have been another thread's doing.
  So it is when an interrupt (Ctrl-C) meets a put of its full form half way.
- X4: an open transaction delays nobody. What it costs is shown by `info`, and bounded: its share
  of its queues' capacity and of the write buffer, and its time.
- X5: once it is prepared, what it holds is the store's (see `prepared`): this object only decides.
- X6: one that is dropped while it is open is rolled back, with a ResourceWarning (see `registry`).
"""

from __future__ import annotations

import math
import threading
import warnings
from _thread import get_ident
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from weakref import ref

from quire.arguments import (
    Bytes,
    check_blocks,
    check_delay,
    check_ends,
    check_flag,
    check_key,
    check_max_messages,
    check_message_id,
    check_preparable,
    check_reason,
    check_request_id,
    check_request_ids,
    check_state_key,
    check_state_name,
    check_state_value,
    check_timeout,
    check_version,
    check_xid,
    count_of,
)
from quire.block import is_row
from quire.engine.commits.transaction_change import TransactionChange
from quire.engine.commits.written import Written
from quire.engine.queues.prepared import Prepared
from quire.engine.queues.queue import Queue, Taken
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.finding import place_of
from quire.engine.records.commit_record import Entry, Read
from quire.engine.records.sections import MovesSection, ValuesSection, check_kept
from quire.errors import (
    AlreadyCommitted,
    InvalidArgument,
    QueueFull,
    QuireError,
    StateConflict,
    StoreClosed,
    StoreFailed,
    TransactionAborted,
    TransactionClosed,
    TransactionError,
    TransactionNotFound,
    TransactionTimeout,
)
from quire.info import TransactionInfo, TransactionState
from quire.limits import (
    MAX_PAYLOAD_BYTES,
    MAX_STATE_CHANGE_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    ROOM_TRIES,
)
from quire.message import (
    Delivered,
    Fields,
    Message,
    Messages,
    check_message,
    check_payload,
    from_now,
)
from quire.message_id import MessageId, MessageIds
from quire.properties import WAIT
from quire.retry import Retry
from quire.single_calls import TransactionCalls
from quire.starts import Start, check_start
from quire.transaction import Payload, Transaction
from quire.uninterrupted import (
    OwnLock,
    as_call,
    begin_short,
    call,
    end,
    giving,
    held,
    inside,
    nested,
    reentrant,
)
from quire.writebuffer import WriteBuffer

from .context import Context
from .gets import IN_WHOLE, Gets, message_of
from .own_values import OwnValues
from .puts import Puts
from .streaming import StreamPut

_OPEN: Final = TransactionState.OPEN
_COMMITTED: Final = TransactionState.COMMITTED
_new_lock = threading.Lock
R = TypeVar("R")


def _again(
    puts: Puts,
    request_id: str | None,
    queue: str,
    content: bytes,
    fields: Fields | None,
    charge: int,
) -> Callable[[], MessageId]:
    """The put of one message that was refused."""
    one = puts.one if request_id is None else partial(puts.once, request_id)
    return partial(one, queue, content, fields, charge)


class EmbeddedTransaction(TransactionCalls):
    """See the module. Made by `store.transaction()`; may be used by one thread at a time."""

    __slots__ = (
        "__weakref__", "_context", "_ended_by", "_entries", "_gets", "_large", "_lock", "_puts",
        "_shall_end", "_state", "_values", "_waits_for", "change", "deadline", "durable", "id",
        "opened_us", "owner", "prepared", "put_timeout",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        timeout: float | None,
        large: bool,
        owner: str | None,
        durable: bool = True,
    ) -> None:
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        env, registry = context.env, context.registry
        if registry.dropped:
            as_call(registry.reap)
        new_id = registry.new_id
        self.id = transaction_id = new_id()
        self.opened_us = env.now_us()
        seconds = context.transaction_timeout if timeout is None else timeout
        self.deadline = env.monotonic() + seconds
        self.owner = owner or thread
        self.durable = durable
        self.put_timeout: float | None = None  # seconds that puts wait, unless they say otherwise
        self._context = context
        self._lock = _new_lock()
        self._state = _OPEN
        self._large = large
        self._puts: Puts | None = None
        self._gets: Gets | None = None
        self._entries: dict[str, int] | None = None
        self._values: OwnValues | None = None
        self._ended_by: tuple[type[QuireError], str] | None = None  # not its user
        self._shall_end: tuple[type[QuireError], str] | None = None  # as soon as it can
        self._waits_for: Queue | None = None
        # What the journal was asked to hold.
        self.change: TransactionChange | None = None
        self.prepared: Prepared | None = None  # what the store holds for it once it is prepared
        registry.open[transaction_id] = ref(self)

    def __del__(self) -> None:
        if getattr(self, "_state", None) is _OPEN:  # else it was interrupted as it was made
            self._context.registry.drop(self)
            warnings.warn(
                f"transaction {self.id} was dropped while it was open: it is rolled back; use it "
                "in a with block, or end it by commit() or rollback()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    @property
    def stands(self) -> bool:
        """Whether the commit is durable, whatever was raised since."""
        return self.change is not None and self.change.applied and self.prepared is None

    @property
    def is_prepared(self) -> bool:
        """Whether it was prepared, durably, whatever became of it since."""
        return self.prepared is not None and self.prepared.stands

    @property
    def state(self) -> str:
        """ "open", "prepared", "committed", "rolled back" or "in doubt"."""
        return self._state.value

    @property
    def large(self) -> bool:
        """Whether its messages go to files as they arrive."""
        return self._large if self._puts is None else self._puts.large

    # Writing

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        timeout: float | None = None,
        **fields: Any,
    ) -> MessageId:
        """Put one message; its id is known after the commit. Into a typed queue, a mapping.

        `fields`: priority, group, sender, correlation_id, reply_to, content_type, expires_at,
        deliver_at (microseconds since the epoch), ttl and delay (seconds from now), attributes,
        group_key, and request_id, by which a put that is repeated returns the first one's id and
        puts nothing. Raises QueueNotFound, QueueFull, InvalidArgument, TransactionClosed.
        """
        if type(payload) is not bytes or len(payload) > MAX_PAYLOAD_BYTES:
            if is_row(payload):
                return self._put_row(queue, payload, timeout, **fields)
            payload = check_payload(payload)
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        checked = None
        if timeout is not None:
            timeout = check_timeout(timeout)
        request_id = None
        if fields:
            request_id = check_request_id(fields.pop("request_id", None))
            checked = Fields.of(**from_now(fields, self._context.env.now_us))
            if checked is not None:
                charge += checked.extra_bytes
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        inside[thread] = None
        try:
            with self._lock:
                if self._state is not _OPEN:
                    self._check_open()
                puts = self._puts = self._puts or Puts().begin(self._context, self.id, self._large)
                try:
                    try:
                        if request_id is not None:
                            return puts.once(request_id, queue, payload, checked, charge)
                        return puts.one(queue, payload, checked, charge)
                    except QueueFull as full:
                        put = _again(puts, request_id, queue, payload, checked, charge)
                        return self._put_with_room(full, put, timeout)
                except BaseException:
                    if puts.lost:
                        self._lose()
                    raise
        finally:
            del inside[thread]

    def _put_row(self, queue: str, row: object, timeout: float | None, **fields: Any) -> MessageId:
        """One message of a typed queue."""
        if timeout is not None:
            timeout = check_timeout(timeout)
        request_id = check_request_id(fields.pop("request_id", None))
        checked = Fields.of(**from_now(fields, self._context.env.now_us)) if fields else None

        def action(puts: Puts) -> MessageId:
            put = partial(puts.row, queue, row, checked)
            return put() if request_id is None else puts.known_or(request_id, queue, put)

        return self.putting(action, timeout)

    def put_many(
        self,
        queue: str,
        payloads: Any,
        *,
        timeout: float | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> MessageIds:
        """Put a list of bytes, a pyarrow binary or string array, or a RecordBatch with columns.

        Into a typed queue rows: a RecordBatch, Table, DataFrame, or a list of mappings.

        All of them or, with an error, none. A RecordBatch has a `payload` column and any of the
        columns of `quire.MESSAGE_SCHEMA` that a put may set. With `request_ids` those that are
        known are not put again.
        """
        if timeout is not None:
            timeout = check_timeout(timeout)
        if isinstance(payloads, Iterable) and not isinstance(payloads, Sized):
            payloads = list(payloads)  # the program's code; and it may have to be done again
        if request_ids is not None:
            known = check_request_ids(request_ids, count_of(payloads))
            return self.putting(lambda puts: puts.many_once(queue, payloads, known), timeout)
        return self.putting(lambda puts: puts.many(queue, payloads), timeout)

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put the messages of one encoded block (see `quire.block`), verified first."""
        return self.putting(lambda puts: puts.block(queue, data))

    def put_blocks(self, blocks: Iterable[tuple[str, Bytes]]) -> list[MessageIds]:
        """Put blocks one after another, each into its queue."""
        return [self.put_block(queue, data) for queue, data in check_blocks(blocks)]

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Put the messages of a finished large transaction's file that another process wrote.

        The file is the store's once the commit has returned; a rollback leaves it to its writer.
        Raises InvalidArgument unless the id is one for such files, StoreCorrupt if it is damaged.
        """
        return self.putting(lambda puts: puts.file(queue, ltds_id))

    def schema_of(self, queue: str) -> str | None:
        """Of a typed queue, in words."""
        return self._context.state.queue(queue).schema

    def begin_stream(
        self, queue: str, fields: Mapping[str, Any], size: int | None, timeout: float | None
    ) -> StreamPut:
        """Begin to put one message chunk by chunk (see `TransactionCalls.put_writer`)."""
        checked = Fields.of(**from_now(fields, self._context.env.now_us))
        self._check_open()
        return StreamPut(self._context, self, queue, checked, size, timeout)

    @call
    def if_open(self, action: Callable[[Puts], None]) -> None:
        """Do something with what it has put, if it is open."""
        with self._lock:
            puts = self._puts
            if self._state is not _OPEN or puts is None:
                return
            try:
                action(puts)
            except BaseException:  # an interrupt
                self._lose()
                raise

    @call
    def putting(self, action: Callable[[Puts], R], timeout: float | None = None) -> R:
        """Put something. Raises what a put raises, with the transaction as it was."""
        with self._lock:
            self._check_open()
            puts = self._puts
            if puts is None:
                puts = self._puts = Puts().begin(self._context, self.id, self._large)
            try:
                try:
                    return action(puts)
                except QueueFull as full:
                    return self._put_with_room(full, partial(action, puts), timeout)
            except BaseException:
                if puts.lost:
                    self._lose()
                raise

    # Reading

    def get(self, source: str, timeout: float = 0.0) -> Message | None:
        """The next message of "queue" or "queue/subscription"; None: none came in `timeout` s."""
        if timeout != 0.0:
            return self._wait_for_one(source, timeout)
        message = None
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        inside[thread] = None
        try:
            with self._lock:
                if self._state is not _OPEN:
                    self._check_open()
                gets = self._gets
                if gets is None:
                    gets = self._gets = Gets().begin(self._context)
                message = gets.one(source)
            if message is None and self._context.registry.reap():  # what it gives back may be next
                with self._lock:
                    self._check_open()
                    message = self._reading().one(source)
        except BaseException:  # an interrupt, perhaps of what has got it
            if message is not None and message is not IN_WHOLE:
                held(self._give_back_latest)
            raise
        finally:
            del inside[thread]
        return self._get_whole(source) if message is IN_WHOLE else message

    @giving("_give_back_latest")
    def _get_whole(self, source: str) -> Message | None:
        with self._lock:
            self._check_open()
            return self._reading().one_by_rule(source)

    @giving("_give_back_latest")
    def get_many(self, source: str, max_messages: int = 1000, timeout: float = 0.0) -> Messages:
        """Up to `max_messages` next messages, a lazy sequence; empty if none came in `timeout`."""
        taken = self._take(source, max_messages, timeout)
        if not taken:
            queue, _ = self._context.state.source(source)
            return Messages(source.partition("/")[0], (), queue.schema)
        return Messages(*taken)

    @giving("_give_back_latest")
    def _wait_for_one(self, source: str, timeout: float) -> Message | None:
        taken = self._take(source, 1, timeout)
        return message_of(*taken) if taken else None

    def _give_back_latest(self) -> None:
        with self._lock:
            if self._state is _OPEN and self._gets is not None:
                self._gets.unget()

    @giving("_give_back_latest")
    def get_scheduled(
        self, source: str, message_id: int, *, to_change: bool = False
    ) -> Message | None:
        """Take a message that is not due yet; None: there is none of this id that is not."""
        check_message_id(message_id)
        check_flag("to_change", to_change)
        with self._lock:
            self._check_open()
            return self._reading().scheduled(source, message_id, to_change=to_change)

    @call
    def unget(self) -> None:
        """Give back what the latest get took, as if it had not been called."""
        with self._lock:
            self._check_open()
            if self._gets is not None:
                self._gets.unget()

    def reject(
        self, message: Message, reason: str = "", delay: float | Retry | None = None
    ) -> None:
        """Give back one message that it has got, for another try or to the dead-letter queue."""
        check_message(message)
        check_reason(reason)
        delay = check_delay(delay)
        queue, subscription = self._reject(message, reason, delay)
        if subscription.spent:
            self._context.delivery.after_reject(queue, subscription)

    @call
    def _reject(
        self, message: Message, reason: str, delay: float | Retry | None
    ) -> tuple[Queue, Subscription]:
        with self._lock:
            self._check_open()
            return self._reading().reject(message, reason, delay)

    @call
    def take_gone(
        self, queue: Queue, subscription: Subscription, most: int
    ) -> tuple[int, list[tuple[Message, str]]]:
        """Take messages that nobody else gets any more (see `Gets.gone`)."""
        with self._lock:
            self._check_open()
            return self._reading().gone(queue, subscription, most)

    @call
    def pass_to(self, queue: Queue, subscription: Subscription, position: int) -> None:
        """The same as `read_to` for a subscription that has no name."""
        with self._lock:
            self._check_open()
            self._reading().passes.append((queue, subscription, position))

    @call
    def take_waiting(
        self, queue: Queue, subscription: Subscription, most: int, end: int
    ) -> list[tuple[int, int]]:
        """Take what waits and deliver nothing of it (see `Gets.waiting`)."""
        with self._lock:
            self._check_open()
            return self._reading().waiting(queue, subscription, most, end)

    @call
    def take_oldest(
        self, queue: Queue, subscriptions: list[Subscription], runs: list[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Take these, as far as nobody holds them, and deliver nothing (see `Gets.oldest`)."""
        with self._lock:
            self._check_open()
            return self._reading().oldest(queue, subscriptions, runs)

    @call
    def take_chosen(
        self, queue: Queue, subscription: Subscription, positions: list[int]
    ) -> list[int]:
        """Take these, as far as they are there to get, and deliver nothing (see `Gets.chosen`)."""
        with self._lock:
            self._check_open()
            return self._reading().chosen(queue, subscription, positions)

    @call
    def read_to_many(self, positions: Mapping[str, int]) -> dict[str, int]:
        """The same for many sources; with an error, for none. Returns when each queue was made."""
        checked = check_ends(positions)
        with self._lock:
            self._check_open()
            return self._reading().read_to(checked)

    @call
    def seek(self, source: str, to: Start, timeout: float = 0.0) -> None:
        """Move a subscription when this transaction commits."""
        start, seconds = check_start(to), check_timeout(timeout)
        with self._lock:
            self._check_open()
            gets = self._reading()
        context = self._context
        queue, subscription = context.state.source(source)
        position = place_of(context.delivery, queue, start)
        is_strict = start != "earliest"
        if is_strict:
            with queue.lock:
                check_kept(queue.durable, position)
        own = gets.held_of(subscription)
        self._waits_for = queue if seconds else None
        try:
            context.delivery.hold(queue, subscription, gets, own, seconds, self._is_open)
        finally:
            self._waits_for = None
        with self._lock:
            try:
                self._check_open()
            except BaseException:
                context.delivery.let_go(queue, subscription, gets)
                raise
            gets.seeks[subscription] = queue, position, is_strict

    @call
    def record(self, key: str, version: int) -> None:
        """Enter key and version into the store's ledger, with the commit.

        The commit raises `AlreadyCommitted` when the ledger holds the key with this or a later
        version: a client that repeats a commit whose outcome it does not know does it once.
        """
        check_key(key)
        check_version(version)
        with self._lock:
            self._check_open()
            if self._entries is None:
                self._entries = {}
            self._entries[key] = version

    @call
    def get_state(self, name: str, key: str) -> bytes | None:
        """A value of a state, as this transaction sets it or as it was when it was read first."""
        check_state_name(name)
        check_state_key(key)
        with self._lock:
            self._check_open()
            return self._own_values().get(name, key)

    @call
    def set_state(self, name: str, key: str, value: Bytes | None) -> None:
        """Set a value of a state when this transaction commits; None: delete it."""
        check_state_name(name)
        check_state_key(key)
        checked = check_state_value(value)
        with self._lock:
            self._check_open()
            self._own_values().set(name, key, checked)

    # Ending

    def commit(self, timeout: float | None = None) -> None:
        """Make everything durable and visible at once.

        `timeout`: seconds to wait when a queue has no room for the commit's record (paragraph
        0062); by default the store's `commit_timeout`. Raises QueueFull, DiskFull, KeyHeld (the
        transaction stays open: try again or roll back), StoreCorrupt (likewise: what it has got
        cannot be released for damage), AlreadyCommitted, StateConflict (rolled back), StoreFailed
        (in doubt: reopen the store).
        """
        if timeout is not None:
            timeout = check_timeout(timeout)
        thread = begin_short()
        try:
            with self._lock:
                if self._state is not _OPEN:
                    if self._state is TransactionState.PREPARED:
                        self._decide(commit=True)
                        return
                    self._check_open()
                try:
                    try:
                        self._commit()
                    except QueueFull as full:
                        self._with_room(full, self._commit, self._seconds(timeout))
                except (AlreadyCommitted, StateConflict):
                    self._undo()
                    raise
                except BaseException as error:
                    if self.stands:
                        self._settle()
                    elif isinstance(error, StoreFailed) or self._context.committer.failed:
                        self._end(TransactionState.IN_DOUBT)
                    elif self._puts is not None and self._puts.broken:
                        self._lose()
                    raise
                self._settle()
        finally:
            del inside[thread]
            end(thread)

    def rollback(self) -> None:
        """Drop what was put, give back what was got; nothing happens if it has ended already."""
        thread = begin_short()
        try:
            with self._lock:
                if self._state is _OPEN:
                    self._undo()
                elif self._state is TransactionState.PREPARED:
                    self._decide(commit=False)
        finally:
            del inside[thread]
            end(thread)

    def give_up(self) -> None:
        """Roll back, but not what is prepared: that waits for a decision."""
        with self._lock:
            if self._state is _OPEN:
                self._undo()

    def close(self, reason: str, kind: type[QuireError] = StoreClosed) -> None:
        """Roll back because the store is closed; a commit that waits for space gives up."""
        self._end_by(kind, reason, wait=True)

    @call
    def prepare(self, xid: str, timeout: float | None = None) -> None:
        """Make everything durable and leave it undecided, under a name: two-phase commit.

        What can fail fails here; `commit` and `rollback`, or the store's `commit_prepared` and
        `rollback_prepared` with the xid, also after a crash, decide it. Until then nothing of it is
        visible, and nothing ends it. `timeout`: as for `commit`. Raises QueueFull, DiskFull,
        XidExists, KeyHeld, StoreCorrupt (the transaction stays open), AlreadyCommitted,
        StateConflict (rolled back), StoreFailed (in doubt: reopen the store, and look at
        `recover`), InvalidArgument.
        """
        check_xid(xid)
        check_preparable(self.durable)
        if timeout is not None:
            timeout = check_timeout(timeout)
        with self._lock:
            self._check_open()
            if self._gets is not None and self._gets.seeks:
                raise TransactionError(
                    "a transaction that moves a subscription (seek) cannot be prepared: commit it"
                )
            action = partial(self._prepare, xid)
            try:
                try:
                    action()
                except QueueFull as full:
                    self._with_room(full, action, self._seconds(timeout))
            except (AlreadyCommitted, StateConflict):
                self._undo()
                raise
            except BaseException:
                if self._context.committer.failed and not self.is_prepared:
                    self._end(TransactionState.IN_DOUBT)
                elif self._puts is not None and self._puts.broken:
                    self._lose()
                raise
            finally:
                if self.is_prepared:
                    if self._state is _OPEN:  # it failed before it was told
                        self._state = TransactionState.PREPARED
                    self._let_go()  # and it may be decided already: nothing of it is here any more

    def expire(self) -> bool:
        """Roll back because the time is over; False if not, as when somebody is using it."""
        return self._end_by(
            TransactionTimeout,
            "the transaction was open for too long and has been rolled back: begin anew, "
            "or give transaction(timeout=...) more seconds",
            wait=False,
        )

    def abort(self) -> bool:
        """Roll back on somebody else's demand; False if it has ended already."""
        return self._end_by(
            TransactionAborted,
            "the transaction was aborted on demand (store.abort) and has been rolled back: begin "
            "anew",
            wait=True,
        )

    def _demand_end(self, kind: type[QuireError], text: str) -> None:
        """Of a commit that waits for space, as it holds the lock meanwhile."""
        self._shall_end = kind, text
        queue = self._waits_for  # looked at after that: who begins to wait now will see it
        if queue is not None:
            with queue.lock:
                queue.wake_all()

    def _end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        if wait or self._waits_for is not None:
            self._demand_end(kind, text)
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            if self._state is _OPEN:
                self._ended_by = kind, text
                self._undo()
            return self._ended_by == (kind, text)
        finally:
            self._lock.release()

    def abandon(self, reason: str) -> None:
        """In the child of a fork: no lock is taken, nothing is undone, it cannot be used.

        Also a prepared one whose store is closed.
        """
        if self._state is not TransactionState.PREPARED:
            self._state = TransactionState.ROLLED_BACK
        self._ended_by = StoreClosed, reason
        self._lock = _new_lock()

    def leave(self, buffer: WriteBuffer | None) -> bool:
        """Another transaction needs room in the write buffer, or the time there is over.

        False when nothing left it, as when somebody is using this transaction right now.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            puts = self._puts
            if self._state is not _OPEN or puts is None:
                return False
            try:
                return puts.leave(buffer)
            except BaseException:
                if puts.lost:
                    self._lose()
                raise
        finally:
            self._lock.release()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            as_call(self.give_up)
        elif self._state is _OPEN or (
            self._state is TransactionState.ROLLED_BACK and self._ended_by is not None
        ):
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise

    def info(self) -> TransactionInfo:
        """What the store tells of an open transaction."""
        puts, gets = self._puts, self._gets
        parts = [] if puts is None else list(puts.written)
        spilled = sum(part.charge for written in parts for part in written.spilled())
        total = sum(written.charge for written in parts)
        buffered = 0 if puts is None else puts.buffered_bytes
        buffered += sum(written.staying_bytes for written in parts)
        env = self._context.env
        left = self.deadline - env.monotonic()
        return TransactionInfo(
            id=self.id,
            state=self.state,
            owner=self._owner_name(),
            opened_us=self.opened_us,
            age_seconds=max(0.0, (env.now_us() - self.opened_us) / 1e6),
            seconds_left=None if left == math.inf else max(0.0, left),
            large=self.large,
            bytes=total,
            messages=sum(written.count for written in parts),
            buffered_bytes=buffered,
            spilled_bytes=spilled,
            file_bytes=max(0, total - buffered - spilled),
            queues=tuple(sorted(written.queue.name for written in parts)),
            in_flight=0 if gets is None else gets.messages,
            sources=() if gets is None else gets.sources,
        )

    def _owner_name(self) -> str:
        if isinstance(self.owner, str):
            return self.owner
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return f"thread {names.get(self.owner, self.owner)} of the store's process"

    # Inside; the transaction's lock is held

    def _check_open(self) -> None:
        if self._state is not _OPEN:
            if self._ended_by is not None:
                kind, text = self._ended_by
                raise kind(text)
            if self._state is TransactionState.PREPARED and self.prepared is not None:
                raise TransactionClosed(
                    f"the transaction is prepared as {self.prepared.record.xid!r}: only commit() "
                    "and rollback() can follow"
                )
            raise TransactionClosed(
                f"the transaction is {self._state.value}: begin a new one with store.transaction()"
            )

    def _reading(self) -> Gets:
        if self._gets is None:
            self._gets = Gets().begin(self._context)
        return self._gets

    def _take(self, source: str, limit: int, timeout: float) -> tuple[str, list[Delivered]] | None:
        """Messages, for which it may wait without holding the lock."""
        check_max_messages(limit)
        if timeout != 0.0:
            timeout = check_timeout(timeout)
        with self._lock:
            self._check_open()
            gets = self._reading()
        context = self._context
        queue, subscription = context.state.source(source)
        if timeout:
            self._waits_for = queue
        try:
            runs = context.delivery.take(queue, subscription, limit, timeout, self._is_open, gets)
        finally:
            self._waits_for = None
        if not runs:
            self._check_open()
            return None
        with self._lock:
            try:
                self._check_open()
                parts = gets.deliver(queue, subscription, runs)
            except BaseException:
                gets.take_back(queue, subscription, [run[:2] for run in runs])
                raise
        return (queue.name, parts) if parts else None

    def _commit(self) -> None:
        puts, gets = self._puts, self._gets
        written: Collection[Written] = ()
        light = True
        taken: Sequence[Taken] = ()
        passed: Sequence[Read] = ()
        entries: Sequence[Entry] = ()
        if puts is not None:
            written, light = puts.by_queue.values(), puts.is_light
            if not light:
                puts.check_no_stream()
            if puts.found and self.durable:
                self._context.sequencer.sync()  # what was found may have been committed without
            if puts.requests:
                entries = self._entry_records()
        if gets is not None:
            taken = gets.to_read()
            if gets.passes:
                passed = gets.passed()
        if self._entries is not None:
            entries = self._entry_records()
        has_changes = bool(written or taken or passed or entries)
        if self._values is not None or (gets is not None and gets.seeks):
            moves, values = self._further_sections(has_changes=has_changes)
            if has_changes or moves or values:
                self._context.committer.commit(
                    self, written, taken, passed, entries, light, moves, values
                )
                return
        elif has_changes:
            self._context.committer.commit(self, written, taken, passed, entries, light)
            return
        # It writes nothing; but a durable one comes behind what is durable (promise 14).
        if self.durable and self._context.journal.unsynced_bytes:
            self._context.sequencer.sync()

    def _further_sections(
        self, *, has_changes: bool
    ) -> tuple[MovesSection | None, ValuesSection | None]:
        """What few transactions do: they move subscriptions, and set and read states."""
        gets, own = self._gets, self._values
        moves = gets.moves() if gets is not None and gets.seeks else None
        if own is None or not (has_changes or moves or own.sets_any):
            return moves, None  # one that has only read states commits nothing by that
        return moves, own.section()

    def _own_values(self) -> OwnValues:
        if self._values is None:
            context = self._context
            most = min(MAX_STATE_CHANGE_BYTES, context.journal.max_group_bytes // 4)
            self._values = OwnValues(context.state, most)
        return self._values

    def _prepare(self, xid: str) -> None:
        puts, gets = self._puts, self._gets
        if self._context.state.volatile:
            self._refuse_volatile()
        if puts is not None:
            puts.fill()
            puts.check_no_stream()
        self._context.two_phase.prepare(
            self,
            xid,
            () if puts is None else puts.written,
            () if gets is None else gets.to_read(),
            () if gets is None else gets.passed(),
            self._entry_records(),
            None if self._values is None else self._values.section(xid),
        )

    def _refuse_volatile(self) -> None:
        """Raise InvalidArgument for what a restart would not leave as it is prepared."""
        puts, gets = self._puts, self._gets
        name = self._context.committer.volatile.name_of(
            () if puts is None else puts.written,
            () if gets is None else [*gets.to_read(), *gets.passed()],
        )
        if name is not None:
            raise InvalidArgument(
                f"queue {name!r} is volatile, and what is prepared is there after a restart: a "
                "transaction that has put to it or got from it cannot be prepared; commit it, or "
                "roll it back"
            )

    def _with_room(self, full: QueueFull, action: Callable[[], R], seconds: float) -> R:
        """A queue lacks space for the action: do what it says to do then, wait, and do it again."""
        context = self._context
        deadline = context.env.monotonic() + seconds
        tries = 0
        while True:
            queue = context.state.names.get(full.queue or "")
            tries += 1
            if queue is None or tries > ROOM_TRIES or not nested(context.room.make, queue, full):
                self._wait_for_room(queue, full, deadline)
            try:
                return action()
            except QueueFull as again:
                full = again

    def _wait_for_room(self, queue: Queue | None, full: QueueFull, deadline: float) -> None:
        left = deadline - self._context.env.monotonic()
        if left <= 0 or full.queue is None:
            raise full
        if queue is None:  # it has another name since, which the next error tells
            return
        self._waits_for = queue
        own = self._lock
        try:
            self._lock = cast("threading.Lock", OwnLock(own, get_ident()))
            if not queue.wait_for_room(full, left, lambda: self._shall_end is None):
                raise full
        finally:
            self._lock = own
            self._waits_for = None
        if self._shall_end is not None:
            self._ended_by = self._shall_end
            self._undo()
            self._check_open()

    def _put_with_room(self, full: QueueFull, action: Callable[[], R], timeout: float | None) -> R:
        """The same of a put: it waits where its queue says so."""
        queue = self._context.state.names.get(full.queue or "")
        if not full.has_remedy or queue is None:
            raise full
        seconds = 0.0
        if queue.config.properties.overflow == WAIT and queue.space.may_admit(full):
            seconds = self._seconds(self.put_timeout if timeout is None else timeout)
        return held(self._with_room, full, action, seconds)

    def _seconds(self, timeout: float | None) -> float:
        """How long to wait for room: as is said, or as the store's options say."""
        return check_timeout(self._context.options.commit_timeout if timeout is None else timeout)

    def _is_open(self) -> bool:
        return self._state is _OPEN

    def _entry_records(self) -> list[Entry]:
        entries = [Entry(key, version) for key, version in (self._entries or {}).items()]
        return entries if self._puts is None else [*entries, *self._puts.request_entries()]

    # Prepared

    def turn_prepared(self) -> None:
        """The PREPARE record is durable. Called in the journal's order, without this one's lock."""
        self._state = TransactionState.PREPARED

    def turn_decided(self, first_id: int | None) -> None:
        """Somebody has decided it; called likewise."""
        if first_id is not None and self._puts is not None:
            self._puts.give_ids(first_id)
        self._state = (
            TransactionState.ROLLED_BACK if first_id is None else TransactionState.COMMITTED
        )

    def _decide(self, *, commit: bool) -> None:
        """The transaction's lock is held."""
        if self._ended_by is not None:
            self._check_open()
        assert self.prepared is not None
        try:
            self._context.two_phase.decide(
                self.prepared.record.xid, commit=commit, expected=self.prepared
            )
        except TransactionNotFound:
            if commit:  # somebody else was faster
                self._check_open()

    def _settle(self) -> None:
        """The commit stands."""
        change, puts, gets = self.change, self._puts, self._gets
        if change is not None and puts is not None:
            memory = change.memory if change.sections else None
            if memory is None:
                puts.give_ids(change.first_id)
            else:
                puts.give_ids_apart(change.first_id, memory.first_id)
        if (
            (puts is None or puts.is_light)
            and (gets is None or not gets.seeks)
            and self._values is None
            and self._waits_for is None
        ):  # as most are: there is nothing else to let go of
            pop = self._context.registry.open.pop
            self._state = _COMMITTED
            if gets is not None:
                gets.taken = []
            pop(self.id, None)
        else:
            self._end(_COMMITTED)

    def _lose(self) -> None:
        """Part of what was put is lost, perhaps while another thread made room in the buffer."""
        text = "part of what was put was lost on its way to the disk; it has been rolled back"
        self._ended_by = TransactionClosed, f"{text}: begin a new transaction"
        self._undo()

    def _undo(self) -> None:
        if self.stands:  # an interrupt came between the commit and its end
            self._settle()
            return
        if self._gets is not None:
            self._gets.give_back()
        if self._puts is not None:
            self._puts.drop()
        self._end(TransactionState.ROLLED_BACK)

    def _end(self, state: TransactionState) -> None:
        self._state = state
        try:
            self._let_go()
        except BaseException:  # an interrupt
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Of what it had put and got: that is the store's, or it is gone."""
        puts, gets = self._puts, self._gets
        if puts is not None and not puts.is_light:
            puts.close()
        if gets is not None:
            gets.taken = []
            if gets.seeks:
                gets.let_go()
        self._context.registry.open.pop(self.id, None)
        if self._values is not None:
            self._values.end()
        queue = self._waits_for
        if queue is not None:  # another thread is in a get of this transaction
            with queue.lock:
                queue.wake()


if TYPE_CHECKING:
    _embedded: type[Transaction] = EmbeddedTransaction
