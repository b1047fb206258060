"""The real machine's environment: directories, locks, clocks and randomness beside `OsFile`.

Files are created with mode 0600 and directories with 0700: messages are their owner's alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from quire.libraries import late_imports

from .os_file import OsFile, aligned_buffer, not_readable, raise_if_full
from .os_lock import (
    HeldDescriptor,
    HeldNames,
    OsFileLock,
    hold_file,
    is_locked,
    lock_file,
    lock_names,
)
from .os_mount import file_system_of
from .os_platform import sync_directory


def keep_standard_descriptors() -> None:
    """See to it that no file or socket of a store gets a number that all write errors to.

    A program may be started with its standard streams closed. The next files that it opens get
    their numbers, 0 to 2, and what the interpreter or a library writes to "standard error" goes
    into them, as once into databases of SQLite.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            taken = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest number that is free
            if taken > 2:  # another thread was first
                os.close(taken)


class OsEnv:
    """The machine that this process runs on (see `quire.env.Env`)."""

    def __init__(self) -> None:
        keep_standard_descriptors()

    def open_file(
        self,
        path: str,
        *,
        create: bool = False,
        exclusive: bool = False,
        read_only: bool = False,
        direct: bool = False,
    ) -> OsFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create or exclusive:
            flags |= os.O_CREAT
        if exclusive:
            flags |= os.O_EXCL
        try:
            return OsFile(path, flags, direct=direct and not read_only)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise_if_full(error, path, "create the file")
            if read_only:
                raise not_readable(error, path) from error
            raise

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        except OSError as error:
            raise_if_full(error, path, "create the directory")
            raise

    def remove(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except OSError as error:
            raise_if_full(error, new, "rename the file")
            raise

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_directory(fd)
        finally:
            os.close(fd)

    def file_system(self, path: str) -> str:
        return file_system_of(path)

    def modified_us(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1000

    def lock(self, path: str, owner: str) -> OsFileLock:
        return lock_file(path, owner)

    def hold_file(self, path: str) -> HeldDescriptor:
        return hold_file(path)

    def is_locked(self, path: str) -> bool:
        return is_locked(path)

    def lock_names(self, path: str, names: Sequence[str]) -> HeldDescriptor | HeldNames | str:
        return lock_names(path, names)

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def random_u64(self) -> int:
        return int.from_bytes(os.urandom(8), "little")

    def aligned_buffer(self, size: int) -> memoryview:
        return aligned_buffer(size)


def after_fork(action: Callable[[int], None]) -> None:
    """Call the action in every child that this process forks, with the parent's process id."""
    os.register_at_fork(after_in_child=lambda: action(os.getppid()))


os.register_at_fork(
    before=late_imports.before_fork,
    after_in_parent=late_imports.after_fork_in_parent,
    after_in_child=late_imports.after_fork_in_child,
)
