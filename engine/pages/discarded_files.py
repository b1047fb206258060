"""Files of large transactions that are not needed any more: rolled back, or read by everybody.

- DI1: a rollback only names its files here, so it takes no longer for having written much.
- DI2: a file loses its name, and is then cut slice by slice, with a pause after each: freed all at
  once, 4 GB took 0.5 s on ext4 with `discard`, in which a commit took 18 ms instead of 0.1; in
  slices of 16 MiB, 5 ms apart, commits went on at 0.12 ms.
- A crash loses no space. A file that still has its name is found by the next opening, since no
  commit points to it; one without is the file system's to free.
- A reader that comes late, without a lease, finds no file, or less than it has asked for: what it
  gets is verified (see `quire.ltds`), so it is an error and never something else.
- DI5: a removal is not durable at once, and a power failure may bring the file back. Nothing names
  it any more, so nothing of it is delivered, and it is removed again: one of the store's own as
  any that no commit points to. One that was adopted could be adopted anew; so checkpoints name it
  until it has durably lost its name (`sync`), and it is refused like one that is still to be
  removed (`Places.knows`). If the name is gone already, an earlier process removed it, and perhaps
  its sync failed: then no other one makes that removal durable. So the name is made and removed
  again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from quire.env import Env, File
from quire.env.interpreter import Lock
from quire.limits import REMOVAL_SLICE_BYTES
from quire.ltds import is_foreign, path_of
from quire.ltds import remove as remove_ltds


class DiscardedFiles:
    """The files that are to be removed. Thread-safe."""

    def __init__(self, env: Env, ltds_directory: str, sync_names: Callable[[], None]) -> None:
        self._env = env
        self._ltds_directory = ltds_directory
        self._sync_names = sync_names
        self._waiting: list[int] = []  # they have their names
        self._cutting: File | None = None  # this one does not
        self._adopted_gone = False  # a file of another process lost its name, not yet durably
        self._removing = Lock()

    def __len__(self) -> int:
        return len(self._waiting) + (self._cutting is not None)

    def __contains__(self, ltds_id: int) -> bool:
        return ltds_id in self._waiting

    @property
    def waiting(self) -> list[int]:
        """The files that still have their names."""
        return self._waiting.copy()  # which is one step (GI2 of `interpreter`)

    def sync(self) -> None:
        """Files of others that are not `waiting` any more will not come back (DI5)."""
        if self._adopted_gone:
            self._adopted_gone = False
            self._sync_names()

    def add(self, ltds_id: int) -> None:
        """The file is to be removed (DI1)."""
        self._waiting.append(ltds_id)

    def remove_slice(self) -> None:
        """Free a slice, of one file or of several small ones (DI2)."""
        with self._removing:
            room = REMOVAL_SLICE_BYTES
            while room > 0:
                if self._cutting is None and not self._begin():
                    return
                room -= self._cut(room)

    def remove_all(self) -> None:
        """Free everything at once: nobody waits for other calls meanwhile."""
        with self._removing:
            self._end()
            while self._waiting:
                self._take_name()

    def _begin(self) -> bool:
        """Take the next file's name; False if there is none."""
        while self._waiting:
            path = path_of(self._ltds_directory, self._waiting[0])
            with suppress(FileNotFoundError):  # as after a kill; that need not be durable
                self._cutting = self._env.open_file(path)
            self._take_name()
            if self._cutting is not None:
                return True
        return False

    def _take_name(self) -> None:
        """Remove the next file's name; a checkpoint names it while it waits, then syncs (DI5)."""
        ltds_id = self._waiting[0]
        removed = remove_ltds(self._env, self._ltds_directory, ltds_id)
        if not removed and is_foreign(ltds_id):
            path = path_of(self._ltds_directory, ltds_id)
            self._env.open_file(path, create=True).close()
            self._env.remove(path)
        if is_foreign(ltds_id):  # told when it is gone: a `sync` before that makes nothing durable
            self._adopted_gone = True
        del self._waiting[0]

    def _cut(self, room: int) -> int:
        """Cut so much off the file, or all of it; how much that was."""
        assert self._cutting is not None
        size = self._cutting.size()
        if size > room:
            self._cutting.truncate(size - room)
            return room
        self._end()
        return size

    def _end(self) -> None:
        file, self._cutting = self._cutting, None
        if file is not None:
            file.close()
