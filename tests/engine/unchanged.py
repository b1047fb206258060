"""What no refused call may change."""

from __future__ import annotations

from typing import Any

from quire.engine import EmbeddedStore as Store


def numbers(store: Store) -> tuple[Any, ...]:
    """Of queues and transactions, and a position of the ledger."""
    transactions = [
        {key: value for key, value in shown.items() if key not in ("age_seconds", "seconds_left")}
        for shown in store.status()["transactions"]
    ]
    return store.queues(), transactions, store.integration.ledger("key")
