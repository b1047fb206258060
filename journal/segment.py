"""One segment file: its names, its making, its header, and reading it in large pieces.

Invariants:

JG1  A file with a segment's name always has a valid header, its full size, and preallocated space
    as far as the header says (`capacity`): all are synced under another name before the rename, and
    the directory is synced before the first use.
JG2  The header of a recycled file is rewritten and synced before any other page of it is. So bytes
    read from a file whose header, read afterwards, still says the old base LSN, are the old bytes.
JG3  Space is given to a file while it is not in use: growing the file that commits are written to
    would make the next of them wait for the file system's own journal.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quire.env import Env, File
from quire.errors import DiskFull, StoreCorrupt, StoreVersion
from quire.limits import SCAN_WINDOW_BYTES

from .format import (
    SEGMENT_HEADER_BYTES,
    VERSION,
    Geometry,
    SegmentHeader,
    pack_segment_header,
    unpack_segment_header,
)

SEGMENT_SUFFIX: Final = ".log"
SPARE_SUFFIX: Final = ".spare"  # a released segment that waits to become a later one
SPARE_NUMBERS: Final = range((1 << 64) - 1, 1 << 63, -1)  # for names of spares: no segment has them
UNFINISHED_SUFFIX: Final = ".tmp"  # a new segment in the making
SUFFIXES: Final = (SEGMENT_SUFFIX, SPARE_SUFFIX, UNFINISHED_SUFFIX)


def segment_path(directory: str, number: int, suffix: str = SEGMENT_SUFFIX) -> str:
    return f"{directory}/{number:016x}{suffix}"


def segment_number(name: str, suffix: str = SEGMENT_SUFFIX) -> int | None:
    """The number in a file's name; None if it is not the name of such a file."""
    digits = name.removesuffix(suffix)
    if len(digits) != 16 or len(name) != 16 + len(suffix):
        return None
    if not all(digit in "0123456789abcdef" for digit in digits):
        return None
    return int(digits, 16)


def list_segments(env: Env, directory: str) -> list[int]:
    """The numbers of the segments in the directory, ascending; none if it is missing."""
    if not env.exists(directory):
        return []
    numbers = (segment_number(name) for name in env.list_directory(directory))
    return sorted(number for number in numbers if number is not None)


class Spare(NamedTuple):
    """A file that waits to become a segment."""

    capacity: int
    path: str


def write_header(
    env: Env, file: File, geometry: Geometry, number: int, capacity: int, created_us: int
) -> None:
    page = env.aligned_buffer(geometry.page_size)
    page[:] = bytes(geometry.page_size)
    pack_segment_header(page, geometry, number, created_us, capacity)
    file.write(0, page)


def make_spare(env: Env, path: str, geometry: Geometry, capacity: int, *, direct: bool) -> None:
    """A new file with so much space, and the header of segment 0. Raises DiskFull."""
    file = env.open_file(path, create=True, direct=direct)
    try:
        file.allocate(0, capacity)
        if capacity < geometry.segment_bytes:
            file.truncate(geometry.segment_bytes)
        write_header(env, file, geometry, 0, capacity, created_us=0)
        file.sync()
    finally:
        file.close()


def make_segment(
    env: Env,
    directory: str,
    geometry: Geometry,
    number: int,
    spare: Spare,
    *,
    wanted: int,
    need: int,
    direct: bool,
) -> int:
    """Make segment `number` of a spare file, durably (JG1, JG2); its capacity.

    It gets as much space as is `wanted`, or stays as it is where there is no room for that. Raises
    DiskFull if that is less than the `need`: the spare is what it was.
    """
    capacity = spare.capacity
    file = env.open_file(spare.path, direct=direct)
    try:
        if wanted > capacity:
            try:
                file.allocate(capacity, wanted - capacity)
                capacity = wanted
            except DiskFull:
                file.punch(capacity, wanted - capacity)  # a part of it may have been given
                if capacity < need:
                    raise
        write_header(env, file, geometry, number, capacity, env.now_us())
        file.sync()
    finally:
        file.close()
    path = segment_path(directory, number)
    if spare.path != path:
        env.rename(spare.path, path)
        env.sync_directory(directory)
    return capacity


def capacity_of(env: Env, path: str, geometry: Geometry) -> int:
    """How much space a file has, as its header says: all of it where that cannot be read."""
    file = env.open_file(path, read_only=True)
    try:
        header = unpack_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
    finally:
        file.close()
    if header is None or header.version != VERSION or not header.capacity:
        return geometry.segment_bytes
    return min(header.capacity, geometry.segment_bytes)


def read_header(file: File) -> SegmentHeader:
    """The file's header. Raises StoreCorrupt, or StoreVersion for one of another release."""
    header = unpack_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
    if header is None:
        raise StoreCorrupt(
            f"{file.path}: page 0, offset 0: the segment header is damaged; restore the file from"
            " a copy"
        )
    if header.version != VERSION:
        raise StoreVersion(
            f"{file.path}: journal format version {header.version}; this release reads version"
            f" {VERSION}: use the release that wrote it"
        )
    return header


def check_header(file: File, header: SegmentHeader, geometry: Geometry, number: int) -> None:
    """Raise StoreCorrupt unless the header is that of segment `number` of this journal."""
    found = (header.store_id, header.segment_bytes, header.page_size, header.base_lsn)
    expected = (*geometry, number * geometry.segment_bytes)
    if found != expected:
        raise StoreCorrupt(
            f"{file.path}: page 0, offset 0: the segment header says store, segment bytes, page"
            f" size, base LSN {found}, not {expected}: the file belongs elsewhere"
        )


class SegmentReader:
    """Reads one segment through a window, so that small groups cost no read call each."""

    def __init__(self, env: Env, directory: str, number: int) -> None:
        self.number = number
        self.path = segment_path(directory, number)
        self._file = env.open_file(self.path, read_only=True)
        self._window = b""
        self._start = 0

    def check(self, geometry: Geometry) -> None:
        """Raise StoreCorrupt or StoreVersion unless header and size are as JG1 says."""
        check_header(self._file, read_header(self._file), geometry, self.number)
        size = self._file.size()
        if size != geometry.segment_bytes:
            raise StoreCorrupt(
                f"{self.path}: page 0, offset 0: the file has {size} bytes, not"
                f" {geometry.segment_bytes}: restore it from a copy"
            )

    def read(self, offset: int, length: int) -> memoryview:
        """Bytes from `offset`, fewer at the end of the file. They stay valid and unchanged."""
        start = offset - self._start
        if start < 0 or start + length > len(self._window):
            self._window = self._file.read(offset, max(length, SCAN_WINDOW_BYTES))
            self._start = offset
            start = 0
        return memoryview(self._window)[start : start + length]

    def close(self) -> None:
        self._window = b""
        self._file.close()
