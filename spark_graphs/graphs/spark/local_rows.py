"""Rows of Arrow as a DataFrame that travels with the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from quire.definitions.row_schema import schema_of_words
from quire.libraries import pa
from quire.spark_graphs.limits import BLOCK_ROWS
from quire.spark_graphs.pyspark_features import frame_of_arrow, to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return rows that travel with the job. `schema`: of columns that may all be null."""
    if rows.num_rows:
        return _made(spark, rows, schema)
    # Spark cannot make a DataFrame of an Arrow table without rows (4.3); this needs no job either.
    # Made of rows, Arrow would import pandas for it, here and so in each of Spark's workers.
    arrow = to_arrow_schema(schema)
    nulls = pa.Table.from_arrays([pa.nulls(1, field.type) for field in arrow], schema=arrow)
    return _made(spark, nulls, schema).limit(0)


def spark_schema(words: str) -> StructType:
    """Return the columns of a state for Spark."""
    own = from_arrow_schema(schema_of_words(words), prefer_timestamp_ntz=True)
    # A DataFrame without rows is made of one that is all nulls.
    return StructType([StructField(each.name, each.dataType) for each in own])


def _made(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Make it as `createDataFrame` does, which asks the JVM for all that the rows' schema says."""
    if not hasattr(spark, "_jsparkSession"):  # Spark Connect
        return spark.createDataFrame(rows, schema)
    return frame_of_arrow(spark, rows, schema, BLOCK_ROWS)
