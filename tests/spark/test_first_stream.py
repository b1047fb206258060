"""The program that docs/spark.md begins with does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire.spark_graphs import connection
from tests.source_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "spark.md").read_text()


@pytest.mark.spark
def test_the_page_begins_with_a_stream_that_works(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word for word, but for the directory that its files are in; the session is this one."""
    found = re.match(r"# Spark\n\n[^\n]*\n\n```python\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    program = found[1]
    assert program.count('"/data/') == 2
    names: dict[str, Any] = {}
    exec(program.replace('"/data/', f'"{tmp_path}/'), names)
    assert names["spark"] is spark
    assert re.findall(r"\|\s*(\w+)\|", capsys.readouterr().out) == ["payload", "first", "second"]
    connection.forget(names["path"])
