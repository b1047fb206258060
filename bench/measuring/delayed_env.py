"""An environment whose syncs take longer: as a disk that is slower than this machine's."""

from __future__ import annotations

import time
from typing import Any

from quire.env import OsEnv

__all__ = ["DelayedEnv"]


class DelayedFile:
    """A file of the machine; a sync returns that much later."""

    def __init__(self, file: Any, seconds: float) -> None:
        self._file, self._seconds = file, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self, *arguments: Any, **options: Any) -> Any:
        done = self._file.sync(*arguments, **options)
        time.sleep(self._seconds)
        return done


class DelayedEnv(OsEnv):
    """The real machine with a slower disk."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def open_file(self, path: str, **options: bool) -> Any:
        return DelayedFile(super().open_file(path, **options), self._seconds)
