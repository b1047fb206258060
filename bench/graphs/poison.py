"""Messages that a step fails with: what telling them apart takes, beside its trials as empty jobs.

A step doubles numbers, and some messages are none; they stand at even distances. Some messages are
tried by the step's function, or by a plan of what it returns: if each trial were an empty job of
Spark, so many of them are the floor. Each share is drained with `poison_share=1.0`; what fails more
often than that by default pauses the step. That the rows are exact, and no batch is over its limit,
is checked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Result, Table
from bench.spark.spark_session import start_session

__all__ = ["run"]

SHARES = (0.0001, 0.01, 0.1, 0.9)
ROWS = 100_000
LIMIT = 10_000  # messages of a batch


def run(setting: BenchmarkSetting) -> list[Result]:
    """Seconds, trials and milliseconds a trial, for each share."""
    rows = setting.scaled(ROWS, 1_000)
    spark = start_session({})
    try:
        job_ms = _empty_job_ms(spark)
        found = [_drained(spark, setting, rows, share, job_ms) for share in SHARES]
        pauses = _pauses(spark, setting, rows)
    finally:
        spark.stop()
    columns = [
        "share",
        "messages",
        "s",
        "calls",
        "trials",
        "ms a trial",
        "floor s",
        "times the floor",
        "batches",
    ]
    note = f"an empty job takes {job_ms:.1f} ms; with 90 % of {rows:,} the step {pauses} by default"
    return [Table("Messages, some of which fail", columns, found, note)]


def _empty_job_ms(spark: Any) -> float:
    empty = spark.range(0, 1, 1, 1)
    times = []
    for _ in range(40):
        begin = time.perf_counter()
        empty.write.format("noop").mode("append").save()
        times.append(1_000 * (time.perf_counter() - begin))
    return median(times[20:])


def _is_bad(number: int, share: float) -> bool:
    """Return True for a share of all numbers, evenly."""
    return int((number + 1) * share) > int(number * share)


def _step(spark: Any, setting: BenchmarkSetting, rows: int, share: float, **options: Any) -> Any:
    """A graph over a new store that is filled, and the list of its function's calls."""
    from quire.spark_graphs import Graph

    path = str(setting.folder / f"store-{share}-{len(options)}")
    with quire.open(path) as store:
        store.create_queue("in", kind="topic", keep_forever=True)
        store.create_queue("out", kind="topic")
        store.put_many("in", [b"bad" if _is_bad(n, share) else b"%d" % n for n in range(rows)])
    graph = Graph("poison", spark, path)
    calls: list[float] = []

    @graph.step("in", "out", dead="dead", limit=LIMIT, **options)
    def double(rows: Any) -> Any:
        calls.append(time.perf_counter())
        return rows.selectExpr("string(bigint(string(payload)) * 2) as payload")

    return graph, calls


@contextmanager
def _trials() -> Iterator[list[float]]:
    """The trials by plans, each by its time."""
    import quire.spark_graphs.graphs.steps.step_runner

    runner: Any = quire.spark_graphs.graphs.steps.step_runner
    found: list[float] = []
    real = runner.plan_in_driver

    def plan_in_driver(*arguments: Any) -> Any:
        planned = real(*arguments)

        def trial(begin: int, end: int) -> Exception | None:
            found.append(time.perf_counter())
            return planned(begin, end) if planned is not None else None

        return planned and trial

    runner.plan_in_driver = plan_in_driver
    try:
        yield found
    finally:
        runner.plan_in_driver = real


def _drained(
    spark: Any, setting: BenchmarkSetting, rows: int, share: float, job_ms: float
) -> list[float | str]:
    graph, calls = _step(spark, setting, rows, share, poison_share=1.0)
    with _trials() as trials, graph.start() as run:
        begin = time.perf_counter()
        run.drain()
        seconds = time.perf_counter() - begin
        batches = run.status().steps["double"].batches
    with quire.open(graph.path) as store:
        _check(store, rows, share)
    tried = len(calls) + len(trials)
    floor = tried * job_ms / 1_000
    each = 1_000 * seconds / tried
    words = f"{100 * share:g} %"
    return [words, rows, seconds, len(calls), tried, each, floor, seconds / floor, batches]


def _check(store: Any, rows: int, share: float) -> None:
    """Each message is where it belongs, once; and a commit has no more than the limit."""
    out, dead = (
        list(store.browse("out", max_messages=rows)),
        list(store.browse("dead", max_messages=rows)),
    )
    good = [n for n in range(rows) if not _is_bad(n, share)]
    assert Counter(int(each.payload) for each in out) == Counter(2 * n for n in good)
    bad = Counter(n for n in range(rows) if _is_bad(n, share))
    assert Counter(int(each.attributes["quire.position"]) for each in dead) == bad
    commits = Counter(each.time for each in (*out, *dead))
    assert max(commits.values()) <= LIMIT, commits.most_common(1)


def _pauses(spark: Any, setting: BenchmarkSetting, rows: int) -> str:
    graph, calls = _step(spark, setting, rows, 0.9)
    begin = time.perf_counter()
    with _trials() as trials, graph.start() as run:
        while run.status().steps["double"].phase != "paused":
            time.sleep(0.05)
        status = run.status().steps["double"]
    assert (status.batches, status.dead_letters) == (0, 0)
    tried = len(calls) + len(trials)
    return f"pauses after {tried} trials and {time.perf_counter() - begin:.1f} s"
