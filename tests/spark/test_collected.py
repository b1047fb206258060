"""Small results in the driver: the same rows as PySpark's own, and errors in few questions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import py4j.clientserver
import pyarrow as pa
import pytest
from py4j.protocol import MEMORY_COMMAND_NAME, MEMORY_DEL_SUBCOMMAND_NAME
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from quire.spark_graphs.graphs.batches.batch_inputs import LoadedMessages, arrow_columns
from quire.spark_graphs.graphs.spark.collected_rows import JobFailed, collected, collected_together
from quire.spark_graphs.graphs.spark.error_reason import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FORGET = MEMORY_COMMAND_NAME + MEMORY_DEL_SUBCOMMAND_NAME  # as Python's collector finds objects
MOST_QUESTIONS = 60  # to the JVM, for a trial that fails; some 320 as PySpark does it


def held(spark: SparkSession, *payloads: bytes) -> DataFrame:
    """Messages as a step's function gets them."""
    schema = arrow_columns(None)
    rows = [{"queue": "in", "position": n, "payload": each} for n, each in enumerate(payloads)]
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    source = LoadedMessages("in", pa.Table.from_pylist(rows, schema=nullable))
    return source.frame(spark, [(0, len(payloads))], by_tasks=False)


def doubled(rows: DataFrame) -> DataFrame:
    """What fails where a message is no number."""
    return rows.selectExpr("string(bigint(string(payload)) * 2) as payload")


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "expressions",
    [
        ["*"],
        ["position as n", "cast(position as decimal(9, 2)) as d", "array(payload) as a"],
        ["timestamp_micros(position) as t", "timestamp_ntz'2026-01-01' as local", "null as none"],
    ],
)
@pytest.mark.parametrize("payloads", [[], [b"1"], [b"%d" % n for n in range(100)]])
def test_the_same_rows(spark: SparkSession, payloads: list[bytes], expressions: list[str]) -> None:
    """With the same columns, also where there are none."""
    rows = held(spark, *payloads).selectExpr(*expressions)
    found = collected(rows)
    assert found.equals(rows.toArrow())
    assert found.num_rows == len(payloads)


def test_errors_in_words(spark: SparkSession) -> None:
    """What happened goes first; no frame of Java's is among what is told."""
    fails = f.udf(lambda payload: str(int(payload) // 0), "string")
    rows = held(spark, b"bad")
    cases = [
        (doubled(rows), "NumberFormatException", "[CAST_INVALID_INPUT] The value 'bad' of the "),
        (rows.selectExpr("1 / position as n"), "ArithmeticException", "[DIVIDE_BY_ZERO] Division"),
        (rows.select(fails("position")), "PythonException", "ZeroDivisionError: "),
    ]
    for wrong, kind, reason in cases:
        with pytest.raises(JobFailed) as caught:
            collected(wrong)
        assert caught.value.kind == kind
        assert reason_of(caught.value).startswith(reason)
        assert "\tat " not in str(caught.value)
    with pytest.raises(AnalysisException, match="nowhere"):
        collected(rows.select("nowhere"))


def test_a_trial_that_fails_asks_little(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the JVM, from the messages to what they fail with."""
    asked = []
    send = py4j.clientserver.ClientServerConnection.send_command
    own = threading.get_ident()

    def counted(connection: object, command: str) -> str:
        if threading.get_ident() == own and not command.startswith(FORGET):
            asked.append(command)
        return str(send(connection, command))

    with pytest.raises(JobFailed):  # what is asked once in a session
        collected(doubled(held(spark, b"bad")))
    monkeypatch.setattr(py4j.clientserver.ClientServerConnection, "send_command", counted)
    with pytest.raises(JobFailed):
        collected(doubled(held(spark, b"bad")))
    assert 0 < len(asked) <= MOST_QUESTIONS, asked


def test_frames_that_are_collected_together(spark: SparkSession) -> None:
    """Each as it is alone, in its order: also one without rows, and columns that are never null."""
    texts = "struct(id as a, struct(true as b) as c) as s"
    frames = [
        spark.range(5).selectExpr("id", "concat('x', id) as text", "true as flag"),
        spark.range(3).selectExpr(texts, "array(id) as l", "map('k', id) as m").orderBy("s.a"),
        spark.range(0).selectExpr("id", "current_timestamp() as at"),
    ]
    assert collected_together(frames) == [collected(each) for each in frames]
    assert collected_together([]) == []
