"""Counts of deliveries, against a plain model."""

from __future__ import annotations

import random

from quire.engine import EmbeddedStore as Store
from quire.engine.state.attempts import AttemptRow, Attempts

Tried = tuple[int, int, int]
NEVER: Tried = 0, 0, 0


def rows_of(model: dict[int, Tried]) -> list[AttemptRow]:
    """The model's positions as the longest runs of which the same is to be told."""
    rows: list[AttemptRow] = []
    for position, tried in sorted(model.items()):
        if rows and rows[-1][1:] == (position, *tried):
            rows[-1] = rows[-1][0], position + 1, *tried
        else:
            rows.append((position, position + 1, *tried))
    return rows


def equal_of(model: dict[int, Tried], start: int, end: int) -> int:
    """The first position from start on of which another thing is to be told."""
    first = model.get(start, NEVER)
    return next((p for p in range(start, end) if model.get(p, NEVER) != first), end)


def one_more(tried: Tried, due_us: int | None, *, noted: bool) -> Tried:
    """After another failure."""
    count, failures, due = tried
    return count + (not noted), failures + noted, due if due_us is None else due_us


def test_counts_are_those_of_each_position(rng: random.Random) -> None:
    """Whatever is given back and read in whatever order."""
    for _ in range(50):
        attempts, model = Attempts(), dict[int, Tried]()
        for _ in range(60):
            start = rng.randrange(30)
            end = rng.randrange(start, 30) + 1
            due, noted = rng.choice([None, 0, 5, 9]), rng.random() < 0.5
            if due is not None and rng.random() < 0.5:
                attempts.fail(start, end, due, noted=noted)
            elif rng.random() < 0.7:
                due, noted = None, False
                attempts.add(start, end)
            else:
                attempts.forget(start, end)
                model = {p: n for p, n in model.items() if not start <= p < end}
                start = end
            for position in range(start, end):
                model[position] = one_more(model.get(position, NEVER), due, noted=noted)
            if rng.random() < 0.05:
                attempts.forget_failures()
                model = {p: (count, 0, 0) for p, (count, _, _) in model.items() if count}
            assert attempts.rows() == rows_of(model)
            assert bool(attempts) == bool(model)
            position = rng.randrange(30)
            own = attempts.of, attempts.failures, attempts.due_us
            assert tuple(ask(position) for ask in own) == model.get(position, NEVER)
            assert attempts.equal(position, 31) == equal_of(model, position, 31)
        assert Attempts(attempts.rows()).rows() == attempts.rows()


def test_a_message_that_always_fails_costs_no_more_each_time(store: Store, work: str) -> None:
    """One count is in memory, however often it was given back, and none of it in the fold."""
    ids = [store.put(work, b"fine"), store.put(work, b"fails")]
    with store.transaction() as txn:
        first = txn.get(work)
        assert first is not None
        assert first.id == ids[0]
    (subscription,) = store._context.state.queue(work).subscriptions.values()
    for time in range(1, 200):
        txn = store.transaction()
        message = txn.get(work)
        assert message is not None
        assert message.delivery_count == time
        txn.rollback()
        assert subscription.attempts.memory.rows() == [(1, 2, time, 0, 0)]
        assert not subscription.attempts.durable
    with store.transaction() as txn:
        assert txn.get(work) is not None
    assert not subscription.attempts
