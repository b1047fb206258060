"""The lock that makes one process the owner of a store.

- At most one holder at a time, over all processes and over all threads of one process.
- OL2: the lock ends with its process, however that ends, and is not inherited by a fork.
- The file holds the owner's process id and description while the lock is held, and whoever is
  refused reads them in the error. It keeps its block meanwhile, so that a full disk is no obstacle;
  where it has none and there is no room, the lock is held without a name.
- A lock of a name in a file, and of a guarded file (OL5), keep to the first two rules as well.
- OL5: nothing is written to a file that is guarded.
- A holder can tell that its file is not at its path any more. Then somebody else can lock what is
  at the path now.

A lock of the open file (flock) has one holder: unlike a POSIX record lock it is not dropped when
the process closes some other descriptor of the file, as copying a store's directory does. A forked
child shares it, so the child closes its descriptor at once (OL2); one that is forked without
Python's knowledge keeps the store locked until it ends, which is the safe side. A registry keyed by
device and inode lets the error say that it is this process that holds the lock.

Names are locked in one file, which nothing else uses: a name's lock is that of one byte, where the
name's hash says. That is one descriptor for thousands of names, and no file for each that nobody
would remove. Two names that have one byte, once in 2^62, exclude each other. Linux locks bytes for
an open file, so each holder has a descriptor. Elsewhere a byte is locked for a process, which has a
table of the bytes that its threads hold; and it lets go of all of them when the process closes any
descriptor of the file. So there is one for all holders, closed with the last of them. A program
that copies a store that it has open, file by file, would let go of them too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Iterable, Sequence
from typing import Final

from quire.errors import StoreLocked
from quire.libraries.late_imports import importing

from .interpreter import RLock
from .os_descriptors import key_of, open_descriptor
from .os_platform import BYTES_OF_OPEN_FILES, free_byte, lock_byte

_TAKEN: Final = (errno.EACCES, errno.EAGAIN)
_NAMES_FLAGS: Final = os.O_RDWR | os.O_CREAT
_registry_lock = RLock()  # a finaliser may release a lock while another one is taken
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
    """A lock that ends with an open file: of names, or of the file (see `quire.env.FileLock`).

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


class _NameTable:
    """The names of one file that this process has locked."""

    def __init__(self, descriptors: list[int]) -> None:
        self.descriptors = descriptors
        self.held: set[int] = set()


_tables: Final[dict[tuple[int, int], _NameTable]] = {}  # by device and inode


class HeldNames:
    """Names that this process holds (see `quire.env.FileLock`). `release` may be called twice."""

    def __init__(self, path: str, key: tuple[int, int], places: set[int]) -> None:
        self._path = path
        self._key = key
        self._places = places
        self._process_id = os.getpid()

    def take(self, table: _NameTable, place: int) -> bool:
        """Hold one more; False: somebody else does."""
        if place in self._places:
            return True
        if place in table.held:
            return False
        self._places.add(place)  # first, so that an interrupt leaves nothing that nobody frees
        table.held.add(place)
        try:
            lock_byte(table.descriptors[0], place)
        except OSError as error:
            self._places.discard(place)
            table.held.discard(place)
            if error.errno not in _TAKEN:
                raise
            return False
        return True

    @property
    def held(self) -> bool:
        return bool(self._places) and self._process_id == os.getpid()

    @property
    def in_place(self) -> bool:
        return self.held and leads_to(self._path, self._key)

    def release(self) -> None:
        with _registry_lock:
            places, self._places = self._places, set()
            if self._process_id == os.getpid():
                _free(self._key, places)

    def __del__(self) -> None:
        self.release()


def _let_go_in_child() -> None:
    """The parent's locks are not the child's (OL2)."""
    global _registry_lock  # noqa: PLW0603 - a lock cannot be made anew in place
    _registry_lock = RLock()  # another thread may have held it at the fork
    _held.clear()
    for lock in list(_locks):
        fd, lock._fd = lock._fd, -1
        if fd >= 0:
            os.close(fd)
    for table in _tables.values():  # which lets go of nothing of the parent's
        for fd in table.descriptors:
            os.close(fd)
    _tables.clear()


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
            fd = open_descriptor(path, os.O_RDWR | os.O_CREAT)
            try:
                lock = _lock_descriptor(fd, path, owner)
            except BaseException:
                os.close(fd)
                raise
            if lock is not None:
                return lock
            os.close(fd)


def is_locked(path: str) -> bool:
    """Return True if somebody holds the lock at `path`; without writing, on any file system."""
    try:
        fd = open_descriptor(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for as long as the file is open: a moment
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        return True
    finally:
        os.close(fd)
    return False


def lock_names(path: str, names: Sequence[str]) -> HeldDescriptor | HeldNames | str:
    """Take all of the names, or tell the first that is taken."""
    if BYTES_OF_OPEN_FILES:
        return _lock_for_file(path, names)
    return _lock_for_process(path, names)


def _lock_for_file(path: str, names: Sequence[str]) -> HeldDescriptor | str:
    fd = open_descriptor(path, _NAMES_FLAGS)
    lock = HeldDescriptor(fd, path)
    for name in names:
        try:
            lock_byte(fd, _place_of(name))
        except OSError as error:
            lock.release()
            if error.errno not in _TAKEN:
                raise
            return name
    return lock


def _lock_for_process(path: str, names: Sequence[str]) -> HeldNames | str:
    with _registry_lock:
        key, table = _table_at(path)
        lock = HeldNames(path, key, set())
        try:
            for name in names:
                if not lock.take(table, _place_of(name)):
                    lock.release()
                    return name
        except BaseException:
            lock.release()
            raise
        return lock


def _table_at(path: str) -> tuple[tuple[int, int], _NameTable]:
    """Return the table of the file at the path, which is made if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        pass
    else:
        table = _tables.get((status.st_dev, status.st_ino))
        if table is not None:  # a further descriptor could not be closed before all is released
            return (status.st_dev, status.st_ino), table
    fd = open_descriptor(path, _NAMES_FLAGS)
    key = key_of(fd)
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = _NameTable([fd])
    else:  # the path leads to it since the moment before
        table.descriptors.append(fd)
    return key, table


def _free(key: tuple[int, int], places: Iterable[int]) -> None:
    """Let go of them, and of the file with the last."""
    table = _tables.get(key)
    if table is None:
        return
    for place in places:
        free_byte(table.descriptors[0], place)
        table.held.discard(place)
    if not table.held:
        del _tables[key]
        for fd in table.descriptors:
            os.close(fd)


def _place_of(name: str) -> int:
    with importing():
        from hashlib import blake2b  # which loads OpenSSL, and only names need it

    digest = blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


def hold_file(path: str) -> HeldDescriptor:
    """Lock a file by itself (OL5), by a descriptor of its own, which a forked child closes."""
    fd = open_descriptor(path, os.O_RDWR)
    guard = HeldDescriptor(fd, path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        guard.release()
        if error.errno not in _TAKEN:
            raise
        raise StoreLocked(guarded_words(path)) from None
    return guard


def guarded_words(path: str) -> str:
    """Return why somebody else cannot guard the file."""
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
    holder = _held.get((status.st_dev, status.st_ino))
    if holder is not None and holder[0] == os.getpid():
        raise StoreLocked(
            f"{path} is locked by this process (pid {holder[0]}), which has opened the store by "
            f"{holder[1]}; close the store there, or share the open one"
        )


def _lock_descriptor(fd: int, path: str, owner: str) -> OsFileLock | None:
    """Lock the open file; None if the file was replaced between opening and locking it: try
    again.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        raise StoreLocked(_describe_holder(fd, path)) from None
    key = key_of(fd)
    if not leads_to(path, key):
        return None
    _write(fd, f"{os.getpid()}\n{owner}\n".encode())
    lock = OsFileLock(fd, path, key)
    _held[key] = (os.getpid(), owner)
    return lock


def leads_to(path: str, key: tuple[int, int]) -> bool:
    """Return True if the path names the file (`key_of`)."""
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
        f"{path} is locked by process {process_id}, which has opened the store by "
        f"{owner.strip()}; stop that process, or connect to the store that it has open"
    )
