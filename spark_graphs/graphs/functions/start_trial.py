"""The trials before a graph starts: of each step's function, and of every executor.

- A function is tried with no messages, and its effect is dropped.
- Small batches travel with Spark's jobs, and only large ones are read and written by tasks: without
  a trial an executor that does not see the store would be found by the first large batch.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from quire.env import OsEnv
from quire.errors import InvalidArgument, StoreNotFound
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.spark_graphs.graphs.batches.batch_inputs import empty
from quire.spark_graphs.graphs.batches.task_store import TaskStore
from quire.spark_graphs.graphs.definition import Step
from quire.spark_graphs.graphs.spark.error_reason import error_report
from quire.spark_graphs.graphs.spark.session import quiet
from quire.spark_graphs.limits import EXECUTOR_TASKS, EXECUTOR_TRIAL_SECONDS

from .kept_values import KeptValues
from .step_function import StepWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log: Final = logging.getLogger("quire.spark_graphs")


@contextlib.contextmanager
def analysed(step: Step) -> Iterator[None]:
    """Turn what Spark finds wrong with a step's plan into InvalidArgument with the step's name."""
    with importing():
        from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        raise InvalidArgument(f"step '{step.name}': Spark cannot plan it: {error}") from error


def try_out(work: StepWork) -> None:
    """Raise what is wrong with a function, or with what it returns, whatever the messages are.

    Other errors it may have because it does not expect to have no messages at all: they are told
    in the log. A terminal is not tried, since what it does cannot be dropped; a streaming step is
    by its start.
    """
    if work.step.kind != "step":
        return
    values = KeptValues(work.step.name, {})
    inputs = [empty(queue, work.tasks, work.schemas.get(queue)) for queue in work.step.inputs]
    try:
        with analysed(work.step), quiet():
            work.try_out(inputs, lambda: values)
    except InvalidArgument:
        raise
    except Exception as error:
        name, report = work.step.name, error_report(error)
        if not _may_be_for_lack(error):
            raise InvalidArgument(
                f"step '{name}': its function fails, and no message is at fault: {report}"
            ) from error
        _log.warning("step %s fails without messages: %s", name, report.partition("\n")[0])


def _may_be_for_lack(error: Exception) -> bool:
    """Return True if a function may fail so only for lack of messages: with a None, or nothing."""
    with importing():
        from pyspark.errors import PySparkAttributeError, PySparkTypeError

    if isinstance(error, UnboundLocalError):  # of a loop over no rows
        return True
    if isinstance(error, (NameError, ImportError, SyntaxError, NotImplementedError)):
        return False
    if isinstance(error, (PySparkAttributeError, PySparkTypeError)):
        return False
    if isinstance(error, AttributeError):
        return error.obj is None
    return not isinstance(error, TypeError) or "NoneType" in str(error)


def check_executors(spark: SparkSession, store: TaskStore) -> None:
    """Raise StoreNotFound where an executor does not see the store: its host, the path, what to do.

    As many tasks as Spark has cores go to all executors at once. In local mode tasks run where this
    does: nothing is tried.
    """
    if (spark.conf.get("spark.master", "") or "").startswith("local"):
        return
    context = getattr(spark, "_sc", None)  # None: Spark Connect, which does not tell
    tasks = EXECUTOR_TASKS if context is None else context.defaultParallelism
    found = spark.range(0, tasks, 1, tasks).mapInArrow(_Trial(store), "trouble string").collect()
    if found:
        raise StoreNotFound(found[0]["trouble"])


class _Trial(Struct, frozen=True):
    """The function of a task: a row for what is wrong, or none."""

    store: TaskStore

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            try:
                self.store.check()
            except StoreNotFound as error:
                yield pa.RecordBatch.from_pydict({"trouble": [str(error)]})
            # No executor has done its task, and gets another one's, before all have one.
            OsEnv().sleep(EXECUTOR_TRIAL_SECONDS)
