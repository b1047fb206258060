"""A queue as it was at one moment, for who looks through it while others go on.

- QV1: what was committed and not read when the view was made is seen, and nothing else, whatever is
  put, read, released, moved by a checkpoint, or dropped by retention meanwhile.
- QV2: a block that is released while there is a view of its queue is pinned, before it is free; of
  volatile queues its bytes are held. What is not released is found where it is by then.
- QV3: memory and space are bounded: the runs of positions that were not read (16 bytes each), and
  `VIEWED_BLOCKS` blocks of `VIEWED_BYTES` that were released since. With more the view is lost,
  which its next page says, and all that it held is let go of.
- A queue of which there is no view pays nothing: while there is one its subscriptions are not plain
  (see `Queue.acknowledged`), so that all that is released comes by `Releases.free`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from quire.batches.delivered_slice import Delivered
from quire.engine.pages.block_places import Places
from quire.engine.queues.queue import Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.fetcher import Fetcher, widened
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.errors import PositionLost, QueueNotFound, QuireError
from quire.journal import Journal
from quire.libraries import np
from quire.limits import POINTERS_AT_ONCE, VIEWED_BLOCKS, VIEWED_BYTES, VIEWED_PAGES
from quire.rows.open_block import open_block

from .attribute_index import runs_of
from .candidates import rows_of
from .choice import Choice

if TYPE_CHECKING:
    from numpy.typing import NDArray


class QueueView:
    """A queue as it was at one moment. For one thread; any may call `keep`."""

    def __init__(
        self,
        queue: Queue,
        subscription: Subscription | None,
        delivery: Fetcher,
        places: Places,
        journal: Journal,
    ) -> None:
        """View the subscription's unread messages; None: all that the queue keeps."""
        self._queue: Final = queue
        self._subscription = subscription
        self._delivery = delivery
        self._places = places
        self._journal = journal
        self._released: list[BlockRef] = []  # since then (QV2)
        self._bytes = 0
        self._memory: dict[int, bytes | bytearray] = {}  # of volatile ones, by address
        self._segments: set[int] = set()  # of the journal, where some of them are
        self._is_sorted = True
        self._is_lost = False
        self._pages: dict[int, int] = {}  # by the id of a page's last message where it ends
        with queue.lock:
            _check_there(queue)
            done = queue.released if subscription is None else subscription.done
            self._end = queue.end_position
            runs = list(done.gaps(0, self._end)) if self._end else []
            self._runs = np.array(runs, np.int64).reshape(-1, 2)
            queue.releases.views.append(self)
            for each in queue.subscriptions.values():
                each.await_end(1)

    def close(self) -> None:
        """Let go of what it holds; twice is once."""
        queue = self._queue
        with queue.lock:
            if self in queue.releases.views:
                queue.releases.views.remove(self)
                for each in queue.subscriptions.values():
                    each.await_end(-1)
        self._unpin_all()

    def page(self, choice: Choice, most: int, after: int | None) -> list[Delivered]:
        """Up to `most` messages for which it holds, behind the one with this id, in commit order.

        Raises PositionLost where it is lost (QV3), QueueNotFound, StoreCorrupt.
        """
        start = 0 if after is None else self._pages.get(after, 0)
        found: list[Delivered] = []
        for position, part in self._parts(start):
            rows = self._rows(part, choice, after)[:most]
            if not len(rows):
                continue
            for first, last in runs_of(rows.tolist()):
                found.append(part._replace(start=part.start + first, stop=part.start + last))
            end, most = position + int(rows[-1]) + 1, most - len(rows)
            if not most:
                self._note(found[-1], end)
                break
        return found

    def _note(self, last: Delivered, end: int) -> None:
        """Note the position behind a page, from which the next page goes on."""
        last_id = last.block.ids(last.first_id, last.stop - 1, last.stop)[0]
        self._pages[int(last_id)] = end
        if len(self._pages) > VIEWED_PAGES:
            del self._pages[next(iter(self._pages))]

    def _rows(self, part: Delivered, choice: Choice, after: int | None) -> NDArray[np.int64]:
        """Return the rows of a part that match the choice."""
        rows = rows_of(part, choice)
        wanted = None if self._subscription is None else self._subscription.wanted
        if len(rows) and wanted is not None:
            matching = rows_of(part, Choice(condition=wanted))
            rows = np.intersect1d(rows, matching, assume_unique=True)
        if len(rows) and (after is not None or choice.message_id is not None):
            ids = part.block.ids(part.first_id, part.start, part.stop)[rows]
            if choice.message_id is not None:
                rows = rows[ids == choice.message_id]
            elif after is not None:
                rows = rows[ids > after]
        return rows

    def _parts(self, start: int) -> Iterator[tuple[int, Delivered]]:
        """All messages from the position on, and where each part begins."""
        first = int(np.searchsorted(self._runs[:, 1], start, side="right")) if start else 0
        for low, high in self._runs[first:].tolist():
            position = max(start, low)
            while position < high:
                for pointer in self._kept(position, high):
                    for part in self._fetch(pointer):
                        yield position, part
                        position += part.stop - part.start

    def _fetch(self, pointer: Pointer) -> list[Delivered]:
        """A pointer's messages."""
        queue, ref = self._queue, pointer.ref
        data = self._memory.get(ref.address) if ref.kind == format.MEMORY else None
        if data is None:
            return self._delivery.fetch(queue, pointer, 1, kept=self._kept)
        block = open_block(data, f"memory {ref.address:#x}")
        part = Delivered(block, pointer.start, pointer.stop, ref.first_id, ref.time_us, 1)
        return [part if queue.schema is None else widened(part, queue.schema)]

    def _kept(self, start: int, end: int) -> list[Pointer]:
        """Pointers to the first messages of [start, end), in the queue or released since."""
        queue = self._queue
        with queue.lock:
            _check_there(queue)
            found = queue.pointers(start, end)
            if not self._is_sorted:
                self._released.sort(key=_position)
                self._is_sorted = True
            index = max(bisect_right(self._released, start, key=_position) - 1, 0)
            near = self._released[index : index + POINTERS_AT_ONCE]
            pointers = _following([*found, *_pointers_within(near, start, end)], start)
            if not pointers:  # a checkpoint has made one of several, some of which are released
                pointers = _following(_pointers_within(self._released, start, end), start)
            is_lost = self._is_lost
        if is_lost or not pointers:
            raise PositionLost(
                f"others have read or removed too much of queue {queue.name!r} since this "
                f"transaction browsed it first (more than {VIEWED_BLOCKS} blocks, or "
                f"{VIEWED_BYTES >> 20} MiB): begin anew, or browse without a transaction"
            )
        return pointers

    # While others release (QV2); under the queue's lock

    def keep(self, refs: Sequence[BlockRef]) -> None:
        """These blocks are about to be free. Does not raise."""
        if self._is_lost:
            return
        try:
            for ref in refs:
                if ref.position < self._end:
                    self._pin(ref)
        except QuireError:
            self._lose()
        if len(self._released) > VIEWED_BLOCKS or self._bytes > VIEWED_BYTES:
            self._lose()

    def _pin(self, ref: BlockRef) -> None:
        if ref.kind == format.INLINE:
            number = self._journal.segment_of(ref.address)
            if number not in self._segments:
                self._journal.pin(number)
                self._segments.add(number)
        elif ref.kind == format.MEMORY:
            self._memory[ref.address] = self._places.memory.read(ref.address)
        else:
            self._places.pin(ref)
        self._released.append(ref)
        self._bytes += ref.charge
        self._is_sorted = False

    def _lose(self) -> None:
        self._is_lost = True
        self._unpin_all()

    def _unpin_all(self) -> None:
        self._memory.clear()
        while self._released:
            ref = self._released.pop()
            if ref.kind not in (format.INLINE, format.MEMORY):
                self._places.unpin(ref)
        while self._segments:
            self._journal.unpin(self._segments.pop())


def _check_there(queue: Queue) -> None:
    if queue.dropped:
        raise QueueNotFound(f"queue {queue.name!r} was dropped")


def _pointers_within(refs: Iterable[BlockRef], start: int, end: int) -> Iterator[Pointer]:
    """Yield pointers to the parts of the blocks that lie in [start, end)."""
    for ref in refs:
        first, stop = max(start - ref.position, 0), min(end - ref.position, ref.count)
        if first < stop:
            yield Pointer(ref, first, stop)


def _following(found: Iterable[Pointer], start: int) -> list[Pointer]:
    """Those that follow one another from the position on."""
    pointers: list[Pointer] = []
    for pointer in sorted(found, key=_begin):
        if pointer.position == start:
            pointers.append(pointer)
            start = pointer.end_position
    return pointers


def _position(ref: BlockRef) -> int:
    return ref.position


def _begin(pointer: Pointer) -> int:
    return pointer.position
