"""The lock that makes one process the owner of a store.

- At most one holder at a time, over all processes and over all threads of one process.
- OL2: the lock ends with its process, however that ends, and is not inherited by a fork.
- The file holds the owner's process id and description while the lock is held, and whoever is
  refused reads them in the error. It keeps its block meanwhile, so that a full disk is no obstacle;
  where it has none and there is no room, the lock is held without a name.
- A lock of a guarded file (OL5) keeps to the first two rules as well.
- OL5: nothing is written to a file that is guarded.
- A holder can tell that its file is not at its path any more. Then somebody else can lock what is
  at the path now.

A lock of the open file (flock) has one holder: unlike a POSIX record lock it is not dropped when
the process closes some other descriptor of the file, as copying a store's directory does. A forked
child shares it, so the child closes its descriptor at once (OL2); one that is forked without
Python's knowledge keeps the store locked until it ends, which is the safe side. A registry keyed by
device and inode lets the error say that it is this process that holds the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref

from quire.errors import StoreLocked

_registry_lock = threading.RLock()  # a finaliser may release a lock while another one is taken
_held: dict[tuple[int, int], tuple[int, str]] = {}  # (device, inode) -> (process id, owner)
_locks: weakref.WeakSet[OsFileLock | HeldDescriptor] = weakref.WeakSet()


class OsFileLock:
    """A held lock (see `quire.env.FileLock`). `release` may be called twice."""

    def __init__(self, fd: int, path: str, key: tuple[int, int]) -> None:
        self._fd = fd
        self._path = path
        self._key = key
        self._process_id = os.getpid()
        _locks.add(self)

    @property
    def held(self) -> bool:
        return self._fd >= 0 and self._process_id == os.getpid()

    @property
    def in_place(self) -> bool:
        return leads_to(self._path, self._key)

    def release(self) -> None:
        with _registry_lock:
            if self._fd < 0:
                return
            fd, self._fd = self._fd, -1
            try:
                if self._process_id == os.getpid():  # a forked child holds nothing (OL2)
                    del _held[self._key]
                    _write(fd, b"\n")
            finally:
                os.close(fd)


class HeldDescriptor:
    """What is held with an open file: names, or itself (see `quire.env.FileLock`).

    `release` may be called twice.
    """

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        _locks.add(self)

    @property
    def held(self) -> bool:
        return self._fd >= 0

    @property
    def in_place(self) -> bool:
        return self._fd >= 0 and leads_to(self._path, key_of(self._fd))

    def release(self) -> None:
        with _registry_lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    def __del__(self) -> None:
        self.release()


def _let_go_in_child() -> None:
    """The parent's locks are not the child's (OL2)."""
    global _registry_lock  # noqa: PLW0603 - a lock cannot be made anew in place
    _registry_lock = threading.RLock()  # another thread may have held it at the fork
    _held.clear()
    for lock in list(_locks):
        fd, lock._fd = lock._fd, -1
        if fd >= 0:
            os.close(fd)


# No fork in the midst of a lock's taking or release, whose file the child would keep (OL2).
os.register_at_fork(
    before=lambda: _registry_lock.acquire(),  # noqa: PLW0108 - that of the moment
    after_in_parent=lambda: _registry_lock.release(),  # noqa: PLW0108
    after_in_child=_let_go_in_child,
)


def lock_file(path: str, owner: str) -> OsFileLock:
    """Take the lock at `path`, creating the file. Raises StoreLocked that names the holder."""
    with _registry_lock:
        while True:
            _check_own_process(path)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                lock = _lock_descriptor(fd, path, owner)
            except BaseException:
                os.close(fd)
                raise
            if lock is not None:
                return lock
            os.close(fd)


def is_locked(path: str) -> bool:
    """Whether somebody holds the lock at `path`; without writing, on any file system."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for as long as the file is open: a moment
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return True
    finally:
        os.close(fd)
    return False


def hold_file(path: str) -> HeldDescriptor:
    """Lock a file by itself (OL5), by a descriptor of its own, which a forked child closes."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    guard = HeldDescriptor(fd, path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        guard.release()
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise StoreLocked(guarded_words(path)) from None
    return guard


def guarded_words(path: str) -> str:
    """Why somebody else cannot guard the file."""
    return (
        f"{path} is in use by a process that owns its store, although the store's lock is free: "
        "its LOCK was removed or replaced, or the store has got another path; stop that process, "
        "and try again"
    )


def _check_own_process(path: str) -> None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    held = _held.get((status.st_dev, status.st_ino))
    if held is not None and held[0] == os.getpid():
        raise StoreLocked(
            f"{path} is locked by this process (pid {held[0]}), by {held[1]};"
            " close the store there, or share the open one"
        )


def _lock_descriptor(fd: int, path: str, owner: str) -> OsFileLock | None:
    """None if the file was replaced between opening and locking it: try again."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        raise StoreLocked(_describe_holder(fd, path)) from None
    key = key_of(fd)
    if not leads_to(path, key):
        return None
    _write(fd, f"{os.getpid()}\n{owner}\n".encode())
    lock = OsFileLock(fd, path, key)
    _held[key] = (os.getpid(), owner)
    return lock


def key_of(fd: int) -> tuple[int, int]:
    """What tells an open file from all others: its device and inode."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def leads_to(path: str, key: tuple[int, int]) -> bool:
    """Whether the path names the file (`key_of`)."""
    try:
        named = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (named.st_dev, named.st_ino) == key


def _write(fd: int, text: bytes) -> None:
    """Make this the file's content, in the block that it has (L3)."""
    try:
        os.pwrite(fd, text, 0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return
    os.ftruncate(fd, len(text))


def _describe_holder(fd: int, path: str) -> str:
    process_id, _, owner = os.pread(fd, 4096, 0).decode(errors="replace").partition("\n")
    user = os.fstat(fd).st_uid
    if os.geteuid() not in (0, user):
        return (
            f"{path} is locked by a process of user {user}: permission denied, a store is its "
            "user's alone; run this as that user"
        )
    if not process_id:
        return f"{path} is locked by another process, which has not written its name yet; retry"
    return (
        f"{path} is locked by process {process_id}, by {owner.strip()};"
        " stop that process, or connect to the store that it has open"
    )
