"""`format("quire")`: the data source that Spark sees."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from quire.errors import QuireError

from . import sink_queues
from .batch_reader import BatchReader
from .first_line import first_line
from .options import WriteOptions, include_headers, read_options, write_options
from .refused_stream import RefusedStream
from .schema import check_source_schema, source_schema
from .stream_reader import StreamReader
from .writer import BatchWriter, StreamWriter

FORMAT = "quire"


@first_line
class QuireDataSource(DataSource):
    """Queues of a store as tables and streams, both ways."""

    # Spark makes an instance wherever it plans. Only for the commit of a micro-batch it hands an
    # older one over, pickled: what an error says there comes too late, and is not shown.
    plans = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.plans = False

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return source_schema(include_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        check_source_schema(schema)
        return BatchReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            check_source_schema(schema)
            return StreamReader(read_options(self.options, streaming=True), schema)
        except QuireError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = write_options(self.options, streaming=False)
        return BatchWriter(self._checked(options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        options = write_options(self.options, streaming=True)
        return StreamWriter(self._checked(options), schema, overwrite)

    def _checked(self, options: WriteOptions) -> WriteOptions:
        """The options, whose queue is there when the write is planned."""
        if self.plans and options.queue is not None:
            sink_queues.check(options.path, [options.queue])
        return options
