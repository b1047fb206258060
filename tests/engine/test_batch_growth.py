"""Single messages of a batch: what each call takes does not grow with the batch.

Steps of the interpreter are counted, not time: of four times as many messages four times as many.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.testing import SimEnv

FEW = 40
Txn = Any


def steps(action: Callable[[], object]) -> int:
    """How many lines of Python it runs, loops and what it calls included."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def reject(txn: Txn, messages: list[Any]) -> None:
    """Every other one."""
    for message in messages[::2]:
        txn.reject(message)


def reject_backward(txn: Txn, messages: list[Any]) -> None:
    """Every other one, the last one first."""
    for message in messages[::-2]:
        txn.reject(message)


def reject_later(txn: Txn, messages: list[Any]) -> None:
    """With a delay."""
    for message in messages[::2]:
        txn.reject(message, delay=60.0)


def reject_and_get(txn: Txn, messages: list[Any]) -> None:
    """And take it again."""
    for message in messages[::2]:
        txn.reject(message)
        assert txn.get("q").id == message.id


def reject_get_unget(txn: Txn, messages: list[Any]) -> None:
    """And give that back."""
    for message in messages[::2]:
        txn.reject(message)
        txn.get("q")
        txn.unget()


def reject_and_roll_back(txn: Txn, messages: list[Any]) -> None:
    """And all of the rest at the end."""
    reject(txn, messages)
    txn.rollback()


def reject_and_commit(txn: Txn, messages: list[Any]) -> None:
    """And read the rest at the end."""
    reject(txn, messages)
    txn.commit()


def move(txn: Txn, messages: list[Any]) -> None:
    """Each by itself."""
    for message in messages[::2]:
        txn.move([message], "to")


def remove(txn: Txn, messages: list[Any]) -> None:
    """By id, of what is in the queue."""
    for message in messages[::2]:
        assert txn.remove("q", message.id)


def remove_and_roll_back(txn: Txn, messages: list[Any]) -> None:
    """So that all of them are there again."""
    remove(txn, messages)
    txn.rollback()


def get_by_id(txn: Txn, messages: list[Any]) -> None:
    """Every other one."""
    for message in messages[::2]:
        assert txn.get("q", id=message.id)


def get_by_id_and_unget(txn: Txn, messages: list[Any]) -> None:
    """Each is given back."""
    for message in messages[::2]:
        assert txn.get("q", id=message.id)
        txn.unget()


def hold(txn: Txn, messages: list[Any]) -> None:
    """Each by itself."""
    for message in messages[::2]:
        assert txn.read("q", id=message.id, hold=True)


def hold_and_get(txn: Txn, messages: list[Any]) -> None:
    """All at once, and each by itself."""
    assert len(txn.read_many("q", len(messages), hold=True)) == len(messages)
    get_by_id(txn, messages)


def hold_and_remove(txn: Txn, messages: list[Any]) -> None:
    """All at once, and each by itself."""
    assert len(txn.read_many("q", len(messages), hold=True)) == len(messages)
    remove(txn, messages)


def hold_and_roll_back(txn: Txn, messages: list[Any]) -> None:
    """All of it is let go of."""
    hold(txn, messages)
    txn.rollback()


OF_A_BATCH = [
    reject, reject_backward, reject_later, reject_and_get, reject_get_unget, reject_and_roll_back,
    reject_and_commit, move,
]  # fmt: skip
BY_ID = [
    remove, remove_and_roll_back, get_by_id, get_by_id_and_unget, hold, hold_and_get,
    hold_and_remove, hold_and_roll_back,
]  # fmt: skip


def steps_of(work: Callable[[Txn, list[Any]], None], count: int, *, is_taken: bool) -> int:
    """Those of the work with a batch of so many messages, that the transaction has got or not."""
    with Store.open("/s", env=SimEnv(), background=False) as store:
        store.create_queue("q")
        store.create_queue("to")
        store.put_many("q", [b"m"] * count)
        txn = store.transaction()
        messages = list(txn.get_many("q", count))
        if not is_taken:
            txn.rollback()
            txn = store.transaction()
        found = steps(lambda: work(txn, messages))
        txn.rollback()
    return found


@pytest.mark.cases(3)
@pytest.mark.parametrize("work", [*OF_A_BATCH, *BY_ID], ids=lambda work: work.__name__)
def test_what_a_call_takes_does_not_grow_with_the_batch(
    work: Callable[[Txn, list[Any]], None],
) -> None:
    """Four times as many messages take at most five times as many steps."""
    is_taken = work in OF_A_BATCH
    steps_of(work, 4, is_taken=is_taken)  # what is loaded at the first use is loaded
    few = steps_of(work, FEW, is_taken=is_taken)
    many = steps_of(work, 4 * FEW, is_taken=is_taken)
    assert many < 5 * few
