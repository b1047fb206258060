"""Limits of pace: how many messages are in flight, and how many start in a second.

A queue's `max_in_flight` and `rate` hold for each of its subscriptions (`SubscriptionPace`),
`group_max_in_flight` and `group_rate` for each group of messages there (`GroupPaces`). Of all of
it only the latest start is journaled, at the close; a queue without limits has neither.

- PK1: of a rate of n a second no more than n start in any second, by the clock that nobody sets: a
  window that slides. Where n is large, starts are counted in slices of it, each as if at the end
  of its slice: so some wait up to a slice longer, and none starts too soon. Of a rate below 1 one
  starts in its time (10 seconds for 0.1).
- PK2: who opens a store does not know what its owner before has started: so the window is full at
  the opening. Where that owner has closed the store, it has told when something started at last
  (`State.last_start_us`): the window was full then, by the wall clock, and may be empty by now. A
  limit that is altered holds for what was counted from when there was a rate.
- PK3: groups take turns: of what may be taken, and is equal in the queue's order, the message of
  the group that had the fewest turns is next; who was away for a while begins among those that are
  there. What has no key is one more group, without limits. (Start-time fair queueing: Goyal, Vin
  and Cheng, 1996, with every message of weight 1.)
"""

from __future__ import annotations

import math
from collections import deque

from quire.definitions.limits import (
    ALONE,
    GROUPS_REMEMBERED,
    RATE_SLICES,
    STARTS_BYTES,
    TURN_BITS,
    TURN_BYTES,
)
from quire.definitions.pace import QueuePace
from quire.definitions.properties import Properties
from quire.env import Env
from quire.limits import POSITION_BITS, POSITIONS

from .steady_clock import clock_us


class StartWindow:
    """The starts of messages in the window of a rate (PK1)."""

    __slots__ = ("_starts", "count")

    def __init__(self) -> None:
        self._starts: deque[tuple[int, int]] = deque()  # when, and how many
        self.count = 0

    def room(self, pace: QueuePace, now_us: int) -> int:
        """How many may start now."""
        while self._starts and self._starts[0][0] + pace.span_us <= now_us:
            self.count -= self._starts.popleft()[1]
        return max(0, pace.max_starts - self.count)

    def due_us(self, pace: QueuePace, now_us: int) -> int:
        """Return the time when one may start: now, or later."""
        if self.room(pace, now_us):
            return now_us
        left = self.count - pace.max_starts
        for at_us, count in self._starts:
            left -= count
            if left < 0:
                return at_us + pace.span_us
        raise AssertionError("what fills a window leaves it")

    def start(self, count: int, pace: QueuePace, now_us: int) -> None:
        """So many start now."""
        if pace.max_starts > RATE_SLICES:
            slice_us = pace.span_us // RATE_SLICES
            now_us = -(-now_us // slice_us) * slice_us
        if self._starts and self._starts[-1][0] >= now_us:
            now_us, before = self._starts.pop()
            self._starts.append((now_us, before + count))
        else:
            self._starts.append((now_us, count))
        self.count += count


class SubscriptionPace:
    """The pace of one subscription. Covered by the queue's lock."""

    __slots__ = ("_env", "_pace", "_window", "changes", "groups", "latest_us")

    def __init__(self, env: Env, pace: QueuePace) -> None:
        self._env = env
        self._pace = pace
        self._window = StartWindow()
        self.groups: GroupPaces | None = None
        self.changes = 0  # so often something has started
        self.latest_us: int | None = None  # when something may have at last, if that is known

    def alter(self, pace: QueuePace) -> None:
        """Other limits hold from now on."""
        if self._pace.rate is None:  # what was started meanwhile is not known
            self._window = StartWindow()
        self._pace = pace

    @property
    def limits(self) -> QueuePace:
        """Return the limits that hold now."""
        return self._pace

    @property
    def has_rate(self) -> bool:
        """Return True if starts are counted, as a rate limits them."""
        return self._pace.rate is not None or (
            self.groups is not None and self.groups.pace.rate is not None
        )

    def rest(self, latest_us: int) -> None:
        """The store was opened, whose owner before may have started something then (PK2)."""
        self.latest_us = latest_us
        if self._pace.rate is not None:
            self._window.start(self._pace.max_starts, self._pace, latest_us)
        if self.groups is not None:
            self.groups.rest(latest_us)

    def room(self, in_flight: int, wanted: int) -> int:
        """How many of those that are wanted may start now."""
        pace = self._pace
        if pace.max_in_flight is not None:
            wanted = min(wanted, pace.max_in_flight - in_flight)
        if wanted > 0 and pace.rate is not None:
            wanted = min(wanted, self._window.room(pace, clock_us(self._env)))
        return max(0, wanted)

    def start(self, count: int) -> None:
        """So many have."""
        self.changes += 1
        if self.has_rate:
            self.latest_us = clock_us(self._env)
        if self._pace.rate is not None:
            self._window.start(count, self._pace, clock_us(self._env))

    def due_in(self, in_flight: int, groups_rest_until_us: int | None) -> float:
        """Seconds until rates let more start; infinite: they do, or something else does not."""
        pace, now_us = self._pace, clock_us(self._env)
        due_us = math.inf if groups_rest_until_us is None else max(groups_rest_until_us, now_us)
        is_full = pace.max_in_flight is not None and in_flight >= pace.max_in_flight
        if pace.rate is not None and not is_full:
            open_us = self._window.due_us(pace, now_us)
            due_us = min(due_us, open_us if open_us > now_us else math.inf)
        return (due_us - now_us) / 1e6


def paced(
    before: SubscriptionPace | None, properties: Properties, env: Env
) -> SubscriptionPace | None:
    """By a queue's properties, as they are now; what was known of its starts stays known (PK2)."""
    pace, of_groups = properties.pace, properties.group_pace
    if pace is None:
        return None
    if before is None:
        before = SubscriptionPace(env, pace)
    else:
        before.alter(pace)
    if not properties.grouped:
        before.groups = None
    elif before.groups is None:
        before.groups = GroupPaces(env, of_groups)
    else:
        before.groups.alter(of_groups)
    return before


class GroupPaces:
    """The paces and turns of a subscription's groups, by number. Covered by the queue's lock."""

    __slots__ = ("_env", "_full_until_us", "_most", "_turn", "_turns", "_windows", "pace")

    def __init__(self, env: Env, pace: QueuePace) -> None:
        self._env = env
        self.pace = pace
        self._full_until_us = 0  # of groups that are not known
        self._windows: dict[int, StartWindow] = {}
        self._turn = 0  # the latest that something was taken in
        self._turns: dict[int, int] = {}  # the next one of each group
        self._most = GROUPS_REMEMBERED

    @property
    def is_shared(self) -> bool:
        """Return True if several takers may have messages of one group."""
        return self.pace.max_in_flight is not None

    def alter(self, pace: QueuePace) -> None:
        """Other limits hold from now on."""
        if self.pace.rate is None:
            self._windows.clear()
        self.pace = pace

    def rest(self, latest_us: int) -> None:
        """See `SubscriptionPace.rest`."""
        if self.pace.rate is not None:
            self._full_until_us = latest_us + self.pace.span_us

    def now_us(self) -> int:
        """By the clock that nobody sets."""
        return clock_us(self._env)

    def is_full(self, number: int, in_flight: int) -> bool:
        """Return True if the group has as many messages in flight as its limit."""
        most = None if number == ALONE else self.pace.max_in_flight
        return most is not None and in_flight >= most

    def due_us(self, number: int) -> int:
        """Return the time when the group's rate lets it start one more; 0: now."""
        pace = self.pace
        if pace.rate is None or number == ALONE:
            return 0
        now_us, window = self.now_us(), self._windows.get(number)
        due_us = 0 if window is None else window.due_us(pace, now_us)
        due_us = max(due_us, self._full_until_us)
        return due_us if due_us > now_us else 0

    def stands(self, number: int, code: int) -> int:
        """Return the place of a group's message among those of all groups (PK3)."""
        turn = max(self._turn, self._turns.get(number, 0))
        return ((code >> POSITION_BITS << TURN_BITS | turn) << POSITION_BITS) | (code & POSITIONS)

    def code(self, stands: int) -> int:
        """Return the place in the queue's order of a message at such a place."""
        return (stands >> POSITION_BITS + TURN_BITS << POSITION_BITS) | (stands & POSITIONS)

    def start(self, number: int, stands: int) -> None:
        """Count a start of the group at its place; -1: another message of the group was taken."""
        self._drop_idle()
        if stands < 0:
            stands = self.stands(number, 0)
        turn = (stands >> POSITION_BITS) & ((1 << TURN_BITS) - 1)
        self._turn = max(self._turn, turn)
        self._turns[number] = max(turn, self._turns.get(number, 0)) + 1
        if self.pace.rate is not None and number != ALONE:
            window = self._windows.get(number)
            if window is None:
                window = self._windows[number] = StartWindow()
            window.start(1, self.pace, self.now_us())

    def _drop_idle(self) -> None:
        """Forget groups that begin anew all the same, now and then."""
        if max(len(self._turns), len(self._windows)) <= self._most:
            return
        now_us = self.now_us()
        self._turns = {n: turn for n, turn in self._turns.items() if turn > self._turn}
        for number, window in list(self._windows.items()):
            window.room(self.pace, now_us)
            if not window.count:
                del self._windows[number]
        self._most = GROUPS_REMEMBERED + 2 * max(len(self._turns), len(self._windows))

    @property
    def memory_bytes(self) -> int:
        """Return about the bytes that the windows and turns take."""
        return STARTS_BYTES * len(self._windows) + TURN_BYTES * len(self._turns)
