"""Ownership of a store by one process. A process that has lost it changes nothing of the store.

- OW1: who owns a store holds the lock of its directory, and guards two files that are in every
  store and that it writes: its first data file and the journal's newest segment. Who wants to own
  it needs all of them, in this order, before it reads anything that it builds on. So where LOCK was
  removed or replaced nobody else can own the store for as long as its owner lives.
- OW2: no moment is unguarded. Who wants to own guards all segments, from the lowest number up, and
  looks for more when it has them; the owner only ever goes up, and guards the next one before it
  writes there and lets go of the one before. So one of them meets the other.
- OW3: an owner that finds its lock, or a file that it guards, not at its path any more has `lost`
  the store, and so has one that failed and lets go of it for others: from then on it writes, cuts,
  makes, renames and removes nothing, whatever it is asked. Reads of its files go on. It keeps what
  it holds until it is closed or ends. Others say that it is lost, too.

Copies are other files: they are stores of their own. A child that is forked holds none of this.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from quire.engine.layout import Layout
from quire.env import Env, File, FileLock
from quire.env.interpreter import Lock
from quire.errors import StoreFailed
from quire.journal import list_segments, segment_path
from quire.limits import FILES_NOTED


class OwnedFile:
    """A file that its store's owner may change, until the store is lost (OW3).

    Its methods are the file's own, so that nothing stands between a commit and its write.
    """

    def __init__(self, file: File) -> None:
        self.path = file.path
        self.direct = file.direct
        self.read = file.read
        self.read_block = file.read_block
        self.size = file.size
        self.next_data = file.next_data
        self.close = file.close
        self.write: Callable[..., None] = file.write
        self.write_cached: Callable[..., None] = file.write_cached
        self.sync: Callable[..., None] = file.sync
        self.allocate: Callable[..., None] = file.allocate
        self.punch: Callable[..., None] = file.punch
        self.truncate: Callable[..., None] = file.truncate

    def give_up(self, refuse: Callable[..., NoReturn]) -> None:
        """From now on it is only read."""
        self.write = self.write_cached = self.sync = refuse
        self.allocate = self.punch = self.truncate = refuse


class OwnedEnv:
    """The machine, as far as an owner may change a store there (OW3). Thread-safe.

    Its methods are the machine's own, but for `open_file`; those that change names refuse at last.
    """

    def __init__(self, machine: Env) -> None:
        self.machine = machine
        self.lost = ""  # how the store was lost, in words
        # Without a callback for one that goes: it would run in the midst of whatever lets go of it.
        self._files: list[weakref.ref[OwnedFile]] = []
        self._most_files = FILES_NOTED
        self._noting = Lock()
        self.exists = machine.exists
        self.list_directory = machine.list_directory
        self.file_system = machine.file_system
        self.free_bytes = machine.free_bytes
        self.real_path = machine.real_path
        self.modified_us = machine.modified_us
        self.lock = machine.lock
        self.is_locked = machine.is_locked
        self.lock_names = machine.lock_names
        self.hold_file = machine.hold_file
        self.now_us = machine.now_us
        self.monotonic = machine.monotonic
        self.sleep = machine.sleep
        self.random_u64 = machine.random_u64
        self.aligned_buffer = machine.aligned_buffer
        self.make_directory: Callable[[str], None] = machine.make_directory
        self.remove: Callable[[str], None] = machine.remove
        self.rename: Callable[[str, str], None] = machine.rename
        self.link: Callable[[str, str], None] = machine.link
        self.sync_directory: Callable[[str], None] = machine.sync_directory

    def lose(self, words: str) -> None:
        """Nothing is changed any more."""
        self.lost = self.lost or words
        self.make_directory = self.remove = self.rename = self.refuse
        self.link = self.sync_directory = self.refuse
        for noted in list(self._files):
            file = noted()
            if file is not None:
                file.give_up(self.refuse)

    def check(self) -> None:
        """Raises StoreFailed where it is lost."""
        if self.lost:
            self.refuse()

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raises StoreFailed."""
        raise StoreFailed(self.lost)

    def open_file(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        direct: bool = False,
    ) -> File:
        if read_only:
            return self.machine.open_file(path, read_only=True)
        self.check()
        file = OwnedFile(
            self.machine.open_file(path, create=create, exclusive=exclusive, direct=direct)
        )
        self._note(file)
        if self.lost:
            file.give_up(self.refuse)
        return file

    def _note(self, file: OwnedFile) -> None:
        with self._noting:
            files = self._files
            files.append(weakref.ref(file))
            if len(files) > self._most_files:
                files[:] = [noted for noted in files if noted() is not None]
                self._most_files = 2 * len(files) + FILES_NOTED


class Ownership:
    """The locks that make this process a store's owner (OW1 to OW3)."""

    def __init__(self, machine: Env, layout: Layout, lock: FileLock) -> None:
        self.env = OwnedEnv(machine)
        self._layout = layout
        self._lock = lock
        self._guards: dict[str, FileLock] = {}

    def guard_all(self) -> None:
        """Guard what there is, before anything is read (OW2). Raises StoreLocked."""
        self._let_go_of(list(self._guards))
        if self.env.exists(self._layout.data):
            self._guard(self._layout.data_file(0))
        directory, known = self._layout.journal, -1
        while more := [n for n in list_segments(self.env, directory) if n > known]:
            for known in more:
                self._guard(segment_path(directory, known))

    def go_on_to(self, segment: str) -> None:
        """The segment with this path is the journal's newest one. Raises StoreLocked."""
        self._guard(segment)
        kept = segment, self._layout.data_file(0)
        self._let_go_of([path for path in self._guards if path not in kept])

    @property
    def held(self) -> bool:
        """Return True if this process still holds the lock."""
        return self._lock.held

    def check(self) -> None:
        """Raises StoreFailed where the store is lost; looks whether it is (OW3)."""
        if not self.env.lost:
            if self._lock.in_place and all(
                self._is_guarded(path, guard) for path, guard in list(self._guards.items())
            ):
                return
            self.env.lose(
                f"the store at {self._layout.path}, its LOCK or a file of it was removed, moved or "
                "replaced while it was open, and this process owns it no longer: it changes "
                "nothing there any more. Close it; put its directory back and open it again, or "
                "open what is there now. What is committed stays in the files that it had open"
            )
        self.env.refuse()

    def release(self) -> None:
        """Another process may own the store. Twice is once."""
        try:
            self._lock.release()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Guard nothing any more."""
        self._let_go_of(list(self._guards))

    def _is_guarded(self, path: str, guard: FileLock) -> bool:
        """Also one that the owner has let go of meanwhile, as it went on to the next segment."""
        try:
            return guard.in_place or self._guards.get(path) is not guard
        except OSError:
            if self._guards.get(path) is guard:
                raise
            return True  # its descriptor was closed during the look

    def _guard(self, path: str) -> None:
        """Guard the file that has this path now; one that is not there is missed by others."""
        guard = self._guards.get(path)
        if guard is not None:
            if guard.in_place:
                return
            self._let_go_of((path,))
        try:
            self._guards[path] = self.env.hold_file(path)
        except FileNotFoundError:
            return

    def _let_go_of(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._guards.pop(path).release()
