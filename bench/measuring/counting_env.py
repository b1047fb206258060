"""An environment that counts what each thread asks it to write, sync and read."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from quire.env import OsEnv

__all__ = ["CountingEnv"]

COUNTED = ("write", "write_cached", "sync", "allocate", "truncate", "punch")
PAGED = ("write", "write_cached", "read", "read_block")  # whose pages are counted
PAGE_BYTES = 4096


class CountingFile:
    """A file of the machine; its calls are counted in its environment.

    A write to a direct file is a sync too: it returns when its data is durable.
    """

    def __init__(self, file: Any, env: CountingEnv) -> None:
        self._file, self._env = file, env

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._file, name)
        if name not in COUNTED and name not in PAGED:
            return member

        def counted(*arguments: Any, **options: Any) -> Any:
            if name in COUNTED:
                self._env.counts[name] += 1
                if name == "write" and self._file.direct:
                    self._env.counts["sync"] += 1
            if name in PAGED:
                self._env.pages[name.removesuffix("_block")] += _pages(*arguments)
            return member(*arguments, **options)

        return counted


def _pages(offset: int, what: Any) -> int:
    """Return the number of pages that a length, or data, at the offset touches."""
    length = what if isinstance(what, int) else len(what)
    return -(-(offset + length) // PAGE_BYTES) - offset // PAGE_BYTES if length else 0


class CountingEnv(OsEnv):
    """The real machine, with the number of calls that change files, and of pages."""

    def __init__(self) -> None:
        super().__init__()
        self._threads = threading.local()

    @property
    def counts(self) -> Counter[str]:
        """The calling thread's own calls."""
        return self._own("counts")

    @property
    def pages(self) -> Counter[str]:
        """The pages that its own writes and reads named, each as often as it was named."""
        return self._own("pages")

    def _own(self, name: str) -> Counter[str]:
        try:
            found: Counter[str] = getattr(self._threads, name)
        except AttributeError:
            found = Counter()
            setattr(self._threads, name, found)
        return found

    def open_file(self, path: str, **options: bool) -> Any:
        return CountingFile(super().open_file(path, **options), self)

    def sync_directory(self, path: str) -> None:
        self.counts["sync_directory"] += 1
        super().sync_directory(path)
