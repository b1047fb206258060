"""Batch reads: a snapshot of the queues' committed messages, resolved when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from . import connection, position_range
from .first_line import first_line
from .message_batch import read_partition
from .options import ReadOptions
from .partition import QueuePiece, QuirePartition, partitions
from .queue_choice import first_queues

if TYPE_CHECKING:
    from quire.store import Store


@first_line
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
        options = self._options
        found = {queue.name: queue for queue in first_queues(store, options, streaming=False)}
        leases = position_range.lease(
            store,
            {
                name: (
                    position_range.resolve(queue, options.starting),
                    position_range.resolve(queue, options.ending),
                )
                for name, queue in found.items()
            },
            fail_on_data_loss=options.fail_on_data_loss,
            created_us={name: queue.created_us for name, queue in found.items()},
            found=found,
        )
        # Nobody says when the tasks have ended: the lease runs out by itself.
        return [
            QueuePiece.of(lease.queue, piece, lease.created_us)
            for lease in leases
            for piece in lease.pieces
        ]
