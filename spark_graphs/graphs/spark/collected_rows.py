"""The rows of a small result in the driver, and in words what they could not be had for.

- Rows come as `DataFrame.toArrow` has them come. An error is asked for its words once: PySpark
  makes an exception of its own of it by some 200 questions to the JVM, and a batch that is told
  apart has an error for each trial.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from quire.libraries import pa, pc
from quire.libraries.late_imports import importing
from quire.spark_graphs.pyspark_features import collected_batches, to_arrow_schema

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import DataFrame, SparkSession

_PLACES: Final = re.compile(  # of Java's stack traces, and errors beside the one that is told
    r"\n\t+(?:at |\.\.\. \d+ more|Suppressed: |Caused by: )[^\n]*"
)
_CAUSED_BY: Final = "\nCaused by: "
_KIND: Final = re.compile(r"(?:[a-z][\w$]*\.)*(?:Spark(?=\w+Exception))?([A-Z]\w*)(?:: |(?=\n|$))")


class JobFailed(Exception):
    """Spark has failed to make rows: what it says, with its causes and without Java's frames."""

    def __init__(self, text: str) -> None:
        """`said`: the kind of Java's error, and its message."""
        found = _KIND.match(text)
        self.kind = found[1] if found else type(self).__name__
        super().__init__((text[found.end() :] if found else text) or self.kind)


def collected(rows: DataFrame) -> pa.Table:
    """Return all rows. Raises JobFailed; with Spark Connect, or without a plan, Spark's own."""
    frame = getattr(rows, "_jdf", None)
    if frame is None:
        return rows.toArrow()
    with importing():
        from py4j.protocol import Py4JJavaError

    schema = to_arrow_schema(rows.schema, error_on_duplicated_field_names_in_struct=True)
    try:
        batches = _batches(frame)
    except Py4JJavaError as error:
        raise readable_error(error, exception_text(rows.sparkSession)) from None
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def collected_together(frames: Sequence[DataFrame]) -> list[pa.Table]:
    """Return all rows of each, of one job: what they have in common Spark makes once.

    Raises what `collected` does.
    """
    if len(frames) < 2:
        return [collected(each) for each in frames]
    with importing():
        from pyspark.sql import functions as f

    # A row of one frame has nulls in the place of the others', whatever these say of their columns.
    types = [_nullable(each.schema) for each in frames]
    nothing = [f.lit(None).cast(each).alias(f"v{at}") for at, each in enumerate(types)]
    parts = []
    for number, frame in enumerate(frames):
        columns = f.struct(*(f.col(f"`{name}`") for name in frame.columns))
        own = columns.cast(types[number]).alias(f"v{number}")
        all_columns = [*nothing[:number], own, *nothing[number + 1 :]]
        parts.append(frame.select(f.lit(number).alias("number"), *all_columns))
    rows = collected(reduce(lambda a, b: a.union(b), parts))
    return [_part_of(rows, number, frame) for number, frame in enumerate(frames)]


def _nullable(type_: Any) -> Any:
    """Return the type with nulls allowed in all its parts."""
    with importing():
        from pyspark.sql import types as t

    if isinstance(type_, t.StructType):
        return t.StructType([t.StructField(x.name, _nullable(x.dataType)) for x in type_])
    if isinstance(type_, t.ArrayType):
        return t.ArrayType(_nullable(type_.elementType))
    if isinstance(type_, t.MapType):
        return t.MapType(type_.keyType, _nullable(type_.valueType))
    return type_


def _part_of(rows: pa.Table, number: int, frame: DataFrame) -> pa.Table:
    own = rows.filter(pc.equal(rows.column("number"), number)).column(f"v{number}")
    schema = to_arrow_schema(frame.schema)
    if not len(own):
        return schema.empty_table()
    parts = [
        pa.RecordBatch.from_arrays(chunk.flatten(), names=schema.names) for chunk in own.chunks
    ]
    return pa.Table.from_batches(parts).cast(schema)


def _batches(frame: Any) -> list[pa.RecordBatch]:
    port, secret, server = call_jvm(frame, "collectAsArrowToPython")
    try:
        return collected_batches(port, secret)
    finally:
        call_jvm(server, "getResult")  # the job's own error, whatever the stream's end was


def call_jvm(of: Any, name: str, *arguments: Any) -> Any:
    """Call a method of an object in the JVM, with errors as Py4J itself raises them."""
    with importing():
        from py4j import protocol

    member = getattr(of, name)
    client = member.gateway_client
    encoded, _ = member._build_args(*arguments)
    command = (
        f"{protocol.CALL_COMMAND_NAME}{member.command_header}{encoded}{protocol.END_COMMAND_PART}"
    )
    answer = client.send_command(command)
    return protocol.get_return_value(answer, client, member.target_id, member.name)


def exception_text(spark: SparkSession) -> Callable[[Any], str]:
    """Has an error of the JVM say all that it says."""
    utils: Callable[[Any], str] = getattr(spark._jvm, "org.apache.spark.util.Utils").exceptionString
    return utils


def readable_error(error: Py4JJavaError, ask: Callable[[Any], str]) -> Exception:
    """The error as JobFailed; where Spark cannot plan, as Spark's own."""
    java = error.java_exception
    text = _PLACES.sub("", ask(java))
    if "AnalysisException" in text:
        with importing():
            from pyspark.errors.exceptions.captured import convert_exception

        own: Exception = convert_exception(java.getCause() or java)
        return own
    outer, _, inner = text.partition(_CAUSED_BY)
    text = inner if inner and "awaitResult" in outer.partition("\n")[0] else text
    return JobFailed(text.rstrip())
