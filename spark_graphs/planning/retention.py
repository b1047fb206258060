"""Retention of a query's messages: its subscription, and leases on planned ranges.

YT1. A subscription is made at the query's origin, and it stays: where a query begins is decided
    once for its subscription, not once for each start of the query.
YT2. Its position never passes what Spark has committed, and in a queue that was dropped and made
    again it does not follow the positions of the queue before. Where the query's checkpoint is
    known, nor does it pass what a power failure could make Spark forget (checkpoint_files.py, YK1).
YT3. Leases of a micro-batch are renewed while this process lives, and released when Spark has
    committed the micro-batch. If this process dies they run out by themselves.
YT4. Before anything else a source holds its subscription in all its queues, so that nobody else
    releases what it has not read (subscription_hold.py, YH1). A work queue has no subscription of
    one's own: its messages are its consumers', and it is not streamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from quire.errors import (
    AlreadyCommitted,
    InvalidArgument,
    PositionLost,
    QueueNotFound,
    SubscriptionNotFound,
)
from quire.interface.starts import Start
from quire.reports.info import Lease, QueueInfo, SubscriptionInfo
from quire.spark_graphs import connection, position_range
from quire.spark_graphs.checkpoint.checkpoint_files import CheckpointFiles
from quire.spark_graphs.checkpoint.lost_commit import CommitLog
from quire.spark_graphs.checkpoint.offsets import Offset, Positions
from quire.spark_graphs.options import EARLIEST, LATEST, ReadOptions

from .lease_renewal import Renewal
from .queue_choice import check_order_of_positions, first_queues, queues_read
from .subscription_hold import hold, in_use

if TYPE_CHECKING:
    from quire.env import Env, FileLock
    from quire.interface.store import Store

NAMED_STARTS: Mapping[int, Start] = {EARLIEST: "earliest", LATEST: "latest"}


class QueryRetention:
    """The store's side of one streaming query."""

    def __init__(self, options: ReadOptions, env: Env | None = None) -> None:
        self._options = options
        self._env = env
        self._read_to: Offset | None = None
        # Of this process, and so of the instance that plans; a pattern's later queues come to it.
        self._locks: list[FileLock] = []
        self._locked_queues: set[str] = set()
        checkpoint = options.checkpoint
        self._checkpoint = None if checkpoint is None else CheckpointFiles(checkpoint, env)
        self._commits = CommitLog(options, env)
        self._known: dict[str, int] = {}  # of the ledger: how far Spark has committed the query
        self._renewal: Renewal | None = None  # has a thread; made by the instance that plans

    def put_back_commit(self) -> None:
        """Before Spark reads its log: what it had committed it is not to repeat (YLC2)."""
        self._commits.put_back()

    def start(self, store: Store) -> Offset:
        """Return where the query begins; the topics get their subscription there (YT1)."""
        # Asked first: made again after that, the queue is seen to be another one, never missed.
        found = {queue.name: queue for queue in first_queues(store, self._options, streaming=True)}
        self._hold(found)
        starting = self._options.starting
        starts = {name: position_range.start_of(store, q, starting) for name, q in found.items()}
        kept = {made.queue: made.position for made in self._subscribe(store, starts)}
        return Offset.initial(
            {
                name: kept[name] if start in NAMED_STARTS else start
                for name, start in starts.items()
            },
            {name: queue.created_us for name, queue in found.items()},
        )

    def join(self, store: Store, queues: Iterable[str]) -> Positions:
        """Return the first messages of queues that came to the query's pattern: it begins there."""
        self._hold(position_range.infos(store, list(queues), streaming=True))
        made = self._subscribe(store, dict.fromkeys(queues, EARLIEST))
        return {subscription.queue: subscription.position for subscription in made}

    def hold(self, store: Store) -> None:
        """Hold the subscription from now on (YT4). Raises QueueInUse, and InvalidArgument."""
        if not self._locks:
            found = queues_read(store, self._options, streaming=True)
            self._hold({queue.name: queue for queue in found})

    def _hold(self, found: Mapping[str, QueueInfo]) -> None:
        """Hold these queues too, as far as they are not held yet."""
        new = {name: self._subscription(queue) for name, queue in found.items()}
        for name in self._locked_queues & new.keys():
            del new[name]
        if new:
            (subscription,) = set(new.values())
            self._locks.append(hold(self._options.path, new, subscription, self._env))
            self._locked_queues |= new.keys()

    def end(self) -> None:
        """Give up the hold and the leases, as the end of the process does."""
        if self._renewal is not None:
            self._renewal.release()
        while self._locks:
            self._locks.pop().release()
        self._locked_queues.clear()

    def lease(
        self,
        store: Store,
        ranges: Mapping[str, tuple[int, int]],
        created_us: Mapping[str, int],
        found: Mapping[str, QueueInfo] | None = None,
    ) -> list[Lease]:
        """The pinned places of a micro-batch. Raises PositionLost as `failOnDataLoss` says.

        `found`: the queues as the look for new messages has just seen them.
        """
        self.hold(store)
        strict = self._options.fail_on_data_loss
        gone = {}
        mine = self._options.subscription
        if found is None or any(mine not in found[name].subscriptions for name in ranges):
            found = self._found(store, ranges)  # it was made since, or is gone
            ranges = {name: ranges[name] for name in ranges if name in found}
        for name in ranges:
            queue = found[name]
            if strict and not position_range.is_same(queue, created_us.get(name)):
                raise position_range.made_again(name)
            if self._subscription(queue) not in queue.subscriptions:
                gone[name] = ranges[name][0]
        self._check_subscriptions(store, gone)
        leases = position_range.lease(
            store, ranges, whole=strict, created_us=created_us, found=found
        )
        if leases:
            self._renewal = self._renewal or Renewal(self._options.path)
            self._renewal.add(leases[0].lease_id)  # that of all of them
        return leases

    def _found(self, store: Store, ranges: Mapping[str, tuple[int, int]]) -> dict[str, QueueInfo]:
        """Return the queues of a planned micro-batch, of a pattern those that are there still.

        Raises PositionLost as `failOnDataLoss` says, and QueueNotFound for one that was named.
        """
        if self._options.pattern is None:
            return position_range.infos(store, ranges, streaming=True)
        there = {queue.name: queue for queue in queues_read(store, self._options, streaming=True)}
        for name in ranges:
            if name in there:
                continue
            if self._options.fail_on_data_loss:
                raise position_range.gone(name)
            position_range.warn_gone(name)
        return {name: there[name] for name in ranges if name in there}

    def read_to(self, end: Offset) -> None:
        """Spark has committed everything below this offset's positions (YT2, YT3)."""
        if self._renewal is not None:
            self._renewal.release()
        if end == self._read_to:
            return
        connection.call(self._options.path, self.hold)
        if not all(lock.held for lock in self._locks):  # YSN1
            raise in_use(", ".join(sorted(self._locked_queues)), end.subscription or "")
        if end.positions != end.origin:  # something was read
            if self._checkpoint is not None:
                self._checkpoint.sync()
            connection.call(self._options.path, lambda store: self._advance(store, end))
        self._read_to = end

    def _advance(self, store: Store, end: Offset) -> None:
        try:
            self._advance_all(store, end)
        except AlreadyCommitted:  # by an attempt whose outcome was not known
            self._known.clear()
            self._advance_all(store, end)

    def _advance_all(self, store: Store, end: Offset) -> None:
        gone = (QueueNotFound, SubscriptionNotFound, PositionLost, InvalidArgument)
        try:
            self._advance_in(store, end, end.positions)
        except gone:
            # Dropped behind the query's back, as a queue is that ends before the position: planning
            # the next micro-batch decides about it. The others go on.
            with suppress(*gone):
                found = {queue.name: queue for queue in store.queues()}
                there = [
                    name
                    for name, position in end.positions.items()
                    if name in found
                    and position_range.is_same(found[name], end.created_us.get(name))
                    and self._options.subscription in found[name].subscriptions
                    and position <= found[name].end_position
                ]
                self._advance_in(store, end, there)

    def _advance_in(self, store: Store, end: Offset, queues: Iterable[str]) -> None:
        """Advance in these, all or none."""
        names = list(queues)
        keys = self._commits.keys(end, names)
        unknown = set(keys.values()) - self._known.keys()
        if unknown:
            self._known |= dict.fromkeys(unknown, -1) | store.integration.ledger_many(unknown)
        moved = {
            key: end.positions[queue]
            for queue, key in keys.items()
            if end.positions[queue] > self._known[key]
        }
        with store.transaction() as txn:
            for key, position in moved.items():
                txn.enter(key, position)
            created_us = txn.integration.read_to_many(
                {f"{name}/{self._options.subscription}": end.positions[name] for name in names}
            )
            for name, of_this in zip(names, created_us.values(), strict=True):
                if end.created_us.get(name) not in (None, of_this):
                    raise position_range.made_again(name)
        self._known |= moved

    def _subscription(self, queue: QueueInfo) -> str:
        """The name of the query's subscription to a queue. Raises InvalidArgument (YT4, YV1)."""
        if queue.kind == "work":
            raise InvalidArgument(
                f"'{queue.name}' is a work queue, whose messages go to one consumer each: a stream "
                "would deliver what another consumer has taken. Stream a topic instead, which with "
                "one subscription hands out each message once too; or take messages in transactions"
            )
        if self._options.subscription is None:
            raise InvalidArgument(
                f"'{queue.name}' is a topic: name a subscription with the option 'subscription'; "
                "it is created if it is not there, and keeps messages until this query has read "
                "them"
            )
        check_order_of_positions(queue)
        return self._options.subscription

    def _check_subscriptions(self, store: Store, gone: Mapping[str, int]) -> None:
        """A query that goes on without its subscription may have lost messages and not see it.

        `gone`: the queues that do not have it, and where the query goes on in each.
        """
        if not gone:
            return
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
        assert self._options.subscription is not None  # checked by _subscription
        named = {queue: NAMED_STARTS.get(start, start) for queue, start in starts.items()}
        return store.integration.subscribe_many(self._options.subscription, named)
