"""A loop over the messages of a source, each in a transaction that ends with its turn.

- A message is yielded with its transaction open, and that ends when the loop comes for the next one
  (commit), or when the body raises or leaves (rollback): a message is done with, or there again for
  somebody else.
- LM2: a loop that waits holds no transaction, no thread of the owner, and no lock. The transaction
  begins when there is something to get, so the whole of its time is the body's. (With
  `ack="block"` the one transaction stays open meanwhile.)
- LM7: one that has looked in vain waits first for the messages that follow, as there will be none:
  a look in vain is a transaction that begins, gets nothing and is rolled back. For how many, that
  doubles each time; once it is there at the first look, the next one is looked for at once.
- LM3: an owner that is lost before anything was taken is no matter to the loop: it goes on with the
  next one. One that is lost later ends the transaction, and the loop with ConnectionLost.
- `stop` may be called by any thread: the loop ends before it takes anything more.
- LM5: one that is dropped with its transaction open rolls that back. A finaliser can run anywhere,
  also in the midst of a call of the store that holds a lock: there it leaves the transaction to
  that one's own finaliser, which takes none.
- LM6: what it waits for by a selector, nobody can tell without a look at each message. So it waits
  in transactions of their own, `CHOSEN_WAIT_SECONDS` each, after which it sees that it is stopped.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar, cast

from quire.arguments import (
    Acknowledge,
    check_ack,
    check_max_messages,
    check_source,
    check_sources,
    check_wait,
)
from quire.batches.delivered_messages import Messages
from quire.calls.errand import Errand
from quire.calls.wake_up import WakeUp
from quire.env import OsEnv
from quire.errors import ConnectionLost, QuireError, TransactionClosed
from quire.limits import CHOSEN_WAIT_SECONDS, FOREVER_SECONDS, OWNERS_LOST, WAITED_FIRST
from quire.messages.message import Message
from quire.selectors.template import SelectorOrTemplate, check_selecting

from .integration import Integration
from .transaction import Transaction, TransactionSource

T = TypeVar("T")

_ENV: Final = OsEnv()
_CALLS_USERS: Final = "quire.workers"  # a module of Quire that holds no lock while it calls others


class Consumed(TransactionSource[Transaction], Protocol):
    """A store, as far as one who takes messages has to do with it."""

    @property
    def integration(self) -> Integration:
        """The calls that notify when something can be got."""


class ConsumerOptions(NamedTuple):
    """The checked options of a consumer."""

    source: str
    max_messages: int
    single: bool  # a Message, rather than Messages
    timeout: float  # seconds; FOREVER_SECONDS: for ever
    ack: Acknowledge
    owner: str | None = None  # of its transactions
    where: SelectorOrTemplate | None = None

    @classmethod
    def of(
        cls,
        source: object,
        max_messages: object,
        timeout: object,
        ack: object,
        where: object = None,
    ) -> Self:
        """Raises InvalidArgument."""
        number, chosen = check_max_messages(max_messages), check_selecting(where)
        seconds, how = check_wait(timeout), check_ack(ack)
        check = check_sources if chosen is None else check_source  # of one, to look at all
        return cls(check(source), number, number == 1, seconds, how, where=chosen)


class ConsumedMessages(NamedTuple):
    """The messages that a consumer has got, and the open transaction that has got them."""

    transaction: Transaction
    found: Message | Messages


def get(
    options: ConsumerOptions, transaction: Transaction, seconds: float = 0.0
) -> Message | Messages | None:
    """The next message or messages, if there are any, or one comes within so many seconds."""
    source, most, where = options.source, options.max_messages, options.where
    if where is None:
        if options.single:
            return transaction.get(source, seconds)
        return transaction.get_many(source, most, seconds) or None
    if options.single:
        return transaction.get(source, seconds, where=where)
    return transaction.get_many(source, most, seconds, where=where) or None


def take(
    store: Consumed, options: ConsumerOptions, seconds: float = 0.0
) -> ConsumedMessages | None:
    """The next of them in a new transaction, which is left open.

    None if none is there (LM3), nor comes within so many seconds (LM6).
    """
    owners_lost = 0
    while True:
        # This waits for the next owner. If it has waited in vain, it says so.
        transaction = store.transaction(None, False, options.owner, options.ack != "lazy")
        try:
            return _take(options, transaction, seconds)
        except ConnectionLost as error:  # nothing was taken
            owners_lost += 1
            if error.late or owners_lost > OWNERS_LOST:
                raise


def _take(
    options: ConsumerOptions, transaction: Transaction, seconds: float
) -> ConsumedMessages | None:
    try:
        found = get(options, transaction, seconds)
    except BaseException:
        transaction.rollback()
        raise
    if found is not None:
        return ConsumedMessages(transaction, found)
    transaction.rollback()
    return None


class Consumer(Generic[T]):
    """The messages of a source, one after another or in batches. Made by `store.consume`.

    An iterator, and a context manager that surely ends its transaction. Used by one thread, but for
    `stop`.
    """

    _transaction: Transaction | None = None

    def __init__(self, store: Consumed, options: ConsumerOptions) -> None:
        self._store = store
        self._options = options
        self._wake = WakeUp()
        self._stopped = False
        self._ended = False
        self._in_vain = 1  # of so many messages is waited for before a look, next time
        self._waits_first = 0  # for so many messages still (LM7)

    def __repr__(self) -> str:
        if self._transaction is not None:
            how = f"in transaction {self._transaction.id}"
        else:
            how = "ended" if self._ended or self._stopped else "between messages"
        return f"<Consumer of {self._options.source}, {how}>"

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():  # the interpreter may have cleared this module
            return
        if self._transaction is None or _is_called_in_quire():
            return
        with suppress(QuireError):  # it is rolled back, whatever the reason
            self._transaction.rollback()

    @property
    def transaction(self) -> Transaction:
        """The open transaction that has got what was yielded last: what is put in it goes along.

        To roll it back has the message delivered again. Raises TransactionClosed if there is none.
        """
        if self._transaction is None:
            raise not_open()
        return self._transaction

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._options.ack != "block":
            self.acknowledge()
        until = _ENV.monotonic() + self._options.timeout
        errand = Errand(until) if self._options.timeout < FOREVER_SECONDS else None
        has_waited = self._waits_first > 0 and not (self._stopped or self._ended)
        if has_waited:
            self._waits_first -= 1
            self._wait(self._options.timeout)
        while not (self._stopped or self._ended):
            found = self._take(until) if errand is None else errand.do(partial(self._take, until))
            if found is not None:
                if not has_waited:
                    self._in_vain = 1
                return cast(T, found)
            left = until - _ENV.monotonic()
            if left <= 0:
                break
            if self._options.where is None:
                self._wait_in_vain(left)
            has_waited = True
        self._ended = True
        raise StopIteration

    def acknowledge(self) -> None:
        """Commit now: what was got is done with, and what was put beside it is there.

        Nothing happens between two transactions. Raises what `Transaction.commit` raises: then it
        is rolled back, and what was got is there again.
        """
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.__exit__(None, None, None)

    def stop(self) -> None:
        """Let the loop end when it comes for the next message, or waits for it. By any thread."""
        self._stopped = True
        self._wake.set()

    def close(self) -> None:
        """Roll back what is not committed, and end the loop; twice is once."""
        self._ended = True
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            if kind is None and self._options.ack == "block":
                self.acknowledge()
        finally:
            self.close()

    def _take(self, until: float) -> Message | Messages | None:
        seconds = 0.0
        if self._options.where is not None:
            seconds = min(max(until - _ENV.monotonic(), 0.0), CHOSEN_WAIT_SECONDS)
        if self._transaction is not None:  # the block's
            if self._transaction.state == "open":
                return get(self._options, self._transaction, seconds)
            self.acknowledge()  # the body has ended it; if it was somebody else, this says so
        taken = take(self._store, self._options, seconds)
        if taken is None:
            return None
        self._transaction = taken.transaction
        return taken.found

    def _wait_in_vain(self, seconds: float) -> None:
        """Wait, after a look in vain (LM7); the block's transaction is open, and looks again."""
        if self._options.ack != "block":
            self._in_vain = min(2 * self._in_vain, WAITED_FIRST)
            self._waits_first = self._in_vain
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        """Until something may be there, or it is stopped (LM2)."""
        withdraw = self._store.integration.when_ready(self._options.source, self._wake.set)
        try:
            if self._wake.is_set():  # there is something: more may follow
                self._waits_first = 0
            self._wake.wait(seconds)
        finally:
            withdraw()
            self._wake.clear()


def not_open() -> TransactionClosed:
    """Return the error to raise between two transactions."""
    return TransactionClosed(
        "there is no open transaction: one begins with each message that the loop takes, and ends "
        "before the next"
    )


def _is_called_in_quire() -> bool:
    """Return True if a call of the store is under way in this thread (LM5)."""
    frame: FrameType | None = sys._getframe(2)  # under the finaliser
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("quire.") and module != _CALLS_USERS:
            return True
        frame = frame.f_back
    return False
