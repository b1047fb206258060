"""Results on paper: one JSON file per benchmark, and a table of them all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from bench.figure import Figure, Plot, Result, Table

__all__ = ["FOLDER", "line", "save", "write_table"]

FOLDER = Path(__file__).with_name("results")


def save(name: str, machine: dict[str, str], command: str, found: Sequence[Result]) -> None:
    """Write `<name>.json`, and the plots."""
    figures = [item for item in found if isinstance(item, Figure)]
    plots = [item for item in found if isinstance(item, Plot)]
    result = {
        "benchmark": name,
        "command": command,
        "machine": machine,
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
        "tables": [asdict(item) for item in found if isinstance(item, Table)],
        "plots": [{"name": plot.name, "caption": plot.caption} for plot in plots],
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    for plot in plots:
        # Without the date and the version of the program: the same figures give the same file.
        plot.drawing.savefig(FOLDER / f"{plot.name}.png", dpi=144, metadata={"Software": None})


def line(item: Result) -> str:
    """A figure with its target, or a table, for a terminal."""
    if isinstance(item, Table):
        return _text(item)
    if isinstance(item, Plot):
        return f"  ({item.name}.png: {item.caption})"
    verdict = {None: "", True: "met", False: "MISSED"}[item.met]
    value = f"{number(item.value):>14} {item.unit:<12}"
    return f"  {item.name:<58}{value}{_goal(item):<22}{verdict}"


def _text(table: Table) -> str:
    rows = [list(table.columns), *([_cell(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  "
        + row[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    note = [f"  {table.note}"] if table.note else []
    return "\n".join(["", f"  {table.title}", *lines, *note, ""])


def _cell(cell: float | str) -> str:
    return cell if isinstance(cell, str) else number(cell)


def number(value: float) -> str:
    """Four significant digits, thousands apart."""
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _goal(figure: Figure) -> str:
    target = figure.target
    return "" if target is None else f"{target.relation} {number(target.value)}"


def write_table() -> None:
    """Write README.md from all JSON files."""
    results = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    sections = "\n".join(_section(result) for result in results)
    (FOLDER / "README.md").write_text(
        "# Results\n\nWritten by `make bench`; each section names its command, commit and machine."
        " A target\nthat is missed is shown as missed. Latencies are of one machine: compare what"
        " one run\nmeasured side by side.\n\n" + sections
    )


def _section(result: dict[str, Any]) -> str:
    machine = result["machine"]
    rows = "\n".join(
        f"| {row['name']} | {number(row['value'])} {row['unit']} | {_target_cell(row)} |"
        for row in result["figures"]
    )
    facts = "; ".join(
        machine[key] for key in ("processor", "memory", "file system", "system", "load before")
    )
    figures = f"| figure | measured | target |\n|---|---|---|\n{rows}\n" if rows else ""
    tables = "".join(f"\n{_markdown(Table(**table))}" for table in result.get("tables", ()))
    plots = "".join(
        f"\n![{plot['caption']}]({plot['name']}.png)\n" for plot in result.get("plots", ())
    )
    return (
        f"## {result['benchmark']}\n\n`{result['command']}` at {machine['commit']},"
        f" Python {machine['python']}, {machine['packages']}\n\n{facts}\n\n"
        f"{figures}{tables}{plots}"
    )


def _markdown(table: Table) -> str:
    rows = [list(table.columns), ["---", *("--:" for _ in table.columns[1:])]]
    rows += [[_cell(cell) for cell in row] for row in table.rows]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    note = f"\n{table.note}\n" if table.note else ""
    return f"**{table.title}**\n\n{lines}{note}"


def _target_cell(row: dict[str, Any]) -> str:
    if row["target"] is None:
        return ""
    relation, value = row["target"]
    return f"{relation} {number(value)}: {'met' if row['met'] else '**missed**'}"
