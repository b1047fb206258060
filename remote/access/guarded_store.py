"""A store as one user has it: each call is checked by its row before it is made.

GS1. Who serves a user has this object, and neither the store nor a transaction of it. It has no
    call that is not checked: what it does not define is not there.
GS2. A call is checked by the rights of that moment, so a change of them holds for the next call, of
    open transactions and waiting gets too. A transaction whose rights have changed since it began
    has all that it did checked again at its commit, so it takes no effect that is not allowed.
GS3. Errors and results name nothing that the user may not see (CK3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from quire.arguments import Bytes
from quire.calls.call_table import CallRow, by_row
from quire.errors import QuireError
from quire.interface.redriving import Redrives
from quire.interface.store import Store
from quire.interface.store_objects import StoreObject
from quire.messages.message_id import PutId
from quire.messages.payload_reader import Stream
from quire.moments import Duration
from quire.remote.wire.named_calls import REQUESTS, HoldingStore
from quire.remote.wire.protocol import AWAIT, STEP

from .call_check import CallCheck, needs_of
from .granted_rights import Need
from .guarded_transaction import GuardedTransaction
from .hidden_names import hidden, hiding
from .shown_results import SHOWN, UserInForce, owner_of_transaction
from .users_document import Right
from .verified_senders import check_sender

_PREPARE: Final = REQUESTS[STEP, "prepare"]


class DecidesPrepared(Protocol):
    """Decides prepared transactions, and knows those of its clients."""

    def add(self, xid: str, transaction: Any, placing: Any) -> int: ...

    def answer(self, decision: Any, header: Any) -> Iterator[Any]: ...


class GuardedStore(StoreObject):
    """A store for one user (GS1)."""

    role = "owner"

    def __init__(self, store: Any, user: UserInForce) -> None:
        """`store`: a `ServedStore`."""
        self._store = store
        self._user = user
        self.path = store.path

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._user.name}>"

    @property
    def user_name(self) -> str:
        """The user's name."""
        return self._user.name

    def _check(self) -> CallCheck:
        return CallCheck(self._user.rights, self)

    def make(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        """Make a call, if it is allowed; return what of its result the user may see."""
        return self._made(row, arguments)

    def _made(self, row: CallRow, arguments: Mapping[str, Any]) -> Any:
        check = self._check()
        checked = check.check_call(row, arguments)
        outcome = "done"
        try:
            with hiding(self._user, self, arguments):
                found = getattr(row.target(self._store), row.name)(**checked)
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            if row.facts.changes and row.facts.needs and row.facts.noted:
                self._user.note_call(row.op, check.allowed, outcome)
        shows = row.facts.shows
        return SHOWN[shows](self._user, checked, found) if shows else found

    # Names, for the check

    def own_name(self, name: str) -> str | None:
        """See `StoredNames`."""
        found: str | None = self._store.own_name(name)
        return found

    def queue_of_schedule(self, name: str) -> str | None:
        """See `StoredNames`."""
        found: dict[str, str] = {each.name: each.queue for each in self._store.cron.list()}
        return found.get(name)

    def has_begun(self, transaction_id: object) -> bool:
        """See `StoredNames`."""
        found = self.admin.transactions()
        return any(info.id == transaction_id for info in found)

    def has_verified_sender(self, name: str | None) -> bool:
        """See `StoredNames`."""
        found: bool = self._store.has_verified_sender(name)
        return found

    def checked_sender(self, queue: str, sender: object) -> str:
        """See `StoredNames`."""
        return check_sender(self._user.name, queue, sender)

    def note_refusal(self, need: Need) -> None:
        """See `StoredNames`."""
        self._user.note_refusal(need)

    # What the server needs beside rows

    @property
    def failed(self) -> bool:
        found: bool = self._store.failed
        return found

    @property
    def commit_timeout(self) -> float:
        """As `ServedStore`."""
        found: float = self._store.commit_timeout
        return found

    @property
    def fixed_options(self) -> dict[str, int]:
        """As `ServedStore`."""
        found: dict[str, int] = self._store.fixed_options
        return found

    @property
    def store_id(self) -> int:
        """As `CallTarget`."""
        found: int = self._store.integration.store_id
        return found

    def put(self, queue: str, payload: Any, *, durable: bool = True, **options: Any) -> int:
        """Put a message alone, waiting for room."""
        transaction = self.transaction(durable=durable)
        with transaction:
            found = transaction.put(queue, payload, **options)
        return int(found)

    def put_now(self, queue: str, payload: bytes) -> int:
        """Put a message alone."""
        check = self._check()
        own = check.put(queue)
        if check.sends_as_user(own):
            return self._put_as_user(own, payload)
        try:
            found: int = self._store.put_now(own, payload)
        except QuireError as error:
            raise hidden(self._user, self, error) from None
        return found

    def _put_as_user(self, queue: str, payload: bytes) -> int:
        with self.transaction() as transaction:
            transaction.put_timeout = 0.0
            message_id = transaction.put(queue, payload)
            transaction.commit(0.0)
        return PutId.of(int(message_id), message_id.expires_by)

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> GuardedTransaction:
        words = owner_of_transaction(self._user, owner)
        begun = self._store.transaction(timeout, large, words, durable)
        return GuardedTransaction(begun, self._user, self._check())

    def follow(self, source: str) -> object:
        """As `ServedStore`."""
        own = self._check().source(Right.GET, source)
        with hiding(self._user, self):
            return self._store.follow(own)

    def await_source(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """As `CallTarget`."""
        row = REQUESTS[AWAIT, ""]
        checked = self._check().check_call(row, {"source": source})
        with hiding(self._user, self):
            found: Callable[[], None]
            found = self._store.integration.when_ready(checked["source"], callback)
        return found

    def chunk(self, stream: Stream, number: int) -> Bytes:
        """As `Chunks`: the id of its file is 64 random bits, which only the message tells."""
        found: Bytes = self._store.chunk(stream, number)
        return found

    def decisions(self, decides: DecidesPrepared) -> DecidesPrepared:
        """Return what decides prepared transactions for this user."""
        return _GuardedDecisions(decides, self._check, self._user)

    # Rows

    alter_queue = by_row(Store.alter_queue)
    drop_queue = by_row(Store.drop_queue)
    queues = by_row(Store.queues)
    unsubscribe = by_row(Store.unsubscribe)
    subscriptions = by_row(Store.subscriptions)
    sync = by_row(Store.sync)
    browse = by_row(Store.browse)
    status = by_row(Store.status)
    subscribe_for = by_row(HoldingStore.subscribe_for)
    claim_for = by_row(HoldingStore.claim_for)
    put_back = by_row(Redrives.put_back)

    def close(self) -> None:
        """Do nothing: the store is not the user's to close."""


class _GuardedDecisions:
    """Decisions of prepared transactions, for one user."""

    def __init__(
        self, decides: DecidesPrepared, check: Callable[[], CallCheck], user: UserInForce
    ) -> None:
        self._decides = decides
        self._check = check
        self._user = user

    def add(self, xid: str, transaction: Any, placing: Any) -> int:
        return self._decides.add(xid, transaction, placing)

    def answer(self, decision: Any, header: Any) -> Iterator[Any]:
        check = self._check()
        check.check_call(_PREPARE, {})
        self._user.note_call(f"prepared.{decision.value}", check.allowed, "begun")
        return self._decides.answer(decision, header)


for _row in REQUESTS.values():  # CK1
    needs_of(_row)
