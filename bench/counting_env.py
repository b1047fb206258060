"""An environment that counts what it is asked to write and sync."""

from __future__ import annotations

from collections import Counter
from typing import Any

from quire.env import OsEnv

__all__ = ["CountingEnv"]

COUNTED = ("write", "sync", "allocate", "truncate", "punch")


class CountingFile:
    """A file of the machine; its calls are counted in its environment."""

    def __init__(self, file: Any, counts: Counter[str]) -> None:
        self._file, self._counts = file, counts

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._file, name)
        if name not in COUNTED:
            return member

        def counted(*arguments: Any, **options: Any) -> Any:
            self._counts[name] += 1
            return member(*arguments, **options)

        return counted


class CountingEnv(OsEnv):
    """The real machine, with `counts` of the calls that change files."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def open_file(self, path: str, **options: bool) -> Any:
        return CountingFile(super().open_file(path, **options), self.counts)

    def sync_directory(self, path: str) -> None:
        self.counts["sync_directory"] += 1
        super().sync_directory(path)
