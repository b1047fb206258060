"""Graphs of queries: components that read queues and write queues, each step in one commit.

YG1. A component is one streaming query with one sink, so what it reads and all that it writes in a
    micro-batch commit together, once, however often the micro-batch is repeated.
YG2. A component writes only to the queues that it names.
YG3. Each of a component's inputs is a stream of its own, with a subscription of its own: a queue
    that it reads twice has two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Outputs = DataFrame | Mapping[str, DataFrame]
    Function = Callable[..., Outputs]


@dataclass(frozen=True)
class Component:
    """Input queues -> function -> output queues. Its name is its subscription and its query's name.

    The function takes one streaming DataFrame for each input queue, in their order; a queue that is
    named n times is n streams, by the subscriptions `name`, `name.2` and so on. It returns a
    DataFrame for each output queue, or one whose column `queue` says where a row goes (the column
    may be left out where there is one output queue).
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    function: Function
    options: Mapping[str, str]


class Graph:
    """Components over one store.

    Args:
        path: the store's directory.
        checkpoints: a directory for the queries' checkpoints, one below it for each component; an
            absolute path, or a URL.
    """

    def __init__(self, path: str, checkpoints: str) -> None:
        self.path = path
        self.checkpoints = checkpoints
        self.components: dict[str, Component] = {}

    def component(
        self,
        reads: Sequence[str],
        writes: Sequence[str],
        *,
        name: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> Callable[[Function], Function]:
        """Decorator: add the function as a component, by default under its own name.

        Args:
            options: of the sources, such as maxMessagesPerTrigger.
        """

        def add(function: Function) -> Function:
            title = name or getattr(function, "__name__", "")
            if title in self.components:
                raise InvalidArgument(f"the graph has a component '{title}' already")
            if not title or not reads or not writes:
                raise InvalidArgument(
                    "a component needs a name, queues to read and queues to write"
                )
            self.components[title] = Component(
                title, tuple(reads), tuple(writes), function, dict(options or {})
            )
            return function

        return add

    def start(self, spark: SparkSession, **trigger: Any) -> list[StreamingQuery]:
        """Start all components; `trigger` is DataStreamWriter's, such as availableNow=True."""
        return [self._start(spark, each, trigger) for each in self.components.values()]

    def _start(
        self, spark: SparkSession, component: Component, trigger: Mapping[str, Any]
    ) -> StreamingQuery:
        inputs = []
        for index, queue in enumerate(component.reads):
            count = component.reads[:index].count(queue) + 1
            subscription = component.name if count == 1 else f"{component.name}.{count}"
            inputs.append(self._input(spark, component, queue, subscription))
        rows = _routed(component, component.function(*inputs))
        writer = (
            rows.writeStream.format("quire")
            .queryName(component.name)
            .option("checkpointLocation", self._checkpoint(component))
        )
        if trigger:
            writer = writer.trigger(**trigger)
        return writer.start(self.path)

    def _checkpoint(self, component: Component) -> str:
        return f"{self.checkpoints}/{component.name}"

    def _input(
        self, spark: SparkSession, component: Component, queue: str, subscription: str
    ) -> DataFrame:
        return (
            spark.readStream.format("quire")
            .options(**component.options)
            .option("queue", queue)
            .option("subscription", subscription)
            .option("checkpointLocation", self._checkpoint(component))
            .load(self.path)
        )


def _routed(component: Component, outputs: Outputs) -> DataFrame:
    """One DataFrame with a column `queue` that names the component's output queues only (YG2)."""
    from pyspark.sql import functions as f

    if isinstance(outputs, Mapping):
        strange = sorted(set(outputs) - set(component.writes))
        if strange or not outputs:
            raise InvalidArgument(
                f"component '{component.name}' returned rows for "
                f"{', '.join(strange) or 'no queue'}; it writes {', '.join(component.writes)}"
            )
        frames = [rows.withColumn("queue", f.lit(queue)) for queue, rows in outputs.items()]
        return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    if len(component.writes) == 1:
        return outputs.withColumn("queue", f.lit(component.writes[0]))
    message = f.concat(
        f.lit(f"component '{component.name}' does not write queue "),
        f.coalesce(f.col("queue"), f.lit("null")),
    )
    allowed = f.col("queue").isin(*component.writes)
    return outputs.withColumn(
        "queue", f.when(allowed, f.col("queue")).otherwise(f.raise_error(message))
    )
