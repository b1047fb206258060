"""A graph in words: its steps, what they read and write, how their batches end and commit."""

from __future__ import annotations

from collections.abc import Iterator

from .definition import GraphDefinition, StepDefinition
from .graph_progress import GraphSight, QueueSight


def explain(definition: GraphDefinition, sight: GraphSight | None = None) -> str:
    """Several lines. With `sight` they tell how it is now, too."""
    return "\n".join(_lines(definition, sight))


def _lines(definition: GraphDefinition, sight: GraphSight | None) -> Iterator[str]:
    yield f"graph {definition.name}"
    yield "queues"
    options = {queue.name: queue.options for queue in definition.queues}
    for name in definition.queue_names:
        seen = None if sight is None else sight.queues.get(name)
        yield f"  {name}: {_queue(options.get(name, {}), seen)}"
    for step in definition.steps:
        yield f"{step.kind} {step.name}"
        yield from (f"  {line}" for line in _step(step))
        if sight is not None and step.name in sight.steps:
            yield from (f"  {line}" for line in _now(step, sight))
    if sight is not None:
        yield from map(str, sight.left)


def _queue(options: object, seen: QueueSight | None) -> str:
    fields = dict(options) if isinstance(options, dict) else {}
    schema = (seen.schema if seen is not None else None) or fields.pop("schema", None)
    parts = [f"rows of {schema}" if schema else "bytes"]
    parts += [f"{name} {value}" for name, value in fields.items() if name != "schema"]
    if seen is not None:
        parts.append(f"{seen.messages} messages, {seen.fill:.0%} of {size(seen.capacity_bytes)}")
    return "; ".join(parts)


def _step(step: StepDefinition) -> Iterator[str]:
    yield f"reads {', '.join(step.inputs)}, from {step.start} on"
    if step.writes:
        yield f"writes {', '.join(step.writes)}"
    if step.states:
        yield f"remembers by key: {', '.join(step.states)}"
    if step.tables:
        yield f"looks into {', '.join(step.tables)}"
    if step.dead is not None:
        yield f"dead letters go to {step.dead}"
    if step.kind == "streaming":
        late = "" if step.watermark is None else f", messages up to {step.watermark} late"
        yield f"cuts: Spark's micro-batches{late}; its windows and joins are in Spark's checkpoint"
        yield "commits: what a micro-batch writes to all outputs, in one transaction"
        return
    yield f"cuts: {_cuts(step)}"
    if step.kind == "terminal":
        yield "commits: the positions read, when the function has returned (at least once)"
        return
    parts = ["all outputs"] * bool(step.writes) + ["dead letters"] * (step.dead is not None)
    parts += ["positions", "state", *(f"rows of {each}" for each in step.states), "number"]
    yield f"commits: {', '.join(parts)}, in one transaction"
    full = "it waits, and holds nothing" if step.when_full == "wait" else "the step fails"
    yield f"where an output is full, {full}"


def _cuts(step: StepDefinition) -> str:
    """Describe where its batches end."""
    limits = f"up to {step.limit_messages} messages or {size(step.limit_bytes)}"
    several = len(step.inputs) > 1
    if step.marker is None:
        text = limits + ", of all inputs up to one point of the commit order" * several
    else:
        text = f"behind the next message with the attribute {step.marker}"
        text += ", of one value in all inputs" * several
        text += f"; before it in parts, each {limits}" if step.limit_messages else ""
    return text + f", every {step.trigger_seconds:g} s at most" * bool(step.trigger_seconds)


def _now(step: StepDefinition, sight: GraphSight) -> Iterator[str]:
    seen = sight.steps[step.name]
    parts = [f"paused{f' ({seen.paused_for})' if seen.paused_for else ''}"] * seen.is_paused
    if step.kind != "streaming":  # whose numbers are in Spark's checkpoint
        parts.append("no batch yet" if seen.number is None else f"batch {seen.number} is committed")
    parts += [
        f"{each.lag_messages} messages ({size(each.lag_bytes)}) of {each.queue} to read"
        if each.is_subscribed
        else f"no subscription to {each.queue}"
        for each in seen.inputs
    ]
    if seen.awaits and seen.lag_messages:
        parts.append(f"waiting for {', '.join(map(_marker, seen.awaits.items()))}")
    if seen.state_keys:
        parts.append(f"{seen.state_keys} values kept")
    parts += map(str, seen.states)
    if seen.dead_letters:
        parts.append(f"{seen.dead_letters} dead letters")
    yield f"now: {', '.join(parts)}"


def _marker(awaited: tuple[str, str]) -> str:
    queue, value = awaited
    return f"marker {value:.100} in {queue}" if value else f"a marker in {queue}"


def size(size_bytes: int) -> str:
    """Bytes, in a unit that makes them short."""
    amount = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} TiB"
