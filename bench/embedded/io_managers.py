"""One, two and four data files: transactions of 1 to 4 MiB over eight queues, and checkpoints.

Each number of files has a store of its own, and they take turns in each round, so that all see the
same disk; a rate is the median of the rounds. The queues are spread evenly. What was put is read to
its end after each turn, and the first turn does not count, so that pages are used again as in a
store that has run for a while.

All files are on one disk here: what can be gained is what that disk, and its file system, does
better with writes to several files at a time than with writes to one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import quire
from bench.drawing import bars, drawing
from bench.figure import BenchmarkSetting, Figure, Plot, Result

__all__ = ["run"]

FILES = (1, 2, 4)
QUEUES = 8
SIZES_MIB = (1, 2, 4)  # of a transaction, over all queues
PAYLOADS_PER_QUEUE = 4
THREADS = (1, 4)
BACKLOG_BYTES = 32 << 20  # that a checkpoint moves from the journal
SMALL_BYTES = 16 << 10  # a queue's part of a transaction that travels in the journal


class Case(NamedTuple):
    """A measured case."""

    size_mib: int
    threads: int


def run(setting: BenchmarkSetting) -> list[Result]:
    """MiB a second by the number of files, seconds for a checkpoint, and their ratios."""
    rounds = setting.scaled(5, 1)
    commits = setting.scaled(12, 2)  # by each thread
    backlog = setting.scaled(BACKLOG_BYTES, 2 << 20)
    cases = [Case(size, threads) for size in SIZES_MIB for threads in THREADS]
    rates: dict[tuple[Case, int], list[float]] = {}
    checkpoints: dict[int, list[float]] = {files: [] for files in FILES}
    with ExitStack() as opened:
        stores = {files: opened.enter_context(_store(setting, files)) for files in FILES}
        for _ in range(rounds + 1):
            for case in cases:
                for files, store in stores.items():
                    rate = _commit(store, case, commits, setting.seed)
                    rates.setdefault((case, files), []).append(rate)
        for _ in range(rounds + 1):
            for files, store in stores.items():
                checkpoints[files].append(_checkpoint(store, backlog, setting.seed))
    for measured in (*rates.values(), *checkpoints.values()):
        del measured[0]  # the files had to grow
    return [
        *_rate_figures(cases, rates),
        *_checkpoint_figures(checkpoints, backlog),
        _plot(rates, checkpoints, backlog),
    ]


def _store(setting: BenchmarkSetting, files: int) -> Any:
    store = quire.open(
        str(setting.folder / f"store-{files}"),
        data_files=files,
        checkpoint_bytes=1 << 30,  # none but those that are asked for
        share=False,
    )
    for number in range(QUEUES):
        store.create_queue(f"queue-{number}", kind="work", data_file=number % files)
    return store


def _commit(store: Any, case: Case, commits: int, seed: int) -> float:
    """MiB a second that so many threads commit together."""
    size = (case.size_mib << 20) // (QUEUES * PAYLOADS_PER_QUEUE) - 64  # with headers it fits pages
    payloads = [np.random.default_rng(seed).bytes(size)] * PAYLOADS_PER_QUEUE
    gate = threading.Barrier(case.threads + 1)

    def repeat() -> None:
        gate.wait()
        for _ in range(commits):
            _put(store, payloads)

    threads = [threading.Thread(target=repeat) for _ in range(case.threads)]
    for thread in threads:
        thread.start()
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    _read_all(store)
    return case.size_mib * commits * case.threads / seconds


def _checkpoint(store: Any, backlog: int, seed: int) -> float:
    """The seconds of a checkpoint that moves so many bytes from the journal to the data files."""
    store.admin.checkpoint()
    payloads = [np.random.default_rng(seed).bytes(SMALL_BYTES)]
    for _ in range(backlog // (QUEUES * SMALL_BYTES)):
        _put(store, payloads)
    began = time.perf_counter()
    store.admin.checkpoint()
    seconds = time.perf_counter() - began
    _read_all(store)
    store.admin.checkpoint()
    return seconds


def _put(store: Any, payloads: list[bytes]) -> None:
    with store.transaction() as transaction:
        for number in range(QUEUES):
            transaction.put_many(f"queue-{number}", payloads)


def _read_all(store: Any) -> None:
    with store.transaction() as transaction:
        for number in range(QUEUES):
            name = f"queue-{number}"
            transaction.read_to(name, store.queue(name).end_position)


def _rate_figures(
    cases: list[Case], rates: dict[tuple[Case, int], list[float]]
) -> Iterator[Figure]:
    for case in cases:
        words = f"{case.size_mib} MiB, {case.threads} thread{'s' * (case.threads > 1)}"
        one = median(rates[case, 1])
        for files in FILES:
            rate = median(rates[case, files])
            yield Figure(f"{words}: {_files(files)}", rate, "MiB/s")
            if files > 1:
                yield Figure(f"{words}: {files} files to 1", rate / one, "times")


def _checkpoint_figures(checkpoints: dict[int, list[float]], backlog: int) -> Iterator[Figure]:
    one = median(checkpoints[1])
    for files, seconds in checkpoints.items():
        words = f"checkpoint that moves {backlog >> 20} MiB"
        yield Figure(f"{words}: {_files(files)}", median(seconds) * 1e3, "ms")
        if files > 1:
            yield Figure(f"{words}: 1 file to {files}", one / median(seconds), "times")


def _files(files: int) -> str:
    return f"{files} file{'s' * (files > 1)}"


def _plot(
    rates: dict[tuple[Case, int], list[float]], checkpoints: dict[int, list[float]], backlog: int
) -> Plot:
    figure, axes = drawing(3, f"Data files on one disk: transactions over {QUEUES} queues")
    sizes = [f"{size} MiB" for size in SIZES_MIB]
    for threads, part in zip(THREADS, axes, strict=False):
        part.set_title(f"{threads} thread{'s' * (threads > 1)}")
        part.set_ylabel("MiB per second")
        part.set_xlabel("size of a transaction")
        series = {
            _files(files): [median(rates[Case(size, threads), files]) for size in SIZES_MIB]
            for files in FILES
        }
        bars(part, sizes, series)
    last = axes[-1]
    last.set_title("checkpoint")
    last.set_ylabel("milliseconds")
    series = {_files(files): [median(checkpoints[files]) * 1e3] for files in FILES}
    bars(last, [f"{backlog >> 20} MiB moved"], series)
    handles, labels = last.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(FILES))
    words = "throughput and checkpoint time with one, two and four data files"
    return Plot("io_managers", words, figure)
