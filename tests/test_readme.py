"""The README does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT


@pytest.mark.parametrize("section", ["# Quire", "## A longer start", "## asyncio"])
def test_a_program_works_as_printed(tmp_path: Path, section: str) -> None:
    """The section's Python block, run in an empty folder, prints what the README says after it."""
    text = (ROOT / "README.md").read_text()
    pattern = rf"^{section}$.*?^```python\n(.*?)^```$(.*?)^## "
    block = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert block is not None
    printed = re.search(r"It prints `([^`]*)`", block[2])
    assert printed is not None, "the README does not say what the program prints"
    result = subprocess.run(
        [sys.executable, "-c", block[1]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == printed[1]
