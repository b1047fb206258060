"""The catalog: what is defined in a store rather than queued, as typed entries.

A change puts or deletes one entry, which its type and a number name. What that does to the rest of
the durable state is said once, in `TYPES`: a new kind of thing is one more row there, and one more
limit. The changes of one CATALOG record are made together or not at all. Layout: `format`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from quire.definitions.properties import Properties, read_properties
from quire.engine.records.format import NO_ENTRY
from quire.errors import InvalidArgument, StoreCorrupt, StoreVersion
from quire.limits import (
    MAX_ALIASES,
    MAX_CATALOG_ENTRY_BYTES,
    MAX_QUEUE_ENTRY_BYTES,
    MAX_QUEUES,
    MAX_SCHEDULE_ENTRY_BYTES,
    MAX_SCHEDULES,
    MAX_STATE_CHANGE_BYTES,
    MAX_STATE_KEYS,
    MAX_SUBSCRIPTION_ENTRY_BYTES,
    MAX_SUBSCRIPTIONS,
)

from .durable_state import (
    CatalogEntry,
    DurableQueue,
    DurableState,
    Effects,
    QueueConfig,
    SubscriptionForm,
)

Body = Mapping[str, Any]

QUEUE: Final = "queue"
SUBSCRIPTION: Final = "subscription"
ALIAS: Final = "alias"
STORE: Final = "store"
SCHEDULE: Final = "schedule"
ARCHIVE: Final = "archive"
ARCHIVE_NUMBER: Final = 1  # of the only one
STORE_NUMBER: Final = 1  # of the entry that says whether the store is stopped
LAST_START_NUMBER: Final = 2  # of the one that says when something started that has a rate
STATE: Final = "state"
RAN_KEY: Final = "quire.schedule:{}"
"""The ledger key, with a schedule's number, whose version is the last due time that it was put for,
in microseconds since the epoch."""


class CatalogChange(NamedTuple):
    """One entry is put, or deleted where there is no body."""

    type: str
    key: int
    body: dict[str, Any] | None


class EntryType(Struct, frozen=True):
    """A type of entry. `put` and `delete` raise KeyError, TypeError or ValueError to refuse one."""

    fields: frozenset[str]  # that a body may have; another one is a newer release's
    most: int  # entries of the type in a store
    most_bytes: int  # of a change, as the record has it
    put: Callable[[DurableState, Effects, int, Body, str], None]
    delete: Callable[[DurableState, Effects, int], None]


def change(state: DurableState, effects: Effects, made: CatalogChange, where: str) -> None:
    """Apply one. Raises StoreVersion; KeyError, TypeError or ValueError for a contradiction."""
    name, key, body = made
    kind, entries = type_named(name, where), state.catalog[name]
    if body is not None:
        check_fields(name, body, where)
    if body is None:
        kind.delete(state, effects, key)
        entries.pop(key, None)
    else:
        kind.put(state, effects, key, body, where)
        version = entries[key].version + 1 if key in entries else 1
        entries[key] = CatalogEntry(version, body)


def type_named(name: str, where: str) -> EntryType:
    """Raises StoreVersion for a type of a newer release."""
    kind = TYPES.get(name)
    if kind is None:
        raise StoreVersion(
            f"{where}: a catalog entry of type {name!r}, which this release does not know: use a "
            "newer one"
        )
    return kind


def check_fields(name: str, body: Body, where: str) -> None:
    """Raise StoreVersion for a field of a newer release: passing over it would not obey it."""
    if not body.keys() <= TYPES[name].fields:
        unknown = ", ".join(sorted(map(repr, body.keys() - TYPES[name].fields)))
        raise StoreVersion(
            f"{where}: a catalog entry of type {name!r} with {unknown}, which this release does "
            "not know: use a newer one"
        )


def pack(state: DurableState, changes: Sequence[CatalogChange]) -> bytes:
    """The body of a CATALOG record. Raises InvalidArgument where a limit forbids it."""
    texts = [json.dumps(made, separators=(",", ":")) for made in changes]
    more: dict[str, int] = {}
    for made, text in zip(changes, texts, strict=True):
        kind = TYPES[made.type]
        if len(text) > kind.most_bytes:
            raise InvalidArgument(
                f"a {made.type} takes {len(text)} bytes of the catalog: at most {kind.most_bytes}"
            )
        if made.body is not None:
            more[made.type] = more.get(made.type, 0) + (made.key not in state.catalog[made.type])
    for name, count in more.items():
        most = TYPES[name].most
        if count and len(state.catalog[name]) + count > most:
            raise InvalidArgument(
                f"the store holds {len(state.catalog[name])} entries of type {name!r}, and {count} "
                f"more would be too many: at most {most}"
            )
    return f"[{','.join(texts)}]".encode()


def unpack(body: bytes, where: str) -> list[CatalogChange]:
    """Read a CATALOG record. Raises StoreCorrupt."""
    try:
        changes = [CatalogChange(str(name), int(key), own) for name, key, own in json.loads(body)]
        if all(own is None or isinstance(own, dict) for _, _, own in changes):
            return changes
    except (ValueError, TypeError, RecursionError) as error:
        raise StoreCorrupt(f"{where}: unreadable definition ({error!r})") from error
    raise StoreCorrupt(f"{where}: unreadable definition")


def queue_config(key: int, body: Body) -> QueueConfig:
    """Raises KeyError, TypeError or ValueError for a definition that is none."""
    most = body["max_messages"]
    return QueueConfig(
        queue_id=key,
        name=str(body["name"]),
        kind=str(body["kind"]),
        capacity=int(body["capacity"]),
        max_messages=None if most is None else int(most),
        created_us=int(body["created_us"]),
        subscription_id=int(body["subscription_id"]),
        data_file=int(body["data_file"]),
        properties=read_properties(body),
        is_volatile=bool(body.get("volatile", False)),
    )


def add_queue(state: DurableState, effects: Effects, queue: DurableQueue, used: int) -> None:
    """A queue enters the state."""
    config = queue.config
    effects.made(queue, used)
    state.queues[config.queue_id] = queue
    _name(state, effects, config.name, queue)
    state.next_queue_id = max(state.next_queue_id, config.queue_id + 1)
    state.next_subscription_id = max(state.next_subscription_id, config.subscription_id + 1)


def _name(state: DurableState, effects: Effects, name: str, queue: DurableQueue) -> None:
    state.names[name] = queue
    effects.named(name, queue)


def _unname(state: DurableState, effects: Effects, name: str) -> None:
    if state.names.pop(name, None) is not None:
        effects.named(name, None)


def _put_queue(state: DurableState, effects: Effects, key: int, body: Body, where: str) -> None:
    config = queue_config(key, body)
    known = state.queues.get(key)
    if known is not None and _is_altered(known.config, config):
        _rename(state, effects, known, config.name)
        known.alter(config)
        return
    if known is not None or config.name in state.names:
        effects.fault(where, f"makes queue {config.name!r} ({key}), which is there already")
    add_queue(state, effects, DurableQueue(config, state.ltds), 0)


def _is_altered(before: QueueConfig, after: QueueConfig) -> bool:
    """Return True if both are one queue, with another name, other limits or properties."""
    return before == replace(
        after,
        name=before.name,
        capacity=before.capacity,
        max_messages=before.max_messages,
        properties=before.properties,
    )


def _rename(state: DurableState, effects: Effects, queue: DurableQueue, name: str) -> None:
    before = queue.config.name
    if name == before:
        return
    if name in state.names:
        raise ValueError(f"renames {before!r} to {name!r}, which is there already")
    _name(state, effects, name, queue)
    _unname(state, effects, before)
    for ltds_id, holder in state.ltds.items():
        if holder == before:
            state.ltds[ltds_id] = name


def _delete_queue(state: DurableState, effects: Effects, key: int) -> None:
    queue = state.queues.pop(key)
    name = queue.config.name
    if state.names.get(name) is queue:
        _unname(state, effects, name)
    aliases = state.catalog.get(ALIAS, {})
    for alias in [alias for alias, entry in aliases.items() if entry.body["queue_id"] == key]:
        _unname(state, effects, aliases.pop(alias).body["name"])
    schedules = state.catalog.get(SCHEDULE, {})
    for number in [n for n, entry in schedules.items() if entry.body["queue_id"] == key]:
        del schedules[number]
    for subscription_id in queue.subscriptions:
        state.catalog[SUBSCRIPTION].pop(subscription_id, None)
    effects.dropped(queue)
    for ltds_id in [ltds_id for ltds_id, holder in state.ltds.items() if holder == name]:
        del state.ltds[ltds_id]


def _put_subscription(
    state: DurableState, effects: Effects, key: int, body: Body, where: str
) -> None:
    queue, form = state.queues[body["queue_id"]], subscription_form(body)
    queue.subscribe(key, str(body["name"]), int(body["start"]), form)
    state.next_subscription_id = max(state.next_subscription_id, key + 1)


def subscription_form(body: Body) -> SubscriptionForm:
    """Once all were shared and durable, and asked for everything."""
    where = body.get("where")
    return SubscriptionForm(
        bool(body.get("exclusive", False)),
        bool(body.get("durable", True)),
        None if where is None else str(where),
    )


def _delete_subscription(state: DurableState, effects: Effects, key: int) -> None:
    queue_id = state.catalog[SUBSCRIPTION][key].body["queue_id"]
    state.queues[queue_id].unsubscribe(key)


def _put_alias(state: DurableState, effects: Effects, key: int, body: Body, where: str) -> None:
    name, queue = str(body["name"]), state.queues[body["queue_id"]]
    known = state.catalog.get(ALIAS, {}).get(key)
    if name in state.names if known is None else known.body["name"] != name:
        raise ValueError(f"makes alias {name!r} ({key}), which is there already")
    _name(state, effects, name, queue)
    state.next_queue_id = max(state.next_queue_id, key + 1)  # their numbers are of one row


def _delete_alias(state: DurableState, effects: Effects, key: int) -> None:
    _unname(state, effects, state.catalog[ALIAS][key].body["name"])


def index_catalog(state: DurableState, effects: Effects) -> None:
    """A checkpoint's catalog and queues are there: aliases and values of states are found again."""
    for entry in state.catalog.get(ALIAS, {}).values():
        _name(state, effects, str(entry.body["name"]), state.queues[entry.body["queue_id"]])
    for key, entry in state.catalog.get(STATE, {}).items():
        state.values.put(key, None, entry.body)
    for entry in state.catalog.get(ARCHIVE, {}).values():
        effects.archived(entry.body)


def _put_store(state: DurableState, effects: Effects, key: int, body: Body, where: str) -> None:
    if key == LAST_START_NUMBER:
        if not all(type(body[name]) is int for name in ("opening", "last_start_us")):
            raise ValueError("it is not told when something started at last")
    elif not all(isinstance(body[name], bool) for name in ("puts", "gets")):
        raise ValueError("the store is neither stopped nor not")


def _put_state(state: DurableState, effects: Effects, key: int, body: Body, where: str) -> None:
    known = state.catalog[STATE].get(key)
    state.values.put(key, None if known is None else known.body, body)


def _delete_state(state: DurableState, effects: Effects, key: int) -> None:
    if key != NO_ENTRY:
        state.values.delete(state.catalog[STATE][key].body)


def _put_schedule(state: DurableState, effects: Effects, key: int, body: Body, where: str) -> None:
    if body["queue_id"] not in state.queues:
        raise ValueError(f"schedule {body['name']!r} ({key}) is of no queue")
    state.next_queue_id = max(state.next_queue_id, key + 1)  # their numbers are of one row, too


def _put_archive(state: DurableState, effects: Effects, key: int, body: Body, where: str) -> None:
    if key != ARCHIVE_NUMBER or body.keys() != _ARCHIVE_FIELDS:
        raise ValueError("it does not say where and how records are archived")
    effects.archived(body)


def _delete_archive(state: DurableState, effects: Effects, key: int) -> None:
    effects.archived(None)


def _delete(state: DurableState, effects: Effects, key: int) -> None:
    """Nothing but the entry goes. What a schedule has put, the ledger keeps."""


_QUEUE_FIELDS: Final = frozenset({
    "name", "kind", "capacity", "max_messages", "created_us", "subscription_id", "data_file",
    "volatile", "dropped", *Properties._fields,
})  # fmt: skip
_SCHEDULE_FIELDS: Final = frozenset({
    "name", "queue_id", "cron", "timezone", "missed", "paused", "payload", "created_us",
    "since_us", "priority", "group", "sender", "correlation_id", "reply_to", "content_type",
    "ttl", "delay", "attributes", "group_key",
})  # fmt: skip

_ARCHIVE_FIELDS: Final = frozenset({
    "url", "history", "keep_seconds", "limit", "full", "boundary_place",
})  # fmt: skip

TYPES: Final = {
    QUEUE: EntryType(_QUEUE_FIELDS, MAX_QUEUES, MAX_QUEUE_ENTRY_BYTES, _put_queue, _delete_queue),
    SUBSCRIPTION: EntryType(
        frozenset({"queue_id", "name", "start", "exclusive", "durable", "where", "keeper"}),
        MAX_SUBSCRIPTIONS, MAX_SUBSCRIPTION_ENTRY_BYTES, _put_subscription, _delete_subscription,
    ),
    ALIAS: EntryType(
        frozenset({"name", "queue_id"}),
        MAX_ALIASES, MAX_CATALOG_ENTRY_BYTES, _put_alias, _delete_alias,
    ),
    STORE: EntryType(
        frozenset({"puts", "gets", "opening", "last_start_us"}),
        2, MAX_CATALOG_ENTRY_BYTES, _put_store, _delete,
    ),
    STATE: EntryType(
        frozenset({"name", "key", "value"}),
        MAX_STATE_KEYS, MAX_STATE_CHANGE_BYTES, _put_state, _delete_state,
    ),
    SCHEDULE: EntryType(
        _SCHEDULE_FIELDS, MAX_SCHEDULES, MAX_SCHEDULE_ENTRY_BYTES, _put_schedule, _delete
    ),
    ARCHIVE: EntryType(
        _ARCHIVE_FIELDS, 1, MAX_CATALOG_ENTRY_BYTES, _put_archive, _delete_archive
    ),
}  # fmt: skip
