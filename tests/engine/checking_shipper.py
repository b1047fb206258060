"""A shipper that keeps nothing: it reads all that a real one would, and judges it.

`Archive` is what an archive knows, and `ship` one turn of its shipper: every record that is not in
the archive is read from the journal, with every block and file that it names, and then reported.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from quire.engine import EmbeddedStore as Store
from quire.engine.layout import Layout
from quire.engine.reading.direct_read import BlockFiles
from quire.engine.records import format
from quire.engine.records.commit_record import CommitRecord, Part
from quire.engine.state.fold import decode_record
from quire.env import Env
from quire.journal import KIND_GENERATION, Geometry, Record
from quire.journal.scan import Chain, Group
from quire.journal.segment import Directory
from quire.ltds import LtdsReader
from quire.reports.info import ShippingReport, ShippingState
from quire.rows.open_block import verified_block


@dataclass
class Archive:
    """How far an archive has come."""

    number: int = 0  # of the latest record in it
    place: int = 0
    base_number: int = 0
    blocks: int = 0  # that its shipper has read outside of the journal
    files: int = 0
    gaps: int = 0


def ship(env: Env, store: Store, archive: Archive, *, reports: bool = True) -> ShippingState | None:
    """Ship what there is; without `reports` the owner does not learn of it. None: it is off."""
    state = store.integration.ship()
    if not state.url:
        return None
    check_position(state, archive)
    read_all(env, store.path, state, archive)
    archive.number, archive.place = state.end_number, archive.place + 1
    if reports:
        if state.gap:
            archive.base_number = state.end_number
        state = store.integration.ship(
            ShippingReport(state.end_lsn, archive.number, archive.place, archive.base_number)
        )
    return state


def check_position(state: ShippingState, archive: Archive) -> None:
    """Nothing was let go of unshipped, or the owner says so."""
    if state.number > archive.number:
        assert state.gap, f"records {archive.number + 1} to {state.number} were never shipped"
        archive.number = state.number
        archive.gaps += 1
    assert state.lsn <= state.end_lsn
    assert archive.number <= state.end_number


def read_all(env: Env, path: str, state: ShippingState, archive: Archive) -> None:
    """Read every record from the shipped position on, and what those name that are new."""
    layout, number = Layout(path), state.number
    geometry = Geometry(state.store_id, state.segment_bytes, state.page_size)
    with closing(BlockFiles(env, layout, state.segment_bytes)) as files:
        for group in groups(Directory(env, layout.journal, geometry), state):
            for record in group.records():
                if record.kind == KIND_GENERATION:
                    continue
                number += 1
                if number > archive.number:
                    read_record(env, layout, files, state, record, archive)
    assert number == state.end_number, f"records up to {number}, not {state.end_number}"


def groups(directory: Directory, state: ShippingState) -> list[Group]:
    """Those from the shipped position up to the end of what may be shipped."""
    numbers = directory.segments()
    found = [g for g in Chain(directory, state.lsn, numbers) if g.header.lsn < state.end_lsn]
    if not found and state.lsn < state.end_lsn:  # the next one did not fit behind it
        later = (state.lsn // state.segment_bytes + 1) * state.segment_bytes
        found = [g for g in Chain(directory, later, numbers) if g.header.lsn < state.end_lsn]
    return found


def read_record(
    env: Env, layout: Layout, files: BlockFiles, state: ShippingState, record: Record,
    archive: Archive,
) -> None:  # fmt: skip
    """Read what a record names outside of itself."""
    body = decode_record(record, f"LSN {record.address:#x}")
    for part in body.parts if isinstance(body, CommitRecord) else ():
        if part.kind == format.DATA:
            read_block(files, part, f"block of the record at LSN {record.address:#x}")
            archive.blocks += 1
        elif part.kind == format.LTDS:
            with LtdsReader(env, layout.ltds, part.address, state.store_id) as reader:
                assert sum(block.count for block, _ in reader) == part.count
                assert reader.checksum == part.checksum
            archive.files += 1


def read_block(files: BlockFiles, part: Part, where: str) -> None:
    """Read a block on pages: it is the one that the record means."""
    file, offset = files.at(part.address, in_journal=False)
    block = verified_block(file.read_block(offset, part.length), where)
    assert block.checksum == part.checksum, f"{where}: another one is in its place"
