"""How far a query's micro-batches have been planned: remembered by the store, not by Spark alone.

YE1. The ends of a micro-batch's ranges are durable in the store's ledger before it runs. Where
    Spark has lost them (its checkpoint is not synced, see offset_log.py) and plans the same range
    anew, it gets the same ends: the same micro-batch again, whatever its sink is.
- This only ever makes a micro-batch smaller than it might be. It goes by subscription and queue; of
  several queries that follow one another on one subscription, those that are behind get nothing
  from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from quire.errors import AlreadyCommitted, DiskFull
from quire.spark_graphs import connection
from quire.spark_graphs.limits import LEASE_TRIES
from quire.spark_graphs.options import ReadOptions

from .offsets import Offset, Positions

if TYPE_CHECKING:
    from quire.interface.store import Store

_log = logging.getLogger("quire.spark_graphs")


class PlannedEnds:
    """The ends of the last micro-batch that was planned for a subscription."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._ends: dict[str, int] = {}  # by ledger key, as far as asked for
        self._is_past = False  # the query has come to the ends: there is nothing to repeat

    def again(self, begin: Offset, latest: Offset, max_messages: int | None) -> Positions | None:
        """The ends that a micro-batch from here had before; None if it is planned for the first.

        Args:
            most: the most messages of a micro-batch; where it had more, it cannot be had again.
        """
        if self._is_past:
            return None
        keys = self._keys(latest)
        connection.call(self._options.path, lambda store: self._load(store, keys.values()))
        ends = dict(begin.positions)
        for queue, key in keys.items():
            ends[queue] = self._ends[key] if self._ends[key] >= 0 else ends[queue]
        ahead = [ends[queue] - position for queue, position in begin.positions.items()]
        if max(ahead, default=0) <= 0:
            self._is_past = True
            return None
        there = all(ends[queue] <= end for queue, end in latest.positions.items())
        if min(ahead) < 0 or not there or (max_messages is not None and sum(ahead) > max_messages):
            return None
        return ends

    def remember(self, start: Offset, end: Offset) -> None:
        """Make the ends of a micro-batch durable (YE1)."""
        keys = self._keys(end)
        moved = {
            keys[queue]: position
            for queue, position in end.positions.items()
            if queue in keys and start.positions.get(queue) != position
        }
        if not moved:
            return
        try:
            connection.call(self._options.path, lambda store: self._record(store, moved))
        except DiskFull as error:
            # A query that drains a full store must not be stopped by this.
            _log.warning("the end of a micro-batch is not remembered: %s", error)

    def _record(self, store: Store, moved: dict[str, int]) -> None:
        self._load(store, moved)
        for _ in range(LEASE_TRIES):
            new = {key: end for key, end in moved.items() if end > self._ends.get(key, -1)}
            if not new:
                return
            try:
                with store.transaction() as txn:
                    for key, end in sorted(new.items()):
                        txn.enter(key, end)
            except AlreadyCommitted:  # by another query, or by an attempt with an unknown outcome
                self._ends = {}
                self._load(store, moved)
                continue
            self._ends |= new

    def _load(self, store: Store, keys: Iterable[str]) -> None:
        new = dict.fromkeys((key for key in keys if key not in self._ends), -1)
        if new:
            self._ends |= new | store.integration.ledger_many(list(new))

    def _keys(self, offset: Offset) -> dict[str, str]:
        """The ledger's name for each queue; one that is made again has another."""
        subscription = self._options.subscription or ""
        return {
            queue: f"spark-planned:{subscription}/{queue}@{created_us}"
            for queue, created_us in offset.created_us.items()
        }
