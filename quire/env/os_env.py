"""The real machine's environment: directories, locks, clocks and randomness beside `OsFile`.

Files are created with mode 0600 and directories with 0700, whatever the umask: messages are their
owner's alone.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from quire.errors import InvalidArgument, raise_if_refused, refusing
from quire.libraries import late_imports

from .os_descriptors import (
    Descriptor,
    keep_standard_descriptors,
    make_directory,
    open_descriptor,
)
from .os_file import OsFile, aligned_buffer, not_readable
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
from .seam import Env


class ReserveDescriptor:
    """A file descriptor that is kept back for syncs of directories.

    A name that was given is durable only after such a sync, which opens the directory: without a
    descriptor left for it the store would have to fail.
    """

    def __init__(self) -> None:
        self._kept: list[Descriptor] = []  # one, or a few where threads refill at the same time

    def refill(self) -> None:
        """Keep one back, if there is one."""
        if not self._kept:
            with suppress(OSError):
                self._kept.append(Descriptor(open_descriptor(os.devnull, os.O_RDONLY)))

    def open_directory(self, path: str) -> int:
        """Open a directory, in the stead of what is kept back where no other descriptor is left."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return open_descriptor(path, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._kept:
                raise
        with suppress(IndexError):  # another thread was first
            self._kept.pop()  # which closes it
        return open_descriptor(path, flags)

    def close_directory(self, fd: int) -> None:
        """Close it, and keep one back again."""
        os.close(fd)
        self.refill()


_RESERVE: Final = ReserveDescriptor()


class OsEnv:
    """The machine that this process runs on (see `quire.env.Env`)."""

    def __init__(self) -> None:
        keep_standard_descriptors()
        _RESERVE.refill()

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
            raise_if_refused(error, path, "create the file" if create else "open the file")
            if read_only:
                raise not_readable(error, path) from error
            raise

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: str) -> Sequence[str]:
        with refusing(path, "list the directory"):
            return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        try:
            make_directory(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        except OSError as error:
            raise_if_refused(error, path, "create the directory")
            raise

    def remove(self, path: str) -> None:
        with refusing(path, "remove the file"):
            if os.path.isdir(path) and not os.path.islink(path):
                os.rmdir(path)
            else:
                os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(old, new)
        except OSError as error:
            raise_if_refused(error, new, "rename the file")
            raise

    def link(self, old: str, new: str) -> None:
        with refusing(new, "link the file"):
            os.link(old, new)

    def sync_directory(self, path: str) -> None:
        fd = _RESERVE.open_directory(path)
        try:
            sync_directory(fd)
        finally:
            _RESERVE.close_directory(fd)

    def file_system(self, path: str) -> str:
        return file_system_of(path)

    def free_bytes(self, path: str) -> int | None:
        try:
            found = os.statvfs(path)
        except OSError:  # the calls that need the space say what it is
            return None
        return found.f_bavail * found.f_frsize

    def real_path(self, path: str) -> str:
        return os.path.realpath(path)

    def modified_us(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1000

    def lock(self, path: str, owner: str) -> OsFileLock:
        with refusing(path, "open the file"):
            return lock_file(path, owner)

    def hold_file(self, path: str) -> HeldDescriptor:
        with refusing(path, "open the file"):
            return hold_file(path)

    def is_locked(self, path: str) -> bool:
        return is_locked(path)

    def lock_names(self, path: str, names: Sequence[str]) -> HeldDescriptor | HeldNames | str:
        with refusing(path, "open the file"):
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


def check_env(env: Env | None) -> Env:
    """Return the environment, or that of this machine. Raises InvalidArgument for what is none."""
    if env is None:
        return OsEnv()
    if not hasattr(env, "open_file"):
        raise InvalidArgument(f"env {env!r:.100}: leave it out, or give an Env, as a test does")
    return env


def after_fork(action: Callable[[int], None]) -> None:
    """Call the action in every child that this process forks, with the parent's process id."""
    os.register_at_fork(after_in_child=lambda: action(os.getppid()))


os.register_at_fork(
    before=late_imports.before_fork,
    after_in_parent=late_imports.after_fork_in_parent,
    after_in_child=late_imports.after_fork_in_child,
)
