"""A store's state under a lease, read from the store's files, by whichever process has the lease.

- Should the lease have ended, and the place of a block been used again, that is an error and never
  another block (SF1).
- Memory holds the state's document, a page of records, and a block.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from quire.arguments import Bytes
from quire.engine.checkpoints.snapshot import tail_of
from quire.engine.layout import Layout
from quire.engine.pages.record_page import unpack
from quire.engine.queues.prepared_transactions import ref_of
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import Checkpoint, decode
from quire.engine.records.local_tail import shared
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.state.durable_state import PageEntry
from quire.engine.state.fold import prepared_in
from quire.env import Env
from quire.errors import PositionLost, QuireError, StoreCorrupt
from quire.interface.store import Store
from quire.intervals import IntervalSet

from .format import PREPARED_QUEUE
from .limits import BASE_LEASE_SECONDS, BASE_RENEW_SECONDS
from .store_files import StoreFileReader


class LeasedStore:
    """The state of a store now, until `close`. For one thread."""

    def __init__(self, store: Store, env: Env) -> None:
        self._store = store
        self._env = env
        self._renewed = env.monotonic()
        self.lease = store.integration.lease_state(BASE_LEASE_SECONDS)
        self.image: Checkpoint = decode(self.lease.image, f"the state of {store.path}")
        document = self.image.document
        self._page_size = int(document["page_size"])
        self._files = StoreFileReader(
            env, Layout(store.path), self.image.store_id, int(document["segment_bytes"])
        )
        self._held = [a2b_base64(text) for text in document.get("held", ())]

    def close(self) -> None:
        """End the lease, which ends by itself where its owner cannot be asked."""
        self._files.close()
        with suppress(QuireError):
            self._store.integration.end_lease(self.lease.lease_id)

    def renew(self, *, now: bool = False) -> None:
        """Renew the lease, if it is time to, or `now`. Raises PositionLost if it has ended."""
        seconds = self._env.monotonic()
        if now or seconds - self._renewed > BASE_RENEW_SECONDS:
            try:
                self._store.integration.renew_lease(self.lease.lease_id, BASE_LEASE_SECONDS)
            except PositionLost:
                raise PositionLost(
                    f"the lease on the state of {self._store.path} has ended, as its owner did, or "
                    "as nothing could be written to the archive for too long: make the backup anew"
                ) from None
            self._renewed = seconds

    @property
    def payload_bytes(self) -> int:
        """The bytes of all that waits, as far as queues count them."""
        return sum(int(entry["used"]) for entry in self.image.document["queues"])

    @property
    def ltds_ids(self) -> list[int]:
        """The files of large transactions that it needs."""
        return [int(name, 16) for name in self.image.document["ltds"]]

    def prepared(self) -> list[tuple[str, int]]:
        """Return the shared parts of prepared transactions' records, each with its block count."""
        return [
            (
                b2a_base64(shared(record), newline=False).decode(),
                sum(part.kind == format.DATA for part in decoded.parts),
            )
            for record, decoded in zip(self._held, self._prepared(), strict=True)
        ]

    def rows(self) -> Iterator[tuple[int, BlockRef]]:
        """Yield every record that is not released, behind its queue's number, queue after queue.

        First come the blocks of prepared transactions, as of queue `PREPARED_QUEUE`.
        """
        position = 0
        for record in self._prepared():
            for part in record.parts:
                if part.kind == format.DATA:
                    yield PREPARED_QUEUE, ref_of(part)._replace(position=position)
                    position += part.count
        for entry in self.image.document["queues"]:
            queue_id = int(entry["queue_id"])
            for ref in self._records(queue_id, entry):
                yield queue_id, ref

    def _prepared(self) -> Iterable[PrepareRecord]:
        return (prepared_in(memoryview(record), self.image.path) for record in self._held)

    def _records(self, queue_id: int, entry: dict[str, Any]) -> Iterator[BlockRef]:
        released = IntervalSet.from_list(self.image.runs(entry["released"]))
        for row in self.image.rows(entry["directory"], 4):
            page = PageEntry(*row)
            for ref in self._page(queue_id, page):
                if not released.covers(ref.position, ref.end):
                    yield ref
        yield from tail_of(self.image, entry)  # without those that are released

    def _page(self, queue_id: int, entry: PageEntry) -> Iterable[BlockRef]:
        file, offset = self._files.opened.at(entry.page * self._page_size, in_journal=False)
        where = f"{file.path} page {offset // self._page_size}"
        _, records = unpack(file.read(offset, self._page_size), queue_id, where)
        if (records[0].position, records[len(records) - 1].end) != entry[:2]:
            raise StoreCorrupt(f"{where}: not the records of queue {queue_id} that belong here")
        return records

    def block(self, ref: BlockRef) -> Bytes:
        """Return a block's bytes, verified (SF1). Raises StoreCorrupt."""
        known, in_journal = (ref.checksum, ref.count, ref.length), ref.kind == format.INLINE
        return self._files.block(ref.address, known, in_journal=in_journal)

    def trailer(self, ltds_id: int) -> int:
        """Return the checksum of the trailer of a large transaction's file. Raises StoreCorrupt."""
        return self._files.trailer(ltds_id)

    def file(self, ltds_id: int) -> Iterator[bytes]:
        """Yield the bytes of a large transaction's file; every block of it is verified before."""
        return self._files.file(ltds_id, between=self.renew)
