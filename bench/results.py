"""Results on paper: one JSON file per benchmark, and a table of them all."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.figure import Figure

__all__ = ["FOLDER", "line", "save", "write_table"]

FOLDER = Path(__file__).with_name("results")


def save(name: str, machine: dict[str, str], command: str, figures: list[Figure]) -> None:
    """Write `<name>.json`."""
    rows = [{**asdict(figure), "met": figure.met} for figure in figures]
    result = {"benchmark": name, "command": command, "machine": machine, "figures": rows}
    (FOLDER / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def line(figure: Figure) -> str:
    """A figure with its target, for a terminal."""
    verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
    value = f"{number(figure.value):>14} {figure.unit:<12}"
    return f"  {figure.name:<58}{value}{_goal(figure):<22}{verdict}"


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
    return (
        f"## {result['benchmark']}\n\n`{result['command']}` at {machine['commit']},"
        f" Python {machine['python']}, {machine['packages']}\n\n{facts}\n\n"
        f"| figure | measured | target |\n|---|---|---|\n{rows}\n"
    )


def _target_cell(row: dict[str, Any]) -> str:
    if row["target"] is None:
        return ""
    relation, value = row["target"]
    return f"{relation} {number(value)}: {'met' if row['met'] else '**missed**'}"
