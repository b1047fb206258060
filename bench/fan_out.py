"""What one commit over many queues costs in calls to the disk, counted at the environment's seam.

A sync of a direct file is counted too, although there it has nothing left to do. A commit that
begins a new segment of the journal writes the segment's header as well: that is the most.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import quire
from bench.counting_env import CountingEnv
from bench.figure import Figure, Setting, exactly
from bench.payloads import as_list
from bench.times import Times

__all__ = ["run"]

WIDTHS = (1, 16, 1_000)


def run(setting: Setting) -> list[Figure]:
    """Writes, syncs and latency for each number of queues."""
    payload = as_list(1, setting.seed)[0]
    env = CountingEnv()
    figures = []
    with quire.open(str(setting.folder / "store"), env=env, background=False) as store:
        for at in range(max(WIDTHS)):
            store.create_queue(f"queue-{at}", kind="work")
        for width in WIDTHS:
            figures += _measure(store, env, width, payload, setting.scaled(200, 20))
    return figures


def _measure(store: Any, env: CountingEnv, width: int, payload: bytes, rounds: int) -> list[Figure]:
    times = Times()
    writes, syncs = [], []
    for _ in range(rounds):
        transaction = store.transaction()
        for at in range(width):
            transaction.put(f"queue-{at}", payload)
        env.counts.clear()
        times.measure(transaction.commit)
        writes.append(env.counts["write"])
        syncs.append(env.counts["sync"])
    words = f"commit over {width:,} queue{'s' if width > 1 else ''}"
    return [
        Figure(f"{words}: writes, median", median(writes), "calls", exactly(1)),
        Figure(f"{words}: syncs, median", median(syncs), "calls", exactly(1)),
        Figure(f"{words}: writes, most", max(writes), "calls"),
        Figure(f"{words}: p50", times.quantile(0.5), "us"),
    ]
