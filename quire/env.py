"""The environment seam: the only module that touches files, clocks and randomness.

`OsEnv` is the real machine. `quire.testing.SimEnv` implements the same two protocols on a simulated
disk. Everything else in Quire takes an `Env` and calls nothing of `os`, `time` or `random` itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class File(Protocol):
    """An open file. All offsets and lengths are bytes. Methods are thread-safe."""

    path: str
    direct: bool  # offsets, lengths and buffers of `write` must be multiples of 4096

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""

    def view(self, offset: int, length: int) -> memoryview:
        """A read-only mapped view of bytes that exist; it stays valid after `close`."""

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `offset` (loops over short writes). Not durable before `sync`."""

    def sync(self) -> None:
        """What was written before this call is durable when it returns. Never retried after failure."""

    def allocate(self, offset: int, length: int) -> None:
        """Make sure that writes to this range need no more space and no more metadata."""

    def punch(self, offset: int, length: int) -> None:
        """Give the range's space back; it reads as zeros. The size stays."""

    def truncate(self, length: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class Env(Protocol):
    def open_file(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        direct: bool = False,
    ) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> Sequence[str]: ...

    def make_directory(self, path: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def rename(self, old: str, new: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def modified_us(self, path: str) -> int: ...

    def lock(self, path: str, owner: str) -> FileLock: ...

    def now_us(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def random_u64(self) -> int: ...

    def aligned_buffer(self, size: int) -> memoryview: ...
