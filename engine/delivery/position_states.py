"""The states of a subscription's positions that are not read in commit order, a byte each.

- PL1: `move` is the only change of what is known. It goes by the table (TR4): one that the table
  does not know raises StoreFailed, and leaves all as it was, so nothing is delivered twice.
- Below `end` READ is what no page tells; from there on all is UNSEEN. A page all of which is read
  is dropped, so that memory depends on what is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from quire.errors import StoreFailed
from quire.intervals import IntervalSet
from quire.libraries import np
from quire.limits import POSITION_STATES_PAGE, POSITION_STATES_PAGE_BYTES

from .delivery_table import REFUSED, TRANSITIONS, DeliveryState, Event, Transition
from .ready_positions import held_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

_READ: Final = DeliveryState.READ.number
_STATES: Final = tuple(DeliveryState)


def those_of(*numbers: int) -> bytes:
    """Return the set of these states, for `runs`."""
    return bytes(number in numbers for number in range(256))


class PositionStates:
    """The states of a subscription's positions, a byte each. Covered by the queue's lock."""

    __slots__ = ("_pages", "end")

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self.end = 0

    def fill(self, runs: Iterable[tuple[int, int]], state: DeliveryState, end: int) -> None:
        """Set the first states of positions below `end`; those in no run are read."""
        for start, stop in runs:
            for index in range(
                start // POSITION_STATES_PAGE, (stop - 1) // POSITION_STATES_PAGE + 1
            ):
                base = index * POSITION_STATES_PAGE
                page = self._pages.setdefault(index, bytearray([_READ] * POSITION_STATES_PAGE))
                lo, hi = max(start - base, 0), min(stop - base, POSITION_STATES_PAGE)
                page[lo:hi] = bytes([state.number]) * (hi - lo)
        self.end = max(self.end, end)

    def reach(self, end: int, done: IntervalSet) -> None:
        """Positions below that are known from now on; nothing but which of them are read."""
        if self.end < end:
            self.fill(done.gaps(self.end, end), DeliveryState.UNSEEN, end)

    def of(self, position: int) -> int:
        """The number of its state; it is below `end`."""
        page = self._pages.get(position // POSITION_STATES_PAGE)
        return _READ if page is None else page[position % POSITION_STATES_PAGE]

    def move(self, start: int, end: int, way: Transition) -> None:
        """[start, end) goes that way. Raises StoreFailed if the table does not know it (PL1)."""
        pages = self._pages
        if end - start == 1:
            index, at = start // POSITION_STATES_PAGE, start % POSITION_STATES_PAGE
            page = pages.get(index)
            if page is not None and (after := way.to[page[at]]) != REFUSED:
                page[at] = after
                if after == _READ and page.count(_READ) == POSITION_STATES_PAGE:
                    del pages[index]
                return
        elif end <= start:
            return
        if way.after != _READ:
            states = self.states(start, end).tobytes().translate(way.to)
            if REFUSED in states:
                raise self._refused(start + states.index(REFUSED), way.event)
        for index, lo, hi in list(self._parts(start, end)):
            page = pages[index]
            page[lo:hi] = page[lo:hi].translate(way.to)
            if way.after == _READ and page.count(_READ) == POSITION_STATES_PAGE:
                del pages[index]

    def look(self, start: int, states: NDArray[np.uint8]) -> None:
        """Set the states of unseen positions, from `start` on. Raises StoreFailed (PL1)."""
        end = start + len(states)
        before = self.states(start, end)
        changed = np.flatnonzero(before != states)
        for after in set(states[changed].tolist()):
            ways = np.frombuffer(TRANSITIONS[Event.LOOK][after].to, np.uint8)
            wrong = changed[(states[changed] == after) & (ways[before[changed]] == REFUSED)]
            if len(wrong):
                raise self._refused(start + int(wrong[0]), Event.LOOK)
        for index, lo, hi in self._parts(start, end):
            at = (index * POSITION_STATES_PAGE) - start
            self._pages[index][lo:hi] = states[at + lo : at + hi].tobytes()

    def _refused(self, position: int, event: Event) -> StoreFailed:
        state = _STATES[self.of(position)]
        return StoreFailed(
            f"what is known of the message at position {position} contradicts what happens to it "
            f"({state.name}: {state.value}; {event.name}: {event.value}). It stays as it was, and "
            "the journal is right: close the store and open it again, and report this"
        )

    # Questions of many

    def states(self, start: int, end: int) -> NDArray[np.uint8]:
        """The numbers of the states of [start, end), copied."""
        found = np.full(end - start, _READ, np.uint8)
        for index, lo, hi in self._parts(start, end):
            at = (index * POSITION_STATES_PAGE) - start
            found[at + lo : at + hi] = np.frombuffer(self._pages[index], np.uint8)[lo:hi]
        return found

    def runs(self, start: int, end: int, wanted: bytes) -> list[tuple[int, int]]:
        """Those of [start, end) that are in certain states (see `those_of`)."""
        found: list[tuple[int, int]] = []
        for index, first, last in self._parts(start, end):
            flags = self._pages[index][first:last].translate(wanted) + b"\0"
            base = (index * POSITION_STATES_PAGE) + first
            hi = 0
            while (lo := flags.find(1, hi)) >= 0:
                hi = flags.find(0, lo)
                if found and found[-1][1] == base + lo:
                    found[-1] = found[-1][0], base + hi
                else:
                    found.append((base + lo, base + hi))
        return found

    def count(self, wanted: bytes) -> int:
        """How many there are in certain states."""
        return sum([page.translate(wanted).count(1) for page in self._pages.values()])

    def first(self, state: DeliveryState, most_pages: int) -> int | None:
        """Return the first position in a state, of the first so many pages; None: there is none."""
        for index in sorted(self._pages)[:most_pages]:
            at = self._pages[index].find(state.number)
            if at >= 0 and index * POSITION_STATES_PAGE + at < self.end:
                return index * POSITION_STATES_PAGE + at
        return None

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The pages that tell of [start, end), and of each from where to where."""
        first, last = start // POSITION_STATES_PAGE, (end - 1) // POSITION_STATES_PAGE + 1
        for index in sorted(held_between(self._pages, first, last)):
            base = index * POSITION_STATES_PAGE
            yield index, max(start - base, 0), min(end - base, POSITION_STATES_PAGE)

    @property
    def memory_bytes(self) -> int:
        return POSITION_STATES_PAGE_BYTES * len(self._pages)
