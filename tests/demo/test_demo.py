"""The demo as a whole, on few flights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from demo.__main__ import main, parse

ROOT = Path(__file__).resolve().parents[2]
ROWS = "5000"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the demo, from the project's folder."""
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


@pytest.mark.long
@pytest.mark.spark
def test_five_thousand_flights_survive_three_strikes(tmp_path: Path) -> None:
    """Every figure is right after all kills; the report is one page that stands alone."""
    folder, report = tmp_path / "kept", tmp_path / "report.html"
    demo = run("demo", "--rows", ROWS, "--keep", str(folder), "--report", str(report))
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "DIFFERS" not in demo.stdout
    assert demo.stdout.count("SIGKILL") == 3
    page = report.read_text()
    assert "all equal" in page
    assert "<script" not in page
    assert "src=" not in page
    again = run("demo.outcome.reconcile", str(folder), "--rows", str(int(ROWS) - 1))
    assert again.returncode == 1, "a flight too many must be noticed"


def test_a_folder_that_is_not_empty_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo overwrites nothing."""
    (tmp_path / "mine").write_text("kept")
    monkeypatch.setattr(sys, "argv", ["demo", "--keep", str(tmp_path)])
    assert main() == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize("rows", ["0", "336777", "many"])
def test_a_wrong_number_of_rows_is_refused(rows: str) -> None:
    """There are 336,776 flights."""
    with pytest.raises(SystemExit, match="2"):
        parse(["--rows", rows])
