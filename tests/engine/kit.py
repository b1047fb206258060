"""What the tests of the engine share: every field of a message, taking, what must not change."""

from __future__ import annotations

from typing import Any

from quire.engine import EmbeddedStore as Store
from quire.engine.reading.block_reader import BlockReader
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
WAIT = 300.0  # seconds, for what must come, on a slow machine too


def take(store: Store, source: str, limit: int = 1_000_000) -> list[bytes]:
    """All payloads that are there, taken and committed."""
    with store.transaction() as txn:
        return txn.get_many(source, limit).payloads()


def numbers(store: Store) -> tuple[Any, ...]:
    """What no refused call may change."""
    transactions = [
        {key: value for key, value in shown.items() if key not in ("age_seconds", "seconds_left")}
        for shown in store.status()["transactions"]
    ]
    return store.queues(), transactions, store.integration.ledger("key")


def put_until_full(store: Store, queue: str, size: int) -> None:
    """Put messages until one is refused; at most 100 MB."""
    for _ in range((100 << 20) // size):
        store.put(queue, b"x" * size)


def cached_bytes(reader: BlockReader) -> int:
    """What the blocks in memory take."""
    return reader._fresh.size_bytes + reader._blocks.size_bytes
