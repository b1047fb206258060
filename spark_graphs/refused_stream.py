"""A stream whose options are refused, in a way that Spark shows.

Where a source raises while its reader is made, PySpark's worker fails a second time, on the reader
that is not there (`reader.stop()` in python_streaming_source_runner.py, PySpark 4.3), and Spark
shows that error in the place of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from quire.errors import QuireError

from .first_line import first_line
from .pyspark_features import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow


@first_line
class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error at whatever Spark asks first."""

    def __init__(self, error: QuireError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        raise self._error

    def latestOffset(self, *_: Any) -> NoReturn:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> NoReturn:
        raise self._error
