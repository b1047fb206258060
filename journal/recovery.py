"""Opening a journal that exists: hand its records over, judge its end, make it safe to go on.

Invariants:

Nothing is written before the chain was read, its end judged (JS2) and the report given.

JV2  Nothing is built on what may be in memory only. What a failed write or sync left reads back
    until the power fails, and may be gone then, whatever was synced later (E3); a process that died
    leaves the same. Every group but the last one is durable: the next one is written only when its
    sync has returned, or when this module had written it again; or the next one says that it is not
    (`unsynced`). So the last one, and those that it says were not synced, are written again, byte
    for byte as they were verified, and synced, before anything else.
JV3  Names are made durable in the same way. The name of a segment with groups was durable before
    its first group (JG1). A segment that was made ready holds none: it becomes a spare, and so is
    the first one made again if it holds none. A spare gets another name, durably, before it is used
    and before any segment is retired, so that no earlier name of the file comes back: one that
    leaves a gap in the numbers, or one that its new header does not belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from quire.env import Env, File
from quire.errors import InvalidArgument, StoreCorrupt

from .format import KIND_GENERATION, Record, round_up
from .scan import Chain, Group, RecoveryReport, search_groups
from .segment import (
    SPARE_SUFFIX,
    SUFFIXES,
    UNFINISHED_SUFFIX,
    Directory,
    Spare,
    capacity_of,
    geometry_in,
    list_segments,
    make_segment,
    make_spare,
    parent_of,
    segment_number,
    segment_path,
)
from .segments import first_capacity

Apply = Callable[[Record], None]
"""Takes a record. Its body may be kept; it holds on to as much as 1 MiB of what was read, or to its
whole group if that is larger."""
ReportDropped = Callable[[RecoveryReport], None]


class RecoveredJournal(NamedTuple):
    """The end of a recovered journal, where writing goes on."""

    segments: list[int]  # the last one is the current one
    end_lsn: int
    last_lsn: int = 0
    generation: int = 0


def recover_segments(
    directory: Directory, *, restart_lsn: int, durable_lsn: int, apply: Apply, report: ReportDropped
) -> RecoveredJournal:
    """Read from `restart_lsn` on; raises StoreCorrupt or StoreVersion as `Journal.recover` says."""
    numbers = directory.segments()
    segment_bytes = directory.geometry.segment_bytes
    _check_contiguous(directory, numbers, restart_lsn // segment_bytes)
    chain = Chain(directory, restart_lsn, numbers)
    records = _apply_chain(chain, apply)
    if restart_lsn and not chain.groups:
        raise StoreCorrupt(
            f"{directory.location(restart_lsn)}: no valid group at the restart LSN"
            f" {restart_lsn:#x}; restore the file from a copy"
        )
    with closing(chain):
        fault = chain.fault(chain.later(numbers), chain.damaged(), durable_lsn)
    if fault is not None:
        lsn, text = fault
        location = directory.location(lsn)
        raise StoreCorrupt(f"{location}: {text}: a group is damaged; restore the file from a copy")
    report(chain.report(records))
    current = (chain.end_lsn - 1) // segment_bytes
    if chain.last is not None:
        _settle_last_groups(directory, chain.last, chain.start_lsn)
    _rename_spares(directory)
    for number in sorted((number for number in numbers if number > current), reverse=True):
        # From the newest down, each durable before the next: a crash leaves no gap in the numbers.
        _retire(directory, number)
    if not chain.groups:
        path = _retire(directory, current)
        make_segment(directory, current, Spare(capacity_of(directory, path), path), 0, 0)
    own = [number for number in numbers if number <= current]
    return RecoveredJournal(own, chain.end_lsn, chain.last_lsn, chain.generation)


def _check_contiguous(directory: Directory, segments: Sequence[int], first: int) -> None:
    """Raise StoreCorrupt if a segment file is missing from `first` on."""
    last = max(segments, default=-1)
    for number in range(first, max(first, last) + 1):
        if number not in segments:
            later = ", although a later one exists" if last > number else ""
            raise StoreCorrupt(
                f"{directory.path_of(number)}: page 0, offset 0: the segment is missing{later};"
                " restore it from a copy"
            )


def remove_unused(env: Env, path: str) -> None:
    """Remove what an unfinished creation left; InvalidArgument if records were written.

    The directory goes too, if it is empty then: a failed sync may have left its name uncertain.
    """
    if not env.exists(path):
        return
    for number in list_segments(env, path):
        directory = Directory(env, path, geometry_in(env, segment_path(path, number)))
        for group in search_groups(directory, [number], number * directory.geometry.segment_bytes):
            if any(record.kind != KIND_GENERATION for record in group.records()):
                raise InvalidArgument(
                    f"{path} holds a journal with records already; open it, or choose another place"
                )
    for name in env.list_directory(path):
        if any(segment_number(name, suffix) is not None for suffix in SUFFIXES):
            env.remove(f"{path}/{name}")
    if not env.list_directory(path):
        env.remove(path)


def create_segments(directory: Directory) -> None:
    """Make the first segment; what a crashed creation left is replaced (J8).

    Raises InvalidArgument if records were written.
    """
    env, path = directory.env, directory.path
    remove_unused(env, path)
    env.make_directory(path)
    env.sync_directory(parent_of(path))
    unfinished = directory.path_of(0, UNFINISHED_SUFFIX)
    spare = make_spare(directory, unfinished, first_capacity(directory.geometry))
    make_segment(directory, 0, spare, 0, 0)


def _apply_chain(chain: Chain, apply: Apply) -> int:
    """Hand the caller's records over; their number."""
    records = 0
    for group in chain:
        for record in group.records():
            if record.kind != KIND_GENERATION:
                apply(record)
                records += 1
    return records


def _settle_last_groups(directory: Directory, last: Group, start_lsn: int) -> None:
    """Write the last group again, and those before it that may not be durable (JV2).

    They are in one segment.
    """
    env, geometry, last_lsn = directory.env, directory.geometry, last.header.lsn
    number = last_lsn // geometry.segment_bytes
    beginning = number * geometry.segment_bytes + geometry.page_size
    first = max(last_lsn - last.header.unsynced, start_lsn, beginning)
    with closing(env.open_file(directory.path_of(number), direct=directory.direct)) as file:
        if first < last_lsn:
            for group in Chain(directory, first, {number}):
                if group.header.lsn < last_lsn:
                    _write_again(directory, file, group.header.lsn, group.image)
        _write_again(directory, file, last_lsn, last.image)
        file.sync()


def _write_again(directory: Directory, file: File, lsn: int, image: memoryview) -> None:
    segment_bytes, page_size = directory.geometry[1:]
    pages = directory.env.aligned_buffer(round_up(len(image), page_size))
    pages[: len(image)] = image
    pages[len(image) :] = bytes(len(pages) - len(image))
    file.write(lsn % segment_bytes, pages)


def _rename_spares(directory: Directory) -> None:
    """Make the names of spares, and of all else that the process before left, durable (JV3)."""
    free = directory.free_spares()
    for number in list_segments(directory.env, directory.path, SPARE_SUFFIX):
        directory.env.rename(directory.path_of(number, SPARE_SUFFIX), next(free))
    directory.sync()


def _retire(directory: Directory, number: int) -> str:
    """Make a spare of a ready segment, durably; its name then."""
    path = next(directory.free_spares())
    directory.env.rename(directory.path_of(number), path)
    directory.sync()
    return path
