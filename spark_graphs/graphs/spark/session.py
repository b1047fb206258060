"""The session that a graph runs in: whether it is there still, and how a thread is in it.

YSE1. What Spark looks up by name (a format such as `quire`, a view, a function) it looks for in the
    session that is active in the JVM's thread. A thread of ours has a JVM thread of its own, which
    has none, or that of somebody else, until it is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """Whether Spark has been stopped, or its JVM is gone.

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
    """What a step fails with then."""
    return StepFailed(
        "Spark has ended: start the graph again in a new session; each step goes on behind its "
        "last commit"
    )
