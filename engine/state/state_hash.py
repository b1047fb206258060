"""One number for all that a store keeps durably: equal where the same records were folded.

- HS1: it covers what the fold keeps, and nothing of where a machine has put it: no addresses, no
  pages, borders of blocks or space; nor what is in memory only. So two stores that have folded the
  same records have the same hash, whatever their page size, data files and checkpoints.
- HS2: each attribute of the state is in the tables below, which say what is hashed, or its test
  says why it is not. A new one that is in neither fails it.

The values are written as JSON, with sorted keys, and hashed by BLAKE2b.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from quire.engine.records.local_tail import shared
from quire.libraries.late_imports import importing
from quire.limits import TEMPORARY_IDS

from .catalog import QUEUE
from .durable_state import DurableQueue, DurableState, DurableSubscription
from .sections.kinds import pack_prepared

HashedValues = dict[str, Any]


OF_STORE: Final[Mapping[str, Callable[[DurableState], Any]]] = {
    "catalog": lambda state: {
        name: {str(key): entry for key, entry in entries.items()}
        for name, entries in state.catalog.items()
        if entries
    },
    "last_time_us": lambda state: state.last_time_us,
    "ledger": lambda state: dict(state.ledger),
    "next_id": lambda state: state.next_id,
    "next_queue_id": lambda state: state.next_queue_id,
    "next_subscription_id": lambda state: state.next_subscription_id,
    "prepared": lambda state: {
        xid: shared(pack_prepared(record)).hex() for xid, record in state.prepared.items()
    },
    "queues": lambda state: {
        str(queue_id): {name: value_of(queue) for name, value_of in OF_QUEUE.items()}
        for queue_id, queue in state.queues.items()
        if queue_id in state.catalog[QUEUE] and not queue.config.is_volatile
    },
}
OF_QUEUE: Final[Mapping[str, Callable[[DurableQueue], Any]]] = {
    "end_position": lambda queue: queue.end_position,
    "released": lambda queue: queue.released.to_list(),
    "requests": lambda queue: list(queue.requests.copy_known().items()),
    "subscriptions": lambda queue: {
        str(subscription_id): {
            name: value_of(subscription) for name, value_of in OF_SUBSCRIPTION.items()
        }
        for subscription_id, subscription in queue.subscriptions.items()
        if subscription_id < TEMPORARY_IDS
    },
}
OF_SUBSCRIPTION: Final[Mapping[str, Callable[[DurableSubscription], Any]]] = {
    "attempts": lambda subscription: subscription.attempts.rows(),
    "done": lambda subscription: subscription.done.to_list(),
    "numbers": lambda subscription: list(subscription.numbers.items()),
}


def values_of(state: DurableState) -> HashedValues:
    """Return a copy of the hashed values. Called while nothing is folded."""
    return {name: value_of(state) for name, value_of in OF_STORE.items()}


def hash_of(values: HashedValues) -> str:
    """In hexadecimal digits."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    with importing():
        from hashlib import blake2b  # which loads OpenSSL

    return blake2b(text.encode(), digest_size=16).hexdigest()
