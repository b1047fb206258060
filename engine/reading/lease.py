"""Leases: ranges of a queue that stay where they are, for readers that open the files themselves.

- While a lease is held, the places that its pieces name keep their bytes, even if every
  subscription has read them.
- A lease ends at its time if nobody renews it: a reader that died pins nothing for ever. After that
  a piece's checksum tells a reader that its block is gone; wrong messages are never read.
- Names of readers are leased too, and are locked as readers of the machine lock them themselves.
- LE3: ranges that are leased together are pinned all or not at all, and end together.
- LE4: for readers on other hosts a place is one of a queue while a lease of that queue has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from quire.engine.pages.block_places import Places
from quire.engine.queues.queue import Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.records import format
from quire.engine.records.block_ref import KIND_NAMES, BlockRef
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import InvalidArgument, PositionLost, QueueInUse, QueueNotFound
from quire.journal import Journal
from quire.limits import MAX_LEASES
from quire.reports.info import Lease, Piece


class _LeasedPlaces:
    """A lease: until when, what undoes its pins, and what is leased of each queue."""

    def __init__(
        self, until: float, pinned: ExitStack, pointers: Mapping[str, Sequence[Pointer]]
    ) -> None:
        self.until = until
        self.pinned: Final = pinned
        self._pointers = pointers
        self._lengths: dict[tuple[str, str, int], int] | None = None

    def length(self, queue: str, kind: str, address: int) -> int | None:
        """Return the length of a leased place of the queue, 0 for a file; None: it is none."""
        if queue not in self._pointers:
            return None
        if self._lengths is None:  # few leases are read from other hosts
            self._lengths = {
                (name, KIND_NAMES[ref.kind], ref.address): ref.length
                for name, pointers in self._pointers.items()
                for ref, *_ in pointers
            }
        return self._lengths.get((queue, kind, address))


class Leases:
    """All leases of a store. Thread-safe."""

    def __init__(self, env: Env, places: Places, journal: Journal) -> None:
        self._env = env
        self._places = places
        self._journal = journal
        self._lock = Lock()
        self._held: dict[int, _LeasedPlaces] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(
        self, ranges: Sequence[tuple[Queue, int, int]], seconds: float, gaps: bool = False
    ) -> list[Lease]:
        """Pin the messages [start, end) of each queue (LE3). Raises `PositionLost` if part of them
        is gone.

        With `gaps` what has been released, or is not there yet, is left out instead.
        """
        self._check_room()
        if gaps:
            ranges = [_to_end(*each) for each in ranges]
        with ExitStack() as pinned:
            found = [self._pinned(*each, gaps, pinned) for each in ranges]
            pointers: dict[str, list[Pointer]] = {}
            for (queue, _, _), own in zip(ranges, found, strict=True):
                pointers.setdefault(queue.name, []).extend(own)
            lease_id = self._keep(pinned.pop_all(), seconds, pointers)
        return [
            Lease(lease_id, queue.name, start, end, list(map(_piece, own)), queue.config.created_us)
            for (queue, start, end), own in zip(ranges, found, strict=True)
        ]

    def take_all(self, seconds: float) -> int:
        """Pin all that the store has now; the lease's id. Called while nothing is committed."""
        self._check_room()
        with ExitStack() as pinned:
            self._places.pin_all(pinned)
            for number in self._journal.status().segments:
                with suppress(PositionLost):  # a checkpoint that is durable has it released now
                    self._journal.pin(number)
                    pinned.callback(self._journal.unpin, number)
            return self._keep(pinned.pop_all(), seconds)

    def take_names(self, path: str, names: Sequence[str], seconds: float) -> int:
        """Lock names at the path (`Env.lock_names`); the lease's id. Raises `QueueInUse`."""
        self._check_room()
        lock = self._env.lock_names(path, names)
        if isinstance(lock, str):
            raise QueueInUse(f"name {lock!r:.300} is held by another reader: let that one end")
        with ExitStack() as pinned:
            pinned.callback(lock.release)
            return self._keep(pinned.pop_all(), seconds)

    def _check_room(self) -> None:
        if len(self._held) >= MAX_LEASES:
            raise InvalidArgument(f"{MAX_LEASES} leases are held: release some")

    def has_place(self, queue: str, kind: str, address: int, end: int) -> bool:
        """Return True if a lease of the queue has the place, as far as to `end` (LE4).

        A file of a large transaction is one queue's, all of it.
        """
        with self._lock:
            for held in reversed(self._held.values()):
                length = held.length(queue, kind, address)
                if length is not None:
                    return not length or end <= length
        return False

    def _keep(
        self,
        pinned: ExitStack,
        seconds: float,
        pointers: Mapping[str, Sequence[Pointer]] | None = None,
    ) -> int:
        lease_id = self._env.random_u64() >> 1
        with self._lock:
            until = self._env.monotonic() + seconds
            self._held[lease_id] = _LeasedPlaces(until, pinned, pointers or {})
        return lease_id

    def _pinned(
        self, queue: Queue, start: int, end: int, gaps: bool, pinned: ExitStack
    ) -> list[Pointer]:
        """Return pointers to a range; `pinned` undoes the pins of its blocks."""
        if queue.is_volatile:
            raise InvalidArgument(
                f"queue {queue.name!r} is volatile: its messages are in its owner's memory, and "
                "cannot be read from files (as Spark does); read it by get, or let a persistent "
                "queue have them"
            )
        pointers: list[Pointer] = []
        position = start
        while True:
            with queue.lock:
                if queue.dropped:
                    raise QueueNotFound(f"queue {queue.name!r} was dropped")
                if end > queue.end_position:
                    raise PositionLost(
                        f"queue {queue.name!r} ends at position {queue.end_position}: [{start}, "
                        f"{end}) is not in it, give positions up to that"
                    )
                if position >= end:
                    return pointers
                if gaps:
                    found = queue.deliverable(None, position, end)
                else:
                    found = _contiguous(queue.pointers(position, end), position)
                for pointer in found:
                    self._pin(pointer.ref, pinned)
            pointers += found
            if found:
                position = found[-1].end_position
            elif gaps:
                position = end
            else:
                raise PositionLost(
                    f"queue {queue.name!r}: the messages at [{start}, {end}) are not all there any "
                    f"more, the first that is gone is {position}; they have been read by every "
                    "subscription"
                )

    def renew(self, lease_id: int, seconds: float) -> None:
        """Let it end in so many seconds from now. Raises `PositionLost` if it has ended."""
        with self._lock:
            held = self._held.get(lease_id)
            if held is None:
                raise PositionLost(f"lease {lease_id} has ended: take a new one")
            held.until = self._env.monotonic() + seconds

    def release(self, lease_id: int) -> None:
        """Give the range back; nothing happens if the lease has ended."""
        with self._lock:
            held = self._held.pop(lease_id, None)
        if held is not None:
            held.pinned.close()

    def expire(self) -> int:
        """End the leases whose time is over; how many."""
        now = self._env.monotonic()
        late = [lease_id for lease_id, held in list(self._held.items()) if held.until <= now]
        for lease_id in late:
            self.release(lease_id)
        return len(late)

    def _pin(self, ref: BlockRef, pinned: ExitStack) -> None:
        if ref.kind == format.INLINE:
            number = self._journal.segment_of(ref.address)
            self._journal.pin(number)
            pinned.callback(self._journal.unpin, number)
        else:
            self._places.pin(ref)
            pinned.callback(self._places.unpin, ref)


def _contiguous(pointers: list[Pointer], position: int) -> list[Pointer]:
    """Those that follow each other from the position on."""
    found: list[Pointer] = []
    for pointer in pointers:
        if pointer.position > position:
            break
        found.append(pointer)
        position = pointer.end_position
    return found


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
