"""The programs of the page on operations that say what they print: they print that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from quire.reports.explanation import UndeliveredReason
from tests.source_tree import ROOT

TEXT = (ROOT / "docs" / "operations.md").read_text()
# A program, and what it prints; other blocks are parts of programs.
PROGRAMS = re.findall(
    r"^```python\n((?:(?!```).)*?)^```\n\nIt prints ((?:`[^`]*`(?:,\s)?)+)\.",
    TEXT,
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(("program", "printed"), PROGRAMS)
def test_a_program_prints_what_the_page_says(program: str, printed: str, tmp_path: Path) -> None:
    """A program, run in an empty folder."""
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.splitlines() == re.findall(r"`([^`]*)`", printed)


def test_the_page_has_a_row_for_each_reason() -> None:
    """Of messages that are not delivered; what holds for a group is told with its limit."""
    table = TEXT[TEXT.index("| reason | what to do |") :]
    rows = {name for line in table.splitlines() for name in re.findall(r"`([^`]+)`", line)}
    of_groups = {"group has as many in flight as it may", "group has started as many as it may"}
    besides = {"leaving", "puts stopped"}  # for a moment; never alone
    assert {*UndeliveredReason} - rows == of_groups | besides
