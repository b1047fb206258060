"""Transactions that are begun again, on every form of a store (`quire.run_transaction`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import quire
import quire.aio
from quire.errors import (
    AlreadyCommitted,
    ConnectionLost,
    Deadlock,
    InvalidArgument,
    LockTimeout,
    OutcomeUnknown,
    QueueNotFound,
    SessionFenced,
    StateConflict,
)
from quire.interface.store import Store as Interface
from quire.interface.transaction import Transaction
from tests.behaviour.forms import AnyStore
from tests.kit.limits import Limits

in_threads = pytest.mark.parametrize(
    "store", ["embedded", "joined", "elected", "network"], indirect=True
)


@pytest.fixture(autouse=True)
def short_pauses(limits: Limits) -> None:
    """Nobody waits long between attempts."""
    import quire.repeated_transactions  # noqa: F401 - its limit is to be there

    limits(FIRST_REPEAT_SECONDS=0.001)


def failing(errors: Sequence[Exception]) -> Callable[[Transaction], int]:
    """A function that puts, and raises the errors in its first calls."""
    calls = 0

    def function(txn: Transaction) -> int:
        nonlocal calls
        calls += 1
        txn.put("work", b"%d" % calls)
        if calls <= len(errors):
            raise errors[calls - 1]
        return calls

    return function


@in_threads
def test_it_runs_again_after_what_was_in_its_way(store: AnyStore, work: str) -> None:
    """Each attempt is a new transaction, of which the last alone commits."""
    errors = [ConnectionLost("a"), Deadlock("b"), StateConflict("c"), LockTimeout("d")]
    assert quire.run_transaction(store, failing(errors)) == 5
    assert [message.payload for message in store.get_many(work)] == [b"5"]


@in_threads
def test_a_conflict_over_a_value_is_met_for_real(store: AnyStore, work: str) -> None:
    """A value that another transaction sets meanwhile is read anew."""
    others = [b"1", b"2"]

    def add(txn: Transaction) -> int:
        before = int(txn.get_value("numbers", "total") or b"0")
        if others:
            with store.transaction() as other:
                other.set_value("numbers", "total", others.pop(0))
        txn.set_value("numbers", "total", b"%d" % (before + 10))
        return before + 10

    assert quire.run_transaction(store, add) == 12
    assert store.states.get("numbers", "total") == b"12"


@in_threads
def test_the_last_error_is_raised(store: AnyStore, work: str) -> None:
    """After so many attempts; and at once what no repeat can mend."""
    errors: list[Exception] = [Deadlock("1"), Deadlock("2"), Deadlock("3")]
    with pytest.raises(Deadlock, match="2"):
        quire.run_transaction(store, failing(errors), attempts=2)
    for error in (SessionFenced("a"), QueueNotFound("b"), OutcomeUnknown("of another call")):
        with pytest.raises(type(error)):
            quire.run_transaction(store, failing([error]), entry=("key", 1))
    assert store.get(work) is None


@in_threads
def test_an_entry_that_is_there_is_told(store: AnyStore, work: str) -> None:
    """What was done before is not done again."""
    assert quire.run_transaction(store, failing([]), entry=("orders", 7)) == 1
    with pytest.raises(AlreadyCommitted):
        quire.run_transaction(store, failing([]), entry=("orders", 7))
    assert [message.payload for message in store.get_many(work)] == [b"1"]


class Unanswered:
    """A store whose first commits have an unknown outcome: they are done, or not."""

    def __init__(self, store: Interface, is_done: bool, *, is_seen: bool = True) -> None:
        """`is_seen`: a look in the ledger finds what is done."""
        self._store = store
        self.integration = store.integration if is_seen else self
        self._is_done = is_done
        self._left = 1

    def ledger(self, _: str) -> None:
        """A commit that is still under way has no entry."""

    def transaction(self, **options: object) -> object:
        """Begin one."""
        txn = self._store.transaction(**options)  # type: ignore[arg-type]
        if self._left:
            self._left -= 1
            commit = txn.commit
            is_done = self._is_done

            class Lost:
                """The transaction, whose block ends so."""

                def __enter__(self) -> object:
                    return txn

                def __exit__(self, *_: object) -> None:
                    if is_done:
                        commit()
                    else:
                        txn.rollback()
                    raise OutcomeUnknown("the owner was lost during a commit")

            return Lost()
        return txn


@in_threads
@pytest.mark.parametrize("is_done", [True, False])
def test_a_commit_with_an_unknown_outcome_happens_once(
    store: AnyStore, work: str, is_done: bool
) -> None:
    """With an entry it is repeated, and found if it was done; without one the error is raised."""
    unanswered = Unanswered(store, is_done)
    quire.run_transaction(
        unanswered,  # type: ignore[arg-type]
        lambda txn: txn.put("work", b"once"),
        entry=("orders", 7),
    )
    assert [message.payload for message in store.get_many(work)] == [b"once"]
    with pytest.raises(OutcomeUnknown):
        quire.run_transaction(
            Unanswered(store, is_done),  # type: ignore[arg-type]
            lambda txn: txn.put("work", b"x"),
        )


@in_threads
@pytest.mark.parametrize("is_seen", [True, False])
def test_the_result_is_that_of_the_attempt_which_took_effect(
    store: AnyStore, work: str, is_seen: bool
) -> None:
    """Whether its entry is found before the function runs again, or by the commit after that."""
    store.put_many(work, [b"first", b"second"])
    runs = 0

    def take(txn: Transaction) -> bytes:
        nonlocal runs
        runs += 1
        message = txn.get(work)
        assert message is not None
        return bytes(message.payload)

    unanswered = Unanswered(store, True, is_seen=is_seen)
    taken = quire.run_transaction(unanswered, take, entry=("orders", 7))  # type: ignore[arg-type]
    assert (taken, runs) == (b"first", 1 if is_seen else 2)
    assert [message.payload for message in store.get_many(work)] == [b"second"]


def test_it_is_the_same_for_asyncio(store_path: Path) -> None:
    """A coroutine function, its conflicts, its entry and its last error."""

    async def run() -> None:
        async with await quire.aio.open(str(store_path)) as store:
            await store.create_queue("work", kind="work")
            errors = [ConnectionLost("a"), Deadlock("b")]

            async def put(txn: quire.aio.AsyncTransaction) -> str:
                await txn.put("work", b"x")
                if errors:
                    raise errors.pop()
                return "done"

            assert await quire.aio.run_transaction(store, put, entry=("key", 1)) == "done"
            assert len(await store.get_many("work")) == 1
            with pytest.raises(AlreadyCommitted):
                await quire.aio.run_transaction(store, put, entry=("key", 1))
            errors.append(Deadlock("b"))
            with pytest.raises(Deadlock):
                await quire.aio.run_transaction(store, put, attempts=1)
            with pytest.raises(InvalidArgument, match="coroutine function"):
                await quire.aio.run_transaction(store, "put")  # type: ignore[arg-type]

    asyncio.run(run())
