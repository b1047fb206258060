"""Counts of deliveries, against a plain model."""

from __future__ import annotations

import random

from quire.engine import EmbeddedStore as Store
from quire.engine.records.attempts import Attempts, Row


def rows_of(model: dict[int, int]) -> list[Row]:
    """The model's positions as the longest runs of equal counts."""
    rows: list[Row] = []
    for position, count in sorted(model.items()):
        if rows and rows[-1][1:] == (position, count):
            rows[-1] = rows[-1][0], position + 1, count
        else:
            rows.append((position, position + 1, count))
    return rows


def equal_of(model: dict[int, int], start: int, end: int) -> int:
    """The first position from start on with another count."""
    first = model.get(start, 0)
    return next((p for p in range(start, end) if model.get(p, 0) != first), end)


def test_counts_are_those_of_each_position(rng: random.Random) -> None:
    """Whatever is given back and read in whatever order."""
    for _ in range(50):
        attempts, model = Attempts(), dict[int, int]()
        for _ in range(60):
            start = rng.randrange(30)
            end = rng.randrange(start, 30) + 1
            if rng.random() < 0.7:
                attempts.add(start, end)
                model.update({p: model.get(p, 0) + 1 for p in range(start, end)})
            else:
                attempts.forget(start, end)
                model = {p: n for p, n in model.items() if not start <= p < end}
            assert attempts.rows() == rows_of(model)
            assert bool(attempts) == bool(model)
            position = rng.randrange(30)
            assert attempts.of(position) == model.get(position, 0)
            assert attempts.equal(position, 31) == equal_of(model, position, 31)
        assert Attempts(attempts.rows()).rows() == attempts.rows()


def test_a_message_that_always_fails_costs_no_more_each_time(store: Store, work: str) -> None:
    """One count is held, however often it was given back; it outlives a checkpoint."""
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
        assert subscription.attempts.rows() == [(1, 2, time)]
    with store.transaction() as txn:
        assert txn.get(work) is not None
    assert subscription.attempts.rows() == []
