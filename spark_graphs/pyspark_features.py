"""The features of the PySpark that is installed: the only place that tells its releases apart.

Everything goes by what is there, not by numbers. What a release lacks is refused where it is asked
for, with the release that has it.

| | from |
|---|---|
| batch reads and writes, the streaming sink, graphs | 4.0 |
| the streaming source, streaming steps of graphs | 4.2 |
"""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.pandas import types as arrow_types

from quire.errors import InvalidArgument
from quire.libraries.late_imports import importing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType

    from quire.libraries import pa

__all__ = [
    "HAS_STREAM_SOURCE",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "check_stream_source",
    "frame_of_arrow",
    "to_arrow_schema",
]

HAS_STREAM_SOURCE = True

if not TYPE_CHECKING:

    class _ArrowAndStreamWriter(DataSourceArrowWriter, DataSourceStreamWriter):
        """A sink that 4.0 hands Arrow batches to, as to any writer of the first kind."""

    StreamArrowWriter = getattr(datasource, "DataSourceStreamArrowWriter", _ArrowAndStreamWriter)

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:  # before 4.2 a source is told neither where it stands nor how far to go
        HAS_STREAM_SOURCE = False

        class ReadLimit:
            """Stands for the limits that this release does not have."""

        class SupportsTriggerAvailableNow:
            """Stands for what this release does not ask."""

        ReadAllAvailable = ReadMaxBytes = ReadMaxRows = ReadMinRows = ReadLimit


_TAKES_TIMEZONE = "timezone" in inspect.signature(arrow_types.to_arrow_schema).parameters


def to_arrow_schema(schema: StructType, **options: Any) -> pa.Schema:
    """Return the Arrow schema of a schema of Spark, with instants in UTC."""
    if _TAKES_TIMEZONE:
        options["timezone"] = "UTC"
    return arrow_types.to_arrow_schema(schema, **options)


def frame_of_arrow(
    spark: SparkSession, rows: pa.Table, schema: StructType, batch_rows: int
) -> DataFrame:
    """Return a DataFrame of these rows, without the settings that `createDataFrame` asks for."""
    create = spark._create_from_arrow_table
    options: dict[str, Any] = {
        "prefer_timestamp_ntz": False,
        "prefers_large_var_types": False,
        "arrow_batch_size": batch_rows,
    }
    taken = inspect.signature(create).parameters
    found: DataFrame = create(
        rows,
        schema,
        timezone="UTC",
        **{name: value for name, value in options.items() if name in taken},
    )
    return found


def collected_batches(port: Any, secret: Any) -> list[pa.RecordBatch]:
    """Return what the JVM has collected as Arrow batches for this socket, in the rows' order."""
    with importing():
        from pyspark.sql.pandas.serializers import ArrowCollectSerializer
        from pyspark.util import _load_from_socket

    opened: Any = _load_from_socket((port, secret), ArrowCollectSerializer())
    if isinstance(opened, AbstractContextManager):
        with opened as stream:
            found = list(stream)
    else:  # of 4.1
        found = list(opened)
    if found and isinstance(found[-1], list):  # before 4.3 as they were done, and then their order
        order = found.pop()
        found = [found[number] for number in order]
    return found


def check_stream_source(what: str = "a stream of format 'quire'") -> None:
    """Raise InvalidArgument where this release cannot have the streaming source."""
    if not HAS_STREAM_SOURCE:
        raise InvalidArgument(
            f"{what} needs PySpark 4.2 or newer, and this is {pyspark.__version__}: before that "
            "Spark tells a source in Python neither where it stands nor how far it may go"
        )
