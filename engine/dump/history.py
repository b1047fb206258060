"""The durable state as a dump knows it: the newest checkpoint, and the journal's records after it.

- DH1: nothing is changed on disk, and no contradiction ends the reading: it is a finding, and what
  cannot be known any more is marked as uncertain.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from quire.dump_items import Described, Finding
from quire.engine.records import format
from quire.engine.records.catalog import QUEUE
from quire.engine.records.commit_record import CommitRecord
from quire.engine.records.durable_state import DurableState
from quire.engine.records.fold import Fold
from quire.errors import InvalidArgument, QueueNotFound, StoreVersion
from quire.journal import KIND_GENERATION, RECORD_HEADER_BYTES

from .log import Decoded, Log
from .queue_state import Beside, QueueState
from .records import Owner
from .saved import Saved
from .source import Source

_CONTRADICTIONS = (
    InvalidArgument, KeyError, TypeError, ValueError, OverflowError, struct.error
)  # fmt: skip


_UNKNOWN: Final = "a record of a kind that this release does not know: what it changed is not shown"


class History:
    """See the module; `journal`: the whole of it in numbers, once it is taken."""

    def __init__(self, source: Source, saved: Saved | None, owner: Owner | None) -> None:
        self._beside = Beside(self._fault) if saved is None else saved.beside
        self._beside.fault = self._fault
        self.queues = self._beside.queues
        self.state = DurableState() if saved is None else saved.state
        self.findings: list[Finding] = []
        self._source = source
        self._fold = Fold(self.state, self._beside)
        self._since_lsn = 0 if saved is None else saved.lsn
        self._complete = saved is not None  # no queue's definition is missing so far
        self._damage: list[int] = []  # LSNs whose place in the order has not come yet
        self.log = Log(source, saved, None if owner is None else owner.end_lsn)
        self.journal = Described("journal", {})

    def queue(self, name: str) -> QueueState:
        """By name, or by "#" and its id, where damage hides the name. Raises QueueNotFound."""
        queues = self.queues.values()
        for queue in queues:
            if name in (queue.name, f"#{queue.queue_id}"):
                return queue
        known = ", ".join(repr(queue.title) for queue in queues) or "none"
        raise QueueNotFound(f"there is no queue {name!r}: give one of {known}, or # and its id")

    def by_id(self, queue_id: int) -> QueueState:
        """Also one that is not known."""
        if queue_id not in self.queues:
            self._fold.lost_queue(queue_id)
        return self.queues[queue_id]

    def title(self, queue_id: int) -> str:
        """Of a queue, also of one that is not known."""
        queue = self.queues.get(queue_id)
        return f"#{queue_id}" if queue is None else queue.title

    def name_of(self, noun: str, row: Mapping[str, Any]) -> str | None:
        """Of the queue, or the subscription, whose numbers the row has."""
        queue = self.queues.get(row.get("queue_id", 0))
        if queue is None or noun == QUEUE:
            return None if queue is None else queue.name
        subscription = queue.durable.subscriptions.get(row["subscription_id"])
        return None if subscription is None else subscription.name

    def take(self) -> None:
        """Take the whole journal."""
        for _ in self.read():
            pass

    def read(self) -> Iterator[Decoded | Finding]:
        """The same, handed on record by record."""
        kinds, size, groups, first_lsn, last_lsn = Counter[str](), 0, 0, 0, -1
        log = self.log
        for found in log.read():
            if isinstance(found, Finding):
                self.findings.append(found)
                if found.damage and found.lsn is not None:
                    self._damage.append(found.lsn)
                yield found
                continue
            lsn = found.group.header.lsn
            if lsn != last_lsn:
                first_lsn, last_lsn, groups = first_lsn or lsn, lsn, groups + 1
            kinds[found.name] += 1
            size += RECORD_HEADER_BYTES + len(found.record.body)
            self._take(found)
            yield found
        if self._damage:
            self._doubt()
        said = {
            "segments": len(log.segments), "first_lsn": first_lsn, "end_lsn": log.end_lsn,
            "groups": groups, "records": dict(kinds), "record_bytes": size,
        }  # fmt: skip
        self.journal = Described("journal", said)

    def _take(self, found: Decoded) -> None:
        record, said = found.record, found.said
        self._beside.lsn = address = record.address
        if any(lsn < address for lsn in self._damage):
            self._damage = [lsn for lsn in self._damage if lsn >= address]
            if found.group.header.lsn > self._since_lsn:
                self._doubt()
        if address < self._since_lsn or record.kind == KIND_GENERATION:
            return
        decides = said.section(format.DECIDES) if isinstance(said, CommitRecord) else None
        is_lost = decides is not None and decides.xid not in self.state.prepared
        try:
            self._fold.take(record.kind, record.sequence, address, said, "")
        except StoreVersion:  # of a kind, or an entry of a type, that only a newer release knows
            is_lost = True
            self._find(False, _UNKNOWN)
        except _CONTRADICTIONS as error:
            self._find(True, f"contradictory ({error!r})", "what this record changed")
            for queue in self.queues.values():
                queue.note(record.sequence)
        if is_lost:
            self._doubt()

    def _doubt(self) -> None:
        """A part of the journal is lost: what came in it, nobody knows."""
        self._complete = False
        for queue in self.queues.values():
            queue.certain = False

    def _find(self, damage: bool, text: str, lost: str = "") -> None:
        file, offset = self._source.journal_place(self._beside.lsn)
        self.findings.append(Finding(file, offset, damage, text, lost, self._beside.lsn))

    def _fault(self, where: str, text: str) -> None:
        if self._complete:  # else it is explained
            self._find(True, text, "what this record changed")
