"""A backlog of ten million messages: the owner is killed, and another opens the store and reads it.

Owners are processes of their own, so that each one's resident memory is its own; what a process
maps of a file counts as resident as well.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import quire
from bench.figure import Figure, Setting, at_most
from bench.payloads import PAYLOAD_BYTES, as_arrow

__all__ = ["peak_megabytes", "run"]

TRANSACTION = 10_000  # messages
CHUNK = 65_536
CAPACITY_BYTES = 4 << 30


def run(setting: Setting) -> list[Figure]:
    """Time to fill and to open; memory and rate of reading, as Arrow and as bytes objects."""
    count = setting.scaled(10_000_000, 500_000)
    path = setting.folder / "store"
    filled = _owner("fill", path, count, setting.seed, kill=True)
    arrow = _owner("arrow", path, count, setting.seed)
    objects = _owner("bytes", path, count, setting.seed)
    words = f"{count:,} messages of {PAYLOAD_BYTES} bytes"
    return [
        Figure(f"{words}: put", count / filled["seconds"], "messages/s"),
        Figure("memory of the owner, filling", filled["megabytes"], "MB"),
        Figure("open after kill -9", arrow["open"], "s", at_most(2)),
        Figure("memory after opening", arrow["opened_megabytes"], "MB"),
        Figure("read as Arrow", count / arrow["seconds"], "messages/s"),
        Figure("memory of the owner, reading as Arrow", arrow["megabytes"], "MB", at_most(500)),
        Figure("read as bytes objects", count / objects["seconds"], "messages/s"),
        Figure("memory of the owner, reading as bytes", objects["megabytes"], "MB", at_most(500)),
    ]


def _owner(role: str, path: Path, count: int, seed: int, *, kill: bool = False) -> dict[str, Any]:
    """What an owner in a process of its own reports; `kill` ends it by SIGKILL afterwards."""
    command = [sys.executable, "-m", "bench.backlog", role, str(path), str(count), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if kill:
            process.send_signal(signal.SIGKILL)
    if not line:
        raise RuntimeError(f"the owner ({role}) ended with status {process.returncode}")
    report: dict[str, Any] = json.loads(line)
    return report


def _fill(path: str, count: int, seed: int) -> dict[str, float]:
    store = quire.open(path)
    store.create_queue("queue", kind="topic", capacity=CAPACITY_BYTES)
    store.subscribe("queue", "arrow")
    store.subscribe("queue", "bytes")
    payloads = as_arrow(TRANSACTION, seed)
    begin = time.perf_counter()
    for _ in range(count // TRANSACTION):
        with store.transaction() as transaction:
            transaction.put_many("queue", payloads)
    return {"seconds": time.perf_counter() - begin, "megabytes": peak_megabytes()}


def _read(path: str, count: int, role: str) -> dict[str, float]:
    begin = time.perf_counter()
    store = quire.open(path)
    opened = time.perf_counter()
    report = {"open": opened - begin, "opened_megabytes": peak_megabytes()}
    total, got = 0, -1
    while got:
        with store.transaction() as transaction:
            if role == "arrow":
                got = transaction.get_arrow("queue/arrow", max_messages=CHUNK).num_rows
            else:
                got = len(transaction.get_many("queue/bytes", max_messages=CHUNK).payloads())
        total += got
    if total != count:
        raise AssertionError(f"got {total} of {count} messages")
    report |= {"seconds": time.perf_counter() - opened, "megabytes": peak_megabytes()}
    store.close()
    return report


def peak_megabytes() -> float:
    """The most that was ever resident of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1_000
    raise RuntimeError("/proc/self/status does not say VmHWM")


def main() -> None:
    role, path, count, seed = sys.argv[1:]
    report = _fill(path, int(count), int(seed)) if role == "fill" else _read(path, int(count), role)
    print(json.dumps(report), flush=True)
    sys.stdin.buffer.read()  # until the parent ends this process, or closes the pipe


if __name__ == "__main__":
    main()
