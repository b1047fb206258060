"""The benchmarks of the commit engine: each runs in a small size; what it finds can be shown."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from bench import results
from bench.__main__ import BENCHMARKS, GROUPS, module_of
from bench.figure import BenchmarkSetting, Figure, Plot, Result, Table, at_most
from bench.rivals.messner_figures import SIZES


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Result]]:
    """A quick run of a benchmark, once for all tests."""

    @cache
    def run_once(name: str) -> list[Result]:
        setting = BenchmarkSetting(tmp_path_factory.mktemp(name), True, 1)
        return list(module_of(name).run(setting))

    return run_once


@pytest.mark.long
@pytest.mark.parametrize("name", ["concurrency", "strategies", "messner", "un_interleaving"])
def test_a_quick_run_finds_figures_and_draws_them(
    run: Callable[[str], list[Result]], name: str
) -> None:
    """Every figure is a number, every row has a cell for each column, the plot is a picture."""
    found = run(name)
    assert name in GROUPS["commit-engine"]
    kinds = {type(item) for item in found}
    assert {Figure, Plot} <= kinds
    for item in found:
        assert results.line(item)
        if isinstance(item, Figure):
            assert item.value >= 0
        elif isinstance(item, Table):
            assert item.rows
            assert {len(row) for row in item.rows} == {len(item.columns)}
        else:
            picture = io.BytesIO()
            item.drawing.savefig(picture, dpi=20)
            assert picture.getvalue().startswith(b"\x89PNG")


def test_every_member_of_a_group_is_a_benchmark() -> None:
    """There is a module for each."""
    for name in {name for members in GROUPS.values() for name in members}:
        assert name in BENCHMARKS
        assert callable(module_of(name).run)


@pytest.mark.long
def test_nothing_stays_reserved_under_contention(run: Callable[[str], list[Result]]) -> None:
    """T = R = 0 in every queue and under every strategy, once all threads have stopped."""
    first = run("strategies")[0]
    assert isinstance(first, Figure)
    assert (first.name, first.value) == ("open or reserved in any queue, at rest", 0)


@pytest.mark.long
def test_the_thesis_is_quoted_beside_what_is_measured(
    run: Callable[[str], list[Result]],
) -> None:
    """All its sizes; the average of its own implementation, say, for putting 1 MB: 4,311 ms."""
    put, get = (item for item in run("messner") if isinstance(item, Table))
    assert [row[0] for row in put.rows] == [f"{size:,}" for size in SIZES]
    own = put.columns.index("thesis: own storage (C.5)")
    assert put.rows[-1][own] == "4311 (4263 to 4491)"
    assert get.rows[0][get.columns.index("thesis: own storage (C.6)")] == "145 (134 to 197)"
    assert {"Quire", "SQLite"} <= set(put.columns)


@pytest.mark.long
def test_a_write_buffer_saves_pages_and_records(run: Callable[[str], list[Result]]) -> None:
    """Without it every message is a page and a record of its own; with it they share them."""
    measured, ratios = (item for item in run("un_interleaving") if isinstance(item, Table))
    for first in range(0, len(measured.rows), 5):  # for each number of transactions
        (_, written, read, scanned, *_), *_, default = measured.rows[first : first + 5]
        assert min(float(written), float(read)) >= 1
        assert scanned == 1
        assert max(float(cell) for cell in default[2:4]) < 0.25
        assert min(float(cell) for cell in ratios.rows[first + 4][2:4]) > 4


@pytest.mark.long
def test_tables_and_plots_are_saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The README has the table with its note, and shows the picture that lies beside it."""
    from bench.drawing import bars, drawing

    monkeypatch.setattr(results, "FOLDER", tmp_path)
    drawn, (axes,) = drawing(1, "title")
    bars(axes, ["a", "b"], {"one": [1.0, 200.0], "two": [2.0, 3.0]})
    table = Table("both", ["size", "time"], [["small", 1.5], ["large", 20_000]], "a note")
    machine = dict.fromkeys(
        ("processor", "memory", "file system", "system", "load before", "python", "packages"), "?"
    )
    found: list[Result] = [
        Figure("f", 1, "us", at_most(2)),
        table,
        Plot("picture", "what it shows", drawn),
    ]
    results.save("name", {**machine, "commit": "abc"}, "python -m bench name", found)
    results.write_table()
    text = (tmp_path / "README.md").read_text()
    assert "| small | 1.5 |\n| large | 20,000 |\n\na note" in text
    assert "![what it shows](picture.png)" in text
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
