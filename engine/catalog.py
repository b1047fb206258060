"""The catalog: what is defined in a store rather than queued, as typed entries.

A change puts or deletes one entry, which its type and a number name. What that does to the rest of
the durable state is said once, in `TYPES`: a new kind of thing is one more row there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from .durable_state import CatalogEntry, DurableQueue, DurableState, Effects, Q, QueueConfig

Body = Mapping[str, Any]

QUEUE: Final = "queue"
SUBSCRIPTION: Final = "subscription"


class CatalogChange(NamedTuple):
    """One entry is put, or deleted where there is no body."""

    type: str
    key: int
    body: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class EntryType:
    """What an entry of the type does. Both raise KeyError, TypeError or ValueError to refuse it."""

    put: Callable[[DurableState[Any], Effects[Any], int, Body, str], None]
    delete: Callable[[DurableState[Any], int], None]


def change(state: DurableState[Q], effects: Effects[Q], made: CatalogChange, where: str) -> None:
    """Apply one. Raises KeyError, TypeError or ValueError for what contradicts the state."""
    kind, key, body = made
    if body is None:
        TYPES[kind].delete(state, key)
        state.catalog.pop((kind, key), None)
        return
    TYPES[kind].put(state, effects, key, body, where)
    before = state.catalog.get((kind, key))
    state.catalog[kind, key] = CatalogEntry(1 if before is None else before.version + 1, body)


def queue_config(key: int, body: Body) -> QueueConfig:
    """Raises KeyError, TypeError or ValueError for a definition that is none."""
    most = body["max_messages"]
    return QueueConfig(
        queue_id=int(key),
        name=str(body["name"]),
        kind=str(body["kind"]),
        capacity=int(body["capacity"]),
        max_messages=None if most is None else int(most),
        created_us=int(body["created_us"]),
        subscription_id=int(body["subscription_id"]),
        data_file=int(body.get("data_file", 0)),  # once there was no more than one
    )


def queue_entry(config: QueueConfig) -> CatalogEntry:
    """The entry of a queue that came without one."""
    body = {name: getattr(config, name) for name in QueueConfig.__slots__ if name != "queue_id"}
    return CatalogEntry(1, body)


def add_queue(state: DurableState[Q], effects: Effects[Q], queue: DurableQueue, used: int) -> Q:
    """A queue enters the state."""
    config = queue.config
    added = effects.made(queue, used)
    state.queues[config.queue_id] = state.names[config.name] = added
    state.next_queue_id = max(state.next_queue_id, config.queue_id + 1)
    state.next_subscription_id = max(state.next_subscription_id, config.subscription_id + 1)
    return added


def _put_queue(
    state: DurableState[Q], effects: Effects[Q], key: int, body: Body, where: str
) -> None:
    queue = DurableQueue(queue_config(key, body), state.ltds)
    if key in state.queues or queue.config.name in state.names:
        effects.fault(where, f"makes queue {queue.config.name!r} ({key}), which is there already")
    add_queue(state, effects, queue, 0)


def _delete_queue(state: DurableState[Q], key: int) -> None:
    queue = state.queues.pop(key)
    name = queue.durable.config.name
    if state.names.get(name) is queue:
        del state.names[name]
    for subscription_id in queue.durable.subscriptions:
        state.catalog.pop((SUBSCRIPTION, subscription_id), None)
    queue.drop()
    for ltds_id in [ltds_id for ltds_id, holder in state.ltds.items() if holder == name]:
        del state.ltds[ltds_id]


def _put_subscription(
    state: DurableState[Q], effects: Effects[Q], key: int, body: Body, where: str
) -> None:
    state.queues[body["queue_id"]].subscribe(int(key), str(body["name"]), int(body["start"]))
    state.next_subscription_id = max(state.next_subscription_id, key + 1)


def _delete_subscription(state: DurableState[Q], key: int) -> None:
    queue_id = state.catalog[SUBSCRIPTION, key].body["queue_id"]
    state.queues[queue_id].unsubscribe(key)


TYPES: Final = {
    QUEUE: EntryType(_put_queue, _delete_queue),
    SUBSCRIPTION: EntryType(_put_subscription, _delete_subscription),
}
