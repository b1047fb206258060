"""`format("quire")`: the data source that Spark sees."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .batch_reader import BatchReader
from .options import include_headers, read_options, write_options
from .schema import check_source_schema, source_schema
from .stream_reader import StreamReader
from .writer import BatchWriter, StreamWriter

FORMAT = "quire"


class QuireDataSource(DataSource):
    """Queues of a store as tables and streams, both ways."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return source_schema(include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        check_source_schema(schema)
        return BatchReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_source_schema(schema)
        return StreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(write_options(self.options, streaming=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(write_options(self.options, streaming=True), schema, overwrite)
