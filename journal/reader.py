"""Reading the journal by address: inside its owner, or beside it.

Invariants:

JR1  Bytes of a segment that was recycled meanwhile are never returned as the old ones: the check
    that it is still the same comes after the read, and recycling rewrites the header first (JG2).
JR2  At most `limit` files are open for reading, but for those that a read is using right now.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing

from quire.env import Env, File
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, PositionLost, StoreCorrupt
from quire.limits import MIN_PAGE_SIZE_BYTES, READ_HANDLES

from .format import SEGMENT_HEADER_BYTES
from .segment import Directory, read_header, segment_path


class _Handle:
    __slots__ = ("dropped", "file", "users")

    def __init__(self, file: File) -> None:
        self.file = file
        self.users = 0
        self.dropped = False


class ReadHandles:
    """Open segment files for reading, the least recently used closed first (JR2). Thread-safe."""

    def __init__(self, directory: Directory, limit: int = READ_HANDLES) -> None:
        self._directory = directory
        self._limit = limit
        self._lock = Lock()
        self._handles: OrderedDict[int, _Handle] = OrderedDict()

    def __len__(self) -> int:
        return len(self._handles)

    def read(self, number: int, offset: int, length: int) -> bytes:
        """Bytes of a segment. Raises FileNotFoundError if it has no file."""
        with self._lock:
            handle = self._handles.get(number)
            if handle is None:
                handle = self._open(number)
            else:
                self._handles.move_to_end(number)
            handle.users += 1
        try:
            return handle.file.read(offset, length)
        finally:
            with self._lock:
                handle.users -= 1
                if handle.dropped and handle.users == 0:
                    handle.file.close()

    def drop(self, number: int) -> None:
        """Forget the segment's file: its name will mean another one, or nothing."""
        with self._lock:
            self._drop(number)

    def close(self) -> None:
        with self._lock:
            for number in list(self._handles):
                self._drop(number)

    def _open(self, number: int) -> _Handle:
        path = self._directory.path_of(number)
        handle = _Handle(self._directory.env.open_file(path, read_only=True))
        self._handles[number] = handle
        if len(self._handles) > self._limit:
            self._drop(next(iter(self._handles)))
        return handle

    def _drop(self, number: int) -> None:
        handle = self._handles.pop(number, None)
        if handle is not None:
            handle.dropped = True
            if handle.users == 0:
                handle.file.close()


def check_range(segment_bytes: int, address: int, length: int) -> tuple[int, int]:
    """(segment number, offset in the file); InvalidArgument unless the range is in one segment."""
    number, offset = divmod(address, segment_bytes)
    if address < 0 or length < 0 or offset < MIN_PAGE_SIZE_BYTES or offset + length > segment_bytes:
        raise InvalidArgument(
            f"journal range at {address:#x}, {length} bytes: give an address inside a group, and a"
            " length that ends in the same segment"
        )
    return number, offset


def read_at(env: Env, directory: str, segment_bytes: int, address: int, length: int) -> bytes:
    """Bytes of a journal that another process may own and write. The caller checks their checksum.

    Raises PositionLost if the segment was released (JR1); the owner's pin prevents that.
    """
    number, offset = check_range(segment_bytes, address, length)
    path = segment_path(directory, number)
    try:
        file = env.open_file(path, read_only=True)
    except FileNotFoundError:
        raise lost(path, address) from None
    with closing(file):
        data = file.read(offset, length)
        there = file.size() >= SEGMENT_HEADER_BYTES
        if not there or read_header(file).base_lsn != number * segment_bytes:
            raise lost(path, address)
    return whole(path, offset, length, data)


def whole(path: str, offset: int, length: int, data: bytes) -> bytes:
    """Return the data, which must have the length that was asked for. Raises StoreCorrupt."""
    if len(data) != length:
        raise StoreCorrupt(
            f"{path}: offset {offset}: the file ends before {length} bytes; restore it from a copy"
        )
    return data


def lost(path: str, address: int) -> PositionLost:
    """Return the error for an address in a segment that is not there."""
    return PositionLost(
        f"{path}: journal address {address:#x} was released and is not in the store any more; pin"
        " the segment while you need it"
    )
