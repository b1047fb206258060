"""Locks of names in one file, which nothing else uses.

- Each name has one holder at a time, over all processes and all threads of one process; the lock
  ends with its process, however that ends, and is not inherited by a fork.
- A name's lock is that of one byte of the file, where the name's hash says: one descriptor for
  thousands of names, and no file for each that nobody would remove. Two names that have one byte,
  once in 2^62, exclude each other.

Linux locks bytes for an open file, so each holder has a descriptor. Elsewhere a byte is locked for
a process, which has a table of the bytes that its threads hold; and it lets go of all of them when
the process closes any descriptor of the file. So there is one for all holders, closed with the last
of them. A program that copies a store that it has open, file by file, would let go of them too.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from .os_lock import HeldDescriptor, key_of, leads_to
from .os_platform import BYTES_OF_OPEN_FILES, free_byte, lock_byte

_TAKEN: Final = (errno.EACCES, errno.EAGAIN)
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC

_table_lock = threading.RLock()  # a finaliser may release names while others are taken


@dataclass(slots=True)
class _Table:
    """What this process holds of one file."""

    descriptors: list[int]
    held: set[int] = field(default_factory=set)


_tables: Final[dict[tuple[int, int], _Table]] = {}  # by device and inode


class HeldNames:
    """Names that this process holds (see `quire.env.FileLock`). `release` may be called twice."""

    def __init__(self, path: str, key: tuple[int, int], places: set[int]) -> None:
        self._path = path
        self._key = key
        self._places = places
        self._process_id = os.getpid()

    def take(self, table: _Table, place: int) -> bool:
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
        with _table_lock:
            places, self._places = self._places, set()
            if self._process_id == os.getpid():
                _free(self._key, places)

    def __del__(self) -> None:
        self.release()


def lock_names(path: str, names: Sequence[str]) -> HeldDescriptor | HeldNames | str:
    """Take all of the names, or tell the first that is taken."""
    if BYTES_OF_OPEN_FILES:
        return _lock_for_file(path, names)
    return _lock_for_process(path, names)


def _lock_for_file(path: str, names: Sequence[str]) -> HeldDescriptor | str:
    fd = os.open(path, _FLAGS, 0o600)
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
    with _table_lock:
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


def _table_at(path: str) -> tuple[tuple[int, int], _Table]:
    """That of the file at the path, which is made if there is none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        pass
    else:
        table = _tables.get((status.st_dev, status.st_ino))
        if table is not None:  # a further descriptor could not be closed before all is released
            return (status.st_dev, status.st_ino), table
    fd = os.open(path, _FLAGS, 0o600)
    key = key_of(fd)
    table = _tables.get(key)
    if table is None:
        table = _tables[key] = _Table([fd])
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
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


def _let_go_in_child() -> None:
    """The parent's names are not the child's, nor does it let go of them by closing its files."""
    global _table_lock  # noqa: PLW0603 - a lock cannot be made anew in place
    _table_lock = threading.RLock()
    for table in _tables.values():
        for fd in table.descriptors:
            os.close(fd)
    _tables.clear()


os.register_at_fork(
    before=lambda: _table_lock.acquire(),  # noqa: PLW0108 - that of the moment
    after_in_parent=lambda: _table_lock.release(),  # noqa: PLW0108
    after_in_child=_let_go_in_child,
)
