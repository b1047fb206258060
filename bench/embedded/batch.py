"""Batches: 1,000 messages of 100 bytes per durable transaction, and a million of them got back.

Quire and its rivals take turns, ten transactions each, after a warm-up that is the same for all:
the memory that a store works in is touched, its log and buffers have turned over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Figure, at_least
from bench.measuring.latencies import Latencies
from bench.measuring.payloads import as_arrow, as_list
from bench.rivals.embedded_rivals import RIVALS, Rival

__all__ = ["run"]

BATCH = 1_000
TURN = 10  # transactions
WARM_UP = 700  # transactions
ARROW_CHUNK, BYTES_CHUNK = 131_072, 10_000


class Quire:
    """Quire as a store like its rivals."""

    name = "Quire"

    def __init__(self, folder: Path) -> None:
        self.store = quire.open(str(folder / "store"))
        self.store.create_queue("queue", kind="topic", capacity=8 << 30)
        self.store.subscribe("queue", "bytes")
        self.store.subscribe("queue", "arrow")
        self.put([b"warm up: the first Arrow batch of a process imports much"])
        self.read()
        self.read_arrow()

    def put(self, payloads: Any) -> None:
        with self.store.transaction() as transaction:
            transaction.put_many("queue", payloads)

    def read(self) -> int:
        return self._drain(
            lambda transaction: len(
                transaction.get_many("queue/bytes", max_messages=BYTES_CHUNK).payloads()
            )
        )

    def read_arrow(self) -> int:
        return self._drain(
            lambda transaction: (
                transaction.get_arrow("queue/arrow", max_messages=ARROW_CHUNK).num_rows
            )
        )

    def _drain(self, take: Callable[[Any], int]) -> int:
        got = -1
        total = 0
        while got:
            with self.store.transaction() as transaction:
                got = take(transaction)
            total += got
        return total

    def close(self) -> None:
        self.store.close()


def run(setting: BenchmarkSetting) -> list[Figure]:
    """Rates of putting and getting, and how Quire compares."""
    turns = setting.scaled(100, 10)
    payloads = as_list(BATCH, setting.seed)
    ours = Quire(setting.folder)
    stores: list[Rival] = [ours, *(rival(setting.folder) for rival in RIVALS)]
    times = {store.name: Latencies() for store in stores}
    warm_up = setting.scaled(WARM_UP, 10)
    for store in stores:
        for _ in range(warm_up):
            store.put(payloads)
    ours.read()
    ours.read_arrow()
    for _ in range(turns):
        for store in stores:
            for _ in range(TURN):
                times[store.name].measure(partial(store.put, payloads))
    count = turns * TURN * BATCH
    rates = {name: count / taken.total for name, taken in times.items()}
    best = max(rate for name, rate in rates.items() if name != ours.name)
    figures = [
        Figure(f"put, 1,000 per transaction: {name}", rate, "messages/s")
        for name, rate in rates.items()
    ]
    ratio = rates[ours.name] / best
    figures.append(Figure("put: Quire to the best rival", ratio, "times", at_least(2)))
    medians = {name: taken.quantile(0.5) for name, taken in times.items()}
    fastest = min(median for name, median in medians.items() if name != ours.name)
    figures += [
        Figure(f"put, median transaction: {name}", us, "us") for name, us in medians.items()
    ]
    ratio = fastest / medians[ours.name]
    figures.append(Figure("put, median transaction: Quire to the best rival", ratio, "times"))
    figures += _get(ours, count)
    figures += _read_rivals(stores[1:], count + warm_up * BATCH)
    figures.append(_put_arrow(ours, setting, turns * TURN))
    for store in stores:
        store.close()
    return figures


def _get(ours: Quire, count: int) -> list[Figure]:
    return [
        Figure("get as bytes objects: Quire", _rate(ours.read, count), "messages/s", at_least(1e6)),
        Figure("get as Arrow: Quire", _rate(ours.read_arrow, count), "messages/s", at_least(1e7)),
    ]


def _read_rivals(rivals: list[Rival], count: int) -> list[Figure]:
    return [
        Figure(
            f"read (not taken) as bytes objects: {rival.name}",
            _rate(rival.read, count),
            "messages/s",
        )
        for rival in rivals
    ]


def _put_arrow(ours: Quire, setting: BenchmarkSetting, transactions: int) -> Figure:
    payloads = as_arrow(BATCH, setting.seed)
    times = Latencies()
    for _ in range(transactions):
        times.measure(lambda: ours.put(payloads))
    rate = transactions * BATCH / times.total
    return Figure("put, 1,000 per transaction, from Arrow: Quire", rate, "messages/s")


def _rate(read: Callable[[], int], count: int) -> float:
    begin = time.perf_counter()
    got = read()
    took = time.perf_counter() - begin
    if got != count:
        raise AssertionError(f"got {got} of {count} messages")
    return count / took
