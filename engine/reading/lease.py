"""Leases: ranges of a queue that stay where they are, for readers that open the files themselves.

- LE1: while a lease is held, the places that its pieces name keep their bytes, even if every
  subscription has read them.
- LE2: a lease ends at its time if nobody renews it: a reader that died pins nothing for ever. After
  that a piece's checksum tells a reader that its block is gone; wrong messages are never read.
- LE3: ranges that are leased together are pinned all or not at all, and end together.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from quire.engine.pages.places import Places
from quire.engine.queues.queue import Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.records import format
from quire.engine.records.block_ref import KIND_NAMES, BlockRef
from quire.env import Env
from quire.errors import InvalidArgument, PositionLost, QueueNotFound, StoreCorrupt
from quire.info import Lease, Piece
from quire.journal import Journal
from quire.limits import MAX_LEASES


class Leases:
    """All leases of a store. Thread-safe."""

    def __init__(self, env: Env, places: Places, journal: Journal) -> None:
        self._env = env
        self._places = places
        self._journal = journal
        self._lock = threading.Lock()
        self._held: dict[int, tuple[float, list[BlockRef]]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(
        self, ranges: Sequence[tuple[Queue, int, int]], seconds: float, gaps: bool = False
    ) -> list[Lease]:
        """Pin the messages [start, end) of each queue (LE3). Raises `PositionLost` if part of them
        is gone.

        With `gaps` what has been released, or is not there yet, is left out instead.
        """
        if len(self._held) >= MAX_LEASES:
            raise InvalidArgument(f"{MAX_LEASES} leases are held: release some")
        if gaps:
            ranges = [_to_end(*each) for each in ranges]
        pinned: list[BlockRef] = []
        found: list[list[Pointer]] = []
        try:
            for queue, start, end in ranges:
                found.append(self._pinned(queue, start, end, gaps, pinned))
        except BaseException:
            self._unpin(pinned)
            raise
        lease_id = self._env.random_u64() >> 1
        with self._lock:
            self._held[lease_id] = self._env.monotonic() + seconds, pinned
        return [
            Lease(lease_id, queue.name, start, end, list(map(_piece, own)), queue.config.created_us)
            for (queue, start, end), own in zip(ranges, found, strict=True)
        ]

    def _pinned(
        self, queue: Queue, start: int, end: int, gaps: bool, pinned: list[BlockRef]
    ) -> list[Pointer]:
        """Where a range is; its blocks are added to `pinned` as they are pinned."""
        if queue.is_volatile:
            raise InvalidArgument(
                f"queue {queue.name!r} is volatile: its messages are in its owner's memory, and "
                "cannot be read from files (as Spark does); read it by get, or let a persistent "
                "queue have them"
            )
        with queue.lock:
            self._check_range(queue, start, end)
        pointers: list[Pointer] = []
        position = start
        while position < end:
            with queue.lock:
                self._check_range(queue, start, end)
                if gaps:
                    found = queue.deliverable(None, position, end)
                    position = found[-1].end_position if found else end
                else:
                    found = queue.pointers(position, end)
                    position = self._check_whole(queue, found, position, end)
                refs = [pointer.ref for pointer in found]
                self._pin(refs)
                pinned += refs
            pointers += found
        return pointers

    def renew(self, lease_id: int, seconds: float) -> None:
        """Let it end in so many seconds from now. Raises `PositionLost` if it has ended."""
        with self._lock:
            held = self._held.get(lease_id)
            if held is None:
                raise PositionLost(f"lease {lease_id} has ended: take a new one")
            self._held[lease_id] = self._env.monotonic() + seconds, held[1]

    def release(self, lease_id: int) -> None:
        """Give the range back; nothing happens if the lease has ended."""
        with self._lock:
            held = self._held.pop(lease_id, None)
        if held is not None:
            self._unpin(held[1])

    def expire(self) -> int:
        """End the leases whose time is over; how many."""
        now = self._env.monotonic()
        late = [lease_id for lease_id, (until, _) in list(self._held.items()) if until <= now]
        for lease_id in late:
            self.release(lease_id)
        return len(late)

    def _check_range(self, queue: Queue, start: int, end: int) -> None:
        if queue.dropped:
            raise QueueNotFound(f"queue {queue.name!r} was dropped")
        if end > queue.end_position:
            raise PositionLost(
                f"queue {queue.name!r} ends at position {queue.end_position}: [{start}, {end}) "
                "is not in it"
            )

    def _check_whole(self, queue: Queue, pointers: list[Pointer], start: int, end: int) -> int:
        """Where the blocks end, which have to follow each other from start on."""
        position = start
        for pointer in pointers:
            if pointer.ref.position > position:
                break
            position = pointer.end_position
        else:
            if pointers:
                return position
        raise PositionLost(
            f"queue {queue.name!r}: the messages at [{start}, {end}) are not all there any more, "
            f"the first that is gone is {position}; they have been read by every subscription"
        )

    def _pin(self, refs: list[BlockRef]) -> None:
        pinned: list[BlockRef] = []
        try:
            for ref in refs:
                if ref.kind == format.INLINE:
                    self._journal.pin(self._journal.segment_of(ref.address))
                else:
                    self._places.pin(ref)
                pinned.append(ref)
        except (StoreCorrupt, PositionLost):
            self._unpin(pinned)
            raise

    def _unpin(self, refs: list[BlockRef]) -> None:
        for ref in refs:
            if ref.kind == format.INLINE:
                self._journal.unpin(self._journal.segment_of(ref.address))
            else:
                self._places.unpin(ref)


def _to_end(queue: Queue, start: int, end: int) -> tuple[Queue, int, int]:
    """A range as far as the queue goes."""
    with queue.lock:
        last = queue.end_position
    return queue, min(start, last), min(end, last)


def _piece(pointer: Pointer) -> Piece:
    ref, start, stop = pointer
    return Piece(
        kind=KIND_NAMES[ref.kind],
        address=ref.address,
        length=ref.length,
        checksum=ref.checksum,
        start=start,
        stop=stop,
        first_id=ref.first_id,
        time_us=ref.time_us,
        first_position=ref.position + start,
    )
