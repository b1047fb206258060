"""The floor of a read through a data source in Python: format "memory_rows".

Its tasks hand over one batch of rows again and again, from memory, and do nothing else. Options:
`file` (Parquet, whose first rows the batch has), `rows` in all, `tasks` and `batch_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

__all__ = ["MemoryRows"]


class MemoryRows(DataSource):
    """The columns of the schema that the user gives."""

    @classmethod
    def name(cls) -> str:
        return "memory_rows"

    def reader(self, schema: StructType) -> DataSourceReader:
        return RowsReader(schema, self.options)


class Share(InputPartition):
    """A task's rows."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class RowsReader(DataSourceReader):
    """The reader of one batch."""

    def __init__(self, schema: StructType, options: Any) -> None:
        self._schema, self._file = schema, str(options["file"])
        self._rows, self._tasks = int(options["rows"]), int(options["tasks"])
        self._batch_rows = int(options["batch_rows"])

    def partitions(self) -> list[InputPartition]:
        each, more = divmod(self._rows, self._tasks)
        return [Share(each + (number < more)) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batch = first_rows(self._file, tuple(schema.names), self._batch_rows).cast(schema)
        for start in range(0, partition.count, batch.num_rows):
            left = partition.count - start
            yield batch if left >= batch.num_rows else batch.slice(0, left)


@lru_cache(maxsize=8)
def first_rows(file: str, columns: tuple[str, ...], count: int) -> pa.RecordBatch:
    """Made once by each worker; the turn that warms up has it made."""
    import pyarrow.parquet as pq

    group = pq.ParquetFile(file).read_row_group(0, columns=list(columns))
    rows: pa.RecordBatch = group.slice(0, count).combine_chunks().to_batches()[0]
    return rows
