"""The messages that an open transaction has written to one queue, and the parts made of them.

It waits in the write buffer; what had to leave it is in blocks of the queue (`spill`), or, once the
transaction is large, in files (`flush`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from quire.block import EncodedBlock, checked_one, run_of_block
from quire.block.encoding import with_no_priority
from quire.definitions.properties import Granted
from quire.engine.queues.queue import Queue
from quire.engine.records import format
from quire.engine.records.commit_record import Part
from quire.limits import CONTROL_BYTES, LTDS_WRITERS
from quire.ltds import LtdsInfo, LtdsWriter
from quire.messages.message_fields import Fields
from quire.rows import row_input
from quire.rows.open_block import check_block
from quire.rows.row_block import RowBlock
from quire.writebuffer import QueueBuffer

WrittenPiece = LtdsInfo | EncodedBlock | Part  # a Part has its place in the data file already


class QueueWrites:
    """A transaction's messages for one queue.

    `charge` and `count` are what the queue's space holds for it. A lone small message stands here
    by itself, as `payload` and `fields`, until `fill` puts it into the write buffer. `expires_by`:
    when the last of them expires, if their queue says so. `placed` are
    those that have left the buffer, in order; a file that this transaction was given (`adopt`) is
    not removed by a rollback. `unsynced`: a file was completed, and its name is not durable yet.
    `stream`: the file of a message that is being put as a stream; nothing else is put meanwhile.
    """

    __slots__ = (
        "_new_file", "_writer", "adopted", "buffer", "charge", "count", "expires_by", "fields",
        "first_id", "is_filled", "payload", "placed", "queue", "stream", "unsynced",
    )  # fmt: skip

    queue: Queue
    charge: int
    count: int
    payload: bytes
    fields: Fields | None
    first_id: int  # of its first message, once committed
    expires_by: int | None
    is_filled: bool  # it uses the write buffer
    buffer: QueueBuffer  # what waits in the write buffer, once it is filled

    def fill(self, buffer: QueueBuffer, new_file: Callable[[], LtdsWriter]) -> None:
        """Use the write buffer from now on; the lone message moves there."""
        self._new_file = new_file
        self._writer: LtdsWriter | None = None
        self.placed: list[WrittenPiece] = []  # what follows is in the buffer
        self.adopted: frozenset[int] = frozenset()
        self.unsynced = False
        self.stream: LtdsWriter | None = None
        if self.count:
            buffer.builder.append(self.payload, self.fields, self.charge)
            buffer.account.grow(self.charge, self.count)
            self.payload, self.fields = b"", None
        self.buffer = buffer
        self.is_filled = True

    def spill(self, place: Callable[[Queue, list[EncodedBlock]], list[Part]]) -> list[Part]:
        """Move what is collected to the queue. What `place` raises leaves it in the buffer."""
        if self.queue.is_volatile:
            self.placed += self._drain()
            return []
        blocks = self.buffer.encode(self.queue.block_bytes)
        if not blocks:
            return []
        parts = place(self.queue, blocks)
        self._drain()
        self.placed += parts
        return parts

    def flush(self) -> None:
        """The transaction is large: move what is collected to its file.

        Of a volatile queue it stays in memory, bounded by the capacity.
        """
        blocks = self._drain()
        if self.queue.is_volatile:
            self.placed += blocks
        elif blocks:
            if self._writer is None:
                self._writer = self._new_file()
            self._writer.append(blocks)

    @property
    def staying_bytes(self) -> int:
        """Return the charged bytes of blocks that have left the write buffer and stay in memory."""
        if not self.is_filled or not self.queue.is_volatile:
            return 0
        return sum(p.charge_bytes for p in self.placed if isinstance(p, EncodedBlock))

    def _drain(self) -> list[EncodedBlock]:
        """Take the collected messages out of the buffer."""
        blocks = self.buffer.drain(self.queue.block_bytes)
        if blocks:  # else its lock is not asked for: a commit may hold those of writers
            self.buffer.account.shrink(
                sum(block.charge_bytes for block in blocks), sum(block.count for block in blocks)
            )
        return blocks

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that the unfinished file holds in memory."""
        return self._writer.waiting_bytes if self._writer is not None else 0

    @property
    def broken(self) -> bool:
        """Return True if a file could not be written: some of the messages are lost."""
        return self.is_filled and self._writer is not None and self._writer.failed

    def write_out(self, *, close: bool) -> None:
        """Hold nothing of that file in memory; with `close` do not even hold it open."""
        if self._writer is not None:
            self._writer.write_out(close=close)

    def adopt(self, info: LtdsInfo) -> None:
        """A finished file of another process follows what was written so far."""
        self._follow(info)
        self.adopted |= {info.id}

    def finish_stream(self, info: LtdsInfo) -> None:
        """The file of a streamed message is complete; it follows what was written before."""
        self._follow(info)
        self.stream = None
        self.unsynced = True

    def _follow(self, info: LtdsInfo) -> None:
        self.finish()
        self.placed += [*self.buffer.drain(self.queue.block_bytes), info]

    def finish(self) -> None:
        """Complete the file that is being written, with what is still in the buffer."""
        if self._writer is not None:
            self.flush()
            self.unsynced = True
            self.placed.append(self._writer.finish(sync_name=False))
            self._writer = None

    def pieces(self) -> list[EncodedBlock | Part]:
        """All in put order, ready to be committed: blocks, and parts for what has its place.

        The last one bears the control records. May be called again.
        """
        self.finish()
        if not self.buffer.empty:
            self.placed += self.buffer.drain(self.queue.block_bytes)
        queue_id = self.queue.queue_id
        pieces = [_indirect(p, queue_id) if isinstance(p, LtdsInfo) else p for p in self.placed]
        if pieces:
            pieces[-1] = _with_control(pieces[-1])
        return pieces

    def discard(self) -> tuple[list[Part], list[int]]:
        """The transaction is rolled back: the pages and files that nobody knows, told once."""
        placed, self.placed = self.placed, []
        spilled = [piece for piece in placed if isinstance(piece, Part)]
        files = [
            piece.id
            for piece in placed
            if isinstance(piece, LtdsInfo) and piece.id not in self.adopted
        ]
        writers, self._writer, self.stream = (self._writer, self.stream), None, None
        files += [writer.id for writer in writers if writer is not None and writer.leave()]
        return spilled, files

    def spilled(self) -> list[Part]:
        """Blocks that are in the queue already."""
        if not self.is_filled:
            return []
        return [piece for piece in self.placed if isinstance(piece, Part)]


def written_to(
    queue: Queue, charge: int, count: int, payload: bytes, fields: Fields | None
) -> QueueWrites:
    """A transaction's messages for a queue: none, or a lone one. See `id_of` for its making."""
    made = QueueWrites()
    made.queue = queue
    made.charge = charge
    made.count = count
    made.payload = payload
    made.fields = fields
    made.first_id = 0
    made.expires_by = None
    made.is_filled = False
    return made


def lone_put(queue: Queue, payload: bytes, charge: int) -> QueueWrites:
    """A plain message in a transaction of its own, which is never open to others.

    Its queue's space is taken when it is committed.
    """
    made = QueueWrites()
    made.queue = queue
    made.payload = payload
    made.charge = charge
    made.fields = None
    made.count = 1
    made.is_filled = False
    return made


def lone_block(payload: bytes, fields: Fields | None, charge: int) -> EncodedBlock:
    """The block of a message alone; it bears the control records."""
    return EncodedBlock(checked_one(payload, fields)[1], 1, charge + CONTROL_BYTES, len(payload))


def _indirect(info: LtdsInfo, queue_id: int) -> Part:
    return Part(
        info.id, info.charge_bytes, info.checksum, queue_id, 0, info.count, format.LTDS,
        payload_bytes=info.payload_bytes,
    )  # fmt: skip


def _with_control(piece: EncodedBlock | Part) -> EncodedBlock | Part:
    if isinstance(piece, Part):
        return piece._replace(charge=piece.charge + CONTROL_BYTES)
    return EncodedBlock(
        piece.data, piece.count, piece.charge_bytes + CONTROL_BYTES, piece.payload_bytes
    )


def move_to_files(written: Collection[QueueWrites], may_wait_bytes: int) -> None:
    """Move the waiting messages to files, of which so many bytes may wait for a write."""
    many = len(written) > LTDS_WRITERS
    for part in written:
        part.flush()
        if many:
            part.write_out(close=True)
    if sum(part.waiting_bytes for part in written) > may_wait_bytes:
        for part in written:
            part.write_out(close=False)


def add_block(
    written: QueueWrites, encoded: EncodedBlock, granted: Granted | None, *, is_moved: bool
) -> None:
    """The messages of a block, which was checked, with what their queue grants."""
    if granted is None:
        written.buffer.add_block(encoded, written.queue.block_bytes)
        return
    own = check_block(encoded.data)
    if is_moved:
        own.headers = with_no_priority(own.headers, encoded.count)
    if isinstance(own, RowBlock):
        written.buffer.add_rows(row_input.rows_of_block(own).with_granted(granted))
    else:  # the builder grants it
        written.buffer.builder.add_run(run_of_block(own))
