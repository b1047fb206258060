"""Reading a whole journal without owning it, for `verify` and for dumps: damage is a finding.

Invariants:

JD1  Nothing is written, and no damage raises: every valid group of every chain is handed out, and
    every place where a chain breaks is named by one finding.
JD2  What was never acknowledged is no damage: a torn tail is a finding with `damage` False, a clean
    end is none. Which is which is told as a recovery tells it (JS2).
JD3  Beside a writer: a place is looked at again before it counts as broken, since its group may
    have been written between two looks; a segment that is recycled meanwhile is one finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from quire.env import Env
from quire.errors import InvalidArgument, StoreCorrupt, StoreVersion

from .format import Geometry, check_geometry
from .scan import Chain, Group, Tail, describe_end, search_groups
from .segment import SegmentReader, list_segments, read_header, segment_path


@dataclass(frozen=True)
class Finding:
    """Something about a place of the journal that its reader should know."""

    file: str
    offset: int  # in the file
    lsn: int
    damage: bool  # False: a tail that was never acknowledged
    message: str


class _Place(NamedTuple):
    """What all parts of one scan share."""

    env: Env
    directory: str
    geometry: Geometry

    def finding(self, lsn: int, message: str, *, damage: bool = True) -> Finding:
        number, offset = divmod(lsn, self.geometry.segment_bytes)
        return Finding(segment_path(self.directory, number), offset, lsn, damage, message)


def scan(
    env: Env,
    directory: str,
    geometry: Geometry,
    *,
    restart_lsn: int = 0,
    durable_lsn: int = 0,
    until_lsn: int | None = None,
) -> Iterator[Group | Finding]:
    """Every group, from the oldest segment on, and what is wrong between and after them.

    `restart_lsn`: a segment missing from there on is damage; below only pinned segments remain.
    `durable_lsn`: the end must not lie before it. `until_lsn`: stop there, the end being known (for
    a scan beside a writer, whose group in the making would look like a torn tail).
    """
    place = _Place(env, directory, geometry)
    segment_bytes = geometry.segment_bytes
    numbers = [
        number
        for number in list_segments(env, directory)
        if until_lsn is None or number * segment_bytes < until_lsn
    ]
    bad = []
    for number in numbers:
        fault = _segment_fault(place, number)
        if fault is not None:
            bad.append(number)
            yield place.finding(number * segment_bytes, fault)
    first = restart_lsn // segment_bytes
    for number, missing in _gaps(numbers, first):
        text = "the segment is missing" if missing == 1 else f"{missing} segments are missing"
        yield place.finding(number * segment_bytes, text)
    least_end = durable_lsn if until_lsn is None else until_lsn
    runs = _runs([number for number in numbers if number not in bad])
    for index, run in enumerate(runs):
        is_last = index == len(runs) - 1
        yield from _scan_run(place, run, until_lsn, least_end if is_last else None)


def geometry_of(env: Env, directory: str) -> Geometry:
    """The geometry that the journal's oldest readable segment header states.

    Raises StoreCorrupt if there is none, StoreVersion if all are of another format version.
    """
    version: StoreVersion | None = None
    for number in list_segments(env, directory):
        try:
            file = env.open_file(segment_path(directory, number), read_only=True)
            try:
                header = read_header(file)
            finally:
                file.close()
            geometry = Geometry(header.store_id, header.segment_bytes, header.page_size)
            check_geometry(geometry)
        except StoreVersion as error:
            version = error
        except (StoreCorrupt, InvalidArgument, OSError):
            continue
        else:
            return geometry
    if version is not None:
        raise version
    raise StoreCorrupt(f"{directory}: no segment has a valid header; restore it from a copy")


def _segment_fault(place: _Place, number: int) -> str | None:
    try:
        reader = SegmentReader(place.env, place.directory, number)
        try:
            reader.check(place.geometry)
        finally:
            reader.close()
    except (StoreCorrupt, StoreVersion, OSError) as error:
        return str(error)
    return None


def _runs(numbers: list[int]) -> list[list[int]]:
    """Ascending numbers, cut where one is missing."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _gaps(numbers: list[int], first: int) -> Iterator[tuple[int, int]]:
    """Where a number from `first` on is missing, and how many with it; `first` must be there."""
    expected = first
    for number in numbers:
        if number > expected:
            yield expected, number - expected
        expected = max(expected, number + 1)
    if expected == first:
        yield first, 1


def _scan_run(
    place: _Place, run: list[int], until_lsn: int | None, least_end: int | None
) -> Iterator[Group | Finding]:
    """The groups of contiguous segments; after a break, from the next valid group on.

    `least_end` is None unless the journal ends in this run.
    """
    segment_bytes = place.geometry.segment_bytes
    start = run[0] * segment_bytes
    told = ""
    while True:
        chain = Chain(place.env, place.directory, place.geometry, start, set(run))
        try:
            for group in chain:
                if until_lsn is not None and group.header.lsn >= until_lsn:
                    return
                yield group
                fault = _records_fault(group)
                if fault is not None:
                    yield place.finding(group.header.lsn, fault)
            later = _later_group(place, chain, run, until_lsn)
            is_end = later is None and least_end is not None and until_lsn is None
            last = chain.damaged() if is_end else None
            appeared = None if later is last is None else _appeared(place, chain, run)
            if appeared is not None:
                start = appeared
                continue
            if later is None:
                if least_end is not None:
                    yield from _end_findings(place, chain, least_end, last)
                return
            text = f"no valid group here, but a later one at LSN {later:#x}"
            yield place.finding(_broken_lsn(chain), text)
            start = later
        except (StoreCorrupt, StoreVersion, OSError) as error:
            if str(error) != told:
                told = str(error)
                yield place.finding(chain.end_lsn, told)
            start = (chain.end_lsn // segment_bytes + 1) * segment_bytes
            if start // segment_bytes not in run:
                return
        finally:
            chain.close()


def _later_group(place: _Place, chain: Chain, run: list[int], until_lsn: int | None) -> int | None:
    """The LSN of the first valid group after the chain's end that proves damage, if any."""
    for group in search_groups(place.env, place.directory, place.geometry, run, chain.end_lsn):
        if until_lsn is not None and group.header.lsn >= until_lsn:
            return None
        if chain.shows_damage(group):
            return group.header.lsn
    return None


def _appeared(place: _Place, chain: Chain, run: list[int]) -> int | None:
    """The LSN of the chain's next group, if it was written since the chain looked for it (JD3)."""
    again = Chain(place.env, place.directory, place.geometry, chain.end_lsn, set(run))
    try:
        for lsn in chain.places():
            group = again.whole_group_at(lsn)
            if group is not None and chain.admits(group.header):
                return lsn
    finally:
        again.close()
    return None


def _end_findings(
    place: _Place, chain: Chain, least_end: int, last: int | None
) -> Iterator[Finding]:
    """`last`: where the last group is damaged, if it is (`torn_or_damaged`)."""
    if chain.end_lsn < least_end:
        text = f"the journal ends here, but it was durable up to LSN {least_end:#x}"
        yield place.finding(_broken_lsn(chain), text)
        return
    if last is not None:
        yield place.finding(last, "the last group was written whole and is damaged")
        return
    end = describe_end(place.directory, chain, place.geometry, 0)
    if end.tail is Tail.TORN:
        text = f"a torn group of {end.dropped_bytes} bytes, which was never acknowledged"
        yield Finding(end.tail_file, end.tail_offset, chain.end_lsn, damage=False, message=text)


def _broken_lsn(chain: Chain) -> int:
    lsn, _ = chain.claim()
    chain.close()
    return lsn


def _records_fault(group: Group) -> str | None:
    try:
        for _ in group.records():
            pass
    except StoreCorrupt as error:
        return str(error)
    return None
