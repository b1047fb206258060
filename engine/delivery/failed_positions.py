"""Notes on failed messages, with the times of their retries, which are drawn here alone."""

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
    """A subscription, as far as failures need it."""

    queue_id: int
    subscription_id: int
    done: IntervalSet
    attempts: DeliveryCounts
    order: CommitOrder | Selection
    most: int

    def is_spent(self, position: int) -> bool:
        """Return True if the message was delivered as often as its subscription's limit lets it."""


def failures_of(
    reader: FailingReader, env: Env, start: int, end: int, policy: Policy
) -> list[Failure]:
    """Return the unread positions of [start, end), in flight until now, with their retry times.

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
