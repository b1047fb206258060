"""The durable state as a dump knows it: the newest checkpoint, and the journal's records after it.

- Nothing is changed on disk, and no contradiction ends the reading: it is a finding, and what
  cannot be known any more is marked as uncertain.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from quire.engine.checkpoints.snapshot import load
from quire.engine.checkpoints.space_maps import read_spaces
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import Checkpoint, path_of, read_checkpoint
from quire.engine.records.commit_record import CommitRecord
from quire.engine.state.catalog import QUEUE
from quire.engine.state.durable_state import LOST, DurableQueue, DurableState, Effects, QueueEffects
from quire.engine.state.fold import Fold
from quire.errors import QueueNotFound, QuireError, StoreCorrupt, StoreVersion
from quire.journal import KIND_GENERATION, RECORD_HEADER_BYTES, Geometry

from .items import Described, Finding, plain_value
from .log import Decoded, Log
from .source import DumpSource

_CONTRADICTIONS: Final = (
    QuireError, KeyError, TypeError, ValueError, OverflowError, AttributeError, IndexError,
    struct.error,
)  # fmt: skip
_UNREADABLE: Final = (*_CONTRADICTIONS, OSError, MemoryError, RecursionError)
_UNKNOWN: Final = "a record of a kind that this release does not know: what it changed is not shown"

CHECKPOINT_LSN: Final = 0  # the journal begins with a page that holds no record


class TailRecord(NamedTuple):
    """A record that the journal tells, or a checkpoint on a full disk: not yet in a record page."""

    ref: BlockRef
    transaction: int
    lsn: int
    certain: bool


class QueueState(QueueEffects):
    """A queue that is folded, and which record of the journal told what. It stands beside it."""

    def __init__(self, durable: DurableQueue, lsn_at_hand: Callable[[], int]) -> None:
        """`lsn_at_hand`: of the record that is folded just now."""
        self.durable = durable
        self.queue_id = durable.queue_id
        self.certain = durable.config.kind != LOST
        self._lsn_at_hand = lsn_at_hand
        # Of each record: transaction, LSN, certain.
        self._origins: list[tuple[int, int, bool]] = [(0, CHECKPOINT_LSN, True)] * len(durable.tail)

    @property
    def name(self) -> str | None:
        """None: its definition is lost."""
        return None if self.durable.config.kind == LOST else self.durable.config.name

    @property
    def title(self) -> str:
        """The name, or "#" and the id where damage hides the name."""
        return self.durable.config.name

    def released_of(self, ref: BlockRef) -> int:
        """Return how many of the record's messages are released."""
        return self.durable.released.count(ref.position, ref.end)

    def tail_from(self, position: int) -> Iterator[TailRecord]:
        records = self.durable.tail.between(0, len(self._origins))
        for ref, known in zip(records, self._origins, strict=True):
            if ref.end > position:
                yield TailRecord(ref, *known)

    def items(self) -> Iterator[Described]:
        """Yield the queue's row, and one for each of its subscriptions."""
        durable, end = self.durable, self.durable.end_position
        own: dict[str, Any] = {"queue_id": self.queue_id}
        made: dict[str, Any] = {"name": None, "kind": None}
        if self.name is not None:
            made = plain_value(durable.config) | durable.config.properties.to_body()
            del made["properties"]
        stands = {
            "end_position": end,
            "released": durable.released.total,
            "record_pages": len(durable.directory),
            "request_ids": len(durable.requests),
            "certain": self.certain,
        }
        yield Described("queue", own | made | stands)
        own["queue"] = self.name
        for each in durable.subscriptions.values():
            read = {
                "position": each.done.first_gap(0),  # everything below is read
                "read": each.done.total,
                "pending": max(end - each.done.total, 0),
            }
            of_it = {"subscription_id": each.subscription_id, "name": each.name}
            yield Described("subscription", own | of_it | read)

    def appended(
        self, start: int, end: int, charge: int, held_by: str, transaction_id: int
    ) -> None:
        self.note(transaction_id)

    def note(self, transaction_id: int) -> None:
        """The record at hand has told what is new."""
        new = len(self.durable.tail) - len(self._origins)
        self._origins += [(transaction_id, self._lsn_at_hand(), self.certain)] * new


class History(Effects):
    """The history of a store: a checkpoint, then the journal. It stands beside its own fold.

    `journal`: the whole of it in numbers, once it is read.
    """

    def __init__(
        self,
        source: DumpSource,
        until_lsn: int | None,
        findings: list[Finding],
        checkpoint: Checkpoint | None = None,
        newest: int | None = None,
    ) -> None:
        """Begin with a checkpoint's state. Raises `_UNREADABLE` where that contradicts itself.

        `newest`: the LSN of the newest one then, which this is, or which could not be read.
        """
        self.state = DurableState()
        self.queues: dict[int, QueueState] = {}
        self.findings = findings
        self.checkpoint = checkpoint
        self.spaces = [] if checkpoint is None else read_spaces(checkpoint)
        self.journal = Described("journal", {})
        self._source = source
        self._newest = newest
        self._fold = Fold(self.state, self)
        self._lsn = CHECKPOINT_LSN  # of the record at hand
        self._complete = checkpoint is not None  # no queue's definition is missing so far
        self._damage: list[int] = []  # LSNs whose place in the order has not come yet
        self._since_lsn, restart_lsn = 0, None
        if checkpoint is not None:
            load(checkpoint, self._fold, self)
            document, self._since_lsn = checkpoint.document, checkpoint.lsn
            restart_lsn = int(document["restart_lsn"])
            self._created_us = int(document["created_us"])
            sizes = (int(document[name]) for name in ("segment_bytes", "page_size"))
            geometry = Geometry(checkpoint.store_id, *sizes)
            if geometry.page_size < 512 or geometry.segment_bytes < geometry.page_size:
                raise StoreCorrupt(f"{checkpoint.path}: impossible sizes {geometry}")
            source.geometry = geometry
        if until_lsn is not None and until_lsn < self._since_lsn:
            until_lsn = None  # the owner has gone on since it was asked
        self._log = Log(source, restart_lsn, self._since_lsn, until_lsn)

    def checkpoint_item(self) -> Iterator[Described]:
        """The checkpoint, if there is one, as long as nothing was taken behind it."""
        if self.checkpoint is None:
            return
        state, spaces, lsn = self.state, self.spaces, self.checkpoint.lsn
        fields = {
            "file": path_of("checkpoint", lsn),
            "lsn": lsn,
            "restart_lsn": self._log.restart_lsn,
            "created_us": self._created_us,
            "last_time_us": state.last_time_us,
            "next_id": state.next_id,
            "queues": len(state.queues),
            "ledger_entries": len(state.ledger),
            "large_files": len(state.ltds),
            "data_files": len(spaces),
            "data_pages": sum(space.total_pages for space in spaces),
            "free_pages": sum(space.free_pages for space in spaces),
        }
        yield Described("checkpoint", fields)

    def queue(self, name: str) -> QueueState:
        """Find a queue by name, or by "#" and its id. Raises QueueNotFound."""
        queues = self.queues.values()
        for queue in queues:
            if name in (queue.name, f"#{queue.queue_id}"):
                return queue
        known = ", ".join(repr(queue.title) for queue in queues) or "none"
        raise QueueNotFound(f"there is no queue {name!r}: give one of {known}, or # and its id")

    def by_id(self, queue_id: int) -> QueueState:
        """Return the queue of that id, also one that is not known."""
        if queue_id not in self.queues:
            self._fold.lost_queue(queue_id)
        return self.queues[queue_id]

    def name_of(self, noun: str, row: Mapping[str, Any]) -> str | None:
        """Return the name of the queue, or the subscription, whose numbers the row has."""
        queue = self.queues.get(row.get("queue_id", 0))
        if queue is None or noun == QUEUE:
            return None if queue is None else queue.name
        subscription = queue.durable.subscriptions.get(row["subscription_id"])
        return None if subscription is None else subscription.name

    def is_outdated(self) -> bool:
        """Return True if there is a newer checkpoint now."""
        return self._newest is not None and self._source.newest() not in (None, self._newest)

    def went_on(self) -> bool:
        """Return True if the owner has gone on since this was read."""
        return self.is_outdated() or self._log.goes_on()

    # Reading the journal

    def read(self) -> Iterator[Decoded | Finding]:
        """Take the whole journal, handed on record by record."""
        kinds, size, groups, first_lsn, last_lsn = Counter[str](), 0, 0, 0, -1
        log = self._log
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
            self._mark_uncertain()
        fields = {
            "segments": len(log.segments), "first_lsn": first_lsn, "end_lsn": log.end_lsn,
            "groups": groups, "records": dict(kinds), "record_bytes": size,
        }  # fmt: skip
        self.journal = Described("journal", fields)

    def _take(self, found: Decoded) -> None:
        record, body = found.record, found.body
        self._lsn = address = record.address
        if any(lsn < address for lsn in self._damage):
            self._damage = [lsn for lsn in self._damage if lsn >= address]
            if found.group.header.lsn > self._since_lsn:
                self._mark_uncertain()
        if address < self._since_lsn or record.kind == KIND_GENERATION:
            return
        decides = body.section(format.DECIDES) if isinstance(body, CommitRecord) else None
        is_lost = decides is not None and decides.xid not in self.state.prepared
        try:
            self._fold.take(record.kind, record.sequence, address, body, "")
        except StoreVersion:  # of a kind, or an entry of a type, that only a newer release knows
            is_lost = True
            self._find(False, _UNKNOWN)
        except _CONTRADICTIONS as error:
            self._find(True, f"contradictory ({error!r})", "what this record changed")
            for queue in self.queues.values():
                queue.note(record.sequence)
        if is_lost:
            self._mark_uncertain()

    def _mark_uncertain(self) -> None:
        """A part of the journal is lost: what came in it, nobody knows."""
        self._complete = False
        for queue in self.queues.values():
            queue.certain = False

    def _find(self, damage: bool, text: str, lost: str = "") -> None:
        file, offset = self._source.journal_place(self._lsn)
        self.findings.append(Finding(file, offset, damage, text, lost, self._lsn))

    # Effects

    def made(self, queue: DurableQueue, used: int) -> None:
        self.queues[queue.queue_id] = queue.beside = QueueState(queue, lambda: self._lsn)

    def dropped(self, queue: DurableQueue) -> None:
        del self.queues[queue.queue_id]

    def fault(self, where: str, text: str) -> None:
        if self._lsn == CHECKPOINT_LSN:
            raise StoreCorrupt(f"{where}: {text}")
        if self._complete:  # else it is explained
            self._find(True, text, "what this record changed")


def newest_history(source: DumpSource, until_lsn: int | None) -> History:
    """Return the history from the newest readable checkpoint; faults of newer ones are findings.

    `until_lsn`: where the journal ends, if the owner says it. Raises StoreVersion if a newer
    release wrote the checkpoint: what would be left to list is not the store.
    """
    findings: list[Finding] = []
    lsns: list[int] = []
    try:
        lsns = source.checkpoints()
    except OSError as error:
        findings.append(Finding("checkpoint", None, True, str(error), "all checkpoints"))
    for lsn in reversed(lsns):
        try:
            checkpoint = read_checkpoint(source.env, source.layout.checkpoints, lsn)
            return History(source, until_lsn, findings, checkpoint, lsns[-1])
        except StoreVersion:
            raise
        except _UNREADABLE as error:
            if source.newest() != lsns[-1]:  # the owner has made a newer one meanwhile
                return newest_history(source, until_lsn)
            text = str(error) if isinstance(error, (QuireError, OSError)) else f"{error!r}"
            file = path_of("checkpoint", lsn)
            findings.append(Finding(file, 0, True, text, "the state that it held"))
    return History(source, until_lsn, findings)
