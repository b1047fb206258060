"""Compressed files of large transactions: what they take, how fast they are written and read.

Text is JSON with the field names and words that such messages repeat; noise is random bytes, which
cannot be compressed.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import quire
from bench.figure import BenchmarkSetting, Figure
from bench.measuring.payloads import as_arrow

__all__ = ["run"]

BATCH = 100_000
CHUNK = 65_536
STATES = ("created", "packed", "shipped", "delivered", "returned")


def run(setting: BenchmarkSetting) -> list[Figure]:
    """Size, put and read of text and noise, with each codec and with none."""
    count = setting.scaled(4_000_000, 400_000)
    figures = []
    for kind, payloads in (("text", text(setting.seed)), ("noise", as_arrow(BATCH, setting.seed))):
        for codec in (None, "lz4", "zstd"):
            path = setting.folder / f"{kind}-{codec}"
            figures += _measure(path, f"{kind}, {codec or 'plain'}", payloads, codec, count)
    return figures


def text(seed: int) -> pa.Array:
    """Messages of about 100 bytes of JSON."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 10**9, BATCH)
    cents = rng.integers(0, 10**5, BATCH)
    return pa.array(
        [
            b'{"order": %d, "customer": %d, "state": "%s", "amount": %d.%02d, "currency": "EUR"}'
            % (number, number % 9973, STATES[cent % 5].encode(), cent // 100, cent % 100)
            for number, cent in zip(numbers.tolist(), cents.tolist(), strict=True)
        ],
        pa.binary(),
    )


def _measure(
    path: Path, name: str, payloads: pa.Array, codec: str | None, count: int
) -> list[Figure]:
    with quire.open(str(path), share=False, ltds_compression=codec) as store:
        store.create_queue("queue", kind="topic", capacity=4 << 30)
        store.subscribe("queue", "reader")
        begin = time.perf_counter()
        with store.transaction(large=True) as transaction:
            for _ in range(count // BATCH):
                transaction.put_many("queue", payloads)
        put = time.perf_counter() - begin
        size = sum(file.stat().st_size for file in (path / "ltds").iterdir())
        begin = time.perf_counter()
        got = -1
        while got:
            with store.transaction() as transaction:
                got = transaction.get_arrow("queue/reader", max_messages=CHUNK).num_rows
        read = time.perf_counter() - begin
    payload_bytes = payloads.nbytes - 4 * len(payloads)
    return [
        Figure(
            f"{name}: bytes on disk to payload", size / (payload_bytes * count / BATCH), "times"
        ),
        Figure(f"{name}: put and commit", count / put, "messages/s"),
        Figure(f"{name}: read as Arrow", count / read, "messages/s"),
    ]
