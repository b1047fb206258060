"""The cost of a get where many messages wait: in each order that a queue may have.

Each store holds so many messages of 100 bytes in one work queue, put as one batch. A get takes one
of them in a transaction of its own; gets of the small and the large store take turns, and their
processor time is compared. The memory is what the selection counts for itself; a test holds that
count to what the interpreter allocates.

What is got is also rejected, to be got again at once: a retry. What ends a message's group is its
get with the commit, so the gets of grouped messages show that. And messages become due, one before
each get, by a clock that is moved.

Two figures stand beside that comparison, and change nothing in its target. In an order by keys the
next message may be in any block, and of a million messages most blocks are in no cache: the floor
is a get of the small store and, of the large one, the bare reading and verification of the block of
a random message. And a get in commit order grows, too, by the caches of the processor and as the
messages are in another kind of place: what an order adds to that is its growth divided by that of
commit order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench.drawing import COLOURS, drawing, plain_numbers
from bench.figure import BenchmarkSetting, Figure, Plot, Result, at_most
from bench.measuring.latencies import Latencies
from quire.definitions.order import COMMIT, by_key
from quire.engine import EmbeddedStore as Store
from quire.engine.delivery.selection import Selection
from quire.engine.records.format import LTDS
from quire.env import OsEnv
from quire.messages.message import GROUP_KEY

__all__ = ["run"]

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
ORDERS: dict[str, dict[str, Any]] = {
    "commit order": {},
    "by priority": {"order": "priority"},
    "by time": {"timed": True},
    "of ten groups": {"grouped": True},
    "of a group each": {"grouped": True},
    "by a number": {"order": {"attribute": "key", "numeric": True}},
    "by a text": {"order": {"attribute": "key"}},
    "by sequences": {"order": {"sequence": "key"}},
}
SENDERS = 100
GROUPS = {"of ten groups": 10, "of a group each": 1_000_000}
FLAT, MEMORY_BYTES = 1.2, 156
TURN = 5  # gets


class MovedClock(OsEnv):
    """The machine, with a wall clock that moves when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.us = super().now_us()

    def now_us(self) -> int:
        return self.us


def run(setting: BenchmarkSetting) -> list[Result]:
    """Processor time of a get, and memory for each message that waits, in each order."""
    figures: list[Figure] = []
    times: dict[str, dict[int, Latencies]] = {}
    plain = 1.0  # the growth in commit order
    counts = [setting.scaled(count, count // 10) for count in COUNTS]
    for order, properties in ORDERS.items():
        with ExitStack() as opened:
            stores = {}
            for count in counts:
                path = setting.folder / f"{order.replace(' ', '-')}-{count}"
                store = opened.enter_context(Store.open(str(path)))
                begun = time.process_time()
                _fill(store, count, order, setting.seed)
                _get(store, Latencies())
                if count == counts[-1] and properties:
                    seconds = time.process_time() - begun
                    figures += _at_first(f"{order}, {count:,} messages", store, count, seconds)
                stores[count] = store
            times[order] = _in_turns(stores, setting.scaled(60, 10), _get)
            ends = {count: stores[count] for count in (counts[0], counts[-1])}
            retries = _in_turns(ends, setting.scaled(30, 5), _retry)
            floor = _bare_read(stores[counts[-1]], counts[-1], setting)
        small, large = (times[order][count].quantile(0.5) for count in (counts[0], counts[-1]))
        figures += _growth(f"{order}: a get", times[order])
        figures += _growth(f"{order}: a retry", retries)
        if not ORDERS[order]:
            plain = large / small
            continue
        words = f"{order}: that, to the same in commit order"
        figures.append(Figure(words, large / small / plain, "times"))
        if by_key(ORDERS[order].get("order", COMMIT)):
            words = f"{order}: floor, a get of {counts[0]:,} and the bare read of a block, to that"
            figures.append(Figure(words, (small + floor) / small, "times"))
    return [*figures, *_dues(setting, counts), _plot(times)]


def _growth(what: str, times: dict[int, Latencies]) -> list[Figure]:
    """Return the figure with the fewest that wait, and how much more with the most."""
    few, many = min(times), max(times)
    small, large = times[few].quantile(0.5), times[many].quantile(0.5)
    return [
        Figure(f"{what} of {few:,} that wait, p50", small, "us"),
        Figure(f"{what} of {many:,}, to that", large / small, "times", at_most(FLAT)),
    ]


def _dues(setting: BenchmarkSetting, counts: list[int]) -> list[Figure]:
    """Gets of messages each of which has just become due."""
    clock = MovedClock()
    turns = setting.scaled(40, 10)
    with ExitStack() as opened:
        stores = {}
        for count in (counts[0], counts[-1]):
            path = setting.folder / f"due-{count}"
            stores[count] = store = opened.enter_context(Store.open(str(path), env=clock))
            due = clock.us + 1_000 * np.arange(1, count + 1)
            _fill(store, count, "by time", setting.seed, due)
            assert store.get("q") is None  # all are looked at

        def get(store: Store, times: Latencies) -> None:
            clock.us += 1_000
            _get(store, times)

        times = _in_turns(stores, turns, get)
    return _growth("a get of one that is due just now", times)


def _at_first(words: str, store: Store, count: int, seconds: float) -> list[Figure]:
    memory = _memory(store) / count
    return [
        Figure(f"{words}: put and looked at for the first time", seconds, "s"),
        Figure(f"{words}: memory for each", memory, "bytes", at_most(MEMORY_BYTES)),
    ]


def _fill(
    store: Store, count: int, order: str, seed: int, due: NDArray[np.int64] | None = None
) -> None:
    rng = np.random.default_rng(seed)
    if due is None:
        due = time.time_ns() // 1000 + rng.integers(-10_000_000, 3_600_000_000, count)
        due[: max(count // 2, 500)] = 0  # at once
    priorities = rng.integers(0, 10, count).astype(np.int32)
    columns = {"payload": pa.array([b"x" * 100] * count, pa.binary())}
    if order == "by priority":
        columns["priority"] = pa.array(priorities)
    if order == "by time":
        columns["deliver_at"] = pa.array(due, pa.timestamp("us", "UTC"))
    if order in GROUPS:
        groups = np.arange(count) % GROUPS[order]
        pairs = [[(GROUP_KEY, f"customer {group}")] for group in groups.tolist()]
        columns["attributes"] = pa.array(pairs, pa.map_(pa.string(), pa.string()))
    if "order" in ORDERS[order]:
        keys = rng.permutation(count)
        if order == "by sequences":
            columns["sender"] = pa.array([f"sender {n % SENDERS}" for n in range(count)])
            keys = np.arange(count) // SENDERS + 1
        words = "a key of some forty characters, and %d" if order == "by a text" else "%d"
        pairs = [[("key", words % key)] for key in keys.tolist()]
        columns["attributes"] = pa.array(pairs, pa.map_(pa.string(), pa.string()))
    store.create_queue("q", kind="work", **ORDERS[order])
    with store.transaction() as txn:
        txn.put_many("q", pa.table(columns))


def _in_turns(
    stores: dict[int, Store], turns: int, step: Callable[[Store, Latencies], None]
) -> dict[int, Latencies]:
    times = {count: Latencies() for count in stores}
    for _ in range(turns):
        for count, store in stores.items():
            for _ in range(TURN):
                step(store, times[count])
    return times


def _get(store: Store, times: Latencies) -> None:
    begun = time.process_time()
    with store.transaction() as txn:
        assert txn.get("q") is not None
    times.add(time.process_time() - begun)


def _retry(store: Store, times: Latencies) -> None:
    begun = time.process_time()
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, delay=0.000_001)
    with store.transaction() as txn:
        again = txn.get("q")
        assert again is not None
        assert (again.id, again.delivery_count) == (message.id, 2)
    times.add(time.process_time() - begun)


def _bare_read(store: Store, count: int, setting: BenchmarkSetting) -> float:
    """Reading and verifying the block of a random message, past our caches: p50, microseconds."""
    rng = np.random.default_rng(setting.seed)
    queue, reader = store._context.state.queue("q"), store._context.reader
    times = Latencies()
    for position in rng.integers(count // 2, count, setting.scaled(300, 50)).tolist():
        with queue.lock:
            pointers = queue.pointers(position, position + 1)
        for ref, start, _ in pointers:  # none, where it was got
            if ref.kind != LTDS:
                begun = time.process_time()
                reader.read(ref)
                times.add(time.process_time() - begun)
                continue
            with reader.ltds(ref) as file:
                begun = time.process_time()
                file.block_at(file.locate(start))
                times.add(time.process_time() - begun)
    return times.quantile(0.5)


def _memory(store: Store) -> int:
    """Return the memory of the queue's selection."""
    queue = store._context.state.queue("q")
    [subscription] = queue.subscriptions.values()
    assert isinstance(subscription.order, Selection)
    return subscription.order.memory_bytes


def _plot(times: dict[str, dict[int, Latencies]]) -> Plot:
    figure, (axes,) = drawing(1, "A get of one message, by how many wait")
    for number, (order, by_count) in enumerate(times.items()):
        colour, style = COLOURS[number % len(COLOURS)], "o-" if number < len(COLOURS) else "s--"
        counts = list(by_count)
        assert all(low < high for low, high in pairwise(counts))
        p50 = [by_count[count].quantile(0.5) for count in counts]
        axes.plot(counts, p50, style, color=colour, label=order)
    axes.set_xscale("log")
    axes.set_xlabel("messages that wait")
    axes.set_ylabel("processor time of a get with its commit, us")
    axes.set_title("median")
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside right upper", fontsize=9)
    plain_numbers(axes, x=True)
    return Plot("waiting", "microseconds of a get by how many messages wait", figure)
