"""Batch reads: a snapshot of the queues' committed messages, resolved when the query is planned.

YB1. A read from `earliest` is of what is in the queue when it is planned, and does not fail because
    consumers take messages meanwhile, in whatever order. A read from a position is of all messages
    from there, or an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from . import connection, position_range
from .message_batch import read_partition
from .options import ReadOptions
from .partition import QueuePiece, QuirePartition, partitions

if TYPE_CHECKING:
    from quire.engine import Lease, QueueInfo
    from quire.store import Store


class BatchReader(DataSourceReader):
    """Reads from `startingOffsets` to `endingOffsets`. Each action of a DataFrame plans anew."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        pieces = connection.call(self._options.path, self._pieces)
        return list(partitions(pieces, self._options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes one partition of another kind where `partitions` returned none.
        if not isinstance(partition, QuirePartition):
            return iter(())
        return read_partition(self._options.path, partition, self._schema)

    def _pieces(self, store: Store) -> list[QueuePiece]:
        pieces = []
        for queue in self._options.queues:
            found = position_range.info(store, queue)
            # Nobody says when the tasks have ended: the lease runs out by itself.
            lease = self._lease(store, found)
            leased = lease.pieces if lease else []
            pieces += [QueuePiece.of(queue, piece, found.created_us) for piece in leased]
        return pieces

    def _lease(self, store: Store, queue: QueueInfo) -> Lease | None:
        """What the options ask for of a queue. Raises PositionLost as `failOnDataLoss` says."""
        options, advice = self._options, position_range.BATCH_ADVICE
        begin = position_range.resolve(queue, options.starting)
        end = position_range.resolve(queue, options.ending)
        first, last = queue.first_position, queue.end_position
        if options.fail_on_data_loss and end > last:
            raise position_range.lost(queue.name, begin, end, first, last, advice)
        return position_range.lease(
            store,
            queue.name,
            begin,
            end,
            # A word means what is there, whatever consumers have taken and are taking.
            whole=options.fail_on_data_loss
            and not position_range.is_word(queue.name, options.starting),
            created_us=queue.created_us,
            advice=advice,
        )
