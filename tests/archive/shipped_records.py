"""Records of a store as they are shipped: shared parts with their attachments, and their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from quire.engine import EmbeddedStore as Store
from quire.engine.layout import Layout
from quire.engine.records import format
from quire.engine.records.checkpoint_file import list_checkpoints, read_checkpoint
from quire.engine.records.commit_record import CommitRecord
from quire.engine.records.local_tail import shared
from quire.engine.state.fold import decode_record
from quire.env import Env
from quire.journal import KIND_GENERATION, RECORD_HEADER, Geometry, JournalFinding, scan
from quire.journal.format import RECORD_HEADER_BYTES
from quire.ltds import path_of


class Shipped(NamedTuple):
    """A record as another machine gets it."""

    number: int
    time_us: int
    record: bytes
    attachment: bytes


class Shipper:
    """Collects a store's records as they are shipped. What is released stays until then."""

    def __init__(self, env: Env, store: Store, after: int) -> None:
        self._env = env
        self._store = store
        self.records: list[Shipped] = []
        self._number = after
        self._places = store._opened.places
        self._places.withhold()
        self._places.sweep = lambda *, sliced=False: 0  # type: ignore[method-assign]

    def ship(self) -> None:
        """Take the records that are there; then what they have released goes."""
        more = [*_shipped_after(self._env, self._store, self._number)]
        self.records += more
        self._number += len(more)
        assert [each.number for each in self.records[-1:]] == [self._number][: len(self.records)]
        self._places.hand_back()
        self._places.withhold()

    def look(self) -> tuple[Any, ...]:
        """Ship, and return the store's number, the hash of its state, and its contents' digest."""
        self.ship()
        self._places.hand_back()
        try:
            report = self._store.admin.verify(contents=True)
            assert report.ok, report.findings
        finally:
            self._places.withhold()
        return tuple(report.checked[name] for name in ("number", "state_hash", "contents"))


def _shipped_after(env: Env, store: Store, after: int) -> Iterator[Shipped]:
    """The records after that number. No checkpoint was made since, and nothing released is gone."""
    opened = store._opened
    settings, layout = opened.settings, opened.layout
    geometry = Geometry(opened.store_id, settings["segment_bytes"], settings["page_size"])
    checkpoint = read_checkpoint(
        env, layout.checkpoints, list_checkpoints(env, layout.checkpoints)[-1]
    )
    number, restart_lsn = checkpoint.document["number"], checkpoint.document["restart_lsn"]
    time_us = 0
    for group in scan(env, layout.journal, geometry, restart_lsn=restart_lsn):
        assert not isinstance(group, JournalFinding), group
        for record in group.records():
            if record.kind == KIND_GENERATION or record.address < checkpoint.lsn:
                continue
            number += 1
            length = RECORD_HEADER_BYTES + len(record.body)
            header = RECORD_HEADER.pack(length, record.kind, record.flags, record.sequence)
            decoded = decode_record(record, "here")
            attachment = b""
            if isinstance(decoded, CommitRecord):
                time_us = max(time_us, decoded.time_us)
                for part in decoded.parts:
                    if part.kind == format.DATA:
                        block = bytes(opened.places.data.read(part.address, part.length))
                        attachment += block + bytes(-len(block) & 7)
            if number > after:
                yield Shipped(number, time_us, shared(header + record.body), attachment)


def copy_file(env: Env, source: Layout, target: Layout, ltds_id: int) -> int:
    """Copy a large transaction's file, if it is not there; its bytes."""
    path = path_of(target.ltds, ltds_id)
    if env.exists(path):
        return 0
    with closing(env.open_file(path_of(source.ltds, ltds_id), read_only=True)) as file:
        data = file.read(0, file.size())
    with closing(env.open_file(path, exclusive=True)) as file:
        file.write(0, data)
        file.sync()
    return len(data)
