"""How far timers were fired: places in their order, and what each run has fired.

KT1. Of a row's timer it is told once that it is due. Runs up to some version have fired all up to a
     mark; a commit that fires more says so, of the version that it has looked at. A row that is put
     later has a run of a later version: its timer is due, also where its time is long over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from quire.libraries import np

from .format import LAST_HASH, NEVER
from .keyed_rows import KeyedRows

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TimerMark(NamedTuple):
    """A place in the order of timers, by time and then by hash."""

    time: int
    hash: int = LAST_HASH

    def reaches(self, times: NDArray[np.int64], hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which timers are up to it."""
        reached: NDArray[np.bool_] = times < self.time
        reached |= (times == self.time) & (hashes <= np.uint64(self.hash))
        return reached


BEFORE_ALL: Final = TimerMark(-(1 << 63), 0)


class FiredTimers(NamedTuple):
    """A mark up to which the runs have fired that have no newer version."""

    version: int
    time: int
    hash: int

    @property
    def mark(self) -> TimerMark:
        """The mark up to which they have fired."""
        return TimerMark(self.time, self.hash)


def fired_of(fired: Sequence[FiredTimers], version: int) -> TimerMark:
    """Return what a run has fired whose newest version is this."""
    return max((each.mark for each in fired if each.version >= version), default=BEFORE_ALL)


def fired_after(
    fired: Sequence[FiredTimers], version: int, mark: TimerMark, oldest: int
) -> tuple[FiredTimers, ...]:
    """Return what was fired once the runs up to a version fire all up to a mark.

    `oldest`: the least of the newest versions of the runs.
    """
    kept = [each for each in fired if each.mark > mark and each.version >= oldest]
    return (*kept, FiredTimers(version, *mark))


def unfired(rows: KeyedRows, mark: TimerMark) -> KeyedRows:
    """Return rows of a run that has fired all up to the mark: those timers are none any more."""
    if mark == BEFORE_ALL or not len(rows.hashes):
        return rows
    gone = mark.reaches(rows.timers, rows.hashes)
    return rows._replace(timers=np.where(gone, NEVER, rows.timers)) if gone.any() else rows
