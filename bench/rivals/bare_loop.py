"""The least that a durable commit can be: a page that is written and synced, one after another."""

from __future__ import annotations

from pathlib import Path

from quire.env import OsEnv

__all__ = ["BareLoop"]

_PAGE_BYTES = 4096  # the least that a journal page takes


class BareLoop:
    """Writes the pages of a file in turn, each durable before the next, and begins again."""

    def __init__(self, path: Path, pages: int) -> None:
        env = OsEnv()
        self._file = env.open_file(str(path), create=True, direct=True)
        self._end = pages * _PAGE_BYTES
        self._file.allocate(0, self._end)
        self._page = env.aligned_buffer(_PAGE_BYTES)
        self._next = 0

    def step(self) -> None:
        self._page[:8] = self._next.to_bytes(8, "little")
        self._file.write(self._next, self._page)
        self._file.sync()
        self._next = (self._next + _PAGE_BYTES) % self._end

    def close(self) -> None:
        self._file.close()
