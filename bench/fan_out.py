"""What one commit over many queues costs: calls to the disk, and time against one queue.

The calls that the committing thread makes are counted at the environment's seam; a write to a
direct file counts as a write and a sync. A commit that begins a new segment of the journal writes
no more than the others: the segment was made ready before, by the store's own thread. So that this
is seen, the commits over 1,000 queues fill more than a segment.

The same bytes go to one queue, as so many messages, and to many queues, one message each. The two
take turns of ten commits; the commit alone is timed, and the whole transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import quire
from bench.counting_env import CountingEnv
from bench.drawing import COLOURS, INK, PALE, drawing, plain_numbers
from bench.figure import Figure, Plot, Result, Setting, at_most, exactly
from bench.payloads import as_list
from bench.times import Times

__all__ = ["run"]

WIDTHS = (1, 4, 16, 64, 256, 1_000)
COUNTED = (1, 16, 1_000)
TARGET_WIDTH, TARGET = 16, 1.3
TURN = 10  # commits


class Pair:
    """So many messages to one queue, and one message to each of so many: times of both."""

    def __init__(self) -> None:
        self.one, self.many = Times(), Times()
        self.whole_one, self.whole_many = Times(), Times()


def run(setting: Setting) -> list[Result]:
    """Writes, syncs and latency for each number of queues."""
    payload = as_list(1, setting.seed)[0]
    env = CountingEnv()
    figures: list[Figure] = []
    path = str(setting.folder / "store")
    with quire.open(path, env=env) as store:
        for at in range(max(WIDTHS)):
            store.create_queue(f"queue-{at}", kind="work")
        for width in COUNTED:
            figures += _count(store, env, width, payload, setting.scaled(400, 20))
    path = str(setting.folder / "timed")
    with quire.open(path) as store:
        for at in range(max(WIDTHS)):
            store.create_queue(f"queue-{at}", kind="work")
        _pairs(store, payload, (TARGET_WIDTH,), setting.scaled(10, 1))  # warm-up
        pairs = _pairs(store, payload, WIDTHS, setting.scaled(30, 1))
    return [*figures, *_figures(pairs), _plot(pairs)]


def _count(store: Any, env: CountingEnv, width: int, payload: bytes, rounds: int) -> list[Figure]:
    writes, syncs = [], []
    for _ in range(rounds):
        transaction = store.transaction()
        for at in range(width):
            transaction.put(f"queue-{at}", payload)
        env.counts.clear()
        transaction.commit()
        writes.append(env.counts["write"])
        syncs.append(env.counts["sync"])
    words = f"commit over {width:,} queue{'s' if width > 1 else ''}"
    return [
        Figure(f"{words}: writes, median", median(writes), "calls", exactly(1)),
        Figure(f"{words}: syncs, median", median(syncs), "calls", exactly(1)),
        Figure(f"{words}: writes, most", max(writes), "calls", exactly(1)),
        Figure(f"{words}: syncs, most", max(syncs), "calls", exactly(1)),
    ]


def _pairs(store: Any, payload: bytes, widths: tuple[int, ...], rounds: int) -> dict[int, Pair]:
    pairs = {width: Pair() for width in widths}
    for _ in range(rounds):
        for width, pair in pairs.items():
            one = ["queue-0"] * width
            many = [f"queue-{at}" for at in range(width)]
            for names, commits, whole in (
                (one, pair.one, pair.whole_one),
                (many, pair.many, pair.whole_many),
            ):
                for _ in range(TURN):
                    _time(store, names, payload, commits, whole)
    return pairs


def _time(store: Any, names: list[str], payload: bytes, commits: Times, whole: Times) -> None:
    begun = time.perf_counter()
    transaction = store.transaction()
    for name in names:
        transaction.put(name, payload)
    commits.measure(transaction.commit)
    whole.add(time.perf_counter() - begun)


def _figures(pairs: dict[int, Pair]) -> list[Figure]:
    figures = []
    for width in COUNTED:
        pair = pairs[width]
        figures += [
            Figure(f"{width:,} messages to one queue: commit, p50", pair.one.quantile(0.5), "us"),
            Figure(f"the same to {width:,} queues: commit, p50", pair.many.quantile(0.5), "us"),
        ]
    pair = pairs[TARGET_WIDTH]
    ratio, whole = _ratio(pair.many, pair.one), _ratio(pair.whole_many, pair.whole_one)
    words = f"{TARGET_WIDTH} queues to the same bytes in one, p50"
    return [
        *figures,
        Figure(f"{words}: commit", ratio, "times", at_most(TARGET)),
        Figure(f"{words}: with its puts", whole, "times"),
    ]


def _ratio(many: Times, one: Times) -> float:
    return many.quantile(0.5) / one.quantile(0.5)


def _plot(pairs: dict[int, Pair]) -> Plot:
    figure, (left, right) = drawing(2, "One commit over many queues, 100 bytes each")
    series: list[tuple[str, str, Callable[[Pair], Times]]] = [
        ("to so many queues", COLOURS[0], lambda pair: pair.many),
        ("the same bytes to one queue", COLOURS[1], lambda pair: pair.one),
    ]
    widths = list(pairs)
    for label, colour, pick in series:
        p50, p99 = (
            [pick(pair).quantile(share) / 1e3 for pair in pairs.values()] for share in (0.5, 0.99)
        )
        left.plot(widths, p50, "o-", color=colour, label=f"{label}, p50")
        left.plot(widths, p99, "o:", color=colour, label=f"{label}, p99", markersize=3)
    left.set_yscale("log")
    left.set_ylabel("milliseconds a commit")
    left.legend(loc="upper left", fontsize=9)
    ratios = [_ratio(pair.many, pair.one) for pair in pairs.values()]
    right.plot(widths, ratios, "o-", color=COLOURS[0])
    for width, ratio in zip(widths, ratios, strict=True):
        right.annotate(
            f"{ratio:.2f}", (width, ratio), xytext=(0, 7), textcoords="offset points",
            ha="center", fontsize=9, color=INK,
        )  # fmt: skip
    right.plot(TARGET_WIDTH, TARGET, "_", color=COLOURS[3], markersize=22, markeredgewidth=2,
               label=f"at most, for {TARGET_WIDTH} queues: {TARGET}")  # fmt: skip
    right.axhline(1, color=PALE, linestyle="--", linewidth=1)
    right.set_ylim(0, 1.2 * max(*ratios, TARGET))
    right.set_ylabel("many queues to one, p50")
    right.legend(loc="upper left", fontsize=9)
    for axes in (left, right):
        axes.set_xscale("log", base=4)
        axes.set_xticks(widths, [f"{width:,}" for width in widths])
        axes.minorticks_off()
        axes.set_xlabel("queues (and messages)")
    plain_numbers(left)
    return Plot("fan_out", "milliseconds of a commit by its number of queues", figure)
