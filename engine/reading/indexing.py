"""Filling the selections of queues that are not read in commit order: see `queues.selection`.

- IX1: messages are looked at without any lock but that of their subscription's indexing, some at a
  time, so that puts, commits and other readers go on meanwhile.
- IX2: what cannot be read has the rank of a message without headers. It is refused as damage when
  it is delivered, at its place, as it would be in commit order.
"""

from __future__ import annotations

import numpy as np

from quire.block.format import ABSENT_TIME, Column
from quire.engine.queues.groups import group_number
from quire.engine.queues.queue import Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.queues.selection import Headers
from quire.engine.queues.subscription import Subscription
from quire.env import Env
from quire.errors import StoreCorrupt
from quire.limits import GROUPED_AT_ONCE, INDEXED_AT_ONCE, MAX_PRIORITY, NEVER_US
from quire.message import GROUP_KEY, Delivered
from quire.properties import Properties

from .block_reader import BlockMoved, BlockReader


def catch_up(env: Env, reader: BlockReader, queue: Queue, subscription: Subscription) -> None:
    """Look at all messages of the subscription that are not looked at yet."""
    with subscription.indexing:
        while True:
            with queue.lock:
                selection = subscription.selection
                if selection is None or not selection.is_behind(queue.end_position):
                    return
                properties = queue.config.properties
                most = GROUPED_AT_ONCE if properties.grouped else INDEXED_AT_ONCE
                found = selection.next_unknown(subscription.done, queue.end_position, most)
                if found is None:
                    return
                pointers = queue.pointers(*found)
            start = found[0]
            # As far as the pointers go; what is not there any more is read, and needs no rank.
            end = pointers[-1].end_position if pointers else found[1]
            columns = Columns(start, end, properties)
            for pointer in pointers:
                columns.read(reader, queue, pointer)
            with queue.lock:
                if subscription.selection is selection:
                    found_there = columns.headers()
                    selection.learn(start, found_there, subscription.done, env.now_us())


class Columns:
    """What the headers of messages at [start, end) say, as far as the queue's properties ask."""

    def __init__(self, start: int, end: int, properties: Properties) -> None:
        self._start = start
        self._properties = properties
        self._priority = np.zeros(end - start, np.int64)
        self._due = self._expires = self._groups = None
        if properties.grouped:
            self._groups = np.zeros(end - start, np.int64)
        if properties.timed:
            self._due = np.zeros(end - start, np.int64)
            self._expires = np.full(end - start, NEVER_US, np.int64)

    def headers(self) -> Headers:
        """For the selection."""
        if not self._properties.priority:
            return np.zeros_like(self._priority), self._due, self._expires, self._groups
        ranks = self._priority
        ranks[ranks == 0] = self._properties.default_priority
        return MAX_PRIORITY - ranks, self._due, self._expires, self._groups

    def read(self, reader: BlockReader, queue: Queue, pointer: Pointer) -> None:
        """Of the messages that a pointer names (IX2)."""
        start = pointer.ref.position + pointer.start
        try:
            for part in reader.deliver(pointer, 1):
                self._take(part, start)
                start += part.stop - part.start
        except (BlockMoved, StoreCorrupt):  # a checkpoint may have moved it, or it is damaged
            with queue.lock:
                again = [] if queue.dropped else queue.pointers(start, pointer.end_position)
            for moved in again:
                if moved.ref != pointer.ref:  # else it is damage
                    self.read(reader, queue, moved)

    def _take(self, part: Delivered, position: int) -> None:
        block, rows = part.block, slice(part.start, part.stop)
        fixed = block.headers.fixed
        at = slice(position - self._start, position - self._start + part.stop - part.start)
        if Column.PRIORITY in fixed:
            self._priority[at] = fixed[Column.PRIORITY][rows]
        attributes = block.headers.attributes
        if self._groups is not None and attributes is not None:
            for row, key in attributes.find(GROUP_KEY.encode(), part.start, part.stop):
                self._groups[at.start + row - part.start] = group_number(key)
        if self._due is None or self._expires is None:
            return
        if Column.DELIVER_AT in fixed:  # absent: far below zero
            self._due[at] = fixed[Column.DELIVER_AT][rows]
        ttl, max_ttl = self._properties.default_ttl, self._properties.max_ttl
        if ttl is not None:
            times = block.times(part.time_us, part.start, part.stop)
            self._expires[at] = times + int(ttl * 1e6)
        if Column.EXPIRES_AT in fixed:
            expires = fixed[Column.EXPIRES_AT][rows]
            if max_ttl is not None:  # put before there was one, or in a file that was adopted
                times = block.times(part.time_us, part.start, part.stop)
                expires = np.minimum(expires, times + int(max_ttl * 1e6))
            self._expires[at] = np.where(expires == ABSENT_TIME, self._expires[at], expires)
