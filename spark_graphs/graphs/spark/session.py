"""The session that a graph runs in: if it is there still, its jobs, and what it logs of errors.

YSE1. What Spark looks up by name (a format such as `quire`, a view, a function) it looks for in the
    session that is active in the JVM's thread. A thread of ours has a JVM thread of its own, which
    has none, or that of somebody else, until it is said.
- PySpark logs each error that has a place in a query, as a page of JSON, where it hands it on. A
  batch that is isolated has thousands of them, and its step reports the one that counts: so the
  loggers are silenced in its thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.logger import PySparkLogger

from quire.errors import StepFailed
from quire.libraries.late_imports import importing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def be_in(spark: SparkSession) -> None:
    """Have the thread that calls be in this session (YSE1).

    With Spark Connect each request says its session.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    with importing():
        from pyspark.sql import SparkSession as Classic

    Classic._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


def has_ended(spark: SparkSession) -> bool:
    """Return True if Spark has been stopped, or its JVM is gone.

    With Spark Connect only what this program has stopped is seen; else the next job tells.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        return bool(getattr(spark, "is_stopped", False))
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 - whatever Py4J raises where the JVM has ended
        return True


def ended() -> StepFailed:
    """Return the error that a step fails with then."""
    return StepFailed(
        "Spark has ended: start the graph again in a new session; each step goes on behind its "
        "last commit"
    )


_log: Final = logging.getLogger("quire.spark_graphs")


def job_group(graph: str, step: str) -> str:
    """The group of a step's jobs."""
    return f"quire/{graph}/{step}"


@contextlib.contextmanager
def described(
    spark: SparkSession, graph: str, step: str, number: int, *, restore: bool = False
) -> Iterator[None]:
    """The jobs of this thread are those of a batch of a step.

    `restore`: and no more at the end, as the thread is not the step's own. With Spark Connect they
    have its tag; there Spark shows no more.
    """
    group = job_group(graph, step)
    context = getattr(spark, "_sc", None)
    if context is None:
        spark.addTag(_tag(group))
        try:
            yield
        finally:
            spark.removeTag(_tag(group))
        return
    context.setJobGroup(group, f"graph {graph}, step {step}, batch {number}", True)
    try:
        yield
    finally:
        if restore:
            for name in ("spark.jobGroup.id", "spark.job.description"):
                context.setLocalProperty(name, None)


def cancel(spark: SparkSession, graph: str, step: str) -> None:
    """End the jobs of a step that run. Where Spark itself has ended there are none."""
    group = job_group(graph, step)
    context = getattr(spark, "_sc", None)
    try:
        if context is None:
            spark.interruptTag(_tag(group))
        else:
            context.cancelJobGroup(group)
    except Exception as error:  # noqa: BLE001 - whatever Py4J raises where the JVM has ended
        _log.debug("no jobs of %s to end: %s", group, error)


def _tag(group: str) -> str:
    return group.replace(",", " ")


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
