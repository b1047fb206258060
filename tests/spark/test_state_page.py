"""The first program of docs/state.md prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire.spark_graphs import connection, keyed
from tests.source_tree import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_states_of_the_page_may_be_described() -> None:
    """Each `keyed(...)` that stands there."""
    page = (ROOT / "docs" / "state.md").read_text()
    lines = re.findall(r"^(?:columns|\w+) = (?:keyed\(|\").*$", page, re.MULTILINE)
    assert len(lines) == 5
    exec("\n".join(lines), {"keyed": keyed, "close": lambda due, open: None})


@pytest.mark.spark
def test_the_program_of_the_page(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is run as it stands there, in the session of the tests; the step has twenty lines."""
    page = (ROOT / "docs" / "state.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = re.search(r"^It prints `(.*?)`\.$", page, re.MULTILINE)
    assert block is not None
    assert printed is not None
    monkeypatch.chdir(tmp_path)
    exec(block[1], {})
    connection.forget("shop.quire")
    assert capsys.readouterr().out.strip() == printed[1]
    assert len(block[1].partition("\nwith g.start()")[0].splitlines()) <= 20
