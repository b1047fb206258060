"""A look at what a commit is about to read, for those who listen to its queues.

- It is before the commit's record, as what is read is released, and its place is free then.
  Messages that cannot be looked at are left out: their commit goes on, and listeners count them as
  missed, as they do those before the last `NOTICE_LOOKS` messages or `RECENT_REMOVALS_BYTES`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from quire.batches.delivered_slice import Delivered
from quire.engine.queues.queue import Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.queues.recent_removals import Expected, Looked
from quire.engine.records.commit_record import ReadRow
from quire.errors import StoreError
from quire.limits import NOTICE_LOOKS, RECENT_REMOVALS_BYTES

from .block_reader import BlockMoved, BlockReader
from .fetcher import widened


def look_before(
    reader: BlockReader, listened: Mapping[int, Queue], reads: Sequence[ReadRow]
) -> None:
    """Have the queues that somebody listens to know what of them is about to be read."""
    for read in reads:
        queue = listened.get(read[0])
        if queue is not None and queue.recent_removals is not None:
            _look(reader, queue, read)


def _look(reader: BlockReader, queue: Queue, read: ReadRow) -> None:
    with queue.lock:
        subscription = queue.subscriptions.get(read[1])
        unread = [] if subscription is None else list(subscription.done.gaps(read[2], read[3]))
    count = sum(end - start for start, end in unread)
    looked: deque[Looked] = deque()
    passed = size = 0
    for start, end in unread:
        skipped = min(max(count - NOTICE_LOOKS - passed, 0), end - start)
        for position, part in _messages(reader, queue, start + skipped, end):
            looked.append(Looked(passed + position - start, position, part))
            size += part.block.memory_bytes
            while size > RECENT_REMOVALS_BYTES and len(looked) > 1:
                size -= looked.popleft().part.block.memory_bytes
        passed += end - start
    with queue.lock:
        if queue.recent_removals is not None:
            queue.recent_removals.expect(read, Expected(count, looked))


def _messages(
    reader: BlockReader, queue: Queue, start: int, end: int
) -> Iterator[tuple[int, Delivered]]:
    while start < end and (pointers := queue.kept(start, end)):
        for pointer in pointers:
            start = pointer.position
            for part in _parts(reader, queue, pointer):
                yield start, part if queue.schema is None else widened(part, queue.schema)
                start += part.stop - part.start
        start = pointers[-1].end_position


def _parts(reader: BlockReader, queue: Queue, pointer: Pointer) -> list[Delivered]:
    try:
        return reader.deliver(pointer, 1)
    except (BlockMoved, StoreError):  # a checkpoint may have moved it
        again = queue.kept(pointer.position, pointer.end_position)
        if len(again) != 1 or again[0].ref == pointer.ref:
            return []
    try:
        return reader.deliver(again[0], 1)
    except (BlockMoved, StoreError):
        return []
