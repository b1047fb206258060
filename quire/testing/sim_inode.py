"""One file of the simulated disk: what reads see, what is durable, and what lies between.

SI1. `cache` is what reads see. `durable` is what a power failure leaves for certain.
    `pending` are the changes since, in order, that a sync makes durable. `uncertain` are those
    whose write or sync failed: reads see them too, but no sync ever makes them durable.
- At a power failure every pending and every uncertain change is kept, lost or (a write) torn by
  sectors of 512 bytes, each on its own. Writes to the same sector in another order give no further
  outcome: the earlier write last is the same as the later one lost.
SI3. An uncertain change ends where a later change of the same bytes becomes durable: so writing the
    same bytes again and syncing them makes certain what a failed write left. A cut whose sync
    failed is the exception: whether it is durable is decided at once.
"""

from __future__ import annotations

import sys
from random import Random
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from quire.testing.sim_content import SimContent

SECTOR_BYTES = 512
PAGE_BYTES = 4096

Outcome = Literal["kept", "lost", "torn"]


class FileChange(Struct, frozen=True):
    """A change of a file. `data` for a write; `length` is the new size for grow and truncate.

    `direct`: a write through a direct handle, which is durable by itself or not at all.
    """

    number: int
    kind: Literal["write", "punch", "grow", "truncate"]
    offset: int
    length: int
    data: bytes = b""
    direct: bool = False


class SimInode:
    """A file without its names."""

    def __init__(self, path: str, modified_us: int = 0, durable: SimContent | None = None) -> None:
        self.path = path
        self.modified_us = modified_us
        self.durable = SimContent() if durable is None else durable
        self.cache = self.durable.copy()
        self.pending: list[FileChange] = []
        self.uncertain: list[FileChange] = []
        self.pages: set[int] = set()
        self.protected: set[int] = set()  # synced pages that must not be overwritten in place
        self.linked = False  # it has, or had, two names at a time
        self._changes = 0

    @property
    def last_change(self) -> int:
        return self._changes

    def change(
        self,
        kind: Literal["write", "punch", "grow", "truncate"],
        offset: int,
        length: int,
        data: bytes = b"",
        *,
        direct: bool = False,
    ) -> FileChange:
        """Change what reads see; durable only after `make_durable`."""
        self._changes += 1
        change = FileChange(self._changes, kind, offset, length, data, direct)
        apply(self.cache, change)
        self.pending.append(change)
        self._account(change)
        return change

    def make_durable(self, up_to: int) -> set[int]:
        """Make the pending changes up to this number durable; returns the pages written."""
        written: set[int] = set()
        while self.pending and self.pending[0].number <= up_to:
            change = self.pending.pop(0)
            self._settle(change)
            if change.kind == "write":
                written.update(pages_of(change.offset, change.length))
        return written

    def settle(self, change: FileChange) -> set[int]:
        """Make this one durable, and no other; returns the pages written.

        An older one of the same bytes comes before it, as a kernel writes back what is in the page
        cache before a direct write: it must not come after it at a later sync.
        """
        self.pending.remove(change)
        self._settle(change)
        if change.kind == "write":
            first, end = change.offset, change.offset + change.length
            self.pending = [
                part
                for known in self.pending
                for part in (
                    outside(known, first, end)
                    if known.kind == "write" and known.number < change.number
                    else [known]
                )
            ]
        return set(pages_of(change.offset, change.length)) if change.kind == "write" else set()

    def fail_write(self, offset: int, data: bytes) -> None:
        """A write that failed has changed so much of what reads see; it stays uncertain (SI3)."""
        if data:
            change = self.change("write", offset, len(data), data)
            self.pending.remove(change)
            self.uncertain.append(change)

    def fail_sync(self, up_to: int, random: Random) -> None:
        """The pending changes up to this number are uncertain from now on (SI3)."""
        while self.pending and self.pending[0].number <= up_to:
            change = self.pending.pop(0)
            if change.kind != "truncate":
                self.uncertain.append(change)
            elif random.random() < 0.5:
                self._settle(change)

    def __deepcopy__(self, memo: dict[int, Any]) -> SimInode:
        """The file after its process was killed: a direct write under way is uncertain."""
        inode = SimInode(self.path, self.modified_us, self.durable.copy())
        memo[id(self)] = inode
        inode.cache = self.cache.copy()
        inode.pending = [change for change in self.pending if not change.direct]
        inode.uncertain = [*self.uncertain, *(change for change in self.pending if change.direct)]
        inode.pages, inode.protected = set(self.pages), set(self.protected)
        inode.linked = self.linked
        inode._changes = self._changes
        return inode

    def image(self, earlier: SimInode | None) -> SimInode:
        """Return a copy that has all that a power failure needs to know: all but what reads see."""
        inode = SimInode(self.path, self.modified_us)
        shares = earlier is not None and earlier.durable.holds(self.durable)
        inode.durable = earlier.durable if earlier is not None and shares else self.durable.copy()
        inode.cache.grow(len(self.cache))
        inode.pending, inode.uncertain = list(self.pending), list(self.uncertain)
        inode.pages, inode.protected = set(self.pages), set(self.protected)
        inode.linked = self.linked
        return inode

    def protect(self, pages: set[int]) -> None:
        """Forbid, from now on, to overwrite those of the pages that are durable and not zero."""
        for page in pages:
            content = self.durable.read(page * PAGE_BYTES, PAGE_BYTES)
            if content.count(0) < len(content):
                self.protected.add(page)

    def after_power_failure(
        self, random: Random, mood: Outcome | None
    ) -> tuple[SimInode, list[tuple[str, Outcome]]]:
        """A new inode with what survived, and what became of each change that was not durable."""
        content = self.durable.copy()
        outcomes: list[tuple[str, Outcome]] = []
        for change in sorted([*self.uncertain, *self.pending], key=lambda change: change.number):
            outcome = survive(content, change, random, mood or draw_outcome(random))
            failed = "failed " if change in self.uncertain else ""
            outcomes.append((f"{failed}{change.kind} {change.offset}+{change.length}", outcome))
        inode = SimInode(self.path, self.modified_us, content)
        inode.pages, inode.protected = set(self.pages), set(self.protected)
        inode.linked = self.linked
        if len(content) < len(self.cache):
            inode._forget_pages(len(content))
        return inode, outcomes

    def _settle(self, change: FileChange) -> None:
        """The change is durable; older ones of the same bytes are uncertain no more (SI3)."""
        apply(self.durable, change)
        if not self.uncertain or change.kind == "grow":
            return
        first, end = change.offset, change.offset + change.length
        if change.kind == "truncate":
            first, end = change.length, sys.maxsize
        older = [known for known in self.uncertain if known.number < change.number]
        newer = [known for known in self.uncertain if known.number > change.number]
        self.uncertain = [part for known in older for part in outside(known, first, end)] + newer

    def _account(self, change: FileChange) -> None:
        if change.kind == "write":
            self.pages.update(pages_of(change.offset, change.length))
        elif change.kind == "punch":
            gone = range(
                -(-change.offset // PAGE_BYTES), (change.offset + change.length) // PAGE_BYTES
            )
            self.pages.difference_update(gone)
            self.protected.difference_update(gone)
        elif change.kind == "truncate":
            self._forget_pages(change.length)

    def _forget_pages(self, length: int) -> None:
        """Forget the pages behind this length of the file."""
        end = -(-length // PAGE_BYTES)
        self.pages = {page for page in self.pages if page < end}
        self.protected = {page for page in self.protected if page < end}


def pages_of(offset: int, length: int) -> range:
    """The numbers of the pages that a range touches."""
    return range(offset // PAGE_BYTES, -(-(offset + length) // PAGE_BYTES) if length else 0)


def outside(change: FileChange, first: int, end: int) -> list[FileChange]:
    """Return the parts of a change that are left when nothing of it counts between two offsets."""
    if change.kind == "grow":
        return [change] if change.length <= first or end < sys.maxsize else []
    parts = []
    last = change.offset + change.length
    for start, stop in ((change.offset, min(last, first)), (max(change.offset, end), last)):
        if start < stop:
            data = change.data[start - change.offset : stop - change.offset]
            parts.append(replace(change, offset=start, length=stop - start, data=data))
    return parts


def apply(content: SimContent, change: FileChange) -> None:
    """Make the change to `content`, its size included."""
    if change.kind == "write":
        content.write(change.offset, change.data)
    elif change.kind == "punch":
        content.clear(change.offset, change.length)
    else:
        if change.kind == "truncate":
            content.cut(change.length)
        content.grow(change.length)


def draw_outcome(random: Random) -> Outcome:
    outcomes: tuple[Outcome, ...] = ("kept", "lost", "torn")
    return random.choice(outcomes)


def survive(content: SimContent, change: FileChange, random: Random, outcome: Outcome) -> Outcome:
    """Apply to durable `content` what is left of the change; returns what happened to it."""
    if outcome == "torn" and (change.kind != "write" or not change.length):
        outcome = random.choice(("kept", "lost"))
    if outcome == "kept":
        apply(content, change)
    elif outcome == "torn":
        tear(content, change, random)
    return outcome


def tear(content: SimContent, change: FileChange, random: Random) -> None:
    """Write some of the sectors: a prefix, a suffix or any of them, on the seed.

    The size may have become durable although the sectors at the end did not: they are zeros then.
    """
    end = change.offset + change.length
    second = (change.offset // SECTOR_BYTES + 1) * SECTOR_BYTES
    starts = [change.offset, *range(second, end, SECTOR_BYTES)]
    cut = random.randrange(len(starts) + 1)
    shape = random.randrange(3)
    for index, start in enumerate(starts):
        kept = (index < cut, index >= cut, random.random() < 0.5)[shape]
        if not kept:
            continue
        stop = starts[index + 1] if index + 1 < len(starts) else end
        data = change.data[start - change.offset : stop - change.offset]
        apply(content, FileChange(change.number, "write", start, len(data), data))
    if random.random() < 0.25:
        apply(content, FileChange(change.number, "grow", 0, end))
