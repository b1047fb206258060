"""Errors that say in their first line what happened.

Spark hands an exception of a Python worker on as the text of its traceback, at whose end, some
thousand characters on, stands what a user wants to know.

YX1. The text of an error of Quire or of the system, as Spark shows it, begins with the error
    itself; the traceback follows, with all that the error came from.
"""

from __future__ import annotations

import contextlib
import functools
import os
import traceback
from collections.abc import Callable, Iterator
from inspect import isfunction
from typing import Any, TypeVar

from quire.errors import QuireError

from .worker_garbage import is_worker

# Spark's own switch (`spark.sql.execution.pyspark.udf.hideTraceback.enabled`), which a worker looks
# at when an exception ends it.
HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"

Class = TypeVar("Class", bound=type)


def first_line(cls: Class) -> Class:
    """Class decorator: errors that leave a public method are told first (YX1)."""
    for name, method in list(vars(cls).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(cls, name, _telling(method))
    return cls


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)  # Spark looks at the methods' parameters
    def call(*arguments: Any, **named: Any) -> Any:
        with _telling_first():
            result = method(*arguments, **named)
        return _each(result) if isinstance(result, Iterator) else result

    return call


def _each(found: Iterator[Any]) -> Iterator[Any]:
    with _telling_first():
        yield from found


@contextlib.contextmanager
def _telling_first() -> Iterator[None]:
    """Lets errors pass; in a worker of Spark, which they end, the traceback becomes a note."""
    try:
        yield
    except (QuireError, OSError) as error:
        if is_worker() and HIDE_TRACEBACK not in os.environ:
            error.add_note(f"\n{traceback.format_exc()}")
            os.environ[HIDE_TRACEBACK] = "1"
        raise
