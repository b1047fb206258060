"""The four commit strategies under contention: 8 writers and 4 committers over 8 queues.

A writer puts 100 bytes to each of two queues and commits. A committer takes up to three messages of
one queue, puts one of them to another, and commits both as one. There is either room for all, or so
little that the queues are nearly full all the time; a commit without room waits up to 10 ms for it,
and who is refused rolls back, lets others go first and begins anew. The strategies take turns of a
fraction of a second, the same for all; counts are sums, latencies those of all commits.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from random import Random
from statistics import mean
from typing import Any

import numpy as np
from msgspec import Struct, field

import quire
from bench.drawing import COLOURS, TINTED, bars, drawing, plain_numbers
from bench.figure import BenchmarkSetting, Figure, Plot, Result, Table, exactly
from bench.measuring.payloads import as_list
from quire.errors import QueueFull

__all__ = ["run"]

STRATEGIES = ("lock-all", "reserve-at-open", "reserve-mode", "reserve-mode-counted")
ROOMS = {"plenty of room": 64 << 20, "nearly full": 4096}  # bytes a queue
WRITERS, COMMITTERS, QUEUES = 8, 4, 8
TAKEN = 3  # messages that a committer takes at most
WAIT = 0.01  # seconds, for room for a commit
PAUSE = 0.0005  # seconds, after a refusal


class StrategyTally(Struct):
    """The counts of the threads under one strategy with one amount of room."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    fill: list[float] = field(default_factory=list)  # shares of the capacity

    def quantile(self, share: float) -> float:
        return float(np.quantile(self.latencies, share) * 1e6) if self.latencies else 0.0

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    def of_hundred(self, what: str) -> float:
        """Return how often something happened to a hundred transactions that put."""
        return 100 * self.counts[what] / max(1, self.counts["begun"])


class Contention:
    """A store under one strategy, and the threads that work on it."""

    def __init__(self, setting: BenchmarkSetting, strategy: str, room: str) -> None:
        folder = setting.folder / f"{strategy}-{ROOMS[room]}"
        self._seed = setting.seed
        self._payload = as_list(1, setting.seed)[0]
        self._store = quire.open(str(folder), strategy=strategy, segment_bytes=8 << 20)
        self._capacity = ROOMS[room]
        self._names = [f"queue-{at}" for at in range(QUEUES)]
        for name in self._names:
            self._store.create_queue(name, kind="work", capacity=self._capacity)
        self.tally = StrategyTally()

    def turn(self, seconds: float) -> None:
        """Run all threads for so long."""
        self._stop = threading.Event()
        work = [self._write] * WRITERS + [self._move] * COMMITTERS
        threads = [
            threading.Thread(target=self._repeat, args=(step, number))
            for number, step in enumerate(work)
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        while not self._stop.wait(seconds / 20):
            if time.perf_counter() - began >= seconds:
                self._stop.set()
            used = mean(self._store.queue(name).used_bytes for name in self._names)
            self.tally.fill.append(used / self._capacity)
        for thread in threads:
            thread.join()
        self.tally.seconds += time.perf_counter() - began

    def close(self) -> int:
        """Return the counts of what is still open or reserved, which should be nothing."""
        infos = [self._store.queue(name) for name in self._names]
        self._store.close()
        return sum(info.open_transactions + info.reserving for info in infos)

    def _repeat(self, step: Any, number: int) -> None:
        rng = Random(self._seed * 100 + number)
        latencies: list[float] = []
        counts: Counter[str] = Counter()
        while not self._stop.is_set():
            step(rng, latencies, counts)
        self.tally.latencies += latencies
        self.tally.counts += counts

    def _write(self, rng: Random, latencies: list[float], counts: Counter[str]) -> None:
        first, second = rng.sample(self._names, 2)
        transaction = self._store.transaction()
        counts["begun"] += 1
        try:
            transaction.put(first, self._payload)
            transaction.put(second, self._payload)
        except QueueFull:
            counts["refused at put"] += 1
            self._give_way(transaction)
            return
        self._commit(transaction, latencies, counts)

    def _move(self, rng: Random, latencies: list[float], counts: Counter[str]) -> None:
        source, target = rng.sample(self._names, 2)
        transaction = self._store.transaction()
        messages = transaction.get_many(source, max_messages=TAKEN)
        if not len(messages):
            self._give_way(transaction)
            return
        if len(messages) > 1:  # more is taken than put: the queues drain, slower than they fill
            counts["begun"] += 1
            try:
                transaction.put(target, messages.payloads()[0])
            except QueueFull:
                counts["refused at put"] += 1  # it commits what it has taken: that makes room
        self._commit(transaction, latencies, counts)

    def _commit(self, transaction: Any, latencies: list[float], counts: Counter[str]) -> None:
        began = time.perf_counter()
        try:
            try:
                transaction.commit(timeout=0)
            except QueueFull:
                counts["waited at commit"] += 1
                transaction.commit(timeout=WAIT)
        except QueueFull:
            counts["refused at commit"] += 1
            self._give_way(transaction)
        else:
            latencies.append(time.perf_counter() - began)

    def _give_way(self, transaction: Any) -> None:
        transaction.rollback()
        time.sleep(PAUSE)


def run(setting: BenchmarkSetting) -> list[Result]:
    """Rates, latencies and refusals of the four, with much room and with little."""
    found = {
        (room, strategy): Contention(setting, strategy, room)
        for room in ROOMS
        for strategy in STRATEGIES
    }
    seconds = 0.6 if not setting.quick else 0.04
    for _ in range(setting.scaled(4, 1)):
        for contention in found.values():
            contention.turn(seconds)
    left = sum(contention.close() for contention in found.values())
    tallies = {key: contention.tally for key, contention in found.items()}
    best = max(STRATEGIES, key=lambda name: tallies["nearly full", name].rate)
    return [
        Figure("open or reserved in any queue, at rest", left, "", exactly(0)),
        Figure(
            "reserve-mode to the best, nearly full",
            tallies["nearly full", "reserve-mode"].rate / tallies["nearly full", best].rate,
            "times",
        ),
        *(_table(room, tallies) for room in ROOMS),
        _plot(tallies),
    ]


def _table(room: str, tallies: dict[tuple[str, str], StrategyTally]) -> Table:
    columns = [
        "strategy", "commits/s", "p50 us", "p99 us", "put refused %", "commit waited %",
        "commit refused %", "used %",
    ]  # fmt: skip
    rows: list[list[float | str]] = []
    for strategy in STRATEGIES:
        tally = tallies[room, strategy]
        rows.append(
            [
                strategy, round(tally.rate), tally.quantile(0.5), tally.quantile(0.99),
                tally.of_hundred("refused at put"), tally.of_hundred("waited at commit"),
                tally.of_hundred("refused at commit"), 100 * mean(tally.fill),
            ]
        )  # fmt: skip
    title = f"{WRITERS} writers, {COMMITTERS} committers, {QUEUES} queues: {room}"
    return Table(title, columns, rows)


def _plot(tallies: dict[tuple[str, str], StrategyTally]) -> Plot:
    figure, (rate, refused, latency) = drawing(
        3, f"Commit strategies: {WRITERS} writers and {COMMITTERS} committers over {QUEUES} queues"
    )
    names = [name.replace("reserve-", "reserve-\n") for name in STRATEGIES]

    def each(room: str, value: Any) -> list[float]:
        return [value(tallies[room, strategy]) for strategy in STRATEGIES]

    bars(rate, names, {room: each(room, lambda t: t.rate) for room in ROOMS})
    rate.set_ylabel("commits per second")
    rate.set_title("rate")
    spans = {
        f"{room}, {words}": each(room, lambda t, share=share: t.quantile(share) / 1e3)
        for room in ROOMS
        for words, share in (("p50", 0.5), ("p99", 0.99))
    }
    bars(latency, names, spans, TINTED)
    latency.set_ylabel("milliseconds a commit")
    latency.set_title("latency")
    steps = {
        step: each("nearly full", lambda t, step=step: t.of_hundred(step))
        for step in ("refused at put", "waited at commit", "refused at commit")
    }
    bars(refused, names, steps, COLOURS[2:])
    refused.set_ylabel("of 100 transactions that put")
    refused.set_title("no room (QueueFull), nearly full")
    for axes in (rate, latency, refused):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=9)
        plain_numbers(axes)
    return Plot("strategies", "the four commit strategies: rate, latency and refusals", figure)
