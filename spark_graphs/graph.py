"""Graphs of queries: components that read queues and write queues, step by step.

YG1. A component is one streaming query with one sink, so all that it writes in a micro-batch
    commits together, once, however often the micro-batch is repeated. Its subscriptions move apart
    from that, after Spark's own commit log: what they keep may be read again, and is not written
    again.
YG2. A component writes only to the queues that it names.
YG3. Each of a component's inputs is a stream of its own, with a subscription of its own: a queue
    that it reads twice has two.
YG4. A graph is started as a whole or not at all, as far as can be told before its queries run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql.utils import is_remote

from quire.env import OsEnv
from quire.errors import InvalidArgument

from . import connection, position_range
from .options import read_options
from .schema import check_sink_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from quire.store import Store

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
        """Start all components, or none if one of them cannot be started (YG4).

        `trigger` is DataStreamWriter's, such as availableNow=True. Raises QueueNotFound,
        InvalidArgument, and what Spark raises. What a query finds only when it runs ends that
        query alone: see its `exception()`.
        """
        self._check(spark)
        writers = [self._writer(spark, each, trigger) for each in self.components.values()]
        started: list[StreamingQuery] = []
        with contextlib.ExitStack() as undo:
            for writer in writers:
                query = writer.start(self.path)
                undo.callback(query.stop)
                started.append(query)
            undo.pop_all()
        return started

    def _check(self, spark: SparkSession) -> None:
        """What can be told before any query runs."""
        running = {query.name for query in spark.streams.active}
        for component in self.components.values():
            if component.name in running:
                raise InvalidArgument(
                    f"a query named '{component.name}' is running in this session; stop it before "
                    "the graph is started again"
                )
            for queue in component.reads:
                given = {**component.options, "path": self.path, "queue": queue}
                read_options(given, streaming=True)
        # A client of Spark Connect may be on a host that does not have the store.
        if OsEnv().exists(self.path) or not is_remote():
            connection.call(self.path, self._check_queues)

    def _check_queues(self, store: Store) -> None:
        named = [
            queue
            for component in self.components.values()
            for queue in (*component.reads, *component.writes)
        ]
        found = position_range.infos(store, dict.fromkeys(named))
        for component in self.components.values():
            for queue in component.reads:
                if found[queue].kind != "topic":
                    raise InvalidArgument(
                        f"component '{component.name}' reads '{queue}', which is a work queue; "
                        "components read topics, each by a subscription of its own"
                    )

    def _writer(
        self, spark: SparkSession, component: Component, trigger: Mapping[str, Any]
    ) -> DataStreamWriter:
        inputs = []
        for index, queue in enumerate(component.reads):
            count = component.reads[:index].count(queue) + 1
            subscription = component.name if count == 1 else f"{component.name}.{count}"
            inputs.append(self._input(spark, component, queue, subscription))
        rows = _routed(component, component.function(*inputs))
        check_sink_schema(rows.schema, None)
        writer = (
            rows.writeStream.format("quire")
            .queryName(component.name)
            .option("checkpointLocation", self._checkpoint(component))
        )
        return writer.trigger(**trigger) if trigger else writer

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
