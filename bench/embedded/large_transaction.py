"""One transaction of 50 million messages: memory, commit, rollback, reading; beside smaller ones.

Each part runs in a process of its own, so that what was resident at most is its own; what a process
maps of a file counts as resident as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from msgspec.structs import asdict

import quire
from bench.figure import BenchmarkSetting, Figure, at_most, exactly
from bench.measuring.counting_env import CountingEnv
from bench.measuring.payloads import as_arrow
from quire.engine import EmbeddedStore as Store
from quire.engine import PieceReader
from quire.reports.info import Piece

__all__ = ["run"]

PAYLOAD_BYTES = 20
BATCH = 100_000  # messages of one put
CHUNK = 65_536
CAPACITY_BYTES = 16 << 30
MEMORY = at_most(300)  # MB


def run(setting: BenchmarkSetting) -> list[Figure]:
    """Figures of the largest transaction, and how its commit and rollback compare to others'."""
    count = setting.scaled(50_000_000, 1_000_000)
    sizes = {50_000: 7, count // 10: 5, count: 3}  # messages, and how often each is measured
    figures = []
    commits, rollbacks = {}, {}
    for size, rounds in sizes.items():
        path = setting.folder / f"store-{size}"
        written = _process("write", path, size, rounds, setting.seed)
        commits[size], rollbacks[size] = written["commit"], written["rollback"]
        words = f"{size:,} messages"
        figures += [
            Figure(f"{words}: put and commit", size / written["both"], "messages/s"),
            Figure(f"{words}: memory of the process, in all", written["megabytes"], "MB", MEMORY),
            Figure(f"{words}: commit", commits[size] * 1e3, "ms"),
            Figure(f"{words}: writes of the commit", written["writes"], "", at_most(5)),
            Figure(f"{words}: rollback", rollbacks[size] * 1e3, "ms"),
            Figure(f"{words}: removal after the rollback", written["removal"], "s"),
        ]
    # The smallest is in memory until it commits: it has no file to finish or to leave behind.
    for name, times in (("commit", commits), ("rollback", rollbacks)):
        figures += [
            Figure(
                f"{name}: {count:,} to {size:,} messages", times[count] / times[size], "times", goal
            )
            for size, goal in ((50_000, None), (count // 10, at_most(2)))
        ]
    return figures + _reading(setting.folder / f"store-{count}", count)


def _reading(path: Path, count: int) -> list[Figure]:
    """Read by the owner, and by a process that reads a lease's files."""
    pieces = _process("pieces", path, count)  # before they are taken
    read = _process("read", path, count)
    return [
        Figure("read as Arrow", count / read["seconds"], "messages/s"),
        Figure("memory of the owner, reading", read["megabytes"], "MB", MEMORY),
        Figure("records scanned", read["scanned"], "", exactly(1)),
        Figure("read from the file, beside the owner", count / pieces["seconds"], "messages/s"),
        Figure("memory of that process", pieces["megabytes"], "MB", MEMORY),
    ]


def _process(role: str, path: Path, *arguments: int) -> dict[str, Any]:
    """Return the report of a process of its own."""
    command = [sys.executable, "-m", "bench.embedded.large_transaction", role, str(path)]
    command += map(str, arguments)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _write(path: str, count: int, rounds: int, seed: int) -> dict[str, float]:
    """Roll back, then commit, so that one transaction is there at the end."""
    env = CountingEnv()
    store = quire.open(path, env=env, share=False)
    payloads = as_arrow(BATCH, seed, PAYLOAD_BYTES)
    took: dict[str, list[float]] = {"both": [], "commit": [], "rollback": [], "removal": []}
    writes = 0
    for number in range(rounds):
        store.create_queue(f"queue{number}", kind="topic", capacity=CAPACITY_BYTES)
        store.subscribe(f"queue{number}", "reader")
        for way in ("rollback", "commit"):
            transaction = store.transaction(large=True)
            start = time.perf_counter()
            _put(transaction, f"queue{number}", payloads, count)
            before = env.counts["write"]
            begin = time.perf_counter()
            getattr(transaction, way)()
            end = time.perf_counter()
            took[way].append(end - begin)
            if way == "commit":
                took["both"].append(end - start)
                writes = max(writes, env.counts["write"] - before)
            else:
                while store.status()["large_transactions"]["removable"]:
                    time.sleep(0.001)
                took["removal"].append(time.perf_counter() - begin)
    store.close()
    return {
        **{name: median(values) for name, values in took.items()},
        "writes": writes,
        "megabytes": peak_megabytes(),
    }


def _put(transaction: Any, queue: str, payloads: pa.Array, count: int) -> None:
    for start in range(0, count, BATCH):
        transaction.put_many(queue, payloads[: min(BATCH, count - start)])


def _read(path: str, count: int) -> dict[str, float]:
    store = Store.open(path)
    begin = time.perf_counter()
    total, got = 0, -1
    while got:
        with store.transaction() as transaction:
            got = transaction.get_arrow("queue0/reader", max_messages=CHUNK).num_rows
        total += got
    seconds = time.perf_counter() - begin
    if total != count:
        raise AssertionError(f"got {total} of {count} messages")
    _, subscription = store._context.state.source("queue0/reader")
    scanned = subscription.read_structure.scanned_records
    store.close()
    return {"seconds": seconds, "scanned": scanned, "megabytes": peak_megabytes()}


def _lease(path: str, count: int) -> dict[str, float]:
    """Own the store, hold a lease, and let another process read its pieces."""
    with quire.open(path, share=False) as store:
        lease = store.integration.lease("queue0", 0, count)
        pieces = json.dumps([asdict(piece) for piece in lease.pieces])
        command = [
            sys.executable,
            "-m",
            "bench.embedded.large_transaction",
            "executor",
            path,
            str(count),
        ]
        done = subprocess.run(command, input=pieces.encode(), stdout=subprocess.PIPE, check=True)
        store.integration.end_lease(lease.lease_id)
    report: dict[str, float] = json.loads(done.stdout)
    return report


def _execute(path: str, count: int) -> dict[str, float]:
    reader = PieceReader(path)
    pieces = [Piece(**fields) for fields in json.load(sys.stdin)]
    begin = time.perf_counter()
    total = sum(batch.num_rows for batch in reader.read_all(pieces))
    seconds = time.perf_counter() - begin
    if total != count:
        raise AssertionError(f"read {total} of {count} messages")
    return {"seconds": seconds, "megabytes": peak_megabytes()}


def peak_megabytes() -> float:
    """The most that was ever resident of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1_000
    raise RuntimeError("/proc/self/status does not say VmHWM")


ROLES: dict[str, Callable[..., dict[str, float]]] = {
    "write": _write,
    "read": _read,
    "pieces": _lease,
    "executor": _execute,
}


def main() -> None:
    role, path, *arguments = sys.argv[1:]
    print(json.dumps(ROLES[role](path, *map(int, arguments))), flush=True)


if __name__ == "__main__":
    main()
