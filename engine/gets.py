"""What a transaction has got, and what it counts as read, until it ends.

- G1: what it has got is in flight: no other reader of the subscription gets it, until the commit's
  record reads it for good or `give_back` makes it available again at its place in the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.arguments import check_position
from quire.errors import InvalidArgument
from quire.message import Delivered

from .commit_record import Read
from .queue import Queue
from .subscription import Subscription

if TYPE_CHECKING:
    from .manager import Manager


class Gets:
    """See the module. The transaction's lock covers it."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._in_flight: list[tuple[Queue, Subscription, int, int]] = []
        self._passed: list[tuple[Queue, Subscription, int]] = []

    def __bool__(self) -> bool:
        return bool(self._in_flight or self._passed)

    def deliver(
        self,
        queue: Queue,
        subscription: Subscription,
        runs: list[tuple[int, int, int]],
        check_open: Callable[[], None],
    ) -> list[Delivered]:
        """The messages of positions that were just taken; if that fails they are given back.

        None at all, when somebody's read_to or unsubscribe has released them in between.
        """
        try:
            check_open()
            parts = self._manager.delivery.deliver(queue, subscription, runs)
        except BaseException:
            self._manager.delivery.give_back(
                queue, subscription, [(lo, hi) for lo, hi, _ in runs], counted=False
            )
            raise
        reads = self._in_flight
        for lo, hi, _ in runs:
            if reads and reads[-1][1] is subscription and reads[-1][3] == lo:
                reads[-1] = (queue, subscription, reads[-1][2], hi)
            else:
                reads.append((queue, subscription, lo, hi))
        return parts

    def read_to(self, source: str, position: int) -> None:
        """Count everything below the position as read."""
        queue, subscription = self._manager.state.source(source)
        if check_position(position) > queue.end_position:
            raise InvalidArgument(
                f"position {position!r}: {source} has the positions 0 to {queue.end_position}"
            )
        self._passed.append((queue, subscription, position))

    def records(self) -> list[Read]:
        """As the commit's record names them; the first `taken` of them are in flight."""
        records = [
            Read(queue.queue_id, subscription.subscription_id, lo, hi)
            for queue, subscription, lo, hi in self._in_flight
        ]
        for queue, subscription, position in self._passed:
            with queue.lock:
                records += [
                    Read(queue.queue_id, subscription.subscription_id, lo, hi)
                    for lo, hi in subscription.unread_below(position)
                ]
        return records

    @property
    def taken(self) -> int:
        """How many runs of positions are in flight."""
        return len(self._in_flight)

    @property
    def messages(self) -> int:
        """How many messages are in flight."""
        return sum(hi - lo for _, _, lo, hi in list(self._in_flight))

    @property
    def sources(self) -> tuple[str, ...]:
        """Where they are from, by name."""
        reads = {
            (queue.name, subscription.name) for queue, subscription, _, _ in list(self._in_flight)
        }
        return tuple(f"{queue}/{name}" if name else queue for queue, name in sorted(reads))

    def settle(self) -> None:
        """They are read; may be called again after an interrupt."""
        while self._in_flight:
            queue, subscription, lo, hi = self._in_flight.pop()
            with queue.lock:
                subscription.delivered -= hi - lo

    def give_back(self) -> None:
        """The transaction is rolled back."""
        for queue, subscription, lo, hi in self._in_flight:
            self._manager.delivery.give_back(queue, subscription, [(lo, hi)], counted=True)

    def close(self) -> None:
        """The transaction has ended, or was prepared."""
        self._in_flight = []
