"""An environment whose files are in memory: of a store that has no directory
(`quire.open(":memory:")`).

- Nothing of it is on any disk, and all of it is gone with the object.
- Memory is taken for what was written, by the page: space that was only allocated takes none.

Clocks and randomness are the machine's. Nothing of it survives a failure, so a sync has nothing to
do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quire.limits import MEMORY_PAGE_BYTES

from .interpreter import Lock
from .os_env import OsEnv

IN_MEMORY: Final = ":memory:"  # the path of a store that has no directory


class _Content:
    """The content of a file, which all its handles share."""

    def __init__(self, now_us: int) -> None:
        self.pages: dict[int, bytearray] = {}  # those that were written
        self.size = 0
        self.modified_us = now_us
        self.lock = Lock()


class MemoryFile:
    """A handle of a file in memory (see `quire.env.File`)."""

    direct = False

    def __init__(self, path: str, content: _Content, env: MemoryEnv) -> None:
        self.path = path
        self._content = content
        self._env = env

    def read(self, offset: int, length: int) -> bytes:
        content = self._content
        with content.lock:
            return b"".join(
                bytes(content.pages[number][lo:hi]) if number in content.pages else bytes(hi - lo)
                for number, lo, hi in _pieces(offset, min(offset + length, content.size))
            )

    def read_block(self, offset: int, length: int) -> bytes:
        return self.read(offset, length)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        content, taken = self._content, 0
        with content.lock:
            for number, lo, hi in _pieces(offset, offset + len(data)):
                page = content.pages.get(number)
                if page is None:
                    page = content.pages[number] = bytearray(MEMORY_PAGE_BYTES)
                page[lo:hi] = data[taken : taken + hi - lo]
                taken += hi - lo
            content.size = max(content.size, offset + len(data))
            content.modified_us = self._env.now_us()

    def write_cached(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.write(offset, data)

    def sync(self) -> None:
        """Do nothing: nothing is durable here."""

    def allocate(self, offset: int, length: int, *, zeros: bool = True) -> None:
        with self._content.lock:
            self._content.size = max(self._content.size, offset + length)

    def punch(self, offset: int, length: int) -> None:
        with self._content.lock:
            self._drop(offset, offset + length)

    def truncate(self, length: int) -> None:
        with self._content.lock:
            self._drop(length, self._content.size)
            self._content.size = length

    def _drop(self, start: int, end: int) -> None:
        pages = self._content.pages
        for number in list(pages):  # of a range that may be far longer than what is there
            at = number * MEMORY_PAGE_BYTES
            lo, hi = max(start - at, 0), min(end - at, MEMORY_PAGE_BYTES)
            if hi - lo == MEMORY_PAGE_BYTES:
                del pages[number]
            elif lo < hi:
                pages[number][lo:hi] = bytes(hi - lo)

    def size(self) -> int:
        return self._content.size

    def next_data(self, offset: int) -> range:
        with self._content.lock:
            return range(offset, self._content.size)

    def close(self) -> None:
        """Do nothing: nothing is held."""


class MemoryNames:
    """Names that are taken until it is released."""

    def __init__(self, taken: set[str], names: Sequence[str]) -> None:
        self._taken = taken
        self._names = names
        self.held = True
        taken.update(names)

    @property
    def in_place(self) -> bool:
        """True: nobody else reaches this memory."""
        return True

    def release(self) -> None:
        if self.held:
            self.held = False
            self._taken.difference_update(self._names)


class MemoryEnv:
    """An `Env` whose files are in memory (see `quire.env.Env`)."""

    def __init__(self) -> None:
        machine = OsEnv()
        self.now_us = machine.now_us
        self.monotonic = machine.monotonic
        self.sleep = machine.sleep
        self.random_u64 = machine.random_u64
        self.aligned_buffer = machine.aligned_buffer
        self._files: dict[str, _Content] = {}
        self._directories = {".", "/"}
        self._locks: dict[str, set[str]] = {}  # names that are taken, by the lock's file

    def open_file(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        direct: bool = False,
    ) -> MemoryFile:
        content = self._files.get(path)
        if content is not None and exclusive:
            raise FileExistsError(path)
        if content is None:
            if not (create or exclusive) or _parent(path) not in self._directories:
                raise FileNotFoundError(path)
            content = self._files.setdefault(path, _Content(self.now_us()))
        return MemoryFile(path, content, self)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def list_directory(self, path: str) -> Sequence[str]:
        if path in self._files:
            raise NotADirectoryError(path)
        if path not in self._directories:
            raise FileNotFoundError(path)
        there = [*self._files, *self._directories]
        return sorted(name.rpartition("/")[2] for name in there if _is_in(name, path))

    def make_directory(self, path: str) -> None:
        if path in self._files:
            raise FileExistsError(path)
        if _parent(path) not in self._directories:
            raise FileNotFoundError(path)
        self._directories.add(path)

    def remove(self, path: str) -> None:
        if path in self._directories:
            if self.list_directory(path):
                raise OSError(f"{path} is not empty")
            self._directories.remove(path)
        elif self._files.pop(path, None) is None:
            raise FileNotFoundError(path)

    def rename(self, old: str, new: str) -> None:
        content = self._files.pop(old, None)
        if content is None:
            raise FileNotFoundError(old)
        self._files[new] = content

    def link(self, old: str, new: str) -> None:
        if old not in self._files or _parent(new) not in self._directories:
            raise FileNotFoundError(old)
        if self.exists(new):
            raise FileExistsError(new)
        self._files[new] = self._files[old]

    def sync_directory(self, path: str) -> None:
        """Do nothing: nothing is durable here."""

    def file_system(self, path: str) -> str:
        return "memory"

    def free_bytes(self, path: str) -> int | None:
        return None

    def real_path(self, path: str) -> str:
        return path

    def modified_us(self, path: str) -> int:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path].modified_us

    def lock(self, path: str, owner: str) -> MemoryNames:
        return MemoryNames(self._locks.setdefault(path, set()), [owner])

    def hold_file(self, path: str) -> MemoryNames:
        return self.lock(path, "who holds the file")

    def is_locked(self, path: str) -> bool:
        return bool(self._locks.get(path))

    def lock_names(self, path: str, names: Sequence[str]) -> MemoryNames | str:
        taken = self._locks.setdefault(path, set())
        busy = [name for name in names if name in taken]
        return busy[0] if busy else MemoryNames(taken, names)


def _is_in(name: str, directory: str) -> bool:
    return name != directory and _parent(name) == directory


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path[0] == "/" else ".")


def _pieces(start: int, end: int) -> list[tuple[int, int, int]]:
    """The pages of a range: the number of each, and where in it the range begins and ends."""
    pieces = []
    while start < end:
        number, lo = divmod(start, MEMORY_PAGE_BYTES)
        hi = min(MEMORY_PAGE_BYTES, lo + end - start)
        pieces.append((number, lo, hi))
        start += hi - lo
    return pieces
