"""The store of the demo: its queues, who reads them, and how a process comes to it.

    publisher -> departures -[ops]-> Spark -> enriched, delays, alerts -> worker -> notices

Every topic has one more subscription, `audit`, which holds all messages for the reconciliation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import quire

__all__ = ["ALERTS", "AUDIT", "QUEUES", "SOURCE", "TOPICS", "create", "join"]

SOURCE = "departures/ops"
ALERTS = "alerts"
AUDIT = "audit"
TOPICS = ("departures", "enriched", "delays", "notices")
QUEUES = ("departures", "enriched", "delays", "alerts", "notices")

JOIN_SECONDS = 60.0


def create(path: Path) -> None:
    """Make the store with all its queues and subscriptions."""
    with quire.open(str(path)) as store:
        for name in QUEUES:
            store.create_queue(name, kind="topic" if name in TOPICS else "work")
        for name in TOPICS:
            store.subscribe(name, AUDIT)
        store.subscribe(*SOURCE.split("/"))


def join(path: Path) -> Any:
    """The store, once its owner can be reached."""
    return quire.open(str(path))
