"""Explicit registration, for where Spark's own look-up of `pyspark_quire` cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("quire")` known to this session.

    Needed where Spark's Python workers do not have Quire installed when the look-up runs, as with
    `--py-files`; elsewhere Spark finds the format by itself.
    """
    from .source import QuireDataSource

    spark.dataSource.register(QuireDataSource)
