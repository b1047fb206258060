"""The files of a store behind a URL: its server reads and writes them for tasks on other hosts.

- Bytes come as they are in the files, and are verified here as those of a file of this host are.
- Memory is bounded: `PLACES_BYTES` that were fetched ahead, and a block, for each reader; what a
    writer has gathered for one part.
- A part that was written is durable, as is the name of its file. So nothing is left to sync.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from quire import ltds
from quire.env import Env, OsEnv
from quire.errors import PositionLost
from quire.libraries.late_imports import importing
from quire.limits import PLACES_BYTES
from quire.reports.info import Piece
from quire.spark_graphs import connection
from quire.spark_graphs.limits import FILE_END_BYTES

if TYPE_CHECKING:
    from quire.engine import PieceReader
    from quire.interface.integration import Integration

_LARGE: Final = "ltds"
Result = TypeVar("Result")
_PlaceKey = tuple[str, int, int]  # kind, address, length
_FileSpan = tuple[int, int]  # of a file: an offset and a length


class ServedFiles:
    """The files of a store at a server."""

    def __init__(self, url: str, env: Env | None = None) -> None:
        self._url = url
        self._env = env or OsEnv()

    def reader(self) -> PieceReader:
        with importing():
            from quire.engine import PieceReader

        return PieceReader(ServedPieces(self._url))

    def seen(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # every error says itself what it is

    def check(self) -> None:
        connection.store_at(self._url)

    def new_fragment(
        self, queue: str, store_id: int, codec: ltds.Compression, *, streamed: bool = False
    ) -> ltds.LtdsWriter:
        file = ltds.new_id(self._env, foreign=True)
        maker = _FragmentMaker(self._url, queue, file)
        return ltds.LtdsWriter(maker, self._url, store_id, file, codec, streamed=streamed)

    def open_fragment(self, ltds_id: int, store_id: int) -> ltds.LtdsReader:
        opener = _Opener(_FragmentBytes(self._url, ltds_id))
        return ltds.LtdsReader(opener, self._url, ltds_id, store_id)

    def open_large(self, queue: str, ltds_id: int, store_id: int) -> ltds.LtdsReader:
        opener = _Opener(_LargeBytes(self._url, queue, ltds_id))
        return ltds.LtdsReader(opener, self._url, ltds_id, store_id)

    def sync_names(self) -> None:
        """Do nothing: a name is durable with the first part of its file."""

    def remove(self, ltds_ids: Iterable[int]) -> None:
        ids = list(ltds_ids)
        if ids:
            connection.call(self._url, lambda store: store.integration.remove_fragments(ids))


class ServedPieces:
    """The leased pieces of a store at a server: those that are expected are fetched together."""

    def __init__(self, url: str) -> None:
        self.path = url
        self._queue = ""
        self._ahead: deque[_PlaceKey] = deque()
        self._fetched: dict[_PlaceKey, bytes] = {}
        self._store_id = connection.call(url, lambda store: store.integration.store_id)

    def expect(self, queue: str, pieces: Sequence[Piece]) -> None:
        self._queue = queue
        self._ahead = deque(_key(piece) for piece in pieces if piece.kind != _LARGE)
        self._fetched.clear()

    def place(self, piece: Piece) -> tuple[_ServedBlock, int]:
        return _ServedBlock(self, _key(piece)), 0

    def large(self, piece: Piece) -> ltds.LtdsReader:
        opener = _Opener(_LargeBytes(self.path, self._queue, piece.address))
        return ltds.LtdsReader(opener, self.path, piece.address, self._store_id)

    def missing(self, piece: Piece) -> str | None:
        try:
            _LargeBytes(self.path, self._queue, piece.address).size()
        except PositionLost:
            return ltds.path_of(self.path, piece.address)
        return None

    def close(self) -> None:
        self._ahead.clear()
        self._fetched.clear()

    def block(self, key: _PlaceKey) -> bytes:
        """Return a block as it is at the server, with those behind it fetched along."""
        found = self._fetched.pop(key, None)
        if found is not None:
            return found
        if key[2] > PLACES_BYTES:
            return self.part(key, 0, key[2])
        self._fetched.clear()
        while self._ahead and self._ahead.popleft() != key:
            pass  # nothing was asked of those before it
        keys, total = [key], key[2]
        while self._ahead and total + self._ahead[0][2] <= PLACES_BYTES:
            keys.append(self._ahead.popleft())
            total += keys[-1][2]
        places = [(kind, address, 0, length) for kind, address, length in keys]
        queue = self._queue
        datas = _ask(self.path, lambda integration: integration.read_places(queue, places))
        self._fetched = dict(zip(keys, datas, strict=True))
        return self._fetched.pop(key)

    def part(self, key: _PlaceKey, offset: int, length: int) -> bytes:
        """Return a part of a block, and nothing else."""
        found = self._fetched.get(key)
        if found is not None:
            return found[offset : offset + length]
        end = min(offset + length, key[2])
        return _in_parts(partial(self._read, key), offset, max(0, end - offset))

    def _read(self, key: _PlaceKey, offset: int, length: int) -> bytes:
        places, queue = [(key[0], key[1], offset, length)], self._queue
        return _ask(self.path, lambda integration: integration.read_places(queue, places))[0]


class _ServedBlock:
    """A block, as a file that begins where it does."""

    def __init__(self, pieces: ServedPieces, key: _PlaceKey) -> None:
        self._pieces = pieces
        self._key = key

    def read(self, offset: int, length: int) -> bytes:
        return self._pieces.part(self._key, offset, length)

    def read_block(self, offset: int, length: int) -> bytes:
        if (offset, length) == (0, self._key[2]):
            return self._pieces.block(self._key)
        return self.read(offset, length)

    def size(self) -> int:
        return self._key[2]

    def close(self) -> None:
        """Do nothing: it is no file."""


class _FileBytes(Protocol):
    """The bytes of a file at the server. What there is not raises PositionLost."""

    def size(self) -> int:
        """Return how many there are."""

    def read(self, offset: int, length: int) -> bytes:
        """Return some of them, PLACES_BYTES at most."""

    def read_several(self, places: Sequence[_FileSpan]) -> list[bytes]:
        """Return those of several places, PLACES_BYTES at most together."""


class _LargeBytes:
    """A large transaction's file, of which a piece is leased."""

    def __init__(self, url: str, queue: str, ltds_id: int) -> None:
        self._url = url
        self._queue = queue
        self._id = ltds_id

    def size(self) -> int:
        return _ask(self._url, lambda calls: calls.file_size(self._queue, self._id))

    def read(self, offset: int, length: int) -> bytes:
        return self.read_several([(offset, length)])[0]

    def read_several(self, places: Sequence[_FileSpan]) -> list[bytes]:
        spans = [(_LARGE, self._id, offset, length) for offset, length in places]
        return _ask(self._url, lambda calls: calls.read_places(self._queue, spans))


class _FragmentBytes:
    """A file that no commit has adopted."""

    def __init__(self, url: str, ltds_id: int) -> None:
        self._url = url
        self._id = ltds_id

    def size(self) -> int:
        return _ask(self._url, lambda calls: calls.read_fragment(self._id, 0, 0))[0]

    def read(self, offset: int, length: int) -> bytes:
        return _ask(self._url, lambda calls: calls.read_fragment(self._id, offset, length))[1]

    def read_several(self, places: Sequence[_FileSpan]) -> list[bytes]:
        return [self.read(*place) for place in places]


class _ServedFile:
    """A file. Blocks are fetched with what follows them; parts are not."""

    def __init__(self, found: _FileBytes) -> None:
        self._bytes = found
        try:
            self._size = found.size()
        except PositionLost as error:
            raise FileNotFoundError(str(error)) from error
        # Where it begins and ends, which is read whenever it is opened.
        last = min(self._size, FILE_END_BYTES, PLACES_BYTES)
        self._ends = [
            (0, self._bytes.read(0, min(self._size, ltds.PAGE_BYTES))),
            (self._size - last, self._bytes.read(self._size - last, last)),
        ]
        self._window: tuple[int, bytes] = (0, b"")

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self._size)
        for start, data in (self._window, *self._ends):
            if start <= offset and end <= start + len(data):
                return data[offset - start : end - start]
        return _in_parts(self._bytes.read, offset, max(0, end - offset))

    def expect_several(self, places: Sequence[_FileSpan]) -> None:
        """Do nothing: they are asked for together anyway."""

    def read_several(self, places: Sequence[_FileSpan]) -> list[bytes]:
        """Return the bytes of each place, of as many with one request as that has."""
        found: list[bytes] = []
        together: list[_FileSpan] = []
        total = 0
        for offset, length in places:
            if together and total + length > PLACES_BYTES:
                found += self._bytes.read_several(together)
                together, total = [], 0
            if length > PLACES_BYTES:
                found.append(self.read(offset, length))
            else:
                together.append((offset, length))
                total += length
        return found + self._bytes.read_several(together) if together else found

    def read_block(self, offset: int, length: int) -> bytes:
        start, data = self._window
        end = start + len(data)
        if not start <= offset <= offset + length <= end:
            kept = data[offset - start :] if start <= offset < end else b""  # none comes twice
            begin = offset + len(kept)
            ahead = max(length - len(kept), min(PLACES_BYTES, self._size - begin))
            self._window = offset, kept + self.read(begin, ahead)
        return self.read(offset, length)

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self._window, self._ends = (0, b""), []


class _Opener:
    """An opener of one file."""

    def __init__(self, found: _FileBytes) -> None:
        self._bytes = found

    def open_file(self, path: str, *, read_only: bool = False) -> _ServedFile:
        return _ServedFile(self._bytes)


class _FragmentMaker:
    """A maker of one file."""

    def __init__(self, url: str, queue: str, ltds_id: int) -> None:
        self._url = url
        self._queue = queue
        self._id = ltds_id

    def open_file(
        self, path: str, *, create: bool = False, exclusive: bool = False, direct: bool = False
    ) -> _WrittenFragment:
        return _WrittenFragment(self._url, self._queue, self._id)

    def remove(self, path: str) -> None:
        _ask(self._url, lambda integration: integration.remove_fragments([self._id]))

    def sync_directory(self, path: str) -> None:
        """Do nothing: the name is durable."""

    def aligned_buffer(self, size: int) -> memoryview:
        return memoryview(bytearray(size))


class _WrittenFragment:
    """A file that is written at the server, part by part."""

    def __init__(self, url: str, queue: str, ltds_id: int) -> None:
        self._url = url
        self._queue = queue
        self._id = ltds_id

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        content = memoryview(data)
        for start in range(0, len(content), PLACES_BYTES):
            part = bytes(content[start : start + PLACES_BYTES])
            _ask(self._url, partial(self._write, offset + start, part))

    def _write(self, offset: int, part: bytes, calls: Integration) -> None:
        calls.write_fragment(self._queue, self._id, offset, part)

    def sync(self) -> None:
        """Do nothing: each part is durable."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _key(piece: Piece) -> _PlaceKey:
    return piece.kind, piece.address, piece.length


def _ask(url: str, ask: Callable[[Integration], Result]) -> Result:
    return connection.call(url, lambda store: ask(store.integration))


def _in_parts(read: Callable[[int, int], bytes], offset: int, length: int) -> bytes:
    """Return bytes of a place, which may be more than one request has."""
    end = offset + length
    starts = range(offset, end, PLACES_BYTES)
    parts = [read(start, min(PLACES_BYTES, end - start)) for start in starts]
    return parts[0] if len(parts) == 1 else b"".join(parts)
