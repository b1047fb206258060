"""A queue of the durable state alone: how reads and messages change it, what is told of that."""

from __future__ import annotations

import struct
from random import Random

import pytest

from quire.engine.records import format
from quire.engine.records.commit_record import Part, Read
from quire.engine.state.attempts import Attempts
from quire.engine.state.durable_state import (
    NOBODY,
    SHARED,
    TOPIC,
    WORK,
    DurableQueue,
    QueueConfig,
    QueueEffects,
    Ranges,
)

END = 60
BUILT_IN = 7  # the subscription of a work queue


class Told(QueueEffects):
    """Notes what is told of changes."""

    def __init__(self) -> None:
        self.released: list[int] = []
        self.appended_to: list[tuple[int, int, int]] = []

    def acknowledged(self, read: object, released: Ranges) -> tuple[()]:
        self.released += [position for start, end in released for position in range(start, end)]
        return ()

    def appended(
        self, start: int, end: int, charge: int, held_by: str, transaction_id: int
    ) -> None:
        self.appended_to.append((start, end, charge))


def queue_of(readers: int) -> DurableQueue:
    """A topic with so many subscriptions, from 1 on; none: a work queue."""
    kind, built_in = (TOPIC, 0) if readers else (WORK, BUILT_IN)
    queue = DurableQueue(QueueConfig(1, "q", kind, 1 << 20, None, 0, built_in), {})
    queue.end_position = END
    for number in range(1, readers + 1):
        queue.subscribe(number, str(number), 0, SHARED)
    return queue


def counted(attempts: Attempts) -> dict[int, int]:
    """How often each position was given back."""
    rows = attempts.rows()
    return {position: count for start, end, count, _, _ in rows for position in range(start, end)}


@pytest.mark.parametrize("readers", [0, 1, 2, 3])
def test_a_read_is_applied_by_one_rule(readers: int, seed: int, rounds: int) -> None:
    """Of one position, of none and of many, in any order and again: against sets of positions."""
    for number in range(max(2, rounds // 5)):
        rng = Random(f"reads {seed} {readers} {number}")
        queue = queue_of(readers)
        read: dict[int, set[int]] = {each: set() for each in queue.subscriptions}
        tried: dict[int, dict[int, int]] = {each: {} for each in queue.subscriptions}
        for _ in range(150):
            reader, start = rng.choice(list(read)), rng.randrange(END)
            run = Read(1, reader, start, min(END, start + rng.choice((0, 1, 1, 1, 2, 9))))
            positions = set(range(run.start, run.end))
            if rng.random() < 0.3 and positions:
                queue.hand_out(run)
                for position in positions - read[reader]:
                    tried[reader][position] = tried[reader].get(position, 0) + 1
                continue
            before = set.intersection(*read.values())
            queue.beside = told = Told()
            queue.acknowledge(run)
            queue.acknowledge(run._replace(subscription_id=99))  # which was removed meanwhile
            read[reader] |= positions
            for position in positions:
                tried[reader].pop(position, None)
            by_all = set.intersection(*read.values())
            assert sorted(told.released) == sorted(by_all - before)
            assert {p for lo, hi in queue.released for p in range(lo, hi)} == by_all
            for each, subscription in queue.subscriptions.items():
                done = {p for lo, hi in subscription.done for p in range(lo, hi)}
                assert (done, counted(subscription.attempts)) == (read[each], tried[each])


def test_a_part_that_contradicts_itself_leaves_those_before_it() -> None:
    """The queue ends behind them, and the next message comes there."""
    queue = queue_of(0)
    good = Part(0, 100, 1, 1, 8, 3, format.INLINE)
    with pytest.raises(struct.error):
        queue.append([good, good._replace(length=-1)], 1, 5, 4096, NOBODY, 0)
    assert (queue.end_position, len(queue.tail)) == (END + 3, 1)
    queue.beside = told = Told()
    assert queue.append([good, good], 9, 6, 8192, NOBODY, 0) == 6
    assert told.appended_to == [(END + 3, END + 9, 200)]
    assert [(ref.position, ref.first_id, ref.address) for ref in queue.tail] == [
        (END, 1, 4096), (END + 3, 9, 8192), (END + 6, 12, 8192),
    ]  # fmt: skip
