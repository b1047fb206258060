"""What PySpark itself logs of an error, which its step tells anyway.

PySpark logs each error that has a place in a query, as a page of JSON, where it hands it on. A
batch that is told apart has thousands of them.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Final

from pyspark.logger import PySparkLogger

_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_thread = threading.local()


def _passes(record: logging.LogRecord) -> bool:
    return not getattr(_thread, "is_quiet", False)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """PySpark logs nothing of errors that are raised in this thread."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).addFilter(_passes)  # no second time
    before = getattr(_thread, "is_quiet", False)
    _thread.is_quiet = True
    try:
        yield
    finally:
        _thread.is_quiet = before
