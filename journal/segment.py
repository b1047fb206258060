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

from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from quire.env import Env, File
from quire.errors import ResourceExhausted, StoreCorrupt, StoreVersion
from quire.limits import SCAN_WINDOW_BYTES

from .format import (
    GROUP_HEADER_BYTES,
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


def list_segments(env: Env, directory: str, suffix: str = SEGMENT_SUFFIX) -> list[int]:
    """The numbers of the segments in the directory, ascending; none if it is missing."""
    names = env.list_directory(directory) if env.exists(directory) else ()
    numbers = (segment_number(name, suffix) for name in names)
    return sorted(number for number in numbers if number is not None)


class Directory(NamedTuple):
    """A journal's directory, and what all of its segments have in common."""

    env: Env
    path: str
    geometry: Geometry
    direct: bool = False  # its files are written past the page cache
    is_lenient: bool = False  # headers and sizes of its files may be wrong: each group is verified

    def path_of(self, number: int, suffix: str = SEGMENT_SUFFIX) -> str:
        return segment_path(self.path, number, suffix)

    def segments(self) -> list[int]:
        return list_segments(self.env, self.path)

    def location(self, lsn: int) -> str:
        """A place as error messages name it: file, page, offset."""
        number, offset = divmod(lsn, self.geometry.segment_bytes)
        return f"{self.path_of(number)}: page {offset // self.geometry.page_size}, offset {offset}"

    def sync(self) -> None:
        """The names of its files are durable."""
        self.env.sync_directory(self.path)

    def free_spares(self) -> Iterator[str]:
        """Names for spares that no file has now, nor any segment will leave behind."""
        taken = list_segments(self.env, self.path, SPARE_SUFFIX)
        return (self.path_of(n, SPARE_SUFFIX) for n in SPARE_NUMBERS if n not in taken)


class Spare(NamedTuple):
    """A file that waits to become a segment."""

    capacity: int
    path: str


def make_spare(directory: Directory, path: str, capacity: int) -> Spare:
    """A new file with so much space, and the header of segment 0. Raises DiskFull."""
    segment_bytes = directory.geometry.segment_bytes
    with closing(directory.env.open_file(path, create=True, direct=directory.direct)) as file:
        file.allocate(0, capacity)
        if capacity < segment_bytes:
            file.truncate(segment_bytes)
        _write_header(directory, file, 0, capacity, created_us=0)
        file.sync()
    return Spare(capacity, path)


def make_segment(directory: Directory, number: int, spare: Spare, preferred: int, need: int) -> int:
    """Make segment `number` of a spare file, durably (JG1, JG2); its capacity.

    It gets as much space as is `wanted`, or stays as it is where there is no room for that. Raises
    DiskFull if that is less than the `need`: the spare is what it was.
    """
    env, capacity = directory.env, spare.capacity
    with closing(env.open_file(spare.path, direct=directory.direct)) as file:
        if preferred > capacity:
            try:
                file.allocate(capacity, preferred - capacity)
                capacity = preferred
            except ResourceExhausted:
                file.punch(capacity, preferred - capacity)  # a part of it may have been given
                if capacity < need:
                    raise
        _write_header(directory, file, number, capacity, env.now_us())
        file.sync()
    path = directory.path_of(number)
    if spare.path != path:
        env.rename(spare.path, path)
        directory.sync()
    return capacity


def _write_header(
    directory: Directory, file: File, number: int, capacity: int, created_us: int
) -> None:
    page_size = directory.geometry.page_size
    page = directory.env.aligned_buffer(page_size)
    page[:] = bytes(page_size)
    pack_segment_header(page, directory.geometry, number, created_us, capacity)
    file.write(0, page)


def capacity_of(directory: Directory, path: str) -> int:
    """Return the space of a file, as its header says; the whole size where that cannot be read."""
    with closing(directory.env.open_file(path, read_only=True)) as file:
        header = unpack_segment_header(file.read(0, SEGMENT_HEADER_BYTES))
    segment_bytes = directory.geometry.segment_bytes
    if header is None or header.version != VERSION or not header.capacity:
        return segment_bytes
    return min(header.capacity, segment_bytes)


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


def geometry_in(env: Env, path: str) -> Geometry:
    """Return the geometry in a segment's header. Raises StoreCorrupt, StoreVersion."""
    with closing(env.open_file(path, read_only=True)) as file:
        header = read_header(file)
    return Geometry(header.store_id, header.segment_bytes, header.page_size)


class SegmentReader:
    """Reads one segment through a window, so that small groups cost no read call each."""

    def __init__(self, directory: Directory, number: int) -> None:
        """Open the segment.

        Raises StoreCorrupt or StoreVersion unless header and size are as JG1 says, or the
        directory is lenient.
        """
        self.number = number
        self.path = directory.path_of(number)
        self._file = directory.env.open_file(self.path, read_only=True)
        self.window = memoryview(b"")  # what was read at last: it stays valid, and unchanged
        self.start = 0  # the offset where that begins
        try:
            if not directory.is_lenient:
                self._check(directory.geometry)
        except BaseException:
            self._file.close()
            raise

    def _check(self, geometry: Geometry) -> None:
        header = read_header(self._file)
        found = (header.store_id, header.segment_bytes, header.page_size, header.base_lsn)
        expected = (*geometry, self.number * geometry.segment_bytes)
        if found != expected:
            raise StoreCorrupt(
                f"{self.path}: page 0, offset 0: the segment header says store, segment bytes, page"
                f" size, base LSN {found}, not {expected}: the file belongs elsewhere"
            )
        size = self._file.size()
        if size != geometry.segment_bytes:
            raise StoreCorrupt(
                f"{self.path}: page 0, offset 0: the file has {size} bytes, not"
                f" {geometry.segment_bytes}: restore it from a copy"
            )

    def read(self, offset: int, length: int) -> memoryview:
        """Return bytes from `offset`, fewer at the end of the file."""
        start = offset - self.start
        if start < 0 or start + length > len(self.window):
            self.move(offset, length)
            start = 0
        return self.window[start : start + length]

    def move(self, offset: int, length: int) -> memoryview:
        """Read from `offset`, at least so many bytes where the file has them; return the window."""
        # Twice as much each time: a short journal is mostly space that nobody has to read.
        ahead = min(max(2 * len(self.window), SCAN_WINDOW_BYTES >> 4), SCAN_WINDOW_BYTES)
        self.window = memoryview(self._file.read(offset, max(length, ahead)))
        self.start = offset
        return self.window

    def next_data(self, offset: int) -> range:
        """The next bytes from `offset` on that may be other than zeros; empty: there are none."""
        return self._file.next_data(offset)

    def close(self) -> None:
        self.window = memoryview(b"")
        self._file.close()


def take_back(file: File, place: int, group: memoryview, page_size: int, *, cached: bool) -> None:
    """Let nothing come back of a group whose write at that place was refused (J11).

    `group` is used for that. Raises what the file raises where it is not certain.
    """
    is_there = file.read(place, GROUP_HEADER_BYTES) == bytes(group[:GROUP_HEADER_BYTES])
    page = group[:page_size]
    page[:] = bytes(page_size)
    try:
        if cached:
            file.write_cached(place, page)
        else:
            file.write(place, page)
        file.sync()
    except ResourceExhausted:
        if is_there:
            raise


def parent_of(directory: str) -> str:
    """The directory that it is in."""
    head, slash, _ = directory.rpartition("/")
    return head or slash or "."
