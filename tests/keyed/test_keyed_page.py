"""The program of docs/keyed.md prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.source_tree import ROOT


def test_the_program_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is run as it stands there."""
    page = (ROOT / "docs" / "keyed.md").read_text()
    block = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = re.search(r"^It prints `(.*?)`\.$", page, re.MULTILINE)
    assert block is not None
    assert printed is not None
    monkeypatch.chdir(tmp_path)
    exec(block[1], {})
    assert capsys.readouterr().out.strip() == printed[1]
