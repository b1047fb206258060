"""Explicit registration: the format, where Spark's own look-up of `pyspark_quire` cannot work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.libraries.late_imports import importing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("quire")` known to this session, and watch the ends of its streaming queries.

    The first is needed where Spark's Python workers do not have Quire installed when the look-up
    runs, as with `--py-files`; elsewhere Spark finds the format by itself. By the second what a
    query has read last is released when it ends, and not only when it starts again.
    """
    with importing():
        from .last_release import LastRelease
        from .source import QuireDataSource

    spark.dataSource.register(QuireDataSource)
    spark.streams.addListener(LastRelease())
