"""Accounts of what clients have in use: one for each user of a server, one of all clients together.

LA1. What a client begins is charged before it is begun, to its user and to all clients, or to
    neither: then LimitReached names the limit. What was charged is given back when it ends, however
    it ends, by whoever ends it.
LA2. Limits are those of the moment. One that was lowered ends nothing that is in use: it refuses
    what would be more.
LA3. Puts are counted by the second: as many as the rate gives in `PUTS_AHEAD_SECONDS` may come at
    once. A batch is taken whole, or refused whole; what it has too much the next put waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from quire.env.interpreter import Lock
from quire.errors import LimitReached
from quire.remote.limits import MAX_WORKERS, PUTS_AHEAD_SECONDS, WORKERS_OF_USER

from .use_limits import (
    IN_ALL,
    PUTS_PER_SECOND,
    USE_LIMITS,
    LimitUnit,
    LimitValues,
    UseLimit,
    check_limits,
    limits_with,
)

_PUTS: Final = PUTS_PER_SECOND.place


class UseAccount:
    """The use of one user, or of all clients of a server, and its limits. Thread-safe."""

    __slots__ = (
        "_chain", "_guard", "_limits", "_monotonic", "_puts_left", "_puts_since", "name", "refused",
        "used", "workers",
    )  # fmt: skip

    def __init__(
        self,
        name: str | None,
        limits: Callable[[], Sequence[float]],
        above: tuple[UseAccount, ...],
        guard: Lock,
        monotonic: Callable[[], float],
    ) -> None:
        """`name`: of the user; None: all clients. `limits`: those of the moment, as the table has.

        `above`: the accounts that are charged with it.
        """
        self.name: Final = name
        self._limits = limits
        self._chain: Final = (self, *above)
        self._guard = guard
        self._monotonic = monotonic
        self.used = [0] * len(USE_LIMITS)
        self.refused = [0] * len(USE_LIMITS)
        self._puts_left = math.inf  # that may come now; below 0: that came too early
        self._puts_since = monotonic()
        # That work on long requests at a time, beside those that wait for other clients.
        self.workers: Final = MAX_WORKERS if name is None else WORKERS_OF_USER

    def limit(self, row: UseLimit) -> float:
        """Return the lowest value of a limit that holds here."""
        return min(each._limits()[row.place] for each in self._chain)

    def take(self, row: UseLimit, count: int = 1, more: str = "") -> None:
        """Charge something that begins. Raises LimitReached, with `more` words (LA1)."""
        at = row.place
        with self._guard:
            for each in self._chain:
                if each.used[at] + count > each._limits()[at]:
                    raise each._reached(row, row.retry_seconds, more)
            for each in self._chain:
                each.used[at] += count

    def add(self, row: UseLimit, count: int = 1) -> None:
        """Charge something that has begun already, also beyond the limit."""
        with self._guard:
            for each in self._chain:
                each.used[row.place] += count

    def give_back(self, row: UseLimit, count: int = 1) -> None:
        """Something has ended that was charged."""
        with self._guard:
            for each in self._chain:
                each.used[row.place] -= count
                assert each.used[row.place] >= 0

    def check(self, row: UseLimit, value: float) -> None:
        """Raises LimitReached for something that is beyond a limit by itself."""
        for each in self._chain:
            if value > each._limits()[row.place]:
                with self._guard:
                    raise each._reached(row, row.retry_seconds)

    def take_puts(self, count: int = 1) -> None:
        """Charge messages that are put. Raises LimitReached, with when to put them (LA3)."""
        for each in self._chain:
            if each._limits()[_PUTS] != math.inf:
                break
        else:
            return
        with self._guard:
            for each in self._chain:
                rate = each._limits()[_PUTS]
                left = each._allowed_puts(rate)
                if left < 1:
                    raise each._reached(PUTS_PER_SECOND, (1 - left) / rate)
            for each in self._chain:
                each._puts_left -= count

    def add_puts(self, count: int) -> None:
        """Charge messages that are put beyond those that were charged before."""
        with self._guard:
            for each in self._chain:
                each._puts_left -= count

    def _allowed_puts(self, rate: float) -> float:
        """Return how many messages may be put now. Under the lock."""
        now = self._monotonic()
        passed, self._puts_since = now - self._puts_since, now
        ahead = max(1.0, rate * PUTS_AHEAD_SECONDS)
        if rate == math.inf or self._puts_left == math.inf:
            self._puts_left = ahead
        else:
            self._puts_left = min(ahead, self._puts_left + passed * rate)
        return self._puts_left

    def reached(self, row: UseLimit) -> LimitReached:
        """Return the error for something that has come to the limit of this account, or of all."""
        with self._guard:
            lowest = min(self._chain, key=lambda each: each._limits()[row.place])
            return lowest._reached(row, row.retry_seconds)

    def _reached(self, row: UseLimit, retry: float | None, more: str = "") -> LimitReached:
        self.refused[row.place] += 1
        value = self._limits()[row.place]
        who = "the owner of the store" if self.name is None else f"user {self.name}"
        shown = f"{value:,.0f}" if row.unit is LimitUnit.BYTES else f"{value:g}"
        when = "" if not retry else f", or try again in {retry:.3g} s"
        error = LimitReached(
            f"{who} {row.words.format(value=shown)}: {row.advice}{when} (limit {row.name}){more}"
        )
        error.limit, error.value, error.retry_after = row.name, value, retry
        return error

    def report(self) -> dict[str, dict[str, float | None]]:
        """Return the use beside the limits, for the store's `status`."""
        with self._guard:
            limits = self._limits()
            used: list[float] = list(self.used)
            rate = limits[_PUTS]
            if rate != math.inf:
                ahead = max(1.0, rate * PUTS_AHEAD_SECONDS)
                used[_PUTS] = round(ahead - self._allowed_puts(rate))
            return {
                row.name: {
                    "used": used[row.place],
                    "limit": None if limits[row.place] == math.inf else limits[row.place],
                    "refused": self.refused[row.place],
                }
                for row in USE_LIMITS
            }


class UseAccounts:
    """The accounts of one server. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._guard = Lock()
        self._monotonic = monotonic
        self._in_all: Sequence[float] = IN_ALL
        self.in_all: Final = UseAccount(None, lambda: self._in_all, (), self._guard, monotonic)
        self._of_users: dict[str, UseAccount] = {}

    def limit(self, values: LimitValues) -> None:
        """Set limits of all clients together. Raises InvalidArgument."""
        check_limits(values)
        self._in_all = limits_with(self._in_all, values)

    def of(self, name: str, limits: Callable[[], Sequence[float]]) -> UseAccount:
        """Return the account of a user. It is kept, so who comes back has used what he has."""
        with self._guard:
            found = self._of_users.get(name)
            if found is None:
                found = UseAccount(name, limits, (self.in_all,), self._guard, self._monotonic)
                self._of_users[name] = found
            return found

    def report(self) -> dict[str, object]:
        """Return the use of all, and of each user who was there."""
        users = dict(sorted(self._of_users.items()))
        return {
            "in_all": self.in_all.report(),
            "users": {name: account.report() for name, account in users.items()},
        }
