"""The store that the streams of a connection serve, and what else they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from quire.errors import QuireError, StoreClosed
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.moments import Duration
from quire.remote.wire.delivered_messages import Answer
from quire.remote.wire.named_calls import HoldingStore
from quire.remote.wire.payload_streams import Chunks
from quire.remote.wire.protocol import Decision, Header
from quire.remote.wire.put_places import Placing
from quire.reports.info import TransactionState

from .awaited_sources import AwaitedSources
from .taken_puts import ServedPuts
from .waiting_gets import AwaitingTransaction

if TYPE_CHECKING:
    from quire.remote.access.use_account import UseAccount


class ServedTransaction(ServedPuts, AwaitingTransaction, Protocol):
    """A transaction of a store that can be served."""

    def end_by(self, kind: type[QuireError], text: str, *, wait: bool) -> bool:
        """Roll it back for this reason, also while another thread waits in a call of it."""


class ServedStore(Store, HoldingStore, Chunks, Protocol):
    """A store that can be served to clients."""

    def together(self, actions: Iterable[Callable[[], None]]) -> None:
        """Do the actions, so that their commits share writes."""

    def put_now(self, queue: str, payload: bytes) -> int:
        """Put a message, by a thread that must not wait."""

    def await_get(
        self, source: str, callback: Callable[[], None], taker: object
    ) -> Callable[[], None] | None:
        """Have it called once a get finds something; what withdraws it, None: it may now.

        `taker`: see `AwaitingTransaction.own_taker`.
        """

    def own_name(self, name: str) -> str | None:
        """Return the name of the queue that is called so, by an alias too; None: there is none."""

    def has_verified_sender(self, name: str | None) -> bool:
        """Return True if the senders of the queue, or with None of any queue, are verified."""

    def follow(self, source: str) -> object:
        """Return what the source is, over changes of its name; its text is the name of then."""

    @property
    def commit_timeout(self) -> float:
        """Seconds that a commit waits for room in its queues, unless its client says otherwise."""

    @property
    def fixed_options(self) -> dict[str, int]:
        """The options that the store was made with, and keeps."""

    def transaction(
        self,
        timeout: Duration | None = None,
        large: bool = False,
        owner: str | None = None,
        durable: bool = True,
    ) -> ServedTransaction: ...


class Closing(Protocol):
    """The server, which may be closing."""

    is_closing: bool


class PreparedDecisions(Protocol):
    """Decides prepared transactions, and knows those of its clients."""

    def add(self, xid: str, transaction: Transaction, placing: Placing) -> int:
        """A transaction was prepared; its number."""

    def answer(self, decision: Decision, header: Header) -> Iterator[Answer]:
        """Decide; tell what is known of the transaction."""


class StreamContext(NamedTuple):
    """The parts that the streams of a connection share."""

    connection: object
    account: UseAccount
    awaited: AwaitedSources
    store: ServedStore
    undecided: PreparedDecisions
    client: str  # whose transactions they are
    server: Closing
    waiting: Callable[[Any], AbstractContextManager[None]]  # others are waited for in it, by one
    when_failed: Callable[[], None]  # called after an answer that the store has failed


class MustWait(BaseException):
    """The request waits for other clients, and this thread may not."""


def end_transactions(
    transactions: list[ServedTransaction], reason: str, kind: type[QuireError] = StoreClosed
) -> None:
    """Roll them back for this reason, also while another thread waits in a call of them."""
    for transaction in transactions:
        transaction.end_by(kind, reason, wait=True)


def state_of(transaction: Transaction) -> TransactionState:
    """Return what has become of it."""
    return TransactionState(transaction.state)
