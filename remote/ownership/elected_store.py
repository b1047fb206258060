"""A store object that lives on while owners come and go: what `quire.open` gives where it joins.

Inside is a joined store, until its owner ends; then the next owner's, or the store itself, owned.
An owned store is lost to nobody: its methods take the places of the ones here, and cost no more
than without this class.

- The watch, a thread, learns that the owner is gone, and elects (`election`), whether or not
  anybody calls. A call that finds the owner gone waits for it, `HAND_OVER_SECONDS` at most.
- What becomes of a call whose request is not answered, the table of `request_outcomes` says. Here
  its events are found, and the actions done that need another owner.
- ES5: whether the next owner is the same one is told by its epoch (OU2).
- Who joins begins without the engine, most of the time of a process that begins. Who is still there
  a second later loads it, for the day on which it owns the store.
- In a process that was forked nothing is elected: the store object stays its parent's.
- An owner that is there and does not answer is waited for in its channels (CH4), and no longer: it
  has the lock, so nobody takes over, and the call raises.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, Unpack

from quire.arguments import (
    check_request_ids,
    check_transaction_id,
    check_wait,
    check_xid,
    count_of,
)
from quire.batches.delivered_messages import Messages
from quire.calls.call_table import CallRow
from quire.calls.documented import documented_by
from quire.calls.errand import current
from quire.calls.signal_safety import defer_signals
from quire.calls.wake_up import Condition, Thread, WakeUp
from quire.env.interpreter import Lock
from quire.errors import (
    ConnectionLost,
    OutcomeUnknown,
    QuireError,
    RemoteError,
    StoreClosed,
    TransactionNotFound,
)
from quire.interface.integration import CallTarget
from quire.interface.lookup import MessageKey, Where
from quire.interface.starts import Start, check_starts
from quire.interface.store import Store
from quire.interface.transaction import Payload, Payloads, Transaction
from quire.limits import (
    ANSWER_SECONDS,
    CANCEL_SECONDS,
    CANDIDATE_PAUSE_SECONDS,
    HAND_OVER_SECONDS,
    LONGEST_PAUSE_SECONDS,
)
from quire.messages.message import Message
from quire.messages.put_options import StorePutOptions
from quire.moments import Duration
from quire.remote.client.connection import OwnerConnection
from quire.remote.client.made_store import MadeStore
from quire.remote.client.remote_life import NOBODY
from quire.remote.client.remote_store import RemoteStore
from quire.remote.client.remote_transaction import RemoteTransaction
from quire.remote.client.request_outcomes import (
    UNANSWERED,
    OwnerEvent,
    Request,
    RequestAction,
    RequestProgress,
    action_of,
    further,
    progress_of,
    request_of,
    waits_for_owner,
)
from quire.remote.limits import LONG_JOINED_SECONDS
from quire.reports.info import SubscriptionInfo

if TYPE_CHECKING:
    from quire.remote.client.network_owner import NetworkOwner

    from .election import Election
    from .shared_store import SharedStore

    Inner: TypeAlias = SharedStore | RemoteStore
T = TypeVar("T")

_CLOSED: Final = "this store object was closed: open the store again"


class LostCall:
    """A call that is to go on with another owner."""

    __slots__ = ("action", "error", "progress", "since")

    def __init__(
        self, error: QuireError, progress: RequestProgress, action: RequestAction, since: float
    ) -> None:
        self.error = error  # of the request that came furthest
        self.progress = progress
        self.action = action
        self.since = since  # it has had no owner


@documented_by(Store)
class ElectedStore(MadeStore):
    """A joined store that finds the next owner when its owner ends, or becomes the owner itself.

    Thread-safe. `close` lets go of the store, whichever way it is held.
    """

    def __init__(self, election: Election | NetworkOwner, joined: RemoteStore) -> None:
        self.path = election.path  # its owner may know it by another one
        self.store_id: Final = joined.store_id
        self._election = election
        self._inner: Inner = joined
        self._process_id = os.getpid()
        self._temporary: set[tuple[str, str]] = set()  # subscriptions that end with this object
        self._changed = Condition(Lock())
        self._closed = False
        self._closing = WakeUp()
        self._trouble: Exception | None = None  # why this process cannot own the store
        self._watch = Thread(
            target=_watch,
            args=(weakref.ref(self), joined.connection, election.prepare),
            name="quire-elect",
        )
        self._watch.start()

    @property
    def role(self) -> str:
        return self._inner.role

    @property
    def owner_process_id(self) -> int:
        """The process that owns the store, as far as is known."""
        inner = self._inner
        return inner.owner_process_id if isinstance(inner, RemoteStore) else self._process_id

    @property
    def owned(self) -> SharedStore | None:
        """The store itself, once this process has taken it over."""
        inner = self._inner
        return None if isinstance(inner, RemoteStore) else inner

    @property
    def failed(self) -> bool:
        """Asks the owner."""
        return self._with_an_owner(Request.LOOK, lambda store: store.failed)

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""
        if self._closed:
            raise StoreClosed(_CLOSED)
        if not self.usable:
            self._inner.check_usable()  # which says why

    # Queues and subscriptions

    def make_subscriptions(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None,
    ) -> list[SubscriptionInfo]:
        """Make subscriptions; one that is not durable ends with this object."""
        ends_with_this = durable is False
        names = (
            check_starts(subscription, starts).keys() - self._temporary if ends_with_this else set()
        )
        self._temporary |= names  # first: the owner may change at any time
        try:
            return self._with_an_owner(
                Request.REPEATABLE,
                lambda store: store.integration.subscribe_many(
                    subscription, starts, exclusive, durable, where
                ),
            )
        except BaseException:
            self._temporary -= names
            raise

    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when something may be got from the source."""
        return self._with_an_owner(
            Request.LOOK, lambda store: store.integration.when_ready(source, callback)
        )

    def unsubscribe(self, queue: str, subscription: str) -> None:
        super().unsubscribe(queue, subscription)
        self._temporary.discard((queue, subscription))

    # Transactions and messages

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Transaction:
        lost: LostCall | None = None
        while True:
            store = self._inner
            try:
                made = store.transaction(timeout, large, owner, durable)
                if isinstance(made, RemoteTransaction):
                    made.recovery = self
                return made
            except UNANSWERED as error:
                lost = self._to_repeat(Request.BEGIN, store, error, lost)

    def put(
        self,
        queue: str,
        payload: Payload,
        **options: Unpack[StorePutOptions],
    ) -> int:
        store = self._inner
        try:
            return store.put(queue, payload, **options)
        except UNANSWERED as error:
            has_id = options.get("request_id") is not None
            request = Request.PUT_WITH_ID if has_id else Request.CHANGE
            lost = self._to_repeat(request, store, error, None)
        return self._with_an_owner(
            request, lambda store: store.put(queue, payload, **options), lost=lost
        )

    def put_many(
        self,
        queue: str,
        payloads: Payloads,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> list[int]:
        if request_ids is None:
            return self._with_an_owner(
                Request.CHANGE, lambda store: store.put_many(queue, payloads, timeout=timeout)
            )
        rows = list(payloads) if isinstance(payloads, Iterator) else payloads
        known = check_request_ids(request_ids, count_of(rows))
        return self._with_an_owner(
            Request.PUT_WITH_ID,
            lambda store: store.put_many(queue, rows, timeout=timeout, request_ids=known),
        )

    def get(
        self,
        source: str,
        timeout: Duration | None = 0.0,
        *,
        id: MessageKey | None = None,
        where: Where | None = None,
    ) -> Message | None:
        until = time.monotonic() + check_wait(timeout)
        return self._with_an_owner(
            Request.GET, lambda store: store.get(source, _left(until), id=id, where=where)
        )

    def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        until = time.monotonic() + check_wait(timeout)
        return self._with_an_owner(
            Request.GET,
            lambda store: store.get_many(source, max_messages, _left(until), where=where),
        )

    # The store as a whole

    def close(self) -> None:
        if self._process_id != os.getpid():  # the locks here may be held by threads that are not
            self._inner.close()
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._closing.set()
        self._inner.close()  # all of this may be done again, if it was interrupted
        if self._watch is not threading.current_thread():
            self._watch.join()  # it may be recovering the store, and lets go of it then

    # Going on with the next owner

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Make a call, again if need be and if its row says that it may be."""
        if row.facts.of_one_owner:
            check_transaction_id(arguments["transaction_id"])
        return self._with_an_owner(
            request_of(row.facts),
            lambda store: getattr(row.target(store), row.name)(**arguments),
            arguments.get("transaction_id"),
        )

    def decide(self, xid: str, *, commit: bool) -> None:
        """Decide a prepared transaction, which its xid tells from others."""
        check_xid(xid)
        lost: LostCall | None = None
        while True:
            store = self._inner
            try:
                (store.prepared.commit if commit else store.prepared.rollback)(xid)
            except UNANSWERED as error:
                lost = self._to_repeat(Request.DECISION, store, error, lost)
                if lost.action is RequestAction.LOOK_UP and not self._is_prepared(xid, error):
                    return
                lost.progress = RequestProgress.UNSENT  # it was not done
            else:
                return

    def _is_prepared(self, xid: str, error: QuireError) -> bool:
        try:
            return any(info.xid == xid for info in self.prepared.list())
        except QuireError:
            raise error from None

    def _with_an_owner(
        self,
        request: Request,
        action: Callable[[Inner], T],
        transaction_id: int | None = None,
        lost: LostCall | None = None,
    ) -> T:
        """Act with the owner, and with the next one if the table says so.

        `lost`: the call, if it was lost before.
        """
        while True:
            store = self._inner
            try:
                return action(store)
            except UNANSWERED as error:
                if request is Request.GET and isinstance(error, OutcomeUnknown):
                    request = Request.CHANGE  # it was its commit
                lost = self._to_repeat(request, store, error, lost, transaction_id)

    def _to_repeat(
        self,
        request: Request,
        store: Inner,
        error: QuireError,
        before: LostCall | None,
        transaction_id: int | None = None,
    ) -> LostCall:
        """Wait for the next owner, if that is to be asked. Raises what the call raises if not.

        `before`: the call as it was lost before. A request of it that may have taken effect still
        may (OU1).
        """
        progress = self._progress_of(store, error)
        since = time.monotonic()
        worst = error
        if before is not None:
            since = before.since
            progress = further(before.progress, progress)
            worst = before.error if progress is before.progress else error
        if not isinstance(store, RemoteStore):
            raise worst  # this process owns it, and closes it
        event = self._find_event(request, progress, store, error, since)
        action = action_of(request, progress, event)
        if action in (RequestAction.REPEAT, RequestAction.LOOK_UP):
            return LostCall(worst, progress, action, since)
        if action is RequestAction.NOT_FOUND:
            raise TransactionNotFound(
                f"transaction {transaction_id} is not open any more: the owner of the store "
                "has ended, and its open transactions were rolled back"
            )
        if action is RequestAction.STORE_CLOSED and event is OwnerEvent.CLOSED:
            raise StoreClosed(_CLOSED)
        if action is RequestAction.CONNECTION_LOST and event in (
            OwnerEvent.NO_OWNER,
            OwnerEvent.CANCELLED,
        ):
            if self._trouble is not None:
                raise self._trouble
            if isinstance(worst, StoreClosed):
                raise ConnectionLost(NOBODY)
        raise worst

    def action_for(self, request: Request, store: RemoteStore, error: QuireError) -> RequestAction:
        """Return the action for a request that was lost with this error, once it can be done."""
        progress = self._progress_of(store, error)
        event = self._find_event(request, progress, store, error, time.monotonic())
        return action_of(request, progress, event)

    def _progress_of(self, store: Inner, error: QuireError) -> RequestProgress:
        usable = self.usable
        goes_on = usable and isinstance(store, RemoteStore) and not store.connection.lost
        return progress_of(error, is_usable=usable, goes_on=goes_on)

    def _find_event(
        self,
        request: Request,
        progress: RequestProgress,
        store: RemoteStore,
        error: QuireError,
        since: float,
    ) -> OwnerEvent:
        """Find what has happened; where the action depends on the next owner, wait for that."""
        if self._process_id != os.getpid():
            return OwnerEvent.FORKED
        if isinstance(error, StoreClosed) and self.usable:  # by its owner, which is closing (OU3)
            store.connection.lose("it is closing the store")
        if isinstance(error, RemoteError) and error.late:
            return OwnerEvent.CANCELLED if _is_withdrawn() else OwnerEvent.LATE
        is_answer = progress is RequestProgress.FAILED and isinstance(error, OutcomeUnknown)
        if is_answer or not waits_for_owner(request, progress):
            return (
                OwnerEvent.CLOSED if self._closed else OwnerEvent.SAME_OWNER
            )  # as well as any other
        return self._find_next(store, since)

    def _find_next(self, lost: RemoteStore, since: float) -> OwnerEvent:
        """Wait until there is another owner than this one, which has been lost since then."""
        left = max(0.0, since + HAND_OVER_SECONDS - time.monotonic())
        defer_signals(self._wait_for_another, lost, left)
        with self._changed:
            inner, is_closed = self._inner, self._closed
        if is_closed:
            return OwnerEvent.CLOSED
        if inner is lost:
            return OwnerEvent.CANCELLED if _is_withdrawn() else OwnerEvent.NO_OWNER
        if not isinstance(inner, RemoteStore):
            return OwnerEvent.OWN
        is_same = inner.connection.epoch == lost.connection.epoch  # (ES5)
        return OwnerEvent.SAME_OWNER if is_same else OwnerEvent.NEXT_OWNER

    @property
    def usable(self) -> bool:
        """True if it is open, in the process that opened it."""
        return not self._closed and self._process_id == os.getpid()

    def _wait_for_another(self, lost: Inner, seconds: float) -> None:
        until, errand = time.monotonic() + seconds, current()
        if errand is not None:
            until = min(until, errand.until + ANSWER_SECONDS)
        with self._changed:
            while not (self._closed or self._trouble is not None or self._inner is not lost):
                left = until - time.monotonic()
                if left <= 0 or (errand is not None and errand.withdrawn):
                    break
                # Who may give it up does not know this lock.
                self._changed.wait(left if errand is None else min(left, CANCEL_SECONDS))

    def succeed(self) -> OwnerConnection | None:
        """The owner is gone: own the store, or join who does. Called by the watch alone.

        The connection to the next one; None if there is nothing more to watch.
        """
        lost = self._inner
        assert isinstance(lost, RemoteStore)
        found = self._elect() if lost.connection.lost else None
        if found is None:
            return None
        if self._temporary:  # before the owner takes them for left behind
            with suppress(QuireError):  # it is gone, too: the next one is asked
                found.claim(sorted(self._temporary))
        with self._changed:
            if not self._closed:
                self._inner, self._trouble = found, None
                if not isinstance(found, RemoteStore):
                    vars(self).update({name: getattr(found, name) for name in _DIRECT})
                self._changed.notify_all()
        lost.close()
        if self._closed:
            found.close()
            return None
        return found.connection if isinstance(found, RemoteStore) else None

    def _elect(self) -> Inner | None:
        """The next owner's store; None if this store object was closed meanwhile."""
        candidate_pause = CANDIDATE_PAUSE_SECONDS
        while not self._closed:
            pause = self._election.pause_seconds
            try:
                found = self._election.succeed()
                if found is not None:
                    return found
            except (QuireError, OSError, RuntimeError) as error:  # no thread starts at the very end
                pause = candidate_pause  # longer each time, as every process may see the same
                candidate_pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                with self._changed:
                    self._trouble = error
                    self._changed.notify_all()
            self._closing.wait(pause)
        return None


def _is_withdrawn() -> bool:
    """Return True if nobody waits for this thread's call any more."""
    errand = current()
    return errand is not None and errand.withdrawn


def _left(until: float) -> float:
    """Seconds."""
    return max(0.0, until - time.monotonic())


_DIRECT: Final = tuple(
    name
    for name, value in vars(Store).items()
    if callable(value) and not name.startswith("_") and name != "close"
)


def _watch(
    reference: weakref.ref[ElectedStore],
    connection: OwnerConnection | None,
    prepare: Callable[[], None],
) -> None:
    """The thread behind a store object; it does not keep it from being dropped."""
    while connection is not None:
        if not connection.wait_for_end(LONG_JOINED_SECONDS):
            prepare()  # not only when the owner ends: it may be another release's by then
            connection.wait_for_end()
        store = reference()
        connection = None if store is None else store.succeed()
        del store


if TYPE_CHECKING:
    _target: type[CallTarget] = ElectedStore
