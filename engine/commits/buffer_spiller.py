"""The write buffer is full: the oldest transaction's messages go to the queue, or to files.

Source: "Managing message queues" (JP 2008-547130), paragraphs 0042, 0043, 0051-0053.

- OV1: the oldest transaction leaves first (`Registry.relieve`); one that somebody uses at this
  moment is passed over, but who asks for room leaves the buffer itself when its turn comes.
- OV2: what is spilled is written to pages that nobody else has, and that no checkpoint names before
  the commit: after a crash they are free. The commit syncs them, and its record names them.
- A spill that fails for want of room (DiskFull) leaves the messages in the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from quire.block import EncodedBlock
from quire.engine.pages.block_places import Places
from quire.engine.queues.queue import Queue
from quire.engine.records.commit_record import Part
from quire.ltds import LtdsWriter

from .queue_writes import QueueWrites
from .sequencer import Sequencer


class BufferSpiller:
    """Moves the oldest messages out of a full write buffer, to their queues or to files."""

    def __init__(
        self, places: Places, sequencer: Sequencer, after_discard: Callable[[], None]
    ) -> None:
        self._places = places
        self._sequencer = sequencer
        self._after_discard = after_discard  # there are files to remove; it must not raise

    def spill(self, transaction_id: int, written: QueueWrites) -> None:
        """A transaction's messages for one queue leave the buffer."""
        parts = written.spill(self._place)
        if parts:
            queue = written.queue
            with queue.lock:
                queue.log.spilled(transaction_id, queue.end_position, parts)

    def discard(self, written: Collection[QueueWrites]) -> None:
        """The transaction is rolled back: its pages are free, its files are to be removed."""
        files: list[int] = []
        for part in written:
            spilled, own = part.discard()
            self._places.abandon(self._places.extent_of(piece) for piece in spilled)
            files += own
        self._remove(files)

    def discard_file(self, writer: LtdsWriter) -> None:
        """Remove a file whose messages are not put after all."""
        if writer.leave():
            self._remove([writer.id])

    def _remove(self, files: list[int]) -> None:
        for ltds_id in files:
            self._places.discarded.add(ltds_id)
        if files:
            self._after_discard()

    def _place(self, queue: Queue, blocks: list[EncodedBlock]) -> list[Part]:
        """Write blocks to the queue's pages (OV2)."""
        places = self._places
        with self._sequencer.fail_stop("writing blocks"):
            page, _ = places.write(queue.data_file, [block.data for block in blocks])
        parts: list[Part] = []
        for block in blocks:
            parts.append(places.part_at(page, block, queue.queue_id))
            page += places.pages_for(len(block.data))
        return parts
