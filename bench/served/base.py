"""The measurements of a thesis (`bench.rivals.device_figures`), made of our queues.

1,000 messages in this process and 100 through an owner of its own process, of no characters and of
1,000, put and got one by one (`store.put`, `store.get`) and all at once, in a queue with priorities
and times that is made anew for each round. Persistent is durable here, with a sync for each commit.
The size is that of the wheel; the memory is that of processes which open a store with one such
queue, beside one that has only imported Quire.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median
from typing import Any

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table
from bench.rivals.device_figures import (
    ARCHIVE_KB,
    LOCAL,
    MEMORY_KB,
    REMOTE,
    TABLE_8,
    DeviceRow,
    Spread,
)
from bench.served.served_rivals import QuireServer

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[2]
TYPES = ("volatile", "persistent")
RULES: dict[str, Any] = {"order": "priority", "timed": True}

OperationTimes = dict[
    tuple[str, str, str, int], list[float]
]  # place, type, operation, characters: ms


def run(setting: BenchmarkSetting) -> list[Result]:
    """The rows of its table 8, and those of its tables 4 and 5."""
    times: OperationTimes = {}
    with _places(setting.folder) as places:
        for number in range(setting.scaled(20, 3)):
            for place, (store, count) in places.items():
                for type_ in TYPES:
                    for characters in (0, 1_000):
                        name = f"{type_}-{characters}-{number}"
                        found = _round(store, name, type_, count, b"x" * characters)
                        for operation, ms in found.items():
                            times.setdefault((place, type_, operation, characters), []).append(ms)
    return [*_figures(times), _table(times), *_sizes(setting)]


@contextmanager
def _places(folder: Path) -> Iterator[dict[str, tuple[quire.Store, int]]]:
    """Stores by where their owner is, and how many messages are measured in each."""
    server = QuireServer(folder / "served")
    try:
        with (
            quire.open(str(folder / "own")) as own,
            quire.open(server.address) as joined,
        ):
            assert joined.role == "joined"
            yield {"local": (own, LOCAL), "remote": (joined, REMOTE)}
    finally:
        server.stop()


def _round(
    store: quire.Store, name: str, type_: str, count: int, payload: bytes
) -> dict[str, float]:
    """Milliseconds of each operation on all messages."""
    store.create_queue(name, kind="work", type=type_, **RULES)
    payloads = [payload] * count

    def put() -> None:
        for content in payloads:
            store.put(name, content)

    def get() -> None:
        for _ in payloads:
            assert store.get(name) is not None

    def put_all() -> None:
        store.put_many(name, payloads)

    def get_all() -> None:
        left = count
        while left:
            left -= len(store.get_many(name, left))

    calls: dict[str, Callable[[], None]] = {
        "put": put, "get": get, "put all": put_all, "get all": get_all,
    }  # fmt: skip
    found = {}
    for operation, call in calls.items():
        began = time.perf_counter()
        call()
        found[operation] = (time.perf_counter() - began) * 1e3
    store.drop_queue(name)
    return found


def _taken(row: DeviceRow, place: str, type_: str) -> Spread:
    found = getattr(row, f"{type_}_{place}")
    assert isinstance(found, Spread)
    return found


def _figures(times: OperationTimes) -> list[Figure]:
    """Return how much longer the thesis's system took, in the middle of all cells."""
    ratios = {
        place: median(
            _taken(row, place, type_).average / mean(times[place, type_, row.name, row.characters])
            for row in TABLE_8
            for type_ in TYPES
        )
        for place in ("local", "remote")
    }
    return [
        Figure(f"time of the thesis's queues to ours, {place}, median of the table", ratio, "times")
        for place, ratio in ratios.items()
    ]


def _table(times: OperationTimes) -> Table:
    cells = [(type_, place) for place in ("local", "remote") for type_ in TYPES]
    columns = ["operation", "characters"]
    for type_, place in cells:
        columns += [f"{type_}, {place}", "thesis"]
    rows: list[list[float | str]] = []
    for row in TABLE_8:
        line: list[float | str] = [row.name, str(row.characters)]
        for type_, place in cells:
            taken = times[place, type_, row.name, row.characters]
            line.append(f"{mean(taken):.3g} ({min(taken):.3g} to {max(taken):.3g})")
            line.append(str(_taken(row, place, type_)))
        rows.append(line)
    return Table(
        f"Milliseconds of {LOCAL:,} messages, local, and of {REMOTE:,}, remote: average (least to "
        "most)",
        columns,
        rows,
        "thesis: its table 8, a Pentium M of 1.7 GHz without a just-in-time compiler, remote over "
        "100 Mbit/s; its rows by template have no counterpart here yet",
    )


def _sizes(setting: BenchmarkSetting) -> list[Result]:
    wheel_kb = _wheel(setting.folder / "wheel") / 1024
    memory = {what: _memory(setting, what) for what in ("nothing", *MEMORY_KB)}
    opened = {what: memory[what] - memory["nothing"] for what in MEMORY_KB}
    table = Table(
        "Memory of a process, KiB: all of it, and beyond one that has imported Quire",
        ["store", "all", "beyond", "thesis: all"],
        [
            [what, f"{memory[what]:,.0f}", f"{opened[what]:,.0f}", f"{kb:,}"]
            for what, kb in MEMORY_KB.items()
        ],
        "ours: resident pages, in which one queue hardly shows; thesis: its table 5, what was in "
        "use of the Java machine's heap, the middleware included",
    )
    return [
        Figure("size of the wheel", wheel_kb, "KiB"),
        Figure("size of the thesis's Java archive", ARCHIVE_KB, "KiB"),
        table,
    ]


def _wheel(folder: Path) -> int:
    """Bytes of a wheel of what is in the repository."""
    source = folder / "source"  # a copy: a build leaves folders behind that the next would pack
    packages = [ROOT / "quire", ROOT / "pyspark_quire"]
    linked = [each.resolve() for each in packages[0].iterdir() if each.is_symlink()]
    ignore = shutil.ignore_patterns("__pycache__")
    for package in (*packages, *linked):
        shutil.copytree(package, source / package.name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir"]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(folder), str(source)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    [wheel] = folder.glob("*.whl")
    return wheel.stat().st_size


_PROGRAM = """
import gc, os, sys
import quire
what, path = sys.argv[1:]
if what != "nothing":
    store = quire.open(path)
    if what != "no queue":
        store.create_queue("q", kind="work", type=what, order="priority", timed=True)
gc.collect()
pages = int(open("/proc/self/statm").read().split()[1])
print(pages * os.sysconf("SC_PAGE_SIZE") / 1024)
if what != "nothing":
    store.close()
"""


def _memory(setting: BenchmarkSetting, what: str) -> float:
    """KiB that such a process has in memory; the middle of some."""
    found = []
    for number in range(setting.scaled(5, 1)):
        path = setting.folder / f"memory-{what.replace(' ', '-')}-{number}"
        command = [sys.executable, "-c", _PROGRAM, what, str(path)]
        completed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
        found.append(float(completed.stdout))
    return median(found)
