"""Opening a journal that exists: hand its records over, judge its end, make it safe to go on.

Invariants:

JV1  Nothing is written before the chain was read, its end judged (JS2) and the report given.
JV2  Nothing is built on what may be in memory only. What a failed write or sync left reads back
    until the power fails, and may be gone then, whatever was synced later (E3); a process that died
    leaves the same. Every group but the last one is durable: the next one is written only when its
    sync has returned, or when this module had written it again; or the next one says that it is not
    (`unsynced`). So the last one, and those that it says were not synced, are written again, byte
    for byte as they were verified, and synced, before anything else.
JV3  The same for names. That of a segment with groups was durable before its first one (JG1). A
    segment that was made ready holds none: it becomes a spare, and so is the first one made again
    if it holds none. A spare gets another name, durably, before it is used and before any segment
    is retired, so that no earlier name of the file comes back: one that leaves a gap in the
    numbers, or one that its new header does not belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from quire.env import Env, File
from quire.errors import InvalidArgument, StoreCorrupt

from .format import KIND_GENERATION, Geometry, Record, round_up
from .scan import (
    Chain,
    RecoveryReport,
    check_contiguous,
    check_end,
    describe_end,
    place_text,
    search_groups,
)
from .segment import (
    SPARE_NUMBERS,
    SPARE_SUFFIX,
    SUFFIXES,
    Spare,
    capacity_of,
    list_segments,
    make_segment,
    read_header,
    segment_number,
    segment_path,
)

Apply = Callable[[Record], None]
"""Takes a record. Its body may be kept; it holds on to as much as 1 MiB of what was read, or to its
whole group if that is larger."""
Report = Callable[[RecoveryReport], None]


class Recovered(NamedTuple):
    """Where writing goes on. `segments` end with the current one."""

    segments: list[int]
    current: int
    end_lsn: int
    last_lsn: int
    generation: int


def recover_segments(
    env: Env,
    directory: str,
    geometry: Geometry,
    *,
    restart_lsn: int,
    durable_lsn: int,
    direct: bool,
    apply: Apply,
    report: Report,
) -> Recovered:
    """Read from `restart_lsn` on; raises StoreCorrupt or StoreVersion as `Journal.recover` says."""
    numbers = list_segments(env, directory)
    check_contiguous(directory, numbers, restart_lsn // geometry.segment_bytes)
    chain = Chain(env, directory, geometry, restart_lsn, set(numbers))
    records = _apply_chain(chain, apply)
    if restart_lsn and not chain.groups:
        where = place_text(directory, geometry, restart_lsn)
        raise StoreCorrupt(
            f"{where}: no valid group at the restart LSN {restart_lsn:#x}; restore the file from a"
            " copy"
        )
    check_end(env, directory, chain, geometry, numbers, durable_lsn)
    report(describe_end(directory, chain, geometry, records))
    current = (chain.end_lsn - 1) // geometry.segment_bytes
    if chain.groups:
        _settle_last_groups(env, directory, geometry, chain, direct=direct)
    _rename_spares(env, directory)
    _retire_ready(env, directory, [number for number in numbers if number > current])
    if not chain.groups:
        (path,) = _retire_ready(env, directory, [current])
        spare = Spare(capacity_of(env, path, geometry), path)
        make_segment(env, directory, geometry, current, spare, wanted=0, need=0, direct=direct)
    return Recovered(
        [number for number in numbers if number <= current],
        current,
        chain.end_lsn,
        chain.last_lsn,
        chain.generation,
    )


def remove_unused(env: Env, directory: str) -> None:
    """Remove what an unfinished creation left; InvalidArgument if records were written.

    The directory goes too, if it is empty then: a failed sync may have left its name uncertain.
    """
    if not env.exists(directory):
        return
    for number in list_segments(env, directory):
        file = env.open_file(segment_path(directory, number), read_only=True)
        try:
            header = read_header(file)
        finally:
            file.close()
        geometry = Geometry(header.store_id, header.segment_bytes, header.page_size)
        for group in search_groups(env, directory, geometry, [number], header.base_lsn):
            if any(record.kind != KIND_GENERATION for record in group.records()):
                raise InvalidArgument(
                    f"{directory} holds a journal with records already; open it, or choose another"
                    " place"
                )
    for name in env.list_directory(directory):
        if any(segment_number(name, suffix) is not None for suffix in SUFFIXES):
            env.remove(f"{directory}/{name}")
    if not env.list_directory(directory):
        env.remove(directory)


def _apply_chain(chain: Chain, apply: Apply) -> int:
    """Hand the caller's records over; their number."""
    records = 0
    for group in chain:
        for record in group.records():
            if record.kind != KIND_GENERATION:
                apply(record)
                records += 1
    return records


def _settle_last_groups(
    env: Env, directory: str, geometry: Geometry, chain: Chain, *, direct: bool
) -> None:
    """Write the last group again, and those before it that may not be durable (JV2).

    They are in one segment.
    """
    number = chain.last_lsn // geometry.segment_bytes
    beginning = number * geometry.segment_bytes + geometry.page_size
    first = max(chain.durable_lsn, chain.start_lsn, beginning)
    file = env.open_file(segment_path(directory, number), direct=direct)
    try:
        if first < chain.last_lsn:
            for group in Chain(env, directory, geometry, first, {number}):
                if group.header.lsn < chain.last_lsn:
                    _write_again(env, file, geometry, group.header.lsn, group.image)
        _write_again(env, file, geometry, chain.last_lsn, chain.last_image)
        file.sync()
    finally:
        file.close()


def _write_again(env: Env, file: File, geometry: Geometry, lsn: int, image: memoryview) -> None:
    pages = env.aligned_buffer(round_up(len(image), geometry.page_size))
    pages[: len(image)] = image
    pages[len(image) :] = bytes(len(pages) - len(image))
    file.write(lsn % geometry.segment_bytes, pages)


def _rename_spares(env: Env, directory: str) -> None:
    """Make the names of spares, and of all else that the process before left, durable (JV3)."""
    spares = _spares(env, directory)
    free = _free_spares(directory, spares)
    for number in sorted(spares):
        env.rename(segment_path(directory, number, SPARE_SUFFIX), next(free))
    env.sync_directory(directory)


def _retire_ready(env: Env, directory: str, ready: list[int]) -> list[str]:
    """The spares that they are then, by names that no segment will leave behind."""
    # From the newest down, each durable before the next: a crash leaves no gap in the numbers.
    free = _free_spares(directory, _spares(env, directory))
    paths = []
    for number in reversed(ready):
        paths.append(next(free))
        env.rename(segment_path(directory, number), paths[-1])
        env.sync_directory(directory)
    return paths


def _spares(env: Env, directory: str) -> set[int]:
    names = env.list_directory(directory)
    return {n for name in names if (n := segment_number(name, SPARE_SUFFIX)) is not None}


def _free_spares(directory: str, spares: Container[int]) -> Iterator[str]:
    return (
        segment_path(directory, number, SPARE_SUFFIX)
        for number in SPARE_NUMBERS
        if number not in spares
    )
