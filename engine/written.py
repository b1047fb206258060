"""What an open transaction has written to one queue, and how it becomes parts of a commit.

It waits in the write buffer; what had to leave it is in blocks of the queue (`spill`), or, once the
transaction is large, in files (`flush`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quire.block import EncodedBlock
from quire.limits import COMMIT_BYTES, OPEN_BYTES
from quire.ltds import LtdsInfo, LtdsWriter
from quire.writebuffer import QueueBuffer

from . import format
from .commit_record import Part
from .queue import Queue

Piece = LtdsInfo | EncodedBlock | Part  # a Part has its place in the data file already


class Written:
    """A transaction's messages for one queue.

    `charge` and `count` are what the queue's space holds for it. `placed` are those that have left
    the write buffer, in order; a file that this transaction was given (`adopt`) is not removed by
    a rollback. `unsynced`: a file was completed, and its name is not durable yet.
    """

    __slots__ = ("_new_file", "_writer", "adopted", "buffer", "charge", "count", "first_id",
                 "placed", "queue", "unsynced")  # fmt: skip

    def __init__(
        self, queue: Queue, buffer: QueueBuffer, new_file: Callable[[], LtdsWriter]
    ) -> None:
        self.queue = queue
        self.buffer = buffer
        self.first_id = 0  # of its first message, once committed
        self.charge = 0
        self.count = 0
        self.placed: list[Piece] = []  # what follows is in the buffer
        self.adopted: frozenset[int] = frozenset()
        self.unsynced = False
        self._new_file = new_file
        self._writer: LtdsWriter | None = None

    def spill(
        self, place: Callable[[Queue, list[EncodedBlock]], list[Part]], max_block_bytes: int
    ) -> list[Part]:
        """Move what is collected to the queue. What `place` raises leaves it in the buffer."""
        blocks = self.buffer.encode(max_block_bytes)
        if not blocks:
            return []
        parts = place(self.queue, blocks)
        self._drained(self.buffer.drain(max_block_bytes))
        self.placed += parts
        return parts

    def flush(self, max_block_bytes: int) -> None:
        """The transaction is large: move what is collected to its file."""
        blocks = self.buffer.drain(max_block_bytes)
        if blocks:
            self._drained(blocks)
            if self._writer is None:
                self._writer = self._new_file()
            self._writer.append(blocks)

    def _drained(self, blocks: list[EncodedBlock]) -> None:
        self.buffer.account.shrink(
            sum(block.charge_bytes for block in blocks), sum(block.count for block in blocks)
        )

    @property
    def waiting_bytes(self) -> int:
        """What the file that is being written holds in memory."""
        return self._writer.waiting_bytes if self._writer is not None else 0

    @property
    def broken(self) -> bool:
        """Whether that file could not be written: part of the messages is lost."""
        return self._writer is not None and self._writer.failed

    def write_out(self, *, close: bool) -> None:
        """Hold nothing of that file in memory; with `close` do not even hold it open."""
        if self._writer is not None:
            self._writer.write_out(close=close)

    def adopt(self, info: LtdsInfo, max_block_bytes: int) -> None:
        """A finished file of another process follows what was written so far."""
        self.finish(max_block_bytes)
        self.placed += self.buffer.drain(max_block_bytes)
        self.placed.append(info)
        self.adopted |= {info.id}

    def finish(self, max_block_bytes: int) -> None:
        """Complete the file that is being written, with what is still in the buffer."""
        if self._writer is not None:
            self.flush(max_block_bytes)
            self.unsynced = True
            self.placed.append(self._writer.finish(sync_name=False))
            self._writer = None

    def pieces(self, max_block_bytes: int) -> Sequence[Piece]:
        """All blocks and files in put order, ready to be committed. May be called again."""
        self.finish(max_block_bytes)
        if not self.buffer.empty:
            self.placed += self.buffer.drain(max_block_bytes)
        return self.placed

    def only_block(self, max_block_bytes: int) -> EncodedBlock | None:
        """The block that is all there is; None if there is more, or a file."""
        if self._writer is not None or not self.count:
            return None
        pieces = self.pieces(max_block_bytes)
        if len(pieces) != 1 or not isinstance(pieces[0], EncodedBlock):
            return None
        return pieces[0]

    def single(self) -> bytes | bytearray | None:
        """The block of the only message, if it is a plain one and waits in the buffer alone."""
        if self.placed or self._writer is not None:
            return None
        return self.buffer.single()

    def forget(self) -> None:
        """The store has all of it; what waits here is not needed any more."""
        self.placed = []

    def discard(self) -> list[int]:
        """The transaction is rolled back; the files that it leaves behind, which nobody knows."""
        files = [
            piece.id
            for piece in self.placed
            if isinstance(piece, LtdsInfo) and piece.id not in self.adopted
        ]
        writer, self._writer = self._writer, None
        if writer is not None and writer.leave():
            files.append(writer.id)
        return files

    def spilled(self) -> list[Part]:
        """Blocks that are in the queue already."""
        return [piece for piece in self.placed if isinstance(piece, Part)]


def part_of(piece: Piece, queue_id: int, *, last: bool) -> Part:
    """The piece as part of a commit record; the last one of a queue bears the control records."""
    control = OPEN_BYTES + COMMIT_BYTES if last else 0
    if isinstance(piece, Part):
        return piece._replace(charge=piece.charge + control) if last else piece
    if isinstance(piece, LtdsInfo):
        return Part(
            piece.id, piece.charge_bytes + control, 0, queue_id, 0, piece.count, format.LTDS,
            payload_bytes=piece.payload_bytes,
        )  # fmt: skip
    checksum = int.from_bytes(piece.data[:8], "little")
    return Part(
        0,
        piece.charge_bytes + control,
        checksum,
        queue_id,
        len(piece.data),
        piece.count,
        format.INLINE,
    )
