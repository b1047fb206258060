"""The definition of a graph, as its store keeps it: names, queues and steps, without functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

from msgspec import Struct, field, to_builtins

from quire.errors import StoreCorrupt


def subscription_of(graph: str, step: str) -> str:
    """Return the name of a step's subscriptions."""
    return f"{graph}.{step}"


def sources_of(
    graph: str, step: str, kind: str, reads: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return each queue that a step reads, with the subscription that it is read by.

    A streaming step that reads a queue twice has two streams of it, and two subscriptions.
    """
    name = subscription_of(graph, step)
    if kind != "streaming":
        return tuple((queue, name) for queue in dict.fromkeys(reads))
    counts = [reads[: index + 1].count(queue) for index, queue in enumerate(reads)]
    return tuple(
        (queue, name if count == 1 else f"{name}.{count}")
        for queue, count in zip(reads, counts, strict=True)
    )


class QueueDefinition(Struct, frozen=True):
    """A queue that the graph makes where it is not there."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)  # as JSON has them


class StepDefinition(Struct, frozen=True):
    """Queues -> function -> queues."""

    name: str
    kind: str  # "step", "streaming" or "terminal"
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    dead: str | None = None
    limit_messages: int = 0  # the most of a batch; 0: it has no limit but markers
    limit_bytes: int = 0
    trigger_seconds: float = 0.0
    when_full: str = "wait"
    start: str = "earliest"  # where its subscriptions begin
    watermark: str | None = None
    marker: str | None = None  # the attribute of messages that batches end behind
    function: str = ""  # what it is called in its module
    states: tuple[str, ...] = ()  # the keyed states that it reads and changes
    tables: tuple[str, ...] = ()  # those that it reads

    @property
    def inputs(self) -> tuple[str, ...]:
        """The queues that it reads, each once."""
        return tuple(dict.fromkeys(self.reads))

    def sources(self, graph: str) -> tuple[tuple[str, str], ...]:
        """Each queue with the subscription that it is read by: see `sources_of`."""
        return sources_of(graph, self.name, self.kind, self.reads)

    def sources_by_queue(self, graph: str) -> dict[str, list[str]]:
        """The subscriptions by which each queue is read."""
        found: dict[str, list[str]] = {}
        for queue, subscription in self.sources(graph):
            found.setdefault(queue, []).append(subscription)
        return found

    @property
    def outputs(self) -> tuple[str, ...]:
        """The queues that it writes, that of its dead letters too."""
        return self.writes if self.dead is None else (*self.writes, self.dead)


class GraphDefinition(Struct, frozen=True):
    """A whole graph."""

    name: str
    queues: tuple[QueueDefinition, ...] = ()
    steps: tuple[StepDefinition, ...] = ()

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues that it declares, reads or writes, in the order of their first mention."""
        names = [queue.name for queue in self.queues]
        names += [name for step in self.steps for name in (*step.inputs, *step.outputs)]
        return tuple(dict.fromkeys(names))

    def to_bytes(self) -> bytes:
        """Return the definition as the store keeps it: JSON."""
        return json.dumps(to_builtins(self), separators=(",", ":")).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> Self:
        """A definition of the bytes that the store keeps. Raises StoreCorrupt for others."""
        try:
            document = json.loads(data)
            return cls(
                str(document["name"]),
                tuple(
                    QueueDefinition(each["name"], each["options"]) for each in document["queues"]
                ),
                tuple(_step(each) for each in document["steps"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(
                f"the store's definition of a graph cannot be read ({error!r}): start the graph "
                "again, which writes it anew"
            ) from error


def _step(document: Mapping[str, Any]) -> StepDefinition:
    known = {name: document[name] for name in StepDefinition.__struct_fields__ if name in document}
    names = ("reads", "writes", "states", "tables")
    return StepDefinition(**known | {name: tuple(known.get(name, ())) for name in names})
