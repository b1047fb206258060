"""What is done before a graph runs: everything is checked, and then its queues are made.

YPR1. Nothing is made before everything was checked that can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidArgument, QueueExists, QueueNotFound
from quire.order import COMMIT
from quire.row_schema import is_part
from quire.spark_graphs import position_range

from .definition import Queue, Step
from .schemas import check_letters, schemas_of

if TYPE_CHECKING:
    from quire.info import QueueInfo
    from quire.store import Store


def check_no_aliases(store: Store, names: Iterable[str]) -> None:
    """A graph names queues. Raises InvalidArgument where a name is that of an alias.

    Somebody may give an alias to another queue at any time, and a step's positions are of one.
    """
    aliases = store.aliases()
    for name in names:
        if name in aliases:
            raise InvalidArgument(
                f"'{name}' is an alias of queue '{aliases[name]}', and a graph reads and writes "
                f"queues: name '{aliases[name]}', or give the queue another name"
            )


def prepare(
    store: Store,
    graph: str,
    steps: Iterable[Step],
    queues: Mapping[str, Queue],
    *,
    subscribe: bool = True,
) -> dict[str, QueueInfo]:
    """Check the queues of steps, make those that are not there, and their subscriptions.

    Raises InvalidArgument, QueueNotFound, QueueExists.
    """
    steps = list(steps)
    there = {info.name: info for info in store.queues()}
    written = {queue for step in steps for queue in step.writes}
    dead = {step.dead for step in steps if step.dead is not None}
    for step in steps:
        for queue in step.inputs:
            if queue not in there and queue not in written | queues.keys():
                raise QueueNotFound(
                    f"step '{step.name}' reads '{queue}', which no step writes and the store "
                    f"{store.path} does not have; have the graph make it: queue({queue!r})"
                )
    for name in sorted(there.keys() & {q for s in steps for q in (*s.inputs, *s.writes)}):
        if there[name].volatile:
            raise position_range.volatile(name)
    new: dict[str, dict[str, Any]] = {}
    for name in sorted({q for s in steps for q in (*s.inputs, *s.writes)} | queues.keys() | dead):
        given = queues[name].options if name in queues else {}
        kind = {"kind": "work" if name in dead else "topic"}
        new[name] = {"name": name, **kind, **given}
        _check_input(name, steps, new[name])
    for name in sorted(there.keys() & new.keys()):
        _check_input(name, steps, _described(there[name]))
    for name in sorted(dead):
        _check_dead(name, there[name].kind if name in there else new[name]["kind"])
    check_letters(steps, schemas_of(store, queues))
    for name in there.keys() & queues.keys():  # as asked for, or QueueExists
        store.create_queue(exist_ok=True, **_grown(new[name], there[name]))
    _make(store, [given for name, given in new.items() if name not in there])
    if subscribe:
        _subscribe(store, graph, steps)
    return {info.name: info for info in store.queues(new)}


def _grown(given: dict[str, Any], there: QueueInfo) -> dict[str, Any]:
    """As asked for, with the nullable columns that the queue has got since somebody wrote this."""
    schema = given.get("schema")
    if schema is None or there.schema is None or not is_part(schema, there.schema):
        return given
    return given | {"schema": there.schema}


def _make(store: Store, missing: list[dict[str, Any]]) -> None:
    try:
        store.create_queues(missing)
    except QueueExists:  # somebody has made one since, which may be the same
        for given in missing:
            store.create_queue(exist_ok=True, **given)


def _subscribe(store: Store, graph: str, steps: Iterable[Step]) -> None:
    for step in steps:
        if step.kind != "streaming":  # its sources make their own
            store.subscribe_many(f"{graph}.{step.name}", dict.fromkeys(step.inputs, step.start))


def _check_dead(name: str, kind: str) -> None:
    if kind != "work":
        raise InvalidArgument(
            f"queue '{name}' takes dead letters of a step, and is a topic: dead letters are "
            "put back one consumer each, so it has to be a work queue"
        )


def _described(info: QueueInfo) -> dict[str, Any]:
    names = ("kind", "priority", "order", "timed", "grouped")
    found = {name: getattr(info, name) for name in names}
    return found | {"type": "volatile" if info.volatile else "persistent"}


def _check_input(name: str, steps: Iterable[Step], queue: Mapping[str, Any]) -> None:
    """Refuse a queue whose messages cannot be read by position, in commit order."""
    readers = [step.name for step in steps if name in step.inputs]
    if not readers:
        return
    if queue.get("type") == "volatile":
        raise position_range.volatile(name)
    reason = _reason(queue)
    if reason:
        raise InvalidArgument(
            f"step '{readers[0]}' reads queue '{name}', {reason}. Read a plain topic; what has to "
            "come in another order, or later, can be moved to one when it is due"
        )


def _reason(queue: Mapping[str, Any]) -> str:
    by_position = "and a step reads by position, in commit order"
    if queue.get("kind") == "work":
        return (
            "which is a work queue: each message goes to one consumer, and a step would have what "
            "another consumer has taken"
        )
    if queue.get("priority"):
        return f"whose messages are delivered by priority, {by_position}"
    if queue.get("order", COMMIT) != COMMIT:
        return f"whose messages are delivered in the order {queue['order']!r}, {by_position}"
    if queue.get("timed"):
        return f"whose messages may be delayed or expire, {by_position}"
    if queue.get("grouped"):
        return f"whose messages go to one reader for each group, {by_position}"
    return ""
