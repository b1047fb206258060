"""The durable state as a dump knows it: the newest checkpoint, and the journal's records after it.

- DH1: nothing is changed on disk, and no contradiction ends the reading: it is a finding, and what
  cannot be known any more is marked as uncertain.
"""

from __future__ import annotations

import struct
from collections import Counter

from quire.dump_items import Finding, JournalItem, PreparedItem
from quire.engine.records.durable_state import DurableState
from quire.engine.records.fold import Fold
from quire.engine.records.prepared_record import DecisionRecord
from quire.errors import InvalidArgument, QueueNotFound, StoreVersion
from quire.journal import KIND_GENERATION, RECORD_HEADER_BYTES

from .log import Decoded, Log
from .queue_state import Beside, QueueState
from .saved import Saved
from .source import Source

_CONTRADICTIONS = (
    InvalidArgument, KeyError, TypeError, ValueError, OverflowError, struct.error
)  # fmt: skip


class History:
    """See the module."""

    def __init__(self, source: Source, saved: Saved | None) -> None:
        self.state = DurableState[QueueState]() if saved is None else saved.state
        self.findings: list[Finding] = []
        self.journal: JournalItem | None = None
        self._source = source
        self._fold = Fold(self.state, Beside(self._fault))
        self._since_lsn = 0 if saved is None else saved.item.lsn
        self._complete = saved is not None  # no queue's definition is missing so far
        self._damage: list[int] = []  # LSNs whose place in the order has not come yet
        self._lsn = 0  # of the record at hand

    # Looking

    def queue(self, name: str) -> QueueState:
        """By name, or by "#" and its id, where damage hides the name. Raises QueueNotFound."""
        queues = self.state.queues.values()
        for queue in queues:
            if name in (queue.name, f"#{queue.queue_id}"):
                return queue
        known = ", ".join(repr(queue.title) for queue in queues) or "none"
        raise QueueNotFound(f"there is no queue {name!r}: give one of {known}, or # and its id")

    def by_id(self, queue_id: int) -> QueueState:
        """Also one that is not known."""
        return self.state.queues.get(queue_id) or self._fold.lost_queue(queue_id)

    def title(self, queue_id: int) -> str:
        """Of a queue, also of one that is not known."""
        queue = self.state.queues.get(queue_id)
        return f"#{queue_id}" if queue is None else queue.title

    def prepared_item(self, xid: str) -> PreparedItem:
        """A transaction in doubt, as a summary has it."""
        record = self.state.prepared[xid]
        ids = sorted({part.queue_id for part in record.parts})
        titles = map(self.title, ids)
        messages = sum(part.count for part in record.parts)
        taken = sum(read.end - read.start for read in record.reads[: record.taken])
        return PreparedItem(xid, record.prepared_us, messages, tuple(titles), taken)

    # Reading

    def read(self, log: Log) -> None:
        """Take the whole journal."""
        kinds, size, groups, first_lsn, last_lsn = Counter[str](), 0, 0, 0, -1
        for found in log.read():
            if isinstance(found, Finding):
                self.findings.append(found)
                if found.damage and found.lsn is not None:
                    self._damage.append(found.lsn)
                continue
            lsn = found.group.header.lsn
            if lsn != last_lsn:
                first_lsn, last_lsn, groups = first_lsn or lsn, lsn, groups + 1
            kinds[found.name] += 1
            size += RECORD_HEADER_BYTES + len(found.record.body)
            self._take(found)
        if self._damage:
            self._doubt()
        self.journal = JournalItem(
            len(log.segments), first_lsn, log.end_lsn, groups, dict(kinds), size
        )

    def _take(self, found: Decoded) -> None:
        record, said = found.record, found.said
        self._lsn = address = record.address
        if any(lsn < address for lsn in self._damage):
            self._damage = [lsn for lsn in self._damage if lsn >= address]
            if found.group.header.lsn > self._since_lsn:
                self._doubt()
        if address < self._since_lsn or record.kind == KIND_GENERATION:
            return
        if said is None:
            self._unknown()
            return
        is_lost = isinstance(said, DecisionRecord) and said.xid not in self.state.prepared
        try:
            self._fold.take(record.kind, record.sequence, address, said, "")
        except StoreVersion:  # an entry of the catalog of a type that only a newer release knows
            self._unknown()
        except _CONTRADICTIONS as error:
            self._contradiction(f"contradictory ({error!r})")
        if is_lost:
            self._doubt()

    def _unknown(self) -> None:
        """Whatever it does, this release cannot tell."""
        file, offset = self._source.journal_place(self._lsn)
        text = "a record of a kind that this release does not know: what it changed is not shown"
        self.findings.append(Finding(file, offset, False, text, lsn=self._lsn))
        self._doubt()

    def _doubt(self) -> None:
        """A part of the journal is lost: what came in it, nobody knows."""
        self._complete = False
        for queue in self.state.queues.values():
            queue.certain = False

    def _contradiction(self, text: str) -> None:
        file, offset = self._source.journal_place(self._lsn)
        lost = "what this record changed"
        self.findings.append(Finding(file, offset, True, text, lost, self._lsn))

    def _fault(self, where: str, text: str) -> None:
        if self._complete:  # else it is explained
            self._contradiction(text)
