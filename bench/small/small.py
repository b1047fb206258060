"""The smallest durable transactions, beside SQLite, and beside an older Quire.

Where a disk syncs in 50 us, the interpreter decides. So each operation has two figures: the
processor time of the whole process (its own and the system's, all threads), and the wall time of
one call. Both are medians, of turns of 100 calls and of calls; a mean beside them shows what
checkpoints and new journal segments add. Bytecodes that the interpreter executes for a call are
counted too: they do not depend on the machine. Quire and SQLite run in one process, in turns; a
ratio is taken within each run, and is the median of five runs.

With `--before`, another checkout's Quire is measured by the same code, its runs in turns with this
tree's. With `--no-sync` the journal is in memory, SQLite's synchronous is OFF, and nothing waits
for a disk: the interpreter's part alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import BenchmarkSetting, Figure, Result, Table, at_least, at_most
from bench.measuring.two_checkouts import program
from bench.small.small_sides import THREADS
from bench.small.small_turns import BATCH, FLOOR, OPERATIONS

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[2]
RUNS = 5
WORDS = {
    "put": "store.put",
    "put_in_transaction": "transaction with one put",
    "get": "transaction with one get",
    "move": "get + 2 puts over 3 queues",
    "put_and_roll_back": "put + rollback",
}
# Processor time to SQLite's.
TARGETS = {"put": 1.05, "put_in_transaction": 1.15, "get": 1.4, "move": 1.5}
BATCH_TARGETS = {"put": 3.0, "get": 4.0}  # us a message
THREADS_TARGET = 1.5  # times the rate before

PairedRun = dict[str, Any]  # what one run of `bench.small.small_turns` printed


def run(setting: BenchmarkSetting) -> list[Result]:
    """Figures with their targets, and tables of all that was measured."""
    trees = {"after": ROOT} if setting.before is None else {"before": setting.before, "after": ROOT}
    found: dict[str, list[PairedRun]] = {name: [] for name in trees}
    for number in range(setting.scaled(RUNS, 1)):
        for name, tree in trees.items():
            found[name].append(_measure(setting, tree.resolve(), f"{name}-{number}"))
    print(f"  {len(found['after'])} paired runs")
    return [
        *_ratios(found["after"]),
        *_floor(found["after"]),
        *_batch_figures(found["after"]),
        *_rates(found),
        _operations_table(found, 0, "Processor time of one operation, p50 of turns, us"),
        _operations_table(found, 1, "Wall time of one operation, p50, us"),
        _operations_table(found, 2, "Processor time of one operation, mean, us"),
        _bytecodes_table(found),
        _threads_table(found),
    ]


def _measure(setting: BenchmarkSetting, tree: Path, name: str) -> PairedRun:
    folder = setting.folder / name
    folder.mkdir()
    turns, seconds = setting.scaled(20, 1), 0.05 if setting.quick else 0.7
    sync = "sync" if setting.sync else "no-sync"
    command = [*program("small.small_turns"), str(folder), str(turns), str(seconds)]
    done = subprocess.run(
        [*command, str(setting.seed), sync],
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shutil.rmtree(folder)
    found: PairedRun = json.loads(done.stdout)
    if Path(found["place"]) != tree:
        raise SystemExit(f"Quire came from {found['place']}, not from {tree}")
    return found


def _ratio(runs: list[PairedRun], part: str, operation: str, which: int) -> float:
    """Quire's time to SQLite's, in each run: the median."""
    both = [each[part][operation] for each in runs]
    ratios: list[float] = [each["Quire"][which] / each["SQLite"][which] for each in both]
    return median(ratios)


def _ratios(runs: list[PairedRun]) -> list[Figure]:
    figures = []
    for operation in OPERATIONS:
        target = TARGETS.get(operation)
        goal = None if target is None else at_most(target)
        name = f"{WORDS[operation]}: processor time to SQLite's"
        figures.append(Figure(name, _ratio(runs, "operations", operation, 0), "times", goal))
    return figures


def _floor(runs: list[PairedRun]) -> list[Figure]:
    """Return the share of SQLite's time that a page written and synced by Python takes: no put is
    below.
    """
    if runs[0].get("page") is None:
        return []
    share = median(each["page"][0] / each["operations"]["put"]["SQLite"][0] for each in runs)
    name = "a page written and synced, nothing else: processor time to SQLite's put"
    return [Figure(name, share, "times")]


def _batch_figures(runs: list[PairedRun]) -> list[Figure]:
    return [
        Figure(
            f"{BATCH:,} {operation}s in one transaction, one {operation}",
            median(each["batches"][operation]["Quire"][1] for each in runs),
            "us",
            at_most(target),
        )
        for operation, target in BATCH_TARGETS.items()
    ]


def _rates(found: dict[str, list[PairedRun]]) -> list[Figure]:
    after = [each["threads"] for each in found["after"]]
    rate = median(each["Quire"][0] for each in after)
    beside = median(each["Quire"][0] / each["SQLite"][0] for each in after)
    figures = [
        Figure(f"{THREADS} threads, transaction()", rate, "commits/s"),
        Figure(f"{THREADS} threads: rate to SQLite's", beside, "times", at_least(1.0)),
    ]
    if FLOOR in after[0]:
        floor = median(each[FLOOR][0] for each in after)
        figures.append(Figure(f"{THREADS} threads, a bare group commit", floor, "commits/s"))
    if "before" in found:
        before = [each["threads"] for each in found["before"]]
        gain = median(
            new["Quire"][0] / old["Quire"][0] for new, old in zip(after, before, strict=True)
        )
        name = f"{THREADS} threads: rate to before"
        figures.append(Figure(name, gain, "times", at_least(THREADS_TARGET)))
    return figures


def _operations_table(found: dict[str, list[PairedRun]], which: int, title: str) -> Table:
    rows: list[list[float | str]] = []
    for part, operation, words in (
        *(("operations", operation, WORDS[operation]) for operation in OPERATIONS),
        *(("batches", operation, f"one of {BATCH:,} {operation}s") for operation in BATCH_TARGETS),
    ):
        row: list[float | str] = [words]
        for runs in found.values():
            sides = [[each[part][operation][side][which] for each in runs] for side in _SIDES]
            ratio = _ratio(runs, part, operation, which)
            row += [*(f"{median(side):.1f}" for side in sides), f"{ratio:.2f}"]
        rows.append(row)
    return Table(title, ["operation", *_columns(found)], rows)


def _bytecodes_table(found: dict[str, list[PairedRun]]) -> Table:
    rows: list[list[float | str]] = [
        [WORDS[operation], *(f"{runs[0]['bytecodes'][operation]:,.0f}" for runs in found.values())]
        for operation in OPERATIONS
    ]
    return Table("Bytecodes of one operation of Quire", ["operation", *found], rows)


def _threads_table(found: dict[str, list[PairedRun]]) -> Table:
    rows: list[list[float | str]] = []
    for which, words in enumerate(("commits/s", "processor time of a commit, us")):
        row: list[float | str] = [words]
        for runs in found.values():
            threads = [each["threads"] for each in runs]
            sides = [median(each[side][which] for each in threads) for side in _SIDES]
            ratio = median(each["Quire"][which] / each["SQLite"][which] for each in threads)
            row += [*(f"{side:,.0f}" for side in sides), f"{ratio:.2f}"]
        rows.append(row)
    return Table(f"{THREADS} threads, a put each in a transaction", ["", *_columns(found)], rows)


_SIDES = ("Quire", "SQLite")


def _columns(found: dict[str, list[PairedRun]]) -> list[str]:
    """Return the columns of one table: of each tree Quire, SQLite beside it, and their ratio."""
    names = [f"{name}: " if len(found) > 1 else "" for name in found]
    return [f"{name}{column}" for name in names for column in (*_SIDES, "Quire / SQLite")]
