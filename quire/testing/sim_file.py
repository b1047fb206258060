"""A handle of a simulated file (see `quire.env.File`)."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Protocol

from quire.calls.documented import documented_by
from quire.env import File
from quire.env.os_file import DIRECT_ALIGNMENT, mapped_memory, unreadable
from quire.errors import InvalidArgument
from quire.libraries import np
from quire.limits import MAPPED_READ_BYTES
from quire.testing.sim_calls import Call, Fault, raise_fault
from quire.testing.sim_inode import FileChange, SimInode, pages_of


class SimMachine(Protocol):
    """The machine that has the file, as far as its handles ask it (see `SimEnv`)."""

    random: Random
    clock_us: int

    @property
    def guard(self) -> AbstractContextManager[Any]:
        """Held while anything of it changes, or is looked at."""

    def check_alive(self) -> None: ...

    def begin(self, kind: str, path: str, offset: int = 0, length: int = 0) -> Call: ...

    def strike(self, call: Call) -> Fault | None: ...

    def raise_fault(self, call: Call) -> None: ...

    def landed(self, fault: Fault, length: int) -> int: ...

    def crash_point(self, call: Call) -> None: ...

    def check_room(self, inode: SimInode, offset: int, length: int) -> None: ...

    def forbids_overwrite(self, path: str) -> bool: ...

    def check_in_use(self, kind: str, inode: SimInode, offset: int, length: int) -> None: ...

    def check_overwrite(self, inode: SimInode, offset: int, data: bytes) -> None: ...


@documented_by(File)
class SimFile:
    """An open file of a `SimEnv`; dead with its environment."""

    def __init__(self, env: SimMachine, inode: SimInode, path: str, read_only: bool, direct: bool):
        self.path = path
        self.direct = direct
        self._env = env
        self._inode = inode
        self._read_only = read_only
        self._open = True
        self._cached = False  # a direct file has writes that wait for a sync

    def read(self, offset: int, length: int) -> bytes:
        try:
            self._env.raise_fault(self._env.begin("read", self._inode.path, offset, length))
        except OSError as error:
            raise unreadable(error, self.path, offset, length) from error
        with self._env.guard:
            self._check_open(writing=False)
            return self._inode.cache.read(offset, length)

    def read_block(self, offset: int, length: int) -> bytes | memoryview:
        found = self.read(offset, length)
        if length < MAPPED_READ_BYTES:
            return found
        memory = mapped_memory(len(found))
        memory[:] = found
        return memory.toreadonly()

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        if self.direct:
            self._check_aligned(offset, data, len(data))
        self._write(offset, bytes(data), direct=self.direct)

    def write_cached(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        self._write(offset, bytes(data), direct=False)
        self._cached = self.direct

    def _write(self, offset: int, written: bytes, *, direct: bool) -> None:
        call = self._env.begin("write", self._inode.path, offset, len(written))
        with self._env.guard:
            self._check_open()
            self._env.check_in_use("write", self._inode, offset, len(written))
            self._env.check_overwrite(self._inode, offset, written)
            self._env.check_room(self._inode, offset, len(written))
            fault = self._env.strike(call)
            if fault is not None:
                # Reads may see it, or a part of it; whether it lasts is open until the power fails.
                landed = self._env.landed(fault, len(written))
                self._inode.fail_write(offset, written[:landed])
                raise_fault(call, fault)
            change = self._inode.change("write", offset, len(written), written, direct=direct)
            self._end(call, change, direct=direct)

    def sync(self) -> None:
        with self._env.guard:
            self._check_open()
            covered = self._inode.last_change  # only what had returned before the sync (E1)
        if self.direct and not self._cached:
            return
        self._cached = False
        call = self._env.begin("sync", self._inode.path)
        with self._env.guard:
            self._check_open()
            fault = self._env.strike(call)
            if fault is not None:
                self._inode.fail_sync(covered, self._env.random)
                raise fault.make_error()
            self._env.crash_point(call)
            self._protect(self._inode.make_durable(covered))

    def allocate(self, offset: int, length: int, *, zeros: bool = True) -> None:
        if length <= 0:
            return
        call = self._env.begin("allocate", self._inode.path, offset, length)
        with self._env.guard:
            self._check_open()
            self._env.check_room(self._inode, offset, length)
            self._env.raise_fault(call)
            size = max(len(self._inode.cache), offset + length)
            change = self._inode.change("grow", 0, size)
            self._inode.pages.update(pages_of(offset, length))
            self._end(call, change, direct=self.direct)

    def punch(self, offset: int, length: int) -> None:
        if length <= 0:
            return
        call = self._env.begin("punch", self._inode.path, offset, length)
        with self._env.guard:
            self._check_open()
            self._env.check_in_use("punch", self._inode, offset, length)
            self._env.raise_fault(call)
            self._end(call, self._inode.change("punch", offset, length), direct=self.direct)

    def truncate(self, length: int) -> None:
        call = self._env.begin("truncate", self._inode.path, length)
        with self._env.guard:
            self._check_open()
            cut = len(self._inode.cache) - length
            if cut > 0:
                self._env.check_in_use("cut", self._inode, length, cut)
            self._env.raise_fault(call)
            self._end(call, self._inode.change("truncate", 0, length), direct=self.direct)

    def size(self) -> int:
        with self._env.guard:
            self._check_open(writing=False)
            return len(self._inode.cache)

    def next_data(self, offset: int) -> range:
        with self._env.guard:
            self._check_open(writing=False)
            return self._inode.cache.next_data(offset)

    def close(self) -> None:
        self._open = False

    def _check_open(self, writing: bool = True) -> None:
        self._env.check_alive()
        if not self._open or (writing and self._read_only):
            raise OSError(errno.EBADF, "Bad file descriptor", self.path)

    def _check_aligned(self, offset: int, data: bytes | bytearray | memoryview, size: int) -> None:
        address = np.frombuffer(data, np.uint8).ctypes.data if size else 0
        if (offset | size | address) % DIRECT_ALIGNMENT:
            raise InvalidArgument(
                f"a direct write to {self.path} needs an offset, a length and a buffer address"
                f" that are multiples of {DIRECT_ALIGNMENT}; got offset {offset}, length {size}"
            )

    def _end(self, call: Call, change: FileChange, *, direct: bool) -> None:
        """Let the power fail in the call; a direct change is durable when it returns (E2)."""
        self._inode.modified_us = self._env.clock_us
        self._env.crash_point(call)
        if direct:
            self._protect(self._inode.settle(change))

    def _protect(self, written: set[int]) -> None:
        if self._env.forbids_overwrite(self._inode.path):
            self._inode.protect(written)
