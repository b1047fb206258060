"""A simulated disk on which no data page that a durable record refers to can be written or cut.

What is in use is not asked of the engine that writes: at each write the durable state of the disk
is recovered on a copy of it, as after a power failure at that moment. All pages that are in use
there (committed blocks, record pages, prepared transactions) must stay as they are.
"""

from __future__ import annotations

from typing import Literal

from quire.engine.checkpoints.store_files import OpenRequest, open_files
from quire.engine.layout import Layout
from quire.engine.options import Options
from quire.errors import StoreNotFound
from quire.intervals import IntervalSet
from quire.testing import SimEnv


def guard_pages(env: SimEnv, store_path: str) -> None:
    """From now on AssertionError for a write to a data page in use, also after a crash."""
    outcomes: tuple[Literal["lost", "kept"], ...] = ("lost", "kept")

    def in_use(machine: SimEnv, path: str, offset: int, length: int) -> str:
        for outcome in outcomes:
            used, page_size = used_pages(machine.if_it_crashed(outcome=outcome), store_path, path)
            hit = used.intersection(offset // page_size, -(-(offset + length) // page_size))
            for first, end in hit:
                return f"pages {first} to {end - 1} of the durable store"
        return ""

    env.forbid_overwrite("*.dat", in_use)


def used_pages(env: SimEnv, store_path: str, path: str) -> tuple[IntervalSet, int]:
    """The pages of a data file that are in use once the store is recovered; their size."""
    env.capacity_bytes = None
    try:
        lock = env.lock(Layout(store_path).lock, "a test")
        asked = OpenRequest(Options(), set(), create=False, background=False, owner="")
        opened = open_files(env, Layout(store_path), lock, asked)
    except StoreNotFound:
        return IntervalSet(), 1
    try:
        manager = next(m for m in opened.places.managers if m.data.path == path)
        total, extents = manager.space.snapshot()
        used = IntervalSet()
        used.add(0, total)
        for first, pages in extents:
            used.remove(first, first + pages)
        return used, opened.places.page_size
    finally:
        opened.close()
