"""A store object that lives on while owners come and go: what `quire.open` gives where it joins.

Inside is a joined store, until its owner ends; then the next owner's, or the store itself, owned.
An owned store is lost to nobody: its methods take the places of the ones here, and cost no more
than without this class.

- The watch, a thread, learns that the owner is gone, and elects (`election`), whether or not
  anybody calls. A call that finds the owner gone waits for it, `HAND_OVER_SECONDS` at most.
- ES2: a call outside of a transaction is tried again with the next owner if the first had not been
  sent, or had been refused as the owner was closing: nothing of it took effect.
- ES3: one that was sent and not answered is tried again only where twice is as once, as its row
  says (`quire.calls.call_table`): looks, `alter_queue`, `subscribe`, ...; and a `put` with a
  request id. A decision by xid is tried again if the next owner still lists the xid, and done if
  it does not. Any other raises OutcomeUnknown; `create_queue` looks then, where the queue may be
  there already.
- ES4: a number of an open transaction means something to one owner only: with the next one
  `admin.abort` and `admin.transaction` raise TransactionNotFound, as it was rolled back.
- ES5: whether the next owner is the same one is told by its epoch. As long as it is, a request
  whose answer was lost may still be under way, and nothing follows from what is not there yet.
- Who joins begins without the engine, most of the time of a process that begins. Who is still there
  a second later loads it, for the day on which it owns the store.
- In a process that was forked nothing is elected: the store object stays its parent's.
- ES7: an owner that refuses a call, as it is closing, is asked for nothing else: whoever calls
  waits for the next one. So it is soon done with its clients.
- An owner that is there and does not answer is waited for in its channels (CH4), and no longer: it
  has the lock, so nobody takes over, and the call raises.

Transactions are `elected_transaction`'s.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

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
    JOIN_POLL_SECONDS,
    LONGEST_PAUSE_SECONDS,
)
from quire.messages.message import Message
from quire.messages.put_options import StorePutOptions
from quire.moments import Duration
from quire.remote.client.connection import OwnerConnection, is_late
from quire.remote.client.made_store import MadeStore
from quire.remote.client.remote_store import RemoteStore
from quire.remote.limits import LONG_JOINED_SECONDS
from quire.reports.info import SubscriptionInfo

from .elected_transaction import ElectedTransaction
from .election import Election, load_engine

if TYPE_CHECKING:
    from .shared_store import SharedStore

    Inner = SharedStore | RemoteStore
T = TypeVar("T")

_CLOSED: Final = "this store object was closed: open the store again"
_LOST: Final = (ConnectionLost, StoreClosed)


@documented_by(Store)
class ElectedStore(MadeStore):
    """A joined store that finds the next owner when its owner ends, or becomes the owner itself.

    Thread-safe. `close` lets go of the store, whichever way it is held.
    """

    def __init__(self, election: Election, joined: RemoteStore) -> None:
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
            target=_watch, args=(weakref.ref(self), joined.connection), name="quire-elect"
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
        return self.again(lambda store: store.failed)

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
            return self.again(
                lambda store: store.integration.subscribe_many(
                    subscription, starts, exclusive, durable, where
                )
            )
        except BaseException:
            self._temporary -= names
            raise

    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when something may be got from the source."""
        return self.again(lambda store: store.integration.when_ready(source, callback))

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
        while True:
            store = self._inner
            try:
                if isinstance(store, RemoteStore):
                    inner = store.transaction(timeout, large, owner, durable)
                    return ElectedTransaction(self, store, inner)
                return store.transaction(timeout, large, owner, durable)
            except _LOST as error:
                self.next_owner(store, error)

    def put(
        self,
        queue: str,
        payload: Payload,
        **options: Unpack[StorePutOptions],
    ) -> int:
        while True:
            store = self._inner
            try:
                return store.put(queue, payload, **options)
            except _LOST as error:
                self.next_owner(store, error)
            except OutcomeUnknown as error:  # with a request id twice is as once
                if options.get("request_id") is None:
                    raise
                self.next_owner(store, error)

    def put_many(
        self,
        queue: str,
        payloads: Payloads,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> list[int]:
        if request_ids is None:
            return self.once(lambda store: store.put_many(queue, payloads, timeout=timeout))
        rows = list(payloads) if isinstance(payloads, Iterator) else payloads
        known = check_request_ids(request_ids, count_of(rows))
        return self.again(  # with request ids twice is as once
            lambda store: store.put_many(queue, rows, timeout=timeout, request_ids=known)
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
        return self.once(lambda store: store.get(source, _left(until), id=id, where=where))

    def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Where | None = None,
    ) -> Messages:
        until = time.monotonic() + check_wait(timeout)
        return self.once(
            lambda store: store.get_many(source, max_messages, _left(until), where=where)
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
        """Make a call, twice if need be and its row says that it may be (ES2, ES3)."""

        def call(store: Inner) -> Any:
            return getattr(row.target(store), row.name)(**arguments)

        if row.facts.of_one_owner:
            return self._at_this_owner(arguments, call)
        return (self.again if row.facts.again else self.once)(call)

    def once(self, action: Callable[[Inner], T]) -> T:
        """Act with the owner or, if that is gone before it is asked, with the next (ES2)."""
        return self._with_an_owner(action, _LOST)

    def again(self, action: Callable[[Inner], T]) -> T:
        """Act, again with the next owner if need be: twice is as once (ES3)."""
        return self._with_an_owner(action, (*_LOST, OutcomeUnknown))

    def _with_an_owner(self, action: Callable[[Inner], T], lost: tuple[type[QuireError], ...]) -> T:
        deadline = 0.0
        while True:
            store = self._inner
            try:
                return action(store)
            except lost as error:
                deadline = deadline or time.monotonic() + HAND_OVER_SECONDS
                self.next_owner(store, error, deadline)

    def _at_this_owner(self, arguments: Mapping[str, Any], action: Callable[[Inner], T]) -> T:
        """Act on what one owner alone knows (ES4)."""
        transaction_id = check_transaction_id(arguments["transaction_id"])
        first = self._inner

        def act(store: Inner) -> T:
            if store is not first and not self.has_owner_of(first):
                raise TransactionNotFound(
                    f"transaction {transaction_id} is not open any more: the owner of the store "
                    "has ended, and its open transactions were rolled back"
                )
            return action(store)

        return self.again(act)

    def decide(self, xid: str, *, commit: bool) -> None:
        """Decide a prepared transaction, which its xid tells from others (ES3)."""
        check_xid(xid)
        while True:
            store = self._inner
            try:
                (store.prepared.commit if commit else store.prepared.rollback)(xid)
            except _LOST as error:
                self.next_owner(store, error)
            except OutcomeUnknown as error:
                try:
                    self.next_owner(store, error)
                    listed = {info.xid for info in self.prepared.list()}
                except QuireError:
                    raise error from None
                if self.has_owner_of(store):
                    raise
                if xid not in listed:
                    return
            else:
                return

    @property
    def usable(self) -> bool:
        """True if it is open, in the process that opened it."""
        return not self._closed and self._process_id == os.getpid()

    def has_owner_of(self, store: Inner) -> bool:
        """Return True if the owner is still the one that this joined store has, or had (ES5)."""
        inner = self._inner
        return (
            isinstance(inner, RemoteStore)
            and isinstance(store, RemoteStore)
            and inner.connection.epoch == store.connection.epoch
        )

    def ask_no_more(self, lost: RemoteStore, error: Exception) -> None:
        """An owner that refuses is closing (ES7)."""
        if isinstance(error, StoreClosed) and self.usable:
            lost.connection.lose("it is closing the store")

    def next_owner(self, lost: Inner, error: Exception, deadline: float | None = None) -> None:
        """Wait until there is another one than this, which an operation has failed with.

        Raises the error if there is none within time, or this store object is of no use any more.
        """
        if self._process_id != os.getpid() or not isinstance(lost, RemoteStore) or is_late(error):
            raise error
        self.ask_no_more(lost, error)
        if isinstance(error, OutcomeUnknown) and not lost.connection.lost:
            raise error  # something failed inside the owner, which goes on
        left = HAND_OVER_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
        defer_signals(self._wait_for_another, lost, left)
        with self._changed:
            if self._closed:
                raise StoreClosed(_CLOSED)
            if self._inner is lost:
                raise self._trouble or error

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
            pause = JOIN_POLL_SECONDS
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


def _left(until: float) -> float:
    """Seconds."""
    return max(0.0, until - time.monotonic())


_DIRECT: Final = tuple(
    name
    for name, value in vars(Store).items()
    if callable(value) and not name.startswith("_") and name != "close"
)


def _watch(reference: weakref.ref[ElectedStore], connection: OwnerConnection | None) -> None:
    """The thread behind a store object; it does not keep it from being dropped."""
    while connection is not None:
        if not connection.wait_for_end(LONG_JOINED_SECONDS):
            load_engine()  # not only when the owner ends: it may be another release's by then
            connection.wait_for_end()
        store = reference()
        connection = None if store is None else store.succeed()
        del store


if TYPE_CHECKING:
    _target: type[CallTarget] = ElectedStore
