"""Two checkouts' Quire under Spark: what reads, writes and starts cost beside what they did before.

Each has a process with a Spark session of its own, for as long as the benchmark runs, and both do
the same things in turns, by this checkout's code. A figure is the median of the pairs' ratios.
Processor time is that of all processes of a session, Spark's included; other programs on the
machine change it little.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil

import quire
from bench.figure import Figure, Result, Setting, Table, at_most

__all__ = ["main", "run"]

ROOT = Path(__file__).resolve().parents[1]
# Quire comes from the checkout that PYTHONPATH names first, the measurement from this one.
START = (
    "import sys, quire; sys.path.insert(0, {root!r}); from bench.spark_turns import main; main()"
)
WARM_UP, TURNS = 2, 9
START_ROWS = 1_000
# What each does, in words, and the most that it may take of what it took before.
OPERATIONS = {
    "all": ("batch read, all columns", 1.0),
    "payload": ("batch read, payload alone", 1.0),
    "write": ("stream write", 1.0),
    "start": ("start and end of a query, outside its micro-batches", 0.5),
}

Pair = tuple[float, float]  # seconds, and seconds of processor time


def run(setting: Setting) -> list[Result]:
    """The ratios of time and of processor time, now to before."""
    assert setting.before is not None
    rows = setting.scaled(1_000_000, 200_000)
    trees = {"before": setting.before.resolve(), "now": ROOT}
    sides = {name: _Side(tree, setting, name, rows) for name, tree in trees.items()}
    found: dict[tuple[str, str], list[Pair]] = {}
    try:
        for turn in range(WARM_UP + setting.scaled(TURNS, 1)):
            for operation in OPERATIONS:
                for name in sorted(sides, reverse=bool(turn % 2)):
                    taken = sides[name].ask(operation)
                    if turn >= WARM_UP:
                        found.setdefault((operation, name), []).append(taken)
    finally:
        for side in sides.values():
            side.end()
    figures: list[Result] = []
    cells: list[list[float | str]] = []
    for operation, (words, most) in OPERATIONS.items():
        before, now = found[operation, "before"], found[operation, "now"]
        for which, kind in enumerate(("time", "processor time")):
            pairs = [new[which] / old[which] for old, new in zip(before, now, strict=True)]
            name = f"{words}: {kind} to that before"
            figures.append(Figure(name, median(pairs), "times", at_most(most)))
            each = [1_000 * median(side[which] for side in sides) for sides in (before, now)]
            cells.append([f"{words}, {kind}", *each])
    return [*figures, Table(f"{rows:,} rows, ms", ["operation", "before", "now"], cells)]


class _Side:
    """The process of one checkout."""

    def __init__(self, tree: Path, setting: Setting, name: str, rows: int) -> None:
        folder = setting.folder / name
        folder.mkdir()
        command = [sys.executable, "-P", "-c", START.format(root=str(ROOT))]
        self._process = subprocess.Popen(
            [*command, str(folder), str(rows), str(setting.seed)],
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
    """One side: does what its standard input says, and tells seconds."""
    from bench import spark as measured

    folder, rows, seed = Path(sys.argv[-3]), int(sys.argv[-2]), int(sys.argv[-1])
    path = folder / "store"
    measured.fill(path, rows, seed)
    with quire.open(str(path)) as store:
        store.create_queue("few")
    spark = measured.start_session()
    session = _Session(spark, path, rows, seed)
    place = str(Path(quire.__file__).resolve().parents[1])
    print("answer", json.dumps(place), flush=True)
    for line in sys.stdin:
        began = _processor_seconds()
        seconds = session.operations[line.strip()]()
        print("answer", json.dumps([seconds, _processor_seconds() - began]), flush=True)
    spark.stop()


class _Session:
    """The operations in one Spark session."""

    def __init__(self, spark: Any, path: Path, rows: int, seed: int) -> None:
        from quire.spark_graphs.schema import source_schema

        self._spark, self._path, self._rows, self._seed = spark, path, rows, seed
        self.operations: dict[str, Callable[[], float]] = {
            "all": lambda: self._read(source_schema()),
            "payload": lambda: self._read("payload binary"),
            "write": self._write,
            "start": self._start,
        }

    def _read(self, schema: Any) -> float:
        rows = self._spark.read.format("quire").schema(schema).option("path", str(self._path))
        begin = time.perf_counter()
        rows.option("queue", "full").load().write.format("noop").mode("append").save()
        return time.perf_counter() - begin

    def _write(self) -> float:
        """Seconds of a whole micro-batch after the first."""
        source = self._spark.readStream.format("memory").option("rows", self._rows)
        batches, _ = self._query(source.option("batches", 2).option("seed", self._seed).load())
        return batches[-1]

    def _start(self) -> float:
        """Seconds outside the micro-batches of a query that has one."""
        with quire.open(str(self._path)) as store, store.transaction() as transaction:
            transaction.put_many("few", [b"x" * 100] * START_ROWS)
        source = self._spark.readStream.format("quire").option("queue", "few")
        source = source.option("subscription", "start").load(str(self._path)).select("payload")
        batches, seconds = self._query(source)
        return seconds - sum(batches)

    def _query(self, source: Any) -> tuple[list[float], float]:
        """The seconds of each micro-batch, and of all from start to end."""
        writer = source.writeStream.format("quire").trigger(availableNow=True)
        checkpoint = self._path.with_name(f"checkpoint-{time.time_ns()}")
        writer = writer.option("checkpointLocation", str(checkpoint)).option("queue", "sink")
        begin = time.perf_counter()
        query = writer.start(str(self._path))
        query.awaitTermination()
        seconds = time.perf_counter() - begin
        batches = [each for each in query.recentProgress if each.numInputRows]
        return [float(each.durationMs["triggerExecution"]) / 1_000 for each in batches], seconds


def _processor_seconds() -> float:
    """Of this process and all that have come of it, also of those that have ended."""
    ours = psutil.Process()
    total = 0.0
    for process in (ours, *ours.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it has just ended: its parent has its time
        total += times.user + times.system
        if process != ours:
            total += times.children_user + times.children_system
    return total
