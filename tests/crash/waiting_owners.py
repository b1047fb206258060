"""A process that waits until it owns a store, and then puts until it is killed or loses its lock.

    python -m tests.crash.waiting_owners STORE NAME

It says `owner` when it owns the store, and the number of each put that has returned.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import quire

__all__ = ["CHURN", "KEPT", "OPTIONS", "text"]

OPTIONS: dict[str, Any] = {"share": False, "checkpoint_bytes": 1 << 18, "segment_bytes": 1 << 18}
KEPT, CHURN = "kept", "churn"


def text(name: str, number: int) -> bytes:
    """What a process puts; the size varies, so that some go to the data file at once."""
    return f"{name} {number} ".encode() + bytes(number % 7 * 1000)


def wait_and_own(path: str) -> quire.Store:
    """Open the store once nobody has it; again if it loses its lock as it is opened."""
    while True:
        try:
            return quire.open(path, **OPTIONS)
        except (quire.StoreLocked, quire.StoreFailed):
            time.sleep(0.002)


def main(path: str, name: str) -> None:
    store = wait_and_own(path)
    print("owner", flush=True)
    number = 0
    with contextlib.suppress(quire.StoreFailed), store:
        while True:
            store.put(KEPT, text(name, number))
            print(number, flush=True)
            number += 1
            store.put(CHURN, bytes(5000))
            if number % 5 == 0:
                with store.transaction() as transaction:
                    transaction.get_many(CHURN, 5)


if __name__ == "__main__":
    main(*sys.argv[1:])
