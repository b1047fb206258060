"""A keyed state: looks, changes and merges of a large one, in batches of random keys.

Rows of an integer and 90 bytes, put 200,000 a transaction. Then batches of 1,000 random keys, each
a transaction that reads them and puts them again, merges among them; and looks alone, once with the
pages of the files in the cache. Processor time is this process's. What is written is counted of
runs, beside the journal, to the bytes of the rows that were put.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_most
from bench.measuring.latencies import Latencies
from quire import keyed

__all__ = ["run"]

ROWS = 3_000_000
LOADED = 200_000  # in a transaction
BATCH = 1_000
BATCHES = 300
TEXT_BYTES = 90
ROW_BYTES = 8 + TEXT_BYTES


def rows_of(keys: np.ndarray[Any, Any], texts: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Rows of these keys."""
    starts = (keys * 97) % (len(texts) - TEXT_BYTES)
    data = pa.py_buffer(texts[starts[:, None] + np.arange(TEXT_BYTES)].tobytes())
    offsets = pa.py_buffer(np.arange(0, (len(keys) + 1) * TEXT_BYTES, TEXT_BYTES, dtype=np.int32))
    column = pa.Array.from_buffers(pa.binary(), len(keys), [None, offsets, data])
    return pa.RecordBatch.from_arrays([pa.array(keys), column], ["key", "text"])


def run(setting: BenchmarkSetting) -> list[Result]:
    """Milliseconds of looks and changes, memory, and how often a row is written."""
    rng = np.random.default_rng(setting.seed)
    texts = np.frombuffer(rng.bytes(1 << 20), np.uint8)
    count, batches = setting.scaled(ROWS, 20_000), setting.scaled(BATCHES, 20)
    with quire.open(setting.folder / "store") as store:
        state = keyed.open_state(store, "rows", "key", "key bigint, text binary")

        def change(keys: np.ndarray[Any, Any], *, look: bool) -> None:
            batch = rows_of(keys, texts)
            with store.transaction() as txn, state.within(txn) as rows:
                if look:
                    rows.get(batch.column(0))
                rows.put(batch)

        def written() -> int:
            status = state.status()
            return status.put_bytes + status.merged_bytes

        loading = time.process_time()
        order = rng.permutation(count)
        for start in range(0, count, LOADED):
            change(order[start : start + LOADED], look=False)
        loading = time.process_time() - loading
        drawn = [rng.integers(0, count, BATCH) for _ in range(2 * batches)]
        scanning = time.process_time()
        found = sum(len(batch) for batch in state.rows())
        assert found == count
        scanning = time.process_time() - scanning
        looks = [_spent(partial(state.get, pa.array(keys))) for keys in drawn[:batches]]
        before, latencies, changes = written(), Latencies(), list[float]()
        for keys in drawn[batches:]:
            changing = time.process_time()
            latencies.measure(partial(change, keys, look=True))
            changes.append(time.process_time() - changing)
        put = batches * BATCH * ROW_BYTES
        runs = [[f"{run.rows:,}", f"{run.size / 1e6:,.1f}"] for run in state.runs()]
        size = sum(run.size for run in state.runs())
        again = (written() - before) / put
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(f"processor of a look for {BATCH:,} keys", median(looks) * 1e3, "ms", at_most(2.6)),
        Figure("processor of a look and a change, p50", median(changes) * 1e3, "ms"),
        Figure("processor of a look and a change, mean", sum(changes) / batches * 1e3, "ms"),
        Figure("a look and a change, p50", latencies.quantile(0.5) / 1e3, "ms"),
        Figure("a look and a change, p99", latencies.quantile(0.99) / 1e3, "ms"),
        Figure("bytes written for a byte put", again, "bytes"),
        Figure("bytes kept for a byte of the rows", size / (count * ROW_BYTES), "bytes"),
        Figure(f"processor of loading {count:,} rows", loading, "s"),
        Figure("processor of all rows, read in order", scanning, "s"),
        Figure("memory of the process, at most", memory, "MiB", at_most(1024)),
        Table("The runs in the end, the newest first", ["rows", "MB"], runs),
    ]


def _spent(look: Callable[[], object]) -> float:
    began = time.process_time()
    look()
    return time.process_time() - began
