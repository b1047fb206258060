"""The chart of the README, drawn from the results: `python -m bench.front_page`.

`python -m bench` draws it anew whenever it has saved results. Each part says in which section of
the results its figures stand. Figures that are better for others are shown, too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from bench import results
from bench.drawing import COLOURS, INK, PALE

__all__ = ["PICTURE", "Panel", "draw", "panels", "write"]

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "rivals.svg"
OURS = "Quire"


class Panel(NamedTuple):
    """One part of the chart: a bar for each name."""

    title: str
    unit: str
    section: str
    bars: Sequence[tuple[str, float]]


def panels() -> list[Panel]:
    """Read the figures of the chart from the saved results."""
    small = _table("small", "Wall time of one operation, p50, us")
    batch = {row["name"]: row["value"] for row in _result("batch")["figures"]}
    served = _table("served", "Transactions a second, all clients together")
    pool = _table("pool", "Small jobs by so many worker processes")
    put = "put, 1,000 per transaction: "
    stores = (OURS, "RocksDB", "LMDB", "SQLite")
    jobs = ("Quire, ten jobs a transaction", OURS, "SQLite, by hand", "RQ, jobs in the worker")
    return [
        Panel(
            "One put, committed and synced, in one process",
            "microseconds: less is better",
            "small",
            [(name, _cell(small, "store.put", name)) for name in (OURS, "SQLite")],
        ),
        Panel(
            "Get one and put two, in one transaction",
            "microseconds: less is better",
            "small",
            [(name, _cell(small, "get + 2 puts over 3 queues", name)) for name in (OURS, "SQLite")],
        ),
        Panel(
            "Messages put, 1,000 in a transaction",
            "a second: more is better",
            "batch",
            [(name, batch[put + name]) for name in stores],
        ),
        Panel(
            "Get one and put two, by 8 client processes",
            "transactions a second: more is better",
            "served",
            [
                (name, _cell(served, "get + 2 puts", name, clients=8))
                for name in (OURS, "Redis", "PostgreSQL")
            ],
        ),
        Panel(
            "Small jobs done by 2 worker processes",
            "a second: more is better",
            "pool",
            [(name, _cell(pool, name, "2: jobs a second")) for name in jobs],
        ),
    ]


def _result(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((results.FOLDER / f"{name}.json").read_text())
    return loaded


def _table(name: str, title: str) -> dict[str, Any]:
    (found,) = (table for table in _result(name)["tables"] if table["title"] == title)
    return dict(found)


def _cell(table: dict[str, Any], row: str, column: str, *, clients: int | None = None) -> float:
    """The value of a row; of a column that was measured before and after, the one after."""
    columns = table["columns"]
    place = columns.index(column if column in columns else f"after: {column}")
    (found,) = (
        cells
        for cells in table["rows"]
        if cells[0] == row and (clients is None or cells[columns.index("clients")] == clients)
    )
    return float(str(found[place]).replace(",", ""))


def draw(found: Sequence[Panel]) -> Drawing:
    """Draw the panels one below the other, a bar of this project's in blue, others in grey."""
    heights = [len(panel.bars) for panel in found]
    figure = Drawing(figsize=(8.4, 0.27 * sum(heights) + 0.42 * len(found)), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(h_pad=0.08)  # type: ignore[call-arg]
    places = figure.subplots(len(found), 1, height_ratios=heights)
    for axes, panel in zip(places, found, strict=True):
        _bars(axes, panel)
    return figure


def _bars(axes: Axes, panel: Panel) -> None:
    names = [name for name, _ in panel.bars]
    values = [value for _, value in panel.bars]
    colours = [COLOURS[0] if name.startswith(OURS) else "#b9c2cc" for name in names]
    drawn = axes.barh(range(len(names)), values, height=0.72, color=colours)
    axes.bar_label(drawn, [f"{value:,.0f}" for value in values], padding=4, color=INK, fontsize=9)
    axes.set_title(panel.title, fontsize=10, fontweight="bold", pad=4)
    axes.set_title(f"{panel.unit} ({panel.section})", loc="right", fontsize=8.5, color=PALE, pad=4)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(visible=False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(left=False, bottom=False, labelbottom=False)


def write(path: Path = PICTURE) -> None:
    """Write the chart as SVG, its words as text; the same figures give the same file."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "quire"}):
        path.parent.mkdir(exist_ok=True)
        draw(panels()).savefig(path, format="svg", facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    write()
    sys.exit(0)
