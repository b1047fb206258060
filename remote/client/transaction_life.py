"""How a transaction in a store that another process owns begins and ends.

| state | how |
|---|---|
| open | from the beginning |
| prepared | `prepare` returned: it belongs to the owner, the connection's end does nothing to it |
| committed | `commit` returned |
| rolled back | by `rollback`, a failed commit, its timeout, `abort`, or loss of the connection |
| in doubt | the owner was lost during the commit (OutcomeUnknown), or its disk failed |

A commit or prepare that raised for a reason that can go away (QueueFull, DiskFull) leaves it open.

The action for a request that is lost is the policy's of its store object (`FailOver`), by the table
of `request_outcomes`; what is to be looked up is looked up here.

- ET1: an open transaction is never moved to another owner: what it has got was given back, and may
  be in other hands. A prepared one is every owner's.
- ET2: a commit counts as done only if the ledger holds all of its entries now and held none of them
  before it was sent, which is looked up then. Two that commit the same entries at the same moment
  are taken for one.
- A prepare counts as done only if its xid is listed, prepared since it was sent.
- Each call after the loss of a transaction raises that error, the end of its `with` block too.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar
from weakref import ReferenceType, WeakValueDictionary

from quire.arguments import (
    Bytes,
    check_preparable,
    check_timeout,
    check_xid,
)
from quire.calls.call_table import Makes
from quire.calls.documented import documented_by
from quire.calls.signal_safety import OwnLock, allow_reentry, call
from quire.errors import (
    AlreadyCommitted,
    ConnectionLost,
    InvalidArgument,
    OutcomeUnknown,
    QuireError,
    StoreClosed,
    StoreFailed,
    TransactionAborted,
    TransactionClosed,
    TransactionNotFound,
    TransactionTimeout,
)
from quire.interface.integration import Integration
from quire.interface.namespaces import Prepared
from quire.interface.transaction import Transaction
from quire.messages.payload_reader import ReadChunk
from quire.moments import Duration
from quire.remote.limits import ROLLBACK_SECONDS
from quire.remote.wire.protocol import (
    COMMIT,
    COMMIT_FRAME,
    COMMITTED,
    HEAD,
    RESULT,
    ROLLBACK,
    STEP,
    TELL,
    Decision,
    Frame,
    Header,
    decode_call,
    encode_call,
    encode_wait,
    field,
)
from quire.reports.info import PreparedInfo, QueueInfo, TransactionState

from .channel import Channel, StreamEnded
from .connection import OwnerConnection
from .deciding import LISTED, Decided, decide
from .fail_over import NOBODY
from .put_buffer import PutBuffer
from .request_outcomes import UNANSWERED, Request, RequestAction, RequestProgress

# Looking a member up in its class takes as long as a call.
_OPEN: Final = TransactionState.OPEN
_PREPARED: Final = TransactionState.PREPARED
_COMMITTED: Final = TransactionState.COMMITTED
_IN_DOUBT: Final = TransactionState.IN_DOUBT
_ROLLED_BACK: Final = TransactionState.ROLLED_BACK

_FROM_OUTSIDE: Final = TransactionTimeout, TransactionAborted
_LOST: Final = ConnectionLost, StoreClosed
_LOOKS: Final = RequestAction.LOOK_UP, RequestAction.LOOK_FOR

_AGAIN: Final = (
    "the owner of the store has ended, and with it this transaction: nothing of it took effect; "
    "begin it again with store.transaction()"
)

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


# A request that ends a transaction at its owner; for OutcomeUnknown its name, and how its outcome
# is found out.
Ending = tuple[Request, str, str]

_WITHOUT_ENTRIES: Final[Ending] = (Request.COMMIT, "a commit", "whether it took effect")
_WITH_ENTRIES: Final[Ending] = (Request.COMMIT_WITH_ENTRIES, *_WITHOUT_ENTRIES[1:])


class TransactionSession(Makes, Protocol):
    """The session with the owner where the transaction is open, as far as that is concerned."""

    @property
    def connection(self) -> OwnerConnection:
        """To its owner."""

    @property
    def own_prepared(self) -> WeakValueDictionary[int, TransactionLife]:
        """Those of this object that are prepared, by the number that the owner gave them."""

    @property
    def read_chunk(self) -> ReadChunk:
        """Reads a part of a streamed message's payload."""

    @property
    def put_priorities(self) -> Mapping[str, int]:
        """The priorities that queues grant to puts without one, as of the latest look at them."""

    def own_name(self, name: str) -> str:
        """Return the own name of a queue, by its name or an alias. Raises QueueNotFound."""

    def own_names(self, names: Iterable[str]) -> dict[str, str]:
        """Many queues, by the names given."""

    def queue(self, name: str) -> QueueInfo:
        """As `Store.queue`."""

    def schema_of(self, name: str) -> str | None:
        """Return the schema of the queue of this name, no alias, as of the latest look at it."""

    def codec_of(self, name: str) -> str | None:
        """Return the codec of the queue of this name, or alias, for a value that is no bytes."""

    def check_waits(self, name: str, seconds: float) -> None:
        """Raises InvalidArgument where the queue of this name, no alias, has no put wait."""

    def forget_queues(self) -> None:
        """Forget what is known of queues, as it may have changed."""


class Recovery(Protocol):
    """A store object that goes on with the next owner, as far as its transactions need that."""

    def action_for(self, request: Request, session: Any, error: QuireError) -> RequestAction:
        """Return the action for a request that was lost with this error, once it can be done."""

    @property
    def prepared(self) -> Prepared:
        """The prepared transactions, which any owner decides."""

    @property
    def integration(self) -> Integration:
        """The calls for connectors, of the owner that there is."""


@documented_by(Transaction)
class TransactionLife:
    """A joined transaction's life; its subclass puts and gets."""

    id: int = 0  # of its store object
    recovery: Recovery | None = None  # None: its loss is raised as it is

    def __init__(
        self,
        session: TransactionSession,
        number: int,
        *,
        timeout: float | None,
        large: bool,
        owner: str | None = None,
        durable: bool = True,
    ) -> None:
        self.id = number
        self._state = _OPEN
        self._session = session
        self._connection = session.connection
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._large = large
        self._owner = owner
        self._durable = durable
        self._lock = OwnLock(threading.Lock())
        self._channel: Channel | None = None
        self._refused = False  # a put, by the owner
        self._puts = PutBuffer()
        self._aliases: dict[str, str] | None = None  # that were used, each with its queue's name
        self._records: list[tuple[str, int]] = []
        self._values: dict[tuple[str, str], bytes | None] = {}  # of states, that it sets
        self._value_bytes = 0
        self._checks: list[ReferenceType[Callable[[], object]]] = []  # before it ends
        self._cause: QuireError | None = None  # why it was rolled back, if not by its user
        # Its xid, and its number at its owner; None: that owner has ended.
        self._prepared: tuple[str, int | None] = "", None

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is None:
            return
        channel.broken = True  # which rolls it back at the owner
        self._connection.give_back(channel)
        if self._state is _OPEN and self._connection.usable:
            warnings.warn(
                f"transaction {self.id} was dropped while it was open: it is rolled back; use it "
                "in a with block, or end it by commit() or rollback()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._state is _PREPARED:
            return
        if kind is not None:
            self.rollback()
        elif self._state is _OPEN or self._cause is not None:
            try:
                self.commit()
            except BaseException:
                self.rollback()
                raise

    @property
    def state(self) -> str:
        return self._state.value

    @property
    def is_open(self) -> bool:
        """Return True if its state is "open"."""
        return self._state is _OPEN

    def prepare(self, xid: str, timeout: Duration | None = None) -> None:
        since_us = time.time_ns() // 1000
        try:
            self._prepare_at_owner(xid, timeout)
        except _LOST as error:
            raise self._lost(error, Request.PREPARE) from None
        except OutcomeUnknown as error:
            action = self._action_for(Request.PREPARE, error)
            if action not in _LOOKS:
                raise
            found = self._listed(xid, error)
            if found is None and action is RequestAction.LOOK_UP:
                raise self._lose(error) from None
            if found is None or found.prepared_us < since_us:  # of somebody else, it seems
                raise
            self._prepared, self._state = (xid, None), _PREPARED

    @call
    def _prepare_at_owner(self, xid: str, timeout: Duration | None) -> None:
        check_xid(xid)
        check_preparable(self._durable)
        wait = None if timeout is None else check_timeout(timeout)
        with self._lock:
            self._check_open()
            self._check_complete()
            request = {"op": "prepare", "xid": xid, "wait": wait}
            ending = Request.PREPARE, f"prepare of {xid!r}", LISTED
            header = self._ended_by(ending, self._last_call, request)
            self._puts.limit(field(header, "limits", dict))
            number = field(header, "number", int)
            self._prepared = xid, number
            self._state = _PREPARED
            self._session.own_prepared[number] = self

    def decided(self, decided: Decided) -> None:
        """Note the owner's answer once the transaction is decided."""
        self._state = decided.state or _ROLLED_BACK
        self._puts.settle(decided.placed)

    def _decide(self, decision: Decision) -> None:
        """Decide the prepared transaction at the owner where it was prepared, or at the next."""
        xid, number = self._prepared
        is_decided = False
        if number is not None:
            try:
                self._decide_at_owner(decision)
                return
            except UNANSWERED as error:
                action = self._action_for(Request.OWN_DECISION, error)
                if action is RequestAction.LOOK_UP:
                    is_decided = self._listed(xid, error) is None
                elif action is RequestAction.CONNECTION_LOST and isinstance(error, StoreClosed):
                    raise ConnectionLost(NOBODY) from None
                elif action is not RequestAction.REPEAT:
                    raise
        assert self.recovery is not None  # else the error was raised
        if not is_decided:
            prepared = self.recovery.prepared
            try:
                (prepared.commit if decision is Decision.COMMIT else prepared.rollback)(xid)
            except TransactionNotFound:
                raise TransactionClosed(
                    f"the prepared transaction {xid!r} was decided already, by somebody else"
                ) from None
        self._state = _COMMITTED if decision is Decision.COMMIT else _ROLLED_BACK

    @call
    def _decide_at_owner(self, decision: Decision) -> None:
        with self._lock:
            if self._state is _PREPARED:
                decided = decide(self._connection, decision, *self._prepared)
                self.decided(decided)
                if decided.committed:
                    return
            if decision is Decision.COMMIT:
                self._check_open()  # it is not

    def commit(self, timeout: Duration | None = None) -> None:
        if self._state is _PREPARED:
            self._decide(Decision.COMMIT)
            return
        entries, before = dict(self._records), {}
        try:
            if entries and self.recovery is not None and self._state is _OPEN:
                before = Integration(self._session).ledger_many(list(entries))
            self._commit_at_owner(timeout)
        except _LOST as error:
            raise self._lost(error, _ending_of(entries)[0]) from None
        except (OutcomeUnknown, StoreFailed) as error:
            if self._state is not _IN_DOUBT or self.recovery is None:
                raise  # its owner knows the state, or nobody is to be asked
            self._check_new(entries, before)
            action = self._action_for(_ending_of(entries)[0], error)
            if action not in _LOOKS:
                raise
            self._find_out(entries, error, action)

    @call
    def _commit_at_owner(self, timeout: Duration | None) -> None:
        wait = None if timeout is None else check_timeout(timeout)
        with self._lock:
            self._check_open()
            self._check_complete()
            more = self._records or self._values
            is_nothing = self._channel is None and self._puts.is_empty and not more
            if is_nothing and not self._durable:  # else what came before is to be durable
                self._state = _COMMITTED
                return
            header = self._ended_by(_ending_of(self._records), self._commit, wait)
            self._state = _COMMITTED
            if header:
                self._puts.settle(field(header, "placed", dict))
                self._puts.limit(field(header, "limits", dict))

    def rollback(self) -> None:
        if self._state is _PREPARED:
            self._decide(Decision.ROLLBACK)
        else:
            self._roll_back_if_open()

    @call
    def _roll_back_if_open(self) -> None:
        with self._lock:
            if self._state is _OPEN:
                try:
                    self._roll_back()
                except UNANSWERED as error:
                    if self._action_for(Request.ROLLBACK, error) is not RequestAction.RETURN:
                        raise

    # When the owner is lost

    def _action_for(self, request: Request, error: QuireError) -> RequestAction:
        if self.recovery is None:
            return RequestAction.ANSWER
        return self.recovery.action_for(request, self._session, error)

    def _lost(self, error: QuireError, request: Request = Request.STEP) -> QuireError:
        """Return the error to raise for one of a request that took no effect.

        Where the owner has ended, the transaction has, too.
        """
        if isinstance(error, _LOST):
            action = self._action_for(request, error)
            if action is RequestAction.CONNECTION_LOST:
                return self._lose(error)
        return error

    def _lose(self, error: QuireError) -> QuireError:
        """Nothing of the transaction took effect, at this call and at each one after it (ET1)."""
        with suppress(*UNANSWERED):  # whatever the owner answers, its end does it
            self._roll_back()
        is_late = isinstance(error, ConnectionLost) and error.late
        self._cause = lost = error if is_late else ConnectionLost(_AGAIN)
        return lost

    def _check_new(self, entries: Mapping[str, int], before: Mapping[str, int]) -> None:
        """Raise AlreadyCommitted if the ledger held an entry before the commit was sent."""
        for key, version in entries.items():
            if before.get(key, -1) >= version:
                self._state = _ROLLED_BACK
                raise AlreadyCommitted(
                    f"the ledger holds {key!r} with version {before[key]} already: the "
                    "transaction's effect is there, and it is rolled back"
                ) from None

    def _find_out(
        self, entries: Mapping[str, int], error: QuireError, action: RequestAction
    ) -> None:
        """Find out if a commit has been done (ET2)."""
        assert self.recovery is not None  # else there is nothing to look up
        try:
            now = self.recovery.integration.ledger_many(list(entries))
        except QuireError:
            raise error from None
        if all(now.get(key) == version for key, version in entries.items()):
            self._state = _COMMITTED
            return
        is_undone = any(now.get(key, -1) < version for key, version in entries.items())
        if is_undone and action is RequestAction.LOOK_UP:
            raise self._lose(error) from None
        raise error

    def _listed(self, xid: str, error: QuireError) -> PreparedInfo | None:
        """Ask the owner there is now for the xid. Raises the error if it cannot be asked."""
        assert self.recovery is not None  # else there is nothing to look up
        try:
            return next((info for info in self.recovery.prepared.list() if info.xid == xid), None)
        except QuireError:
            raise error from None

    # Requests

    def _ended_by(self, ending: Ending, ask: Callable[[A], Header], how: A) -> Header:
        """Make the request that ends the transaction here, unless it is refused."""
        self._state = _IN_DOUBT  # unless the owner answers
        try:
            return ask(how)
        except StreamEnded as error:
            if error.progress is not RequestProgress.SENT:
                self._state = _ROLLED_BACK
            raise self._connection.error_of(error, *ending) from None
        except QuireError as error:
            self._take_state(error)
            raise
        finally:
            if self._state is not _OPEN:
                self._release_channel()

    def _commit(self, wait: float | None) -> Header:
        """Commit, and return the answer's header."""
        if self._records or self._values:
            return self._last_call({"op": "commit", "wait": wait})
        seconds, size = encode_wait(wait), COMMIT_FRAME.size - HEAD.size

        def frames(stream: int) -> list[Bytes]:
            parts = self._unsent_frames(stream)
            parts.append(COMMIT_FRAME.pack(size, COMMIT, stream, self._puts.count, seconds))
            return parts

        channel = self._enter(wait)
        answer = channel.exchange(frames, wait, strictly=False)
        if answer[4] == RESULT:
            return decode_call(answer).header
        if answer[4] != COMMITTED:
            raise channel.unexpected()
        channel.transaction_state = None
        self._puts.settle_short(answer)
        return {}

    def _last_call(self, request: Header) -> Header:
        values = [[*where, value] for where, value in self._values.items()]

        def frames(stream: int) -> list[Bytes]:
            rest = self._unsent_frames(stream)
            call = {
                **request, "puts": self._puts.count, "records": self._records, "values": values,
            }  # fmt: skip
            return [*rest, *encode_call(STEP, stream, call)]

        channel = self._enter()
        answer = channel.exchange(frames, _seconds(request.get("wait")), strictly=False)
        if answer[4] != RESULT:
            raise channel.unexpected()
        return decode_call(answer).header

    def _unsent_frames(self, stream: int) -> list[Bytes]:
        """Frames of the puts that the owner does not have."""
        puts = self._puts
        if not (self._refused or puts.waits):
            return []
        return puts.again(stream) if self._refused else puts.frames(stream)

    def _request(self, op: str, arguments: Header, bodies: Sequence[Bytes] = ()) -> list[Frame]:
        """Ask for something in the transaction at the owner."""
        seconds = _seconds(arguments.get("wait"))
        return self._at_owner(
            lambda channel: channel.request({"op": op, **arguments}, bodies, seconds, kind=STEP)
        )

    def _at_owner(
        self, ask: Callable[Concatenate[Channel, P], A], *args: P.args, **kwargs: P.kwargs
    ) -> A:
        try:
            return ask(self._channel or self._enter(), *args, **kwargs)
        except StreamEnded as error:
            raise self._fail(error) from None
        except QuireError as error:
            self._take_state(error)
            raise self._lost(error) from None
        except BaseException:
            self._end()
            raise

    def _at_store(self, ask: Callable[[], R]) -> R:
        """Ask the owner for something beside the transaction, which ends if that is lost."""
        try:
            return allow_reentry(ask)
        except _LOST as error:
            if isinstance(error, ConnectionLost):
                self._end()
            raise self._lost(error) from None

    def _fail(self, error: StreamEnded) -> QuireError:
        """The owner is gone, and so is the transaction."""
        self._end()
        return self._lost(self._connection.error_of(error, Request.STEP))

    def _enter(self, wait: float | None = None) -> Channel:
        """The channel that carries the transaction, from the first request to its end."""
        if self._channel is None:
            channel = self._connection.borrow(wait)
            channel.transaction_state = _OPEN
            self._channel = channel
            if self._deadline is not None or self._large or self._owner or not self._durable:
                header: dict[str, object] = {
                    "op": "begin", "large": self._large, "owner": self._owner,
                    "durable": self._durable,
                }  # fmt: skip
                if self._deadline is not None:
                    left = max(0.001, self._deadline - time.monotonic())
                    header["timeout"] = None if left == math.inf else left
                channel.precede(lambda stream: encode_call(TELL, stream, header))
        return self._channel

    def _release_channel(self) -> None:
        channel, self._channel = self._channel, None
        self._puts.clear()
        if channel is not None:
            if channel.transaction_state is _OPEN:
                channel.close()  # which rolls it back at the owner
            self._connection.give_back(channel)

    def _end(self, state: TransactionState = _ROLLED_BACK) -> None:
        self._state = state
        self._release_channel()

    def _take_state(self, error: QuireError) -> None:
        """The transaction's state after an error: what the owner says, if it knows it."""
        self._cause = error if isinstance(error, _FROM_OUTSIDE) else None
        if isinstance(error, InvalidArgument):  # perhaps for the columns that its queue has by now
            self._session.forget_queues()
        channel = self._channel
        state = None if channel is None else channel.transaction_state
        if channel is not None and state is _OPEN:
            self._state = state
            if channel.taken < self._puts.count:
                self._refused = True
            self._puts.taken(channel.taken)
        else:
            self._end(state or _ROLLED_BACK)

    def _roll_back(self) -> None:
        """At the owner too. If it is gone, the transaction is rolled back all the same."""
        channel = self._channel
        try:
            if channel is not None and not channel.broken:
                # Should no answer come for long, the channel's end rolls it back.
                channel.exchange(lambda stream: [HEAD.pack(0, ROLLBACK, stream)], ROLLBACK_SECONDS)
                channel.transaction_state = None
        except StreamEnded as error:
            self._connection.error_of(error, Request.ROLLBACK)  # which does not matter here
        finally:
            self._end()

    def _check_complete(self) -> None:
        """Raise what refuses that it ends now."""
        for each in self._checks:
            check = each()
            if check is not None:
                check()

    def _check_open(self) -> None:
        if self._state is _OPEN:
            try:
                self._connection.check()
            except QuireError as error:
                self._end()
                raise self._lost(error) from None
            if (
                self._channel is None  # else the owner finds out
                and self._deadline is not None
                and time.monotonic() > self._deadline
            ):
                self._cause = TransactionTimeout(
                    "the transaction was open for too long and has been rolled back: begin anew, "
                    "or give transaction(timeout=...) more seconds"
                )
                self._end()
        if self._cause is not None:
            raise _once_more(self._cause)
        if self._state is _PREPARED:
            raise TransactionClosed(
                f"the transaction is prepared as {self._prepared[0]!r}: only commit() and "
                "rollback() can follow"
            )
        if self._state is not _OPEN:
            raise TransactionClosed(
                f"the transaction is {self.state}: begin a new one with store.transaction()"
            )


def _ending_of(entries: object) -> Ending:
    """Return the commit of a transaction with these ledger entries."""
    return _WITH_ENTRIES if entries else _WITHOUT_ENTRIES


def _once_more(cause: QuireError) -> QuireError:
    """Return an error like the one that has ended the transaction."""
    error = type(cause)(str(cause))
    if isinstance(error, ConnectionLost) and isinstance(cause, ConnectionLost):
        error.late = cause.late
    return error


def _seconds(wait: object) -> float | None:
    """The time-out of a request, if it has one."""
    return wait if isinstance(wait, int | float) else None
