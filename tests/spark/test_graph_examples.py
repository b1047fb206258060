"""The examples of graphs do what docs/graphs.md says, which shows them as they are."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire.spark_graphs import connection
from tests.source_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (ROOT / "docs" / "graphs.md").read_text()
# A program, named before it, and what it prints: words in backquotes, to the end of the sentence.
SHOWN = {
    name: (program, re.findall(r"`([^`]*)`", printed))
    for name, program, printed in re.findall(
        r"^`examples/graphs/(\w+)\.py`[^\n]*\n\n```python\n(.*?)^```\n\nIt prints (.*?`)\.$",
        TEXT,
        re.MULTILINE | re.DOTALL,
    )
}
NAMES = sorted(
    path.stem for path in (ROOT / "examples" / "graphs").glob("*.py") if path.stem != "__init__"
)


def test_every_example_is_shown_as_it_is() -> None:
    """The page has the programs themselves, from their imports to the end of `main`."""
    assert sorted(SHOWN) == NAMES
    for name, (program, _) in SHOWN.items():
        source = (ROOT / "examples" / "graphs" / f"{name}.py").read_text()
        assert program.strip() in source
        assert program.startswith("import quire")
        assert 'if __name__ == "__main__"' in source.partition(program.strip())[2]


@pytest.mark.cases(10)
@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_the_page_says(
    name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with a store of its own, which it makes."""
    module = importlib.import_module(f"examples.graphs.{name}")
    path = str(tmp_path / "store")
    module.main(spark, path)
    connection.forget(path)  # so that the owner that was started for it ends
    assert capsys.readouterr().out.splitlines() == SHOWN[name][1]
