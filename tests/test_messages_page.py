"""The recipes of docs/messages.md are programs that print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

TEXT = (ROOT / "docs" / "messages.md").read_text()
# A program, and what it prints: words in backquotes, a line each, up to the end of the sentence.
RECIPES = re.findall(
    r"^```python\n(.*?)^```\n\nIt prints ((?:`[^`]*`(?:,\s)?)+)\.", TEXT, re.MULTILINE | re.DOTALL
)


def test_every_program_is_a_recipe() -> None:
    """None lacks what it prints."""
    assert len(RECIPES) == TEXT.count("```python") >= 8


@pytest.mark.parametrize(("program", "printed"), RECIPES, ids=range(len(RECIPES)))
def test_a_recipe_prints_what_the_page_says(tmp_path: Path, program: str, printed: str) -> None:
    """And nothing else, run in an empty folder."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == re.findall(r"`([^`]*)`", printed)


def test_every_test_of_the_table_is_there() -> None:
    """In the file that it is linked to (which the checker of links holds, too)."""
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./([\w/.]+)\)", TEXT)
    assert len(named) >= 13
    missing = [name for name, path in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []
