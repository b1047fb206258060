"""The queues of the service, and what the store does for each of them by itself."""

from __future__ import annotations

from typing import Any

import quire

MAX_DELIVERIES = 5

QUEUES: tuple[dict[str, Any], ...] = (
    {"name": "orders.dead", "kind": "work", "text": "orders to be looked at by a person"},
    # Express orders overtake the others. An order that fails again and again, or that kills each
    # process which handles it, ends in the dead-letter queue.
    {
        "name": "orders",
        "kind": "work",
        "order": "priority",
        "max_deliveries": MAX_DELIVERIES,
        "dead_letter": "orders.dead",
        "text": "what customers have ordered",
    },
    {"name": "paid", "kind": "topic", "text": "every order that was paid, for whoever wants it"},
    {"name": "charges", "kind": "work", "text": "for the books: one for each order that was paid"},
    {"name": "parcels", "kind": "work", "text": "for the warehouse"},
    # An invoice is written when the order is paid, and mailed some time later.
    {"name": "invoices", "kind": "work", "timed": True, "text": "to be mailed when they are due"},
    {"name": "mailed", "kind": "work", "text": "invoices that were mailed"},
    {"name": "receipts", "kind": "work", "text": "what customers have who waited"},
)
SUBSCRIPTIONS = (("paid", "shipping"), ("paid", "invoicing"))
EXPRESS, USUAL = 9, 1  # priorities


def set_up(store: quire.Store) -> None:
    """Make what is not there yet; every process does so when it starts."""
    for queue in QUEUES:
        store.create_queue(**queue, exist_ok=True)
    for topic, subscription in SUBSCRIPTIONS:
        store.subscribe(topic, subscription)
