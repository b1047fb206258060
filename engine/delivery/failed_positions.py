"""What is noted of messages that have failed: when they come again, which is drawn here, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from quire.definitions.retry import retry_seconds
from quire.engine.state.sections.failures import Failure
from quire.env import Env
from quire.intervals import IntervalSet

from .commit_order import CommitOrder
from .delivery_counts import DeliveryCounts
from .selection import Selection

Policy = Mapping[str, Any] | float


class FailingReader(Protocol):
    """Of a subscription: what has to do with failures."""

    queue_id: int
    subscription_id: int
    done: IntervalSet
    attempts: DeliveryCounts
    order: CommitOrder | Selection
    most: int

    def is_spent(self, position: int) -> bool:
        """Whether it was delivered as often as it may be."""


def failures_of(
    reader: FailingReader, env: Env, start: int, end: int, policy: Policy
) -> list[Failure]:
    """Of [start, end), in flight until now, what is not read, with the time when it comes again.

    That is by the policy, or after so many seconds. What has expired waits for nothing.
    """
    failures: list[Failure] = []
    for lo, hi in reader.done.gaps(start, end):
        while lo < hi:
            stop, is_late = reader.order.late(lo, reader.attempts.equal(lo, hi))
            seconds = policy if isinstance(policy, (int, float)) else _wait(reader, env, policy, lo)
            is_over = not seconds or reader.is_spent(lo) or is_late
            due_us = 0 if is_over else env.now_us() + round(seconds * 1e6)
            failures.append(Failure(reader.queue_id, reader.subscription_id, lo, stop, due_us))
            lo = stop
    return failures


def _wait(reader: FailingReader, env: Env, policy: Mapping[str, Any], position: int) -> float:
    """In seconds."""
    deliveries = max(reader.attempts.of(position) + (not reader.most), 1)
    chance = env.random_u64() / (1 << 64) if policy["jitter"] else 0.0
    return retry_seconds(policy, deliveries, chance)
