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
from contextlib import closing

from msgspec import Struct
from msgspec.structs import replace

from quire.env import Env
from quire.errors import InvalidArgument, StoreCorrupt, StoreVersion

from .format import Geometry, checked_geometry
from .scan import Chain, Group, Tail
from .segment import Directory, SegmentReader, geometry_in, list_segments, segment_path


class JournalFinding(Struct, frozen=True):
    """Something about a place of the journal that its reader should know."""

    file: str
    offset: int  # in the file
    lsn: int
    damage: bool  # False: a tail that was never acknowledged
    message: str
    is_passed: bool = False  # groups of the file are read nevertheless


def scan(
    env: Env,
    directory: str,
    geometry: Geometry,
    *,
    restart_lsn: int = 0,
    durable_lsn: int = 0,
    until_lsn: int | None = None,
    is_lenient: bool = False,
) -> Iterator[Group | JournalFinding]:
    """Every group, from the oldest segment on, and what is wrong between and after them.

    `restart_lsn`: a segment missing from there on is damage; below only pinned segments remain.
    `durable_lsn`: the end must not lie before it. `until_lsn`: stop there, the end being known (for
    a scan beside a writer, whose group in the making would look like a torn tail). `is_lenient`:
    also those of segments with a damaged header, or of another length.
    """
    place = Directory(env, directory, geometry, is_lenient=is_lenient)
    segment_bytes = geometry.segment_bytes
    numbers = [
        number
        for number in place.segments()
        if until_lsn is None or number * segment_bytes < until_lsn
    ]
    bad = []
    for number in numbers:
        fault = _segment_fault(place, number)
        if fault is not None:
            is_passed = is_lenient and not isinstance(fault, (StoreVersion, OSError))
            if not is_passed:
                bad.append(number)
            finding = _finding(place, number * segment_bytes, str(fault))
            yield replace(finding, is_passed=is_passed)
    first = restart_lsn // segment_bytes
    for number, missing in _gaps(numbers, first):
        text = "the segment is missing" if missing == 1 else f"{missing} segments are missing"
        yield _finding(place, number * segment_bytes, text)
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
            return checked_geometry(*geometry_in(env, segment_path(directory, number)))
        except StoreVersion as error:
            version = error
        except (StoreCorrupt, InvalidArgument, OSError):
            continue
    if version is not None:
        raise version
    raise StoreCorrupt(f"{directory}: no segment has a valid header; restore it from a copy")


def _finding(place: Directory, lsn: int, message: str) -> JournalFinding:
    number, offset = divmod(lsn, place.geometry.segment_bytes)
    return JournalFinding(place.path_of(number), offset, lsn, damage=True, message=message)


def _segment_fault(place: Directory, number: int) -> Exception | None:
    try:
        SegmentReader(place._replace(is_lenient=False), number).close()
    except (StoreCorrupt, StoreVersion, OSError) as error:
        return error
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
    """Yield each number that is missing from `first` on, with the length of the gap; `first` must
    be there.
    """
    expected = first
    for number in numbers:
        if number > expected:
            yield expected, number - expected
        expected = max(expected, number + 1)
    if expected == first:
        yield first, 1


def _scan_run(
    place: Directory, run: list[int], until_lsn: int | None, least_end: int | None
) -> Iterator[Group | JournalFinding]:
    """The groups of contiguous segments; after a break, from the next valid group on.

    `least_end` is None unless the journal ends in this run.
    """
    segment_bytes = place.geometry.segment_bytes
    start = run[0] * segment_bytes
    reported = ""
    while True:
        chain = Chain(place, start, run)
        try:
            for group in chain:
                if until_lsn is not None and group.header.lsn >= until_lsn:
                    return
                yield group
                fault = _records_fault(group)
                if fault is not None:
                    yield _finding(place, group.header.lsn, fault)
            later = chain.later(run, until_lsn)
            is_end = later is None and least_end is not None and until_lsn is None
            damaged = chain.damaged() if is_end else None
            appeared = None if later is damaged is None else _appeared(place, chain, run)
            if appeared is not None:
                start = appeared
                continue
            broken = chain.fault(later, damaged, least_end or 0)
            if broken is not None:
                yield _finding(place, *broken)
            elif least_end is not None:
                yield from _torn(chain)
            if later is None:
                return
            start = later
        except (StoreCorrupt, StoreVersion, OSError) as error:
            if str(error) != reported:
                reported = str(error)
                yield _finding(place, chain.end_lsn, reported)
            start = (chain.end_lsn // segment_bytes + 1) * segment_bytes
            if start // segment_bytes not in run:
                return
        finally:
            chain.close()


def _appeared(place: Directory, chain: Chain, run: list[int]) -> int | None:
    """The LSN of the chain's next group, if it was written since the chain looked for it (JD3)."""
    with closing(Chain(place, chain.end_lsn, run)) as again:
        for lsn in chain.places():
            group = again.whole_group_at(lsn)
            if group is not None and chain.admits(group.header):
                return lsn
    return None


def _torn(chain: Chain) -> Iterator[JournalFinding]:
    end = chain.report(0)
    if end.tail is Tail.TORN:
        text = f"a torn group of {end.dropped_bytes} bytes, which was never acknowledged"
        yield JournalFinding(
            end.tail_file, end.tail_offset, chain.end_lsn, damage=False, message=text
        )


def _records_fault(group: Group) -> str | None:
    try:
        for _ in group.records():
            pass
    except StoreCorrupt as error:
        return str(error)
    return None
