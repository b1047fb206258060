"""Queues whose messages are numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from quire.errors import QueueFull

CHECK = "check"  # the subscription that keeps what the tests look at


def topic(store: Any, *names: str, **options: Any) -> None:
    """Create topics whose messages stay for the test to see."""
    for name in names:
        store.create_queue(name, kind="topic", **options)
        store.subscribe(name, CHECK, start="earliest")


def put_numbers(store: Any, queue: str, numbers: Iterable[int], at_once: int = 10) -> None:
    """Put numbers as messages, `at_once` in a transaction."""
    payloads = [b"%d" % number for number in numbers]
    for start in range(0, len(payloads), at_once):
        with store.transaction() as txn:
            txn.put_many(queue, payloads[start : start + at_once])


def fill(store: Any, queue: str) -> int:
    """Put messages until the queue takes no more; how many they were."""
    for count in range(10_000):
        try:
            store.put(queue, b"9" * 99)
        except QueueFull:
            return count
    raise AssertionError("the queue is not bounded")


def numbers_in(store: Any, *queues: str) -> Counter[int]:
    """How often each number is in the queues."""
    found: Counter[int] = Counter()
    for queue in queues:
        messages = store.browse(f"{queue}/{CHECK}", max_messages=1_000_000)
        found.update(int(payload) for payload in messages.payloads())
    return found


def position(store: Any, queue: str, subscription: str) -> int:
    """Where a subscription stands."""
    return int({info.name: info.position for info in store.subscriptions(queue)}[subscription])
