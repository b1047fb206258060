"""The benchmarks' harness: targets, tables, and that a quick run works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import results
from bench.figure import Figure, at_least, at_most, exactly
from bench.measuring.counting_env import CountingEnv

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("target", "met"),
    [(at_most(2), [True, True, False]), (at_least(2), [False, True, True]),
     (exactly(2), [False, True, False]), (None, [None, None, None])],
)  # fmt: skip
def test_a_target_is_met_or_missed(target: object, met: list[bool | None]) -> None:
    """At most, at least, exactly, and no target at all."""
    figures = [Figure("figure", value, "us", target) for value in (1, 2, 3)]  # type: ignore[arg-type]
    assert [figure.met for figure in figures] == met


def test_a_missed_target_is_shown_as_missed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither the terminal nor the table hides it."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    figure = Figure("open", 3.5, "s", at_most(2))
    machine = dict.fromkeys(
        ("processor", "memory", "file system", "system", "load before", "python", "packages"), "?"
    )
    results.save("batch", {**machine, "commit": "abc"}, "python -m bench batch", [figure])
    results.write_table()
    assert json.loads((tmp_path / "batch.json").read_text())["figures"][0]["met"] is False
    assert "| open | 3.5 s | at most 2: **missed** |" in (tmp_path / "README.md").read_text()
    assert "MISSED" in results.line(figure)


def test_the_counting_environment_counts_what_reaches_the_disk(tmp_path: Path) -> None:
    """Writes and syncs are counted; of reads and writes, the pages that they touch."""
    env = CountingEnv()
    file = env.open_file(str(tmp_path / "file"), create=True)
    file.write(0, b"one")
    file.write(3, b"two")
    file.sync()
    assert file.read(0, 6) == b"onetwo"
    file.close()
    assert env.counts == {"write": 2, "sync": 1}
    assert env.pages == {"write": 2, "read": 1}
    env.pages.clear()
    file = env.open_file(str(tmp_path / "file"))
    file.write(4095, b"to the second page")
    assert len(file.read(4000, 97)) == 97
    assert len(file.read(4096, 0)) == 0
    file.close()
    assert env.pages == {"write": 2, "read": 2}


def test_a_quick_run_prints_figures_and_saves_nothing(tmp_path: Path) -> None:
    """What a user would type first."""
    before = sorted((ROOT / "bench" / "results").iterdir())
    command = [sys.executable, "-m", "bench", "commit", "--quick", "--folder", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "store.put to bare, p50" in run.stdout
    assert "file system" in run.stdout
    assert sorted((ROOT / "bench" / "results").iterdir()) == before


def test_an_unknown_benchmark_is_refused() -> None:
    """The names that there are stand in the message."""
    command = [sys.executable, "-m", "bench", "speed"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "large_transaction" in run.stderr
