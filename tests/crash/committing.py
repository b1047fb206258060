"""A process that commits in a loop until it is killed, and says what was acknowledged.

    python -m tests.crash.committing STORE after|before|unsynced

Each transaction puts its number into three topics, one of them many times, puts to or gets from a
work queue, and records the number in the ledger. With `after`, a number stands on standard output
once its `commit` has returned: it was acknowledged. `before` is the canary: it acknowledges first.
With `unsynced` most commits need not be durable when they return, and are acknowledged after.
Some transactions travel in the journal, some go to data pages, and some to files of their own.
"""

from __future__ import annotations

import sys
from typing import Any

import quire

__all__ = ["KEY", "OPTIONS", "TOPICS", "WORK", "burst", "create", "number_of", "payload"]

TOPICS = ("first", "second", "burst")
WORK = "work"
KEY = "committing"
OPTIONS: dict[str, Any] = {
    "checkpoint_bytes": 1 << 20,
    "segment_bytes": 4 << 20,
    "data_files": 3,
}  # many checkpoints and segments, and files that are written at the same time

MIDDLE_EVERY, LARGE_EVERY = 17, 29


def burst(number: int) -> list[bytes]:
    """What a transaction puts into `burst`: 400 KB where it is not to fit the journal."""
    if number % MIDDLE_EVERY == 0:
        return [payload(number, 2_000)] * 200
    return [payload(number, number % 50)] * 20


def payload(number: int, size: int = 0) -> bytes:
    """A message that says which transaction it is of."""
    return number.to_bytes(8, "big") + bytes([number % 251]) * size


def number_of(message: bytes) -> int:
    """Which transaction a message is of; raises ValueError if the message is not what was put."""
    number = int.from_bytes(message[:8], "big")
    if message != payload(number, len(message) - 8):
        raise ValueError(f"a message of transaction {number} is not what was put")
    return number


def create(path: str) -> None:
    """Make the store and its queues."""
    with quire.open(path, **OPTIONS) as store:
        for name in TOPICS:
            store.create_queue(name, kind="topic")
            store.subscribe(name, "audit", start="earliest")
        store.create_queue(WORK, kind="work")


def commit(store: Any, number: int, *, durable: bool = True) -> None:
    """One transaction over all queues: odd numbers put work, even ones take it."""
    large = number % LARGE_EVERY == 0
    with store.transaction(large=large, durable=durable) as transaction:
        transaction.put("first", payload(number))
        transaction.put("second", payload(number, number % 3_000))
        transaction.put_many("burst", burst(number))
        if number % 2:
            transaction.put(WORK, payload(number))
        else:
            transaction.get(WORK)
        transaction.enter(KEY, number)


def main() -> None:
    path, acknowledge = sys.argv[1:]
    with quire.open(path, **OPTIONS) as store:
        number = store.integration.ledger(KEY) or 0
        while True:
            number += 1
            if acknowledge == "before":
                print(number, flush=True)
            durable = acknowledge != "unsynced" or number % 7 == 0
            commit(store, number, durable=durable)
            if acknowledge != "before":
                print(number, flush=True)


if __name__ == "__main__":
    main()
