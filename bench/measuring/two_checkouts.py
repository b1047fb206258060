"""Two checkouts' Quire under Spark, doing the same things in turns.

Each has a process with a Spark session of its own, for as long as the benchmark runs, and both run
this checkout's code of the benchmark. A figure is the median of the pairs' ratios. Processor time
is that of all processes of a session, Spark's included; other programs on the machine change it
little.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_most
from bench.measuring.processor_time import processor_seconds

__all__ = ["CheckoutSession", "compare", "main", "program"]

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 2

Operations = Mapping[str, tuple[str, float]]
"""The operations in words, and the ratio to the time before that each may have at most."""

Pair = tuple[float, float]  # seconds, and seconds of processor time


class CheckoutSession(Protocol):
    """A side's session, which a module's `session(folder, size, seed)` gives."""

    @property
    def operations(self) -> Mapping[str, Callable[[], float]]:
        """Each gives the seconds that count."""

    def stop(self) -> None:
        """End it."""


def program(module: str) -> list[str]:
    """A command that runs the `main` of a module of this package.

    Quire comes from the checkout that PYTHONPATH names first, also in the processes that it starts
    with its own path; the measurement comes from this one.
    """
    start = f"import sys, quire; sys.path.insert(0, {str(ROOT)!r}); import bench; del sys.path[0]"
    return [sys.executable, "-P", "-c", f"{start}; from bench.{module} import main; main()"]


def compare(
    setting: BenchmarkSetting,
    module: str,
    operations: Operations,
    size: int,
    turns: int,
    title: str,
) -> list[Result]:
    """The ratios of time and of processor time, now to before.

    `module`: of this package, with such a `session`. `size`: what it is told.
    """
    assert setting.before is not None
    trees = {"before": setting.before.resolve(), "now": ROOT}
    sides = {name: _Checkout(tree, setting, name, module, size) for name, tree in trees.items()}
    found: dict[tuple[str, str], list[Pair]] = {}
    try:
        for turn in range(WARM_UP + setting.scaled(turns, 1)):
            for operation in operations:
                for name in sorted(sides, reverse=bool(turn % 2)):
                    taken = sides[name].ask(operation)
                    if turn >= WARM_UP:
                        found.setdefault((operation, name), []).append(taken)
    finally:
        for side in sides.values():
            side.end()
    figures: list[Result] = []
    cells: list[list[float | str]] = []
    for operation, (words, most) in operations.items():
        before, now = found[operation, "before"], found[operation, "now"]
        for which, kind in enumerate(("time", "processor time")):
            pairs = [new[which] / old[which] for old, new in zip(before, now, strict=True)]
            name = f"{words}: {kind} to that before"
            figures.append(Figure(name, median(pairs), "times", at_most(most)))
            each = [1_000 * median(side[which] for side in sides) for sides in (before, now)]
            cells.append([f"{words}, {kind}", *each])
    return [*figures, Table(f"{title}, ms", ["operation", "before", "now"], cells)]


class _Checkout:
    """The process of one checkout."""

    def __init__(
        self, tree: Path, setting: BenchmarkSetting, name: str, module: str, size: int
    ) -> None:
        folder = setting.folder / name
        folder.mkdir()
        self._process = subprocess.Popen(
            [
                *program("measuring.two_checkouts"),
                module,
                str(folder),
                str(size),
                str(setting.seed),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(ROOT)])},
            cwd=setting.folder,  # Python's other processes look for modules where they begin
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        place = self._answer()
        if place != str(tree):
            raise SystemExit(f"Quire came from {place}, not from {tree}")

    def ask(self, operation: str) -> Pair:
        assert self._process.stdin is not None
        print(operation, file=self._process.stdin, flush=True)
        seconds, processor = self._answer()
        return seconds, processor

    def end(self) -> None:
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):  # Spark says something, too
                return json.loads(line.removeprefix("answer "))
        raise SystemExit(f"{self._process.args!r} has ended")


def main() -> None:
    """Run one side: do what the standard input says, and print seconds."""
    module, folder, size, seed = sys.argv[-4:]
    measured = importlib.import_module(f"bench.{module}")
    session: CheckoutSession = measured.session(Path(folder), int(size), int(seed))
    place = str(Path(quire.__file__).resolve().parents[1])
    print("answer", json.dumps(place), flush=True)
    for line in sys.stdin:
        began = processor_seconds()
        seconds = session.operations[line.strip()]()
        print("answer", json.dumps([seconds, processor_seconds() - began]), flush=True)
    session.stop()
