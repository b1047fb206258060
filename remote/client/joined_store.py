"""A store that another process owns: the interface `quire.interface.store`, whoever owns it.

Each call is a request of the owner that there is, made in the one loop of `_ask`: what is not
answered the policy of the store object (`fail_over`) repeats, has looked up, or raises. What is
known of one owner is in its session, which goes with it.

Once this process owns the store, the owned store's methods take the places of the ones here
(`take_over`), and cost no more than without this class.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from quire.arguments import (
    check_request_ids,
    check_transaction_id,
    check_wait,
    check_xid,
    count_of,
)
from quire.batches.delivered_messages import Messages
from quire.calls.call_table import CallRow, by_row
from quire.calls.documented import documented_by
from quire.errors import OutcomeUnknown, QuireError, RemoteError
from quire.interface.integration import CallTarget
from quire.interface.lookup import MessageKey, Where
from quire.interface.redriving import Redrives
from quire.interface.starts import Start, check_starts
from quire.interface.store import Store
from quire.interface.store_objects import StoreObject
from quire.interface.transaction import Payload, Payloads, Transaction
from quire.limits import DEFAULT_CALL_TIMEOUT
from quire.messages.message import Message
from quire.messages.put_options import StorePutOptions
from quire.moments import Duration
from quire.reports.info import SubscriptionInfo

from .fail_over import CallOwner, FailOver, LostCall
from .joined_transaction import JoinedTransaction
from .owner_session import OwnerSession
from .request_outcomes import (
    UNANSWERED,
    Request,
    RequestAction,
    RequestProgress,
    request_of,
)
from .waits import offloaded

if TYPE_CHECKING:
    from quire.remote.access.tokens import UserToken
    from quire.tls import Tls

T = TypeVar("T")

# The methods whose places those of the owned store take.
OWNED_METHODS: Final = tuple(
    name
    for name, value in vars(Store).items()
    if callable(value) and not name.startswith("_") and name != "close"
)


@documented_by(Store)
class JoinedStore(StoreObject):
    """A joined store. Thread-safe.

    Its policy finds the next owner when its owner ends, or makes this process the owner, or does
    neither. `close` lets go of the store, whichever way it is held.
    """

    is_called_in_greenlets = False  # whose thread nothing may block

    def __init__(self, policy: FailOver, path: str) -> None:
        self.path = path  # its owner may know it by another one
        self.store_id: Final = policy.owner.store_id
        self._policy: Final = policy
        policy.begin(weakref.WeakMethod(self.take_over))

    @classmethod
    def of(cls, session: OwnerSession) -> Self:
        """A store object that goes to no other owner than this session's."""
        return cls(FailOver(session), session.path)

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        epoch: str | None = None,
        call_timeout: float = DEFAULT_CALL_TIMEOUT,
        tls: Tls | None = None,
        token: UserToken | None = None,
    ) -> Self:
        """A store object of the owner that listens at `url` alone, as `OwnerSession` has it."""
        return cls.of(
            OwnerSession(url, epoch=epoch, call_timeout=call_timeout, tls=tls, token=token)
        )

    @property
    def role(self) -> str:
        return self._policy.owner.role

    @property
    def owner_process_id(self) -> int:
        """The process that owns the store, as far as is known."""
        owner = self._policy.owner
        return (
            owner.owner_process_id if isinstance(owner, OwnerSession) else self._policy.process_id
        )

    @property
    def owner(self) -> CallOwner:
        """The session with the owner, or the store itself, once this process owns it."""
        return self._policy.owner

    @property
    def owner_session(self) -> OwnerSession:
        """The session with the owner. Raises RemoteError once this process is that."""
        owner = self._policy.owner
        if not isinstance(owner, OwnerSession):
            raise RemoteError(f"this process owns {self.path}: it is connected to no other")
        return owner

    @property
    def url(self) -> str:
        """The URL of the owner's socket. Raises RemoteError once this process is the owner."""
        return self.owner_session.url

    @property
    def is_lost(self) -> bool:
        """Return True if its owner is gone, and it goes to no other one."""
        return not self._policy.finds_owners and self.owner_session.connection.lost

    @property
    def failed(self) -> bool:
        """Asks the owner."""
        return self._ask(Request.LOOK, lambda owner: owner.failed)

    def check_usable(self) -> None:
        """Raises StoreClosed once it was closed."""
        self._policy.check_usable()

    # Queues and subscriptions

    alter_queue = by_row(Store.alter_queue)
    drop_queue = by_row(Store.drop_queue)
    queues = by_row(Store.queues)
    subscriptions = by_row(Store.subscriptions)
    put_back = by_row(Redrives.put_back)

    def make_subscriptions(
        self,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None,
    ) -> list[SubscriptionInfo]:
        """Make subscriptions; one that is not durable ends with this object."""
        temporary = self._policy.temporary
        ends_with_this = durable is False
        names = check_starts(subscription, starts).keys() - temporary if ends_with_this else set()
        temporary |= names  # first: the owner may change at any time
        try:
            return self._ask(
                Request.REPEATABLE,
                lambda owner: owner.make_subscriptions(
                    subscription, starts, exclusive, durable, where
                ),
            )
        except BaseException:
            temporary -= names
            raise

    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when something may be got from the source."""
        return self._ask(Request.LOOK, lambda owner: owner.await_source(source, callback))

    _unsubscribe = by_row(Store.unsubscribe)

    def unsubscribe(self, queue: str, subscription: str) -> None:
        self._unsubscribe(queue, subscription)
        self._policy.temporary.discard((queue, subscription))

    # Transactions and messages

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> Transaction:
        policy = self._policy
        lost: LostCall | None = None
        while True:
            at = policy.owner
            try:
                made = at.transaction(timeout, large, owner, durable)
            except UNANSWERED as error:
                lost = policy.resolve(Request.BEGIN, at, error, lost)
            else:
                if policy.finds_owners and isinstance(made, JoinedTransaction):
                    made.recovery = self
                return made

    def put(self, queue: str, payload: Payload, **options: Unpack[StorePutOptions]) -> int:
        policy = self._policy
        owner = policy.owner
        try:
            if isinstance(owner, OwnerSession):
                return owner.put(queue, payload, **options)
            return offloaded(owner.put)(queue, payload, **options)
        except UNANSWERED as error:
            has_id = options.get("request_id") is not None
            request = Request.PUT_WITH_ID if has_id else Request.CHANGE
            lost = policy.resolve(request, owner, error, None)
        return self._ask(request, lambda owner: owner.put(queue, payload, **options), lost=lost)

    def put_many(
        self,
        queue: str,
        payloads: Payloads,
        *,
        timeout: Duration | None = None,
        request_ids: Sequence[str] | None = None,
    ) -> list[int]:
        if request_ids is None:
            return self._ask(
                Request.CHANGE,
                lambda owner: Store.put_many(owner, queue, payloads, timeout=timeout),
            )
        rows = list(payloads) if isinstance(payloads, Iterator) else payloads
        known = check_request_ids(request_ids, count_of(rows))
        return self._ask(
            Request.PUT_WITH_ID,
            lambda owner: Store.put_many(owner, queue, rows, timeout=timeout, request_ids=known),
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
        return self._ask(
            Request.GET,
            lambda owner: Store.get(owner, source, _seconds_left(until), id=id, where=where),
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
        return self._ask(
            Request.GET,
            lambda owner: Store.get_many(
                owner, source, max_messages, _seconds_left(until), where=where
            ),
        )

    browse = by_row(Store.browse)

    # The store as a whole

    sync = by_row(Store.sync)
    status = by_row(Store.status)

    def close(self) -> None:
        self._policy.close()

    def take_over(self, owned: Any) -> None:
        """Have the methods of the owned store take the places of the ones here."""
        methods = {name: getattr(owned, name) for name in OWNED_METHODS}
        if self.is_called_in_greenlets:
            methods = {name: offloaded(method) for name, method in methods.items()}
        vars(self).update(methods)

    # Asking the owner that there is

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Make a call, again if need be and if its row says that it may be."""
        if row.facts.of_one_owner and "transaction_id" in arguments:
            check_transaction_id(arguments["transaction_id"])

        def make(owner: CallOwner) -> Any:
            if isinstance(owner, OwnerSession):
                return owner.make(row, arguments)
            return getattr(row.target(owner), row.name)(**arguments)

        return self._ask(
            request_of(row.facts), make, transaction_id=arguments.get("transaction_id")
        )

    def decide(self, xid: str, *, commit: bool) -> None:
        """Decide a prepared transaction, which its xid tells from others."""
        check_xid(xid)
        self._ask(
            Request.DECISION,
            lambda owner: owner.decide(xid, commit=commit),
            is_done=lambda error: not self._is_prepared(xid, error),
        )

    def _is_prepared(self, xid: str, error: QuireError) -> bool:
        try:
            return any(info.xid == xid for info in self.prepared.list())
        except QuireError:
            raise error from None

    def action_for(
        self, request: Request, session: OwnerSession, error: QuireError
    ) -> RequestAction:
        """Return the action for a request that was lost with this error, once it can be done."""
        return self._policy.action_for(request, session, error)

    def _ask(
        self,
        request: Request,
        ask: Callable[[CallOwner], T],
        *,
        transaction_id: int | None = None,
        lost: LostCall | None = None,
        is_done: Callable[[QuireError], bool] | None = None,
    ) -> T | Any:
        """Ask the owner, and the next one if the policy says so.

        `lost`: the call, if it was lost before. `is_done`: looks up whether it took effect, if
        the policy says so; then there is nothing to return.
        """
        policy = self._policy
        while True:
            owner = policy.owner
            try:
                if isinstance(owner, OwnerSession):
                    return ask(owner)
                return offloaded(ask)(owner)
            except UNANSWERED as error:
                if request is Request.GET and isinstance(error, OutcomeUnknown):
                    request = Request.CHANGE  # it was its commit
                lost = policy.resolve(request, owner, error, lost, transaction_id)
                if is_done is not None and lost.action is RequestAction.LOOK_UP:
                    if is_done(error):
                        return None
                    lost.progress = RequestProgress.UNSENT


def _seconds_left(until: float) -> float:
    """Seconds."""
    return max(0.0, until - time.monotonic())


if TYPE_CHECKING:
    _target: type[CallTarget] = JoinedStore
