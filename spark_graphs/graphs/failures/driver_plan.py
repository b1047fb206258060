"""A step's function planned once for some messages, any of which are then tried in the driver.

A trial that is a job of Spark takes 60 ms, of which nearly all is for the function's call, for the
plan of what it returns and for the job; the rows themselves take microseconds.

YDP1. A trial is what one task of Spark does with these rows where no other task has any. The plan
    is a chain of the operators that are known to work row by row, and ends in the rows. What has an
    exchange, a join, a subquery or a worker of Python is no such plan.
YDP2. The plan is of no message in particular: while the function is called, Spark does no job for
    it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from quire.libraries.late_imports import importing
from quire.spark_graphs.graphs.batches.batch_inputs import Framed, Input, Leased, LoadedMessages
from quire.spark_graphs.graphs.batches.due_input import DueInput
from quire.spark_graphs.graphs.batches.row_ranges import RowRange
from quire.spark_graphs.graphs.functions.kept_values import KeptValues
from quire.spark_graphs.graphs.functions.step_function import StepWork
from quire.spark_graphs.graphs.spark.collected_rows import call_jvm, exception_text, readable_error
from quire.spark_graphs.graphs.spark.session import quiet

from .poison import FailsOf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log: Final = logging.getLogger("quire.spark_graphs")

_REFUSED: Final = "quire/planned"  # a group of jobs that all are refused
_JOB_GROUP: Final = "spark.jobGroup.id"
_CATALYST: Final = "org.apache.spark.sql.catalyst"
_ROWS: Final = f"{_CATALYST}.plans.logical.LocalRelation"
_EXECUTION: Final = "org.apache.spark.sql.execution"
_OPERATORS: Final = frozenset(
    {f"{_EXECUTION}.ProjectExec", f"{_EXECUTION}.FilterExec", f"{_EXECUTION}.GenerateExec"}
    | {f"{_EXECUTION}.WholeStageCodegenExec", f"{_EXECUTION}.InputAdapter"}
    | {f"{_EXECUTION}.RDDScanExec"}
)
_ONE_TO_ONE: Final = "org.apache.spark.OneToOneDependency"


class _Unplanned(Exception):
    """The outputs of a function that cannot be tried by a plan."""


def plan_in_driver(
    work: StepWork,
    spark: SparkSession,
    inputs: Sequence[Input],
    index: int,
    number: int,
    values: Callable[[], KeptValues],
) -> FailsOf | None:
    """Return trials of any of the rows of an input; None: there is no plan for them.

    `inputs`: the others have no rows. Should the function fail, it does so without the plan too.
    """
    if not hasattr(spark, "_jsparkSession"):  # Spark Connect
        return None
    rows = inputs[index]
    assert not isinstance(rows, Leased)
    try:
        driver = _Driver(spark, rows)
        frames: list[Framed] = [*inputs]
        frames[index] = driver
        with _jobs_refused(spark), quiet():
            outputs = work.called(frames, [[]] * len(frames), number, values)
            plans = [driver.stages_of(each) for each in outputs.values()]
    except Exception as error:  # noqa: BLE001 - the function's, or of a Spark that has other names
        _log.debug("step %s is tried without a plan: %r", work.step.name, error)
        return None
    return driver.trials(plans) if plans else None


@contextlib.contextmanager
def _jobs_refused(spark: SparkSession) -> Iterator[None]:
    """Jobs of this thread fail at once (YDP2)."""
    context = spark._sc
    context._jsc.sc().cancelJobGroupAndFutureJobs(_REFUSED)
    before = context.getLocalProperty(_JOB_GROUP)
    context._jsc.setLocalProperty(_JOB_GROUP, _REFUSED)
    try:
        yield
    finally:
        context._jsc.setLocalProperty(_JOB_GROUP, before)


class _Driver:
    """The rows of an input, as a function gets them; they are nowhere but in the driver."""

    def __init__(self, spark: SparkSession, rows: LoadedMessages | DueInput) -> None:
        self.queue, self.due = rows.queue, rows.due
        self._spark = spark
        local = rows.frame(spark, [(0, rows.count)], by_tasks=False)._jdf
        relation = local.queryExecution().analyzed()
        if _class_of(relation) != _ROWS:
            raise _Unplanned("its rows are in no local relation")
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._rows = relation.data()
        self._kind = jvm.scala.reflect.ClassTag.apply(
            jvm.java.lang.Class.forName(f"{_CATALYST}.InternalRow")
        )
        # Whoever asks for its rows gets none: those of a trial come with its partition.
        none = self._rows.slice(0, 0)
        self._leaf = spark._sc._jsc.sc().parallelize(none, 1, self._kind)
        self._frame = spark._jsparkSession.internalCreateDataFrame(
            self._leaf, local.schema(), False
        )

    def frame(self, spark: SparkSession, runs: Sequence[RowRange], *, by_tasks: bool) -> DataFrame:
        """Whatever rows they are."""
        with importing():
            from pyspark.sql import DataFrame

        return DataFrame(self._frame, spark)

    def stages_of(self, rows: DataFrame) -> Any:
        """Return the stages that make rows of a partition of rows. Raises _Unplanned (YDP1)."""
        query = rows._jdf.queryExecution()
        nodes = [query.executedPlan()]
        for node in nodes:
            if _class_of(node) not in _OPERATORS or not node.subqueries().isEmpty():
                raise _Unplanned(str(node.nodeName()))
            if not node.children().isEmpty():
                nodes.append(node.children().head())
        found = stage = query.toRdd()
        while stage.id() != self._leaf.id():
            made_of = stage.dependencies()
            if made_of.size() != 1 or _class_of(made_of.head()) != _ONE_TO_ONE:
                raise _Unplanned("it is not made of the rows")
            stage = made_of.head().rdd()
        return found

    def trials(self, plans: Sequence[Any]) -> FailsOf:
        """Return a function that makes rows of some of them, and returns its error."""
        with importing():
            from py4j.protocol import Py4JJavaError

        partition = self._jvm.org.apache.spark.rdd.ParallelCollectionPartition
        task = getattr(getattr(self._jvm, "org.apache.spark.TaskContext$"), "MODULE$").empty()
        ask = exception_text(self._spark)

        def fails(begin: int, end: int) -> Exception | None:
            some = partition(0, 0, self._rows.slice(begin, end), self._kind)
            try:
                for each in plans:
                    call_jvm(call_jvm(each, "iterator", some, task), "size")
            except Py4JJavaError as error:
                return readable_error(error, ask)
            return None

        return fails


def _class_of(of: Any) -> str:
    return str(of.getClass().getName())
