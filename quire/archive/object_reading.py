"""Reading whole objects, verified against what a manifest says of them.

Many reads are under way at a time where each goes to another machine; memory is bounded by them.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from xxhash import xxh3_64

from quire.archive.objects import Objects
from quire.archive.objects.directory import DirectoryObjects
from quire.errors import (
    ArchiveCorrupt,
    ArchiveRefused,
    InvalidArgument,
    ObjectNotFound,
    QuireError,
    StoreCorrupt,
    StoreVersion,
)

from .limits import READ_BYTES, READS_AT_ONCE
from .manifest import StoredObject

PieceRead = tuple[StoredObject, int]
"""A piece of an object: its offset."""


class ObjectSpan(NamedTuple):
    """Bytes of an object."""

    name: str
    offset: int
    length: int


R = TypeVar("R")

_IMPOSSIBLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)
"""Errors of values that no store has."""


class ObjectReading:
    """Reads objects of one archive."""

    def __init__(self, objects: Objects, pool: ThreadPoolExecutor | None) -> None:
        self.objects = objects
        self._pool = pool

    def pieces(self, stored: Iterable[StoredObject]) -> Iterator[tuple[StoredObject, bytes]]:
        """Yield the bytes of objects, one object after another, piece by piece.

        At an object's end its size and checksum are compared. Raises ArchiveCorrupt.
        """
        digest, size = xxh3_64(), 0
        for (each, offset), data in self._read(_reads(stored)):
            if not offset:
                digest, size = xxh3_64(), 0
            digest.update(data)
            size += len(data)
            if len(data) != min(READ_BYTES, each.bytes - offset):
                raise damaged(each.name, f"it has not {each.bytes} bytes")
            if size == each.bytes and digest.hexdigest() != each.checksum:
                raise damaged(each.name, "its checksum differs")
            if data:
                yield each, data

    def spans(self, spans: Iterable[ObjectSpan]) -> Iterator[tuple[ObjectSpan, bytes]]:
        """Yield the bytes of each span, none of them verified; fewer at an object's end.

        Raises ArchiveCorrupt for an object that is not there.
        """
        return self._each(spans, self._span)

    def size(self, name: str) -> int:
        """Return an object's number of bytes. Raises ArchiveCorrupt if it is not there."""
        try:
            return self.objects.size(name)
        except ObjectNotFound:
            raise damaged(name, "it is missing") from None

    def all_of(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of an object, piece by piece, none of them verified."""
        size = self.size(name)
        spans = (
            ObjectSpan(name, at, min(READ_BYTES, size - at)) for at in range(0, size, READ_BYTES)
        )
        for _, data in self.spans(spans):
            yield data

    def whole(self, stored: StoredObject) -> bytes:
        """Return an object's bytes. Raises ArchiveCorrupt."""
        return b"".join(data for _, data in self.pieces([stored]))

    def _read(self, reads: Iterable[PieceRead]) -> Iterator[tuple[PieceRead, bytes]]:
        return self._each(reads, self._piece)

    def _each(
        self, reads: Iterable[R], read_bytes: Callable[[R], bytes]
    ) -> Iterator[tuple[R, bytes]]:
        """Yield each of the reads with its bytes, in their order."""
        if self._pool is None:
            for read in reads:
                yield read, read_bytes(read)
            return
        waiting: deque[tuple[R, Future[bytes]]] = deque()
        try:
            for read in reads:
                waiting.append((read, self._pool.submit(read_bytes, read)))
                if len(waiting) == READS_AT_ONCE:
                    first, found = waiting.popleft()
                    yield first, found.result()
            while waiting:
                first, found = waiting.popleft()
                yield first, found.result()
        finally:
            for _, found in waiting:
                found.cancel()

    def _piece(self, read: PieceRead) -> bytes:
        stored, offset = read
        length = min(READ_BYTES, stored.bytes - offset)
        if offset + length == stored.bytes:
            length += 1  # so that one that is longer is found
        return self._span(ObjectSpan(stored.name, offset, length))

    def _span(self, span: ObjectSpan) -> bytes:
        try:
            return self.objects.read(span.name, span.offset, span.length)
        except ObjectNotFound:
            raise damaged(span.name, "it is missing") from None


@contextmanager
def contradictions(name: str) -> Iterator[None]:
    """Raise ArchiveCorrupt in the block for values that cannot be, of an object that is whole.

    What only a newer release knows is ArchiveRefused.
    """
    try:
        yield
    except StoreVersion as error:
        raise ArchiveRefused(f"the archive's object {name}: {error}") from error
    except (StoreCorrupt, InvalidArgument) as error:
        raise damaged(name, f"it contradicts itself ({error!r:.200})") from error
    except QuireError:
        raise
    except _IMPOSSIBLE as error:
        raise damaged(name, f"it contradicts itself ({error!r:.200})") from error


@contextmanager
def reading(objects: Objects) -> Iterator[ObjectReading]:
    """Give what reads objects for a block."""
    if isinstance(objects, DirectoryObjects):
        yield ObjectReading(objects, None)
        return
    with ThreadPoolExecutor(READS_AT_ONCE, "quire-archive") as pool:
        yield ObjectReading(objects, pool)


def damaged(name: str, reason: str) -> ArchiveCorrupt:
    """Return the error for an object that is not what its manifest says."""
    return ArchiveCorrupt(
        f"the archive's object {name} is damaged: {reason}; restore an earlier point, or "
        "another backup (`quire backups` lists them), and make a new one"
    )


def _reads(stored: Iterable[StoredObject]) -> Iterator[PieceRead]:
    for each in stored:
        for offset in range(0, max(each.bytes, 1), READ_BYTES):
            yield each, offset


class ByteStream:
    """The bytes of objects, one after another, taken in any lengths."""

    def __init__(self, pieces: Iterator[tuple[StoredObject, bytes]]) -> None:
        self._pieces = pieces
        self._piece, self._offset = b"", 0

    def take(self, length: int) -> bytes:
        """Return the next bytes, fewer only at the end of all."""
        parts = []
        while length:
            if self._offset == len(self._piece):
                _, self._piece = next(self._pieces, (None, b""))
                self._offset = 0
                if not self._piece:
                    break
            part = self._piece[self._offset : self._offset + length]
            self._offset += len(part)
            length -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
