"""The preparation of a graph's run: everything is checked, and then its queues are made.

- Nothing is made before everything was checked that can be.
YPR2. All subscriptions of a graph are there before any of its steps reads, also those of steps that
    are paused, that another run is to start, or that Spark streams: what one step has read is let
    go of only when all have, and no step begins behind another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from quire.definitions.order import COMMIT, PRIORITY
from quire.definitions.row_schema import is_part
from quire.errors import InvalidArgument, QueueExists, QueueNotFound
from quire.interface.starts import Start
from quire.keyed import open_state
from quire.spark_graphs import position_range
from quire.spark_graphs.options import Starts, read_options
from quire.spark_graphs.planning.retention import NAMED_STARTS
from quire.spark_graphs.task_files.task_files import files_at

from .definition import GraphQueue, Step
from .schemas import check_letters, schemas_of
from .step_state import StepState

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.reports.info import QueueInfo

    StepStart = tuple[Start, Starts | None]  # of a step, or of a streaming one's options


def check_no_aliases(store: Store, names: Iterable[str]) -> None:
    """A graph names queues. Raises InvalidArgument where a name is that of an alias.

    Somebody may give an alias to another queue at any time, and a step's positions are of one.
    """
    aliases = store.admin.aliases()
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
    queues: Mapping[str, GraphQueue],
    *,
    subscribe: bool = True,
) -> dict[str, QueueInfo]:
    """Check the queues of steps, make those that are not there, and their subscriptions.

    Raises InvalidArgument, QueueNotFound, QueueExists.
    """
    steps = list(steps)
    starts = _starts(steps, graph, store.path) if subscribe else {}
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
        options = queues[name].options if name in queues else {}
        kind = {"kind": "work" if name in dead else "topic"}
        new[name] = {"name": name, **kind, **options}
        _check_input(name, steps, new[name])
    for name in sorted(there.keys() & new.keys()):
        _check_input(name, steps, _described(there[name]))
    for name in sorted(dead):
        _check_dead(name, there[name].kind if name in there else new[name]["kind"])
    check_letters(steps, schemas_of(store, queues))
    for name in there.keys() & queues.keys():  # as asked for, or QueueExists
        store.create_queue(exist_ok=True, **_grown(new[name], there[name]))
    _make(store, [options for name, options in new.items() if name not in there])
    for state in dict.fromkeys(each for step in steps for each in (*step.states, *step.tables)):
        open_step_state(store, state)
    _subscribe(store, starts)
    return {info.name: info for info in store.queues(list(new))}


def open_step_state(store: Store, state: StepState) -> None:
    """Make a state that is not there, or see that it is as the graph says."""
    ttl = None if state.ttl_us is None else state.ttl_us / 1e6
    files = files_at(store.path)
    open_state(store, state.stored, list(state.key), state.schema, ttl, files=files)


def _grown(options: dict[str, Any], there: QueueInfo) -> dict[str, Any]:
    """Return the options, with the nullable columns that the queue has got since."""
    schema = options.get("schema")
    if schema is None or there.schema is None or not is_part(schema, there.schema):
        return options
    return options | {"schema": there.schema}


def _make(store: Store, missing: list[dict[str, Any]]) -> None:
    try:
        store.admin.create_queues(missing)
    except QueueExists:  # somebody has made one since, which may be the same
        for options in missing:
            store.create_queue(exist_ok=True, **options)


def _starts(steps: Iterable[Step], graph: str, path: str) -> dict[tuple[str, str], StepStart]:
    """Return where new subscriptions begin, by queue and name. Raises InvalidArgument."""
    found: dict[tuple[str, str], StepStart] = {}
    for step in steps:
        for queue, name in step.sources(graph):
            starting = None
            if step.kind == "streaming":  # whose options may say it
                options = {"queue": queue, "startingOffsets": str(step.start), **step.options}
                starting = read_options({**options, "path": path}, streaming=True).starting
            found[queue, name] = step.start, starting
    return found


def _first_position(store: Store, queue: QueueInfo, start: StepStart) -> Start:
    first, starting = start
    if starting is None:
        return first
    position = position_range.start_of(store, queue, starting)
    return NAMED_STARTS.get(position, position)


def _subscribe(store: Store, starts: Mapping[tuple[str, str], StepStart]) -> None:
    """Make the subscriptions that are not there, all with one commit (YPR2)."""
    infos = {info.name: info for info in store.queues({queue for queue, _ in starts})}
    new = {
        f"{queue}/{name}": _first_position(store, infos[queue], start)
        for (queue, name), start in starts.items()
        if name not in infos[queue].subscriptions
    }
    if new:
        store.integration.subscribe_many(None, new)


def _check_dead(name: str, kind: str) -> None:
    if kind != "work":
        raise InvalidArgument(
            f"queue '{name}' takes dead letters of a step, and is a topic: dead letters are "
            "put back one consumer each, so it has to be a work queue"
        )


def _described(info: QueueInfo) -> dict[str, Any]:
    names = ("kind", "order", "timed", "grouped", "keep_latest")
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
    if queue.get("order") == PRIORITY:
        return f"whose messages are delivered by priority, {by_position}"
    if queue.get("order", COMMIT) != COMMIT:
        return f"whose messages are delivered in the order {queue['order']!r}, {by_position}"
    for option, what in (
        ("timed", "whose messages may be delayed or expire"),
        ("keep_latest", "which keeps the latest message of each key, whoever has read the others"),
        ("grouped", "whose messages go to one reader for each group"),
    ):
        if queue.get(option):
            return f"{what}, {by_position}"
    return ""
