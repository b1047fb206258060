"""What keeps a query's messages in the store: its subscription, and leases on planned ranges.

YT1. A subscription is made at the query's origin, and it stays: where a query begins is decided
    once for its subscription, not once for each start of the query.
YT2. Its position never passes what Spark has committed, and in a queue that was dropped and made
    again it does not follow the positions of the queue before.
YT3. Leases of a micro-batch are renewed while this process lives, and released when Spark has
    committed the micro-batch. If this process dies they run out by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quire.arguments import Start
from quire.engine import Lease
from quire.errors import InvalidArgument, PositionLost, QueueNotFound, SubscriptionNotFound

from . import connection, position_range
from .offsets import Offset
from .options import EARLIEST, LATEST, ReadOptions, Starts
from .renewal import Renewal

if TYPE_CHECKING:
    from quire.store import Store

_WORDS: Mapping[int, Start] = {EARLIEST: "earliest", LATEST: "latest"}


class Retention:
    """The store's side of one streaming query."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._read_to: Offset | None = None
        self._renewal: Renewal | None = None  # has a thread; made by the instance that plans

    def start(self, store: Store) -> Offset:
        """Where the query begins; topics get their subscription there (YT1)."""
        positions, created_us = {}, {}
        for queue in self._options.queues:
            # Asked first: made again after that, the queue is seen to be another one, never missed.
            created_us[queue] = position_range.info(store, queue).created_us
            subscription = self._subscription(store, queue)
            start = self._start(queue)
            if subscription is not None:
                position = _subscribe(store, queue, subscription, _WORDS.get(start, start))
            else:  # a work queue begins with what nobody has taken
                position = position_range.bounds(store, queue)[0]
            positions[queue] = position if start in _WORDS else start
        return Offset.initial(positions, created_us)

    def lease(
        self,
        store: Store,
        ranges: dict[str, tuple[int, int]],
        created_us: Mapping[str, int],
    ) -> list[Lease]:
        """The pinned places of a micro-batch. Raises PositionLost as `failOnDataLoss` says."""
        strict, leases = self._options.fail_on_data_loss, []
        for queue, (begin, end) in ranges.items():
            created = created_us.get(queue)
            if strict and not position_range.is_same(position_range.info(store, queue), created):
                raise position_range.made_again(queue)
            self._check_subscription(store, queue, begin)
            lease = position_range.lease(
                store, queue, begin, end, whole=strict, created_us=created
            )
            if lease is not None:
                leases.append(lease)
        if leases:
            self._renewal = self._renewal or Renewal(self._options.path)
            self._renewal.add(leases)
        return leases

    def read_to(self, end: Offset) -> None:
        """Spark has committed everything below this offset's positions (YT2, YT3)."""
        if self._renewal is not None:
            self._renewal.release()
        if end != self._read_to:
            connection.call(self._options.path, lambda store: self._advance(store, end))
            self._read_to = end

    def _advance(self, store: Store, end: Offset) -> None:
        try:
            with store.transaction() as txn:
                passed = {}
                for queue, position in sorted(end.positions.items()):
                    found = position_range.info(store, queue)
                    if not position_range.is_same(found, end.created_us.get(queue)):
                        continue
                    subscription = self._subscription(store, queue)
                    source = queue if subscription is None else f"{queue}/{subscription}"
                    if position <= found.end_position:
                        txn.read_to(source, position)
                        passed[queue] = found.created_us
                for queue, created_us in passed.items():
                    # Still the same, so it was the same when read_to took it by its name.
                    if not position_range.is_same(position_range.info(store, queue), created_us):
                        raise position_range.made_again(queue)
        except (QueueNotFound, SubscriptionNotFound, PositionLost):
            # Dropped behind the query's back, as a queue is that ends before the position:
            # planning the next micro-batch decides about it.
            return

    def _subscription(self, store: Store, queue: str) -> str | None:
        """The name of the query's subscription to a queue; None for a work queue, which has one."""
        try:
            kind = store.queue(queue).kind
        except QueueNotFound:
            raise position_range.missing(store, queue) from None
        if kind == "work":
            if self._options.subscription is not None and len(self._options.queues) == 1:
                raise InvalidArgument(
                    f"'{queue}' is a work queue, which has one built-in subscription; "
                    "leave the option 'subscription' out"
                )
            return None
        if self._options.subscription is None:
            raise InvalidArgument(
                f"'{queue}' is a topic: name a subscription with the option 'subscription'; it is "
                "created if it is not there, and keeps messages until this query has read them"
            )
        return self._options.subscription

    def _start(self, queue: str) -> int:
        starting: Starts = self._options.starting
        return starting if isinstance(starting, int) else starting[queue]

    def _check_subscription(self, store: Store, queue: str, begin: int) -> None:
        """A query that goes on without its subscription may have lost messages and not see it."""
        name = self._subscription(store, queue)
        if name is None or any(info.name == name for info in store.subscriptions(queue)):
            return
        if self._options.fail_on_data_loss:
            raise PositionLost(
                f"subscription '{name}' of queue '{queue}' is gone, and with it the promise that "
                f"what follows position {begin} is kept; create it again with "
                f"subscribe({queue!r}, {name!r}, start={begin}), or start the query with a new "
                "checkpoint, or set the option failOnDataLoss to false to go on with what is there"
            )
        _subscribe(store, queue, name, "earliest")


def _subscribe(store: Store, queue: str, name: str, start: Start) -> int:
    """The subscription's position; one that is there already stays where it is (YT1)."""
    for info in store.subscriptions(queue):
        if info.name == name:
            return info.position
    return store.subscribe(queue, name, start=start).position
