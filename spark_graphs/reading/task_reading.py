"""How the tasks of a read have their messages: as bytes with a header, or as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql.types import StructType

from quire.definitions.row_schema import META, schema_of_words
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.rows.row_filter import bounds
from quire.spark_graphs.options import ReadOptions
from quire.spark_graphs.pyspark_features import to_arrow_schema
from quire.spark_graphs.schema import META_COLUMNS
from quire.spark_graphs.worker_garbage import leave_out_modules

from . import row_columns
from .message_batch import read_partition
from .partition import QueuePiece, QuirePartition, within
from .row_batch import read_rows
from .spark_condition import SparkCondition

if TYPE_CHECKING:
    from quire.engine.reading.row_read import RowQuery


class ReadPlan(Struct, frozen=True):
    """The selection of a read, checked when the read is planned. It goes to the tasks.

    `query`: of typed queues; of others `where` stands alone.
    """

    path: str
    schema: StructType
    words: str | None
    query: RowQuery | None
    where: SparkCondition | None

    @classmethod
    def of(cls, options: ReadOptions, schema: StructType, words: str | None) -> ReadPlan:
        """Raises InvalidArgument for columns and conditions that cannot be had."""
        if words is None:
            where = row_columns.plain_where(options.where)
            return cls(options.path, schema, None, None, where)
        query = row_columns.row_query(words, schema)
        where = row_columns.typed_where(words, options.where)
        return cls(options.path, schema, words, query, where)

    @classmethod
    def whole(cls, path: str, words: str | None) -> ReadPlan:
        """Return one of all messages, and of all columns as `row_columns.whole_schema` has them."""
        schema = row_columns.whole_schema(words)
        if words is None:
            return cls(path, schema, None, None, None)
        with importing():
            from quire.engine.reading.row_read import RowQuery

        own = tuple(schema_of_words(words).names)
        return cls(path, schema, words, RowQuery(words, own, tuple(META_COLUMNS)), None)

    def narrowed(self, pieces: list[QueuePiece]) -> list[QueuePiece]:
        """Those that may have messages at positions that are asked for."""
        if self.where is None:
            return pieces
        name = "position" if self.words is None else _POSITION
        return within(pieces, *bounds(self.where.condition, name))

    def read(self, partition: QuirePartition) -> Iterator[pa.RecordBatch]:
        """The messages of a task, with the types that Spark asked for."""
        where = None if self.where is None else self.where.in_session()
        if self.query is None:
            yield from read_partition(self.path, partition, self.schema, where)
            return
        query = self.query if where is None else self.query._replace(where=where)
        schema = to_arrow_schema(self.schema)
        for batch in read_rows(self.path, partition.pieces, query):
            yield _typed(schema, batch)
        leave_out_modules()


_POSITION = f"{META}.position"


def _typed(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = []
    for field in schema:
        column = batch.column(field.name)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
