"""The program of docs/keyed.md prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import keyed
from tests.source_tree import ROOT


def test_the_program_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is run as it stands there, and the one on timers after it."""
    page = (ROOT / "docs" / "keyed.md").read_text()
    block, timers = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    printed = re.search(r"^It prints `(.*?)`\.$", page, re.MULTILINE)
    assert printed is not None
    monkeypatch.chdir(tmp_path)
    exec(block, names := dict[str, Any]())
    assert capsys.readouterr().out.strip() == printed[1]
    with quire.open("shop.quire") as store:
        exec(timers, names | {"store": store, "totals": keyed.open_state(store, "totals")})
        assert store.browse("orders").payloads() == [b"dora has ended"]
