"""Batch reads: a snapshot of the queues' committed messages, resolved when the query is planned.

- A read from `earliest`, or from a time, is of what is in the queue when it is planned, and does
  not fail because consumers take messages meanwhile, in whatever order. A read from a position is
  of all messages from there, or an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quire.libraries import pa
from quire.spark_graphs import connection, position_range
from quire.spark_graphs.first_line import first_line
from quire.spark_graphs.options import ReadOptions
from quire.spark_graphs.reading.partition import QueuePiece, QuirePartition, partitions
from quire.spark_graphs.reading.row_columns import check_words
from quire.spark_graphs.reading.task_reading import ReadPlan

from .queue_choice import check_order_of_positions, first_queues

if TYPE_CHECKING:
    from quire.interface.store import Store
    from quire.reports.info import Lease


@first_line
class BatchReader(DataSourceReader):
    """Reads from `startingOffsets` to `endingOffsets`. Each action of a DataFrame plans anew."""

    def __init__(
        self, options: ReadOptions, schema: StructType, schema_ddl: str | None = None
    ) -> None:
        """`schema_ddl`: the schema of the typed queues that are read."""
        self._options = options
        self._reading = ReadPlan.of(options, schema, schema_ddl)

    def partitions(self) -> list[InputPartition]:
        pieces = self._reading.narrowed(connection.call(self._options.path, self._pieces))
        return list(partitions(pieces, self._options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one partition of another kind where `partitions` returned none.
        if not isinstance(partition, QuirePartition):
            return iter(())
        return self._reading.read(partition)

    def _pieces(self, store: Store) -> list[QueuePiece]:
        # Nobody says when the tasks have ended: the leases run out by themselves.
        return [
            QueuePiece.of(lease.queue, piece, lease.created_us)
            for lease in self._leases(store)
            for piece in lease.pieces
        ]

    def _leases(self, store: Store) -> list[Lease]:
        """Lease what the options ask for. Raises PositionLost as `failOnDataLoss` says."""
        options, advice = self._options, position_range.BATCH_ADVICE
        found = {queue.name: queue for queue in first_queues(store, options, streaming=False)}
        check_words(found.values(), self._reading.words)
        whole: dict[str, tuple[int, int]] = {}
        there: dict[str, tuple[int, int]] = {}
        for name, queue in found.items():
            begin = position_range.resolve(store, queue, options.starting)
            end = position_range.resolve(store, queue, options.ending)
            if options.fail_on_data_loss and end > queue.end_position:
                raise position_range.lost(queue, begin, end, advice)
            if position_range.is_position(name, options.starting):
                check_order_of_positions(queue)
                (whole if options.fail_on_data_loss else there)[name] = begin, end
            elif begin < end:
                # A word means what is there, whatever consumers have taken and are taking.
                there[name] = begin, end
        created_us = {name: queue.created_us for name, queue in found.items()}
        lease = partial(
            position_range.lease, store, created_us=created_us, advice=advice, found=found
        )
        return lease(whole, whole=True) + lease(there, whole=False)
