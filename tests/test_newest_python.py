"""`make test-newest` finds the newest Python, and goes on where there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from scripts import test_newest as slice_of_tests


def an_interpreter(folder: Path, name: str, status: int) -> str:
    """A program that ends so, whatever it is asked."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\nexit {status}\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One without any Python but this: folders `home` and `bin`, which is on the path."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + os.pathsep + "/bin")
    monkeypatch.setattr(sys, "argv", ["test_newest.py"])
    return tmp_path


def test_the_newest_that_runs_is_taken(machine: Path) -> None:
    """By number, not by word; one that only stands for others, or is none, is passed over."""
    pyenv = machine / "home" / ".pyenv" / "versions"
    an_interpreter(machine / "bin", "python3.98", 127)
    an_interpreter(machine / "bin", "python3.99-config", 0)
    an_interpreter(pyenv / "3.9.1" / "bin", "python3.9", 0)
    expected = an_interpreter(pyenv / "3.97.0" / "bin", "python3.97", 0)
    an_interpreter(machine / "bin", "python3.97", 0)
    assert slice_of_tests.newest() == expected


def test_without_a_newer_python_it_says_so(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That is no failure, and nothing is installed."""
    an_interpreter(machine / "bin", f"python3.{sys.version_info.minor}", 0)
    assert slice_of_tests.main() == 0
    assert "No Python newer than" in capsys.readouterr().out


def test_the_slice_has_files_that_are_there() -> None:
    """A test that is moved is not left out silently."""
    missing = [each for each in slice_of_tests.TESTS if not (slice_of_tests.ROOT / each).exists()]
    assert missing == []
