"""Which messages of a batch its step fails with: found by bisection.

YPO1. What is named was tried alone, and failed alone. Nothing of a trial is committed.
YPO2. A step that fails without any message, or with many of them, is wrong itself: no poison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quire.spark_graphs.limits import MOST_DEAD_LETTERS

from .inputs import Run

Selection = list[list[Run]]
"""Rows of each input."""


@dataclass(frozen=True)
class Poison:
    """A message that a step fails with."""

    index: int  # of its input
    number: int  # of its row there
    error: Exception


class NoPoison(Exception):
    """The step fails, and no message of the batch is at fault alone."""


def find_poison(
    counts: Sequence[int], fails: Callable[[Selection], Exception | None]
) -> list[Poison]:
    """The messages at fault.

    `counts`: the rows of each input. `fails`: tries the step with some of them. Raises NoPoison.
    """
    if fails([[] for _ in counts]) is not None:
        raise NoPoison("it fails without any message too")
    found: list[Poison] = []
    # Where something fails whose one half does not, the other half need not be tried as a whole.
    waiting = [_Suspect([(index, 0, count) for index, count in enumerate(counts) if count], True)]
    while waiting:
        suspect = waiting.pop()
        spans = suspect.spans
        if _rows(spans) == 1:
            error = suspect.error or fails(_selection(len(counts), spans))
            if error is not None:
                found.append(Poison(spans[0][0], spans[0][1], error))
            if len(found) > MOST_DEAD_LETTERS:
                raise NoPoison(f"more than {MOST_DEAD_LETTERS} messages of one batch fail alone")
        elif suspect.fails or fails(_selection(len(counts), spans)) is not None:
            first, second = _halves(spans)
            error = fails(_selection(len(counts), first))
            waiting.append(_Suspect(second, error is None))
            if error is not None:
                waiting.append(_Suspect(first, True, error))
    if not found:
        raise NoPoison("no message of it fails alone")
    return sorted(found, key=lambda each: (each.index, each.number))


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


_Span = tuple[int, int, int]  # an input, and its rows from one number to before another


@dataclass(frozen=True)
class _Suspect:
    spans: list[_Span]
    fails: bool  # as a whole, as far as is known
    error: Exception | None = None  # that it was seen to fail with


def _rows(spans: list[_Span]) -> int:
    return sum(end - begin for _, begin, end in spans)


def _halves(spans: list[_Span]) -> tuple[list[_Span], list[_Span]]:
    """Two rows or more in two parts, about as many in each."""
    first: list[_Span] = []
    second: list[_Span] = []
    room = _rows(spans) // 2
    for index, begin, end in spans:
        middle = min(end, begin + room)
        room -= middle - begin
        if begin < middle:
            first.append((index, begin, middle))
        if middle < end:
            second.append((index, middle, end))
    return first, second


def _selection(inputs: int, spans: list[_Span]) -> Selection:
    selection: Selection = [[] for _ in range(inputs)]
    for index, begin, end in spans:
        selection[index].append((begin, end))
    return selection
