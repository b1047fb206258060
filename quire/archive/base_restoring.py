"""Restoring a store: it is built of a base and of the records behind that, beside its path.

Once it is verified it gets its name.

- BR1: until all of it is durable and verified there is nothing at the path. What was broken off is
  at `PATH.restoring-<random>`, and the next restore to that path removes it. A restore holds the
  lock of what it builds, so no other one removes that.
- BR2: every block and file is verified as it is copied, and the store as a whole at the end: what
  its records say, all that they name, and the hash of the state, which at the base's number is
  that of the store which was backed up.
- BR3: it has no archive: the entry of its catalog is removed by a record of its own. So it never
  writes into the archive of the store that it is of, whose later records are others.
- BR4: where a base is found damaged, an older one is taken from which entries go on to the point.
- Memory holds the state's document, a table, the reads under way, and some blocks.
"""

from __future__ import annotations

import os
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final

from quire.archive.objects import check_outside, open_objects
from quire.engine.built_beside import BuiltStore, built_beside
from quire.engine.checkpoints.store_building import StoreBuilder
from quire.engine.layout import Layout
from quire.engine.records import format as records
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import Checkpoint, decode
from quire.engine.records.local_tail import placed
from quire.env import Env, check_env
from quire.errors import ArchiveCorrupt, StoreCorrupt
from quire.loggers import log_warning, logger
from quire.moments import Moment
from quire.rows.open_block import open_block

from . import format, table
from .choosing import RestorePoint, choose
from .limits import OPENINGS_PASSED
from .manifest import Manifest, ReportProgress, RestoreReport, StoredObject
from .object_reading import ByteStream, ObjectReading, contradictions, damaged, reading
from .record_restoring import RecordRestoring, check_file, check_state, write_file

_log: Final = logger("quire.archive")

RESTORING: Final = ".restoring-"


def restore(
    url: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    number: int | None = None,
    time: Moment | None = None,
    report: ReportProgress | None = None,
    env: Env | None = None,
) -> RestoreReport:
    """Make a store at `path` of the archive at `url`; it says as of which record.

    As of the latest record that is there; of the record with this `number`; or of the latest one
    that was committed up to this `time`. Where no records were archived continuously: of the newest
    backup that is not after that. There must be nothing at the path, or an empty directory. The
    store has the id of the one that was backed up: docs/archive.md says what that means.

    Either the whole store is there when it returns, verified, or nothing is. Raises BackupNotFound
    for a point that is not covered, ArchiveCorrupt, ArchiveFailed, InvalidArgument, StoreLocked
    where another restore to that path is under way, DiskFull, StoreFailed.
    """
    machine = check_env(env)
    named = Layout(os.fspath(path) if isinstance(path, os.PathLike) else path)
    target = Layout(machine.real_path(named.path))
    with closing(open_objects(url, machine)) as objects:
        check_outside(objects, machine, target.path)
        with reading(objects) as read:
            points = choose(objects, read, number, time)
            progress = report or (lambda done, expected: None)
            *others, last = points  # (BR4)
            for point in others:
                try:
                    return _restore(machine, target, point, read, progress)
                except ArchiveCorrupt as error:
                    log_warning(_log, "%s; an older backup is taken", error)
            return _restore(machine, target, last, read, progress)


def _restore(
    env: Env,
    target: Layout,
    point: RestorePoint,
    read: ObjectReading,
    report: ReportProgress,
) -> RestoreReport:
    manifest = point.manifest
    with built_beside(env, target, RESTORING, "restore") as built:
        base = _BaseRestoring(built, point, read, report)
        base.run()
        records = RecordRestoring(built, point, read)
        if manifest.history_number:
            records.run(base.advance)
        with contradictions(manifest.state.name):
            state_hash = _verify(built, manifest, records.number)
        if manifest.history_number:
            records.forget_archive()
    return RestoreReport(point.info, records.number, records.time_us, state_hash)


def _verify(built: BuiltStore, manifest: Manifest, number: int) -> str:
    """Read all of the store (BR2), up to the record `number`. Returns the hash of its state."""
    report = built.verify()
    if not report.ok:
        raise ArchiveCorrupt(
            f"backup {manifest.base} gives a store that is damaged: {report.damage[0]}; restore "
            "another backup, and report this"
        )
    state_hash = str(report.checked["state_hash"])
    check_state(manifest, report.checked["number"], state_hash, number)
    return state_hash


def _placed(prepared: Iterable[tuple[str, int]], addresses: list[int]) -> Iterator[str]:
    """Yield the records of prepared transactions with the places of their blocks."""
    for text, count in prepared:
        own, addresses = addresses[:count], addresses[count:]
        yield b2a_base64(placed(a2b_base64(text), own, 0), newline=False).decode()


class _BaseRestoring:
    """Builds the store of one base."""

    def __init__(
        self, built: BuiltStore, point: RestorePoint, read: ObjectReading, report: ReportProgress
    ) -> None:
        self._store = built
        self._manifest = manifest = point.manifest
        self._reading = read
        self._report = report
        self._store_id = int(manifest.store_id, 16)
        self._done = 0
        self._expected = manifest.payload_bytes + sum(head.length for head in point.heads)

    def run(self) -> None:
        """Build it, durably but for its name."""
        image = self._image()
        prepared = image.document.pop(format.PREPARED, ())
        with contradictions(self._manifest.state.name):
            generation = int(self._manifest.generation, 16) + (OPENINGS_PASSED << 32)
            builder = StoreBuilder(*self._store, image, generation)
        with closing(builder):
            for stored in self._manifest.files:
                self._copy_file(stored)
            addresses = self._place_blocks(builder)
            with contradictions(self._manifest.state.name):
                builder.finish(_placed(prepared, addresses))

    def _image(self) -> Checkpoint:
        stored = self._manifest.state
        try:
            image = decode(self._reading.whole(stored), stored.name)
        except StoreCorrupt as error:
            raise damaged(stored.name, str(error)) from error
        if image.store_id != self._store_id:
            raise damaged(stored.name, "it is of another store")
        return image

    def _copy_file(self, stored: StoredObject) -> None:
        """Copy a large transaction's file, which is verified as an object and by its trailer."""
        ltds_id = int(stored.name.removeprefix(format.FILES), 16)
        pieces = (data for _, data in self._reading.pieces([stored]))
        write_file(self._store, ltds_id, pieces, self.advance)
        trailer = int(stored.trailer or "0", 16)
        check_file(self._store, ltds_id, self._store_id, trailer)

    def _place_blocks(self, builder: StoreBuilder) -> list[int]:
        """Copy all blocks; the addresses of those of prepared transactions."""
        manifest, addresses = self._manifest, list[int]()
        pairs = list(zip(manifest.tables, manifest.packs, strict=True))
        stream = ByteStream(self._reading.pieces(stored for pair in pairs for stored in pair))
        for number, (rows, pack) in enumerate(pairs):
            end = 0
            data = stream.take(rows.bytes)
            for queue_id, ref in table.rows(data, rows.name, self._store_id, number):
                if ref.kind == records.LTDS:
                    with contradictions(manifest.state.name):
                        builder.add_file(queue_id, ref)
                    continue
                block = self._block(stream.take(ref.length), ref, pack.name)
                end += len(block)
                with contradictions(manifest.state.name):
                    if queue_id == format.PREPARED_QUEUE:
                        addresses += builder.place([block])
                    else:
                        builder.add_block(queue_id, ref, block)
                self.advance(len(block))
            if end != pack.bytes:
                raise damaged(pack.name, "it is not as long as its records say")
        return addresses

    def _block(self, data: bytes, ref: BlockRef, name: str) -> bytes:
        where = f"{name}, offset {ref.address}"
        try:
            block = open_block(data, where)
        except StoreCorrupt as error:
            raise damaged(name, str(error)) from error
        if (block.checksum, block.count, block.length) != (ref.checksum, ref.count, ref.length):
            raise damaged(where, "another block is there")
        return data

    def advance(self, size: int) -> None:
        """Count bytes that are done."""
        self._done += size
        self._report(self._done, max(self._done, self._expected))
