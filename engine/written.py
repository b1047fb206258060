"""What an open transaction has written to one queue, and how it becomes parts of a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quire.block import EncodedBlock
from quire.limits import COMMIT_BYTES, OPEN_BYTES
from quire.ltds import LtdsInfo, LtdsWriter
from quire.writebuffer import QueueBuffer

from . import format
from .commit_record import Part
from .queue import Queue


class Written:
    """A transaction's messages for one queue: in the write buffer, or in files once it is large.

    `charge` and `count` are what the queue's space holds for it. `files` are those that a commit
    points to; one that this transaction was given (`adopt`) is not removed by a rollback.
    """

    __slots__ = ("_new_file", "_writer", "adopted", "buffer", "charge", "count", "files",
                 "first_id", "queue")  # fmt: skip

    def __init__(
        self, queue: Queue, buffer: QueueBuffer, new_file: Callable[[], LtdsWriter]
    ) -> None:
        self.queue = queue
        self.buffer = buffer
        self.first_id = 0  # of its first message, once committed
        self.charge = 0
        self.count = 0
        self.files: list[LtdsInfo | EncodedBlock] = []  # in order; what follows is in the buffer
        self.adopted: set[int] = set()
        self._new_file = new_file
        self._writer: LtdsWriter | None = None

    def flush(self, max_block_bytes: int) -> None:
        """The transaction is large: move what is collected to its file."""
        blocks = self.buffer.drain(max_block_bytes)
        if blocks:
            if self._writer is None:
                self._writer = self._new_file()
            self._writer.append(blocks)

    @property
    def waiting_bytes(self) -> int:
        """What the file that is being written holds in memory."""
        return self._writer.waiting_bytes if self._writer is not None else 0

    def write_out(self, *, close: bool) -> None:
        """Hold nothing of that file in memory; with `close` do not even hold it open."""
        if self._writer is not None:
            self._writer.write_out(close=close)

    def adopt(self, info: LtdsInfo, max_block_bytes: int) -> None:
        """A finished file of another process follows what was written so far."""
        self.finish(max_block_bytes)
        self.files += self.buffer.drain(max_block_bytes)
        self.files.append(info)
        self.adopted.add(info.id)

    def finish(self, max_block_bytes: int) -> None:
        """Complete the file that is being written, durably, with what is still in the buffer."""
        if self._writer is not None:
            self.flush(max_block_bytes)
            self.files.append(self._writer.finish())
            self._writer = None

    def pieces(self, max_block_bytes: int) -> Sequence[LtdsInfo | EncodedBlock]:
        """All blocks and files in put order, ready to be committed. May be called again."""
        self.finish(max_block_bytes)
        if self.buffer.blocks or self.buffer.builder.count:
            self.files += self.buffer.drain(max_block_bytes)
        return self.files

    def only_block(self, max_block_bytes: int) -> EncodedBlock | None:
        """The block that is all there is; None if there is more, or a file."""
        if self._writer is not None or not self.count:
            return None
        files = self.pieces(max_block_bytes)
        if len(files) != 1 or isinstance(files[0], LtdsInfo):
            return None
        return files[0]

    def forget(self) -> None:
        """The store has all of it; what waits here is not needed any more."""
        self.files = []

    def discard(self) -> list[int]:
        """The transaction is rolled back; the files that it leaves behind, which nobody knows."""
        files = [
            piece.id
            for piece in self.files
            if isinstance(piece, LtdsInfo) and piece.id not in self.adopted
        ]
        writer, self._writer = self._writer, None
        if writer is not None and writer.leave():
            files.append(writer.id)
        return files


def part_of(piece: LtdsInfo | EncodedBlock, queue_id: int, *, last: bool) -> Part:
    """The piece as part of a commit record; the last one of a queue bears the control records."""
    control = OPEN_BYTES + COMMIT_BYTES if last else 0
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
