"""What a transaction has removed by id and does not: it is there again, and delivered to nobody."""

from __future__ import annotations

from collections.abc import Sequence

from quire.engine.queues.queue import TakenRow
from quire.engine.queues.subscription import Subscription


def bring_back(taken: list[TakenRow], removed: Sequence[tuple[Subscription, int]]) -> None:
    """Give back these positions of what was taken; may be called again after an interrupt."""
    for subscription, position in removed:
        for index, row in enumerate(taken):
            if row[5] is not subscription or not row[2] <= position < row[3]:
                continue
            rest = [part_of(row, lo, hi) for lo, hi in without(position, [(row[2], row[3])])]
            with row[4].lock:
                try:
                    subscription.give_back(position, position + 1, counted=False)
                except BaseException:
                    subscription.go_on_giving_back(position, position + 1)
                    taken[index : index + 1] = rest
                    raise
                taken[index : index + 1] = rest  # no call in between
                row[4].wake()
            break


def drop_last(
    taken: list[TakenRow], subscription: Subscription, runs: Sequence[tuple[int, int]]
) -> None:
    """Take these away, as far as they are the last of what was taken."""
    for lo, hi in reversed(runs):
        last = taken[-1] if taken else None
        if last is not None and last[5] is subscription and last[3] == hi:
            if last[2] < lo:
                taken[-1] = part_of(last, last[2], lo)
            else:
                del taken[-1]


def but_for(
    removed: Sequence[tuple[Subscription, int]],
    subscription: Subscription,
    runs: Sequence[tuple[int, int]],
) -> list[tuple[Subscription, int]]:
    """What of it is none of these."""
    return [
        (own, position)
        for own, position in removed
        if own is not subscription or all(not lo <= position < hi for lo, hi in runs)
    ]


def part_of(taken: TakenRow, start: int, end: int) -> TakenRow:
    """Another run of the same subscription, whose record is looked up."""
    queue_id, subscription_id, _, _, queue, subscription, _, _ = taken
    return queue_id, subscription_id, start, end, queue, subscription, None, 0


def without(position: int, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """DeliveryRuns without one position."""
    left: list[tuple[int, int]] = []
    for lo, hi in runs:
        left += (lo, min(position, hi)), (max(position + 1, lo), hi)
    return [(start, end) for start, end in left if start < end]


def has_retry(taken: Sequence[TakenRow]) -> bool:
    """Whether any of it comes later where it fails."""
    for own in taken:  # noqa: SIM110 - a generator would take longer than the look
        if own[5].retry is not None:
            return True
    return False
