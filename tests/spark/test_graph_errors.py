"""What a graph says when something is wrong: the cause first, as early as it can be told."""

from __future__ import annotations

import decimal
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire.errors import InvalidArgument
from quire.spark_graphs import Graph
from quire.spark_graphs.graphs.run import Run
from quire.spark_graphs.graphs.spark.error_reason import error_report
from quire.spark_graphs.graphs.status import Phase
from tests.kit.waiting import SECONDS, eventually
from tests.spark.cluster import can_hide, cluster
from tests.spark.numbered_queues import put_numbers, topic
from tests.spark.session import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Py4JJavaError(Exception):
    """As Py4J has it."""


class PythonException(Exception):
    """As PySpark has it."""


class StreamingQueryException(Exception):
    """As PySpark has it."""


# Spark's word where a worker closed its socket with input unread, and the reset that follows was
# seen before the error that the worker had sent.
LOST_WORKER = "Python worker exited unexpectedly"

FRAMES = 'Traceback (most recent call last):\n  File "x.py", line 3, in f\n    1 / 0\n    ~~^~~\n'
LOST = "Lost task 0.0 in stage 5.0 (TID 5) (127.0.0.1 executor driver): "
ABORTED = f"Job aborted due to stage failure: Task 0 in stage 5.0 failed 1 times, most recent failure: {LOST}"  # noqa: E501
CALLING = "An error occurred while calling o397.start.\n: "


@pytest.mark.parametrize(
    ("error", "first"),
    [
        (ValueError("one line"), "ValueError: one line"),
        (ValueError("a first\nand more"), "ValueError: a first"),
        (ValueError(), "ValueError"),
        (
            Py4JJavaError(f"{CALLING}org.apache.spark.SparkNotFound: [NOT] there\n\tat x"),
            "SparkNotFound: [NOT] there",
        ),
        (
            Py4JJavaError(
                f"{CALLING}org.apache.spark.SparkException: {ABORTED}"
                "org.apache.spark.SparkArithmeticException: [NUM] 1 cannot\n\tat x\nCaused by: y"
            ),
            "SparkArithmeticException: [NUM] 1 cannot",
        ),
        (
            Py4JJavaError(
                f"{CALLING}org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
                "\tat x\nCaused by: java.io.IOException: middle\n\tat y\n"
                "Caused by: java.net.ConnectException: Connection refused\n\tat z"
            ),
            "ConnectException: Connection refused",
        ),
        (
            PythonException(
                f"An exception was thrown from the Python worker:\n{FRAMES}ValueError: bad\nmore"
            ),
            "ValueError: bad",
        ),
        (
            PythonException(
                "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
                f"{FRAMES}KeyError: 1\n\nDuring handling of the above exception, another exception "
                f"occurred:\n\n{FRAMES}decimal.InvalidOperation: []\n SQLSTATE: 38000"
            ),
            "InvalidOperation: []",
        ),
        (
            PythonException(
                f"An exception was thrown from the Python worker:\n{FRAMES}"
                "quire.spark_graphs.graphs.batches.task_store.StoreTrouble: "
                "StoreNotFound: the executor on"
            ),
            "StoreNotFound: the executor on",
        ),
        (
            StreamingQueryException(
                "[STREAM_FAILED] Query [id = 9a, runId = ff] terminated with exception: "
                "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data "
                f"source perform initialOffset: quire.errors.QueueInUse: queue 'in'\n\n{FRAMES}"
            ),
            "QueueInUse: queue 'in'",
        ),
    ],
)
def test_the_first_line_is_the_cause(error: Exception, first: str) -> None:
    """As Spark, Py4J and Python hand errors on; all that they say follows."""
    assert error_report(error).splitlines()[0] == first
    advised = error_report(error, ". Do this").splitlines()
    assert advised[0] == f"{first}. Do this"
    assert error_report(error).endswith(str(error).splitlines()[-1] if str(error) else first)


def failed(run: Run, step: str) -> str:
    """The first line of what a step has ended with."""
    eventually(lambda: run.status().steps[step].phase is Phase.FAILED)
    return str(run.status().steps[step].last_error).splitlines()[0]


def first_errors(graph: Graph) -> dict[str, str]:
    """The first line of what each step ends with, by its name."""
    with graph.start(restart="never") as run:
        return {name: failed(run, name) for name in graph.steps}


@pytest.mark.spark
def test_what_a_status_shows(spark: SparkSession, store: Any, capfd: Any) -> None:
    """Of steps and terminals, in Spark's expressions, in Python's workers, and in the driver."""
    from pyspark.sql import functions as f

    topic(store, "in")
    put_numbers(store, "in", range(3))
    graph = Graph("g", spark, store.path)

    too_large = f.udf(lambda payload: decimal.Decimal(10) ** 9, "decimal(4,1)")
    by_zero = f.udf(lambda payload: str(int(payload) // 0), "string")
    expressions = {
        "cast": f.expr("string(bigint(concat(string(payload), 'x')))"),
        "overflow": f.expr("string(cast(position + 1000000 as decimal(4,1)))"),
        "worker": by_zero("payload"),
        "large": too_large("payload").cast("string"),
    }
    for name, expression in expressions.items():

        @graph.step("in", "out", name=name)
        def one(rows: DataFrame, expression: Any = expression) -> DataFrame:
            return rows.select(expression.alias("payload"))

    @graph.terminal("in")
    def nowhere(rows: DataFrame, batch: int) -> None:
        rows.write.format("nowhere").save()

    first = first_errors(graph)
    for _ in range(4):
        if any(LOST_WORKER in error for error in first.values()):
            first = first_errors(graph)
    assert first["cast"].startswith("NumberFormatException: [CAST_INVALID_INPUT] The value '")
    assert first["overflow"].startswith("ArithmeticException: [NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUG")
    assert first["worker"].startswith("ZeroDivisionError: ")
    assert first["large"].startswith("InvalidOperation: ")
    assert "DATA_SOURCE_NOT_FOUND" in first["nowhere"]
    assert "calling" not in "".join(first.values())
    assert "QueryContextLogger" not in capfd.readouterr().err


@pytest.mark.spark
def test_errors_of_the_function_are_told_at_the_start(
    spark: SparkSession, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that no message can be at fault for; others may come of there being none."""
    topic(store, "in")

    def start(function: Any) -> None:
        graph = Graph("g", spark, store.path)
        graph.step("in", "out", name="s")(function)
        graph.start().stop()

    wrong = {
        "NameError: name 'missing' is not defined": lambda rows: rows.where(missing),  # type: ignore[name-defined] # noqa: F821
        "AttributeError: 'str' object has no attribute 'payload'": lambda rows: "x".payload,  # type: ignore[attr-defined]
        "ModuleNotFoundError: No module named 'nowhere'": lambda rows: __import__("nowhere"),
        "TypeError: unsupported operand": lambda rows: rows.count() + "x",
    }
    for message, function in wrong.items():
        with pytest.raises(InvalidArgument, match=f"step 's': its function fails, .*{message}"):
            start(function)
    for function in (
        lambda rows: rows.first().payload,
        lambda rows: rows.first()[0],
        lambda rows: rows.collect()[0],
        lambda rows: 1 / rows.count(),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "quire.spark_graphs"):
            start(function)
        assert "step s fails without messages: " in caplog.text


HIDDEN = """
import sys
from pathlib import Path
from tests.spark.session import start_session
from quire.errors import StoreNotFound
from quire.spark_graphs import Graph
master, path, scratch = sys.argv[1:]
spark = start_session(Path(scratch), master, {"spark.executor.memory": "512m"})
graph = Graph("g", spark, path)
graph.queue("in")
graph.step("in", "out", name="copy")(lambda rows: rows)
try:
    graph.start().stop()
    print("STARTED")
except StoreNotFound as error:
    print("REFUSED", error)
spark.stop()
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("is_hidden", [False, True])
def test_every_executor_is_tried_at_the_start(tmp_path: Path, is_hidden: bool) -> None:
    """On two hosts, of which one does not see the store: it is told before any batch, large or
    small, with host and path."""
    if is_hidden and not can_hide():
        pytest.skip("this user may not have directories that others do not see")
    shared = tmp_path / "shared"
    shared.mkdir()
    with cluster(tmp_path, 2, shared if is_hidden else None) as master:
        command = [sys.executable, "-c", HIDDEN, master, f"{shared}/store", str(tmp_path)]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    said = [line for line in done.stdout.splitlines() if line.startswith(("STARTED", "REFUSED"))]
    assert said, done.stderr
    if is_hidden:
        told_of = f"does not see the files of the store {shared}/store"
        assert said[0].startswith("REFUSED the executor on host '")
        assert told_of in said[0]
    else:
        assert said == ["STARTED"]
