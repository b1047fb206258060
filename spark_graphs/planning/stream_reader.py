"""The streaming source: a subscription's messages, in micro-batches that can be repeated.

- The same micro-batch has the same ranges of positions, and so the same messages, however often it
  is repeated: its range is in Spark's offset log before it is read (offsets.py, YO2).
- Messages stay in the store until Spark has committed the micro-batch that read them, and no longer
  than until the next look for new ones. Where that look starts is in Spark's commit log, and the
  subscription follows it. It does not wait for `commit`, which Spark calls when it plans another
  micro-batch: none may ever come while the queue is full of what was read.
- Planned ranges are leased: their bytes stay where the tasks were told to look.
- A queue that was dropped and made again is lost data: an error, or with `failOnDataLoss=false` the
  query begins anew with what the new queue keeps (offsets.py, YO4; position_range.py, YR2).
- A micro-batch that Spark plans anew, because its checkpoint has lost it, is the same one again
  (planned.py, YE1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.spark_graphs import connection, position_range
from quire.spark_graphs.checkpoint.offsets import Offset, Positions, admit, ranges
from quire.spark_graphs.checkpoint.planned_ends import PlannedEnds
from quire.spark_graphs.first_line import first_line
from quire.spark_graphs.options import ReadOptions
from quire.spark_graphs.pyspark_features import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from quire.spark_graphs.reading.partition import QueuePiece, QuirePartition, partitions
from quire.spark_graphs.reading.row_columns import check_words
from quire.spark_graphs.reading.task_reading import ReadPlan
from quire.spark_graphs.task_files.task_files import files_at

from . import byte_limit
from .batch_pace import Idling, MicroBatchPace
from .one_load import LoadTurn
from .queue_choice import queues_read
from .retention import QueryRetention

if TYPE_CHECKING:
    from quire.env import Env
    from quire.interface.store import Store
    from quire.reports.info import QueueInfo


@first_line
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance plans all micro-batches of a query; copies of it read in the executors."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        env: Env | None = None,
        schema_ddl: str | None = None,
        turn: LoadTurn | None = None,
        all_columns: bool = False,
    ) -> None:
        """`schema_ddl`: the schema of the typed queues that are read. `turn`: of this source.

        `all_columns`: the query reads all columns that they have, and ends where they get more.
        """
        self._all_columns = all_columns
        self._turn = turn
        self._options = options = options if turn is None else turn.options()
        self._reading = ReadPlan.of(options, schema, schema_ddl)
        self._initial: Offset | None = None
        self._target: Offset | None = None  # of a query with Trigger.AvailableNow
        self._latest: Offset | None = None
        self._end: Offset | None = None
        self._seen: dict[str, QueueInfo] = {}  # by the last look for new messages
        self._pace = MicroBatchPace(options)
        self._retention = QueryRetention(options, env)
        self._planned = PlannedEnds(options)
        self._idling = Idling()

    # What Spark asks in the source's own process, in this order for each micro-batch.

    def initialOffset(self) -> dict[str, Positions]:
        # Spark asks twice and expects one answer.
        self._begin()
        if self._initial is None:
            initial = connection.call(self._options.path, self._retention.start)
            self._initial = replace(
                initial, source=self._options.source, subscription=self._options.subscription
            )
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark asks before it reads its own logs.
        self._retention.put_back_commit()
        # It takes one limit; those of the other options hold as well (`_admitted`).
        options = self._options
        if options.max_messages is not None:
            return ReadMaxRows(options.max_messages)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        if options.min_messages is not None:
            return ReadMinRows(options.min_messages)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = connection.call(self._options.path, self._now)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Positions]:
        self._begin()
        begin = Offset.from_json(start)
        self._check_queues(begin)
        self._retention.read_to(begin)
        if self._target is None:
            self._idling.pause()
        self._latest = self._target or connection.call(self._options.path, self._now)
        if self._options.fail_on_data_loss:
            for queue in begin.remade(self._latest):
                raise position_range.made_again(queue)
        for queue in begin.gone(self._latest):
            if self._options.fail_on_data_loss:
                raise position_range.gone(queue)
            position_range.warn_gone(queue)
        begin = self._joined(begin).in_queues_of(self._latest)
        max_messages = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = self._planned.again(begin, self._latest, max_messages)
        if ends is None:
            ends = self._admitted(begin.positions, limit)
        self._end = replace(begin.moved_to(ends), subscription=self._options.subscription)
        end = self._end.to_json()
        if end != start:
            self._idling.end()
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if self._latest is None or self._end is None:
            return None
        # Spark takes no metrics from a source in Python, but shows this in the query's progress.
        lag = self._end.behind(self._latest)
        shown = Offset({}, self._latest.positions, subscription=self._options.subscription)
        found = {**shown.to_json(), "lag": lag, "store": self._options.path}
        if self._options.checkpoint is not None:
            found["checkpoint"] = self._options.checkpoint
        return found

    def commit(self, end: dict[str, Any]) -> None:
        self._idling.end()  # Spark tells all sources of a query when it plans a micro-batch
        self._retention.read_to(Offset.from_json(end))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._begin()
        begin, stop = Offset.from_json(start), Offset.from_json(end)
        self._check_queues(begin)
        self._check_queues(stop)
        planned = ranges(begin, stop)
        self._planned.remember(begin, stop)
        found = self._seen if position_range.are_in(planned, self._seen) else None
        self._seen = {}
        leases = connection.call(
            self._options.path,
            lambda store: self._retention.lease(store, planned, stop.created_us, found),
        )
        pieces = [
            QueuePiece.of(lease.queue, piece, stop.created_us.get(lease.queue))
            for lease in leases
            for piece in lease.pieces
        ]
        pieces = self._reading.narrowed(pieces)
        return list(partitions(pieces, self._options.min_partitions))

    def stop(self) -> None:
        # Spark calls this after an error only; else the process ends, which does as much.
        self._retention.end()
        if self._turn is not None:
            self._turn.end()

    # What an executor asks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QuirePartition)
        return self._reading.read(partition)

    def _begin(self) -> None:
        if self._turn is not None:
            self._turn.begin()

    def _joined(self, begin: Offset) -> Offset:
        """Add the queues that a pattern finds since, which have their subscription now."""
        assert self._latest is not None
        new = sorted(set(self._latest.positions) - set(begin.positions))
        if not new:
            return begin
        found = connection.call(self._options.path, lambda store: self._retention.join(store, new))
        self._latest = self._latest.beginning_at(found)
        return begin.beginning_at(found)

    def _admitted(self, begin: Positions, limit: ReadLimit) -> Positions:
        """Return where the next micro-batch ends: where it begins while it waits for more."""
        assert self._latest is not None
        options, available = self._options, self._latest.positions
        if isinstance(limit, ReadAllAvailable):
            return dict(available)
        behind = [end - begin[queue] for queue, end in available.items()]
        is_lost = min(behind, default=0) < 0  # which the micro-batch is to say, and at once
        if self._target is None and not is_lost and not self._pace.is_due(sum(behind)):
            return begin
        max_messages = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_messages
        ends = admit(begin, available, max_messages)
        max_bytes = options.max_bytes
        if max_bytes is None or not any(behind):
            return ends
        files = files_at(options.path)
        return connection.call(
            options.path,
            lambda store: byte_limit.within(store, files, begin, ends, available, max_bytes),
        )

    def _now(self, store: Store) -> Offset:
        """The queues' ends, with their first kept positions as the origin."""
        found = queues_read(store, self._options, streaming=True)
        check_words(found, self._reading.words, all_columns=self._all_columns)
        self._seen = {queue.name: queue for queue in found}
        return Offset(
            {queue.name: queue.first_position for queue in found},
            {queue.name: queue.end_position for queue in found},
            {queue.name: queue.created_us for queue in found},
        )

    def _check_queues(self, start: Offset) -> None:
        if start.source != self._options.source:
            raise InvalidArgument(
                f"the checkpoint is that of source {start.source} of its load, and Spark has made "
                f"this one as source {self._options.source}: start queries of one load one after "
                "another, or give each a load of its own"
            )
        if self._options.pattern is None and set(start.positions) != set(self._options.queues):
            raise InvalidArgument(
                f"the checkpoint was made for the queues {', '.join(sorted(start.positions))}, and "
                f"the query reads {', '.join(self._options.queues)}; start it with a new checkpoint"
            )
