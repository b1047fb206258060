"""A transaction: puts to and gets from any number of queues, committed as one or not at all.

States (`quire.reports.info.TransactionState`):

    OPEN -> COMMITTED      commit() returned
    OPEN -> ROLLED_BACK    rollback(), an exception in the with block, a time-out, abort(), close()
    OPEN -> OPEN           commit() raised for a reason that can go away (QueueFull, DiskFull)
    OPEN -> ROLLED_BACK    commit() or prepare() found no room for a large transaction's file
    OPEN -> IN_DOUBT       the journal's write failed or was interrupted: reopening the store tells
    OPEN -> PREPARED       prepare() returned: only commit() or rollback() can follow, from this
                           object or by the xid (store.prepared)
    OPEN -> OPEN           prepare() raised for such a reason (also XidExists, KeyHeld)
    PREPARED -> COMMITTED, ROLLED_BACK     somebody decided, this object or another
    PREPARED -> PREPARED   the decision could not be written; a time-out, an exception in the with
                           block and the store's close do nothing to it (promise 7)

- Nothing of the transaction is visible to others, or durable, before its journal record is.
- What it has put is in its `TransactionWrites`, what it has got in its `TransactionReads`: it ends
  both.
- An error raised by a put or a get leaves the transaction as it was before the call; but when
  a file of a large transaction could not be written (DiskFull), it is rolled back, and raises
  from then on, also at the end of its with block: that may have been another thread's doing.
  So it is when an interrupt (Ctrl-C) meets a put of its full form half way (PU3).
- An open transaction delays no commit and no put. `info` tells what it costs, which is bounded.
- Once it is prepared, what it holds is the store's: this object only decides.
"""

from __future__ import annotations

import math
import warnings
from _thread import get_ident
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial, wraps
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    TypeVar,
    Unpack,
    cast,
)
from weakref import ReferenceType, ref

from quire.arguments import (
    Bytes,
    check_delay,
    check_flag,
    check_key,
    check_max_messages,
    check_message_id,
    check_preparable,
    check_reason,
    check_request_id,
    check_request_ids,
    check_seconds,
    check_state_key,
    check_state_name,
    check_state_value,
    check_timeout,
    check_version,
    check_wait,
    check_xid,
    count_of,
)
from quire.batches import delivered_messages
from quire.calls.documented import documented_by
from quire.calls.signal_safety import (
    CALL_ROOM,
    PUT_ROOM,
    OwnLock,
    as_call,
    begin_short,
    call,
    defer_signals,
    end,
    inside,
    look,
    probe,
    reentrant,
)
from quire.definitions.retry import Retry
from quire.definitions.source_pattern import is_pattern
from quire.engine.commits.commit_plan import CommitPlan
from quire.engine.commits.transaction_change import TransactionChange
from quire.engine.lookup import choice as choices
from quire.engine.lookup.candidates import Candidate
from quire.engine.lookup.described import described
from quire.engine.lookup.message_lookup import Asking, Purpose
from quire.engine.queues.prepared_transactions import PreparedTransaction
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.reading import position_search
from quire.engine.reading.fetcher import DeliveryRequest, DeliveryRuns
from quire.engine.records.commit_record import LedgerEntry
from quire.env.interpreter import Lock
from quire.errors import (
    AlreadyCommitted,
    Deadlock,
    InvalidArgument,
    PositionLost,
    QueueFull,
    QuireError,
    StateConflict,
    StoreClosed,
    StoreFailed,
    TransactionClosed,
    TransactionError,
    TransactionNotFound,
)
from quire.interface import lookup
from quire.interface import starts as start_places
from quire.interface.store_objects import TransactionCalls
from quire.interface.transaction import Payload, Transaction
from quire.libraries import pa
from quire.limits import MAX_PAYLOAD_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.messages.encoded_values import encoded_value
from quire.messages.message import Message, check_message, check_messages
from quire.messages.message_fields import Fields, check_payload, with_moments
from quire.messages.message_id import MessageId, MessageIds
from quire.moments import Duration
from quire.reports.info import Description, TransactionInfo, TransactionState
from quire.rows import row_input
from quire.writebuffer import WriteBuffer

from . import streaming
from .context import Context
from .extra_reads import ExtraReads
from .integration import EmbeddedTransactionIntegration
from .own_values import OwnValues
from .reads import IN_WHOLE, TransactionReads
from .registry import EndCallback, owner_name, reason_of_end
from .waiting_for_room import patience, put_patience, with_room
from .writes import TransactionWrites

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages
    from quire.engine.lookup.choice import Choice
    from quire.interface.lookup import MessageKey, Seen, Where
    from quire.interface.starts import Start
    from quire.messages.put_options import MessageOptions

    from .streaming import StreamPut

_MOST_CHARGE: Final = MAX_PAYLOAD_BYTES + MESSAGE_OVERHEAD_BYTES
_OPEN: Final = TransactionState.OPEN
_COMMITTED: Final = TransactionState.COMMITTED
_ROLLED_BACK: Final = TransactionState.ROLLED_BACK
_new_lock = Lock
P = ParamSpec("P")
R = TypeVar("R")


def _giving(
    method: Callable[Concatenate[EmbeddedTransaction, P], R],
) -> Callable[Concatenate[EmbeddedTransaction, P], R]:
    """A method that is a whole call; what it took is the caller's with its last step (GT1)."""
    whole = call(method)

    @wraps(method)
    def give(self: EmbeddedTransaction, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found = whole(self, *args, **kwargs)
        if self._reads is not None:
            self._reads.pending = None
        return found

    return give


@documented_by(Transaction)
class EmbeddedTransaction(TransactionCalls):
    """A transaction. Made by `store.transaction()`; may be used by one thread at a time."""

    _integration = EmbeddedTransactionIntegration
    __slots__ = (
        "__weakref__",
        "_context",
        "_ended_by",
        "_entries",
        "_large",
        "_lock",
        "_reads",
        "_shall_end",
        "_state",
        "_values",
        "_waits_for",
        "_writes",
        "change",
        "deadline",
        "durable",
        "id",
        "is_own",
        "opened",
        "opened_us",
        "owner",
        "prepared",
        "put_timeout",
    )  # fmt: skip

    id: int

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
        probe(None, CALL_ROOM)
        registry, monotonic = context.registry, context.env.monotonic
        if registry.dropped:
            as_call(registry.reap)
        new_id = registry.new_id
        self.id = transaction_id = new_id()
        self.opened = opened = monotonic()
        self.deadline = opened + (context.transaction_timeout if timeout is None else timeout)
        self.owner = owner or thread
        self.durable = durable
        self._context = context
        self._lock = _new_lock()
        self._large = large
        self.put_timeout: float | None = None  # seconds that puts wait, unless they say otherwise
        self.is_own = False  # the store's: it waits for no room, and tells nobody of deliveries
        self.opened_us = 0  # once somebody has asked
        self._writes: TransactionWrites | None = None
        self._reads: TransactionReads | None = None
        self._entries: dict[str, int] | None = None
        self._values: OwnValues | None = None
        self._ended_by: tuple[type[QuireError], str] | None = None  # not its user
        self._shall_end: tuple[type[QuireError], str] | None = None  # as soon as it can
        self._waits_for: Queue | EndCallback | None = None
        self.change: TransactionChange | None = None  # what the journal was asked to hold
        self.prepared: PreparedTransaction | None = None  # what the store holds for it then
        self._state = _OPEN
        registry.open[transaction_id] = ref(self)

    def __del__(self) -> None:
        try:
            state = self._state
        except AttributeError:  # it was interrupted as it was made
            return
        if state is _OPEN:
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
        """Return True if the commit is durable, whatever was raised since."""
        return self.change is not None and self.change.applied and self.prepared is None

    @property
    def is_prepared(self) -> bool:
        """Return True if it was prepared, durably, whatever became of it since."""
        return self.prepared is not None and self.prepared.stands

    @property
    def state(self) -> str:
        """ "open", "prepared", "committed", "rolled back" or "in doubt"."""
        return self._state.value

    @property
    def large(self) -> bool:
        """Return True if its messages go to files as they arrive."""
        return self._large if self._writes is None else self._writes.large

    # Committing

    def commit(self, timeout: Duration | None = None) -> None:
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
                except BaseException as error:
                    if self.stands:
                        self._settle()
                    else:
                        self._refused(error)
                    raise
                self._settle()
        finally:
            del inside[thread]
            end(thread)

    def _commit(self, xid: str | None = None) -> None:
        """Write the record of its commit; with an xid the one that prepares it."""
        plan, reads = CommitPlan(), self._reads
        if self._values is not None:
            self._values.check()
        if reads is not None:
            plan.taken = reads.to_read()
            if reads.extra is not None:
                self._plan_extra(plan, reads, reads.extra)
        writes = self._writes
        if writes is not None:
            plan.written, plan.is_light = writes.by_queue.values(), writes.is_light
        if xid is not None:
            plan.xid, plan.preparing, plan.is_light = xid, self, False
            if writes is not None:
                writes.fill()
        if writes is not None and not plan.is_light:
            writes.complete()
        if self._entries is not None or (writes is not None and writes.requests is not None):
            plan.entries = self._entry_records()
        has_changes = bool(
            plan.written or plan.taken or plan.skipped or plan.entries or plan.seeks or plan.xid
        )
        # One that has only read states commits nothing by that.
        if self._values is not None and (has_changes or self._values.sets):
            has_changes, plan.values = True, self._values.section(xid)
        if has_changes:
            self._context.committer.commit(self, plan)
        # It writes nothing; but a durable one comes behind what is durable (promise 14).
        elif self.durable and self._context.journal.unsynced_bytes:
            self._context.sequencer.sync()

    def _plan_extra(self, plan: CommitPlan, reads: TransactionReads, extra: ExtraReads) -> None:
        if extra.may_report and not self.is_own:  # who has asked is told by the same commit (AR1)
            (self._writes or self._begin_writes()).owe(extra.reports(reads.got()))
        plan.skipped = extra.skipped_reads()
        if extra.seeks:
            plan.seeks = extra.seek_section()

    def _entry_records(self) -> list[LedgerEntry]:
        entries = [LedgerEntry(key, version) for key, version in (self._entries or {}).items()]
        if self._writes is not None and self._writes.requests is not None:
            if self._writes.requests.found and self.durable:
                self._context.sequencer.sync()  # that may have been committed without
            entries += self._writes.requests.entries()
        return entries

    def _settle(self) -> None:
        """The commit stands."""
        change, writes, reads = self.change, self._writes, self._reads
        if writes is not None and change is not None:
            if (memory := change.memory) is not None:
                writes.give_ids_of_both(change.first_id, memory.first_id)
            else:
                writes.give_ids(change.first_id)
        if (
            (writes is None or writes.is_light)
            and (reads is None or (reads.spread is None and reads.extra is None))
            and self._values is None
            and self._waits_for is None
        ):  # as most are: there is nothing else to let go of
            if reads is not None:
                reads.taken = []
            self._context.registry.open.pop(self.id, None)
            self._state = _COMMITTED
        else:
            self._end(_COMMITTED)

    # Rolling back

    def rollback(self) -> None:
        writes = self._writes
        if self._state is _OPEN and self._reads is None and (writes is None or writes.is_light):
            self._drop()
            return
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

    def _drop(self) -> None:
        """Roll back what has put a few messages: in memory alone, so it is done again (PU4)."""
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        probe(None, PUT_ROOM)
        inside[thread] = None
        try:
            with self._lock:
                if self._state is _OPEN:
                    self._undo()
        except BaseException:  # an interrupt
            defer_signals(self.give_up)
            raise
        finally:
            del inside[thread]

    def give_up(self) -> None:
        """Roll back, but not what is prepared: that waits for a decision."""
        with self._lock:
            if self._state is _OPEN:
                self._undo()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            as_call(self.give_up)
        elif self._state is _OPEN or (self._state is _ROLLED_BACK and self._ended_by is not None):
            try:
                self.commit()
            finally:
                if self._state is _OPEN:
                    self.rollback()

    def _refused(self, error: BaseException) -> None:
        """It is neither committed nor prepared."""
        if isinstance(error, (AlreadyCommitted, StateConflict)):
            self._undo()
        elif isinstance(error, StoreFailed) or self._context.committer.failed:
            self._end(TransactionState.IN_DOUBT)
        elif self._writes is not None and self._writes.broken:
            self._lose()

    def _lose(self) -> None:
        """Part of what was put is lost, perhaps while another thread made room in the buffer."""
        text = "part of what was put was lost on its way to the disk; it has been rolled back"
        self._ended_by = TransactionClosed, f"{text}: begin a new transaction"
        self._undo()

    def _undo(self) -> None:
        """May be called again after an interrupt, as all that it calls."""
        change, reads, writes = self.change, self._reads, self._writes
        if change is not None and change.applied:  # an interrupt came before the commit's end
            self._settle()
            return
        if reads is not None:
            reads.give_back(None if self._ended_by is None else reason_of_end(*self._ended_by))
        if writes is not None:
            writes.drop()
        self._end(_ROLLED_BACK)

    def _end(self, state: TransactionState) -> None:
        self._let_go()
        queue = self._waits_for
        if queue is None:
            self._state = state
        else:  # a get of this transaction waits, in another thread or in none
            with queue.lock:
                queue.wake()
                self._state = state

    def _let_go(self) -> None:
        """Forget what it had put and got: that is the store's, or it is gone."""
        writes, reads = self._writes, self._reads
        if writes is not None and not writes.is_light:
            writes.close()
        if reads is not None:
            reads.let_go()
        if self._values is not None:
            self._values.end()
        self._context.registry.open.pop(self.id, None)

    # What others do to it, and are told of it (see `registry`)

    def has(self, subscription: Subscription, position: int) -> bool:
        """Return True if it has got the message, or keeps it."""
        return (reads := self._reads) is not None and reads.has(subscription, position)

    def keeps(self, subscription: Subscription, position: int) -> bool:
        """Return True if it keeps the message from others, and has not got it."""
        extra = None if self._reads is None else self._reads.extra
        return extra is not None and extra.kept.keeps(subscription, position)

    def takes_as(self, taker: object) -> bool:
        """Return True if this is what the transaction takes messages as."""
        return taker is not None and self._reads is taker

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """Roll back for another reason than its user's, who is told so; whether that was done.

        Without `wait` not where somebody is using it; a wait for room is ended all the same.
        """
        queue = self._waits_for
        if wait or queue is not None:  # also a commit that waits for space, with the lock
            self._shall_end = kind, text
            queue = self._waits_for  # after that: who begins to wait now will see it
            if queue is not None:
                with queue.lock:
                    queue.wake_all()
        if not self._lock.acquire(blocking=wait):
            return False
        try:
            if self._state is _OPEN:
                self._ended_by = kind, text
                self._undo()
            return self._ended_by == (kind, text)
        finally:
            self._lock.release()

    @call
    def when_ended(self, callback: Callable[[], None]) -> bool:
        """Call this when others end it, as a get of it waits without a thread. False: it has ended.

        It is called by who ends it, under its lock: it must not wait, nor use the store.
        """
        with self._lock:
            if self._state is not _OPEN:
                return False
            self._waits_for = EndCallback(callback)
            return True

    def forget_end(self) -> None:
        """Do not call it any more."""
        self._waits_for = None

    def own_taker(self, source: str) -> TransactionReads | None:
        """Return its reads, if it may get what others may not of the source; else None."""
        reads, state = self._reads, self._context.state
        if reads is None or not (reads.taken or reads.spread or reads.extra):
            return None
        if is_pattern(source):
            return reads if self._context.turns.may_have_own(source) else None
        _, subscription = state.source(source)
        is_own = subscription.may_have_own() and reads.held_of(subscription) > 0
        return reads if is_own else None

    def abandon(self, reason: str) -> None:
        """In the child of a fork: no lock is taken, nothing is undone, it cannot be used.

        Also a prepared one whose store is closed.
        """
        if self._state is not TransactionState.PREPARED:
            self._state = _ROLLED_BACK
        self._ended_by = StoreClosed, reason
        self._lock = _new_lock()

    def leave(self, buffer: WriteBuffer | None) -> bool:
        """Another transaction needs room in the write buffer, or the time there is over.

        False when nothing left it, as when somebody is using this transaction right now.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            writes = self._writes
            if self._state is not _OPEN or writes is None:
                return False
            return self._changing(writes, partial(writes.leave, buffer))
        finally:
            self._lock.release()

    def info(self) -> TransactionInfo:
        """Return the store's report on an open transaction."""
        writes, reads = self._writes, self._reads
        parts = [] if writes is None else list(writes.by_queue.values())
        spilled = sum(part.charge for written in parts for part in written.spilled())
        total = sum(written.charge for written in parts)
        buffered = 0 if writes is None else writes.buffered_bytes
        buffered += sum(written.staying_bytes for written in parts)
        env = self._context.env
        now = env.monotonic()
        age, left = now - self.opened, self.deadline - now
        self.opened_us = self.opened_us or env.now_us() - round(age * 1e6)
        return TransactionInfo(
            id=self.id,
            state=self.state,
            owner=owner_name(self.owner),
            opened_us=self.opened_us,
            age_seconds=age,
            seconds_left=None if left == math.inf else max(0.0, left),
            large=self.large,
            bytes=total,
            messages=sum(written.count for written in parts),
            buffered_bytes=buffered,
            spilled_bytes=spilled,
            file_bytes=max(0, total - buffered - spilled),
            queues=tuple(sorted(written.queue.name for written in parts)),
            in_flight=0 if reads is None else reads.messages,
            sources=() if reads is None else reads.sources,
        )

    # Two phases

    @call
    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        check_xid(xid)
        check_preparable(self.durable)
        seconds = self._seconds(timeout)
        with self._lock:
            self._check_open()
            extra = None if self._reads is None else self._reads.extra
            if extra is not None and extra.is_bound:
                raise TransactionError(
                    "a transaction that moves a subscription (seek), keeps a message from others "
                    "(hold), or looks through a queue (browse), cannot be prepared: commit it"
                )
            action = partial(self._commit, xid)
            try:
                try:
                    action()
                except QueueFull as full:
                    self._with_room(full, action, seconds)
            except BaseException as error:
                if not self.is_prepared:
                    self._refused(error)
                raise
            finally:
                if self.is_prepared:
                    if self._state is _OPEN:  # it failed before it was told
                        self._state = TransactionState.PREPARED
                    self._let_go()  # and it may be decided already: nothing of it is here any more

    def turn_prepared(self) -> None:
        """The PREPARE record is durable. Called in the journal's order, without this one's lock."""
        self._state = TransactionState.PREPARED

    def turn_decided(self, first_id: int | None) -> None:
        """Somebody has decided it; called likewise."""
        if first_id is not None and self._writes is not None:
            self._writes.give_ids(first_id)
        self._state = _ROLLED_BACK if first_id is None else _COMMITTED

    def _decide(self, *, commit: bool) -> None:
        """The transaction's lock is held."""
        if self._ended_by is not None:
            self._check_open()
        assert self.prepared is not None
        try:
            self._context.committer.decide(
                self.prepared.record.xid, commit=commit, expected=self.prepared
            )
        except TransactionNotFound:
            if commit:  # somebody else was faster
                self._check_open()

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

    def _is_open(self) -> bool:
        return self._state is _OPEN

    def _begin_writes(self) -> TransactionWrites:
        self._writes = writes = TransactionWrites(self._context, self.id, self._large)
        return writes

    def _reading(self) -> TransactionReads:
        reads = self._reads
        if reads is None:
            reads = self._reads = TransactionReads(self._context)
        elif reads.pending is not None:
            reads.step_back()
        return reads

    def _changing(self, writes: TransactionWrites, action: Callable[[], R]) -> R:
        """Change what it has put; where part of that is lost by it, it is rolled back (PU3)."""
        try:
            return action()
        finally:
            if writes.lost and self._state is _OPEN:
                self._lose()

    def _with_room(self, full: QueueFull, action: Callable[[], R], seconds: float) -> R:
        return with_room(self._context, full, action, seconds, self._wait_for_room)

    def _wait_for_room(self, queue: Queue, full: QueueFull, seconds: float) -> None:
        """With the lock, which the calls of this thread may take meanwhile."""
        self._waits_for = queue
        own = self._lock
        try:
            self._lock = cast("Lock", OwnLock(own, get_ident()))
            if not queue.wait_for_room(full, seconds, lambda: self._shall_end is None):
                raise full
        finally:
            self._lock = own
            self._waits_for = None
        if self._shall_end is not None:
            self._ended_by = self._shall_end
            self._undo()
            self._check_open()

    def _put_with_room(self, full: QueueFull, action: Callable[[], R], timeout: float | None) -> R:
        """A put found no room: it waits where its queue says so."""
        own = self.put_timeout if timeout is None else timeout
        seconds = patience(self._context, full, self._seconds(own))
        return defer_signals(self._with_room, full, action, seconds)

    def _seconds(self, timeout: Duration | None) -> float:
        """How long to wait for room: as is said, or as the store's options say."""
        if timeout is None:
            timeout = 0.0 if self.is_own else self._context.options.commit_timeout
        return check_timeout(timeout)

    def schema_of(self, queue: str) -> str | None:
        """The schema of a typed queue, in words."""
        return self._context.state.queue(queue).schema

    # Writing

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        timeout: Duration | None = None,
        request_id: str | None = None,
        **options: Unpack[MessageOptions],
    ) -> MessageId:
        if type(payload) is not bytes:
            return self._put_other(queue, payload, timeout, request_id, options)
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES
        if charge > _MOST_CHARGE:
            check_payload(payload)
        checked = None
        if timeout is not None:
            timeout = put_patience(self._context, queue, timeout)
        if options:
            checked = self._checked(options)
            if checked is not None:
                charge += checked.extra_bytes
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        probe(None, PUT_ROOM)
        inside[thread] = None
        try:
            with self._lock:
                if self._state is not _OPEN:
                    self._check_open()
                writes = self._writes or self._begin_writes()
                try:
                    if request_id is None:
                        return writes.put_message(queue, payload, checked, charge)
                    check_request_id(request_id)
                    put = partial(writes.put_message, queue, payload, checked, charge)
                    return writes.put_once(request_id, queue, put)
                except QueueFull as full:
                    put = partial(writes.put_message, queue, payload, checked, charge)
                    again = partial(writes.put_once, request_id, queue, put)
                    return self._put_with_room(full, again, timeout)
                finally:
                    if writes.lost and self._state is _OPEN:
                        self._lose()
        finally:
            del inside[thread]

    def _put_other(
        self,
        queue: str,
        row: object,
        timeout: Duration | None,
        request_id: str | None,
        options: MessageOptions,
    ) -> MessageId:
        """A row of a typed queue, a value of one with a codec, or what is to be made bytes."""
        row, options = encoded_value(queue, self._context.state.codec_of(queue), row, options)
        if not row_input.is_row(row):
            payload = check_payload(row)
            return self.put(queue, payload, timeout=timeout, request_id=request_id, **options)
        seconds = None if timeout is None else put_patience(self._context, queue, timeout)
        known, checked = check_request_id(request_id), self._checked(options)
        return self.putting(
            lambda writes: writes.put_once(
                known, queue, partial(writes.put_row, queue, row, checked)
            ),
            seconds,
        )

    def put_moved(self, queue: str, content: object, fields: Mapping[str, Any]) -> MessageId:
        """Put a message that is there already once more: its header is taken as it is (OB1)."""
        checked = self._checked(fields, is_moved=True)
        if row_input.is_row(content):
            return self.putting(
                lambda writes: writes.put_row(queue, content, checked, is_moved=True)
            )
        payload = check_payload(content)
        charge = len(payload) + MESSAGE_OVERHEAD_BYTES + (checked.extra_bytes if checked else 0)
        return self.putting(
            lambda writes: writes.put_message(queue, payload, checked, charge, is_moved=True)
        )

    def put_moved_many(self, queue: str, payloads: pa.RecordBatch) -> MessageIds:
        """Put many messages that are there already once more, with the headers that they have."""
        return self.putting(lambda writes: writes.put_batch(queue, payloads, is_moved=True))

    def _checked(self, fields: Mapping[str, Any], *, is_moved: bool = False) -> Fields | None:
        now_us = self._context.env.now_us
        return Fields.of(**with_moments(fields, now_us, is_moved=is_moved)) if fields else None

    def put_many(
        self,
        queue: str,
        payloads: Any,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> MessageIds:
        seconds = None if timeout is None else put_patience(self._context, queue, timeout)
        if isinstance(payloads, Iterable) and not isinstance(payloads, Sized):
            payloads = list(payloads)  # the program's code; and it may have to be done again
        if request_ids is not None:
            known = check_request_ids(request_ids, count_of(payloads))
            return self.putting(
                lambda writes: writes.own_requests().many_once(
                    queue, payloads, known, writes.put_batch
                ),
                seconds,
            )
        return self.putting(lambda writes: writes.put_batch(queue, payloads), seconds)

    def put_moved_block(self, queue: str, data: Bytes) -> MessageIds:
        """Put the messages of an encoded block once more: their headers are taken as they are."""
        return self.putting(lambda writes: writes.put_block(queue, data, is_moved=True))

    def begin_stream(
        self,
        queue: str,
        fields: Mapping[str, Any],
        size: int | None,
        timeout: float | None,
        *,
        is_moved: bool = False,
    ) -> StreamPut:
        """Begin to put one message chunk by chunk (see `TransactionCalls.put_writer`)."""
        checked = self._checked(fields, is_moved=is_moved)
        self._check_open()
        seconds = None if timeout is None else put_patience(self._context, queue, timeout)
        return streaming.StreamPut(self._context, self, queue, checked, is_moved, size, seconds)

    @call
    def if_open(self, action: Callable[[TransactionWrites], None]) -> None:
        """Do something with what it has put, if it is open."""
        with self._lock:
            if self._state is _OPEN and self._writes is not None:
                self._changing(self._writes, partial(action, self._writes))

    @call
    def putting(self, action: Callable[[TransactionWrites], R], timeout: float | None = None) -> R:
        """Put something. Raises what a put raises, with the transaction as it was."""
        with self._lock:
            self._check_open()
            writes = self._writes or self._begin_writes()

            def put() -> R:
                try:
                    return action(writes)
                except QueueFull as full:
                    return self._put_with_room(full, partial(action, writes), timeout)

            return self._changing(writes, put)

    # Reading

    def get(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
    ) -> Message | None:
        try:
            chooses = id is not None or where is not None or not timeout == 0.0  # noqa: SIM201
        except ValueError:  # of an array, which has no truth: "not" asks for it here
            chooses = True
        if chooses:
            return self._take_one(source, timeout, lookup.where_of(id, where))
        thread = get_ident()
        if thread in inside:
            raise reentrant()
        probe(None, PUT_ROOM)
        inside[thread] = None
        reads = self._reads
        try:
            with self._lock:
                if self._state is not _OPEN:
                    self._check_open()
                if reads is None:
                    reads = self._reads = TransactionReads(self._context)
                message = reads.next_message(source)
            if message is None and self._context.registry.reap():  # what it gives back may be next
                with self._lock:
                    self._check_open()
                    message = reads.next_message(source)
        except InvalidArgument:
            if not is_pattern(source):
                raise
            message = IN_WHOLE
        finally:
            del inside[thread]
        if message is IN_WHOLE or reads is None:
            return self._get_whole(source)
        reads.pending = None  # the last step (GT1)
        return message

    @_giving
    def _get_whole(self, source: str) -> Message | None:
        return self._take(source, 1, 0.0, None, TransactionReads.deliver_one)

    @_giving
    def _take_one(self, source: str, timeout: Duration | None, where: object) -> Message | None:
        return self._take(source, 1, timeout, where, TransactionReads.deliver_one)

    @_giving
    def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        found = self._take(source, max_messages, timeout, where, TransactionReads.deliver)
        if found:
            return found
        words = None if is_pattern(source) else self._context.state.source(source)[0].schema
        return delivered_messages.Messages(source.partition("/")[0], (), words)

    @_giving
    def get_delayed(
        self, source: str, message_id: int, *, to_change: bool = False
    ) -> Message | None:
        check_message_id(message_id)
        check_flag("to_change", to_change)
        asking, delivery = self._request(source), self._context.delivery
        try:
            position = position_search.position_of(delivery, asking.queue, message_id)
        except PositionLost:
            return None
        take = partial(delivery.take_scheduled, asking, position, to_change=to_change)
        return self._receive([asking], lambda _: take(), 0.0, TransactionReads.deliver_one)

    @_giving
    def remove(self, source: str, id: MessageKey, timeout: Duration | None = 0.0) -> bool:
        asking, choice = self._looking(source, lookup.check_key_of(id))
        take = partial(self._choose, asking, choice, 1, purpose=Purpose.REMOVE)
        self._receive([asking], take, timeout, TransactionReads.remove)
        return bool(asking.runs)

    def read_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
        hold: bool = False,
    ) -> Messages:
        if check_flag("hold", hold):
            return self._hold(source, max_messages, timeout, where)
        return self._read(source, max_messages, timeout, where)

    @look
    def _read(self, source: str, limit: int, timeout: Duration | None, where: object) -> Messages:
        queue, found = self._find(source, limit, timeout, where)
        return delivered_messages.Messages(queue.name, [each.part for each in found], queue.schema)

    @call
    def _hold(self, source: str, limit: int, timeout: Duration | None, where: object) -> Messages:
        """Take them, to give them back at the end."""
        check_max_messages(limit)
        asking, choice = self._looking(source, where)
        take = partial(self._choose, asking, choice, limit, purpose=Purpose.KEEP)
        parts = self._receive([asking], take, timeout, TransactionReads.hold) or ()
        return delivered_messages.Messages(asking.queue.name, parts, asking.queue.schema)

    @look
    def describe(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> list[Description]:
        queue, found = self._find(source, max_messages, timeout, where)
        return [described(queue.name, each) for each in found]

    def browse(
        self,
        source: str,
        max_messages: int = 1000,
        *,
        after: Seen | None = None,
        where: Where | None = None,
    ) -> Messages:
        most, last_seen = check_max_messages(max_messages), lookup.check_seen(after)
        browsed = self._context.state.browsed(source)
        choice = choices.choice_of(browsed[0], where)
        return self.getting(lambda reads: reads.further().browse(browsed, choice, most, last_seen))

    @look
    def count(
        self, source: str, timeout: Duration | None = 0.0, *, where: Where | None = None
    ) -> int:
        asking, choice = self._looking(source, where)
        look = partial(self._context.chooser.count, asking, choice)
        return self._waiting(asking.queue, timeout, look)

    def _find(
        self, source: str, limit: int, timeout: Duration | None, where: object
    ) -> tuple[Queue, list[Candidate]]:
        """Committed messages, for which it may wait; nothing is taken."""
        check_max_messages(limit)
        asking, choice = self._looking(source, where)
        look = partial(self._context.chooser.find, asking, choice, limit)
        return asking.queue, self._waiting(asking.queue, timeout, look)

    def _take(
        self,
        source: str,
        limit: int,
        timeout: Duration | None,
        where: object,
        receive: Callable[[TransactionReads, DeliveryRequest], R],
    ) -> R | None:
        """Messages of a queue, or of the queues that a pattern names; None: there are none."""
        check_max_messages(limit)
        reads, context = self._begin_reading(), self._context
        requests: list[DeliveryRequest] = []

        def request(queue: Queue, subscription: Subscription) -> DeliveryRequest:
            requests[:] = [DeliveryRequest(queue, subscription, reads, self._is_open)]
            return requests[0]

        take: Callable[[float], object]
        try:
            queue, subscription = context.state.source(source)
        except InvalidArgument:
            if where is not None or not is_pattern(source):
                raise
            take = partial(context.turns.take, source, request, self._is_open, limit)
        else:
            asking = request(queue, subscription)
            take = partial(context.delivery.take, asking, limit)
            if where is not None:
                take = partial(self._choose, asking, choices.choice_of(queue, where), limit)
        return self._receive(requests, take, timeout, receive)

    def _receive(
        self,
        requests: Sequence[DeliveryRequest],
        take: Callable[[float], object],
        timeout: Duration | None,
        receive: Callable[[TransactionReads, DeliveryRequest], R],
    ) -> R | None:
        """Take what is asked for, without the lock as that may wait, and receive it under it.

        None: nothing was taken. What is raised leaves it as it was.
        """
        try:
            if not self._waiting(requests[0].queue if requests else None, timeout, take):
                return None
            with self._lock:
                self._check_open()
                reads = self._reading()
                reads.pending = requests[0]
                return receive(reads, requests[0])
        except BaseException:
            with self._lock:
                reads = self._reading()
                for asking in requests:
                    reads.step_back(asking)
            raise

    def _choose(
        self, request: DeliveryRequest, choice: Choice, limit: int, seconds: float,
        *, purpose: Purpose = Purpose.DELIVER,
    ) -> DeliveryRuns:  # fmt: skip
        """Take messages by what they are. A circle of those who wait ends this one."""
        asking = Asking(request, choice, self.id, self._reading().further().kept, limit, purpose)
        try:
            return self._context.chooser.take(asking, seconds)
        except Deadlock as error:
            self.end_by(Deadlock, str(error), wait=True)
            raise

    def _begin_reading(self) -> TransactionReads:
        with self._lock:
            self._check_open()
            return self._reading()

    def _request(self, source: str) -> DeliveryRequest:
        reads = self._begin_reading()
        return DeliveryRequest(*self._context.state.source(source), reads, self._is_open)

    def _looking(self, source: str, where: object) -> tuple[DeliveryRequest, Choice]:
        asking = self._request(source)
        return asking, choices.choice_of(asking.queue, where)

    def _waiting(
        self, queue: Queue | None, timeout: Duration | None, action: Callable[[float], R]
    ) -> R:
        """Do what may wait for others, without the lock; raises why this was ended meanwhile."""
        seconds = check_wait(timeout)
        if seconds:
            self._waits_for = queue
        try:
            found = action(seconds)
        finally:
            self._waits_for = None
        if not found:
            self._check_open()
        return found

    def unget(self) -> None:
        self.getting(TransactionReads.unget)

    def reject(
        self, message: Message, reason: str = "", delay: Duration | Retry | None = None
    ) -> None:
        check_message(message)
        check_reason(reason)
        delay = check_delay(delay)
        queue, subscription = self.getting(TransactionReads.reject, message, reason, delay)
        if subscription.spent:
            self._context.after_reject(queue, subscription)

    def mark_moved(self, messages: Iterable[Message]) -> None:
        self.getting(TransactionReads.mark_moved, check_messages(messages))

    def unmark_moved(self) -> None:
        self.getting(lambda reads: reads.further().moved.unmark())

    @call
    def getting(
        self,
        action: Callable[Concatenate[TransactionReads, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Do something with what it has got."""
        with self._lock:
            self._check_open()
            return action(self._reading(), *args, **kwargs)

    @call
    def seek(self, source: str, to: Start, timeout: Duration = 0.0) -> None:
        start, seconds = start_places.check_start(to), check_timeout(timeout)
        asking, delivery = self._request(source), self._context.delivery
        position, is_strict = position_search.kept_place(delivery, asking.queue, start)
        own = self._reading().held_of(asking.subscription)
        seek = partial(TransactionReads.seek, position=position, is_strict=is_strict)
        self._receive([asking], partial(delivery.hold, asking, own), seconds, seek)

    @call
    def extend(self, seconds: Duration) -> None:
        more = check_seconds(seconds)
        with self._lock:
            self._check_open()
            self.deadline = max(self.deadline, self._context.env.monotonic() + more)

    # Ledger and states

    @call
    def enter(self, key: str, version: int) -> None:
        check_key(key)
        check_version(version)
        with self._lock:
            self._check_open()
            if self._entries is None:
                self._entries = {}
            self._entries[key] = version

    @call
    def get_value(self, name: str, key: str) -> bytes | None:
        check_state_name(name)
        check_state_key(key)
        with self._lock:
            self._check_open()
            return self._own_values().get(name, key)

    @call
    def set_value(self, name: str, key: str, value: Bytes | None) -> None:
        check_state_name(name)
        check_state_key(key)
        checked = check_state_value(value)
        with self._lock:
            self._check_open()
            self._own_values().set(name, key, checked)

    def end_after(self, check: ReferenceType[Callable[[], object]]) -> None:
        self._own_values().checks.append(check)

    def _own_values(self) -> OwnValues:
        self._values = self._values or OwnValues.of(self._context.state, self._context.journal)
        return self._values


if TYPE_CHECKING:
    _embedded: type[Transaction] = EmbeddedTransaction
