"""The search for a message's position in a queue: by its commit's time, or by its id.

- Both ascend with the positions, as they are given in commit order. So a few record pages are
  looked at, by bisection, and at most one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quire.batches.delivered_slice import Delivered
from quire.engine.queues.queue import Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.format import DATA
from quire.engine.state.sections.seeks import check_kept
from quire.errors import InvalidArgument, PositionLost
from quire.interface.starts import id_of, time_of
from quire.libraries import np

from .fetcher import Fetcher

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FIRST_ID, _TIME_US = 1, 2  # of a `BlockRef`


def kept_place(delivery: Fetcher, queue: Queue, start: str | int) -> tuple[int, bool]:
    """`place_of`, and whether it is to be kept still when a subscription is moved there.

    Raises PositionLost, besides, where it is not.
    """
    position = place_of(delivery, queue, start)
    is_strict = start != "earliest"
    if is_strict:
        with queue.lock:
            check_kept(queue.durable, position)
    return position, is_strict


def place_of(delivery: Fetcher, queue: Queue, start: str | int) -> int:
    """The position that a checked start means now.

    Raises InvalidArgument for a position that the queue does not have, PositionLost for the id of
    a message that it does not keep. Where only the latest of each key is, that goes for nobody: all
    that is kept from that place on is meant.
    """
    time_us, message_id = time_of(start), id_of(start)
    if time_us is not None:
        return position_at(delivery, queue, time_us)
    if message_id is not None and queue.config.properties.keep_latest is not None:
        return min(places_of(delivery, queue, [message_id])[0][0], queue.end_position)
    if message_id is not None:
        return position_of(delivery, queue, message_id)
    with queue.lock:
        if start == "earliest":
            return queue.released.first_gap(0)
        end = queue.end_position
    position = end if start == "latest" else int(start)
    if position > end:
        raise InvalidArgument(
            f"position {position}: queue {queue.name!r} ends at position {end}: give 0 to {end}"
        )
    return position


def position_at(delivery: Fetcher, queue: Queue, time_us: int) -> int:
    """The first position that is kept whose message was committed then or later.

    The end of the queue if there is none. Raises StoreCorrupt.
    """
    while True:
        with queue.lock:
            record = queue.records.last_up_to(_TIME_US, time_us - 1)
            position = 0 if record is None else record.end
            if record is None or record.kind != DATA or not queue.unreleased(record):
                # All of its messages were committed at one time, or none of them is kept.
                return min(queue.released.first_gap(position), queue.end_position)
        times = _column(
            delivery, queue, record, lambda p: p.block.times(p.time_us, p.start, p.stop)
        )
        if times is None:
            continue  # it was moved meanwhile
        position = record.position + int(np.searchsorted(times, time_us))
        with queue.lock:
            return min(queue.released.first_gap(position), queue.end_position)


def position_of(delivery: Fetcher, queue: Queue, message_id: int) -> int:
    """The position of a message that is kept. Raises PositionLost, StoreCorrupt."""
    [(position, is_there)] = places_of(delivery, queue, [message_id])
    with queue.lock:
        if is_there and not queue.released.contains(position):
            return position
        first = queue.released.first_gap(0)
    raise PositionLost(
        f"queue {queue.name!r} keeps no message with the id {message_id}: the first position "
        f"that it keeps is {first}"
    )


def places_of(delivery: Fetcher, queue: Queue, ids: Sequence[int]) -> list[tuple[int, bool]]:
    """For each of ascending ids, a position before which are all lower ones, and whether its
    message is there: perhaps released, and else that of no message with a lower id.

    Raises StoreCorrupt.
    """
    places: list[tuple[int, bool]] = []
    latest: tuple[BlockRef, NDArray[np.int64]] | None = None
    while len(places) < len(ids):
        message_id = ids[len(places)]
        with queue.lock:
            record = queue.records.last_up_to(_FIRST_ID, message_id)
            is_kept = record is not None and queue.unreleased(record)
        if record is None or not is_kept:
            places.append((0 if record is None else record.end, False))
        elif record.kind == DATA:
            if latest is None or latest[0] != record:
                column = _column(
                    delivery, queue, record, lambda p: p.block.ids(p.first_id, p.start, p.stop)
                )
                if column is None:
                    continue  # it was moved meanwhile
                latest = record, column
            row = int(np.searchsorted(latest[1], message_id))
            is_there = row < record.count and int(latest[1][row]) == message_id
            places.append((record.position + row, is_there))
        else:
            row = min(message_id - record.first_id, record.count)
            places.append((record.position + row, row < record.count))
    return places


def _column(
    delivery: Fetcher,
    queue: Queue,
    record: BlockRef,
    read: Callable[[Delivered], NDArray[np.int64]],
) -> NDArray[np.int64] | None:
    """A number of each message of a record; None if it is not there any more as it was."""
    parts = delivery.fetch(queue, Pointer(record, 0, record.count), 1)
    columns = [read(part) for part in parts]
    if sum(map(len, columns)) != record.count:
        return None
    return np.concatenate(columns)
