"""The store of the demo: its queues, who reads them, and how a process comes to it.

    publisher -> departures -> enrich -> enriched -> late -> delays
                                                  -> warn -> alerts -> worker -> notices

`enrich`, `late` and `warn` are the steps of the graph that Spark runs (`demo.pipeline`).

Every topic has one more subscription, `audit`, which holds all messages for the reconciliation.
"""

from __future__ import annotations

from pathlib import Path

from quire.opening import open_or_serve
from quire.remote import RemoteStore
from quire.store import Store

__all__ = ["ALERTS", "AUDIT", "GRAPH", "QUEUES", "TOPICS", "create_queues", "join"]

GRAPH = "flights"
ALERTS = "alerts"
AUDIT = "audit"
TOPICS = ("departures", "enriched", "delays", "notices")
QUEUES = ("departures", "enriched", "delays", "alerts", "notices")


def create_queues(store: Store) -> None:
    """Make the queues and subscriptions in a new store."""
    for name in QUEUES:
        store.create_queue(name, kind="topic" if name in TOPICS else "work")
    for name in TOPICS:
        store.subscribe(name, AUDIT, start="earliest")


def join(path: Path) -> RemoteStore:
    """The store, in the hands of its owner, a process that is started if there is none."""
    return open_or_serve(str(path))
