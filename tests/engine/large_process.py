"""Large transactions in a process of their own, whose resident memory is looked at.

    python -m tests.engine.large_process ROLE STORE COUNT SIZE

Prints by how many megabytes the most that was resident has grown since the store was open, warm.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from quire.engine import EmbeddedStore as Store

BATCH = 20_000
QUEUES = 100
OPEN_FILES = 150


def payloads(start: int, count: int, size: int) -> pa.Array:
    """Numbered messages of one size."""
    text = "".join([f"{number:0{size}d}" for number in range(start, start + count)])
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(text.encode())])


def put(store: Store, count: int, size: int) -> None:
    """One transaction to one queue, in batches."""
    with store.transaction(large=True) as txn:
        for start in range(0, count, BATCH):
            txn.put_many("queue", payloads(start, min(BATCH, count - start), size))


def put_at_once(store: Store, count: int, size: int) -> None:
    """One put of one Arrow array, whose own memory does not count."""
    content = pa.py_buffer(np.full(count * size, ord("x"), np.uint8))
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(size))
    array = pa.Array.from_buffers(pa.binary(), count, [None, offsets, content])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is resident now
    before = resident()
    with store.transaction() as txn:
        txn.put_many("queue", array)
    after = resident()
    del array, content, offsets
    Path("/proc/self/clear_refs").write_text("5")
    print(json.dumps(after - before))


def put_many_queues(store: Store, count: int, size: int) -> None:
    """One transaction to many queues, with few open files."""
    with store.transaction(large=True) as txn:
        for start in range(0, count // QUEUES, 500):
            batch = payloads(start, 500, size)
            for number in range(QUEUES):
                txn.put_many(f"queue{number}", batch)


def get(store: Store, count: int, size: int) -> None:
    """One by one."""
    for start in range(0, count, BATCH):
        with store.transaction() as txn:
            for number in range(start, start + BATCH):
                message = txn.get("queue/reader")
                assert message is not None
                assert int(message.payload) == number


def get_arrow(store: Store, count: int, size: int) -> None:
    """As Arrow, in small bites that do not meet the blocks' ends."""
    total = 0
    while total < count:
        with store.transaction() as txn:
            batch = txn.get_arrow("queue/reader", 777)
        assert int(batch["payload"][0].as_py()) == total
        total += batch.num_rows
    assert total == count


ROLES: dict[str, Callable[[Store, int, int], None]] = {
    "put": put,
    "put_at_once": put_at_once,
    "put_many_queues": put_many_queues,
    "get": get,
    "get_arrow": get_arrow,
}


def resident() -> float:
    """The most that was ever resident of this process, in megabytes."""
    # Not `ru_maxrss`, which a process inherits from the one that started it.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1000
    raise RuntimeError("/proc/self/status does not say VmHWM")


def main() -> None:
    """Open the store, warm up, do it."""
    role, path, count, size = sys.argv[1:]
    if role == "put_many_queues":
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    with Store.open(path) as store:
        if role.startswith("put"):
            for number in range(QUEUES):
                store.create_queue(f"queue{number}", kind="topic")
            store.create_queue("queue", kind="topic", capacity=4 << 30)
            store.subscribe("queue", "reader")
            store.create_queue("warm", kind="work")
        with store.transaction() as txn:
            txn.put_many("warm", payloads(0, BATCH, int(size)))
        with store.transaction() as txn:
            assert txn.get_arrow("warm").num_rows == BATCH
        before = resident()
        ROLES[role](store, int(count), int(size))
        if role != "put_at_once":
            print(json.dumps(resident() - before))


if __name__ == "__main__":
    main()
