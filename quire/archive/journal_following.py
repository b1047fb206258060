"""Following a store's journal from a place on, by another process than its owner.

- JF1: every group from the place on, up to the durable end that the owner has named, comes once, in
  order, and verified; none behind that end. What is missing before it is an error, with its place:
  PositionLost where its segment was released, else StoreCorrupt.
- JF2: the numbers of records are counted as recovery counts them, and must come to what the owner
  says at the end.
- Memory holds a window of a segment, and a group.
"""

from __future__ import annotations

from collections.abc import Generator

from msgspec import Struct

from quire.engine.layout import Layout
from quire.env import Env
from quire.errors import PositionLost, StoreCorrupt
from quire.journal import (
    KIND_GENERATION,
    RECORD_HEADER,
    Chain,
    Directory,
    Geometry,
    Group,
    list_segments,
)


class FollowedGroup(Struct):
    """A group of the journal, and the number of the latest record in it or before."""

    group: Group
    number: int


class JournalFollowing:
    """Goes along the chain of groups, once. For one thread."""

    def __init__(self, env: Env, layout: Layout, geometry: Geometry, lsn: int, number: int) -> None:
        """Begin at the LSN where a group ends; `number`: of the latest record before it."""
        self._directory = Directory(env, layout.journal, geometry)
        self._segments = list_segments(env, layout.journal)
        self._chain = Chain(self._directory, lsn, self._segments)
        self._lsn = lsn
        self._number = number

    def groups(self, end_lsn: int, end_number: int) -> Generator[FollowedGroup]:
        """Yield the groups before an LSN, where the latest record has that number (JF1, JF2).

        Raises StoreCorrupt, PositionLost.
        """
        lsn, number = self._lsn, self._number
        generation = -1  # of the group before, once there is one
        try:
            if lsn < end_lsn:
                self._begin(end_lsn)
                for group in self._chain if self._chain.end_lsn < end_lsn else ():
                    header = group.header
                    if header.lsn >= end_lsn:  # it may not be durable
                        break
                    lsn = group.end_lsn
                    number += header.record_count
                    if header.generation != generation:
                        generation = header.generation
                        number -= own_records(group)
                    yield FollowedGroup(group, number)
                    if lsn >= end_lsn:
                        break
            if number < end_number:
                raise self._missing(end_lsn)
        finally:
            self._chain.close()
        if number > end_number:
            raise StoreCorrupt(
                f"{self._directory.location(lsn - 1)}: the journal has record {number} before LSN"
                f" {lsn:#x}, and its owner {end_number}: run verify"
            )

    def _begin(self, end_lsn: int) -> None:
        """Find the first group: at the place itself, or on page 1 of the next segment."""
        place = self._chain.end_lsn
        if place >= end_lsn or self._chain.whole_group_at(place) is not None:
            return
        _, segment_bytes, page_size = self._directory.geometry
        later = Chain(self._directory, (place // segment_bytes + 1) * segment_bytes, self._segments)
        found = later.whole_group_at(later.end_lsn) if later.end_lsn < end_lsn else None
        if found is not None:
            previous = found.header.previous_lsn
            before = self._chain.header_at(previous)  # None: its segment was released
            if previous >= place or (before is not None and before.end_lsn(page_size) != place):
                raise self._missing(end_lsn)
            self._chain.close()
            self._chain = later

    def _missing(self, end_lsn: int) -> StoreCorrupt | PositionLost:
        """Return the error for a group that is not where it has to be."""
        self._chain.close()
        lsn, _ = self._chain.claim()
        self._chain.close()
        path = self._directory.path_of(lsn // self._directory.geometry.segment_bytes)
        if not self._directory.env.exists(path):
            return PositionLost(
                f"{path}: journal address {lsn:#x} was released before it was shipped; make a new"
                " base, from which restores go on"
            )
        return StoreCorrupt(
            f"{self._directory.location(lsn)}: no valid group here (LSN {lsn:#x}), although the"
            f" journal is durable up to LSN {end_lsn:#x}: run verify, and restore the file from a"
            " copy"
        )


def own_records(group: Group) -> int:
    """Return how many records of a group are the journal's own, which have no number: 1 or 0.

    The first record of a generation is; others have none.
    """
    return int(RECORD_HEADER.unpack_from(group.body)[1] == KIND_GENERATION)
