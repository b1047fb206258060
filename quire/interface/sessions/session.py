"""A session: the requests of one client, each executed once, each reply processed once.

- KSC1: a call that makes its own transaction repeats it where the owner was lost, and where another
  thread of this opening was faster: what it does twice is as once (KS5). A reply that it has taken
  is returned, though nobody has answered whether the commit took place, once that is seen.
- KSC2: within a user's transaction a step is whole, or not made, where a signal interrupts it; a
  reply that does not reach its caller by that is not taken, as the transaction is rolled back.
- Whether a reply is there is looked at after what is kept of its request, and that is read
  again where there is none: what another thread takes in between is told as taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar, Unpack

from quire.arguments import check_flag, check_name, check_wait
from quire.calls.signal_safety import defer_signals, made
from quire.env import OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    QueueInUse,
    QueueNotFound,
    ReplyNotFound,
    SessionFenced,
    StateConflict,
    TransactionAborted,
)
from quire.interface.namespaces.admin import Admin
from quire.interface.namespaces.states import States
from quire.interface.transaction import Payload, Transaction, TransactionSource
from quire.limits import OWNERS_LOST
from quire.messages.encoded_values import encoded_value
from quire.messages.message_fields import check_payload
from quire.messages.message_types import reason_of
from quire.messages.put_options import MessageOptions
from quire.moments import Duration
from quire.reports.info import QueueInfo
from quire.reports.requests import RequestInfo, RequestState, SessionInfo

from .kept_requests import BEGUN, PUT, KeptRequest
from .limits import FINISHED_AT_ONCE
from .reply import Reply, outcome_of
from .requesting import check_replies
from .session_opening import REPLIES, SESSIONS, Opening
from .session_record import (
    SessionRecord,
    check_number,
    check_options,
    check_puttable,
    check_session,
    dropped_up_to,
    key_of,
)

R = TypeVar("R")
_ENV: Final = OsEnv()


class SessionStore(TransactionSource[Transaction], Protocol):
    """A store, as far as a session has to do with it."""

    @property
    def admin(self) -> Admin:
        """The calls that end transactions of older openings."""

    @property
    def states(self) -> States:
        """The states that keep what is known of requests."""

    def queue(self, name: str) -> QueueInfo:
        """One queue."""

    @property
    def create_queue(self) -> Callable[..., QueueInfo]:
        """Makes one."""

    def drop_queue(self, name: str) -> None:
        """Remove one."""


def check_within(txn: object) -> None:
    """Raise InvalidArgument unless it is a transaction, or None."""
    if txn is not None and not hasattr(type(txn), "begin_stream"):
        raise InvalidArgument(f"txn {txn!r:.100}: give an open transaction of the store, or None")


class Session:
    """A durable session of a client: made by `store.session(name)`, and used by any thread.

        session = store.session("till-7")
        for number in session.unfinished():  # of an earlier run that has ended anyhow
            if session.resolve(number) == "not put":
                session.submit(number)
        number = session.begin("orders", b"3 apples")
        session.submit(number)
        with session.transaction() as txn:
            reply = session.take(number, timeout=60.0, txn=txn)
            ...  # what is put here is there if, and only if, the reply is taken

    Each call is durable when it returns. With `txn` it is a part of that transaction, and takes
    effect with its commit, which raises StateConflict where the session was opened again meanwhile.
    One that fails or is interrupted half way (StateFull after the put, Ctrl-C) rolls it back.
    All calls raise SessionFenced once it was opened again elsewhere, StoreClosed, InvalidArgument;
    those that change something StoreFailed and DiskFull.
    """

    def __init__(self, store: SessionStore, record: SessionRecord, *, watches: bool) -> None:
        self._store = store
        self._record = record
        self._watches = watches
        self._removal: Opening | None = None  # who has it while it is removed
        self._ended = 0  # so many may have since it was last looked what is to be forgotten

    def __repr__(self) -> str:
        how = "watched" if self._watches else f"opening {self.epoch}"
        return f"<Session {self.name}, {how}>"

    @property
    def name(self) -> str:
        """Its name, up to 180 characters."""
        return self._record.name

    @property
    def epoch(self) -> int:
        """The number of this opening, from 1."""
        return self._record.opening.epoch

    @property
    def replies(self) -> str:
        """The queue that its replies come to."""
        return self._record.opening.replies

    def transaction(self, timeout: Duration | None = None) -> Transaction:
        """A transaction for `take` and what is done with the reply; ended by the next opening.

        `timeout`: seconds, as for `Store.transaction`. Raises what that raises.
        """
        return self._store.transaction(timeout, owner=self._label())

    # Requests

    def begin(
        self,
        queue: str,
        payload: Payload,
        *,
        txn: Transaction | None = None,
        **options: Unpack[MessageOptions],
    ) -> int:
        """Store a request, and put it not yet; its number, above all before it.

        `payload`: up to 1 MiB less some 200 bytes, or a value for the queue's codec. `options`:
        what a put may say, but for `correlation_id` and `reply_to`, which are the session's. Raises
        StateFull, QueueNotFound, and InvalidArgument for what the queue would never take.
        """
        return self._begun(self._record.begin, queue, payload, txn, options)

    def submit(self, number: int, *, txn: Transaction | None = None) -> bool:
        """Put a request that was begun; False: it was put before, or cannot be put any more.

        Where its queue is not there any more, or never takes it (the put raises QueueNotFound or
        InvalidArgument), the request has failed: `lookup` and `result` tell that error, so that no
        later run meets it again. Within a `txn` that is raised. Raises what else a put raises, and
        ReplyNotFound where it has ended already, or is not known.
        """
        self._check_may_change(txn)
        check_number(number)
        try:
            return self._run_step(lambda step: self._record.submit(step, number), txn)
        except (QueueNotFound, InvalidArgument) as error:
            if txn is not None:
                raise
            reason = reason_of(error)
        self._run_step(lambda step: self._record.end(step, number, reason), None)
        return False

    def put(
        self,
        queue: str,
        payload: Payload,
        *,
        txn: Transaction | None = None,
        **options: Unpack[MessageOptions],
    ) -> int:
        """Begin and submit in one transaction; the request's number. Takes and raises as they do.

        Who ends before this returns does not know the number: `unfinished` tells.
        """
        return self._begun(self._record.put_at_once, queue, payload, txn, options)

    def _begun(
        self,
        step: Callable[[Transaction, int, KeptRequest], bool],
        queue: str,
        payload: Payload,
        txn: Transaction | None,
        options: Mapping[str, Any],
    ) -> int:
        """A request that was not there before, by that step; its number."""
        self._check_may_change(txn)
        info = self._store.queue(check_name(queue, "queue"))
        value, put_options = encoded_value(queue, info.codec, payload, dict(options))
        data = check_payload(value)
        kept = KeptRequest(BEGUN, queue, check_options(put_options), _ENV.now_us(), payload=data)
        check_puttable(info, kept)
        self._forget_old()
        while True:
            number = self._record.next_number()
            if self._run_step(lambda own, number=number: step(own, number, kept), txn):  # type: ignore[misc]
                return number

    def take(
        self, number: int, timeout: Duration | None = 0.0, *, txn: Transaction | None = None
    ) -> Reply | None:
        """Take what came of a request; None: nothing came within `timeout` seconds.

        With None it waits for ever. Its request is finished with that. The news that it has failed
        or expired is such a reply, too, whose `payload` raises. A reply that another transaction
        has got is there when that is rolled back. Raises ReplyNotFound where none can come: it was
        not put, or has ended.
        """
        self._check_may_change(txn)
        check_number(number)
        seconds = check_wait(timeout)
        if txn is not None:
            within = txn
            return made(
                lambda: self._take(within, number, seconds),
                lambda taken: None if taken is None else within.rollback(),
            )
        until = _ENV.monotonic() + seconds
        seen: Reply | None = None

        def step(step: Transaction) -> Reply | None:
            nonlocal seen
            left = max(0.0, until - _ENV.monotonic())
            try:
                seen = self._take(step, number, left) or seen
            except ReplyNotFound:
                if seen is None:
                    raise
                return seen  # as nobody answered whether it was taken: it was
            return seen

        return self._run_step(step, None, math.inf if seconds else None)

    def _take(self, txn: Transaction, number: int, seconds: float) -> Reply | None:
        self._record.awaited(txn, number)
        message = txn.get(self.replies, seconds, where=self._record.wanted(number))
        if message is None:
            return None
        self._ended += 1
        return self._record.took(txn, number, message)

    def withdraw(self, number: int, *, txn: Transaction | None = None) -> bool:
        """Have nobody execute a request; False: it is too late, as somebody does or has done so.

        One that is not put is dropped, one that waits is taken out of its queue. Raises
        ReplyNotFound.
        """
        self._check_may_change(txn)
        check_number(number)
        self._ended += 1
        return self._run_step(lambda step: self._record.withdraw(step, number), txn)

    def forget(self, up_to: int) -> int:
        """Keep nothing of requests up to this number any more: the client has done so; how many.

        Those that have not ended and have no reply yet stay. Replies that are there are dropped.
        Without it the last 1,000 that have ended are kept. Raises InvalidArgument.
        """
        self._check_may_change()
        check_number(up_to)
        kept = self._record.requests(self._values())
        numbers = [number for number in kept if number <= up_to]
        count = 0
        for first in range(0, len(numbers), FINISHED_AT_ONCE):
            some = numbers[first : first + FINISHED_AT_ONCE]
            count += self._run_step(lambda step, some=some: self._record.forget(step, some), None)  # type: ignore[misc]
        return count

    # Looking

    def resolve(self, number: int) -> RequestState:
        """How far a request is, as it is kept and as its reply queue shows: after any crash.

        NOT_PUT, TAKEN, ANSWERED, else PENDING (A, D, C, B of the client's recovery), asked in this
        order; FAILED and EXPIRED where that was reported; WITHDRAWN, FORGOTTEN. Raises
        SessionFenced, QueueNotFound where its reply queue was dropped.
        """
        return self.lookup(number).state

    def lookup(self, number: int) -> RequestInfo:
        """All that is known of a request, also of one that has ended. Raises as `resolve`."""
        check_number(number)
        while True:
            self._check_current()
            value = self._store.states.get(self._record.state, key_of(number))
            if value is None:
                values = self._values()
                if key_of(number) in values:
                    continue  # it has begun meanwhile
                return self._info_of_unkept(number, values)
            kept = self._record.kept(number, value)
            if kept.state != PUT:
                return kept.info(number)
            outcome = self._outcome(number)
            if outcome is not None:
                return _info_of(kept, number, outcome)
            if self._store.states.get(self._record.state, key_of(number)) == value:
                return kept.info(number)

    def result(self, number: int, timeout: Duration | None = 0.0) -> Reply | None:
        """Return the outcome of a request, which stays there; None: none within `timeout` seconds.

        (None: for ever.) For whoever asks, as often as they like, until it is taken or forgotten.
        How it failed is told after that, too. Raises ReplyNotFound where it was taken, withdrawn,
        forgotten or never put.
        """
        check_number(number)
        until = _ENV.monotonic() + check_wait(timeout)
        while True:
            known = self.lookup(number)
            if known.state == RequestState.PENDING:
                left = until - _ENV.monotonic()
                if left <= 0 or not self._await(number, left):
                    return None
                continue
            return self._result(known)

    def _result(self, known: RequestInfo) -> Reply:
        failed = known.state in (RequestState.FAILED, RequestState.EXPIRED)
        if failed and known.is_reported:
            return Reply(known.number, known.state, None, known.reason)
        message = None
        if failed or known.state == RequestState.ANSWERED:
            message = self._read(known.number)
        if message is None:
            raise ReplyNotFound(
                f"request {known.number} of session {self.name!r}: there is no reply to read, it "
                f"is {self.resolve(known.number)}"
            )
        return Reply.of(known.number, message)

    def unfinished(self) -> list[int]:
        """The numbers of requests that have not ended, in their order: those to resolve.

        Raises SessionFenced.
        """
        return self.info().unfinished

    def info(self) -> SessionInfo:
        """The session as it is now. Raises SessionFenced."""
        self._check_current()
        return self._record.info(self._values())

    def remove(self) -> None:
        """Remove the session, with all that it keeps, and its reply queue, if that is its own.

        Raises QueueInUse where somebody uses the replies.
        """
        self._check_may_change()
        self._check_current()
        own = self._record.opening
        if self._removal is None or self._kept() != self._removal:  # else it was interrupted
            self._drop_replies(own)
        # Its numbers begin anew with that, and requests that are under way have them.
        if self._removal is None:
            drawn = _ENV.random_u64()
            self._removal = own._replace(epoch=own.epoch + 1, drawn=drawn, leaving=True)
        opening = self._removal
        self._run_step(lambda step: self._record.pass_to(step, opening), None)
        self._record = SessionRecord(self.name, opening)
        self._store.states.drop(self._record.state)
        self._run_step(lambda step: self._record.pass_to(step, None), None)

    def _drop_replies(self, own: Opening) -> None:
        """Drop its own reply queue, which its mark allows (OP1). Raises QueueInUse."""
        self._run_step(lambda step: self._record.pass_to(step, own._replace(leaving=True)), None)
        try:
            self._store.drop_queue(REPLIES + self.name)
        except QueueNotFound:
            pass
        except QueueInUse:
            self._run_step(lambda step: self._record.pass_to(step, own), None)
            raise

    # How it is done

    def _kept(self) -> Opening | None:
        """The opening that has the session now."""
        value = self._store.states.get(SESSIONS, self.name)
        return None if value is None else Opening.of(self.name, value)

    def _label(self) -> str:
        """The label of its transactions."""
        self._check_may_change()
        return self._record.label

    def _values(self) -> dict[str, bytes]:
        return self._store.states.items(self._record.state)

    def _check_may_change(self, txn: object = None) -> None:
        check_within(txn)
        if self._watches:
            raise InvalidArgument(
                f"session {self.name!r} is only watched here: open it without `watch` to change it"
            )

    def _check_current(self) -> None:
        kept = self._kept()
        if kept is None or not (
            self._watches or kept.is_same(self._record.opening) or kept == self._removal
        ):
            raise self._record.fenced()

    def _info_of_unkept(self, number: int, values: Mapping[str, bytes]) -> RequestInfo:
        """Describe a request without a value of its own: ended, forgotten, or never begun."""
        ended = self._record.ended_together(values).get(number)
        if ended is not None:
            return ended.info(number)
        is_known = number <= dropped_up_to(values)
        return RequestInfo(number, RequestState.FORGOTTEN if is_known else RequestState.NOT_PUT)

    def _outcome(self, number: int) -> tuple[RequestState, str | None] | None:
        """Return the outcome in the reply queue; a reply counts more than the news of a failure."""
        wanted = self._record.wanted(number)
        found = self._run_step(lambda step: step.describe(self.replies, where=wanted), None)
        outcomes = [outcome_of(each.attributes) for each in found]
        return min(outcomes, key=lambda one: one[0] != RequestState.ANSWERED, default=None)

    def _read(self, number: int) -> Any:
        wanted = self._record.wanted(number)
        found = self._run_step(lambda step: list(step.read_many(self.replies, where=wanted)), None)
        return min(
            found,
            key=lambda one: outcome_of(one.attributes)[0] != RequestState.ANSWERED,
            default=None,
        )

    def _await(self, number: int, seconds: float) -> bool:
        until, wanted = _ENV.monotonic() + seconds, self._record.wanted(number)

        def step(step: Transaction) -> bool:
            return step.exists(self.replies, max(0.0, until - _ENV.monotonic()), where=wanted)

        return self._run_step(step, None, math.inf)

    def _run_step(
        self,
        step: Callable[[Transaction], R],
        txn: Transaction | None,
        lifetime: float | None = None,
    ) -> R:
        """A step, in the transaction or in one of its own (KSC1)."""
        if txn is not None:
            return defer_signals(step, txn)
        lost = 0
        while True:
            try:
                with self._store.transaction(lifetime, owner=self._record.label) as own:
                    return step(own)
            except SessionFenced:
                raise
            except (StateConflict, TransactionAborted):
                self._check_current()
            except (ConnectionLost, OutcomeUnknown) as error:
                lost += 1
                if lost > OWNERS_LOST or error.late:
                    raise

    def _forget_old(self) -> None:
        """Now and then: what has ended, but for the last of it (KE1)."""
        if self._ended < FINISHED_AT_ONCE:
            return
        self._ended = 0
        numbers = self._record.ended_alone(self._values())
        while len(numbers) >= FINISHED_AT_ONCE:
            some, numbers = numbers[:FINISHED_AT_ONCE], numbers[FINISHED_AT_ONCE:]
            self._run_step(lambda step, some=some: self._record.move_ended(step, some), None)  # type: ignore[misc]


def _info_of(
    kept: KeptRequest, number: int, outcome: tuple[RequestState, str | None]
) -> RequestInfo:
    state, reason = outcome
    return kept._replace(reason=reason).info(number, state)


def open_session(
    store: SessionStore, name: str, replies: str | None = None, *, watch: bool = False
) -> Session:
    """See `Store.session`."""
    check_session(name)
    check_flag("watch", watch)
    if replies is not None:
        check_name(replies, "queue")
    value = store.states.get(SESSIONS, name)
    if watch:
        if value is None:
            raise NotFound(f"there is no session {name!r}: open it without `watch` to make it")
        return Session(store, SessionRecord(name, Opening.of(name, value)), watches=True)
    record = SessionRecord(name, _opened(store, name, replies))
    _end_older(store, record)
    values = store.states.items(record.state)
    record.number_from(values)
    session = Session(store, record, watches=False)
    session._ended = len(values)  # by openings before, each of which may have been short
    return session


def _opened(store: SessionStore, name: str, replies: str | None) -> Opening:
    lost = 0
    while True:
        try:
            return _open(store, name, replies)
        except StateConflict:  # somebody else opens it, too
            continue
        except (ConnectionLost, OutcomeUnknown) as error:
            lost += 1
            if lost > OWNERS_LOST or error.late:
                raise


def _open(store: SessionStore, name: str, replies: str | None) -> Opening:
    with store.transaction() as txn:
        value = txn.get_value(SESSIONS, name)
        before = None if value is None else Opening.of(name, value)
        where = replies or (before.replies if before else REPLIES + name)
        if before is not None and before.replies != where:
            raise InvalidArgument(
                f"session {name!r} has its replies in {before.replies!r}: open it with that, or "
                "remove it first"
            )
        if where == REPLIES + name:
            store.create_queue(where, indexed=["correlation_id"], exist_ok=True)
        else:
            check_replies(store.queue(where))
        epoch, drawn = (0, _ENV.random_u64()) if before is None else (before.epoch, before.drawn)
        opening = Opening(epoch + 1, where, drawn)
        txn.set_value(SESSIONS, name, opening.value())
    return opening


def _end_older(store: SessionStore, record: SessionRecord) -> None:
    """Give back what transactions of older openings have got (C of what is in flight)."""
    for info in store.admin.transactions():
        user, _, words = info.owner.partition(": ")  # as one of a user is shown to others
        begin, _, epoch = (words if user.startswith("user ") else info.owner).rpartition(" ")
        is_older = epoch.isdecimal() and int(epoch) < record.opening.epoch
        if begin == f"session {record.name}" and is_older:
            with suppress(NotFound):  # it has just ended
                store.admin.abort(info.id)
