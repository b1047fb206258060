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
- What it has got is in flight: hidden from others until it ends, read for good by its commit,
  available again at its place in the order by its rollback.
- An error raised by a put or a get leaves the transaction as it was before the call; but when
  a file of a large transaction could not be written (DiskFull), it is rolled back, and raises
  from then on, also at the end of its with block: that may have been another thread's doing.
  So it is when an interrupt (Ctrl-C) meets a put of its full form half way.
- An open transaction delays no commit and no put. `info` tells what it costs, which is bounded.
- Once it is prepared, what it holds is the store's: this object only decides.
"""

from __future__ import annotations

import math
import warnings
from _thread import get_ident
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, TypeVar, cast
from weakref import ref

from quire.arguments import check_preparable, check_timeout, check_xid
from quire.calls.documented import documented_by
from quire.calls.uninterrupted import (
    CALL_ROOM,
    PUT_ROOM,
    OwnLock,
    as_call,
    begin_short,
    call,
    end,
    held,
    inside,
    probe,
    reentrant,
)
from quire.engine.commits.commit_plan import CommitPlan
from quire.engine.commits.transaction_change import TransactionChange
from quire.engine.queues.prepared_transactions import PreparedTransaction
from quire.engine.queues.queue import Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import LedgerEntry, Read
from quire.env.interpreter import Lock
from quire.errors import (
    AlreadyCommitted,
    QueueFull,
    QuireError,
    StateConflict,
    StoreClosed,
    StoreFailed,
    TransactionClosed,
    TransactionError,
    TransactionNotFound,
)
from quire.interface.transaction import Transaction
from quire.moments import Duration
from quire.reports.info import TransactionInfo, TransactionState
from quire.writebuffer import WriteBuffer

from .context import Context
from .gets import Gets
from .own_values import OwnValues
from .puts import Puts
from .registry import owner_name, reason_of_end
from .waiting_for_room import patience, with_room

_OPEN: Final = TransactionState.OPEN
_COMMITTED: Final = TransactionState.COMMITTED
_ROLLED_BACK: Final = TransactionState.ROLLED_BACK
_new_lock = Lock
R = TypeVar("R")


@documented_by(Transaction)
class TransactionLife:
    """See the module. What a transaction does in between is its subclass's."""

    __slots__ = (
        "__weakref__", "_context", "_ended_by", "_entries", "_gets", "_large", "_lock", "_puts",
        "_shall_end", "_state", "_values", "_waits_for", "change", "deadline", "durable", "id",
        "opened", "opened_us", "owner", "prepared", "put_timeout",
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
        self.opened_us = 0  # once somebody has asked
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
        self.change: TransactionChange | None = None  # what the journal was asked to hold
        self.prepared: PreparedTransaction | None = None  # what the store holds for it then
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

    def _commit(self) -> None:
        puts, gets = self._puts, self._gets
        plan = CommitPlan()
        if gets is not None:
            plan.taken = gets.to_read()
            if gets.adds:
                plan.skipped, puts = self._add(gets)
        if puts is not None:
            plan.written, plan.is_light = puts.by_queue.values(), puts.is_light
            if not plan.is_light:
                puts.complete()
            if puts.requests is not None:
                if puts.requests.found and self.durable:
                    self._context.sequencer.sync()  # that may have been committed without
                plan.entries = self._entry_records()
        if self._entries is not None:
            plan.entries = self._entry_records()
        if gets is not None and gets.seeks:
            plan.seeks = gets.moves()
        has_changes = bool(plan.written or plan.taken or plan.skipped or plan.entries or plan.seeks)
        # One that has only read states commits nothing by that.
        if self._values is not None and (has_changes or self._values.sets):
            has_changes, plan.values = True, self._values.section()
        if has_changes:
            self._context.committer.commit(self, plan)
        # It writes nothing; but a durable one comes behind what is durable (promise 14).
        elif self.durable and self._context.journal.unsynced_bytes:
            self._context.sequencer.sync()

    def _add(self, gets: Gets) -> tuple[Sequence[Read], Puts | None]:
        """What it passes over; and what it has got asks for reports, which it puts (AR1)."""
        if gets.adds is not None and gets.adds.may_report:
            reports = gets.adds.reports(self._context.delivery, gets)
            self._puts = self._puts or Puts(self._context, self.id, self._large)
            self._puts.owe(reports)
        return gets.passed(), self._puts

    def _entry_records(self) -> list[LedgerEntry]:
        entries = [LedgerEntry(key, version) for key, version in (self._entries or {}).items()]
        if self._puts is not None and self._puts.requests is not None:
            entries += self._puts.requests.entries()
        return entries

    def _settle(self) -> None:
        """The commit stands."""
        change, puts, gets = self.change, self._puts, self._gets
        if puts is not None and change is not None:
            if (memory := change.memory) is not None:
                puts.give_ids_apart(change.first_id, memory.first_id)
            else:
                puts.give_ids(change.first_id)
        if (
            (puts is None or puts.is_light)
            and (gets is None or not gets.has_more)
            and self._values is None
            and self._waits_for is None
        ):  # as most are: there is nothing else to let go of
            self._state = _COMMITTED
            if gets is not None:
                gets.taken, gets.spread = [], None
            self._context.registry.open.pop(self.id, None)
        else:
            self._end(_COMMITTED)

    # Rolling back

    def rollback(self) -> None:
        puts = self._puts
        if self._state is _OPEN and self._gets is None and (puts is None or puts.is_light):
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
            held(self.give_up)
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
            except BaseException:
                self.rollback()
                raise

    def _refused(self, error: BaseException) -> None:
        """It is neither committed nor prepared."""
        if isinstance(error, (AlreadyCommitted, StateConflict)):
            self._undo()
        elif isinstance(error, StoreFailed) or self._context.committer.failed:
            self._end(TransactionState.IN_DOUBT)
        elif self._puts is not None and self._puts.broken:
            self._lose()

    def _lose(self) -> None:
        """Part of what was put is lost, perhaps while another thread made room in the buffer."""
        text = "part of what was put was lost on its way to the disk; it has been rolled back"
        self._ended_by = TransactionClosed, f"{text}: begin a new transaction"
        self._undo()

    def _undo(self) -> None:
        change, gets, puts = self.change, self._gets, self._puts
        if change is not None and change.applied:  # an interrupt came before the commit's end
            self._settle()
            return
        if gets is not None:
            gets.give_back(None if self._ended_by is None else reason_of_end(*self._ended_by))
        if puts is not None:
            puts.drop()
        self._end(_ROLLED_BACK)

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
            gets.taken, gets.spread = [], None
            if gets.has_more:
                gets.let_go()
        self._context.registry.open.pop(self.id, None)
        if self._values is not None:
            self._values.end()
        queue = self._waits_for
        if queue is not None:  # another thread is in a get of this transaction
            with queue.lock:
                queue.wake()

    # What others do to it, and are told of it (see `registry`)

    def has(self, subscription: Subscription, position: int) -> bool:
        """Whether it has got the message, or keeps it."""
        return (gets := self._gets) is not None and gets.has(subscription, position)

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """Roll back for another reason than its user's, who is told so; whether that was done.

        Without `wait` not where somebody is using it; a wait for room is ended all the same.
        """
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

    def _demand_end(self, kind: type[QuireError], text: str) -> None:
        """Of a commit that waits for space, as it holds the lock meanwhile."""
        self._shall_end = kind, text
        queue = self._waits_for  # looked at after that: who begins to wait now will see it
        if queue is not None:
            with queue.lock:
                queue.wake_all()

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

    def info(self) -> TransactionInfo:
        """What the store tells of an open transaction."""
        puts, gets = self._puts, self._gets
        parts = [] if puts is None else list(puts.by_queue.values())
        spilled = sum(part.charge for written in parts for part in written.spilled())
        total = sum(written.charge for written in parts)
        buffered = 0 if puts is None else puts.buffered_bytes
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
            in_flight=0 if gets is None else gets.messages,
            sources=() if gets is None else gets.sources,
        )

    # Two phases

    @call
    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        check_xid(xid)
        check_preparable(self.durable)
        seconds = self._seconds(timeout)
        with self._lock:
            self._check_open()
            if self._gets is not None and self._gets.has_more:
                raise TransactionError(
                    "a transaction that moves a subscription (seek), keeps a message from others "
                    "(hold), or looks through a queue (browse), cannot be prepared: commit it"
                )
            action = partial(self._prepare, xid)
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

    def _prepare(self, xid: str) -> None:
        gets = self._gets
        taken = () if gets is None else gets.to_read()
        skipped, puts = ((), self._puts) if gets is None else self._add(gets)
        written = () if puts is None else puts.by_queue.values()
        if puts is not None:
            puts.fill()
            puts.complete()
        plan = CommitPlan(written, False, taken, skipped, self._entry_records())
        plan.values = None if self._values is None else self._values.section(xid)
        plan.xid, plan.preparing = xid, self
        self._context.committer.commit(self, plan)

    def turn_prepared(self) -> None:
        """The PREPARE record is durable. Called in the journal's order, without this one's lock."""
        self._state = TransactionState.PREPARED

    def turn_decided(self, first_id: int | None) -> None:
        """Somebody has decided it; called likewise."""
        if first_id is not None and self._puts is not None:
            self._puts.give_ids(first_id)
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
        asked = self.put_timeout if timeout is None else timeout
        seconds = patience(self._context, full, self._seconds(asked))
        return held(self._with_room, full, action, seconds)

    def _seconds(self, timeout: Duration | None) -> float:
        """How long to wait for room: as is said, or as the store's options say."""
        return check_timeout(self._context.options.commit_timeout if timeout is None else timeout)
