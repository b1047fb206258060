"""One paired run of `bench.small.small`: Quire and SQLite in one process, in turns.

`bench.small.small` starts it in a process of its own for each run, with the Quire of one checkout
or of another. It prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from types import FrameType
from typing import Any, NamedTuple

import quire
from bench.measuring.busy_threads import Work, busy_threads
from bench.rivals.bare_group import BareGroup
from bench.rivals.bare_loop import BareLoop
from bench.small.small_sides import THREADS, QuireSide, SmallSide, SqliteSide

__all__ = ["BATCH", "FLOOR", "OPERATIONS", "main"]

OPERATIONS = ("put", "put_in_transaction", "get", "move", "put_and_roll_back")
BATCH = 1_000  # messages of one transaction
TURN = 100  # calls
TRACED = 15  # calls
SIDES = ("Quire", "SQLite")
FLOOR = "bare group"
PAGES = 4096  # of its file


class CallCost(NamedTuple):
    """The costs of calls, in microseconds each."""

    processor: float  # of all the process' threads, in the system's calls too
    wall: float
    mean: float = 0.0  # processor time with what comes only now and then: checkpoints, new segments


def main() -> None:
    """Arguments: folder, turns, seconds of each turn of the threads, seed, whether to sync."""
    folder, turns, seconds, seed, sync = sys.argv[1:]
    settings: dict[str, Any] = {"sync": sync == "sync", "seed": int(seed)}
    sides: list[SmallSide] = [side(Path(folder), **settings) for side in (QuireSide, SqliteSide)]
    _operations(sides, 2)  # warm-up
    found = {
        "place": str(Path(quire.__file__).resolve().parents[1]),
        "operations": _operations(sides, int(turns)),
        "page": _bare_page(Path(folder), int(turns)) if settings["sync"] else None,
        "bytecodes": _bytecodes(sides[0]),
        "batches": _batches(sides, max(3, int(turns) // 2)),
        "threads": _threads(sides, Path(folder), float(seconds), sync=settings["sync"]),
    }
    for side in sides:
        side.close()
    print(json.dumps(found))


def _operations(sides: list[SmallSide], turns: int) -> dict[str, dict[str, CallCost]]:
    """Each operation's turns follow those that put what it gets."""
    processor: dict[tuple[str, str], list[float]] = {}
    wall: dict[tuple[str, str], list[float]] = {}
    for _ in range(turns):
        for operation in OPERATIONS:
            for name, side in zip(SIDES, sides, strict=True):
                calls = wall.setdefault((operation, name), [])
                spent = _repeat(getattr(side, operation), calls)
                processor.setdefault((operation, name), []).append(spent)
        for side in sides:
            side.drain()
    return {
        operation: {
            name: _middle(processor[operation, name], wall[operation, name]) for name in SIDES
        }
        for operation in OPERATIONS
    }


def _bare_page(folder: Path, turns: int) -> CallCost:
    """A page written and synced, and nothing else: the least that a commit can be in Python."""
    bare = BareLoop(folder / "bare page", PAGES)
    calls: list[float] = []
    processor = [_repeat(bare.step, calls) for _ in range(turns)]
    bare.close()
    return _middle(processor, calls)


def _bytecodes(side: SmallSide) -> dict[str, float]:
    """Return how many bytecodes the interpreter executes for one call, the same on every
    machine.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    found = {}
    for operation in OPERATIONS:
        call, counts = getattr(side, operation), []
        for _ in range(TRACED):
            count, before = 0, sys.gettrace()
            sys.settrace(trace)
            try:
                call()
            finally:
                sys.settrace(before)
            counts.append(count)
        found[operation] = median(counts)  # without what comes only now and then
    side.drain()
    return found


def _middle(turns: list[float], calls: list[float]) -> CallCost:
    return CallCost(median(turns), median(calls), mean(turns))


def _repeat(call: Callable[[], object], calls: list[float]) -> float:
    """Run one turn: note the time of each call, and return the mean processor time of one."""
    clock = time.perf_counter
    spent = time.process_time()
    for _ in range(TURN):
        began = clock()
        call()
        calls.append((clock() - began) * 1e6)
    return (time.process_time() - spent) * 1e6 / TURN


def _batches(sides: list[SmallSide], turns: int) -> dict[str, dict[str, CallCost]]:
    """Messages one by one in one transaction: what one message takes, the commit included."""
    found: dict[str, dict[str, list[CallCost]]] = {"put": {}, "get": {}}
    for _ in range(turns):
        for name, side in zip(SIDES, sides, strict=True):
            found["put"].setdefault(name, []).append(_batch(side.put_each))
            found["get"].setdefault(name, []).append(_batch(side.get_each))
    return {
        operation: {
            name: _middle([taken.processor for taken in each], [taken.wall for taken in each])
            for name, each in both.items()
        }
        for operation, both in found.items()
    }


def _batch(call: Callable[[int], None]) -> CallCost:
    began, spent = time.perf_counter(), time.process_time()
    call(BATCH)
    processor, wall = time.process_time() - spent, time.perf_counter() - began
    return CallCost(processor * 1e6 / BATCH, wall * 1e6 / BATCH)


def _threads(
    sides: list[SmallSide], folder: Path, seconds: float, *, sync: bool
) -> dict[str, tuple[float, float]]:
    """Commits a second of the threads together, and the processor time of one in microseconds.

    Where there is a disk to wait for, of a bare group commit too.
    """
    measured = {name: side.of_thread for name, side in zip(SIDES, sides, strict=True)}
    bare = BareLoop(folder / "bare", PAGES) if sync else None
    if bare is not None:
        group = BareGroup(bare)
        measured[FLOOR] = lambda number: group.commit
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in measured}
    for _ in range(3):
        for name, of_thread in measured.items():
            found[name].append(_together(of_thread, seconds))
    if bare is not None:
        bare.close()
    return {
        name: (median(rate for rate, _ in each), median(spent for _, spent in each))
        for name, each in found.items()
    }


def _together(of_thread: Work, seconds: float) -> tuple[float, float]:
    with busy_threads(THREADS, of_thread) as done:
        time.sleep(seconds / 5)  # until all are at work
        before, began, spent = sum(done), time.perf_counter(), time.process_time()
        time.sleep(seconds)
        commits = sum(done) - before
        ended, spent = time.perf_counter(), time.process_time() - spent
    return commits / (ended - began), spent * 1e6 / max(1, commits)
