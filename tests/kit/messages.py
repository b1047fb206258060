"""Messages: every field of one, and putting, looking at and taking them."""

from __future__ import annotations

from typing import Any

from quire.interface.store import Store
from quire.limits import MAX_TIME_US

FIELDS: dict[str, Any] = {
    "priority": 65535,
    "group": 65535,
    "sender": "sender é",
    "correlation_id": "correlation",
    "reply_to": "answers",
    "content_type": "text/plain",
    "expires_at": MAX_TIME_US,
    "deliver_at": 1_700_000_000_000_001,
    "attributes": {"key": "value", "": "", "ключ": "значение"},
}


def take(store: Store, source: str, limit: int = 1_000_000) -> list[bytes]:
    """All payloads that are there, taken and committed."""
    with store.transaction() as txn:
        return txn.get_many(source, limit).payloads()


def payloads_in(store: Store, queue: str) -> list[bytes]:
    """What is committed in a queue, looked at."""
    return store.browse(queue).payloads()


def put_until_full(store: Store, queue: str, size: int) -> None:
    """Put messages until one is refused; at most 100 MB."""
    for _ in range((100 << 20) // size):
        store.put(queue, b"x" * size)
