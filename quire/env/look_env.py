"""An environment in which a store can be opened for looking: what is written stays in memory.

- Nothing of the machine is changed: files are opened to read only, no directory is made, no lock is
  taken. So it works on a medium that cannot be written, and takes a store from nobody.
- Whatever is written, renamed or removed is seen by this environment alone, and goes with it. A
  page of 4 KiB takes memory once something is written into it.
- A file that gets shorter under the look gives fewer bytes.

The engine recovers a store in it as ever; whoever looks sees what an opening would find.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from .seam import Env, File

PAGE_BYTES: Final = 4096


class LookFile:
    """A file as it is on the machine, with what was written over it; all handles share it."""

    direct = False

    def __init__(self, path: str, base: File | None) -> None:
        self.path = path
        self._base = base
        self._base_end = 0 if base is None else base.size()  # beyond it nothing of it counts
        self._size = self._base_end
        self._pages: dict[int, bytearray] = {}

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self._size)
        if end <= offset:
            return b""
        data = bytearray(end - offset)
        if self._base is not None and offset < self._base_end:
            found = self._base.read(offset, min(end, self._base_end) - offset)
            data[: len(found)] = found
        for number in range(offset // PAGE_BYTES, -(-end // PAGE_BYTES)) if self._pages else ():
            page = self._pages.get(number)
            if page is not None:
                start = number * PAGE_BYTES
                first, last = max(start, offset), min(start + PAGE_BYTES, end)
                data[first - offset : last - offset] = page[first - start : last - start]
        return bytes(data)

    def read_block(self, offset: int, length: int) -> bytes:
        return self.read(offset, length)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        source = memoryview(data).cast("B")
        end = offset + len(source)
        for number in range(offset // PAGE_BYTES, -(-end // PAGE_BYTES)):
            start = number * PAGE_BYTES
            first, last = max(start, offset), min(start + PAGE_BYTES, end)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(self.read(start, PAGE_BYTES))
                page.extend(bytes(PAGE_BYTES - len(page)))
            page[first - start : last - start] = source[first - offset : last - offset]
        self._size = max(self._size, end)

    def write_cached(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.write(offset, data)

    def sync(self) -> None:
        pass

    def allocate(self, offset: int, length: int, *, zeros: bool = True) -> None:
        self._size = max(self._size, offset + length)

    def punch(self, offset: int, length: int) -> None:
        """The space is not given back: it would read as zeros, and nobody reads it."""

    def truncate(self, length: int) -> None:
        self._size = length
        self._base_end = min(self._base_end, length)
        for number in [number for number in self._pages if number * PAGE_BYTES >= length]:
            del self._pages[number]
        last = self._pages.get(length // PAGE_BYTES)
        if last is not None:
            cut = length % PAGE_BYTES
            last[cut:] = bytes(PAGE_BYTES - cut)

    def size(self) -> int:
        return self._size

    def next_data(self, offset: int) -> range:
        if self._base is None or any((number + 1) * PAGE_BYTES > offset for number in self._pages):
            return range(offset, self._size)
        found = self._base.next_data(offset)
        return range(found.start, min(found.stop, self._base_end))

    def close(self) -> None:
        """Others may go on with it."""


class LookLock:
    """A lock that locks nothing: the store is not owned."""

    held = False
    in_place = True

    def release(self) -> None:
        pass


class LookEnv:
    """An `Env` over another one that keeps all changes in memory."""

    def __init__(self, machine: Env) -> None:
        self._machine = machine
        self._files: dict[str, LookFile] = {}  # those that were opened or renamed
        self._directories: set[str] = set()  # that were made here
        self._removed: set[str] = set()  # of the machine's names
        self.now_us = machine.now_us
        self.monotonic = machine.monotonic
        self.sleep = machine.sleep
        self.random_u64 = machine.random_u64
        self.aligned_buffer = machine.aligned_buffer
        self.is_locked = machine.is_locked

    def open_file(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        direct: bool = False,
    ) -> LookFile:
        if not self.exists(path):
            if not (create or exclusive):
                raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
            self._files[path] = LookFile(path, None)
        elif exclusive:
            raise FileExistsError(errno.EEXIST, "the file is there already", path)
        elif path not in self._files:
            self._files[path] = LookFile(path, self._machine.open_file(path, read_only=True))
        return self._files[path]

    def exists(self, path: str) -> bool:
        if path in self._files or path in self._directories:
            return True
        return path not in self._removed and self._machine.exists(path)

    def list_directory(self, path: str) -> Sequence[str]:
        names = {
            other.removeprefix(f"{path}/")
            for other in (*self._files, *self._directories)
            if other.rpartition("/")[0] == path
        }
        if path not in self._directories:
            names.update(
                name
                for name in self._machine.list_directory(path)
                if f"{path}/{name}" not in self._removed
            )
        return sorted(names)

    def make_directory(self, path: str) -> None:
        if not self.exists(path):
            self._directories.add(path)

    def remove(self, path: str) -> None:
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        self._files.pop(path, None)
        self._directories.discard(path)
        self._removed.add(path)

    def rename(self, old: str, new: str) -> None:
        file = self.open_file(old)
        self.remove(old)
        file.path = new
        self._files[new] = file

    def link(self, old: str, new: str) -> None:
        file = self.open_file(old)
        if self.exists(new):
            raise FileExistsError(errno.EEXIST, "the file is there already", new)
        self._files[new] = file

    def sync_directory(self, path: str) -> None:
        pass

    def file_system(self, path: str) -> str:
        return ""  # of nothing that is written: wherever it lies it can be looked at

    def free_bytes(self, path: str) -> int | None:
        return self._machine.free_bytes(path)

    def real_path(self, path: str) -> str:
        return self._machine.real_path(path)

    def modified_us(self, path: str) -> int:
        return self._machine.modified_us(path)

    def lock(self, path: str, owner: str) -> LookLock:
        return LookLock()

    def hold_file(self, path: str) -> LookLock:
        return LookLock()

    def lock_names(self, path: str, names: Sequence[str]) -> LookLock:
        return LookLock()
