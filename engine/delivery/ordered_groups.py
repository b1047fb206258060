"""Ordered groups: messages of one group go to one reader at a time, in the queue's order.

It stands between a selection and what stands ready, where it shows to everybody only the first
message of each group that nobody has. What a transaction has got of a group shows the next one to
it alone.

- OG1: of a group that a transaction has messages of in flight nobody else gets one. When the last
  of them is read or given back, the group's first message is shown to everybody.
- OG2: a group with a message that was rejected with a delay waits for it: nobody gets one of it.
  What is spent or has expired holds nobody up, nor does what is not due yet.
  What is taken before it is due holds its group too, and is taken only where nobody else has that;
  but not by who is to change it.
- OG3: a group is known by 60 bits of its key's checksum. Two keys that share them would be one
  group, which is in order too.
- OG5: where groups have limits (`paces`), a group shows its next message only while they let it,
  and groups take turns (PK3). With `group_max_in_flight` a group is nobody's: so many of its
  messages are in flight, whoever has them, and what comes later holds nobody up.
- OG4: a group of one message takes an entry of a dictionary, and 13 bytes of a page where its
  position is among others; a message that waits behind another one 8 bytes (56 where it came back,
  or by priority).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from sys import getsizeof
from typing import Final, NamedTuple

from quire.checksum import checksum
from quire.definitions.limits import ALONE
from quire.intervals import IntervalSet
from quire.limits import (
    GROUP_NUMBER_BYTES,
    GROUP_NUMBERS,
    GROUPS_PAGE,
    GROUPS_PAGE_BYTES,
    POSITIONS,
)

from .pace_keeping import GroupPaces
from .ready_positions import Line, Standing

GroupKey = bytes | bytearray | memoryview


def group_number(key: GroupKey) -> int:
    """By which a group is known (OG3); never 0."""
    return checksum(key) & GROUP_NUMBERS or 1


class _Holder:
    """A transaction that has messages of groups in flight."""

    __slots__ = ("groups", "shown", "taker")

    def __init__(self, taker: object) -> None:
        self.taker = taker
        self.groups = 0
        self.shown = Line()  # what it alone may take


class GroupObstacle(NamedTuple):
    """A reason why a group shows everybody no message: it is held, full, or rests."""

    is_held: bool = False  # of a message that is in flight, or comes later
    position: int | None = None  # of that message, if it is known
    is_full: bool = False  # as many are in flight as may be
    due_us: int = 0  # when its rate lets it go on, by the clock that nobody sets


_NOBODY: Final = _Holder(None)  # who may go on with a group that waits (OG2)


class _MessageGroup:
    """A group with more than one message, or with one in flight."""

    __slots__ = ("held", "holder", "rests", "shown", "stands", "waiting")

    def __init__(self, shown: int) -> None:
        self.shown = shown  # the code of its first message, if that may be taken; -1: none may
        self.stands = shown  # by which it stands among those of others
        self.rests = False  # until its rate lets it go on
        self.holder: _Holder | None = None
        self.held = 0  # messages in flight, or rejected with a delay
        self.waiting = Line()  # those behind `shown`

    def hide(self) -> None:
        """Put the shown message among the waiting ones; its place in the line is passed over."""
        if self.shown >= 0:
            self.waiting.add(self.shown)
            self.shown = -1


class _Shown:
    """The groups of what is or was shown, by position, in small pages; 0: none."""

    __slots__ = ("_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        self.count = 0

    def of(self, position: int) -> int:
        page = self._pages.get(position // GROUPS_PAGE)
        return 0 if page is None else page[position % GROUPS_PAGE]

    def note(self, position: int, number: int) -> None:
        """It is of this group, which is not 0."""
        index, at = divmod(position, GROUPS_PAGE)
        page = self._pages.get(index)
        if page is None:
            page = self._pages[index] = array("q", _EMPTY_PAGE)
        self.count += not page[at]
        page[at] = number

    def pop(self, position: int) -> int:
        """Its group, which is not known any more."""
        index, at = divmod(position, GROUPS_PAGE)
        page = self._pages.get(index)
        if page is None or not page[at]:
            return 0
        number, page[at] = page[at], 0
        self.count -= 1
        if page == _EMPTY_PAGE:
            del self._pages[index]
        return number

    def __iter__(self) -> Iterator[int]:
        """The positions."""
        for index, page in list(self._pages.items()):
            for at in range(GROUPS_PAGE):
                if page[at]:
                    yield index * GROUPS_PAGE + at

    @property
    def memory_bytes(self) -> int:
        return getsizeof(self._pages) + GROUPS_PAGE_BYTES * len(self._pages)


_EMPTY_PAGE: Final = array("q", [0] * GROUPS_PAGE)


class Groups:
    """The ordered groups of a subscription, with their holders. Covered by the queue's lock."""

    __slots__ = (
        "_at", "_groups", "_holders", "_is_there", "_resting", "_shown", "_standing", "away",
        "held", "paces",
    )  # fmt: skip

    def __init__(
        self,
        away: IntervalSet,
        standing: Standing,
        is_there: Callable[[int], bool],
        paces: GroupPaces | None = None,
    ) -> None:
        """`away`: what was in flight, or came later, before anything is known of its group.

        `standing`: what everybody may take. `is_there`: whether a position is available. `paces`:
        where groups have limits (OG5).
        """
        self.paces = paces
        self._resting: list[tuple[int, int]] = []  # a heap: until when, and which group
        self.away = away
        self._standing = self._at = standing  # where `first` found it
        self._is_there = is_there
        # The groups of what is in flight, by position. Below 0: of what comes later, of one that
        # is nobody's.
        self.held: dict[int, int] = {}
        # By the group's number. A code is one of a group whose only message waits.
        self._groups: dict[int, int | _MessageGroup] = {}
        self._shown = _Shown()
        self._holders: dict[object, _Holder] = {}

    # What is available

    def arrive(self, code: int, number: int) -> None:
        """A message of the group (0: of none) is available."""
        if self.paces is not None:
            number = number or ALONE
            self._add(self._group(number), number, code)
        elif not number:
            self._standing.add(code)
        elif number in self._groups:
            self._add(self._group(number), number, code)
        else:
            self._groups[number] = code
            self._shown.note(code & POSITIONS, number)
            self._standing.add(code)

    def _group(self, number: int) -> _MessageGroup:
        """In full."""
        group = self._groups.get(number, -1)
        if isinstance(group, int):
            group = self._groups[number] = _MessageGroup(group)
        return group

    def _add(self, group: _MessageGroup, number: int, code: int) -> bool:
        if code < group.shown:
            group.hide()
        group.waiting.add(code)
        return self._show(group, number)

    def _show(self, group: _MessageGroup, number: int) -> bool:
        """The group's first message, if that is not done; whether to everybody."""
        if group.shown >= 0 or group.holder is _NOBODY:
            return False
        code = group.waiting.first()
        if code < 0:
            if not group.held:
                del self._groups[number]
            return False
        stands = code
        if self.paces is not None:
            if not self._may_start(group, number):
                return False
            stands = self.paces.stands(number, code)
        group.waiting.pop()
        group.shown, group.stands = code, stands
        self._shown.note(code & POSITIONS, number)
        (self._standing if group.holder is None else group.holder.shown).add(stands)
        return group.holder is None

    def _is_shared(self, number: int) -> bool:
        """Return True if several takers may have messages of the group at a time."""
        return self.paces is not None and (number == ALONE or self.paces.is_shared)

    def _may_start(self, group: _MessageGroup, number: int) -> bool:
        """Return True if limits let the group start one more; else note when to look again."""
        if self.paces is None or group.rests:
            return self.paces is None
        if self.paces.is_full(number, group.held):
            return False
        due_us = self.paces.due_us(number)
        if due_us:
            group.rests = True
            heappush(self._resting, (due_us, number))
        return not due_us

    @property
    def next_due_us(self) -> int | None:
        """Return when a group's rate lets it go on; None: no group waits for that."""
        return self._resting[0][0] if self._resting else None

    def go_on(self) -> bool:
        """Groups that have rested for long enough; whether everybody may take something by that."""
        is_any = False
        now_us = self.paces.now_us() if self._resting and self.paces is not None else 0
        while self._resting and self._resting[0][0] <= now_us:
            _, number = heappop(self._resting)
            group = self._groups.get(number)
            if isinstance(group, _MessageGroup):
                group.rests = False
                is_any |= self._show(group, number)
        return is_any

    def first(self, taker: object) -> int:
        """The code of what this transaction may take next; -1: there is none."""
        code, self._at = self._first(self._standing, None), self._standing
        holder = self._holders.get(taker)
        own = -1 if holder is None else self._first(holder.shown, holder)
        if holder is not None and own >= 0 and not 0 <= code < own:
            code, self._at = own, holder.shown
        return code if self.paces is None or code < 0 else self.paces.code(code)

    def _first(self, standing: Standing, holder: _Holder | None) -> int:
        """By what the first message stands that is shown to this holder; None: to everybody."""
        while (code := standing.first()) >= 0:
            position = code & POSITIONS
            number = self._shown.of(position)
            known = self._groups.get(number)
            shown, shown_to = known, None
            if isinstance(known, _MessageGroup):
                shown, shown_to = known.stands if known.shown >= 0 else -1, known.holder
            is_there = self._is_there(position)
            if is_there and shown_to is holder and (shown == code or not number):
                return code
            standing.pop()
            if not is_there:
                self.pass_over(position)
        return -1

    def pass_over(self, position: int) -> None:
        """Take back a shown message that is not available, and show its group's next one."""
        number = self._shown.pop(position)
        group = self._groups.get(number)
        if isinstance(group, _MessageGroup):
            if group.shown >= 0 and group.shown & POSITIONS == position:
                group.shown = -1
                self._show(group, number)
        elif group is not None and group & POSITIONS == position:
            del self._groups[number]

    # In flight (OG1)

    def take(self, position: int, taker: object) -> None:
        """Put the message that `first` has shown in flight."""
        self._at.pop()
        number = self._shown.pop(position)
        if number:
            group = self._group(number)
            group.shown = -1
            self._hold(group, number, position, taker, group.stands)

    def hold(self, position: int, number: int, taker: object) -> bool:
        """Put a message that is not due in flight. False: its group is taken, or at a limit."""
        if self.paces is not None:
            number = number or ALONE
        group = self._group(number)
        if self.paces is not None and not self._may_start(group, number):
            self._show(group, number)  # which forgets it where nothing is of it
            return False
        if group.holder is None:
            group.hide()  # from everybody
        elif group.holder is not self._holders.get(taker):
            return False
        self._hold(group, number, position, taker)
        return True

    def may_have(self, number: int, taker: object) -> bool:
        """Return True if holder (OG1) and limits (OG5) let the taker have the group (0: none)."""
        group = self._groups.get(number)
        holder, held = (group.holder, group.held) if isinstance(group, _MessageGroup) else (None, 0)
        paces = self.paces if number else None
        if paces is not None and (paces.is_full(number, held) or paces.due_us(number)):
            return False
        return holder is None or holder is self._holders.get(taker)

    def _hold(
        self, group: _MessageGroup, number: int, position: int, taker: object, stands: int = -1
    ) -> None:
        if group.holder is None and not self._is_shared(number):
            holder = self._holders[taker] = self._holders.get(taker) or _Holder(taker)
            self._set_holder(group, holder)
        if self.paces is not None:
            self.paces.start(number, stands)
        group.held += 1
        self.held[position] = number
        self._show(group, number)

    def find(self, position: int, number: int, is_later: bool = True) -> None:
        """Put a message that was away into its group (0: none); it waits until it is back or read.

        `is_later`: it is not in flight, but comes later.
        """
        self.away.remove(position, position + 1)
        if number:
            group = self._group(number)
            group.held += 1
            self.held[position] = number
            if is_later or not self._is_shared(number):
                self.wait_for(position)
            elif self.paces is not None and self.paces.is_full(number, group.held):
                group.hide()

    def wait_for(self, position: int) -> None:
        """Return the group to others, as a message in flight is to be retried later (OG2)."""
        number = self.held[position]
        if number < 0:
            return
        group = self._group(number)
        if self._is_shared(number):
            group.held -= 1
            self.held[position] = -number
            self._show(group, number)
            return
        self._set_holder(group, _NOBODY)
        group.hide()

    def let_go(self, position: int, code: int = -1) -> bool:
        """Take a message out of flight; with a code, it is available again.

        Whether everybody may take something by that.
        """
        number = self.held.pop(position, 0)
        if not number:
            if code >= 0:
                self.arrive(code, 0)
            return code >= 0
        is_held, number = number > 0, abs(number)
        group = self._group(number)
        group.held -= is_held
        if not group.held and not self._is_shared(number):
            self._set_holder(group, None)
            group.hide()  # from its reader
        if code < 0:
            return self._show(group, number)
        self._shown.note(position, number)  # it may stand there still: so it is no message without
        return self._add(group, number, code)

    def _set_holder(self, group: _MessageGroup, holder: _Holder | None) -> None:
        before, group.holder = group.holder, holder
        if holder is not None:
            holder.groups += 1
        if before is not None:
            before.groups -= 1
            if not before.groups and before is not _NOBODY:
                del self._holders[before.taker]

    def obstacle(self, number: int, most: int) -> GroupObstacle | None:
        """Return what keeps everybody from the next message of a group; None: nothing does.

        Of what is in flight or comes later so many positions at most are looked at.
        """
        number = number or (0 if self.paces is None else ALONE)
        group = self._groups.get(number)
        if not isinstance(group, _MessageGroup):
            return None
        if group.holder is not None:
            held = (at for at, own in islice(self.held.items(), most) if own == number)
            return GroupObstacle(is_held=True, position=next(held, None))
        if self.paces is not None and self.paces.is_full(number, group.held):
            return GroupObstacle(is_full=True)
        due_us = 0 if self.paces is None else self.paces.due_us(number)
        return GroupObstacle(due_us=due_us) if due_us else None

    # All of it

    def drop(self, done: IntervalSet) -> None:
        """Forget what is read, wherever it stands."""
        for group in self._groups.values():
            if isinstance(group, _MessageGroup):
                group.waiting.drop(done)
        for position in [p for p in self._shown if done.contains(p)]:
            self.pass_over(position)
        for holder in self._holders.values():
            holder.shown.drop(done)

    @property
    def waiting(self) -> int:
        """How many messages of groups are not in flight, about."""
        groups = [group for group in self._groups.values() if isinstance(group, _MessageGroup)]
        return self._shown.count + sum(len(group.waiting) for group in groups)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that the groups take (OG4)."""
        tables = getsizeof(self._groups) + getsizeof(self.held) + self._shown.memory_bytes
        groups = [group for group in self._groups.values() if isinstance(group, _MessageGroup)]
        numbers = 2 * len(self._groups) - len(groups) + len(self.held)  # a code is one, too
        several = sum(getsizeof(group) + group.waiting.memory_bytes for group in groups)
        paces = 0 if self.paces is None else self.paces.memory_bytes
        return tables + GROUP_NUMBER_BYTES * numbers + several + paces
