"""Files of transactions that were rolled back, until they are removed.

- D1: a rollback only names its files here, so it takes no longer for having written much.
- D2: a file is cut slice by slice before its name goes, with a pause after each: freed all at once,
  4 GB took 0.5 s on ext4 with `discard`, in which a commit took 18 ms instead of 0.1; in slices of
  16 MiB, 5 ms apart, commits went on at 0.12 ms.
- D3: nobody reads these files. A crash leaves what is left of them to the next opening, which finds
  that no commit points to them, and brings them here again.
"""

from __future__ import annotations

import threading
from collections import deque

from quire.env import Env
from quire.limits import REMOVAL_SLICE_BYTES
from quire.ltds import path_of
from quire.ltds import remove as remove_ltds


class DiscardedFiles:
    """See the module. Thread-safe."""

    def __init__(self, env: Env, ltds_directory: str) -> None:
        self._env = env
        self._ltds_directory = ltds_directory
        self._waiting: deque[int] = deque()
        self._removing = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ltds_id: int) -> None:
        """The file is to be removed (D1)."""
        self._waiting.append(ltds_id)

    def remove_slice(self) -> None:
        """Cut a slice off the first file, or remove it, when that is all there is of it (D2)."""
        with self._removing:
            if self._waiting and not self._shorten(self._waiting[0]):
                remove_ltds(self._env, self._ltds_directory, self._waiting.popleft())

    def remove_all(self) -> None:
        """Remove what there is at once: nobody waits for other calls meanwhile."""
        with self._removing:
            while self._waiting:
                remove_ltds(self._env, self._ltds_directory, self._waiting.popleft())

    def _shorten(self, ltds_id: int) -> bool:
        """False if there is no more than a slice."""
        try:
            file = self._env.open_file(path_of(self._ltds_directory, ltds_id))
        except FileNotFoundError:
            return False
        try:
            left = file.size() - REMOVAL_SLICE_BYTES
            if left > 0:
                file.truncate(left)
            return left > 0
        finally:
            file.close()
