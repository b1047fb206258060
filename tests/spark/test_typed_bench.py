"""What the benchmark `typed` has beside its floor, with few rows, in the tests' session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.figure import Figure
from bench.spark.row_sides import Floor, Parquet, TypedQueue
from bench.spark.typed import _parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 3000


@pytest.mark.long
@pytest.mark.spark
def test_the_floor_is_of_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    """As many rows and columns of the same types in as many tasks, read from memory."""
    table = pa.table({"distance": list(range(ROWS)), "tailnum": [f"N{i}" for i in range(ROWS)]})
    source, place = str(tmp_path / "source.parquet"), str(tmp_path / "typed")
    pq.write_table(table, source)
    parquet = Parquet(spark, source, str(tmp_path / "copy.parquet"))
    typed = TypedQueue(spark, source, place, table.schema)
    for side in (parquet, typed):
        side.prepare()
        side.write()
    floor = Floor(typed, ROWS)
    for options in ({}, {"columns": "distance"}):
        rows = floor.reading(**options)()
        assert rows.schema == typed.read(**options).schema
        assert rows.rdd.getNumPartitions() == typed.read(**options).rdd.getNumPartitions()
        assert rows.count() == ROWS
    found = _parts({"Parquet": parquet, "typed": typed}, ROWS, 1)
    figures = {each.name: each.value for each in found if isinstance(each, Figure)}
    for words in ("one column", "all columns"):
        assert figures[f"{words} read: typed to floor"] > 0
