"""Messages that are found by what they are, where a thousand wait and where a million do.

One store holds so many messages of 100 bytes, put in batches of 1,000 into a work queue with an
indexed attribute and a topic of which a subscription asks for half; beside it SQLite has a row for
each message, with its primary key and an index. All of them do the same in turns, a few calls each,
and what is got is given back, so that nothing is written: processor time of the thread, and its
median. A growth is that of each pair of turns.

A get by id of a million reads a block that is in no cache, all of it, as one checksum covers it; of
a thousand it is always the same one. So the floor is what such a get takes of a thousand and the
bare reading and verification of a random block, past the caches.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.figure import BenchmarkSetting, Figure, Result, Table, at_least, at_most
from quire import Template
from quire.engine import EmbeddedStore as Store
from quire.rows.open_block import open_block

__all__ = ["run"]

COUNTS = (1_000, 1_000_000)
BATCH = 1_000
COLOURS, CUSTOMERS_EACH = 10, 10
QUEUES = ("q", "t", "scanned")
TURN = 5  # calls
FLAT, SCANNED = 1.2, 5.0

FindingCall = Callable[[int], object]  # with a number that chooses the message
SCANS = {
    "a header's number": "JMSPriority > 7",
    "a header's text": "JMSType = 'kind 3'",
    "an attribute": "colour = 'colour 3'",
    "an attribute as a number": "n > 700",
}


def run(setting: BenchmarkSetting) -> list[Result]:
    """Figures with their targets, and a table of all that was measured."""
    counts = [COUNTS[0], setting.scaled(COUNTS[1], 20_000)]
    with ExitStack() as opened:
        calls: dict[int, dict[str, FindingCall]] = {}
        stores = {}
        for count in counts:
            path = str(setting.folder / f"store-{count}")
            stores[count] = store = opened.enter_context(Store.open(path))
            _fill(store, count)
            rows = opened.enter_context(closing(_rows(setting.folder / f"sqlite-{count}", count)))
            calls[count] = _calls(store, count) | _sqlite_calls(rows, count)
        found = _in_turns(calls, setting.scaled(300, 5), setting.seed)
        large = stores[counts[-1]]
        scans = {name: _scan(large, "scanned", where, setting) for name, where in SCANS.items()}
        singles = opened.enter_context(Store.open(str(setting.folder / "singles")))
        _fill_singly(singles, setting.scaled(100_000, 1_000))
        name = "a header's number, put singly"
        scans[name] = _scan(singles, "scanned", SCANS["a header's number"], setting)
    return [*_figures(found, counts), *_scan_figures(scans), _table(found, counts)]


# What is measured ---------------------------------------------------------------------------------


def _fill(store: Store, count: int) -> None:
    """Batches of all queues by turns; what is not asked for is passed by."""
    store.create_queue("q", capacity=1 << 34, indexed=["customer"])
    store.create_queue("scanned", capacity=1 << 34, order="priority")
    store.create_queue("t", kind="topic", capacity=1 << 34)
    store.subscribe("t", "half", where="half = '1'")
    payloads = pa.array([b"x" * 100] * BATCH, pa.binary())
    for first in range(0, count, BATCH):
        numbers = range(first, first + BATCH)
        pairs = [
            [
                ("colour", f"colour {n % COLOURS}"),
                ("half", str(n % 2)),
                ("customer", f"customer {n // CUSTOMERS_EACH}"),
                ("n", str(n % 1000)),
            ]
            for n in numbers
        ]
        columns = {
            "payload": payloads,
            "content_type": pa.array([f"kind {n % 10}" for n in numbers]),
            "attributes": pa.array(pairs, pa.map_(pa.string(), pa.string())),
        }
        for name in QUEUES:
            if name == "scanned":
                columns["priority"] = pa.array(np.arange(BATCH, dtype=np.int32) % 10)
            with store.transaction() as txn:
                txn.put_many(name, pa.table(columns))
    store.admin.checkpoint()


def _fill_singly(store: Store, count: int) -> None:
    """Put messages with a transaction for each, packed by a checkpoint."""
    store.create_queue("scanned", order="priority")
    for n in range(count):
        store.put("scanned", b"x" * 100, priority=n % 10)
    store.admin.checkpoint()


def _rows(path: Path, count: int) -> sqlite3.Connection:
    """Put as many rows, with an index."""
    rows = sqlite3.connect(path, isolation_level=None)
    rows.execute("PRAGMA journal_mode=WAL")
    rows.execute("CREATE TABLE q (id INTEGER PRIMARY KEY, customer TEXT, payload BLOB NOT NULL)")
    rows.execute("CREATE INDEX by_customer ON q (customer)")
    rows.execute("BEGIN")
    rows.executemany(
        "INSERT INTO q VALUES (?, ?, ?)",
        ((n, f"customer {n // CUSTOMERS_EACH}", b"x" * 100) for n in range(count)),
    )
    rows.execute("COMMIT")
    return rows


def _calls(store: Store, count: int) -> dict[str, FindingCall]:
    """Return the calls by name; each gives back what it takes."""
    [first] = store.browse("q", max_messages=1)

    def got(source: str, **criteria: Any) -> None:
        with store.transaction() as txn:
            assert txn.get(source, **criteria) is not None
            txn.rollback()

    def by_id(n: int) -> int:
        return first.id + n // BATCH * len(QUEUES) * BATCH + n % BATCH  # their batches by turns

    def read(n: int) -> None:
        with store.transaction() as txn:
            assert txn.read("q", id=by_id(n)) is not None

    queue, reader = store._context.state.queue("q"), store._context.reader
    with queue.lock:
        refs = [next(queue.records.overlapping(at, at + 1)) for at in range(0, count, BATCH)]

    def template(n: int) -> Template:
        return Template(attributes={"customer": f"customer {n // CUSTOMERS_EACH}"})

    return {
        "get, what is next": lambda n: got("q"),
        "get by id": lambda n: got("q", id=by_id(n)),
        "read by id": read,
        "get by a template, indexed": lambda n: got("q", where=template(n)),
        "get of a subscription with a selector": lambda n: got("t/half"),
        "bare read of a block": lambda n: open_block(reader.raw(refs[n // BATCH]), ""),
    }


def _sqlite_calls(rows: sqlite3.Connection, count: int) -> dict[str, FindingCall]:
    execute = rows.execute

    def read(n: int) -> None:
        execute("BEGIN")
        assert execute("SELECT payload FROM q WHERE id = ?", (n,)).fetchone()
        execute("COMMIT")

    def taken(n: int, where: str, value: object) -> None:
        execute("BEGIN IMMEDIATE")
        key, _ = execute(f"SELECT id, payload FROM q WHERE {where} LIMIT 1", (value,)).fetchone()
        execute("DELETE FROM q WHERE id = ?", (key,))
        execute("ROLLBACK")

    return {
        "SQLite: select by primary key": read,
        "SQLite: take by primary key": lambda n: taken(n, "id = ?", n),
        "SQLite: take by an index": lambda n: taken(
            n, "customer = ?", f"customer {n // CUSTOMERS_EACH}"
        ),
    }


FindingTimes = dict[tuple[str, int], list[float]]  # microseconds of a call, of each turn


def _in_turns(calls: dict[int, dict[str, FindingCall]], turns: int, seed: int) -> FindingTimes:
    rng = np.random.default_rng(seed)
    found: FindingTimes = {}
    for number in range(turns + 1):
        for name in next(iter(calls.values())):
            for count, by_name in calls.items():
                call, chosen = by_name[name], rng.integers(0, count, TURN).tolist()
                begun = time.thread_time_ns()
                for n in chosen:
                    call(n)
                taken = (time.thread_time_ns() - begun) / 1e3 / TURN
                if number:  # the first one makes the index
                    found.setdefault((name, count), []).append(taken)
    return found


def _scan(store: Store, queue: str, where: str, setting: BenchmarkSetting) -> tuple[float, float]:
    """Millions of messages a second: by the clock, by processor time."""
    rates = []
    for _ in range(setting.scaled(5, 1)):
        begun, used = time.perf_counter(), time.process_time()
        with store.transaction() as txn:
            assert txn.count(queue, where=where)
        count = store.queue(queue).messages / 1e6
        rates.append((count / (time.perf_counter() - begun), count / (time.process_time() - used)))
    return median(rate for rate, _ in rates), median(rate for _, rate in rates)


# What is told -------------------------------------------------------------------------------------


def _figures(found: FindingTimes, counts: list[int]) -> list[Figure]:
    few, many = counts
    figures = []
    for name, target in (
        ("get, what is next", None),
        ("get by id", at_most(FLAT)),
        ("get by a template, indexed", at_most(FLAT)),
        ("get of a subscription with a selector", at_most(FLAT)),
        ("SQLite: take by primary key", None),
    ):
        words = f"{name}: where {many:,} wait, to {few:,}"
        figures.append(Figure(words, _ratio(found, (name, many), (name, few)), "times", target))
    small, block = median(found["get by id", few]), median(found["bare read of a block", many])
    words = f"get by id: floor, that of {few:,} and the bare read of a block, to that"
    figures.append(Figure(words, (small + block) / small, "times"))
    for ours, theirs in (
        ("get by id", "SQLite: take by primary key"),
        ("read by id", "SQLite: select by primary key"),
        ("get by a template, indexed", "SQLite: take by an index"),
    ):
        words = f"{ours} of {many:,}: processor time to {theirs}"
        figures.append(Figure(words, _ratio(found, (ours, many), (theirs, many)), "times"))
    return figures


def _ratio(found: FindingTimes, one: tuple[str, int], other: tuple[str, int]) -> float:
    return median(a / b for a, b in zip(found[one], found[other], strict=True))


def _scan_figures(scans: dict[str, tuple[float, float]]) -> list[Figure]:
    figures = []
    for name, (by_clock, by_processor) in scans.items():
        goal = at_least(SCANNED) if name == "a header's number" else None
        figures.append(Figure(f"count by {name}", by_clock, "M messages/s", goal))
        figures.append(
            Figure(f"count by {name}, by processor time", by_processor, "M messages/s", goal)
        )
    return figures


def _table(found: FindingTimes, counts: list[int]) -> Table:
    names = dict.fromkeys(name for name, _ in found)
    columns = ["call"]
    for count in counts:
        columns += [f"{count:,} wait: median", "least"]
    rows: list[list[float | str]] = []
    for name in names:
        row: list[float | str] = [name]
        for count in counts:
            row += [f"{median(found[name, count]):,.0f}", f"{min(found[name, count]):,.0f}"]
        rows.append(row)
    return Table("Processor time of a call, microseconds", columns, rows)
