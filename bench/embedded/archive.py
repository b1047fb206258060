"""A store with an archive beside one without, and backups beside copies.

Puts of 200 bytes, each a durable commit, by one thread as fast as it can, in turns of both stores.
The archive is a directory on the same disk. Processor time is that of all processes: the shipper's
is taken until all of the turn is in the archive. Ratios are taken within each turn; the median is
shown. For how long a base holds a lock is measured in the owner, where it notes down the state, of
a store with all messages of the turns. A copy is `cp -r` of the closed store, and a `sync` of its
files.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_most
from bench.measuring.latencies import Latencies
from bench.measuring.payloads import as_list
from bench.measuring.program import spent_seconds
from quire import archive

__all__ = ["run"]

PUTS = 5_000  # of a turn
PAYLOAD_BYTES = 200
BASES = 50  # of which each has the state noted down


class ArchivedStore:
    """A store; `url`: its archive, if it has one."""

    def __init__(self, path: Path, url: Path | None) -> None:
        self.url = url
        self.store = quire.open(path)
        self.store.create_queue("orders", kind="work")
        if url is not None:
            self.store.admin.set_archive(str(url))
            self._await(lambda status: status["base_number"] and status.get("process_id"))

    def _await(self, condition: Any) -> None:
        while not condition(self.store.status()["archive"]):
            time.sleep(0.1)  # each look costs the owner processor time

    def turn(self, payloads: list[bytes]) -> tuple[float, float, float]:
        """Put them; p50 in microseconds, seconds in all, processor seconds of all processes."""
        processes = [os.getpid()]
        if self.url is not None:
            processes.append(self.store.status()["archive"]["process_id"])
        before, began, latencies = spent_seconds(processes), time.perf_counter(), Latencies()
        for payload in payloads:
            latencies.measure(lambda payload=payload: self.store.put("orders", payload))  # type: ignore[misc]
        wall = time.perf_counter() - began
        if self.url is not None:
            self._await(lambda status: not status["lag_records"])
        return latencies.quantile(0.5), wall, spent_seconds(processes) - before

    def close(self) -> None:
        self.store.close()


def run(setting: BenchmarkSetting) -> list[Result]:
    """Ratios of a store with an archive to one without, and of a backup and a restore to a copy."""
    folder = setting.folder
    payloads = as_list(setting.scaled(PUTS, 200), setting.seed)
    payloads = [2 * payload for payload in payloads]
    plain = ArchivedStore(folder / "plain", None)
    shipped = ArchivedStore(folder / "shipped", folder / "archive")
    rows = []
    try:
        for turn in range(setting.scaled(9, 2)):
            sides = (plain, shipped) if turn % 2 else (shipped, plain)
            found = {side: side.turn(payloads) for side in sides}
            rows.append((found[plain], found[shipped]))
        locked = _locked_seconds(plain.store)
    finally:
        plain.close()
        shipped.close()
    ratios = [median(other[i] / one[i] for one, other in rows) for i in range(3)]
    put = sum(map(len, payloads)) * len(rows)
    logs = [path for name in ("log", "merged") for path in _files(folder / "archive" / name)]
    sent = sum(path.stat().st_size for path in logs)
    copied, backed, restored = _copies(folder)
    medians = [[median(each[i][k] for each in rows) for k in range(3)] for i in range(2)]
    count = len(payloads)
    return [
        Figure("with an archive: p50 of a commit to one without", ratios[0], "times", at_most(1.1)),
        Figure("with an archive: wall time to one without", ratios[1], "times"),
        Figure(
            "with an archive: processor time of all processes", ratios[2], "times", at_most(1.3)
        ),
        Figure("bytes shipped for a byte put", sent / put, "bytes"),
        Figure("objects shipped for 1,000 puts", 1000 * len(logs) / (count * len(rows)), "objects"),
        Figure("the longest that a base holds a lock of commits", max(locked) * 1e3, "ms"),
        Figure("that, the median of bases", median(locked) * 1e3, "ms"),
        Figure("a backup to a copy with sync", backed / copied, "times", at_most(2)),
        Figure("a restore, verified, to a copy with sync", restored / copied, "times", at_most(3)),
        Table(
            f"Turns of {count:,} puts of {PAYLOAD_BYTES} bytes, medians",
            ["store", "p50, us", "puts a second", "processor, us a put"],
            [
                [name, f"{p50:,.0f}", f"{count / wall:,.0f}", f"{spent / count * 1e6:,.0f}"]
                for name, (p50, wall, spent) in zip(
                    ("without an archive", "with an archive"), medians, strict=True
                )
            ],
        ),
    ]


def _locked_seconds(store: Any) -> list[float]:
    """Seconds for which each of some bases keeps commits out while the state is noted down.

    Commits wait for nothing else of it: the blocks of messages are read without a lock.
    """
    sequencer, found = store._context.sequencer, list[float]()
    exclusive = sequencer.exclusive

    def measured(action: Callable[[], Any]) -> Any:
        def timed() -> Any:
            began = time.perf_counter()
            try:
                return action()
            finally:
                found.append(time.perf_counter() - began)

        return exclusive(timed)

    sequencer.exclusive = measured
    try:
        for _ in range(BASES):
            store.put("orders", b"x")  # so that there is something to note down
            store.integration.end_lease(store.integration.lease_state(60.0).lease_id)
    finally:
        sequencer.exclusive = exclusive
    return found


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _copies(folder: Path) -> tuple[float, float, float]:
    """Seconds of a copy, of a backup and of a restore of the store without an archive."""
    times = []
    for number in range(3):
        began = time.perf_counter()
        subprocess.run(["cp", "-r", folder / "plain", folder / f"copy{number}"], check=True)
        subprocess.run(["sync", *_files(folder / f"copy{number}")], check=True)
        copied = time.perf_counter()
        with quire.open(folder / "plain") as store:
            opened = time.perf_counter()
            archive.backup(store, folder / f"backup{number}")
            backed = time.perf_counter() - opened
        restoring = time.perf_counter()
        archive.restore(folder / f"backup{number}", folder / f"restored{number}")
        times.append((copied - began, backed, time.perf_counter() - restoring))
    return (
        median(each[0] for each in times),
        median(each[1] for each in times),
        median(each[2] for each in times),
    )
