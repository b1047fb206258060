"""The benchmark of outbox and inbox: each side's messages have their effect once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.embedded.databases import DATABASE_SIDES, RATIOS, DatabaseSide, run
from bench.figure import BenchmarkSetting, Figure, Table


@pytest.mark.parametrize("side_of", DATABASE_SIDES)
def test_each_message_goes_its_way_once(
    tmp_path: Path, side_of: Callable[[Path], DatabaseSide]
) -> None:
    """What is sent is there, what is taken has its effect, and nothing else is taken."""
    side = side_of(tmp_path)
    for payload in (b"1", b"2", b"3"):
        side.send(payload)
    assert side.counts() == (3, 0, 3)
    side.move()
    side.take()
    side.take()
    side.move()
    assert side.counts() == (3, 2, 1)
    side.take()
    assert side.counts() == (3, 3, 0)
    with pytest.raises((AssertionError, TypeError)):
        side.take()
    side.close()


@pytest.mark.long
def test_a_quick_run_compares_all(tmp_path: Path) -> None:
    """The run itself counts what has come of its messages."""
    *figures, table = run(BenchmarkSetting(tmp_path, quick=True, seed=1))
    assert all(isinstance(figure, Figure) and figure.value > 0 for figure in figures)
    assert isinstance(table, Table)
    operations = {row[0] for row in table.rows}
    assert operations == {name for names in RATIOS for name in names}
