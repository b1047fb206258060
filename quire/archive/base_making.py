"""Making a base: the whole state of a running store, and all its messages, at one record number.

- BM1: the manifest comes last, after all that it names is durable. Whatever ends this before leaves
  objects that no manifest names, and the store as it was.
- BM2: the store's owner only says what there is, under a lease; the messages are read by this
  process. Commits, checkpoints and drops go on meanwhile.
- BM3: files of large transactions never change: one that the newest base has is not sent again.
- BM4: such a file stays as long as the newest base, or this one, is listed. A clean-up removes no
  file before it has removed all manifests that name it, and listed the others after that (BK2). So
  if the manifest of the base that was the newest one is still there once the own one is made,
  whoever removes it later finds the own one. If it is gone, a newer base was made meanwhile (BK1)
  and this one is not needed: it is taken back. One that is begun now has only those files to reuse
  that the newer base names, too.
- Memory holds the state's document, the records of a pack, and some blocks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

from xxhash import xxh3_64

from quire.archive.objects import (
    ObjectBytes,
    Objects,
    check_outside,
    create_own,
    open_objects,
)
from quire.engine.records import format as records
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import IntegerRuns, encode
from quire.env import Env, check_env
from quire.errors import (
    ArchiveFailed,
    InvalidArgument,
    ObjectNotFound,
    ResourceExhausted,
    StoreCorrupt,
)
from quire.interface.store import Store
from quire.interface.store_objects import StoreObject

from . import format
from .leased_store import LeasedStore
from .limits import PACK_BYTES, PACK_RECORDS, READ_BYTES
from .manifest import (
    BackupReport,
    Manifest,
    ReportProgress,
    StoredObject,
    check_store,
    info_of,
    manifests,
    sealed,
)
from .table import TableBuilder


def backup(
    store: Store,
    url: str | os.PathLike[str],
    *,
    report: ReportProgress | None = None,
    env: Env | None = None,
) -> BackupReport:
    """Back a store up into the archive at `url`, while it is in use.

    `store`: an open one, whether this process owns it or has joined it. A checkpoint is made first,
    if the disk has room for one. The backup is of one moment after that. `report` is called with
    the bytes that are done, and how many there are, nearly.

    Until it returns there is no such backup; what a failure leaves in the archive the next `keep`
    removes. Raises ArchiveFailed, ArchiveRefused for another store's archive, InvalidArgument for a
    place in the store's directory, DiskFull where the archive is a directory, StoreCorrupt for
    damage in the store, and PositionLost or ConnectionLost where the store's owner ends meanwhile.
    """
    machine = check_env(env)
    if not isinstance(store, StoreObject):
        raise InvalidArgument(
            f"{store!r:.100} cannot be backed up: give an open store; beside one for asyncio open "
            "it once more, in a thread"
        )
    with closing(open_objects(url, machine)) as objects:
        check_outside(objects, machine, store.path)
        with suppress(ResourceExhausted):
            store.admin.checkpoint()
        with closing(LeasedStore(store, machine)) as leased:
            check_store(objects, machine, leased.image.store_id)  # now that there is a state
            known = [each.manifest for each in manifests(objects) if each.manifest is not None]
            base = f"{leased.lease.number:016x}-{machine.random_u64():016x}"
            making = _BaseMaking(objects, leased, base, report or (lambda done, expected: None))
            try:
                return making.run(known[-1] if known else None)
            except StoreCorrupt:
                leased.renew(now=True)  # it raises if the lease has ended: others use the places
                raise


class _BaseMaking:
    """Makes one base."""

    def __init__(
        self, objects: Objects, leased: LeasedStore, base: str, report: ReportProgress
    ) -> None:
        self._objects = objects
        self._leased = leased
        self._base = base
        self._report = report
        self._sent = self._payload_bytes = 0
        self._expected = leased.payload_bytes

    def run(self, newest: Manifest | None) -> BackupReport:
        """Make it. `newest`: the base that was made last."""
        leased, lease = self._leased, self._leased.lease
        tables: list[StoredObject] = []
        packs: list[StoredObject] = []
        self._make_packs(tables, packs)
        files = self._make_files(newest)
        state_bytes = self._state()
        state = self._make(format.state_name(self._base), partial(iter, [state_bytes]))
        leased.renew(now=True)  # so all of it was under the lease
        manifest = Manifest(
            self._base, f"{leased.image.store_id:016x}", lease.number, lease.time_us,
            lease.state_hash, f"{lease.generation:016x}", self._payload_bytes,
            state, tables, packs, files, f"{_history_of(leased.image.document):016x}",
        )  # fmt: skip
        for stored in files:  # those that were not sent, too
            self._objects.size(stored.name)
        name = format.manifest_name(self._base)
        create_own(self._objects, name, sealed(manifest))
        if newest is not None and not self._is_listed(newest):
            self._objects.delete([name])
            raise ArchiveFailed(
                f"{self._objects.url}: a newer backup was made meanwhile, and older ones were "
                "removed with what this one was to share with them; repeat the operation"
            )
        return BackupReport(info_of(manifest), self._sent)

    def _is_listed(self, manifest: Manifest) -> bool:
        """Return True if a base is still there (BM4)."""
        try:
            self._objects.size(format.manifest_name(manifest.base))
        except ObjectNotFound:
            return False
        return True

    def _make_packs(self, tables: list[StoredObject], packs: list[StoredObject]) -> None:
        rows = self._leased.rows()
        while True:
            number = len(packs)
            table = TableBuilder(self._leased.image.store_id, number)
            blocks = list(self._rows_of_a_pack(rows, table))
            if not table.records:
                return
            name = format.pack_name(self._base, number)
            packs.append(self._make(name, partial(self._pack, blocks)))
            data = table.pack()
            tables.append(self._make(format.table_name(self._base, number), partial(iter, [data])))

    def _rows_of_a_pack(
        self, rows: Iterator[tuple[int, BlockRef]], table: TableBuilder
    ) -> Iterator[BlockRef]:
        """Yield the blocks of the next pack; all of its records go into the table."""
        end = 0
        for queue_id, ref in rows:
            self._leased.renew()
            if ref.kind == records.LTDS:
                table.add(queue_id, ref)
            else:
                table.add(queue_id, ref._replace(address=end, kind=records.DATA))
                end += ref.length
                yield ref
            if end >= PACK_BYTES or table.records == PACK_RECORDS:
                break
        self._payload_bytes += end

    def _pack(self, blocks: Iterable[BlockRef]) -> Iterator[ObjectBytes]:
        """Yield the bytes of a pack, some blocks at a time."""
        piece = bytearray()
        for ref in blocks:
            self._leased.renew()
            piece += self._leased.block(ref)
            if len(piece) >= READ_BYTES:
                yield piece
                piece = bytearray()
        if piece:
            yield piece

    def _make_files(self, newest: Manifest | None) -> list[StoredObject]:
        known = {} if newest is None else {stored.name: stored for stored in newest.files}
        files = []
        for ltds_id in self._leased.ltds_ids:
            name, trailer = format.file_name(ltds_id), f"{self._leased.trailer(ltds_id):016x}"
            stored = known.get(name)
            if stored is None or stored.trailer != trailer or not self._is_there(stored):
                stored = self._make(name, partial(self._leased.file, ltds_id), trailer)
            files.append(stored)
            self._payload_bytes += stored.bytes
        return files

    def _is_there(self, stored: StoredObject) -> bool:
        """Return True unless an object that a base names is missing, or of another size."""
        try:
            return self._objects.size(stored.name) == stored.bytes
        except ObjectNotFound:
            return False

    def _state(self) -> bytes:
        """Return the object of the state: what is of this machine is left out."""
        image = self._leased.image
        numbers = IntegerRuns()
        numbers.add(image.numbers)  # the document's own slices stay what they are
        left_out = {"restart_lsn", "held", "released", "unshipped"}
        document: dict[str, Any] = {
            name: value for name, value in image.document.items() if name not in left_out
        }
        document["queues"] = [
            {name: value for name, value in entry.items() if name not in ("directory", "tail")}
            for entry in image.document["queues"]
        ]
        prepared = self._leased.prepared()
        if prepared:
            document[format.PREPARED] = prepared
        return bytes(encode(image.store_id, 0, document, numbers))

    def _make(
        self, name: str, pieces: Callable[[], Iterable[ObjectBytes]], trailer: str = ""
    ) -> StoredObject:
        """Make an object; as the manifest names it. `pieces`: called anew for each try."""
        watched = _WatchedPieces(pieces, lambda size: self._advance(self._sent + size))
        self._objects.upload(name, watched)
        self._sent += watched.size
        return StoredObject(name, watched.size, watched.checksum, trailer)

    def _advance(self, done: int) -> None:
        self._report(done, max(self._expected, done))


def _history_of(document: dict[str, Any]) -> int:
    """Return the history of the continuous archive that the store has or had; 0: it had none."""
    for name, _, _, body in document["catalog"]:
        if name == format.CATALOG_ENTRY:
            return int(body["history"])
    return 0


class _WatchedPieces:
    """The pieces of an object, which may be gone through again; their size and checksum."""

    def __init__(
        self, pieces: Callable[[], Iterable[ObjectBytes]], advance: Callable[[int], None]
    ) -> None:
        self._pieces = pieces
        self._advance = advance
        self.size = 0
        self.checksum = ""

    def __iter__(self) -> Iterator[ObjectBytes]:
        digest, size = xxh3_64(), 0
        for piece in self._pieces():
            digest.update(piece)
            size += len(piece)
            yield piece
            self._advance(size)
        self.size, self.checksum = size, digest.hexdigest()
