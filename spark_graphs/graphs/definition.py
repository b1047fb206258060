"""The parts of a graph: queues and steps, checked one by one as they are added."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field

from quire.arguments import check_name
from quire.callbacks import check_done, check_function, check_takes
from quire.errors import InvalidArgument
from quire.graphs import GraphDefinition, QueueDefinition, StepDefinition, sources_of
from quire.interface.starts import Start, check_start
from quire.limits import MAX_STRING_BYTES
from quire.spark_graphs.limits import (
    DEFAULT_POISON_SECONDS,
    DEFAULT_POISON_SHARE,
    DEFAULT_STEP_BYTES,
    DEFAULT_STEP_MESSAGES,
    MAX_TITLE,
)
from quire.spark_graphs.options import quantity_of_bytes, quantity_of_seconds

from .step_state import StepState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Outputs = DataFrame | Mapping[str, DataFrame] | None
    Function = Callable[..., Any]

WhenFull = Literal["wait", "fail"]
StepKind = Literal["step", "streaming", "terminal"]


class GraphPlace(Struct, frozen=True):
    """The name of a graph, and where it runs."""

    name: str
    spark: SparkSession
    path: str  # of the store
    checkpoints: str  # the directory, or its URL, for what Spark keeps of streaming steps


class Limit(Struct, frozen=True):
    """The most that one batch takes from all inputs together."""

    messages: int = DEFAULT_STEP_MESSAGES
    size_bytes: int = DEFAULT_STEP_BYTES  # about, and at least one message


_OWN_OPTIONS: Final = {
    name.lower(): name
    for name in (
        *("path", "queue", "subscribe", "subscribePattern"),
        *("subscription", "checkpointLocation"),
    )
}
"""Options of a source that nobody gives a step: it is found by them, and waited for."""

UNLIMITED: Final = Limit(sys.maxsize, sys.maxsize)
"""The option of a step whose batches end behind markers and nowhere else."""


class GraphQueue(Struct, frozen=True):
    """A queue that a graph makes where it is not there."""

    name: str
    options: Mapping[str, Any]


class Step(Struct, frozen=True):
    """Queues -> function -> queues."""

    name: str
    kind: StepKind
    function: Function
    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()
    dead: str | None = None
    limit: Limit = Limit()
    trigger_seconds: float = 0.0
    when_full: WhenFull = "wait"
    start: Start = "earliest"
    watermark: str | None = None
    marker: str | None = None  # the attribute of messages that batches end behind
    options: Mapping[str, Any] = field(default_factory=dict)  # of the sources of a streaming step
    poison_share: float = DEFAULT_POISON_SHARE  # of the last rows: more, and it pauses
    poison_seconds: float = DEFAULT_POISON_SECONDS  # that a batch is told apart at most
    states: tuple[StepState, ...] = ()  # that it reads and changes
    tables: tuple[StepState, ...] = ()  # that it reads

    @property
    def inputs(self) -> tuple[str, ...]:
        """The queues that it reads, each once."""
        return tuple(dict.fromkeys(self.reads))

    def sources(self, graph: str) -> tuple[tuple[str, str], ...]:
        """Each queue that it reads, with the subscription by which it does."""
        return sources_of(graph, self.name, self.kind, self.reads)

    def call(self, *values: object, function: Function | None = None) -> Any:
        """Call its function, or another one of it.

        Raises InvalidArgument where its work is not done when it returns.
        """
        called = function or self.function
        returned = called(*values)
        check_done(f"step '{self.name}'", called, returned)
        return returned

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it reads and writes, that of its dead letters too."""
        return (*self.inputs, *self.writes, *(() if self.dead is None else (self.dead,)))


_GIVE: Final = "give a function of a DataFrame for each queue, which is done when it returns"
_POISON: Final = (DEFAULT_POISON_SHARE, DEFAULT_POISON_SECONDS)


def checked_names(what: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """One queue's name or several. Raises InvalidArgument."""
    if not isinstance(value, Iterable):
        raise InvalidArgument(
            f"{what} {value!r:.100}: give one name, or several"
            + "; a step is added by @graph.step(reads=...)" * callable(value)
        )
    names = (value,) if isinstance(value, str) else tuple(value)
    return tuple(check_name(name, what) for name in names)


def limit_of(value: object, marker: object = None) -> Limit:
    """An int is of messages, a str such as "64m" of bytes. Raises InvalidArgument."""
    if value is None:
        return Limit() if marker is None else UNLIMITED
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return Limit(messages=value)
    if isinstance(value, str):
        return Limit(size_bytes=quantity_of_bytes("limit", value))
    raise InvalidArgument(
        f'limit {value!r:.100}: give an int from 1 on, of messages, or a str of bytes, as "64m"'
    )


def seconds_of(name: str, value: object) -> float:
    """A number is of seconds, a str such as "500 ms" says its unit. Raises InvalidArgument."""
    if value is None:
        return 0.0
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    if isinstance(value, str):
        return quantity_of_seconds(name, value)
    raise InvalidArgument(f'{name} {value!r:.100}: give seconds, or a str as "500 ms"')


def share_of(name: str, value: object) -> float:
    """Above 0, up to 1.0 for all. Raises InvalidArgument."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1:
        return float(value)
    raise InvalidArgument(f"{name} {value!r:.100}: give a share above 0, up to 1.0 for all")


def choice_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raises InvalidArgument for what is none of them."""
    if value not in choices:
        raise InvalidArgument(f"{name} {value!r:.100}: give one of {', '.join(map(repr, choices))}")


def check_title(name: object, what: str) -> str:
    """The name of a graph or a step, of which others are made with dots. Raises InvalidArgument."""
    if isinstance(name, str) and len(name) <= MAX_TITLE and "." not in name:
        with contextlib.suppress(InvalidArgument):
            return check_name(name, what)
    raise InvalidArgument(
        f"{what} name {name!r:.100}: use 1 to {MAX_TITLE} of A-Z a-z 0-9 _ -, without dots"
    )


def title_of(name: object, function: object) -> str:
    """The name of a step: as given, or the function's own. Raises InvalidArgument."""
    check_function("step", function, _GIVE)
    if name is not None:
        return check_title(name, "step")
    own = getattr(function, "__name__", type(function).__name__)
    try:
        return check_title(own, "step")
    except InvalidArgument as error:
        raise InvalidArgument(f"{error}; give the step another by `name`") from None


_AS_DEFINED: Final = (
    "name", "kind", "reads", "writes", "dead", "trigger_seconds", "when_full", "watermark",
    "marker",
)  # fmt: skip


def described_as(
    graph: str, queues: Mapping[str, GraphQueue], steps: Mapping[str, Step]
) -> GraphDefinition:
    """A graph as its store keeps it."""
    return GraphDefinition(
        graph,
        tuple(
            QueueDefinition(queue.name, {name: str(v) for name, v in queue.options.items()})
            for queue in queues.values()
        ),
        tuple(
            StepDefinition(
                **{name: getattr(step, name) for name in _AS_DEFINED},
                limit_messages=0 if step.limit == UNLIMITED else step.limit.messages,
                limit_bytes=0 if step.limit == UNLIMITED else step.limit.size_bytes,
                start=str(step.start),
                states=tuple(each.stored for each in step.states),
                tables=tuple(each.stored for each in step.tables),
                function=_function_name(step.function),
            )
            for step in steps.values()
        ),
    )


def _function_name(function: Function) -> str:
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{getattr(function, '__module__', '')}.{name}"


def check_step(step: Step) -> Step:
    """Check a step by itself. Raises InvalidArgument."""
    check_function(f"step '{step.name}'", step.function, _GIVE)
    if step.kind == "streaming" and step.start not in ("earliest", "latest"):
        raise InvalidArgument(
            f'start {step.start!r:.100}: a streaming step begins at "earliest" or "latest"; '
            "its options take startingOffsets and startingTimestamp"
        )
    if step.kind == "streaming" and step.dead is not None:
        raise InvalidArgument(
            f"step '{step.name}' is a streaming query, which has no dead letters: what Spark keeps "
            "of a message may be in many results. Give `dead` to a step before it, which sorts out "
            "what is wrong, or have the function return that for one more output"
        )
    if step.dead is None and (step.poison_share, step.poison_seconds) != _POISON:
        raise InvalidArgument(
            f"step '{step.name}' has no dead letters: `poison_share` and `poison_time` are of "
            "steps with `dead`"
        )
    if step.marker is not None:
        _check_marker(step)
    _check_options(step)
    if not isinstance(step.watermark, str | None):
        raise InvalidArgument(
            f"step '{step.name}': watermark {step.watermark!r:.100}: give a str as \"1 minute\""
        )
    check_start(step.start)
    choice_of("when_full", step.when_full, ("wait", "fail"))
    if not step.reads:
        raise InvalidArgument(f"step '{step.name}' reads no queue: give `reads`")
    both = set(step.reads) & {*step.writes, step.dead}
    if both:
        raise InvalidArgument(
            f"step '{step.name}' writes to '{both.pop()}', which it reads: it would never end"
        )
    if step.dead is not None and step.dead in step.writes:
        raise InvalidArgument(f"step '{step.name}' writes to '{step.dead}', its dead letters")
    if len(set(step.writes)) != len(step.writes):
        raise InvalidArgument(f"step '{step.name}' names an output twice")
    _check_states(step)
    _check_parameters(step)
    return step


def _check_options(step: Step) -> None:
    if not isinstance(step.options, Mapping):
        raise InvalidArgument(
            f"step '{step.name}': options {step.options!r:.100}: give a mapping of names to values"
        )
    if step.kind != "streaming" and step.options:
        raise InvalidArgument(f"step '{step.name}': `options` are of streaming steps")
    for name in step.options:
        own = _OWN_OPTIONS.get(str(name).lower())
        if own is not None:
            raise InvalidArgument(
                f"step '{step.name}': option '{own}' is the step's own: `reads` says what it "
                "reads, and its subscriptions and its checkpoint are called by its name"
            )


def _check_marker(step: Step) -> None:
    name = step.marker
    if not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_STRING_BYTES):
        raise InvalidArgument(
            f"step '{step.name}': marker {name!r:.100} is no attribute's name: give that of "
            'the attribute that markers have, as "day"'
        )
    if step.kind == "streaming":
        raise InvalidArgument(
            f"step '{step.name}' is a streaming query, whose batches end where Spark has them end: "
            "give `marker` to a step without `watermark` and `stateful`"
        )


def _check_states(step: Step) -> None:
    if step.kind == "streaming" and (step.states or step.tables):
        raise InvalidArgument(
            f"step '{step.name}' is a streaming query, which remembers in Spark's checkpoint: give "
            "`state` and `tables` to a step without `watermark` and `stateful`"
        )
    names = [each.name for each in (*step.states, *step.tables)]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InvalidArgument(
            f"step '{step.name}' names the state '{twice[0]}' twice: what it changes it reads, too"
        )
    outputs = [each.name for each in step.states if each.name in step.writes]
    if outputs:
        raise InvalidArgument(
            f"step '{step.name}' has a state '{outputs[0]}' and writes a queue of this name, and "
            "its function says by the name what is for which: call the state otherwise"
        )
    for state in step.states:
        if state.on_timer is not None:
            due = ("the rows that are due", *(f"the rows of {name}" for name in names))
            words = f"state '{state.name}': on_timer is called with {', '.join(due)}"
            check_takes("on_timer", state.on_timer, len(due), words)


def _check_parameters(step: Step) -> None:
    extra = ("its number",) if step.kind == "terminal" else ()
    handles = tuple(each.name for each in (*step.states, *step.tables))
    try:
        inspect.signature(step.function).bind(*step.reads, *handles, *extra)
    except TypeError as error:
        states = f", the rows of {', '.join(handles)} behind them" if handles else ""
        raise InvalidArgument(
            f"step '{step.name}' reads {', '.join(step.reads)}, and its function is called with "
            f"{len(step.reads) + len(handles) + len(extra)} values, a DataFrame for each of them"
            f"{states}{' and the number of the batch' if extra else ''}: {error}"
        ) from None
    except ValueError:  # a function that does not tell
        return
