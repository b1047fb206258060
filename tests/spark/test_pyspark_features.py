"""What releases of PySpark have and lack is known at one place, and refused by name.

`make test-spark-versions` runs the connector with each of them; here is what needs none of them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from quire.errors import InvalidArgument
from quire.spark_graphs import Graph, pyspark_features
from quire.spark_graphs.source import QuireDataSource
from scripts import test_spark_versions
from tests.source_tree import ROOT
from tests.spark.version_probe import FEATURES

# What 4.0 or 4.1 does not have, or has with other arguments.
OF_ONE_RELEASE = re.compile(
    r"pyspark\.sql\.streaming\.datasource|DataSourceStreamArrowWriter"
    r"|pyspark\.sql\.pandas\.types import .*to_arrow_schema"
)


def test_one_module_tells_releases_apart() -> None:
    """No other one names what not every supported release has."""
    modules = {
        str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("spark_graphs/**/*.py")
    }
    found = {name for name, text in modules.items() if OF_ONE_RELEASE.search(text)}
    assert found == {"spark_graphs/pyspark_features.py"}


def test_the_page_has_the_table_that_the_releases_make() -> None:
    """A row for each feature of the probe, a column for each release, and no word but its own."""
    page = (ROOT / "docs" / "spark.md").read_text()
    found = test_spark_versions.TABLE.search(page)
    assert found is not None
    head, _, *rows = [line.strip("| ").split(" | ") for line in found[0].splitlines()]
    lines = [release.rpartition(".")[0] for release in test_spark_versions.RELEASES]
    assert head == lines
    assert [row[0] for row in rows] == [*FEATURES]
    for feature, *results in rows:
        assert len(results) == len(lines), feature
        for line, result in zip(lines, results, strict=True):
            needed = result.removeprefix(f"{test_spark_versions.NEEDS} ")
            assert result == "yes" or (needed != result and line < needed), (feature, line, result)
    assert found[0] == test_spark_versions.table(
        {
            release: {feature: results[column] for feature, *results in rows}
            for column, release in enumerate(test_spark_versions.RELEASES)
        }
    )


def test_what_a_release_lacks_is_refused_by_name(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream when Spark asks it first, and a streaming step when it is added."""
    monkeypatch.setattr(pyspark_features, "HAS_STREAM_SOURCE", False)
    given = {"path": store.path, "queue": "q", "subscription": "s"}
    reader: Any = QuireDataSource(given).streamReader(StructType([]))
    for asked in (reader.initialOffset, reader.latestOffset, reader.prepareForTriggerAvailableNow):
        with pytest.raises(InvalidArgument, match=r"format 'quire' needs PySpark 4\.2 or newer"):
            asked()
    session: Any = SimpleNamespace(addTag=None)  # what a graph asks of one before it starts
    graph = Graph("g", session, store.path)
    with pytest.raises(InvalidArgument, match=r"a streaming step needs PySpark 4\.2 or newer"):
        graph.step(reads="in", writes="out", watermark="1 minute")


@pytest.mark.parametrize("is_managed", [False, True])
@pytest.mark.parametrize("has_order", [False, True])
def test_collected_batches_come_in_their_order(
    monkeypatch: pytest.MonkeyPatch, is_managed: bool, has_order: bool
) -> None:
    """As 4.1, 4.2 and 4.3 hand them out: in a context or not, sorted or with an order."""
    sent: list[Any] = [pa.record_batch({"id": [number]}) for number in (2, 0, 1)]

    def load(connection: Any, serializer: Any) -> Iterator[Any]:
        yield from [*sent, [1, 2, 0]] if has_order else [sent[1], sent[2], sent[0]]

    managed = contextlib.contextmanager(lambda *given: iter([load(*given)]))
    monkeypatch.setattr("pyspark.util._load_from_socket", managed if is_managed else load)
    found = pyspark_features.collected_batches(0, "")
    assert [batch.column("id").to_pylist() for batch in found] == [[0], [1], [2]]
