"""Messages that left a queue a short while ago, for those who listen to it (see
`commits.listening`).

- DP1: it is there only while somebody listens, and bounded: `RECENT_REMOVALS_KEPT` parts of blocks,
  of `RECENT_REMOVALS_BYTES`. Messages that were not looked at before they left, or have given way
  to later ones, are missing here. A listener counts them by the missing positions, or numbers.
- DP2: what leaves a subscription is numbered by how much that has read, which is durable: so it is
  known over restarts and take-overs how many left in between. Where a subscription was moved back
  the numbers go on, for as long as the store is open.
- DP3: what becomes available after its put is numbered too, as it comes: what is due, and what was
  given back or comes again after a delay. The last `RETURNS_KEPT` runs of it are known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from quire.batches.delivered_slice import Delivered
from quire.engine.records.commit_record import ReadRow
from quire.limits import (
    NEVER_US,
    POSITIONS,
    RECENT_REMOVALS_BYTES,
    RECENT_REMOVALS_KEPT,
    RETURNS_KEPT,
)

from .subscription import Subscription

DUE: Final = "due"
RETURNED: Final = "returned"

Span = tuple[int, int, int]  # a subscription, and its positions from start to end


class Looked(NamedTuple):
    """Messages of one block that a commit is about to read."""

    passed: int  # so many before the first of them are read by that, too
    position: int  # of the first
    part: Delivered


class Expected(NamedTuple):
    """The messages that a commit is about to read of a subscription for the first time."""

    messages: int
    looked: Iterable[Looked]  # of these


class Departure(NamedTuple):
    """Messages of one block that a subscription has read."""

    subscription_id: int
    number: int  # of the first: so many it had read before
    position: int  # of the first
    part: Delivered

    @property
    def messages(self) -> int:
        """How many they are."""
        return self.part.stop - self.part.start


class Return(NamedTuple):
    """Messages that became available after their put."""

    number: int  # of the first: so many had before
    event: str  # `DUE` or `RETURNED`
    start: int  # their positions
    end: int


class Returns:
    """Messages that became available after their put (DP3). The queue's lock covers them."""

    def __init__(self, period: int, seen: int, due_us: int) -> None:
        """`period`: drawn; `seen`, `due_us`: see the attributes."""
        self.period = period  # numbers of another one mean nothing here
        self.total = 0  # messages
        self.seen = seen  # the headers of what is before it were looked at
        self.due_us = due_us  # what is due by then is available
        self._coming: list[tuple[int, int]] = []  # a heap: when, position
        self._recent: deque[Return] = deque(maxlen=RETURNS_KEPT)

    def note(self, start: int, end: int, event: str = RETURNED) -> None:
        """[start, end) became available."""
        self._recent.append(Return(self.total, event, start, end))
        self.total += end - start

    def since(self, number: int) -> list[Return]:
        """Return the known runs that became available from a number on."""
        return [each for each in self._recent if each.number + each.end - each.start > number]

    def expect(self, due_us: int, position: int) -> None:
        """The message at the position is not due yet."""
        heappush(self._coming, (due_us, position))

    def advance(self, now_us: int) -> bool:
        """Note what is due by now; return True if anything is."""
        self.due_us, before = max(self.due_us, now_us), self.total
        while self._coming and self._coming[0][0] <= self.due_us:
            position = heappop(self._coming)[1]
            self.note(position, position + 1, DUE)
        return self.total > before

    @property
    def next_us(self) -> int:
        """Return when the next one is due; `NEVER_US`: none is known."""
        return self._coming[0][0] if self._coming else NEVER_US


class RecentRemovals:
    """Recent removals from a queue, for its listeners. Covered by the queue's lock."""

    def __init__(
        self, subscriptions: Iterable[Subscription], listened_at: float, returns: Returns
    ) -> None:
        self.returns = returns
        self.listened_at = listened_at  # by a listener, the last time
        self._expected: dict[Span, Expected] = {}
        self._recent: deque[Departure] = deque()
        self._bytes = 0
        self._numbers: dict[int, int] = {}  # of the next that leaves, by subscription
        self._turned: dict[int, int] = {}  # by how much that is more than what it has read
        for subscription in subscriptions:
            self.join(subscription)

    def join(self, subscription: Subscription) -> None:
        """A subscription of the queue, whose messages are of interest from now on."""
        self._numbers[subscription.subscription_id] = subscription.done.total
        subscription.await_end(1)  # so that what it reads is told (see `Queue.acknowledged`)
        subscription.on_return = self.returns.note

    def leave(self, subscription: Subscription) -> None:
        """Nobody listens any more."""
        subscription.await_end(-1)
        subscription.on_return = None

    def number(self, subscription: Subscription) -> int:
        """Return the number of the next message that leaves the subscription."""
        turned = self._turned.get(subscription.subscription_id, 0)
        return subscription.done.total + turned

    def expect(self, read: ReadRow, expected: Expected) -> None:
        """A commit is about to read this."""
        while len(self._expected) >= RECENT_REMOVALS_KEPT:  # of commits that were refused
            del self._expected[next(iter(self._expected))]
        self._expected[read[1], read[2], read[3]] = expected

    def note(self, read: ReadRow, subscription: Subscription) -> None:
        """A subscription has read it: that is durable."""
        expected = self._expected.pop((read[1], read[2], read[3]), None)
        before, number = self._numbers[read[1]], self.number(subscription)
        self._numbers[read[1]] = number
        if expected is None or number - before != expected.messages:
            return  # another one has read some of it since it was looked at
        for passed, position, part in expected.looked:
            self._add(Departure(read[1], before + passed, position, part))

    def moved(self, subscription: Subscription) -> None:
        """It is at another place: what it has passed is missing here, what comes again is new."""
        key = subscription.subscription_id
        back = self._numbers[key] - self.number(subscription)
        if back > 0:
            self._turned[key] = self._turned.get(key, 0) + back
            for start, end in subscription.unread_from(subscription.position, POSITIONS):
                self.returns.note(start, end)
        self._numbers[key] = self.number(subscription)

    def _add(self, departure: Departure) -> None:
        self._recent.append(departure)
        self._bytes += departure.part.block.memory_bytes
        while len(self._recent) > 1 and (
            len(self._recent) > RECENT_REMOVALS_KEPT or self._bytes > RECENT_REMOVALS_BYTES
        ):
            self._bytes -= self._recent.popleft().part.block.memory_bytes

    def between(self, start: int, end: int) -> list[tuple[int, Delivered]]:
        """Return the parts that are here of the positions [start, end), each message once."""
        found: list[tuple[int, Delivered]] = []
        for each in sorted(self._recent, key=lambda each: each.position):
            first = max(start, each.position)
            last = min(end, each.position + each.messages)
            if first < last:
                found.append((first, _cut(each, first - each.position, last - each.position)))
                start = last
        return found

    def since(self, subscription: Subscription, number: int) -> list[tuple[int, Delivered]]:
        """Return what left a subscription from the number on: parts with their first number."""
        key, found = subscription.subscription_id, list[tuple[int, Delivered]]()
        for each in self._recent:
            if each.subscription_id == key and each.number + each.messages > number:
                first = max(number, each.number)
                found.append((first, _cut(each, first - each.number, each.messages)))
        return found


def _cut(departure: Departure, start: int, stop: int) -> Delivered:
    """Its messages from `start` to `stop`."""
    part = departure.part
    return part._replace(start=part.start + start, stop=part.start + stop)
