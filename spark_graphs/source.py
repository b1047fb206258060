"""`format("quire")`: the data source that Spark sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from quire.env import OsEnv, check_file_system
from quire.errors import InvalidArgument, QuireError

from . import connection
from .first_line import first_line
from .options import KNOWN, ReadOptions, WriteOptions, include_headers, read_options, write_options
from .planning.batch_reader import BatchReader
from .planning.one_load import LoadTurn, is_source
from .planning.stream_reader import StreamReader
from .pyspark_features import StreamArrowWriter, check_stream_source
from .reading.row_columns import (
    BYTES,
    check_loaded,
    chosen_columns,
    typed_schema,
    words_read,
)
from .refused_stream import RefusedStream
from .schema import check_source_schema, source_schema
from .writing import row_sink
from .writing.row_sink import Routes
from .writing.sink_writer import BatchWriter, StreamWriter

FORMAT = "quire"
_OF_TABLES = "provider"  # an option that CREATE TABLE adds where it asks for the columns

Parsed = TypeVar("Parsed", ReadOptions, WriteOptions)


@first_line
class QuireDataSource(DataSource):
    """Queues of a store as tables and streams, both ways."""

    # Spark makes an instance wherever it plans. Only for the commit of a micro-batch it hands an
    # older one over, pickled: what an error says there comes too late, and is not shown.
    plans = True

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.load = OsEnv().random_u64()  # Spark makes one for each load, and copies of it
        # The columns that the queues had when they were loaded; None: they were not asked for, as
        # the user has said which columns are read.
        self.loaded: str | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.plans = False

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        lost = [name for name in KNOWN if name.lower() in self.options]
        if lost and _OF_TABLES in self.options:
            raise InvalidArgument(
                f"CREATE TABLE has option '{lost[0]}', and Spark hands its options on to neither "
                "reads nor writes: use CREATE TEMPORARY VIEW, or make the table without options "
                "and give them WITH (...) in each statement"
            )
        plain = source_schema(include_headers(self.options))
        options = self._read_options()
        if options is None:
            return plain  # what is wrong with them the reader says
        schema_ddl = self._schema_ddl(options)
        if options.columns is None:
            self.loaded = schema_ddl or BYTES
        return (
            chosen_columns(options, plain)
            if schema_ddl is None
            else typed_schema(schema_ddl, options)
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _placed(read_options, self.options, streaming=False)
        schema_ddl = self._schema_ddl(options)
        if schema_ddl is None:
            check_source_schema(schema)
        return BatchReader(options, schema, schema_ddl)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            check_stream_source()
            options = _placed(read_options, self.options, streaming=True)
            schema_ddl = self._schema_ddl(options)
            if self.loaded is not None:
                check_loaded(self.loaded, schema_ddl, options.queues)
            if schema_ddl is None:
                check_source_schema(schema)
            return StreamReader(
                options,
                schema,
                schema_ddl=schema_ddl,
                turn=self._turn(options),
                all_columns=self.loaded is not None,
            )
        except QuireError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = _placed(write_options, self.options, streaming=False)
        return BatchWriter(options, schema, overwrite, self._routes(options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        options = _placed(write_options, self.options, streaming=True)
        routes = self._routes(options, schema)
        return StreamWriter(options, schema, overwrite, routes, plans=self.plans)

    def _read_options(self) -> ReadOptions | None:
        """Return the options of a read, which may become a batch or a stream."""
        for streaming in (False, True):
            with suppress(InvalidArgument):
                return _placed(read_options, self.options, streaming=streaming)
        return None

    def _turn(self, options: ReadOptions) -> LoadTurn | None:
        """Return the turn of a source; one that knows its checkpoint is the only one of its load.

        What a graph says and does of a step is about one subscription for each of its inputs.
        """
        if options.checkpoint is not None or not is_source():
            return None
        return connection.call(options.path, lambda _: LoadTurn(options, self.load))

    def _schema_ddl(self, options: ReadOptions) -> str | None:
        """The schema of the queues to be read; None where they hold bytes, or are not there."""
        try:
            return connection.call(options.path, lambda store: words_read(store, options))
        except InvalidArgument:
            raise
        except QuireError:  # which planning says
            return None

    def _routes(self, options: WriteOptions, schema: StructType) -> Routes | None:
        """Return where rows of typed queues go; the queue is there when the write is planned."""
        if not self.plans:
            return None if "payload" in schema.names else {}
        return connection.call(
            options.path, lambda store: row_sink.routes(store, options.queue, schema)
        )


def _placed(parse: Callable[..., Parsed], raw: Mapping[str, str], *, streaming: bool) -> Parsed:
    """Return what the options say. Raises InvalidArgument, also for where the store is."""
    options = parse(raw, streaming=streaming)
    if not connection.is_served(options.path):
        check_file_system(OsEnv(), options.path, network=options.network_file_system)
    return options
