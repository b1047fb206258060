"""The newest row of each of some keys, found in many runs.

A key is looked for in the newest run that may have it, then, where that has not got it, in the next
one. All keys together: so a round has the pieces of all its runs at once, and what the filters let
pass in vain is a small second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from quire.libraries import np, pa

from .piece_search import FoundRows, match
from .row_layout import RowLayout
from .run import KeyedRun
from .timer_mark import TimerMark

if TYPE_CHECKING:
    from numpy.typing import NDArray


class LookedRun(NamedTuple):
    """A run that keys are looked for in."""

    first: int  # of the hashes that it is for
    last: int
    fired: TimerMark  # its timers up to here
    open: Callable[[], KeyedRun]


def newest_rows(
    runs: Sequence[LookedRun],
    keys: Sequence[pa.Array],
    hashes: NDArray[np.uint64],
) -> Iterator[tuple[FoundRows, TimerMark]]:
    """Yield the rows of keys that are ascending by hash, each once.

    `runs`: the newest first. With the rows comes how far timers have fired in their runs. Raises
    what opening a run does, and StoreCorrupt.
    """
    opened: dict[int, KeyedRun] = {}
    which, where = _candidates(runs, hashes, opened)
    kinds = _alike_runs(runs, opened)
    is_missing = np.ones(len(hashes), np.bool_)
    while len(which):
        is_next = np.ones(len(which), np.bool_)
        is_next[1:] = which[1:] != which[:-1]
        keys_now, runs_now = which[is_next], where[is_next]
        order = np.argsort(runs_now, kind="stable")
        keys_now, runs_now = keys_now[order], runs_now[order]
        for mark, own, numbers in kinds:
            of_kind = numbers[runs_now]
            mine = slice(None) if len(kinds) == 1 else np.flatnonzero(of_kind >= 0)
            if not len(of_kind[mine]):
                continue
            found = match(own, of_kind[mine], keys_now[mine], hashes, keys)
            if found is not None:
                is_missing[found.wanted] = False
                yield found, mark
        is_left = ~is_next & is_missing[which]
        which, where = which[is_left], where[is_left]


class _AlikeRuns(NamedTuple):
    """Runs of one layout that have fired as far."""

    fired: TimerMark
    runs: list[KeyedRun]
    numbers: NDArray[np.int64]  # of each run its place among these; -1: it is none of them


def _alike_runs(runs: Sequence[LookedRun], opened: Mapping[int, KeyedRun]) -> list[_AlikeRuns]:
    found: dict[tuple[TimerMark, RowLayout], _AlikeRuns] = {}
    for number, run in opened.items():
        mark = runs[number].fired
        kind = found.setdefault((mark, run.layout), _AlikeRuns(mark, [], np.full(len(runs), -1)))
        kind.numbers[number] = len(kind.runs)
        kind.runs.append(run)
    return list(found.values())


def _candidates(
    runs: Sequence[LookedRun], hashes: NDArray[np.uint64], opened: dict[int, KeyedRun]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of a key and a run that may have it; of each key the newest run first.

    `opened`: the runs, by their numbers, which are opened by this.
    """
    lows = np.searchsorted(hashes, np.array([run.first for run in runs], np.uint64))
    highs = np.searchsorted(hashes, np.array([run.last for run in runs], np.uint64), "right")
    which: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    where: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    for number, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
        if low < high:
            run = opened[number] = runs[number].open()
            found = np.flatnonzero(run.may_have(hashes[low:high])) + low
            which.append(found)
            where.append(np.full(len(found), number))
    keys, numbers = np.concatenate(which), np.concatenate(where)
    order = np.argsort(keys, kind="stable")
    return keys[order], numbers[order]
