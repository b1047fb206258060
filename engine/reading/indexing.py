"""Filling the selections of queues that are not read in commit order: see `queues.selection`.

- IX1: messages are looked at without any lock but that of their subscription's indexing, some at a
  time, so that puts, commits and other readers go on meanwhile.
- IX2: what cannot be read has the rank of a message without headers. It is refused as damage when
  it is delivered, at its place, as it would be in commit order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quire.block.format import Column
from quire.engine.queues.queue import Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.queues.subscription import Subscription
from quire.errors import StoreCorrupt
from quire.limits import INDEXED_AT_ONCE, MAX_PRIORITY

from .block_reader import BlockMoved, BlockReader


def catch_up(reader: BlockReader, queue: Queue, subscription: Subscription) -> None:
    """Look at all messages of the subscription that are not looked at yet."""
    with subscription.indexing:
        while True:
            with queue.lock:
                selection = subscription.selection
                if selection is None or not selection.is_behind(queue.end_position):
                    return
                found = selection.next_unknown(
                    subscription.done, queue.end_position, INDEXED_AT_ONCE
                )
                if found is None:
                    return
                default = queue.config.properties.default_priority
                pointers = queue.pointers(*found)
            start = found[0]
            # As far as the pointers go; what is not there any more is read, and needs no rank.
            end = pointers[-1].end_position if pointers else found[1]
            ranks = np.zeros(end - start, np.int64)
            for pointer in pointers:
                at = pointer.ref.position + pointer.start - start
                priorities = _priorities(reader, queue, pointer)
                ranks[at : at + len(priorities)] = priorities
            ranks[ranks == 0] = default
            with queue.lock:
                if subscription.selection is selection:
                    selection.learn(start, MAX_PRIORITY - ranks, subscription.done)


def _priorities(reader: BlockReader, queue: Queue, pointer: Pointer) -> NDArray[np.int64]:
    """Of the messages that a pointer names; 0 where there is none (IX2)."""
    try:
        return _read(reader, pointer)
    except (BlockMoved, StoreCorrupt):  # a checkpoint may have moved it, or it is damaged
        count = pointer.stop - pointer.start
        start = pointer.ref.position + pointer.start
        ranks = np.zeros(count, np.int64)
        with queue.lock:
            again = [] if queue.dropped else queue.pointers(start, start + count)
        for moved in again:
            if moved.ref == pointer.ref:
                continue  # the same place: damage
            at = moved.ref.position + moved.start - start
            priorities = _priorities(reader, queue, moved)
            ranks[at : at + len(priorities)] = priorities
        return ranks


def _read(reader: BlockReader, pointer: Pointer) -> NDArray[np.int64]:
    parts = []
    for part in reader.deliver(pointer, 1):
        column = part.block.headers.fixed.get(Column.PRIORITY)
        if column is None:
            parts.append(np.zeros(part.stop - part.start, np.int64))
        else:
            parts.append(column[part.start : part.stop].astype(np.int64))
    return np.concatenate(parts) if len(parts) != 1 else parts[0]
