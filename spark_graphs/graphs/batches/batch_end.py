"""Where a batch ends in each of its inputs.

YCU1. The inputs of a step end at one point of the store's commit order: of a transaction that has
    put to several of them a batch has all messages, or none.
YCU2. A batch has no more than its limits say; but one message at least, and where the inputs are
    several the whole of one transaction.
- No more places are looked at than about those of what is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from quire.errors import PositionLost, QueueNotFound
from quire.spark_graphs.checkpoint.offsets import Positions, admit
from quire.spark_graphs.graphs.definition import Limit
from quire.spark_graphs.limits import FIRST_LOOK_MESSAGES, LEASE_SECONDS, LOOK_GROWTH, STEP_PIECES
from quire.spark_graphs.planning.byte_limit import within

if TYPE_CHECKING:
    from quire.interface.store import Store


def cut(store: Store, begins: Positions, ends: Positions, limit: Limit) -> Positions:
    """Return where the batch ends that begins there, none beyond the ends, of one point (YCU1).

    The limit of bytes is not looked at: see `cut_bytes`.
    """
    found = admit(begins, ends, limit.messages)
    if sum(found[queue] - begin for queue, begin in begins.items()) > FIRST_LOOK_MESSAGES:
        found = with_few_pieces(store, begins, found, STEP_PIECES)
    return _aligned(store, begins, found, ends)


def cut_bytes(
    store: Store, begins: Positions, found: Positions, ends: Positions, max_bytes: int
) -> Positions:
    """Return where it ends with about so many bytes at most, none beyond `found`."""
    return _aligned(store, begins, within(store, begins, found, ends, max_bytes), ends)


def with_few_pieces(store: Store, begins: Positions, ends: Positions, max_pieces: int) -> Positions:
    """Ends, none beyond those given, before which there are not many more places than so many."""
    found, room = dict(ends), max_pieces
    for queue, begin in begins.items():
        position, look = begin, FIRST_LOOK_MESSAGES
        while position < ends[queue]:
            stop = min(ends[queue], position + look)
            try:
                lease = store.integration.lease(
                    queue, position, stop, seconds=LEASE_SECONDS, gaps=True
                )
            except (PositionLost, QueueNotFound):
                break  # leasing the batch says what is to be done about it
            store.integration.end_lease(lease.lease_id)
            room -= len(lease.pieces)
            position = stop
            if room <= 0:
                found[queue] = stop
                break
            look *= LOOK_GROWTH
    return found


def _aligned(store: Store, begins: Positions, found: Positions, ends: Positions) -> Positions:
    """The last point of the commit order that is in no queue beyond these ends (YCU1, YCU2).

    Commit times ascend in that order. So what was committed before a time is all before one point.
    """
    if len(begins) == 1 or found == ends:
        return dict(found)
    times = [
        message.time
        for queue, end in found.items()
        if end < ends[queue]
        for message in store.browse(queue, start=end, max_messages=1)
    ]
    time_us = min(times, default=math.inf)
    if time_us == math.inf:
        return dict(ends)
    aligned = _before(store, int(time_us), begins, ends)
    if aligned == begins:  # one transaction is more than the limit
        aligned = _before(store, int(time_us) + 1, begins, ends)
    return aligned


def _before(store: Store, time_us: int, begins: Positions, ends: Mapping[str, int]) -> Positions:
    return {
        queue: max(begins[queue], min(end, store.admin.position_at(queue, time_us / 1e6)))
        for queue, end in ends.items()
    }
