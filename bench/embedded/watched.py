"""A store that is watched beside one that is not: full load, and a scrape each second.

Two stores of a process take turns, each with so many queues; the watched one has a port of metrics,
and another process scrapes it and asks both probes every second. Each pair of
turns gives a ratio of rates, and one of the processor time of the process for each put, scrapes
included; a figure is the median of all pairs. On a machine that has much else to do the second one
is what counts.

The other figures are of processes: what `quire serve` takes until it is ready, with metrics and
without, and what a program that registers a collector loads.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_least, at_most
from bench.measuring.busy_threads import busy_threads
from bench.measuring.payloads import as_list
from quire.metrics import MetricsServer

__all__ = ["run"]

QUEUES = 100
TARGET = 0.95  # of the rate without
SCRAPER = """
import sys, time, urllib.request
while True:
    for page in ("metrics", "healthz", "readyz"):
        urllib.request.urlopen(f"{sys.argv[1]}/{page}", timeout=10).read()
    time.sleep(1)
"""
STARTS = {
    "import quire.metrics": "import quire.metrics",
    "import quire.metrics, a collector": (
        "import quire.metrics\nclass S:\n    status = dict\nquire.metrics.collector(S())"
    ),
    "import quire": "import quire",
}


class PutRate(NamedTuple):
    """The rate and cost of puts in a turn of one store."""

    rate: float  # puts a second
    cpu_us: float  # of the process, for each put


def run(setting: BenchmarkSetting) -> list[Result]:
    """Rates of both, by durability and the number of threads."""
    payload = as_list(1, setting.seed)[0]
    rows: list[list[float | str]] = []
    figures: list[Result] = []
    with _stores(setting) as (plain, watched, url), _scraping(url) as scraper:
        for durable in (True, False):
            for count in (1, 8):
                pairs = _pairs(setting, (plain, watched), scraper, payload, count, durable=durable)
                name = f"{'durable' if durable else 'not durable'}, {count} threads"
                rate = median(after.rate / before.rate for before, after in pairs)
                cost = median(after.cpu_us / before.cpu_us for before, after in pairs)
                figures += [
                    Figure(f"puts a second: {name}", rate, "times", at_least(TARGET)),
                    Figure(f"processor time of a put: {name}", cost, "times", at_most(1 / TARGET)),
                ]
                sides = [*zip(*pairs, strict=True)]
                rates = [median(turn.rate for turn in side) for side in sides]
                costs = [median(turn.cpu_us for turn in side) for side in sides]
                rows.append([name, *rates, rate, *costs, cost])
        figures.append(Figure(f"a scrape of {QUEUES} queues", _scrape_ms(url), "ms"))
    figures += [
        Figure(f"processor time of a process: {name}", _processor_ms(script), "ms")
        for name, script in STARTS.items()
    ]
    columns = (
        "puts", "not watched, a second", "watched, a second", "ratio",
        "not watched, processor us", "watched, processor us", "ratio",
    )  # fmt: skip
    return [*figures, Table(f"Pairs of turns, medians; {QUEUES} queues", columns, rows)]


@contextmanager
def _stores(setting: BenchmarkSetting) -> Iterator[tuple[Any, Any, str]]:
    plain_path, watched_path = (str(setting.folder / name) for name in ("plain", "watched"))
    with (
        quire.open(plain_path) as plain,
        quire.open(watched_path) as watched,
        MetricsServer("127.0.0.1:0", watched) as server,
    ):
        for store in (plain, watched):
            for number in range(QUEUES):
                store.create_queue(f"queue-{number}", kind="work", capacity=1 << 34)
        yield plain, watched, server.url


@contextmanager
def _scraping(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that scrapes each second, unless it is stopped by a signal."""
    with subprocess.Popen([sys.executable, "-c", SCRAPER, url]) as scraper:
        try:
            time.sleep(1.5)  # it has begun
            yield scraper
        finally:
            scraper.kill()


def _pairs(
    setting: BenchmarkSetting,
    stores: tuple[Any, Any],
    scraper: subprocess.Popen[bytes],
    payload: bytes,
    count: int,
    *,
    durable: bool,
) -> list[tuple[PutRate, PutRate]]:
    """Rates of both stores in turns, the first one first in every other pair."""
    seconds = 2.0 if not setting.quick else 0.2
    pairs = []
    for turn in range(setting.scaled(11, 1)):
        found: dict[int, PutRate] = {}
        for which in (0, 1) if turn % 2 else (1, 0):
            store = stores[which]

            def work(number: int, store: Any = store) -> Any:
                name = f"queue-{number}"
                return lambda: store.put(name, payload, durable=durable)

            with busy_threads(count, work) as done:
                scraper.send_signal(signal.SIGCONT if which else signal.SIGSTOP)
                time.sleep(0.1)
                before, begin, cpu = sum(done), time.perf_counter(), time.process_time()
                time.sleep(seconds)
                puts, took = sum(done) - before, time.perf_counter() - begin
                cpu_us = (time.process_time() - cpu) / max(puts, 1) * 1e6
                found[which] = PutRate(puts / took, cpu_us)
                scraper.send_signal(signal.SIGSTOP)
            for number in range(count):
                store.admin.purge(f"queue-{number}")
        pairs.append((found[0], found[1]))
    return pairs


def _scrape_ms(url: str) -> float:
    import urllib.request

    times = []
    for _ in range(9):
        begin = time.perf_counter()
        urllib.request.urlopen(f"{url}/metrics", timeout=10).read()
        times.append(time.perf_counter() - begin)
    return median(times) * 1000


def _processor_ms(script: str) -> float:
    """Processor time of a new process that runs it, without that of the interpreter alone."""
    ending = "import time\nprint(time.process_time())"
    found = []
    for _ in range(5):
        times = [
            float(
                subprocess.run(
                    [sys.executable, "-c", f"{lines}\n{ending}"],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            for lines in ("", script)
        ]
        found.append(times[1] - times[0])
    return median(found) * 1000
