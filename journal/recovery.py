"""Opening a journal that exists: hand its records over, judge its end, make it safe to go on.

Invariants:

V1  Nothing is written before the chain was read, its end judged (C2) and the report given.
V2  Nothing is built on what may be in memory only. The last group may be whole in the page cache
    and not on the disk: the process died before its sync, or the sync failed, and then a later one
    proves nothing. So it is written again, byte for byte, and synced. A segment that was made ready
    holds no group; its name may not be durable for the same reasons, so that it becomes a spare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from quire.env import Env
from quire.errors import InvalidArgument, StoreCorrupt

from .format import KIND_GENERATION, Geometry
from .scan import (
    Chain,
    RecoveryReport,
    check_contiguous,
    check_end,
    describe_end,
    place_text,
    search_groups,
)
from .segment import SPARE_SUFFIX, list_segments, read_header, segment_path

Apply = Callable[[int, int, int, memoryview], None]
"""kind, sequence, address of the record's header, body. The body may be kept; it holds on to as
much as 1 MiB of what was read, or to its whole group if that is larger."""
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
    _settle_last_group(env, directory, geometry, chain, direct=direct)
    _retire_ready(env, directory, [number for number in numbers if number > current])
    return Recovered(
        [number for number in numbers if number <= current],
        current,
        chain.end_lsn,
        chain.last_lsn,
        chain.generation,
    )


def remove_unused(env: Env, directory: str) -> None:
    """Remove what an unfinished creation left; InvalidArgument if records were written."""
    numbers = list_segments(env, directory)
    for number in numbers:
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
    for number in numbers:
        env.remove(segment_path(directory, number))


def _apply_chain(chain: Chain, apply: Apply) -> int:
    """Hand the caller's records over; their number."""
    records = 0
    for group in chain:
        for record in group.records():
            if record.kind != KIND_GENERATION:
                apply(record.kind, record.sequence, record.address, record.body)
                records += 1
    return records


def _settle_last_group(
    env: Env, directory: str, geometry: Geometry, chain: Chain, *, direct: bool
) -> None:
    """Make the last group durable for certain (V2)."""
    number, end = divmod(chain.end_lsn - 1, geometry.segment_bytes)
    path = segment_path(directory, number)
    if direct:
        probe = env.open_file(path, direct=True)
        direct = probe.direct  # then its write has put it on the disk, or it is not there
        probe.close()
    file = env.open_file(path)
    try:
        if chain.groups and not direct:
            offset = chain.last_lsn % geometry.segment_bytes
            file.write(offset, file.read(offset, end + 1 - offset))
        file.sync()
    finally:
        file.close()
    env.sync_directory(directory)


def _retire_ready(env: Env, directory: str, ready: list[int]) -> None:
    # From the newest down, each durable before the next: a crash leaves no gap in the numbers.
    for number in reversed(ready):
        env.rename(segment_path(directory, number), segment_path(directory, number, SPARE_SUFFIX))
        env.sync_directory(directory)
