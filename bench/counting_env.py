"""An environment that counts what each thread asks it to write and sync."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from quire.env import OsEnv

__all__ = ["CountingEnv"]

COUNTED = ("write", "sync", "allocate", "truncate", "punch")


class CountingFile:
    """A file of the machine; its calls are counted in its environment."""

    def __init__(self, file: Any, env: CountingEnv) -> None:
        self._file, self._env = file, env

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._file, name)
        if name not in COUNTED:
            return member

        def counted(*arguments: Any, **options: Any) -> Any:
            self._env.counts[name] += 1
            return member(*arguments, **options)

        return counted


class CountingEnv(OsEnv):
    """The real machine, with the number of calls that change files."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = threading.local()

    @property
    def counts(self) -> Counter[str]:
        """The calling thread's own calls."""
        try:
            found: Counter[str] = self._threads.counts
        except AttributeError:
            found = self._threads.counts = Counter()
        return found

    def open_file(self, path: str, **options: bool) -> Any:
        return CountingFile(super().open_file(path, **options), self)

    def sync_directory(self, path: str) -> None:
        self.counts["sync_directory"] += 1
        super().sync_directory(path)
