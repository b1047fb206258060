"""A step that Spark's streaming runs, for what Spark itself keeps: windows, joins, state.

- It is one streaming query with one sink: all that it writes in a micro-batch commits together,
  once, however often the micro-batch is repeated (writer.py, YW1). Its subscriptions follow, after
  Spark's own commit log (retention.py, YT2).
- Each input is a stream of its own with a subscription of its own: a queue that the step reads
  twice has two.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Unpack

from quire.definitions.row_schema import META, schema_of_words
from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.functions.start_trial import analysed
from quire.spark_graphs.graphs.functions.step_function import StepWork, with_queues
from quire.spark_graphs.graphs.schemas import routes_of
from quire.spark_graphs.graphs.spark.session import be_in
from quire.spark_graphs.graphs.status import Phase
from quire.spark_graphs.limits import RETRY_PAUSE_SECONDS
from quire.spark_graphs.options import read_options
from quire.spark_graphs.writing.row_sink import Routes

from .step_life import RunArguments, StepLife

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_STARTS: Final = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
_log: Final = logging.getLogger("quire.spark_graphs")

# What Spark says of a query whose sources are not there yet, and of one that has looked for
# messages and found none.
_INITIALIZING: Final = "Initializing"
_WAITING: Final = "Waiting for"
# And of a micro-batch without messages, which does what the last one has made due.
_CLEANING: Final = "No new data but cleaning up"


class StreamRunner(StepLife):
    """One streaming step of a run."""

    def __init__(self, work: StepWork, checkpoint: str, **run: Unpack[RunArguments]) -> None:
        super().__init__(work, **run)
        self._checkpoint = checkpoint
        self._query: StreamingQuery | None = None
        self._has_begun = False  # the query, with its first look for messages
        self._has_positions = any(str(name).lower() in _STARTS for name in self.step.options)
        self._last_batch = -1

    def start(self, make_thread: Callable[[Callable[[], None]], threading.Thread]) -> None:
        """Begin. Raises InvalidArgument for what Spark finds wrong, and what it raises else."""
        self._stopping = self._is_failed = False
        if not self._paused:
            with analysed(self.step):
                self._begin()
        self._start(make_thread, Phase.PAUSED if self._paused else Phase.STARTING)

    def hurry(self, hurried: bool) -> None:
        """Spark keeps to its trigger: there is nothing to hurry."""

    # Its thread

    def _pass(self) -> None:
        self._wake.wait(RETRY_PAUSE_SECONDS[0])
        self._wake.clear()
        self._look()

    def _look(self) -> None:
        """Have the query run, or not; and take its numbers."""
        if self._paused:
            self._stop_query()
            self._set(Phase.PAUSED)
        elif self._query is None:
            self._set(Phase.STARTING)
            self._begin()
        elif not self._query.isActive:
            error = self._query.exception()
            self._query = None
            raise error if error is not None else RuntimeError("the query was stopped")
        else:
            self._take(self._query)

    def _take(self, query: StreamingQuery) -> None:
        progress, status = query.lastProgress, query.status
        if progress is not None and progress["batchId"] != self._last_batch:
            rows = sum(each["numInputRows"] for each in progress["sources"])
            if rows:
                self._last_batch = progress["batchId"]
                seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
                self.tally.committed(self._last_batch, rows, 0, 0, 0, seconds)
                self._notify()
        message = status["message"]
        self._has_begun |= progress is not None or message.startswith(_WAITING)
        if not self._has_positions:  # else it may have to read what its subscription is past
            self._has_begun |= not message.startswith(_INITIALIZING)
        is_busy = status["isTriggerActive"] and status["isDataAvailable"]
        if not self._has_begun:
            self._set(Phase.STARTING)
        elif is_busy or message.startswith(_CLEANING):
            self._set(Phase.RUNNING)
        else:
            self._set(Phase.IDLE)

    def _goes_on(self, error: BaseException) -> bool:
        if not self._is_spark_there():
            return False
        self._note(error)
        if self._stopping or self._restart == "never":
            return False
        self._set(Phase.RETRYING)
        self._wake.wait(self._retry_pause)
        return not self._stopping

    def _end(self) -> None:
        try:
            self._stop_query()
        except Exception as error:  # noqa: BLE001 - whatever Py4J raises where the JVM has ended
            _log.debug("graph %s: step %s: %s", self.graph, self.step.name, error)

    def _stop_query(self) -> None:
        """Stop the query, which is there until that is done."""
        if self._query is not None:
            self._query.stop()
            self._query = None

    # Its query

    def _begin(self) -> None:
        """Start a query, from where its checkpoint stands. Raises what Spark raises."""
        be_in(self._spark)
        self._has_begun = False
        self._query = self._writer().start()

    def _writer(self) -> DataStreamWriter:
        step = self.step
        inputs = [self._input(*source) for source in step.sources(self.graph)]
        outputs = self._work.outputs(step.call(*inputs))
        rows, queue = _routed(step, outputs, self._work.typed)
        writer = (
            rows.writeStream.format("quire")
            .queryName(f"{self.graph}.{step.name}")
            .option("checkpointLocation", self._checkpoint)
            .option("path", self.path)
            .option("networkFileSystem", "true")  # the graph was asked
        )
        if queue is not None:
            writer = writer.option("queue", queue)
        if step.trigger_seconds:
            return writer.trigger(processingTime=f"{int(step.trigger_seconds * 1000)} milliseconds")
        return writer

    def _input(self, queue: str, subscription: str) -> DataFrame:
        step = self.step
        options = {
            "queue": queue,
            "subscription": subscription,
            "startingOffsets": str(step.start),
            "maxMessagesPerTrigger": str(step.limit.messages),
            "maxBytesPerTrigger": str(step.limit.size_bytes),
            "checkpointLocation": self._checkpoint,
            "networkFileSystem": "true",
            **_all_columns(self._work.schemas.get(queue)),
            **step.options,
        }
        read_options({**options, "path": self.path}, streaming=True)
        rows: DataFrame = self._spark.readStream.format("quire").options(**options).load(self.path)
        if step.watermark is None:
            return rows
        if META in rows.columns and "time" not in (name.lower() for name in rows.columns):
            rows = rows.withColumn("time", rows[META]["time"])
        return rows.withWatermark("time", step.watermark)


def _all_columns(schema_ddl: str | None) -> dict[str, str]:
    """The option that has a typed queue's header read beside its columns."""
    if schema_ddl is None:
        return {}
    names = [name.replace("`", "``") for name in schema_of_words(schema_ddl).names]
    return {"columns": ", ".join([*(f"`{name}`" for name in names), META])}


def _routed(
    step: Step, outputs: Mapping[str | None, Any], typed: Routes
) -> tuple[DataFrame, str | None]:
    """One DataFrame, and the queue that it goes to; None: its column `queue` says, of each row.

    That column names the step's outputs only.
    """
    with importing():
        from pyspark.sql import functions as f

    if not outputs:
        raise InvalidArgument(
            f"step '{step.name}' is a streaming query and has no output: give it `writes`, and "
            "return a DataFrame"
        )
    if len(outputs) == 1 and None not in outputs:
        ((queue, rows),) = outputs.items()
        return rows, queue
    if None not in outputs:
        if outputs.keys() & typed.keys():
            raise InvalidArgument(
                f"step '{step.name}' is a streaming query, which has one sink: it writes one typed "
                "queue, or several by one DataFrame whose column `queue` says where each row goes"
            )
        return with_queues(outputs), None
    message = f.concat(
        f.lit(f"step '{step.name}' does not write queue "),
        f.coalesce(f.col("queue"), f.lit("null")),
    )
    (rows,) = outputs.values()
    allowed = f.col("queue").isin(*step.writes)
    found: DataFrame = rows.withColumn(
        "queue", f.when(allowed, f.col("queue")).otherwise(f.raise_error(message))
    )
    routes_of(found.schema, None, typed)
    return found, None
