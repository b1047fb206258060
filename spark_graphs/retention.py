"""What keeps a query's messages in the store: its subscription, and leases on planned ranges.

YT1. A subscription is made at the query's origin, and it stays: where a query begins is decided
    once for its subscription, not once for each start of the query.
YT2. Its position never passes what Spark has committed, and in a queue that was dropped and made
    again it does not follow the positions of the queue before.
YT3. Leases of a micro-batch are renewed while this process lives, and released when Spark has
    committed the micro-batch. If this process dies they run out by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from quire.arguments import Start
from quire.errors import InvalidArgument, PositionLost, QueueNotFound, SubscriptionNotFound
from quire.info import Lease, QueueInfo, SubscriptionInfo

from . import connection, position_range
from .offsets import Offset, Positions
from .options import EARLIEST, LATEST, ReadOptions, Starts
from .queue_choice import first_queues
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
        # Asked first: made again after that, the queue is seen to be another one, never missed.
        found = {queue.name: queue for queue in first_queues(store, self._options, streaming=True)}
        starts = {name: self._start(name) for name in found}
        topics = [name for name, queue in found.items() if self._subscription(queue) is not None]
        # A work queue begins with what nobody has taken.
        kept = {name: queue.first_position for name, queue in found.items()}
        for made in self._subscribe(store, {name: starts[name] for name in topics}):
            kept[made.queue] = made.position
        return Offset.initial(
            {name: kept[name] if start in _WORDS else start for name, start in starts.items()},
            {name: queue.created_us for name, queue in found.items()},
        )

    def join(self, store: Store, queues: Iterable[str]) -> Positions:
        """Where the query begins in queues that came to its pattern: their first messages."""
        made = self._subscribe(store, dict.fromkeys(queues, EARLIEST))
        return {subscription.queue: subscription.position for subscription in made}

    def lease(
        self,
        store: Store,
        ranges: Mapping[str, tuple[int, int]],
        created_us: Mapping[str, int],
    ) -> list[Lease]:
        """The pinned places of a micro-batch. Raises PositionLost as `failOnDataLoss` says."""
        strict = self._options.fail_on_data_loss
        gone = {}
        found = position_range.infos(store, ranges)
        for name, queue in found.items():
            if strict and not position_range.is_same(queue, created_us.get(name)):
                raise position_range.made_again(name)
            if self._subscription(queue) not in (None, *queue.subscriptions):
                gone[name] = ranges[name][0]
        self._check_subscriptions(store, gone)
        leases = position_range.lease(
            store, ranges, fail_on_data_loss=strict, created_us=created_us, found=found
        )
        if leases:
            self._renewal = self._renewal or Renewal(self._options.path)
            self._renewal.add(leases[0].lease_id)  # that of all of them
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
                found = position_range.infos(store, end.positions)
                there = {
                    name: queue
                    for name, queue in found.items()
                    if position_range.is_same(queue, end.created_us.get(name))
                    and end.positions[name] <= queue.end_position
                }
                txn.read_to_many(
                    {self._source(queue): end.positions[name] for name, queue in there.items()}
                )
                # Still the same, so it was the same when read_to_many took it by its name.
                for name, queue in position_range.infos(store, there).items():
                    if not position_range.is_same(queue, there[name].created_us):
                        raise position_range.made_again(name)
        except (QueueNotFound, SubscriptionNotFound, PositionLost):
            # Dropped behind the query's back, as a queue is that ends before the position:
            # planning the next micro-batch decides about it.
            return

    def _source(self, queue: QueueInfo) -> str:
        """What the query reads of a queue, as `read_to` names it."""
        subscription = self._subscription(queue)
        return queue.name if subscription is None else f"{queue.name}/{subscription}"

    def _subscription(self, queue: QueueInfo) -> str | None:
        """The name of the query's subscription to a queue; None for a work queue, which has one."""
        if queue.kind == "work":
            if self._options.subscription is not None and len(self._options.queues) == 1:
                raise InvalidArgument(
                    f"'{queue.name}' is a work queue, which has one built-in subscription; "
                    "leave the option 'subscription' out"
                )
            return None
        if self._options.subscription is None:
            raise InvalidArgument(
                f"'{queue.name}' is a topic: name a subscription with the option 'subscription'; "
                "it is created if it is not there, and keeps messages until this query has read "
                "them"
            )
        return self._options.subscription

    def _start(self, queue: str) -> int:
        starting: Starts = self._options.starting
        return starting if isinstance(starting, int) else starting[queue]

    def _check_subscriptions(self, store: Store, gone: Mapping[str, int]) -> None:
        """A query that goes on without its subscription may have lost messages and not see it.

        `gone`: the queues that do not have it, and where the query goes on in each.
        """
        if self._options.fail_on_data_loss:
            for queue, begin in gone.items():
                name = self._options.subscription
                raise PositionLost(
                    f"subscription '{name}' of queue '{queue}' is gone, and with it the promise "
                    f"that what follows position {begin} is kept; create it again with "
                    f"subscribe({queue!r}, {name!r}, start={begin}), or start the query with a new "
                    "checkpoint, or set the option failOnDataLoss to false to go on with what is "
                    "there"
                )
        self._subscribe(store, dict.fromkeys(gone, EARLIEST))

    def _subscribe(self, store: Store, starts: Mapping[str, int]) -> list[SubscriptionInfo]:
        """The subscription in each queue; one that is there already stays where it is (YT1)."""
        if not starts:
            return []
        assert self._options.subscription is not None  # of topics
        words = {queue: _WORDS.get(start, start) for queue, start in starts.items()}
        return store.subscribe_many(self._options.subscription, words)
