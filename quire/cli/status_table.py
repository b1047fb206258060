"""The table of queues that a person reads: what waits where, since when, and how full it is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from quire.errors import QuireError

from .printing import age_words, print_table, size_words

_HEADS: Final = (
    "QUEUE", "KIND", "WAITING", "SCHEDULED", "IN FLIGHT", "DEAD", "OLDEST", "USED", "OF",
)  # fmt: skip


def read_status(store: Any) -> dict[str, Any]:
    """Return the store's status, in which what is not due counts as that.

    Of a queue that nobody has read since the store was opened it is not known which messages are
    due: who asks why its next one is not delivered looks at them, if they are few.
    """
    status: dict[str, Any] = store.status()
    timed = {queue["name"] for queue in status["queues"] if queue["timed"] and queue["gets"]}
    sources = [
        "/".join(filter(None, (each["queue"], each["name"])))
        for each in status["subscriptions"]
        if each["queue"] in timed and each["pending"] > each["delayed"] + each["delivered"]
    ]
    for source in sources:
        with suppress(QuireError):
            store.admin.explain(source)
    return store.status() if sources else status


def print_queues_in_short(status: Mapping[str, Any]) -> None:
    """Print a line for each queue, and for each subscription of a topic."""
    print_table([_HEADS, *_rows(status)])


def _rows(status: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for queue in status["queues"]:
        name, readers = queue["name"], _readers_of(status, queue["name"])
        space = size_words(queue["used_bytes"]), size_words(queue["capacity_bytes"])
        if queue["kind"] == "work":
            yield name, "work", *_counts(readers[0]), _age(readers[0]), *space
            continue
        yield name, "topic", f"{queue['messages']:,}", "-", "-", "-", "-", *space
        for reader in readers:
            source = f"  {name}/{reader['name']}"
            yield source, "reader", *_counts(reader), _age(reader), "-", "-"


def _readers_of(status: Mapping[str, Any], queue: str) -> list[Mapping[str, Any]]:
    return [each for each in status["subscriptions"] if each["queue"] == queue]


def _counts(reader: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what waits, comes later, is in flight, and waits for the dead-letter queue."""
    later, taken, dead = reader["delayed"], reader["delivered"], reader["spent"]
    waiting = max(0, reader["pending"] - later - taken - dead)
    return tuple(f"{count:,}" for count in (waiting, later, taken, dead))


def _age(reader: Mapping[str, Any]) -> str:
    """Return the age of the oldest message that is not read."""
    oldest_us = reader["oldest_us"]
    return "-" if oldest_us is None else age_words(time.time() - oldest_us / 1e6)
