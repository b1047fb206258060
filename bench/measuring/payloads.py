"""Payloads to put: random bytes, the same for one seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["PAYLOAD_BYTES", "as_arrow", "as_list"]

PAYLOAD_BYTES = 100


def as_list(count: int, seed: int) -> list[bytes]:
    """`count` payloads as bytes objects."""
    data = _data(count, seed)
    return [data[at : at + PAYLOAD_BYTES] for at in range(0, len(data), PAYLOAD_BYTES)]


def as_arrow(count: int, seed: int, size: int = PAYLOAD_BYTES) -> pa.Array:
    """`count` payloads as an Arrow array of type binary."""
    offsets = np.arange(count + 1, dtype=np.int32) * size
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_data(count, seed, size))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _data(count: int, seed: int, size: int = PAYLOAD_BYTES) -> bytes:
    return np.random.default_rng(seed).bytes(count * size)
