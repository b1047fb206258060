"""The status of a graph's run: plain frozen values, which JSON can hold too."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, to_builtins

from quire.graphs import StateSight


class Phase(StrEnum):
    """The phase of a step.

    | phase | what it means |
    |---|---|
    | starting | its streaming query begins, and has not looked for messages yet |
    | idle | it has read all there is, or waits for its trigger |
    | running | a batch is on its way |
    | isolating | a batch has failed (`last_error`), and the messages at fault are looked for |
    | aligning | there are messages, and no next marker that all inputs have (`awaits` says more) |
    | waiting | an output has no room (`full` says which); nothing is held meanwhile |
    | retrying | a batch has failed (`last_error`), and is tried again after a pause |
    | paused | it was told to pause, or has itself as too many messages fail; it outlives the run |
    | stopped | this run was told to stop it |
    | failed | it has ended with `last_error` |
    """

    STARTING = "starting"
    IDLE = "idle"
    RUNNING = "running"
    ISOLATING = "isolating"
    ALIGNING = "aligning"
    WAITING = "waiting"
    RETRYING = "retrying"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


class InputStatus(Struct, frozen=True):
    """An input of a step."""

    queue: str
    subscription: str
    position: int  # everything below is done with
    end_position: int
    lag_bytes: int  # about, by the mean of what the queue holds
    lag_seconds: float  # how old the oldest message is that is not done with; 0.0: there is none

    @property
    def lag_messages(self) -> int:
        """The number of messages that are not done with."""
        return self.end_position - self.position


class StepStatus(Struct, frozen=True):
    """A step as it was when asked. Totals are since the run's start."""

    name: str
    kind: str  # "step", "streaming" or "terminal"
    phase: Phase
    inputs: tuple[InputStatus, ...]  # those that are there
    writes: tuple[str, ...]
    dead: str | None
    number: int | None  # of the last batch that is committed
    batches: int
    messages_in: int
    messages_out: int
    rate_in: float  # messages a second, over the last minute
    rate_out: float
    last_batch_seconds: float
    full: tuple[str, ...]  # the queues whose room it waits for
    awaits: Mapping[str, str]  # by queue, the value of the marker that it lacks; "": any marker
    dead_letters: int  # that it has put
    removed: int  # messages that were removed from the inputs before it came to them
    retries: int  # of batches, since the last one that was committed
    last_error: str | None
    last_error_us: int | None  # microseconds since the epoch
    states: tuple[StateSight, ...] = ()  # what it remembers by key

    @property
    def lag_messages(self) -> int:
        """The lag of all inputs together."""
        return sum(each.lag_messages for each in self.inputs)

    @property
    def lag_bytes(self) -> int:
        """The bytes that all inputs together are behind, about."""
        return sum(each.lag_bytes for each in self.inputs)

    @property
    def lag_seconds(self) -> float:
        """The lag of the input that is furthest behind."""
        return max((each.lag_seconds for each in self.inputs), default=0.0)


class QueueStatus(Struct, frozen=True):
    """A queue that a graph reads or writes."""

    name: str
    messages: int  # that not every subscription has read
    used_bytes: int
    capacity_bytes: int
    subscriptions: tuple[str, ...]
    is_full: bool  # a step waits for its room

    @property
    def fill(self) -> float:
        """The used share of its capacity: 0.0 to 1.0."""
        return min(1.0, self.used_bytes / self.capacity_bytes)


class RunStatus(Struct, frozen=True):
    """A graph as it was when asked."""

    graph: str
    path: str
    time_us: int  # microseconds since the epoch
    steps: Mapping[str, StepStatus]
    queues: Mapping[str, QueueStatus]

    @property
    def lag_messages(self) -> int:
        """The lag of all steps together."""
        return sum(each.lag_messages for each in self.steps.values())

    def to_json(self) -> dict[str, Any]:
        """A dict of values that JSON can hold, with derived ones; `json.dumps` makes the text."""
        found: dict[str, Any] = to_builtins(self)
        for name, step in self.steps.items():
            values = found["steps"][name]
            values |= {key: getattr(step, key) for key in _LAGS}
            values["phase"] = step.phase.value
            for each, own in zip(step.inputs, values["inputs"], strict=True):
                own["lag_messages"] = each.lag_messages
        for name, queue in self.queues.items():
            found["queues"][name]["fill"] = queue.fill
        return found

    def __str__(self) -> str:
        lines = [f"graph {self.graph} at {self.path}"]
        for step in self.steps.values():
            line = (
                f"  {step.name}: {step.phase}, {step.lag_messages} messages behind "
                f"({step.lag_seconds:.1f} s), {step.rate_in:.0f}/s in, {step.rate_out:.0f}/s out"
            )
            if step.full:
                line += f", no room in {', '.join(step.full)}"
            if step.awaits:
                line += f", waits for {', '.join(map(_marker, step.awaits.items()))}"
            for state in step.states:
                line += f", {state}"
            if step.dead_letters:
                line += f", {step.dead_letters} dead letters"
            if step.last_error and (step.retries or step.phase is Phase.FAILED):
                line += f", {step.last_error.splitlines()[0]:.200}"
            lines.append(line)
        return "\n".join(lines)


def _marker(awaited: tuple[str, str]) -> str:
    queue, value = awaited
    return f"marker {value:.100} in {queue}" if value else f"a marker in {queue}"


_LAGS = ("lag_messages", "lag_bytes", "lag_seconds")
