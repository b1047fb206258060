"""The tables of a thesis of 1999, measured again: put and get of one message per transaction.

The sizes, the number of messages of each, and what is timed are the thesis' (see
`bench.rivals.messner_figures`):
all messages of a size are put, then all are got, and each is timed from before its transaction
begins to after it has ended. Several series are made; the queues take turns, five messages each, so
that all see the same disk. A get is also compared with SQLite's at each size, by the medians, and
by the averages where it does worst.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, log
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib.axes import Axes

from bench.drawing import COLOURS, PALE, drawing, plain_numbers
from bench.figure import BenchmarkSetting, Figure, Plot, Result, Table, at_most
from bench.rivals.messner_figures import COUNTS, SIZES, TABLES, Milliseconds
from bench.rivals.table_queues import PostgresQueue, QuireQueue, SqliteQueue, TableQueue
from tests.coordination.postgres import Cluster, NotInstalled

__all__ = ["run"]

TURN = 5  # messages
GET_TARGET = 1.2  # times SQLite's
WARM_UP = 20  # messages
THESIS = {"own": "own storage", "DB2": "DB2", "old": "before"}
NUMBERS = {("put", "old"): 1, ("get", "old"): 2, ("put", "DB2"): 3, ("get", "DB2"): 4,
           ("put", "own"): 5, ("get", "own"): 6}  # fmt: skip
SOURCE = (
    "Milliseconds: average (least to most). Thesis, for reference: Albrecht Messner,"
    " Neuimplementierung einer transaktionalen Message Queue, Universität Stuttgart 1999, appendix"
    " C; on a SPARCstation 10, over CORBA."
)

# By operation, queue and size.
CallTimes = dict[tuple[str, str, int], list[float]]
SizeTimes = dict[tuple[str, str, int], Milliseconds]
SizeValues = dict[tuple[str, str, int], float]


def run(setting: BenchmarkSetting) -> list[Result]:
    """Return both tables, how Quire compares, and the plot."""
    with _queues(setting.folder) as queues:
        found: CallTimes = {}
        for queue in queues:
            for _ in range(WARM_UP):
                queue.put(bytes(1000))
                queue.get()
        for _ in range(setting.scaled(3, 1)):
            for size in SIZES:
                payloads = _payloads(size, setting)
                _take_turns("put", queues, size, payloads, found)
                _take_turns("get", queues, size, payloads, found)
    times = {key: Milliseconds(mean(each), min(each), max(each)) for key, each in found.items()}
    names = [queue.name for queue in queues]
    middle = {key: float(np.median(each)) for key, each in found.items()}
    average = {key: each.average for key, each in times.items()}
    figures = [
        _compared(f"{operation}, {words}", operation, names, values)
        for operation in ("put", "get")
        for words, values in (("averages", average), ("medians", middle))
    ]
    figures += _beside_sqlite(middle, average)
    tables = [_table(operation, names, times, middle) for operation in ("put", "get")]
    return [*figures, *tables, _plot(names, times)]


@contextmanager
def _queues(folder: Path) -> Iterator[list[TableQueue]]:
    """Quire and its rivals; PostgreSQL only where it is installed."""
    queues: list[TableQueue] = [QuireQueue(folder), SqliteQueue(folder)]
    cluster = None
    try:
        try:
            cluster = Cluster({"listen_addresses": ""}, parent=folder)
        except NotInstalled as error:
            print(f"  without PostgreSQL: {error}")
        else:
            queues.append(PostgresQueue(cluster.connect()))
        yield queues
    finally:
        for queue in queues:
            queue.close()
        if cluster is not None:
            cluster.stop()


def _payloads(size: int, setting: BenchmarkSetting) -> list[bytes]:
    count = COUNTS[size] if not setting.quick else TURN
    data = np.random.default_rng(setting.seed + size).bytes(size + count)
    return [data[at : at + size] for at in range(count)]


def _take_turns(
    operation: str, queues: list[TableQueue], size: int, payloads: list[bytes], found: CallTimes
) -> None:
    for begin in range(0, len(payloads), TURN):
        for queue in queues:
            times = found.setdefault((operation, queue.name, size), [])
            for payload in payloads[begin : begin + TURN]:
                got = payload
                began = time.perf_counter()
                if operation == "put":
                    queue.put(payload)
                else:
                    got = queue.get()
                times.append((time.perf_counter() - began) * 1e3)
                assert got == payload, f"{queue.name} gave another message"


def _ratio(operation: str, size: int, names: list[str], values: SizeValues) -> float:
    """Return how often Quire's time goes into that of the best rival."""
    rivals = [values[operation, name, size] for name in names[1:]]
    return min(rivals) / values[operation, names[0], size]


def _to_sqlite(operation: str, size: int, values: SizeValues) -> float:
    return values[operation, QuireQueue.name, size] / values[operation, SqliteQueue.name, size]


def _beside_sqlite(middle: SizeValues, average: SizeValues) -> list[Figure]:
    """A get at each size."""
    target = at_most(GET_TARGET)
    figures = [
        Figure(
            f"get of {size:,} bytes, medians: Quire to SQLite",
            _to_sqlite("get", size, middle),
            "times",
            target,
        )
        for size in SIZES
    ]
    worst = max(_to_sqlite("get", size, average) for size in SIZES)
    title = "get, averages: Quire to SQLite, the worst size"
    return [*figures, Figure(title, worst, "times", target)]


def _compared(words: str, operation: str, names: list[str], values: SizeValues) -> Figure:
    logarithms = [log(_ratio(operation, size, names, values)) for size in SIZES]
    title = f"{words}: best rival to {names[0]}, geometric mean"
    return Figure(title, exp(mean(logarithms)), "times")


def _table(operation: str, names: list[str], times: SizeTimes, middle: SizeValues) -> Table:
    thesis = [f"thesis: {words} (C.{NUMBERS[operation, key]})" for key, words in THESIS.items()]
    rows: list[list[float | str]] = []
    for size in SIZES:
        cells = [_cell(times[operation, name, size], "{:.3g}") for name in names]
        old = [TABLES[operation, key].get(size) for key in THESIS]
        average = {key: each.average for key, each in times.items()}
        ratio = f"{_ratio(operation, size, names, average):.2f}"
        medians = f"{_to_sqlite(operation, size, middle):.2f}"
        past = [_cell(each, "{:g}") if each else "" for each in old]
        rows.append([f"{size:,}", *cells, ratio, medians, *past])
    columns = ["bytes", *names, f"best rival / {names[0]}", "Quire / SQLite, medians", *thesis]
    return Table(f"{operation} of one message per transaction, ms", columns, rows, SOURCE)


def _cell(times: Milliseconds, form: str) -> str:
    average, least, most = map(form.format, times)
    return f"{average} ({least} to {most})"


def _plot(names: list[str], times: SizeTimes) -> Plot:
    title = "One message per durable transaction: average, and from the least to the most"
    figure, both = drawing(2, title, height=5)
    for axes, operation in zip(both, ("put", "get"), strict=True):
        for name, colour in zip(names, COLOURS, strict=False):
            _line(axes, {size: times[operation, name, size] for size in SIZES}, name, colour, "-")
        past = zip(THESIS.items(), (":", "--", "-."), strict=True)
        for (key, words), dashes in past:
            _line(axes, TABLES[operation, key], f"1999: {words}", PALE, dashes)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(operation)
        axes.set_xlabel("bytes of the message")
        axes.set_ylabel("milliseconds")
        plain_numbers(axes, x=True)
    handles, labels = both[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6)
    return Plot("messner", "milliseconds for one message per transaction, by its size", figure)


def _line(axes: Axes, times: dict[int, Milliseconds], name: str, colour: str, dashes: str) -> None:
    sizes = list(times)
    average, least, most = (list(each) for each in zip(*times.values(), strict=True))
    axes.plot(sizes, average, dashes, color=colour, label=name, linewidth=1.6)
    if dashes == "-":
        axes.fill_between(sizes, least, most, color=colour, alpha=0.1, linewidth=0)
