"""What a store's owner tells of what is in no file yet, and how it goes with what the files say.

The owner knows the order in which records entered a queue since its checkpoint: where transactions
were opened, what they spilled before their end, what was rolled back (see `queue_log`). The journal
knows the commits alone, each as a whole.

- DT1: what is committed is shown as the files have it (DD3 of `dump`); the owner's word only gives
  it its place in the order.
- DT2: the owner was asked before the files are read, so they know all that it calls committed. What
  they have sealed since is not listed twice, and what they have besides comes at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from quire.dump_items import COMMIT, OPEN, ROLLBACK, Finding, QueueRecord
from quire.engine.records import format
from quire.engine.records.commit_record import Part
from quire.info import QueueRecord as Told
from quire.limits import MOST_TOLD_RECORDS

from .queue_state import QueueState, TailRecord
from .records import Listed, control, list_tail, message_record
from .source import Source


@dataclass(frozen=True, slots=True)
class Owner:
    """The answers."""

    end_lsn: int  # of its journal
    transactions: tuple[dict[str, Any], ...] = ()  # the open ones, as its status has them
    records: Mapping[str, list[Told]] = field(default_factory=dict)  # of the queues it was asked of

    @property
    def open(self) -> set[int]:
        """The numbers of the open transactions."""
        return {told["id"] for told in self.transactions}

    def spilled(self, queue: QueueState) -> Iterator[tuple[int | None, Part]]:
        """Messages of open transactions that are in pages of the queue's data file."""
        is_open = self.open
        for told in self.records.get(queue.name or "", ()):
            if told.messages and told.position is None and told.transaction_id in is_open:
                yield told.transaction_id, part_of(queue, told)


def part_of(queue: QueueState, told: Told) -> Part:
    """Where spilled messages are."""
    return Part(
        address=told.address, charge=0, checksum=0, queue_id=queue.queue_id, length=told.length,
        count=told.messages, kind=format.DATA,
    )  # fmt: skip


def list_in_order(
    source: Source, queue: QueueState, owner: Owner, start: int
) -> Iterator[Listed | Finding]:
    """The queue's records since the checkpoint, messages from the position on."""
    told = owner.records.get(queue.name or "", [])
    known = list(queue.tail_from(start))
    first = min((t.position for t in told if t.position is not None), default=0)
    # Behind damage the files' positions are not the owner's: its commits cannot be found there.
    committed = {r.ref.position: r for r in known if r.ref.position >= first and queue.certain}
    yield from list_tail(source, queue, (r for r in known if r.ref.position not in committed))
    yield from _Merge(source, queue, owner.open, told, committed).listed()
    yield from list_tail(source, queue, committed.values())
    if len(told) >= MOST_TOLD_RECORDS:
        text = f"the owner was asked for {MOST_TOLD_RECORDS} records: those of open transactions"
        yield Finding("", None, False, f"{text} that came later are not listed")


class _Merge:
    """The owner's list, each record as the files have it; takes those out of `committed`."""

    def __init__(
        self,
        source: Source,
        queue: QueueState,
        is_open: set[int],
        told: Iterable[Told],
        committed: dict[int, TailRecord],
    ) -> None:
        self._source = source
        self._queue = queue
        since = {(r.transaction, r.ref.address) for r in committed.values()}  # DT2
        self._told = [
            t for t in told if t.position is not None or (t.transaction_id, t.address) not in since
        ]
        self._committed = committed
        self._open = is_open
        self._rolled_back = self._transactions(ROLLBACK)
        whole = self._transactions(OPEN) & self._transactions(COMMIT)
        self._commits = {  # by transaction, those whose own OPEN and COMMIT are told
            t.transaction_id: committed[t.position]
            for t in self._told
            if t.transaction_id in whole and t.position in committed
        }

    def listed(self) -> Iterator[Listed]:
        whole: list[TailRecord] = []  # consecutive ones that stand in the order as in the journal
        for told in self._told:
            record = None if told.position is None else self._committed.pop(told.position, None)
            if record is not None and told.transaction_id not in self._commits:
                whole.append(record)
                continue
            listed = self._uncommitted(told) if record is None else self._message(told, record)
            if listed is not None:
                yield from list_tail(self._source, self._queue, whole)
                whole = []
                yield listed
        yield from list_tail(self._source, self._queue, whole)

    def _transactions(self, kind: str) -> set[int | None]:
        return {t.transaction_id for t in self._told if t.kind == kind}

    def _message(self, told: Told, record: TailRecord) -> Listed:
        record = _numbered(record, told)
        return message_record(self._source, self._queue, record.ref, record), record.ref

    def _uncommitted(self, told: Told) -> Listed | None:
        """A control record, or messages without a position."""
        if told.position is not None:
            return None  # sealed by now, or before where the list begins
        queue, transaction = self._queue, told.transaction_id
        is_open = transaction in self._open
        if not is_open and transaction not in self._rolled_back:
            commit = self._commits.get(transaction)
            if commit is None:
                return None
            return control(queue, told.kind, _numbered(commit, told)), None
        place = None
        if told.messages and is_open:  # what was rolled back has given its pages back
            place = self._source.place(part_of(queue, told))
        record = QueueRecord(
            queue.queue_id, queue.name, told.kind, transaction, messages=told.messages,
            place=place, open=is_open,
        )  # fmt: skip
        return record, None


def _numbered(record: TailRecord, told: Told) -> TailRecord:
    """With its transaction, which the journal does not tell of one that was prepared."""
    return record._replace(transaction=told.transaction_id or 0)
