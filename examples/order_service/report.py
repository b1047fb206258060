"""The outcome of the orders."""

from __future__ import annotations

from typing import Any

import quire

from .queues import QUEUES

BUSY = ("orders", "paid", "invoices")  # a message in one of these is still to be handled


def is_done(store: quire.Store) -> bool:
    """Return True if nothing is left to be handled."""
    return all(store.queue(name).messages == 0 for name in BUSY)


def report(store: quire.Store) -> dict[str, Any]:
    """Return how many messages each queue has, and the dead letters with their reasons."""
    letters = store.browse("orders.dead", max_messages=100)
    return {
        "queues": {queue["name"]: store.queue(queue["name"]).messages for queue in QUEUES},
        "dead": [
            {
                "payload": letter.payload.decode(),
                "reason": letter.attributes["quire.reason"],
                "deliveries": int(letter.attributes["quire.deliveries"]),
            }
            for letter in letters
        ],
    }
