"""How far a micro-batch goes that may have so many bytes.

A position does not tell how many bytes lie before it. The places of the messages do, block by
block; inside a block, or a file of a large transaction, a message is taken for the mean of all.

YL1. From each queue that has messages at least one is taken, so that every query goes on.
- No more places are looked at than about those of what is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.errors import PositionLost, QueueNotFound, StoreCorrupt
from quire.reports.info import Piece
from quire.spark_graphs.checkpoint.offsets import Positions
from quire.spark_graphs.limits import (
    ASSUMED_MESSAGE_BYTES,
    FIRST_LOOK_MESSAGES,
    LEASE_SECONDS,
    LOOK_GROWTH,
)
from quire.spark_graphs.task_files.task_files import TaskFiles

if TYPE_CHECKING:
    from quire.interface.store import Store


def within(
    store: Store,
    files: TaskFiles,
    begin: Positions,
    ends: Positions,
    available: Positions,
    max_bytes: int,
) -> Positions:
    """Ends, none beyond those given, so that about `max_bytes` lie before them (YL1).

    Args:
        available: where the queues end; the places are looked at up to there.
    """
    waiting = {queue: ends[queue] - begin[queue] for queue in ends if ends[queue] > begin[queue]}
    total, found = sum(waiting.values()), dict(ends)
    for queue, count in sorted(waiting.items(), key=lambda item: (item[1], item[0])):
        share = max_bytes * count // total  # what a queue leaves, the next ones have
        taken, size = _fitting(store, files, queue, begin[queue], available[queue], share)
        found[queue] = min(ends[queue], begin[queue] + max(1, taken))
        max_bytes = max(0, max_bytes - size)
        total -= count
    return found


def _fitting(
    store: Store, files: TaskFiles, queue: str, begin: int, end: int, limit: int
) -> tuple[int, int]:
    """Return how many messages from `begin` on have about `limit` bytes, and their bytes."""
    position, size, look = begin, 0, FIRST_LOOK_MESSAGES
    while position < end:
        stop = min(end, position + look)
        try:
            lease = store.integration.lease(queue, position, stop, seconds=LEASE_SECONDS)
        except (PositionLost, QueueNotFound):
            return end - begin, size  # planning the range says what is to be done about it
        try:
            # The last block may go on beyond what was asked for: it is looked at again as a whole.
            for piece in lease.pieces if stop == end else lease.pieces[:-1]:
                count = piece.stop - piece.start
                mean = mean_bytes(files, store.integration.store_id, queue, piece)
                each = mean or ASSUMED_MESSAGE_BYTES
                room = int((limit - size) / each)
                if room < count:
                    return position - begin + room, size + int(room * each)
                position += count
                size += int(count * each)
        finally:
            store.integration.end_lease(lease.lease_id)
        look *= LOOK_GROWTH
    return position - begin, size


def mean_bytes(files: TaskFiles, store_id: int, queue: str, piece: Piece) -> float | None:
    """Return the mean size of a message of a leased piece's block, as far as it shows it, or file.

    None: the file tells nothing.
    """
    if piece.length:
        return piece.length / piece.stop
    try:
        with files.open_large(queue, piece.address, store_id) as file:
            return max(1.0, file.charge_bytes / max(1, file.count))
    except (StoreCorrupt, OSError):
        return None
