"""The benchmark beside a thesis on queues for small devices: what it measures, in a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

import quire
from bench import results
from bench.__main__ import BENCHMARKS
from bench.figure import BenchmarkSetting, Figure, Table
from bench.rivals.device_figures import TABLE_8
from bench.served import base


def test_a_round_moves_all_messages(tmp_path: Path) -> None:
    """Each row of the table is measured, and the queue is gone afterwards."""
    with quire.open(str(tmp_path / "store")) as store:
        for type_ in base.TYPES:
            found = base._round(store, "q", type_, 3, b"x")
            assert found.keys() == {row.name for row in TABLE_8}
            assert min(found.values()) > 0
            assert store.queues() == []


@pytest.mark.long
def test_a_quick_run_stands_beside_the_thesis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratios, the table with both columns for each kind of queue, and the sizes."""
    monkeypatch.setattr(base, "LOCAL", 5)
    monkeypatch.setattr(base, "REMOTE", 2)
    monkeypatch.setattr(base, "MEMORY_KB", {"volatile": 124})  # each is a process
    assert "base" in BENCHMARKS
    found = base.run(BenchmarkSetting(tmp_path, True, 1))
    assert all(map(results.line, found))
    figures = {item.name: item.value for item in found if isinstance(item, Figure)}
    assert min(figures.values()) > 0
    assert 300 < figures["size of the wheel"] < 3000
    speed, memory = (item for item in found if isinstance(item, Table))
    assert [row[:2] for row in speed.rows] == [[row.name, str(row.characters)] for row in TABLE_8]
    assert {len(row) for row in speed.rows} == {len(speed.columns)} == {10}
    assert "20 (10 to 30)" in speed.rows[0]
    assert [row[0] for row in memory.rows] == ["volatile"]
