"""The salvage of prepared transactions that nobody has decided.

- One goes on being prepared, under its xid, if all of its blocks and files are whole: so whoever
  coordinates it can still commit it or roll it back.
- Of another one nothing is committed: it is rolled back, and what it had got is delivered again.
- What it has read goes with it only as far as those positions are known and not lost.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterator

from quire.arguments import Bytes
from quire.engine.queues.prepared_transactions import ref_of
from quire.engine.records import format
from quire.engine.records.commit_record import Part, Read
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.state.sections.kinds import pack_prepared
from quire.file_dump.source import UNREADABLE

from .damaged_store import DamagedStore
from .new_store import NewStore
from .report import PreparedSalvaged


class PreparedSalvage:
    """Copies the transactions that are prepared."""

    def __init__(self, damaged: DamagedStore, new: NewStore, ends: dict[int, int]) -> None:
        """`ends`: for each queue, where the positions end that are known."""
        self._damaged, self._new, self._ends = damaged, new, ends

    def run(self) -> Iterator[tuple[PreparedSalvaged, str]]:
        """Yield what became of each, and its record in base64 if it is kept."""
        for record in list(self._damaged.history.state.prepared.values()):
            kept = self._copied(record)
            text = "" if kept is None else b2a_base64(pack_prepared(kept), newline=False).decode()
            yield PreparedSalvaged(record.xid, kept is not None, record.messages), text

    def _copied(self, record: PrepareRecord) -> PrepareRecord | None:
        """Return the record with the new places of its blocks; None: a part of it is lost."""
        blocks: list[Bytes] = []
        files: list[Part] = []
        source = self._damaged.source
        try:
            for part in record.parts:
                if part.kind == format.LTDS:
                    files.append(part)
                else:
                    blocks.append(source.verified(ref_of(part))[1])
            for part in files:
                self._new.copy_file(part.address, part.count, part.checksum).close()
        except UNREADABLE:
            return None
        for part in files:
            self._new.hold_file(part.address, self._new.state.queues[part.queue_id].config.name)
        for part in record.parts:
            self._new.known[part.kind, part.address] = part.checksum
            self._new.charge(part.queue_id, part.charge)
        addresses = iter(self._new.builder.place(blocks))
        parts = [
            part if part.kind == format.LTDS else part._replace(address=next(addresses))
            for part in record.parts
        ]
        taken = list(self._known_reads(record.reads[: record.taken]))
        others = list(self._known_reads(record.reads[record.taken :]))
        return record._replace(parts=parts, reads=[*taken, *others], taken=len(taken))

    def _known_reads(self, reads: object) -> Iterator[Read]:
        """Yield the parts of what was read that are still there to be read."""
        assert isinstance(reads, (list, tuple))
        for read in reads:
            queue = self._new.state.queues.get(read.queue_id)
            subscription = queue and queue.subscriptions.get(read.subscription_id)
            end = min(read.end, self._ends.get(read.queue_id, 0))
            if subscription and read.start < end:
                for lo, hi in subscription.done.gaps(read.start, end):
                    yield read._replace(start=lo, end=hi)
