"""Whether every executor sees the store's files, tried before a graph starts.

Small batches travel with Spark's jobs, and only large ones are read and written by tasks: without
this an executor that does not see the store would be found by the first large batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from quire.env import OsEnv
from quire.errors import StoreNotFound
from quire.libraries import pa
from quire.spark_graphs.limits import EXECUTOR_TASKS, EXECUTOR_TRIAL_SECONDS

from .batches.task_store import TaskStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
