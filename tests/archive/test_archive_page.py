"""The page of backups does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from quire.cli import main
from quire.cli.command import ExitStatus
from tests.source_tree import ROOT

PAGE = (ROOT / "docs" / "archive.md").read_text()


@pytest.mark.parametrize("number", [0, 1])
def test_the_three_commands(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    """Each prints what the page shows, but for times, sizes and hashes."""
    monkeypatch.chdir(tmp_path)
    assert main(["create-queue", "shop.quire", "orders"]) == ExitStatus.DONE
    assert main(["put", "shop.quire", "orders", "2 apples"]) == ExitStatus.DONE
    block = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[number]
    commands = re.findall(r"^\$ quire (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)
    assert len(commands) == 3
    for line, shown in commands:
        capsys.readouterr()
        words = line.replace("/backups", str(tmp_path)).split()
        assert main(words) == ExitStatus.DONE
        printed = capsys.readouterr().out.replace(str(tmp_path), "/backups")
        assert plain(printed) == plain(shown)


def plain(text: str) -> list[str]:
    """The words without numbers."""
    return re.sub(r"\b[0-9][0-9a-fTZ:,-]*\b|\b[0-9a-f]{32}\b", "#", text).split()


def test_the_program(tmp_path: Path) -> None:
    """It prints what the page says."""
    [program, printed] = re.findall(
        r"^```python\n(.*?)^```\n\nIt prints `(.*?)`\.", PAGE, re.MULTILINE | re.DOTALL
    )[0]
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.stdout == f"{printed}\n", found.stderr
    assert not list(tmp_path.glob("*.restoring-*"))
