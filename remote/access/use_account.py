"""Accounts of what clients have in use: one for each user of a server, one of all clients together.

LA1. What a client begins is charged before it is begun, to its user and to all clients, or to
    neither: then LimitReached names the limit. What was charged is given back when it ends, however
    it ends, by whoever ends it.
LA2. Limits are those of the moment. One that was lowered ends nothing that is in use: it refuses
    what would be more.
LA3. Puts are counted by the second: as many as the rate gives in `PUTS_AHEAD_SECONDS` may come at
    once. A batch is taken whole, or refused whole; what it has too much the next put waits for,
    as long as the rate of then takes.
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
LimitsOf = Callable[[str], Sequence[float]]


class UseAccount:
    """The use of one user, or of all clients of a server, and its limits. Thread-safe."""

    __slots__ = (
        "_above", "_ahead", "_ahead_at", "_chain", "_counted", "_guard", "_monotonic", "limits",
        "name", "refused", "used", "workers",
    )  # fmt: skip

    def __init__(
        self,
        name: str | None,
        limits: Sequence[float],
        above: UseAccount | None,
        guard: Lock,
        monotonic: Callable[[], float],
    ) -> None:
        """`name`: of the user; None: all clients. `limits`: one for each row of the table.

        `above`: the account of all clients, which is charged with it.
        """
        self.name: Final = name
        self._above: Final = above
        self._chain: Final = (self,) if above is None else (self, above)
        self._guard = guard
        self._monotonic = monotonic
        self.used = [0] * len(USE_LIMITS)
        self.refused = [0] * len(USE_LIMITS)
        self._ahead = 0.0  # puts beyond those that the rate has made up for, at `_ahead_at`
        self._ahead_at = monotonic()
        # That work on long requests at a time, beside those that wait for other clients.
        self.workers: Final = MAX_WORKERS if name is None else WORKERS_OF_USER
        self.set_limits(limits)

    def set_limits(self, limits: Sequence[float]) -> None:
        """Set the limits, and look at those of the account above."""
        self.limits = limits
        self._counted = tuple(each for each in self._chain if each.limits[_PUTS] < math.inf)

    def limit(self, row: UseLimit) -> float:
        """Return the lowest value of a limit that holds here."""
        return min(each.limits[row.place] for each in self._chain)

    def take(self, row: UseLimit, count: int = 1, more: str = "") -> None:
        """Charge something that begins. Raises LimitReached, with `more` words (LA1)."""
        at = row.place
        with self._guard:
            own = self.used[at] + count
            if own > self.limits[at]:
                raise self._reached(row, row.retry_seconds, more)
            above = self._above
            if above is not None:
                in_all = above.used[at] + count
                if in_all > above.limits[at]:
                    raise above._reached(row, row.retry_seconds, more)
                above.used[at] = in_all
            self.used[at] = own

    def add(self, row: UseLimit, count: int = 1) -> None:
        """Charge something that has begun already, also beyond the limit."""
        with self._guard:
            for each in self._chain:
                each.used[row.place] += count

    def give_back(self, row: UseLimit, count: int = 1) -> None:
        """Something has ended that was charged."""
        at = row.place
        with self._guard:
            for each in self._chain:
                each.used[at] -= count
            assert self.used[at] >= 0

    def check(self, row: UseLimit, value: float) -> None:
        """Raises LimitReached for something that is beyond a limit by itself."""
        for each in self._chain:
            if value > each.limits[row.place]:
                raise each.reached(row)

    def take_puts(self, count: int = 1) -> None:
        """Charge messages that are put. Raises LimitReached, with when to put them (LA3)."""
        if not self._counted:
            return
        now = self._monotonic()
        with self._guard:
            for each in self._counted:
                late = each._puts_ahead(now) - PUTS_AHEAD_SECONDS * each.limits[_PUTS]
                if late > 0:
                    raise each._reached(PUTS_PER_SECOND, late / each.limits[_PUTS])
            for each in self._counted:
                each._add_puts(count, now)

    def add_puts(self, count: int) -> None:
        """Charge messages that are put beyond those that were charged before."""
        now = self._monotonic()
        with self._guard:
            for each in self._counted:
                each._add_puts(count, now)

    def _add_puts(self, count: int, now: float) -> None:
        self._ahead, self._ahead_at = self._puts_ahead(now) + count, now

    def _puts_ahead(self, now: float) -> float:
        rate, passed = self.limits[_PUTS], now - self._ahead_at
        return 0.0 if rate == math.inf else max(0.0, self._ahead - rate * passed)

    def reached(self, row: UseLimit) -> LimitReached:
        """Return the error for something that is beyond a limit, and count it."""
        with self._guard:
            return self._reached(row, row.retry_seconds)

    def _reached(self, row: UseLimit, retry: float | None, more: str = "") -> LimitReached:
        self.refused[row.place] += 1
        value = self.limits[row.place]
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
            used: list[float] = list(self.used)
            used[_PUTS] = round(self._puts_ahead(self._monotonic()))
            limits = [None if value == math.inf else value for value in self.limits]
        return {
            row.name: {
                "used": used[row.place],
                "limit": limits[row.place],
                "refused": self.refused[row.place],
            }
            for row in USE_LIMITS
        }


class UseAccounts:
    """The accounts of one server. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._guard = Lock()
        self._monotonic = monotonic
        self.in_all: Final = UseAccount(None, IN_ALL, None, self._guard, monotonic)
        self._of_users: dict[str, tuple[UseAccount, LimitsOf]] = {}

    def limit(self, values: LimitValues) -> None:
        """Set limits of all clients together. Raises InvalidArgument."""
        check_limits(values)
        self.in_all.set_limits(limits_with(self.in_all.limits, values))
        self.refresh()

    def of(self, name: str, limits_of: LimitsOf) -> UseAccount:
        """Return the account of a user. It is kept, so who comes back has used what he has.

        `limits_of`: the limits of a user at a moment.
        """
        with self._guard:
            found = self._of_users.get(name)
            if found is None:
                limits = limits_of(name)
                account = UseAccount(name, limits, self.in_all, self._guard, self._monotonic)
                found = self._of_users[name] = account, limits_of
        found[0].set_limits(limits_of(name))  # they may have changed meanwhile
        return found[0]

    def refresh(self) -> None:
        """Have the limits of all users be those of this moment (LA2)."""
        for account, limits_of in list(self._of_users.values()):
            account.set_limits(limits_of(str(account.name)))

    def report(self) -> dict[str, object]:
        """Return the use of all, and of each user who was there."""
        users = sorted(self._of_users.items())
        return {
            "in_all": self.in_all.report(),
            "users": {name: account.report() for name, (account, _) in users},
        }
