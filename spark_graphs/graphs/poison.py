"""Which messages of a batch its step fails with: found by trying parts of it, from its first on.

YPO1. What is named was tried alone, and failed alone. Nothing of a trial is committed.
YPO2. A step that fails without any message, or with some of them only together, is wrong itself:
    no poison.
YPO3. It can end at any time. What it knows then is about the first rows, without a gap.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from quire.spark_graphs.limits import DEAD_REASON_BYTES, DEAD_TRACE_BYTES

from .inputs import Run
from .reason import reason_of

Selection = list[list[Run]]
"""Rows of each input."""
Fails = Callable[[Selection], Exception | None]
"""Tries a step with some rows; what it fails with."""


@dataclass(frozen=True)
class Poison:
    """A message that a step fails with. In words: errors of Spark have objects in the JVM."""

    index: int  # of its input
    number: int  # of its row there
    reason: str
    trace: str

    @classmethod
    def of(cls, index: int, number: int, error: Exception) -> Self:
        """With what the step fails with."""
        trace = "".join(traceback.format_exception(error))
        return cls(index, number, reason_of(error)[:DEAD_REASON_BYTES], trace[-DEAD_TRACE_BYTES:])


class NoPoison(Exception):
    """The step fails, and no message of the batch is at fault alone."""


@dataclass(frozen=True)
class Told:
    """What is known of a batch's first rows: input after input, in the order of their numbers."""

    rows: int = 0
    poison: tuple[Poison, ...] = ()  # among them, in their order


def tell_apart(
    counts: Sequence[int],
    fails: Fails,
    is_enough: Callable[[Told], bool],
    known: Told = Told(),
) -> Told:
    """The messages at fault, of all rows or until it is enough.

    `counts`: the rows of each input, which without those known to be poison are seen to fail
    together. Raises NoPoison where all rows are told apart and none of the others is at fault.

    After a row that fails as many are tried at once as there were good ones before it, then twice
    as many, and so on; in what fails the first row that does is found by halves.
    """
    total = sum(counts)
    if not known.rows and fails(_selection(counts, 0, 0)) is not None:
        raise NoPoison("it fails without any message too")
    told, poison = known.rows, list(known.poison)
    size = end = total  # [told, end) is seen to fail, if there is anything
    error: Exception | None = None
    while told < total and not is_enough(Told(told, tuple(poison))):
        begin = told
        if not end:
            stop = min(total, told + size)
            error = fails(_selection(counts, told, stop))
            if error is None:
                told, size = stop, 2 * size
                continue
            end = stop
        while end - told > 1:
            if is_enough(Told(told, tuple(poison))):
                return Told(told, tuple(poison))
            middle = (told + end) // 2
            found = fails(_selection(counts, told, middle))
            if found is None:  # so the others fail, of which one alone is tried below
                told, error = middle, None
            else:
                end, error = middle, found
        error = error or fails(_selection(counts, told, told + 1))
        if error is not None:
            poison.append(Poison.of(*_row(counts, told), error))
        size, told, end, error = max(1, told - begin), told + 1, 0, None
    if told == total and len(poison) == len(known.poison):
        raise NoPoison("no message of it fails alone")
    return Told(told, tuple(poison))


def without(counts: Sequence[int], poison: Sequence[Poison]) -> Selection:
    """All rows but these."""
    selection: Selection = []
    for index, count in enumerate(counts):
        runs, begin = [], 0
        for number in sorted(each.number for each in poison if each.index == index):
            runs.append((begin, number))
            begin = number + 1
        runs.append((begin, count))
        selection.append([run for run in runs if run[0] < run[1]])
    return selection


def _selection(counts: Sequence[int], begin: int, end: int) -> Selection:
    """Rows [begin, end) of all inputs' rows, one input after the other."""
    selection: Selection = []
    for count in counts:
        first, last = max(0, begin), min(count, end)
        selection.append([(first, last)] if first < last else [])
        begin, end = begin - count, end - count
    return selection


def _row(counts: Sequence[int], row: int) -> tuple[int, int]:
    """The input of a row of all, and its number there."""
    index = 0
    while row >= counts[index]:
        row -= counts[index]
        index += 1
    return index, row
