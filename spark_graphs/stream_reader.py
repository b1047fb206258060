"""The streaming source: a subscription's messages, in micro-batches that can be repeated.

YS1. The same micro-batch has the same ranges of positions, and so the same messages, however often
    it is repeated: its range is in Spark's offset log before it is read (offsets.py, YO2).
YS2. Messages stay in the store until Spark has committed the micro-batch that read them, and no
    longer than until the next look for new ones. Where that look starts is in Spark's commit log,
    and the subscription follows it. It does not wait for `commit`, which Spark calls when it plans
    another micro-batch: none may ever come while the queue is full of what was read.
YS3. Planned ranges are leased: their bytes stay where the tasks were told to look.
YS4. A queue that was dropped and made again is lost data: an error, or with `failOnDataLoss=false`
    the query begins anew with what the new queue keeps (offsets.py, YO4; position_range.py, YR2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quire.errors import InvalidArgument

from . import connection, position_range
from .idling import Idling
from .message_batch import read_partition
from .offsets import Offset, Positions, admit, ranges
from .options import ReadOptions
from .partition import QueuePiece, QuirePartition, partitions
from .retention import Retention

if TYPE_CHECKING:
    from quire.store import Store


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance plans all micro-batches of a query; copies of it read in the executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._initial: Offset | None = None
        self._target: Offset | None = None  # of a query with Trigger.AvailableNow
        self._latest: Offset | None = None
        self._retention = Retention(options)
        self._idling = Idling()

    # What Spark asks in the source's own process, in this order for each micro-batch.

    def initialOffset(self) -> dict[str, Positions]:
        # Spark asks twice and expects one answer.
        if self._initial is None:
            self._initial = connection.call(self._options.path, self._retention.start)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_messages
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = connection.call(self._options.path, self._now)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Positions]:
        begin = Offset.from_json(start)
        self._check_queues(begin)
        self._retention.read_to(begin)
        if self._target is None:
            self._idling.pause()
        self._latest = self._target or connection.call(self._options.path, self._now)
        if self._options.fail_on_data_loss:
            for queue in begin.remade(self._latest):
                raise position_range.made_again(queue)
        begin = begin.in_queues_of(self._latest)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = begin.moved_to(admit(begin.positions, self._latest.positions, most)).to_json()
        if end != start:
            self._idling.end()
        return end

    def reportLatestOffset(self) -> dict[str, Positions] | None:
        return None if self._latest is None else Offset({}, self._latest.positions).to_json()

    def commit(self, end: dict[str, Any]) -> None:
        self._idling.end()  # Spark tells all sources of a query when it plans a micro-batch
        self._retention.read_to(Offset.from_json(end))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        stop = Offset.from_json(end)
        planned = ranges(Offset.from_json(start), stop)
        leases = connection.call(
            self._options.path,
            lambda store: self._retention.lease(store, planned, stop.created_us),
        )
        pieces = [
            QueuePiece.of(lease.queue, piece, stop.created_us.get(lease.queue))
            for lease in leases
            for piece in lease.pieces
        ]
        return list(partitions(pieces, self._options.min_partitions))

    def stop(self) -> None:
        # Spark calls this after an error only; else the process ends, which does as much.
        self._retention.end()

    # What an executor asks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QuirePartition)
        return read_partition(self._options.path, partition, self._schema)

    def _now(self, store: Store) -> Offset:
        """The queues' ends, with their first kept positions as the origin."""
        found = position_range.infos(store, self._options.queues).values()
        return Offset(
            {queue.name: queue.first_position for queue in found},
            {queue.name: queue.end_position for queue in found},
            {queue.name: queue.created_us for queue in found},
        )

    def _check_queues(self, start: Offset) -> None:
        if set(start.positions) != set(self._options.queues):
            raise InvalidArgument(
                f"the checkpoint was made for the queues {', '.join(sorted(start.positions))}, and "
                f"the query reads {', '.join(self._options.queues)}; start it with a new checkpoint"
            )
