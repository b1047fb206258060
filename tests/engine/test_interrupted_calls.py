"""An interrupt (a signal's exception) at each step of a put, a get and a rollback.

CPython raises it where a function begins and after a call of one that is built in. A profiler hears
of both, so each of these moments has its turn.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.libraries.late_modules import load_rest
from quire.testing import SimEnv
from tests.kit.limits import Limits
from tests.kit.moments import Alarm, at_moment

Action = Callable[[Transaction], object]


def _put(transaction: Transaction) -> None:
    transaction.put("a", b"x")
    transaction.put("b", b"y")


def _put_again(transaction: Transaction) -> None:
    transaction.put("a", b"x")
    transaction.put("a", b"y")
    transaction.put("b", b"z")


def _put_many(transaction: Transaction) -> None:
    transaction.put("a", b"x")
    transaction.put_many("b", [b"y", b"z"])


def _get(transaction: Transaction) -> None:
    transaction.get("a")
    transaction.get("a")
    transaction.get("b")


def _roll_back(transaction: Transaction) -> None:
    transaction.put("a", b"x")
    transaction.get("a")
    transaction.put("b", b"y")
    transaction.rollback()


def _put_stream(transaction: Transaction) -> None:
    transaction.put("a", b"x")
    with transaction.put_writer("b") as writer:
        writer.write(b"x" * 9000)


ACTIONS: list[Action] = [
    _put,
    _put_again,
    _put_many,
    _get,
    lambda transaction: transaction.get_many("a", 5),
    _roll_back,
    _put_stream,
]


def _raise() -> None:
    raise Alarm


def _interrupted(action: Action, transaction: Transaction, moment: int) -> bool:
    """Whether the action was interrupted, at the moment of that number."""
    load_rest(("quire",))  # imports hold signals back, but not what is raised here (LD3)
    return at_moment(partial(action, transaction), moment, _raise)


def _fill(store: Store, *, together: bool) -> None:
    with store.transaction() as transaction:
        for queue in ("a", "b"):
            if together:
                transaction.put_many(queue, [b"0", b"1", b"2"])
    for number in range(0 if together else 3):
        for queue in ("a", "b"):
            store.put(queue, b"%d" % number)


def _held(store: Store) -> list[tuple[int, ...]]:
    return [
        (info.used_bytes, info.messages, info.open_transactions, info.reserving, delivered)
        for info in store.queues()
        for delivered in [sum(place.delivered for place in store.subscriptions(info.name))]
    ]


@pytest.mark.cases(8)
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("action", ACTIONS, ids=range(len(ACTIONS)))
def test_a_rollback_after_an_interrupt_gives_all_back(
    limits: Limits, action: Action, *, together: bool
) -> None:
    """`together`: the messages that are got stand in one block. New ones for each moment."""
    limits(CHUNK_BYTES=4096)
    gc.collect()  # no finaliser of what other tests have dropped is to be interrupted
    moment, interrupted = 0, True
    with Store.open("/store", env=SimEnv(), background=False) as store:
        for queue in ("a", "b"):
            store.create_queue(queue, kind="work")
        while interrupted:
            moment += 1
            _fill(store, together=together)
            before = _held(store)
            transaction = store.transaction()
            interrupted = _interrupted(action, transaction, moment)
            transaction.rollback()
            assert (moment, _held(store)) == (moment, before)
            assert not store.admin.transactions()
            assert not store._context.write_buffers.total_bytes
            with store.transaction() as transaction:
                for queue in ("a", "b"):
                    got = [bytes(message.payload) for message in transaction.get_many(queue, 10)]
                    assert (moment, got) == (moment, [b"0", b"1", b"2"])
    assert moment > 10


@pytest.mark.cases(2)
@pytest.mark.parametrize("source", ["a", "by-priority"])
def test_an_interrupted_get_takes_nothing_though_its_transaction_commits(source: str) -> None:
    """At each moment of a get: what its caller was not given is there again, and nothing else."""
    load_rest(("quire",))
    moment, interrupted = 0, True
    with Store.open("/store", env=SimEnv(), background=False) as store:
        order = "priority" if source == "by-priority" else "commit"
        store.create_queue(source, kind="work", order=order)
        while interrupted:
            moment += 1
            store.put(source, b"x")
            transaction = store.transaction()
            given: list[object] = []
            interrupted = at_moment(lambda: given.append(transaction.get(source)), moment)  # noqa: B023
            transaction.commit()
            assert (moment, len(given) + len(store.get_many(source))) == (moment, 1)
    assert moment > 10
