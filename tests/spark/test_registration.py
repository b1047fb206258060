"""How Spark finds the format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.numbered_queues import topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_spark_finds_the_format_by_itself(spark: SparkSession, store: Any) -> None:
    """Through the top-level module `pyspark_quire`, without a registration."""
    topic(store, "q")
    assert spark.read.format("QUIRE").option("queue", "q").load(store.path).count() == 0


@pytest.mark.spark
def test_a_session_can_register_it(spark: SparkSession, store: Any) -> None:
    """For workers that do not have Quire installed when the look-up runs."""
    from quire.spark_graphs import register

    topic(store, "q")
    session = spark.newSession()
    register(session)
    assert session.read.format("quire").option("queue", "q").load(store.path).count() == 0


def test_the_module_that_spark_imports_is_cheap() -> None:
    """It brings in the connector only when the format is used."""
    script = (
        "import sys, pyspark_quire; pyspark_quire.DefaultSource.name();"
        "assert not [m for m in sys.modules if m == 'quire' or m.startswith('quire.')]"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)


def test_what_a_worker_imports_is_light() -> None:
    """Each of Spark's workers imports it: neither the engine nor pandas, which take the longest."""
    code = (
        "import sys, quire.spark_graphs.source, quire.remote;"
        "print({'quire.engine', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_without_pyspark_the_module_is_silent(tmp_path: Path) -> None:
    """A module that raises would disable the look-up of every data source."""
    (tmp_path / "pyspark.py").write_text("raise ImportError('no pyspark here')")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark_quire"
    subprocess.run([sys.executable, "-c", script], check=True)
