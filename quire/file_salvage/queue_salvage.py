"""The salvage of one queue: its records' blocks and files, verified, at their positions.

- QS1: nothing goes into the new store that is not, by its checksum, what the queue's own record
  names.
- QS2: what nobody can have any more is released, and read by every subscription: the others' places
  in the order stay what they were.
- QS3: behind damage of the journal positions are not known. What has come there stands behind all
  positions that anybody may have read; so it is delivered, if need be a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from quire.arguments import Bytes
from quire.block import Block, StreamedBlock
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.state.durable_state import DurableQueue
from quire.env import File
from quire.file_dump.history import QueueState
from quire.file_dump.items import Finding
from quire.file_dump.source import UNREADABLE
from quire.intervals import IntervalSet
from quire.ltds.damaged import whole_blocks
from quire.ltds.format import PAGE_BYTES, paged
from quire.rows.row_block import RowBlock

from .block_search import search_blocks
from .damaged_store import NO_RECORD, DamagedStore, LostRecords
from .new_store import NewStore, is_lost, partial_ref
from .report import LostMessages, QueueSalvaged


class _Failed(NamedTuple):
    """Messages that cannot be read."""

    start: int
    end: int
    finding: Finding


class QueueSalvage:
    """Copies one queue."""

    def __init__(self, damaged: DamagedStore, new: NewStore, found: QueueState) -> None:
        self.lost_pages: list[LostRecords] = []
        self._damaged, self._new, self._found = damaged, new, found
        self._source = damaged.source
        self._queue: DurableQueue = found.durable
        self._is_reconstructed = is_lost(self._queue.config)
        if self._is_reconstructed:
            new.state.queues.pop(self._queue.queue_id, None)
            new.state.names.pop(self._queue.config.name, None)
            self._queue = new.define_lost(self._queue, self._schema())
        self._kept = IntervalSet()  # positions
        self._ids = IntervalSet()  # of the messages that are kept; where positions are not known
        self._counts_ids = False
        self._failed: list[_Failed] = []

    def run(self) -> tuple[QueueSalvaged, list[LostMessages]]:
        """Copy what there is; the report of it."""
        found, queue = self._found, self._queue
        if queue.config.is_volatile:
            self._empty()
            return QueueSalvaged(queue.config.name, 0, 0), []
        later = self._damaged.later_refs(found)
        self._counts_ids = bool(later)
        crossing: list[BlockRef] = []
        for ref in self._damaged.refs(found, self.lost_pages):
            self._new.known[ref.kind, ref.address] = ref.checksum
            if queue.released.covers(ref.position, ref.end):
                continue
            if not self._kept.overlaps(ref.position, ref.end):
                self._take(ref)
            elif not self._kept.covers(ref.position, ref.end):
                crossing.append(ref)
        end = self._damaged.certain_end(found)
        later = crossing + later
        self._counts_ids = bool(later)
        moved = 0
        if later:
            moved, end = self._take_later(later, end)
        lost = list(self._close_gaps(end))
        live = end - queue.released.count(0, end) if end else 0
        total = sum(each.messages for each in lost)
        name = queue.config.name
        return QueueSalvaged(name, live, total, moved, self._is_reconstructed), lost

    def _schema(self) -> str | None:
        """Return the schema of the rows that a queue has whose definition is lost."""
        damaged = self._damaged
        for ref in [*damaged.refs(self._found, []), *damaged.later_refs(self._found)]:
            with suppress(*UNREADABLE):
                if ref.kind == format.LTDS:
                    with self._source.large(ref.address) as reader:
                        return reader.words_at(reader.block_count - 1)
                block = self._source.block(ref)
                return block.words if isinstance(block, RowBlock) else None
        return None

    def _empty(self) -> None:
        """Nothing is kept of a volatile queue but that it is there."""
        queue = self._queue
        queue.end_position = 0
        queue.released.clear()
        for subscription in queue.subscriptions.values():
            subscription.done.clear()

    # Records

    def _take(self, ref: BlockRef) -> None:
        """Copy a record's messages, as far as they can be read."""
        try:
            if ref.kind == format.LTDS:
                self._take_file(ref)
            else:
                block, data = self._source.verified(ref)
                self._add_block(ref, block, data)
        except UNREADABLE as error:
            finding = self._source.unreadable(ref, error, "")
            self._failed.append(_Failed(ref.position, ref.end, finding))

    def _add_block(self, ref: BlockRef, block: Block, data: Bytes) -> None:
        self._new.add_block(self._queue, ref, data)
        self._keep(ref, block)

    def _keep(self, ref: BlockRef, block: Block | None) -> None:
        self._kept.add(ref.position, ref.end)
        for start, end in _runs_of_ids(ref, block):
            self._new.note_ids(end)
            if self._counts_ids:
                self._ids.add(start, end)

    def _take_file(self, ref: BlockRef) -> None:
        """Copy a large transaction's file; where it is damaged, those of its blocks that are not.

        A file of one streamed message is copied whole or not at all.
        """
        if self._new.has_file(ref.address):
            return
        try:
            self._new.copy_file(ref.address, ref.count, ref.checksum).close()
        except UNREADABLE as error:
            finding = self._source.unreadable(ref, error, "")
            self._failed.append(_Failed(ref.position, ref.end, finding))
            for first, block, data in self._whole_blocks(ref):
                part = partial_ref(ref, block, first)
                if not self._queue.released.covers(part.position, part.end):
                    self._add_block(part, block, data)
        else:
            self._new.add_file(self._queue, ref)
            self._keep(ref, None)

    def _whole_blocks(self, ref: BlockRef) -> Iterator[tuple[int, Block, Bytes]]:
        """Yield the blocks of a damaged file that are whole, each behind its first message.

        Those whose place in the file is not known are looked for later.
        """
        placed = self._new.placed_blocks.setdefault(ref.address, set())
        source = self._source
        with suppress(*UNREADABLE), source.large_bytes(ref.address) as file:
            size, known = file.size(), (ref.address, source.geometry.store_id, ref.count)
            for whole in whole_blocks(file, size, *known):
                if whole.first is not None:
                    placed.add(whole.offset)
                    yield whole.first, whole.block, whole.data
            if not placed:
                yield from self._leading_blocks(file, size, ref.count, placed)

    def _leading_blocks(
        self, file: File, size: int, count: int, placed: set[int]
    ) -> Iterator[tuple[int, Block, Bytes]]:
        """Yield the blocks of a file without a directory, up to the first that is damaged.

        The index of the messages behind that is not known.
        """
        first, offset = 0, PAGE_BYTES
        for found in search_blocks(file.read, offset, size, PAGE_BYTES):
            block = found.block
            is_next = found.offset == offset and first + block.count <= count
            if not is_next or block.is_packed or isinstance(block, StreamedBlock):
                return
            placed.add(offset)
            yield first, block, found.data
            first += block.count
            offset = paged(found.offset + block.length)

    # What has come behind damage

    def _take_later(self, refs: list[BlockRef], end: int) -> tuple[int, int]:
        """Copy records whose positions are not known (QS3); how many messages, and the new end."""
        queue = self._queue
        done = [queue.released, *(each.done for each in queue.subscriptions.values())]
        lasts = [last[1] for last in (each.last() for each in done) if last is not None]
        base = max([end, *lasts])
        if base > end:
            self._kept.add(end, base)
            self._release(end, base)
        position = base
        for ref in refs:
            self._new.known[ref.kind, ref.address] = ref.checksum
            twins = self._twins(ref)
            if len(twins) == ref.count:
                continue
            for index in twins:
                self._release(position + index, position + index + 1)
            self._take(ref._replace(position=position))
            position += ref.count
        return position - base, position

    def _twins(self, ref: BlockRef) -> list[int]:
        """Return those of the record's messages that the queue has already, by their ids."""
        block = None
        if ref.kind != format.LTDS:
            with suppress(*UNREADABLE):
                block = self._source.block(ref)
        runs = list(_runs_of_ids(ref, block))
        if not any(self._ids.overlaps(start, end) for start, end in runs):
            return []
        is_packed = block is not None and block.is_packed
        ids = block.ids(ref.first_id).tolist() if block is not None and is_packed else None
        ids = ids or range(ref.first_id, ref.first_id + ref.count)
        return [index for index, each in enumerate(ids) if self._ids.contains(each)]

    def _release(self, start: int, end: int) -> None:
        """These positions are read by everybody (QS2)."""
        self._queue.released.add(start, end)
        for subscription in self._queue.subscriptions.values():
            if subscription.done is not self._queue.released:
                subscription.done.add(start, end)

    def _close_gaps(self, end: int) -> Iterator[LostMessages]:
        """Release what is lost (QS2), and tell of it."""
        queue = self._queue
        queue.end_position = end
        if not end:
            return
        gaps = [gap for lo, hi in self._kept.gaps(0, end) for gap in queue.released.gaps(lo, hi)]
        known: list[_Failed | LostRecords] = []
        known += self._failed
        known += self.lost_pages
        known.sort(key=lambda each: each.start)
        for subscription in queue.subscriptions.values():
            if subscription.done is not queue.released:
                for start, stop in queue.released:
                    subscription.done.add(start, stop)
        for start, stop in gaps:
            self._release(start, stop)
            yield from _explained(queue.config.name, start, stop, known)


def _explained(
    queue: str, start: int, end: int, known: list[_Failed | LostRecords]
) -> Iterator[LostMessages]:
    """Yield lost messages of one gap, each run with its reason."""
    at = start
    for each in known:
        if each.end <= at or each.start >= end:
            continue
        if each.start > at:
            yield LostMessages(queue, at, each.start, "", None, NO_RECORD)
            at = each.start
        stop, finding = min(each.end, end), each.finding
        yield LostMessages(queue, at, stop, finding.file, finding.offset, finding.message)
        at = stop
    if at < end:
        yield LostMessages(queue, at, end, "", None, NO_RECORD)


def _runs_of_ids(ref: BlockRef, block: Block | None) -> Iterator[tuple[int, int]]:
    """Yield the ids of a record's messages as runs, ascending."""
    if block is None or not block.is_packed:
        yield ref.first_id, ref.first_id + ref.count
        return
    ids = sorted(block.ids(ref.first_id).tolist())
    start = end = ids[0]
    for each in ids:
        if each > end:
            yield start, end
            start = each
        end = each + 1
    yield start, end
