"""The durable state as a dump knows it: the newest checkpoint, and the journal's records after it.

- H1: nothing is changed on disk, and no contradiction ends the reading: it is a finding, and what
  cannot be known any more is marked as uncertain.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from quire.engine import format
from quire.engine.block_ref import BlockRef
from quire.engine.commit_record import CommitRecord
from quire.engine.prepared_record import DecisionRecord, PrepareRecord
from quire.errors import InvalidArgument, QueueNotFound
from quire.journal import RECORD_HEADER_BYTES

from .decoded import Decoded
from .items import Finding, JournalItem, PreparedItem
from .journal_items import Names
from .log import Log
from .queue_state import QueueState
from .saved import Saved

_CONTRADICTIONS = (KeyError, TypeError, ValueError, OverflowError)


@dataclass(slots=True)
class History:
    """See the module."""

    queues: dict[int, QueueState] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    large_files: dict[int, str] = field(default_factory=dict)  # id -> queue
    prepared: dict[str, PrepareRecord] = field(default_factory=dict)  # by xid
    findings: list[Finding] = field(default_factory=list)
    journal: JournalItem | None = None
    names: Names = field(default_factory=lambda: Names(None))

    def queue(self, name: str) -> QueueState:
        """By name, or by "#" and its id, where damage hides the name. Raises QueueNotFound."""
        for queue in self.queues.values():
            if name in (queue.name, f"#{queue.queue_id}"):
                return queue
        known = ", ".join(repr(queue.title) for queue in self.queues.values()) or "none"
        raise QueueNotFound(f"there is no queue {name!r}: give one of {known}, or # and its id")

    def title(self, queue_id: int) -> str:
        """Of a queue, also of one that is not known."""
        return self.queues[queue_id].title if queue_id in self.queues else f"#{queue_id}"

    def prepared_item(self, xid: str) -> PreparedItem:
        """A transaction in doubt, as a summary has it."""
        record = self.prepared[xid]
        ids = sorted({part.queue_id for part in record.parts})
        titles = map(self.title, ids)
        messages = sum(part.count for part in record.parts)
        taken = sum(read.end - read.start for read in record.reads[: record.taken])
        return PreparedItem(xid, record.prepared_us, messages, tuple(titles), taken)


class Fold:
    """Takes the journal's records in order."""

    def __init__(self, saved: Saved | None, log: Log) -> None:
        self.history = History(names=Names(saved))
        self._log = log
        self._since_lsn = 0
        self._complete = saved is not None  # no queue's definition is missing so far
        self._damage: list[int] = []  # LSNs whose place in the order has not come yet
        if saved is not None:
            self._since_lsn = saved.item.lsn
            self.history.queues = {queue.queue_id: queue for queue in saved.queues}
            self.history.ledger = dict(saved.ledger)
            self.history.large_files = dict(saved.large_files)
            self.history.prepared = {record.xid: record for record in saved.prepared}

    def run(self) -> History:
        """Read the whole journal."""
        history = self.history
        kinds, size, groups, first_lsn, last_lsn = Counter[str](), 0, 0, 0, -1
        for found in self._log.read():
            if isinstance(found, Finding):
                history.findings.append(found)
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
        for queue in history.queues.values():
            queue.release()
        segments = len(self._log.segments)
        history.journal = JournalItem(
            segments, first_lsn, self._log.end_lsn, groups, dict(kinds), size
        )
        return history

    def _take(self, found: Decoded) -> None:
        address = found.record.address
        if any(lsn < address for lsn in self._damage):
            self._damage = [lsn for lsn in self._damage if lsn >= address]
            if found.group.header.lsn > self._since_lsn:
                self._doubt()
        self.history.names.learn(found)
        if address < self._since_lsn:
            return
        try:
            if found.commit is not None:
                self._commit(found.commit, found.record.sequence, address)
            elif found.definition is not None:
                self._define(found.record.kind, found.definition)
            elif found.prepare is not None:
                self.history.prepared[found.prepare.xid] = found.prepare
            elif found.decision is not None:
                self._decide(found.record.kind, found.decision, address)
            elif not found.known:
                self._unknown(address)
        except (InvalidArgument, *_CONTRADICTIONS) as error:
            self._contradiction(address, f"contradictory ({error!r})")

    def _commit(self, commit: CommitRecord, transaction: int, lsn: int) -> None:
        first_id = commit.first_id
        for part in commit.parts:
            queue = self._queue(part.queue_id, lsn)
            address = part.address + lsn if part.kind == format.INLINE else part.address
            ref = BlockRef(
                queue.end_position, first_id, commit.time_us, address, part.charge, part.checksum,
                part.length, part.count, part.kind,
            )  # fmt: skip
            queue.append(ref, transaction, lsn)
            first_id += part.count
            if part.kind == format.LTDS:
                self.history.large_files[part.address] = queue.title
        for read in commit.reads:
            if read.queue_id in self.history.queues:
                queue = self.history.queues[read.queue_id]
                queue.acknowledge(read.subscription_id, read.start, read.end)
        self.history.ledger |= {entry.key: entry.version for entry in commit.entries}

    def _decide(self, kind: int, decision: DecisionRecord, lsn: int) -> None:
        prepared = self.history.prepared.pop(decision.xid, None)
        if prepared is None:
            if self._complete:
                self._contradiction(lsn, f"decides {decision.xid!r}, which is not prepared")
            self._doubt()
        elif kind == format.COMMIT_PREPARED:
            commit = CommitRecord(
                decision.first_id, decision.time_us, prepared.parts, prepared.reads,
                prepared.entries,
            )  # fmt: skip
            self._commit(commit, 0, lsn)

    def _unknown(self, lsn: int) -> None:
        """Whatever it does, this release cannot tell."""
        file, offset = self._log.source.journal_place(lsn)
        text = "a record of a kind that this release does not know: what it changed is not shown"
        self.history.findings.append(Finding(file, offset, False, text, lsn=lsn))
        self._doubt()

    def _queue(self, queue_id: int, lsn: int) -> QueueState:
        queue = self.history.queues.get(queue_id)
        if queue is None:
            if self._complete:
                self._contradiction(lsn, f"names queue {queue_id}, which is not known")
            queue = self.history.queues[queue_id] = QueueState(queue_id, certain=False)
        return queue

    def _define(self, kind: int, body: dict[str, Any]) -> None:
        queues = self.history.queues
        if kind == format.CREATE_QUEUE:
            queue = QueueState.of_definition(body)
            queues[queue.queue_id] = queue
            return
        queue = queues.get(int(body["queue_id"])) or QueueState(0)
        if kind == format.DROP_QUEUE:
            queues.pop(queue.queue_id, None)
        elif kind == format.SUBSCRIBE:
            queue.subscribe(int(body["subscription_id"]), str(body["name"]), int(body["start"]))
        else:
            queue.unsubscribe(int(body["subscription_id"]))

    def _doubt(self) -> None:
        """A part of the journal is lost: what came in it, nobody knows."""
        self._complete = False
        for queue in self.history.queues.values():
            queue.certain = False

    def _contradiction(self, lsn: int, text: str) -> None:
        file, offset = self._log.source.journal_place(lsn)
        lost = "what this record changed"
        self.history.findings.append(Finding(file, offset, True, text, lost, lsn))
