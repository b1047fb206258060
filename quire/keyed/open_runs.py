"""Runs that are kept open, so that the next look finds their indexes in memory."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Collection, Sequence

from quire.env.interpreter import Lock
from quire.ltds import LtdsReader

from .limits import CACHED_RUN_BYTES, MOST_OPEN_RUNS, OPEN_RUN_BYTES
from .manifest import RunEntry
from .run import KeyedRun


class OpenRuns:
    """The runs that were asked for lately. Thread-safe."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, KeyedRun] = OrderedDict()
        self._bytes = self._whole_bytes = 0  # of all, and of those that are in memory as a whole
        self._lock = Lock()

    def get(self, run_id: int) -> KeyedRun | None:
        """Return an open run; None: it is none."""
        with self._lock:
            run = self._open.get(run_id)
            if run is not None:
                self._open.move_to_end(run_id)
            return run

    def keep(self, run_id: int, run: KeyedRun) -> None:
        """Keep a run open, and let go of those that were not asked for lately."""
        with self._lock:
            self._close(run_id)
            self._open[run_id] = run
            self._count(run, 1)
            for other, its in list(self._open.items()):
                is_too_much = self._whole_bytes > CACHED_RUN_BYTES and its.is_whole
                is_too_much |= self._bytes > OPEN_RUN_BYTES or len(self._open) > MOST_OPEN_RUNS
                if other != run_id and is_too_much:
                    self._close(other)

    def retain(self, run_ids: Collection[int]) -> None:
        """Let go of all others: the files of runs that were merged take space while open."""
        with self._lock:
            for run_id in [each for each in self._open if each not in run_ids]:
                self._close(run_id)

    def _close(self, run_id: int) -> None:
        run = self._open.pop(run_id, None)
        if run is not None:
            self._count(run, -1)

    def _count(self, run: KeyedRun, sign: int) -> None:
        self._bytes += sign * run.kept_bytes
        if run.is_whole:
            self._whole_bytes += sign * run.kept_bytes


class _InMemory:
    """The bytes of a run that is a message."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    def read(self, offset: int, length: int) -> bytes:
        return self._payload[offset : offset + length]

    def expect_several(self, places: Sequence[tuple[int, int]]) -> None:
        """Do nothing: they are there."""

    def read_several(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._payload[at : at + length] for at, length in places]


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
