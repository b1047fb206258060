"""One small durable commit at a time, against a bare loop of the same write and sync.

The three loops take turns, 50 calls each (about 5 ms): so all see the same disk in the same
minute, and each runs as a loop, not with the others' code between its calls. The bare loop writes
4 KiB, the least that a journal page takes, into a file that was allocated like a journal. Each page
is another one, as each commit is: writing the same page all over is faster by some microseconds.
"""

from __future__ import annotations

from collections.abc import Callable

import quire
from bench.figure import BenchmarkSetting, Figure, at_most
from bench.measuring.latencies import Latencies
from bench.measuring.payloads import as_list
from bench.rivals.bare_loop import BareLoop

__all__ = ["run"]

WARM_UP = 100
TURN = 50  # calls
NAMES = ("bare write and sync", "store.put", "transaction with one put")


def run(setting: BenchmarkSetting) -> list[Figure]:
    """Latency of the three loops, and their ratios."""
    rounds = setting.scaled(5_000, 500)
    payload = as_list(1, setting.seed)[0]
    bare = BareLoop(setting.folder / "bare", WARM_UP + rounds)
    with quire.open(str(setting.folder / "store")) as store:
        store.create_queue("queue", kind="work")

        def commit_transaction() -> None:
            with store.transaction() as transaction:
                transaction.put("queue", payload)

        calls: list[Callable[[], object]] = [
            bare.step,
            lambda: store.put("queue", payload),
            commit_transaction,
        ]
        _take_turns(calls, WARM_UP)
        times = _take_turns(calls, rounds)
    bare.close()
    return _figures(dict(zip(NAMES, times, strict=True)))


def _take_turns(calls: list[Callable[[], object]], rounds: int) -> list[Latencies]:
    times = [Latencies() for _ in calls]
    for _ in range(rounds // TURN):
        for taken, call in zip(times, calls, strict=True):
            for _ in range(TURN):
                taken.measure(call)
    return times


def _figures(times: dict[str, Latencies]) -> list[Figure]:
    figures = [
        Figure(f"{name}, p{round(share * 100)}", taken.quantile(share), "us")
        for name, taken in times.items()
        for share in (0.5, 0.99)
    ]
    base = times[NAMES[0]].quantile(0.5)
    return figures + [
        Figure(f"{name} to bare, p50", times[name].quantile(0.5) / base, "times", at_most(1.3))
        for name in NAMES[1:]
    ]
