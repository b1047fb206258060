"""Commits of many threads: each puts one message of 100 bytes per transaction, again and again.

Every number of threads gets its turn in each round, so that all see the same disk; a rate is the
median of the rounds. Threads of one process share the interpreter's lock, and a commit hands it
over at least once: on several processors this costs more than on one, since the next thread has to
be woken up on another. So the most threads run a second time, held on one processor.

A bare loop shows what is left of a commit when nothing is done but to hand over, and to write and
sync a page: a group commit of Python threads cannot be much faster on the same machine.

How many times the rate of one thread they reach depends on the disk: one thread waits for it all
the time, many share it. So the ratio is shown also for a disk that takes longer for each sync,
which is this one with a delay added at the environment's seam.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any, NamedTuple

import quire
from bench.drawing import COLOURS, INK, PALE, drawing, plain_numbers
from bench.figure import BenchmarkSetting, Figure, Plot, Result, Table, at_least
from bench.measuring.busy_threads import Work, busy_threads
from bench.measuring.delayed_env import DelayedEnv
from bench.measuring.payloads import as_list
from bench.rivals.bare_group import BareGroup
from bench.rivals.bare_loop import BareLoop

__all__ = ["run"]

THREADS = (1, 2, 4, 8, 16, 32)
TARGET = 8.0  # times the rate of one thread
PATIENCE = 30.0  # seconds, for the first commit
DELAYS_US = (250, 1000)  # added to a sync
OWN, SHARED, WHOLE = "a queue each", "one queue", "a queue each, transaction()"
PINNED = f"{OWN}, one processor"
BARE = "bare loop"
BARE_PAGES = 8192


class Rate(NamedTuple):
    """The rate of so many threads together."""

    commits: float  # a second
    share: float  # commits per group: one write, one sync


def run(setting: BenchmarkSetting) -> list[Result]:
    """Rates by the number of threads, and their ratios."""
    payload = as_list(1, setting.seed)[0]
    threads = THREADS[:: 1 if not setting.quick else 5]
    found: dict[tuple[str, int], list[Rate]] = {}
    seconds = 0.7 if not setting.quick else 0.05
    loop = BareLoop(setting.folder / "bare", BARE_PAGES)
    bare = BareGroup(loop)
    with quire.open(str(setting.folder / "store")) as store:
        for at in range(max(threads)):
            store.create_queue(f"queue-{at}", kind="work", capacity=1 << 34)
        for way in (OWN, BARE):
            target = bare if way == BARE else store
            _together(target, max(threads), _puts(target, payload, way), seconds)  # warm-up
        for _ in range(setting.scaled(3, 1)):
            for way, count in _plan(threads):
                target = bare if way == BARE else store
                with _one_processor() if way == PINNED else nullcontext():
                    rate = _together(target, count, _puts(target, payload, way), seconds)
                found.setdefault((way, count), []).append(rate)
    loop.close()
    rates = {
        key: Rate(median(r.commits for r in each), median(r.share for r in each))
        for key, each in found.items()
    }
    return [
        *_figures(rates, max(threads)),
        *_slower(setting, payload, max(threads), seconds),
        _table(rates, threads),
        _plot(rates, threads),
    ]


def _slower(setting: BenchmarkSetting, payload: bytes, most: int, seconds: float) -> list[Figure]:
    """Measure one thread and the most of them on slower disks."""
    figures = []
    for delay_us in DELAYS_US:
        path = str(setting.folder / f"store-{delay_us}")
        with quire.open(path, env=DelayedEnv(delay_us / 1e6)) as store:
            for at in range(most):
                store.create_queue(f"queue-{at}", kind="work", capacity=1 << 34)
            one, many = (
                _together(store, count, _puts(store, payload, OWN), seconds) for count in (1, most)
            )
        name = f"{most} threads to 1, each sync {delay_us:,} us longer"
        figures.append(Figure(name, many.commits / one.commits, "times"))
    return figures


def _plan(threads: tuple[int, ...]) -> list[tuple[str, int]]:
    plan = [(way, count) for count in threads for way in (OWN, SHARED, BARE)]
    return [*plan, (WHOLE, 1), (WHOLE, max(threads)), (PINNED, max(threads))]


def _puts(store: Any, payload: bytes, way: str) -> Work:
    def of(number: int) -> Callable[[], object]:
        if way == BARE:
            bare: Callable[[], object] = store.commit
            return bare
        name = "queue-0" if way == SHARED else f"queue-{number}"
        if way != WHOLE:
            return lambda: store.put(name, payload)

        def commit() -> None:
            with store.transaction() as transaction:
                transaction.put(name, payload)

        return commit

    return of


def _together(store: Any, count: int, work: Work, seconds: float) -> Rate:
    """Run so many threads for so long."""
    with busy_threads(count, work):
        before, began = store.status(), time.perf_counter()
        time.sleep(seconds)
        while store.status()["commits"] == before["commits"]:
            if time.perf_counter() > began + PATIENCE:
                break
            time.sleep(seconds)  # on a busy machine no thread had its turn
        after, ended = store.status(), time.perf_counter()
    commits, groups = (after[name] - before[name] for name in ("commits", "groups"))
    return Rate(commits / (ended - began), commits / max(1, groups))


@contextmanager
def _one_processor() -> Iterator[None]:
    """Threads that are started inside stay on one processor."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _figures(rates: dict[tuple[str, int], Rate], most: int) -> list[Figure]:
    one = rates[OWN, 1].commits
    return [
        Figure("1 thread", one, "commits/s"),
        Figure(f"{most} threads", rates[OWN, most].commits, "commits/s"),
        Figure(f"{most} threads to 1", rates[OWN, most].commits / one, "times", at_least(TARGET)),
        Figure(f"{most} threads: commits per write", rates[OWN, most].share, "commits"),
        Figure(f"{most} threads on one processor", rates[PINNED, most].commits, "commits/s"),
        Figure(f"{most} threads on one processor to 1", rates[PINNED, most].commits / one, "times"),
        Figure("1 thread, bare loop", rates[BARE, 1].commits, "commits/s"),
        Figure(f"{most} threads, bare loop", rates[BARE, most].commits, "commits/s"),
        Figure(
            f"{most} threads to 1, bare loop",
            rates[BARE, most].commits / rates[BARE, 1].commits,
            "times",
        ),
        Figure(
            f"{most} threads, bare loop, to 1 thread of Quire",
            rates[BARE, most].commits / one,
            "times",
        ),
        Figure("1 thread, transaction()", rates[WHOLE, 1].commits, "commits/s"),
        Figure(f"{most} threads, transaction()", rates[WHOLE, most].commits, "commits/s"),
        Figure(
            f"{most} threads to 1, transaction()",
            rates[WHOLE, most].commits / rates[WHOLE, 1].commits,
            "times",
            at_least(TARGET),
        ),
    ]


def _table(rates: dict[tuple[str, int], Rate], threads: tuple[int, ...]) -> Table:
    one = rates[OWN, 1].commits
    rows: list[list[float | str]] = [
        [
            f"{count}",
            rates[OWN, count].commits,
            rates[OWN, count].commits / one,
            rates[OWN, count].share,
            rates[SHARED, count].commits,
            rates[SHARED, count].share,
            rates[BARE, count].commits,
            rates[BARE, count].share,
        ]
        for count in threads
    ]
    columns = [
        "threads", f"{OWN}: commits/s", "to 1 thread", "per write",
        f"{SHARED}: commits/s", "per write", f"{BARE}: commits/s", "per write",
    ]  # fmt: skip
    return Table("Commits by the number of threads", columns, rows)


def _plot(rates: dict[tuple[str, int], Rate], threads: tuple[int, ...]) -> Plot:
    figure, (left, right) = drawing(2, "Group commit: one 100-byte put per transaction")
    ways = ((OWN, COLOURS[0], "o-"), (SHARED, COLOURS[1], "s-"), (BARE, PALE, "x:"))
    for way, colour, mark in ways:
        each = [rates[way, count] for count in threads]
        left.plot(threads, [rate.commits for rate in each], mark, color=colour, label=way)
        right.plot(threads, [rate.share for rate in each], mark, color=colour, label=way)
    pinned = rates[PINNED, threads[-1]].commits
    left.plot(threads[-1], pinned, "D", color=COLOURS[2], label=PINNED, clip_on=False)
    goal = TARGET * rates[OWN, 1].commits
    left.axhline(goal, color=PALE, linestyle="--", linewidth=1)
    left.annotate(
        f"{TARGET:g} times one thread", (threads[0], goal), xytext=(0, 4),
        textcoords="offset points", color=INK, fontsize=9,
    )  # fmt: skip
    right.plot(threads, threads, color=PALE, linestyle="--", linewidth=1, label="all of them")
    for axes, words in ((left, "commits per second"), (right, "commits per write and sync")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(threads, [str(count) for count in threads])
        axes.minorticks_off()
        axes.set_xlabel("committing threads")
        axes.set_ylabel(words)
        axes.set_ylim(bottom=0)
        axes.legend(loc="lower right" if axes is left else "upper left")
        plain_numbers(axes)
    return Plot("concurrency", "commits per second and per write, by committing threads", figure)
