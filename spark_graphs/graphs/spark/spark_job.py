"""What Spark shows of a step's jobs, and how they are told to end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
