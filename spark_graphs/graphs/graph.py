"""Graphs: steps between queues of one store, written as functions of DataFrames.

- A step is one transaction for each batch: what it puts to all its outputs, its dead letters, how
  far it has read its inputs, the values that it keeps and the batch's number.
YGR2. A graph is started as a whole or not at all, as far as can be told before its steps run.
- The steps of a graph are what they are called: its name and theirs say which batches are done.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quire.arguments import check_capacity, check_flag, check_name, check_queues
from quire.definitions.row_schema import check_schema
from quire.env import OsEnv, check_file_system
from quire.errors import InvalidArgument, StoreNotFound
from quire.graphs import (
    GraphDefinition,
    GraphSight,
    draw,
    explain,
    left_subscriptions,
    reset_step,
    save_graph,
    see,
    step_state_name,
    write_drawing,
)
from quire.interface.starts import Start, Time
from quire.opening import checked_path
from quire.sizes import Size
from quire.spark_graphs import connection
from quire.spark_graphs.limits import DEFAULT_POISON_SECONDS, DEFAULT_POISON_SHARE
from quire.spark_graphs.pyspark_features import check_stream_source
from quire.spark_graphs.writing.sink_writer import target_at

from .backfill import Backfill
from .batches.task_store import TaskStore
from .definition import (
    GraphPlace,
    GraphQueue,
    Step,
    WhenFull,
    check_step,
    check_title,
    checked_names,
    choice_of,
    described_as,
    limit_of,
    seconds_of,
    share_of,
    title_of,
)
from .functions.kept_values import KeptValues
from .functions.start_trial import check_executors, try_out
from .functions.step_function import StepWork, running_values
from .preparing import check_no_aliases, prepare
from .run import Run
from .schemas import schemas_of
from .step_state import StepState, states_of
from .steps.step_life import Restart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log: Final = logging.getLogger("quire.spark_graphs")

F = TypeVar("F", bound=Callable[..., Any])


class Graph:
    """Queues and steps over one store.

        graph = Graph("words", spark, "/data/words.quire")

        @graph.step(reads="lines", writes="words")
        def split(lines):
            return lines.selectExpr("explode(split(cast(payload as string), ' ')) as payload")

        with graph.start() as run:
            run.drain()

    `name`: of the graph, as queues have names. `path`: the store's directory, which is made where
    it is not there, or the URL of its server, `quire://host:port`. `checkpoints`: a directory, or a
    URL, for what Spark itself keeps of streaming steps; by default beside the store,
    `<path>-checkpoints`, but of a store at a server. `network_file_system`: with True a store on
    one is warned of in place of refused. Raises InvalidArgument.
    """

    def __init__(
        self,
        name: str,
        spark: SparkSession,
        path: str,
        checkpoints: str | None = None,
        *,
        network_file_system: bool = False,
    ) -> None:
        self.name = check_title(name, "graph")
        if not hasattr(spark, "addTag"):
            raise InvalidArgument(f"graph '{name}': spark {spark!r:.100}: give a SparkSession")
        self.spark = spark
        if isinstance(path, str) and connection.is_served(path):
            self.path = connection.check_url(path)
        else:
            self.path = checked_path(path)
            check_file_system(OsEnv(), self.path, network=network_file_system)
        if checkpoints is not None and not (isinstance(checkpoints, str) and checkpoints):
            raise InvalidArgument(
                f"checkpoints {checkpoints!r:.100}: give the path or URL of a directory, or None"
            )
        beside = "" if connection.is_served(self.path) else f"{self.path}-checkpoints"
        self.checkpoints = checkpoints or beside
        self.queues: dict[str, GraphQueue] = {}
        self.steps: dict[str, Step] = {}

    def queue(self, name: str, *, capacity: Size | None = None, **options: Any) -> None:
        """Say how a queue is, which `start` makes where it is not there.

        `capacity`: bytes, or a str as "1g". `options`: what `Store.create_queue` takes. Queues that
        steps write need not be named here: they are topics with nothing said of them. One that is
        there already and is not as said has `start` raise QueueExists, which tells what differs;
        it may have nullable columns besides. Raises InvalidArgument.
        """
        if check_name(name, "queue") in self.queues:
            raise InvalidArgument(f"graph '{self.name}' has queue '{name}' already")
        if capacity is not None:
            capacity = check_capacity(capacity)
        if "schema" in options:
            options["schema"] = check_schema("schema", options["schema"])
        known = {} if capacity is None else {"capacity": capacity}
        check_queues([{"name": name, **known, **options}])
        self.queues[name] = GraphQueue(name, {**known, **options})

    def step(
        self,
        reads: str | Sequence[str],
        writes: str | Sequence[str] = (),
        *,
        name: str | None = None,
        dead: str | None = None,
        limit: int | str | None = None,
        trigger: float | str | None = None,
        when_full: WhenFull = "wait",
        start: Start = "earliest",
        marker: str | None = None,
        watermark: str | None = None,
        stateful: bool = False,
        options: Mapping[str, str] | None = None,
        poison_share: float = DEFAULT_POISON_SHARE,
        poison_time: float | str = DEFAULT_POISON_SECONDS,
        state: StepState | Sequence[StepState] | None = None,
        tables: StepState | Sequence[StepState] | None = None,
    ) -> Callable[[F], F]:
        """Decorator: add the function as a step, by default under its own name.

        The function takes a DataFrame for each of `reads`, in their order, of the messages of one
        batch. It returns a DataFrame for `writes`, or a dict of them by queue; or one whose column
        `queue` says where each row goes; or None. It is called for each batch anew.

        `dead`: the work queue for messages that the function fails with (`docs/graphs.md`), and for
        rows that the function of a state's timers fails with.
        `poison_share`: where more than that of the last 1,000 messages go there the step pauses;
        1.0: never. `poison_time`: how long the messages of one batch are looked for, at most.
        `limit`: the most that a batch takes, an int of messages or a str of bytes as "64m".
        `trigger`: seconds, or a str as "500 ms", between the beginnings of two batches at least.
        `marker`: the name of an attribute: a batch ends just behind the next message that has it,
        in each input behind the next whose value all inputs have; a `limit` cuts it in parts.
        `when_full`: whether the step waits for room in an output ("wait") or fails ("fail").
        `start`: where new subscriptions of it begin, as `Store.subscribe` takes it.

        `state`: what it remembers by key, one of `quire.spark_graphs.keyed(...)` or several, and
        `tables`: states of others, which it only reads (docs/state.md). For each the function takes
        a `StateRows` behind the inputs; what a state becomes it returns in the dict, by its name.

        `watermark`: how late messages may come, as "1 minute": then, or with `stateful`, the step
        is a streaming query of Spark, which keeps windows, joins and the like in a checkpoint, and
        the function is called once. `options`: of its sources, such as maxMessagesPerTrigger.

        Raises InvalidArgument.
        """
        is_streaming = check_flag("stateful", stateful) or watermark is not None
        if is_streaming:
            self._check_streaming()
        inputs, outputs = checked_names("queue", reads), checked_names("queue", writes)
        make = partial(
            Step,
            kind="streaming" if is_streaming else "step",
            reads=inputs,
            writes=outputs,
            dead=None if dead is None else check_name(dead, "queue"),
            limit=limit_of(limit, marker),
            trigger_seconds=seconds_of("trigger", trigger),
            marker=marker,
            when_full=when_full,
            start=start,
            watermark=watermark,
            options={} if options is None else options,
            poison_share=share_of("poison_share", poison_share),
            poison_seconds=seconds_of("poison_time", poison_time),
            states=states_of("state", state),
            tables=states_of("tables", tables),
        )
        return self._decorator(name, make)

    def terminal(
        self,
        reads: str | Sequence[str],
        *,
        name: str | None = None,
        limit: int | str | None = None,
        trigger: float | str | None = None,
        marker: str | None = None,
        start: Start = "earliest",
    ) -> Callable[[F], F]:
        """Decorator: add a function that takes messages out of the store, to wherever it likes.

        The function takes a DataFrame for each of `reads`, and the batch's number. When it returns,
        the batch counts as read. Where the process ends in between it is called again, with the
        same number and, unless messages were removed, at least the same messages: at least once.
        The other arguments are those of `step`. Raises InvalidArgument.
        """

        make = partial(
            Step,
            kind="terminal",
            reads=checked_names("queue", reads),
            limit=limit_of(limit, marker),
            trigger_seconds=seconds_of("trigger", trigger),
            marker=marker,
            start=start,
        )
        return self._decorator(name, make)

    def _decorator(self, name: str | None, make: Callable[..., Step]) -> Callable[[F], F]:
        def add(function: F) -> F:
            self._add(make(name=title_of(name, function), function=function))
            return function

        return add

    def _add(self, step: Step) -> None:
        if step.name in self.steps:
            raise InvalidArgument(f"graph '{self.name}' has a step '{step.name}' already")
        for other in self.steps.values():
            both = {each.stored for each in other.states} & {each.stored for each in step.states}
            if both:
                raise InvalidArgument(
                    f"steps '{other.name}' and '{step.name}' both change the state '{both.pop()}', "
                    "and would wait for one another: have one of them read it, as one of `tables`"
                )
        self.steps[step.name] = check_step(step)

    def state(self, step: str) -> MutableMapping[str, Any]:
        """The values that a step keeps, by key: what JSON can hold.

        Inside the step's own function they are as of the batch's beginning, and what the function
        changes is committed with the batch. Anywhere else they are as committed, to be read only.
        Raises InvalidArgument for a step that the graph does not have.
        """
        self._named(step)
        values = running_values(step)
        if values is not None:
            return values
        name = step_state_name(self.name, step)
        found = connection.call(self.path, lambda store: store.states.items(name))
        return KeptValues(step, found, writable=False)

    def start(self, restart: Restart = "backoff", only: str | Sequence[str] | None = None) -> Run:
        """Check everything, make queues and subscriptions, and start all steps or none (YGR2).

        All subscriptions of the graph are made, with one commit, before any step reads. Those of
        steps that it has no more the log tells, with the command that ends them.

        `restart`: a step that has failed tries again after a pause ("backoff") or ends ("never").
        `only`: the steps to start, where it is not all. Raises QueueNotFound, QueueExists,
        InvalidArgument, QueueInUse while another run of a step goes on, StoreNotFound where an
        executor of Spark does not see the store, and what Spark raises.
        """
        choice_of("restart", restart, ("backoff", "never"))
        names: Iterable[str] = (only,) if isinstance(only, str) else only or ()
        if not isinstance(names, Iterable):
            raise InvalidArgument(f"only {only!r:.100}: give the name of a step, or several")
        steps = [self._named(each) for each in (self.steps if only is None else names)]
        if not steps:
            raise InvalidArgument(f"graph '{self.name}' has no steps to start")
        tasks = self._tasks()
        all_steps = self.steps.values()
        named = [*self.queues, *(queue for step in all_steps for queue in step.queues)]
        connection.call(self.path, lambda store: check_no_aliases(store, named))
        schemas = connection.call(self.path, lambda store: schemas_of(store, self.queues))
        works = {step.name: StepWork(step, self.spark, tasks, schemas) for step in steps}
        for work in works.values():
            try_out(work)
        check_executors(self.spark, tasks)
        found = connection.call(
            self.path, lambda store: prepare(store, self.name, all_steps, self.queues)
        )
        definition = described_as(self.name, self.queues, self.steps)
        connection.call(self.path, lambda store: save_graph(store, definition))
        for each in connection.call(self.path, lambda store: left_subscriptions(store, definition)):
            _log.warning("graph %s: %s", self.name, each)
        with contextlib.ExitStack() as undo:
            run = Run(self._place(), works, found, restart)
            undo.callback(run.stop)
            run.begin()
            undo.pop_all()
        return run

    def backfill(
        self,
        step: str,
        start: int | Time | Mapping[str, int] | None = None,
        end: int | Time | Mapping[str, int] | None = None,
        *,
        name: str | None = None,
        to: Mapping[str, str] | None = None,
    ) -> int:
        """Put a range of a step's inputs through its function; how many messages they were.

        `start`, `end`: a position of all inputs, positions by queue, or a time (a datetime with a
        time zone, or float seconds since the epoch); None: the first that is kept, and the end as
        it is now. `to`: for outputs of the step, the queues that take their place. The step's
        subscriptions do not move, and its values are others (`name` has its own).

        Repeating a backfill has no effect: it goes by `name`, or where there is none by its range
        and `to`;
        one that was cut short goes on. Raises PositionLost where messages of the range are not kept
        any more, QueueNotFound, InvalidArgument, QueueFull, and what Spark and the function raise.
        """
        found = self._named(step)
        fill = Backfill(self._place(), self.queues, found, self._tasks(), name, to or {})
        return fill.run(start, end)

    def explain(self) -> str:
        """The graph in words: steps, queues, where batches end, what each commits.

        With how far the steps are, where the store is there. Raises what reaching the store raises.
        """
        return explain(*self._seen())

    def draw(self, path: str | PathLike[str] | None = None) -> str:
        """The graph as a picture, in SVG: queues, steps, and how many messages each is behind.

        `path`: a file that it is written to as well, in a folder that is there. Raises
        InvalidArgument where it cannot be, DiskFull, and what reaching the store raises.
        """
        picture = draw(*self._seen())
        if path is not None:
            write_drawing(path, picture)
        return picture

    def reset(self, step: str, to: Start = "earliest") -> Mapping[str, int]:
        """Have a step read again, and forget its values and the rows of its states; where it reads.

        In one transaction. `to`: where it reads from then on, as `Store.subscribe` takes it. What
        it has put stays, and is put again. Raises QueueInUse while the step runs, PositionLost
        where the queue does not keep so much any more, InvalidArgument.
        """
        self._named(step)
        return connection.call(self.path, lambda store: reset_step(store, self.name, step, to))

    def _seen(self) -> tuple[GraphDefinition, GraphSight | None]:
        definition = described_as(self.name, self.queues, self.steps)
        try:
            return definition, connection.call(self.path, lambda store: see(store, definition))
        except StoreNotFound:
            return definition, None

    def _named(self, step: str) -> Step:
        if not isinstance(step, str) or step not in self.steps:
            raise InvalidArgument(
                f"graph '{self.name}' has no step {step!r:.100}; it has "
                f"{', '.join(self.steps) or 'none'}"
            )
        return self.steps[step]

    def _place(self) -> GraphPlace:
        return GraphPlace(self.name, self.spark, self.path, self.checkpoints)

    def _check_streaming(self) -> None:
        """Raise InvalidArgument where Spark cannot have a streaming step."""
        check_stream_source("a streaming step")
        if not self.checkpoints:
            raise InvalidArgument(
                f"graph '{self.name}' is of a store at {self.path}: for streaming steps give it "
                "`checkpoints`, a directory or URL for what Spark keeps of them"
            )

    def _tasks(self) -> TaskStore:
        connection.make(self.path)
        target = target_at(self.path)
        return TaskStore(self.path, target.store_id, priorities=target.priorities)
