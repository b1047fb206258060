"""Filling the selections of queues that are not read in commit order: see `delivery.selection`.

- Messages are looked at without any lock but that of their subscription's indexing, some at a time,
  so that puts, commits and other readers go on meanwhile.
- IX2: what cannot be read has the rank of a message without headers. It is refused as damage when
  it is delivered, at its place, as it would be in commit order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quire.batches.delivered_slice import Delivered
from quire.block.format import ABSENT_TIME, Column
from quire.definitions.order import BUILT_IN, PRIORITY, by_code, by_sequence
from quire.definitions.order_code import order_named
from quire.definitions.properties import Properties
from quire.engine.delivery.ordered_groups import group_number
from quire.engine.delivery.ready_positions import Ranks
from quire.engine.delivery.selection import Selection, SelectionHeaders
from quire.engine.delivery.sequences import NO_SEQUENCE, number_of
from quire.engine.delivery.steady_clock import clock_us
from quire.engine.queues.queue import InFlightRange, Queue
from quire.engine.queues.read_structure import Pointer
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import Read
from quire.env import Env
from quire.errors import InvalidArgument, StoreCorrupt
from quire.libraries import np
from quire.limits import (
    GROUPED_AT_ONCE,
    INDEXED_AT_ONCE,
    LAST_RANK,
    MAX_PRIORITY,
    NEVER_US,
    ORDERED_AT_ONCE,
)
from quire.messages.message import GROUP_KEY

from .block_reader import BlockMoved, BlockReader
from .ranks import attribute_ranks, code_ranks, sequence_links

if TYPE_CHECKING:
    from quire.selectors.condition import MessageCondition


def catch_up(env: Env, reader: BlockReader, queue: Queue, subscription: Subscription) -> None:
    """Look at all messages of the subscription that are not looked at yet.

    What a registered order raises stops the queue.
    """
    with subscription.indexing:
        while not queue.stopped:
            with queue.lock:
                selection = subscription.order
                if not isinstance(selection, Selection):
                    return
                if not selection.is_behind(queue.end_position):
                    return
                properties = queue.config.properties
                most = INDEXED_AT_ONCE if properties.order in BUILT_IN else ORDERED_AT_ONCE
                most = GROUPED_AT_ONCE if properties.grouped else most
                found = selection.next_unknown(subscription.done, queue.end_position, most)
                if found is None:
                    return
                pointers = queue.pointers(*found)
            start = found[0]
            # As far as the pointers go; what is not there any more is read, and needs no rank.
            end = pointers[-1].end_position if pointers else found[1]
            columns = Columns(start, end, properties, subscription.wanted)
            try:
                for pointer in pointers:
                    columns.read(reader, queue, pointer)
            except Misordered as error:
                queue.stop(f"queue {queue.name!r} is stopped: {error}", missing="order")
                return
            with queue.lock:
                if subscription.order is selection:
                    found_there = columns.headers()
                    now_us, passed_us = env.now_us(), clock_us(env)
                    selection.learn(start, found_there, subscription.done, now_us, passed_us)


def is_timely(part: Delivered, now_us: int) -> bool:
    """Return True if a part's first message is due and has not expired, by its header alone."""
    block = part.block
    if block.columns & Column.DELIVER_AT:  # absent: far below zero
        due = block.headers_with(Column.DELIVER_AT).fixed[Column.DELIVER_AT]
        if due[part.start] > now_us:
            return False
    if not block.columns & Column.EXPIRES_AT:
        return True
    expires = block.headers_with(Column.EXPIRES_AT).fixed[Column.EXPIRES_AT][part.start]
    return bool(expires == ABSENT_TIME or expires > now_us)


def group_of(part: Delivered) -> int:
    """The number of the group of the first message of a part; 0: none."""
    attributes = part.block.headers.attributes
    if attributes is not None:
        for _, key in attributes.find(GROUP_KEY.encode(), part.start, part.start + 1):
            return group_number(key)
    return 0


def numbers_in(reader: BlockReader, queue: Queue, read: Read | InFlightRange) -> dict[int, int]:
    """By sender, the number after the highest of the messages that are read by this."""
    found: dict[int, int] = {}
    _, subscription_id, first, last = read[:4]
    with queue.lock:
        subscription = queue.subscriptions.get(subscription_id)
        done = None if subscription is None else subscription.done
        parts = [] if done is None else list(done.gaps(first, last))
    for start, end in parts:
        while start < end:
            with queue.lock:
                pointers = queue.pointers(start, end)
            stop = pointers[-1].end_position if pointers else end
            columns = Columns(start, stop, queue.config.properties)
            for pointer in pointers:
                columns.read(reader, queue, pointer)
            for link in columns.headers().ranks.tolist():
                if link != NO_SEQUENCE:
                    number, sender = number_of(link)
                    found[sender] = max(number + 1, found.get(sender, 0))
            start = stop
    return found


def _span_us(seconds: float | None) -> int:
    """In microseconds; `NEVER_US`: as long as there is time."""
    return NEVER_US if seconds is None else int(seconds * 1e6)


class Misordered(Exception):
    """The code of a queue's order is missing, or failed."""


class Columns:
    """The header columns of messages at [start, end) that the queue's properties need."""

    def __init__(
        self, start: int, end: int, properties: Properties, wanted: MessageCondition | None = None
    ) -> None:
        """`wanted`: what the subscription asks for, if that is not everything."""
        self._start = start
        self._wanted = wanted
        self._unwanted = None if wanted is None else np.zeros(end - start, np.bool_)
        self._properties = properties
        order, count = properties.order, end - start
        self._ranks: Ranks
        if order in BUILT_IN:
            self._ranks = np.zeros(count, np.int64)
        else:
            self._ranks = np.full(count, NO_SEQUENCE if by_sequence(order) else LAST_RANK, object)
        self._due = self._expires = self._groups = self._lives = self._times = None
        if by_sequence(order):
            self._times = np.zeros(count, np.int64)
        if properties.grouped:
            self._groups = np.zeros(count, np.int64)
        if properties.timed:
            self._due = np.zeros(count, np.int64)
            self._expires = np.full(count, NEVER_US, np.int64)
            if properties.default_ttl is not None:
                self._times = np.zeros(count, np.int64)
                self._lives = np.full(count, NEVER_US, np.int64)

    def headers(self) -> SelectionHeaders:
        """For the selection."""
        ranks = self._ranks
        if self._properties.order == PRIORITY:
            ranks = MAX_PRIORITY - ranks
        return SelectionHeaders(
            ranks, self._due, self._expires, self._groups, self._times, self._lives,
            self._unwanted,
        )  # fmt: skip

    def read(self, reader: BlockReader, queue: Queue, pointer: Pointer) -> None:
        """Read the columns of the messages that a pointer names (IX2). Raises Misordered."""
        start = pointer.position
        try:
            for part in reader.deliver(pointer, 1):
                self.take(part, start)
                start += part.stop - part.start
        except (BlockMoved, StoreCorrupt):  # a checkpoint may have moved it, or it is damaged
            for moved in queue.kept(start, pointer.end_position):
                if moved.ref != pointer.ref:  # else it is damage
                    self.read(reader, queue, moved)

    def take(self, part: Delivered, position: int) -> None:
        """Take the columns of a part's messages, whose first one has the position."""
        block, rows = part.block, slice(part.start, part.stop)
        fixed = block.headers.fixed
        at = slice(position - self._start, position - self._start + part.stop - part.start)
        self._rank(part, at)
        if self._wanted is not None and self._unwanted is not None:
            self._unwanted[at] = ~self._wanted.rows(
                block,
                first_id=part.first_id,
                time_us=part.time_us,
                start=part.start,
                stop=part.stop,
            )
        if self._times is not None:
            self._times[at] = block.times(part.time_us, part.start, part.stop)
        attributes = block.headers.attributes
        if self._groups is not None and attributes is not None:
            for row, key in attributes.find(GROUP_KEY.encode(), part.start, part.stop):
                self._groups[at.start + row - part.start] = group_number(key)
        if self._due is None or self._expires is None:
            return
        if Column.DELIVER_AT in fixed:  # absent: far below zero
            self._due[at] = fixed[Column.DELIVER_AT][rows]
        unsaid = _span_us(self._properties.default_ttl)
        if Column.EXPIRES_AT not in fixed:
            if self._lives is not None:
                self._lives[at] = unsaid
            return
        expires = fixed[Column.EXPIRES_AT][rows]
        has_time = expires != ABSENT_TIME
        self._expires[at] = np.where(has_time, expires, NEVER_US)
        if self._lives is not None:  # also of one in a file that was adopted, or put before
            self._lives[at] = np.where(has_time, _span_us(self._properties.max_ttl), unsaid)

    def _rank(self, part: Delivered, at: slice) -> None:
        block, order = part.block, self._properties.order
        if isinstance(order, Mapping):
            if "sequence" in order:
                name = order["sequence"]
                self._ranks[at] = sequence_links(block, part.start, part.stop, name)
            else:
                name, numeric = order["attribute"], order["numeric"]
                found = attribute_ranks(block, part.start, part.stop, name, numeric=numeric)
                self._ranks[at] = found
        elif by_code(order):
            try:
                self._ranks[at] = code_ranks(order_named(order), part)
            except InvalidArgument as error:
                raise Misordered(str(error)) from error
            except Exception as error:  # of somebody else's code: it stops this queue only
                raise Misordered(
                    f"the code of its order {order!r} failed ({error!r}): mend it and open the "
                    f"store again, or give another order, as with alter_queue(NAME, order='commit')"
                ) from error
        elif Column.PRIORITY in block.headers.fixed and order == PRIORITY:
            self._ranks[at] = block.headers.fixed[Column.PRIORITY][part.start : part.stop]
