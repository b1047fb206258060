"""Runs that are kept open, so that the next look finds their indexes in memory."""

from __future__ import annotations

import weakref
from collections import OrderedDict

from quire.env.interpreter import Lock
from quire.ltds import LtdsReader

from .limits import CACHED_RUN_BYTES, MAX_RUNS
from .manifest import RunEntry
from .run import KeyedRun


class OpenRuns:
    """The runs that were asked for lately. Thread-safe."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, KeyedRun] = OrderedDict()
        self._lock = Lock()

    def get(self, run_id: int) -> KeyedRun | None:
        """Return an open run; None: it is none."""
        return self._open.get(run_id)

    def keep(self, run_id: int, run: KeyedRun) -> None:
        """Keep a run open, and let go of those that were not asked for lately."""
        with self._lock:
            self._open[run_id] = run
            self._open.move_to_end(run_id)
            size = sum(each.kept_bytes for each in self._open.values())
            while len(self._open) > 4 * MAX_RUNS or (
                size > CACHED_RUN_BYTES and len(self._open) > MAX_RUNS
            ):
                size -= self._open.popitem(last=False)[1].kept_bytes


class _InMemory:
    """The bytes of a run that is a message."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def read(self, offset: int, length: int) -> bytes:
        return self._payload[offset : offset + length]


def run_in_memory(payload: bytes, run_id: int, where: str) -> KeyedRun:
    """Return a run of which all bytes are given. Raises StoreCorrupt."""
    run = KeyedRun(_InMemory(payload), len(payload), run_id, where)
    run.keep()
    return run


def run_of_file(reader: LtdsReader, entry: RunEntry, where: str) -> KeyedRun:
    """Return the run of an open file, which is closed with it. Raises StoreCorrupt."""
    try:
        run = KeyedRun(reader.plain_stream(), entry.size, entry.id, where)
    except BaseException:
        reader.close()
        raise
    weakref.finalize(run, reader.close)  # other threads may still look into it
    return run
