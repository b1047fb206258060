"""A step's batch that fails is told apart: which of its rows are at fault, in limited time.

- It takes `poison_seconds` at most, but for the trials at hand. What is known by then stays known:
  the batch is planned anew with the rows that are told apart, and goes on where it was.
YAP2. A step that fails with more than its `poison_share` of the last POISON_WINDOW rows is broken:
    nothing of the batch is put anywhere, and the step pauses.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from quire.env import Env
from quire.spark_graphs.graphs.batches.batch_inputs import Input
from quire.spark_graphs.limits import MOST_DEAD_LETTERS, POISON_WINDOW

from .poison import (
    Fails,
    KnownPoison,
    NoPoison,
    PlanRange,
    Poison,
    PoisonScan,
    find_poison,
    numbers_of,
)


class Broken(Exception):
    """A step's function fails with too many rows to go on."""


class Smaller(Exception):
    """The time is over: a batch of so many rows can be done at once, or told apart faster."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class RecentRows:
    """The poison among a step's last rows."""

    def __init__(self) -> None:
        self._rows = 0
        self._poison: list[int] = []  # their numbers, ascending

    def count(self, rows: int, poison: Sequence[int]) -> tuple[int, int]:
        """Return how much of the last rows is poison, if that many follow with these among it.

        The second number is how many rows there are: POISON_WINDOW, or all of a step's first ones.
        """
        oldest = self._rows + rows - POISON_WINDOW
        before = len(self._poison) - bisect_left(self._poison, oldest)
        failed = before + len(poison) - bisect_left(poison, oldest - self._rows)
        return failed, min(self._rows + rows, POISON_WINDOW)

    def add(self, rows: int, poison: Sequence[int]) -> None:
        """Count so many rows as done, these of them as poison."""
        found = [*self._poison, *(self._rows + each for each in poison)]
        self._rows += rows
        self._poison = found[bisect_left(found, self._rows - POISON_WINDOW) :]


class StepPoison:
    """The poison of a step's function: rows that it fails with, as far as they are found."""

    def __init__(
        self,
        share: float,
        seconds: float,
        env: Env,
        function: str = "the function",
        rows: str = "messages",
    ) -> None:
        """`share`, `seconds`: how much of it is too much, and how long to look for it.

        `function`, `rows`: the words for what fails, and with what.
        """
        self._words = function, rows
        self._share = share
        self._seconds = seconds
        self._env = env
        self._recent = RecentRows()
        self._ends: dict[str, Any] = {}  # by queue: up to this position rows are told apart
        self._poison: dict[tuple[str, Any], Poison] = {}  # of them, by queue and position
        self._spent = 0.0  # seconds, on messages that are not committed yet

    @property
    def is_slow(self) -> bool:
        """True if this batch took so long that the next one should not be larger."""
        return self._spent > self._seconds / 2

    def known(self, inputs: Sequence[Input]) -> KnownPoison:
        """Return what is known already of a batch's poison."""
        rows = 0
        for each in inputs:
            below = each.count_to(self._ends[each.queue]) if each.queue in self._ends else 0
            rows += below
            if below < each.count:
                break
        numbers = {each.queue: index for index, each in enumerate(inputs)}
        found = []
        for (queue, position), poison in self._poison.items():
            source = inputs[numbers[queue]]
            number = source.count_to(position) - 1
            if number >= 0 and source.position(number) == position:
                found.append(Poison(numbers[queue], number, poison.reason, poison.trace))
        return KnownPoison(rows, tuple(sorted(found, key=lambda each: (each.index, each.number))))

    def isolate(
        self,
        inputs: Sequence[Input],
        fails: Fails,
        known: KnownPoison,
        *,
        cut: bool,
        plan: PlanRange | None = None,
    ) -> KnownPoison:
        """Find all of a batch that fails without what is known to be poison (see `find_poison`).

        `cut`: whether it can be planned with fewer messages; else it takes as long as it takes.
        Raises NoPoison, Broken, Smaller.
        """
        counts = [each.count for each in inputs]
        began = self._env.monotonic()
        deadline = began + (self._seconds if cut else sys.maxsize)

        def is_enough(scan: PoisonScan) -> bool:
            self._check_share(scan.rows, scan.numbers, scan.poison)
            is_much = len(scan.poison) - len(known.poison) >= MOST_DEAD_LETTERS and cut
            return is_much or self._env.monotonic() >= deadline

        try:
            found = find_poison(counts, fails, is_enough, known, plan)
        except NoPoison:
            self._forget()
            raise
        finally:
            self._spent += self._env.monotonic() - began
        self._check_share(found.rows, numbers_of(counts, found.poison), found.poison)
        self._remember(inputs, found)
        total = sum(counts)
        if found.rows < total:
            raise Smaller(found.rows or max(1, total // 2))
        return found

    def _remember(self, inputs: Sequence[Input], found: KnownPoison) -> None:
        left = found.rows
        for each in inputs:
            below = min(left, each.count)
            if below:
                self._ends[each.queue] = each.position(below - 1)
            left -= below
        for poison in found.poison:
            source = inputs[poison.index]
            self._poison[source.queue, source.position(poison.number)] = poison

    def committed(self, counts: Sequence[int], poison: Sequence[Poison]) -> None:
        """A batch is done, and these are its dead letters."""
        self._recent.add(sum(counts), numbers_of(counts, poison))
        self._forget()

    def forget_all(self) -> None:
        """The function may be another one now, or what it fails with."""
        self._recent = RecentRows()
        self._forget()

    def _forget(self) -> None:
        self._ends, self._poison, self._spent = {}, {}, 0.0

    def _check_share(self, rows: int, numbers: Sequence[int], poison: Sequence[Poison]) -> None:
        """Raise Broken (YAP2)."""
        failed, counted = self._recent.count(rows, numbers)
        if failed / POISON_WINDOW > self._share:
            function, words = self._words
            raise Broken(
                f"{function} is broken: it fails with {failed} of the last {counted} {words}, "
                f"and `poison_share` {self._share:g} allows {self._share * POISON_WINDOW:g} of "
                f"{POISON_WINDOW}; at last with: {poison[-1].reason}"
            )
