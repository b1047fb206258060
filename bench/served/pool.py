"""A pool of worker processes: Quire beside RQ over Redis and a hand-written queue in SQLite.

A queue is filled with small jobs, and 1, 2 or 4 worker processes work through it; a turn is that,
once, of one kind, and the kinds take turns. Jobs a second are of all workers together, from the
word to begin to the end of the last one. Processor time is that of the workers and of the server
between them. All sync before a job is done with, but for one that is there to show what RQ itself
takes.

And what becomes of a job whose worker is killed (kill -9) while it works, with another one idle
beside it: after how long that begins it, if it does within ten seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from msgspec import Struct, field

from bench.figure import BenchmarkSetting, Figure, Result, Table
from bench.measuring.program import Program, spent_seconds
from bench.served.pool_programs import BURST, HOLD, JOB, PRODUCERS, STAY
from bench.served.request import BetweenThem
from bench.served.served_rivals import QuireServer, RedisServer, UnsyncedRedisServer

__all__ = ["QUIRE", "SIDES", "PoolSide", "PoolTurns", "RunningPool", "figures", "run"]

PROGRAMS = "bench.served.pool_programs"
CROWDS = (1, 2, 4)
STRIKE_SECONDS = 10.0
POLL_SECONDS = 0.005


class PoolSide(NamedTuple):
    """A row: what works, over which server; how many jobs it takes at once."""

    kind: str
    server: Callable[[Path], BetweenThem] | None  # None: a file
    most: int = 1
    jobs: int = 150  # of a turn


QUIRE = "Quire"
SIDES = {
    QUIRE: PoolSide("quire", QuireServer),
    "Quire, ten jobs a transaction": PoolSide("quire", QuireServer, 10),
    "SQLite, by hand": PoolSide("sqlite", None),
    "RQ, jobs in the worker": PoolSide("rq", RedisServer),
    "RQ, a process for each job": PoolSide("rq forks", RedisServer, jobs=30),
    "RQ, jobs in the worker, nothing synced": PoolSide("rq", UnsyncedRedisServer),
}


class PoolTurns(Struct):
    """The turns of one side with so many workers."""

    rates: list[float] = field(default_factory=list)  # jobs a second
    processor: list[float] = field(default_factory=list)  # seconds of each job


class RunningPool:
    """A pool's server and the producer that fills its queue; workers come and go."""

    def __init__(self, side: PoolSide, folder: Path, stack: ExitStack) -> None:
        self._side = side
        self._server_ids: list[int] = []
        self._address = str(folder)
        if side.server is not None:
            server = side.server(folder)
            stack.callback(server.stop)
            self._address = server.address
            self._server_ids += server.process_ids
        self._jobs = PRODUCERS[side.kind](self._address)
        stack.callback(self._jobs.close)

    def workers(self, count: int) -> list[Program]:
        """Start so many workers."""
        return [
            Program(PROGRAMS, self._side.kind, self._address, str(self._side.most))
            for _ in range(count)
        ]

    def turn(self, workers: Sequence[Program], count: int, turns: PoolTurns) -> None:
        """Work through so many jobs. Raises RuntimeError where they were not done, each once."""
        self._jobs.fill([JOB] * count, len(workers))
        spent, began = spent_seconds(self._server_ids), time.monotonic()
        for worker in workers:
            worker.tell(BURST)
        found = [worker.answer() for worker in workers]
        elapsed = time.monotonic() - began
        spent = spent_seconds(self._server_ids) - spent
        done = sum(each["done"] for each in found)
        if done != count:
            raise RuntimeError(f"{done} jobs were done, of {count}")
        turns.rates.append(count / elapsed)
        turns.processor.append((spent + sum(each["processor"] for each in found)) / count)

    def strike(self, marks: Path) -> float | None:
        """Kill a worker in its job; after how many seconds another one begins it. None: not yet."""
        killed, other = self.workers(2)
        try:
            self._jobs.fill([HOLD + bytes(marks)], 0)
            killed.tell(STAY)
            _lines(marks, 1, STRIKE_SECONDS)
            other.tell(STAY)
            time.sleep(0.5)  # it waits by now
            killed.kill()
            began = time.monotonic()
            return time.monotonic() - began if _lines(marks, 2, STRIKE_SECONDS) else None
        finally:
            killed.kill()
            other.kill()


def _lines(path: Path, count: int, seconds: float) -> bool:
    """Return True if the file has so many lines in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(FileNotFoundError):
            if path.read_text().count("\n") >= count:
                return True
        time.sleep(POLL_SECONDS)
    return False


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Return how ours compare, a table of all, and the fate of a killed worker's job."""
    found: dict[tuple[str, int], PoolTurns] = {}
    struck: dict[str, float | None] = {}
    with ExitStack() as stack:
        pools: dict[str, RunningPool] = {}
        for number, (name, side) in enumerate(SIDES.items()):
            try:
                pools[name] = RunningPool(side, setting.folder / str(number), stack)
            except FileNotFoundError as error:
                print(f"  without {name}: {error}")
        for count in CROWDS if not setting.quick else CROWDS[:1]:
            _measure(setting, pools, count, found)
        for number, (name, pool) in enumerate(pools.items()):
            if not setting.quick and SIDES[name].kind != "rq forks":
                struck[name] = pool.strike(setting.folder / f"marks-{number}")
    return [*figures(found), _table(found, list(pools)), *_struck_table(struck)]


def _measure(
    setting: BenchmarkSetting,
    pools: dict[str, RunningPool],
    count: int,
    found: dict[tuple[str, int], PoolTurns],
) -> None:
    with ExitStack() as stack:
        workers = {}
        for name, pool in pools.items():
            workers[name] = pool.workers(count)
            for each in workers[name]:
                stack.callback(each.close)
            pool.turn(workers[name], 20, PoolTurns())
        for _ in range(setting.scaled(5, 1)):
            for name, pool in pools.items():
                turns = found.setdefault((name, count), PoolTurns())
                pool.turn(workers[name], setting.scaled(SIDES[name].jobs, 20), turns)


def figures(found: dict[tuple[str, int], PoolTurns]) -> list[Figure]:
    """Return how Quire's compare with each that was measured."""
    figures = []
    for (name, count), turns in found.items():
        if name.startswith("Quire"):
            continue
        ours = found[QUIRE, count]
        rate = _ratio(ours.rates, turns.rates)
        spent = _ratio(ours.processor, turns.processor)
        figures.append(Figure(f"{count} workers: rate to {name}", rate, "times"))
        figures.append(Figure(f"{count} workers: processor to {name}", spent, "times"))
    return figures


def _ratio(ours: list[float], others: list[float]) -> float:
    """Return the median of the ratios in each turn."""
    return median(own / other for own, other in zip(ours, others, strict=True))


def _table(found: dict[tuple[str, int], PoolTurns], names: Sequence[str]) -> Table:
    counts = sorted({count for _, count in found})
    rows = []
    for name in names:
        turns = [found[name, count] for count in counts]
        rates = [f"{median(each.rates):,.0f}" for each in turns]
        spent = [f"{median(each.processor) * 1e6:,.0f}" for each in turns]
        rows.append([name, *spent, *rates])
    columns = [
        "pool",
        *(f"{count}: processor, us a job" for count in counts),
        *(f"{count}: jobs a second" for count in counts),
    ]
    return Table("Small jobs by so many worker processes", columns, rows)


def _struck_table(struck: dict[str, float | None]) -> list[Table]:
    rows = [
        [name, f"not within {STRIKE_SECONDS:.0f} s" if after is None else f"{after:.2f} s"]
        for name, after in struck.items()
    ]
    columns = ["pool", "begun again after"]
    return [Table("A job whose worker is killed", columns, rows)] if rows else []
