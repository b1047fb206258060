"""Ordered groups: messages of one group go to one reader at a time, in the queue's order.

It stands between a selection and its lanes, and shows to everybody only the first message of each
group that nobody has. What a transaction has got of a group shows the next one to it alone.

- OG1: of a group that a transaction has messages of in flight nobody else gets one. When the last
  of them is read or given back, the group's first message is shown to everybody.
- OG2: a group with a message that was rejected with a delay waits for it: nobody gets one of it.
  What is spent or has expired holds nobody up, nor does what is not due yet.
  What is taken before it is due holds its group too, and is taken only where nobody else has that;
  but not by who is to change it.
- OG3: a group is known by 60 bits of its key's checksum. Two keys that share them would be one
  group, which is in order too.
- OG4: a group of one message takes two entries of dictionaries, a message that waits behind another
  one 8 bytes (56 where it came back, or by priority).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from sys import getsizeof
from typing import Final

from quire.checksum import checksum
from quire.intervals import IntervalSet
from quire.limits import GROUP_NUMBER_BYTES, GROUP_NUMBERS, LANE_SLACK, LONGEST_CODE, POSITIONS

from .standing import code_of, int_bytes

Buffer = bytes | bytearray | memoryview


def group_number(key: Buffer) -> int:
    """By which a group is known (OG3); never 0."""
    return checksum(key) & GROUP_NUMBERS or 1


class _Holder:
    """A transaction that has messages of groups in flight."""

    __slots__ = ("groups", "shown", "taker")

    def __init__(self, taker: object) -> None:
        self.taker = taker
        self.groups = 0
        self.shown: list[tuple[int, int]] = []  # a heap: codes that it alone may take, and groups


_NOBODY: Final = _Holder(None)  # who may go on with a group that waits (OG2)


class _Group:
    """A group with more than one message, or with one in flight."""

    __slots__ = ("again", "head", "held", "holder", "new", "shown")

    def __init__(self, shown: int) -> None:
        self.shown = shown  # the code of its first message, if that may be taken; -1: none may
        self.holder: _Holder | None = None
        self.held = 0  # messages in flight, or rejected with a delay
        self.new: array[int] | None = None  # codes that wait behind `shown`, ascending
        self.head = 0  # what is before it in `new` was taken
        self.again: list[int] | None = None  # others, a heap

    def add(self, code: int) -> None:
        """It waits."""
        new = self.new
        if code > LONGEST_CODE:
            if self.again is None:
                self.again = []
            heappush(self.again, code)
        elif new is None:
            self.new = array("q", (code,))
        elif new[-1] < code:
            new.append(code)
        elif self.again is None:
            self.again = [code]
        else:
            heappush(self.again, code)

    def pop(self) -> int:
        """Take the first that waits; -1: none does."""
        new, again = self.new, self.again
        if new is None:
            return -1 if again is None else self._pop_again(again)
        head = self.head
        if again is not None and again[0] < new[head]:
            return self._pop_again(again)
        code = new[head]
        self.head = head = head + 1
        if head == len(new):
            self.new, self.head = None, 0
        elif head > LANE_SLACK and head > len(new) >> 1:
            del new[:head]
            self.head = 0
        return code

    def _pop_again(self, again: list[int]) -> int:
        code = heappop(again)
        if not again:
            self.again = None
        return code

    def waiting(self) -> list[int]:
        """The codes of all that wait."""
        return [*(self.new or ())][self.head :] + (self.again or [])

    def drop(self, done: IntervalSet) -> None:
        """Take away what is read."""
        left = [code for code in self.waiting() if not done.contains(code & POSITIONS)]
        self.new, self.head, self.again = None, 0, None
        for code in sorted(left):
            self.add(code)

    @property
    def memory_bytes(self) -> int:
        new = 0 if self.new is None else getsizeof(self.new)
        again = 0
        if self.again is not None:
            again = getsizeof(self.again) + (8 + int_bytes(self.again)) * len(self.again)
        return getsizeof(self) + new + again


class Groups:
    """See the module. The queue's lock covers it."""

    __slots__ = ("_groups", "_holders", "_shown", "away", "held", "open")

    def __init__(self, away: IntervalSet) -> None:
        """`away`: what was in flight, or came later, before anything is known of its group."""
        self.away = away
        self.open: list[int] = []  # codes that everybody may take from now on; who asks empties it
        self.held: dict[int, int] = {}  # the groups of what is in flight, by position
        # By the group's number. A code is one of a group whose only message waits.
        self._groups: dict[int, int | _Group] = {}
        self._shown: dict[int, int] = {}  # the groups of what is or was shown, by position
        self._holders: dict[object, _Holder] = {}

    # What is available

    def arrive(self, code: int, number: int) -> None:
        """A message of the group is available."""
        group = self._groups.get(number)
        if group is None:
            self._groups[number] = code
            self._shown[code & POSITIONS] = number
            self.open.append(code)
            return
        if isinstance(group, int):
            group = self._groups[number] = _Group(group)
        self._add(group, number, code)

    def arrive_many(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """The same of several: position, rank and group."""
        for position, rank, number in rows:
            self.arrive(code_of(position, rank), number)

    def _add(self, group: _Group, number: int, code: int) -> None:
        if code < group.shown:
            group.add(group.shown)  # where it was shown it is passed over
            group.shown = -1
        group.add(code)
        self._show(group, number)

    def _show(self, group: _Group, number: int) -> None:
        """The group's first message, if that is not done, to whoever may take it."""
        if group.shown >= 0 or group.holder is _NOBODY:
            return
        code = group.pop()
        if code < 0:
            if not group.held:
                del self._groups[number]
            return
        group.shown = code
        self._shown[code & POSITIONS] = number
        if group.holder is None:
            self.open.append(code)
        else:
            heappush(group.holder.shown, (code, number))

    def is_open(self, position: int, rank: int) -> bool:
        """Whether what a lane has may be taken by everybody."""
        number = self._shown.get(position)
        if number is None:
            return True  # of no group
        group = self._groups.get(number)
        code = code_of(position, rank)
        if isinstance(group, _Group):
            return group.holder is None and group.shown == code
        return group == code

    def first_of(self, taker: object) -> int:
        """The code of what this transaction alone may take next; -1: nothing."""
        holder = self._holders.get(taker)
        while holder is not None and holder.shown:
            code, number = holder.shown[0]
            group = self._groups.get(number)
            if isinstance(group, _Group) and group.holder is holder and group.shown == code:
                return code
            heappop(holder.shown)
        return -1

    def pass_over(self, position: int) -> None:
        """What was shown is not available after all: the next one of its group is."""
        number = self._shown.pop(position, None)
        group = None if number is None else self._groups.get(number)
        if number is None or group is None:
            return
        if isinstance(group, int):
            if group & POSITIONS == position:
                del self._groups[number]
        elif group.shown >= 0 and group.shown & POSITIONS == position:
            group.shown = -1
            self._show(group, number)

    # In flight (OG1)

    def take(self, position: int, taker: object) -> None:
        """What was shown is in flight now."""
        number = self._shown.pop(position, None)
        if number is None:
            return
        group = self._groups[number]
        if isinstance(group, int):
            group = self._groups[number] = _Group(-1)
        group.shown = -1
        self._hold(group, number, position, taker)

    def hold(self, position: int, number: int, taker: object) -> bool:
        """What is not due yet is in flight now; False: others have its group, or it waits."""
        group = self._groups.get(number)
        if not isinstance(group, _Group):
            group = self._groups[number] = _Group(-1 if group is None else group)
        elif group.holder is not None and group.holder is not self._holders.get(taker):
            return False
        if group.holder is None and group.shown >= 0:  # to everybody, until now
            group.add(group.shown)
            group.shown = -1
        self._hold(group, number, position, taker)
        return True

    def _hold(self, group: _Group, number: int, position: int, taker: object) -> None:
        if group.holder is None:
            holder = self._holders.get(taker)
            if holder is None:
                holder = self._holders[taker] = _Holder(taker)
            self._hand(group, holder)
        group.held += 1
        self.held[position] = number
        self._show(group, number)

    def find(self, position: int, number: int) -> None:
        """What was away is of this group (0: of none), which waits until it is back or read."""
        self.away.remove(position, position + 1)
        if not number:
            return
        group = self._groups.get(number)
        if not isinstance(group, _Group):
            group = self._groups[number] = _Group(-1 if group is None else group)
        group.held += 1
        self.held[position] = number
        self._block(group)

    def wait_for(self, position: int) -> None:
        """What was in flight comes later (OG2)."""
        number = self.held.get(position)
        group = None if number is None else self._groups[number]
        if isinstance(group, _Group):
            self._block(group)

    def _block(self, group: _Group) -> None:
        self._hand(group, _NOBODY)
        if group.shown >= 0:
            group.add(group.shown)
            group.shown = -1

    def let_go(self, position: int, code: int = -1) -> None:
        """What was in flight is not any more; with a code, it is available again."""
        number = self.held.pop(position, None)
        if number is None:
            return
        group = self._groups[number]
        assert isinstance(group, _Group)
        group.held -= 1
        if not group.held:
            self._hand(group, None)
            if group.shown >= 0:  # to one reader, until now
                group.add(group.shown)
                group.shown = -1
        if code >= 0:
            self._shown[position] = number  # a lane may have it still: so it is no message without
            self._add(group, number, code)
        else:
            self._show(group, number)

    def _hand(self, group: _Group, holder: _Holder | None) -> None:
        before = group.holder
        if holder is before:
            return
        group.holder = holder
        if before is not None and before is not _NOBODY:
            before.groups -= 1
            if not before.groups:
                del self._holders[before.taker]
        if holder is not None and holder is not _NOBODY:
            holder.groups += 1

    # All of it

    def available(self) -> list[int]:
        """The positions of all that waits, shown or not."""
        found: list[int] = []
        for group in self._groups.values():
            if isinstance(group, int):
                found.append(group & POSITIONS)
                continue
            codes = group.waiting()
            if group.shown >= 0:
                codes.append(group.shown)
            found += [code & POSITIONS for code in codes]
        return found

    def drop(self, done: IntervalSet) -> None:
        """Forget what is read, wherever it stands."""
        for group in self._groups.values():
            if isinstance(group, _Group):
                group.drop(done)
        for position in [p for p in self._shown if done.contains(p)]:
            self.pass_over(position)
        for holder in self._holders.values():
            holder.shown = [pair for pair in holder.shown if not done.contains(pair[0] & POSITIONS)]
            heapify(holder.shown)

    @property
    def waiting(self) -> int:
        """How many messages of groups are not in flight, about."""
        return len(self._shown) + sum(
            len(group.waiting()) for group in self._groups.values() if isinstance(group, _Group)
        )

    @property
    def memory_bytes(self) -> int:
        """What it takes (OG4)."""
        tables = sum(map(getsizeof, (self._groups, self._shown, self.held)))
        numbers = len(self._groups) + len(self._shown) + len(self.held)
        several = [g.memory_bytes for g in self._groups.values() if isinstance(g, _Group)]
        return tables + GROUP_NUMBER_BYTES * numbers + sum(several)
