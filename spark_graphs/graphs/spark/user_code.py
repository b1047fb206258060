"""User code in a plan of Spark: functions of its author, which may take any time for a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PATTERNS: Final = ("PYTHON_UDF", "SCALA_UDF")
_LOCAL: Final = frozenset({"LocalRelation", "OneRowRelation"})


def has_user_code(rows: DataFrame) -> bool:
    """Return False if Spark's own operators make all of it of rows that travel with the job.

    What is read from elsewhere counts as such code, as it may be of any size. With Spark Connect
    nothing is known.
    """
    frame: Any = getattr(rows, "_jdf", None)
    if frame is None:
        return True
    jvm = rows.sparkSession._jvm
    patterns: Any = getattr(jvm, "org.apache.spark.sql.catalyst.trees.TreePattern")
    plan = frame.queryExecution().analyzed()
    if any(plan.containsPattern(getattr(patterns, name)()) for name in _PATTERNS):
        return True
    leaves = plan.collectLeaves()
    return any(leaves.apply(at).nodeName() not in _LOCAL for at in range(leaves.size()))
