"""Bytes of leased places, for readers on other hosts, which have no files of the store.

- What is returned is not verified: the reader does that, by the checksums that its pieces name.
- PLB1: nothing is returned but of a file that is the named queue's, or what a lease of it has: who
  may read a queue reads no other by a place or a file that is not its own.
- Memory is bounded: one request has `PLACES_BYTES` at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quire.arguments import are_several, is_int
from quire.engine.pages.block_places import Places
from quire.engine.pages.data_files import split_address
from quire.engine.reading.lease import Leases
from quire.env import Env, File
from quire.errors import InvalidArgument, PositionLost
from quire.journal import Journal
from quire.limits import PLACES_BYTES
from quire.ltds import path_of

LARGE: Final = "ltds"
_KINDS: Final = ("journal", "data", LARGE)
PlaceSpan = tuple[str, int, int, int]
"""The kind and the address of a piece, and an offset and a length from there on."""


class PlaceBytes:
    """The bytes of leased places of a store. Thread-safe."""

    def __init__(self, env: Env, journal: Journal, places: Places, leases: Leases) -> None:
        self._env = env
        self._leases = leases
        self._journal = journal
        self._data = places.data
        self._files = places.ltds
        self._ltds_directory = places.ltds_directory

    def read(self, queue: str, places: object) -> list[bytes]:
        """Return the bytes of each place of the queue (PLB1).

        Raises InvalidArgument, PositionLost, StoreCorrupt.
        """
        checked = _checked(places)
        for kind, address, offset, length in checked:
            self._check_leased(queue, kind, address, offset + length)
        files = _OneFile(self._env)
        try:
            return [bytes(self._read_place(files, *each)) for each in checked]
        finally:
            files.close()

    def size(self, queue: str, file: int) -> int:
        """Return the size of a large transaction's file (PLB1). Raises PositionLost."""
        path = self._path(file)
        self._check_leased(queue, LARGE, file, 0)
        try:
            opened = self._env.open_file(path, read_only=True)
        except FileNotFoundError:
            raise _gone(path) from None
        try:
            return opened.size()
        finally:
            opened.close()

    def _check_leased(self, queue: str, kind: str, address: int, end: int) -> None:
        is_own = kind == LARGE and self._files.get(address) == queue
        if not is_own and not self._leases.has_place(queue, kind, address, end):
            raise PositionLost(
                f"{kind} {address:#x}: it is not queue {queue!r}'s, or the lease on it has ended: "
                "plan the read anew"
            )

    def _read_place(
        self, files: _OneFile, kind: str, address: int, offset: int, length: int
    ) -> bytes | memoryview:
        if kind == LARGE:
            return files.read(self._path(address), offset, length)
        if kind == "journal":
            return self._journal.read(address + offset, length)
        number, _ = split_address(address)
        if number >= len(self._data):
            raise InvalidArgument(f"address {address:#x}: give that of a leased piece")
        return self._data.read(address + offset, length)

    def _path(self, file: object) -> str:
        if not is_int(file) or not 0 <= file < 1 << 63:
            raise InvalidArgument(f"file {file!r:.100}: give the id of a large transaction's file")
        return path_of(self._ltds_directory, file)


class _OneFile:
    """The file that a request reads, which stays open for the places of it that follow."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._path = ""
        self._file: File | None = None

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return bytes of the file at the path. Raises PositionLost."""
        if self._file is None or path != self._path:
            self.close()
            try:
                self._file, self._path = self._env.open_file(path, read_only=True), path
            except FileNotFoundError:
                raise _gone(path) from None
        return self._file.read(offset, length)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _gone(path: str) -> PositionLost:
    return PositionLost(
        f"{path}: the file is not there any more: the lease may have ended; plan the read anew"
    )


def _checked(places: object) -> Sequence[PlaceSpan]:
    """Raises InvalidArgument."""
    if not are_several(places):
        raise InvalidArgument(f"places {places!r:.100}: give several")
    checked: list[PlaceSpan] = []
    total = 0
    for each in places:
        if not (
            isinstance(each, (tuple, list))
            and len(each) == 4
            and each[0] in _KINDS
            and all(is_int(number) and 0 <= number < 1 << 63 for number in each[1:])
        ):
            shown = tuple(each) if isinstance(each, list) else each  # as before it was sent
            raise InvalidArgument(
                f"place {shown!r:.200}: give (kind, address, offset, length), the first two as a "
                "Piece has them"
            )
        checked.append((each[0], each[1], each[2], each[3]))
        total += each[3]
    if total > PLACES_BYTES:
        raise InvalidArgument(
            f"{total} bytes of places: read {PLACES_BYTES} at most at a time, and the rest after it"
        )
    return checked
