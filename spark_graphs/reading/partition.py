"""How the pieces of a micro-batch or a batch read are dealt out to tasks.

YP1. The partitions in their order, and the pieces of each in theirs, give every queue's messages in
    commit order, so that a sink without a shuffle before it keeps it.
YP2. A piece is cut only between messages; nothing is left out and nothing is twice.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from quire.reports.info import Piece
from quire.spark_graphs.limits import ASSUMED_MESSAGE_BYTES, PARTITION_BYTES, SMALL_BYTES


class QueuePiece(Struct, frozen=True):
    """A piece, the queue that its messages belong to, and about how many bytes they have.

    `created_us` tells the queue from another of its name, should the messages be looked for again.
    """

    queue: str
    piece: Piece
    size_bytes: int
    created_us: int | None = None

    @classmethod
    def of(cls, queue: str, piece: Piece, created_us: int | None = None) -> QueuePiece:
        assumed = (piece.stop - piece.start) * ASSUMED_MESSAGE_BYTES
        return cls(queue, piece, max(1, piece.length or assumed), created_us)


class QuirePartition(InputPartition):
    """The pieces that one task reads, in order."""

    def __init__(self, pieces: list[QueuePiece]) -> None:
        super().__init__(None)
        self.pieces = pieces

    def __repr__(self) -> str:
        return f"QuirePartition({self.pieces!r})"


def partitions(
    pieces: Iterable[QueuePiece], minimum: int | None, cores: int | None = None
) -> list[QuirePartition]:
    """The pieces in partitions of about equal bytes (YP1, YP2).

    Args:
        minimum: at least so many partitions, as far as there are messages; by default so many that
            the cores of this machine have work and none gets more than PARTITION_BYTES.
    """
    pieces = list(pieces)
    total = sum(item.size_bytes for item in pieces)
    cores = cores or os.cpu_count() or 1
    # A whole number of tasks for each core, so that none idles while another does the last one.
    count = cores * -(-total // (cores * PARTITION_BYTES))
    count = max(min(count, -(-total // SMALL_BYTES)), minimum or 1)
    return [QuirePartition(group) for group in _groups(pieces, max(1, -(-total // count)))]


def within(pieces: Iterable[QueuePiece], low: float, high: float) -> list[QueuePiece]:
    """Return the parts of the pieces at positions from `low` to `high`, both included."""
    found = []
    for item in pieces:
        piece = item.piece
        first, messages = piece.first_position, piece.stop - piece.start
        begin = max(0, math.ceil(low) - first) if low > first else 0
        end = min(messages, math.floor(high) - first + 1) if high < first + messages else messages
        if begin >= end:
            continue
        cut = replace(
            piece, start=piece.start + begin, stop=piece.start + end, first_position=first + begin
        )
        size = max(1, item.size_bytes * (end - begin) // messages)
        found.append(item if end - begin == messages else replace(item, piece=cut, size_bytes=size))
    return found


def _groups(pieces: list[QueuePiece], size: int) -> Iterator[list[QueuePiece]]:
    """Runs of pieces of about `size` bytes each; a piece is cut where a run is full."""
    group: list[QueuePiece] = []
    room = size
    for item in pieces:
        rest: QueuePiece | None = item
        while rest is not None:
            head, rest = _cut(rest, room)
            group.append(head)
            room -= head.size_bytes
            if room <= 0 or rest is not None:
                yield group
                group, room = [], size
    if group:
        yield group


def _cut(item: QueuePiece, room: int) -> tuple[QueuePiece, QueuePiece | None]:
    """The first messages of a piece that take up about `room` bytes, and the rest of it."""
    piece, size, messages = item.piece, item.size_bytes, item.piece.stop - item.piece.start
    first = max(1, -(-messages * room // size))
    # A rest of less than an eighth of the room is not worth a task of its own.
    if first >= messages or size - room < room // 8:
        return item, None
    middle = piece.start + first
    # `first_id` is that of the block or file, not of the slice.
    rest = replace(piece, start=middle, first_position=piece.first_position + first)
    head_bytes = max(1, min(size - 1, size * first // messages))
    return (
        replace(item, piece=replace(piece, stop=middle), size_bytes=head_bytes),
        replace(item, piece=rest, size_bytes=size - head_bytes),
    )
