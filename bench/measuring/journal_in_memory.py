"""An environment whose journal is in memory and that syncs nothing: what is left is computation.

A power failure loses such a store, and so does its closing. It is for measurements alone.
"""

from __future__ import annotations

from typing import Any

from quire.env import OsEnv

__all__ = ["JournalInMemory"]

JOURNAL = "/journal/"  # a part of the paths of the journal's files


class JournalMemoryFile:
    """A file of the journal; every handle of it shares one piece of memory."""

    direct = False

    def __init__(self, path: str, memory: bytearray) -> None:
        self.path, self._memory = path, memory

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._memory[offset : offset + length])

    def read_block(self, offset: int, length: int) -> bytes:
        return self.read(offset, length)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        end = offset + len(data)
        if end > len(self._memory):
            self.allocate(offset, len(data))
        self._memory[offset:end] = data

    def write_cached(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self.write(offset, data)

    def sync(self) -> None:
        pass

    def allocate(self, offset: int, length: int, *, zeros: bool = True) -> None:
        # Zeros are copied in: so the pages are there, and a write does not wait for them.
        self._memory.extend(bytes(max(0, offset + length - len(self._memory))))

    def punch(self, offset: int, length: int) -> None:
        self._memory[offset : offset + length] = bytes(length)

    def truncate(self, length: int) -> None:
        if length > len(self._memory):
            self.allocate(0, length)
        del self._memory[length:]

    def size(self) -> int:
        return len(self._memory)

    def next_data(self, offset: int) -> range:
        return range(offset, len(self._memory))

    def close(self) -> None:
        pass


class UnsyncedFile:
    """Any other file of the machine."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        pass


class JournalInMemory(OsEnv):
    """The real machine, but for the journal's bytes and all syncs."""

    def __init__(self) -> None:
        super().__init__()
        self._memory: dict[str, bytearray] = {}

    def open_file(self, path: str, **options: bool) -> Any:
        file = super().open_file(path, **{**options, "direct": False})
        if JOURNAL not in path:
            return UnsyncedFile(file)
        file.close()
        return JournalMemoryFile(path, self._memory.setdefault(path, bytearray()))

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if old in self._memory:
            self._memory[new] = self._memory.pop(old)

    def remove(self, path: str) -> None:
        super().remove(path)
        self._memory.pop(path, None)

    def sync_directory(self, path: str) -> None:
        pass
