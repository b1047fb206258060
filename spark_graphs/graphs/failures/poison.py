"""The search for a batch's poison messages: by trying parts of it, from its first message on.

- What is named was tried alone, and failed alone. Nothing of a trial is committed.
- A step that fails without any message, or with some of them only together, is wrong itself: no
  poison.
- It can end at any time. What it knows then is about the first rows, without a gap.
- Trials of a plan are as good as trials of the step: what they say is tried by the step.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final, Self

from msgspec import Struct

from quire.spark_graphs.graphs.batches.row_ranges import RowRange
from quire.spark_graphs.graphs.spark.error_reason import kind_of, reason_of
from quire.spark_graphs.limits import DEAD_REASON_BYTES, DEAD_TRACE_BYTES, PLANNED_ROWS

SelectedRows = list[list[RowRange]]
"""Rows of each input."""
Fails = Callable[[SelectedRows], Exception | None]
"""Tries a step with some rows; what it fails with."""
FailsOf = Callable[[int, int], Exception | None]
"""Tries a step with the rows from one to before another; what it fails with."""
PlanRange = Callable[[int, RowRange], FailsOf | None]
"""Has a run of an input's rows planned, numbered from 0 then; None: it cannot be."""


class Poison(Struct, frozen=True):
    """A message that a step fails with. In words: errors of Spark have objects in the JVM."""

    index: int  # of its input
    number: int  # of its row there
    reason: str
    trace: str

    @classmethod
    def of(cls, index: int, number: int, error: Exception) -> Self:
        """Describe a message by the error that the step fails with."""
        trace = "".join(traceback.format_exception(error))
        return cls(index, number, reason_of(error)[:DEAD_REASON_BYTES], trace[-DEAD_TRACE_BYTES:])


class NoPoison(Exception):
    """The step fails, and no message of the batch is at fault alone."""


class KnownPoison(Struct, frozen=True):
    """The poison among a batch's first rows: input after input, in the order of their numbers."""

    rows: int = 0
    poison: tuple[Poison, ...] = ()  # among them, in their order


_NOTHING_KNOWN: Final = KnownPoison()


def find_poison(
    counts: Sequence[int],
    fails: Fails,
    is_enough: Callable[[PoisonScan], bool],
    known: KnownPoison = _NOTHING_KNOWN,
    plan: PlanRange | None = None,
) -> KnownPoison:
    """The messages at fault, of all rows or until it is enough.

    `counts`: the rows of each input, which without those known to be poison are seen to fail
    together. `plan`: makes trials of some of them cheap, where it can. Raises NoPoison where all
    rows are told apart and none of the others is at fault.
    """
    if not known.rows and fails(_selection(counts, 0, 0)) is not None:
        raise NoPoison("it fails without any message too")
    scan = PoisonScan(counts, fails, is_enough, known, plan)
    scan.scan_all()
    if scan.rows == sum(counts) and len(scan.poison) == len(known.poison):
        raise NoPoison("no message of it fails alone")
    return KnownPoison(scan.rows, tuple(scan.poison))


class PoisonScan:
    """The search for poison: what is known of a batch's first rows while it goes on."""

    def __init__(
        self,
        counts: Sequence[int],
        fails: Fails,
        is_enough: Callable[[PoisonScan], bool],
        known: KnownPoison,
        plan: PlanRange | None,
    ) -> None:
        """Begin the search: the arguments are those of `find_poison`."""
        self.rows = known.rows
        self.poison = list(known.poison)
        self.numbers = numbers_of(counts, known.poison)  # the poison's, among all inputs' rows
        self._counts = counts
        self._fails = fails
        self._is_enough = is_enough
        self._plan = plan
        self._kinds: dict[str, int] = {}  # of errors, with the first of the poison of each
        self._unplanned = 0  # rows before this one are tried without a plan

    def scan_all(self) -> None:
        """Tell all rows apart, or until it is enough."""
        total = sum(self._counts)
        self._scan(total, total, self._together, self._by_plan)

    def _scan(self, stop: int, end: int, fails: FailsOf, by_plan: Callable[[int], bool]) -> None:
        """Tell rows apart up to `stop`; those before `end` are seen to fail, if there are any.

        After a row that fails as many are tried at once as there were good ones before it, then
        twice as many, and so on; in what fails the first row that does is found by halves.
        """
        size = stop - self.rows
        error: Exception | None = None
        while self.rows < stop and not self._is_enough(self):
            begin = self.rows
            if not end:
                end = min(stop, begin + size)
                error = fails(begin, end)
                if error is None:
                    self.rows, size, end = end, 2 * size, 0
                    continue
            while end - self.rows > 1:
                if self._is_enough(self):
                    return
                if by_plan(end):
                    end = self.rows
                    break
                middle = (self.rows + end) // 2
                found = fails(self.rows, middle)
                if found is None:  # so the others fail, of which one alone is tried below
                    self.rows, error = middle, None
                else:
                    end, error = middle, found
            size = max(1, self.rows - begin)
            if self.rows < end:
                self._add(error or fails(self.rows, end))
            end, error = 0, None

    def _by_plan(self, end: int) -> bool:
        """Tell rows up to `end`, or the first of them, apart by a plan of them; False: it is none.

        What it says counts where the step does the same: the first message that fails with each
        kind of error, and the last one, fail with the step itself for the same reason, and all the
        others together do not.
        """
        index, number = _row(self._counts, self.rows)
        begin, before = self.rows, len(self.poison)
        end = min(end, begin + self._counts[index] - number)
        if self._plan is None or begin < self._unplanned or end - begin < PLANNED_ROWS:
            return False
        planned = self._plan(index, (number, number + end - begin))
        if planned is None:
            return False

        def alone(first: int, last: int) -> Exception | None:
            return planned(first - begin, last - begin)

        self._kinds.clear()
        self._scan(end, 0, alone, _no_plan)
        stop, found = self.rows, self.numbers[before:]
        if found and all(
            self._is_so(each) for each in {*self._kinds.values(), len(self.poison) - 1}
        ):
            others = _gaps(begin, stop, found)
            if not others or self._fails(self._of(index, others, number - begin)) is None:
                return True
            self._forget(begin, before)
            self._scan(stop, 0, lambda *some: alone(*some) or self._together(*some), _no_plan)
            return True
        self._forget(begin, before)
        self._unplanned = end
        if found:
            self._plan = None
        return False

    def _together(self, begin: int, end: int) -> Exception | None:
        return self._fails(_selection(self._counts, begin, end))

    def _is_so(self, poison: int) -> bool:
        """Return True if the step fails with it, as the plan says."""
        known, row = self.poison[poison], self.numbers[poison]
        error = self._together(row, row + 1)
        return (
            error is not None and known.reason == Poison.of(known.index, known.number, error).reason
        )

    def _of(self, index: int, rows: Sequence[RowRange], ahead: int) -> SelectedRows:
        """Rows of one input; `ahead`: what makes their numbers there of those among all rows."""
        selection: SelectedRows = [[] for _ in self._counts]
        selection[index] = [(begin + ahead, end + ahead) for begin, end in rows]
        return selection

    def _add(self, error: Exception | None) -> None:
        """The next row is told apart."""
        if error is not None:
            self.poison.append(Poison.of(*_row(self._counts, self.rows), error))
            self.numbers.append(self.rows)
            self._kinds.setdefault(kind_of(error), len(self.poison) - 1)
        self.rows += 1

    def _forget(self, rows: int, poison: int) -> None:
        """Forget all but so much."""
        self.rows = rows
        del self.poison[poison:], self.numbers[poison:]


def _no_plan(end: int) -> bool:
    return False


def without(counts: Sequence[int], poison: Sequence[Poison]) -> SelectedRows:
    """Return all rows but these."""
    numbers: list[list[int]] = [[] for _ in counts]
    for each in poison:
        numbers[each.index].append(each.number)
    return [_gaps(0, count, sorted(own)) for count, own in zip(counts, numbers, strict=True)]


def numbers_of(counts: Sequence[int], poison: Iterable[Poison]) -> list[int]:
    """Their numbers among the rows of all inputs."""
    before = list(accumulate(counts, initial=0))
    return [before[each.index] + each.number for each in poison]


def _gaps(begin: int, end: int, numbers: Iterable[int]) -> list[RowRange]:
    """Return the runs between them, from `begin` to before `end`."""
    runs = []
    for number in numbers:
        runs.append((begin, number))
        begin = number + 1
    return [run for run in (*runs, (begin, end)) if run[0] < run[1]]


def _selection(counts: Sequence[int], begin: int, end: int) -> SelectedRows:
    """Rows [begin, end) of all inputs' rows, one input after the other."""
    selection: SelectedRows = []
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
