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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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
    def open(self) -> set[int | None]:
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
    return Part(told.address, 0, 0, queue.queue_id, told.length, told.messages, format.DATA)


def list_in_order(
    source: Source, queue: QueueState, owner: Owner | None, start: int
) -> Iterator[Listed | Finding]:
    """The queue's records since the checkpoint, messages from the position on."""
    if owner is None:  # as the journal has it
        yield from list_tail(source, queue, queue.tail_from(start))
        return
    told = owner.records.get(queue.name or "", [])
    known = list(queue.tail_from(start))
    first = min((t.position for t in told if t.position is not None), default=0)
    # Behind damage the files' positions are not the owner's: its commits cannot be found there.
    committed = {r.ref.position: r for r in known if r.ref.position >= first and queue.certain}
    yield from list_tail(source, queue, (r for r in known if r.ref.position not in committed))
    yield from _merged(source, queue, owner.open, told, committed)
    yield from list_tail(source, queue, committed.values())
    if len(told) >= MOST_TOLD_RECORDS:
        text = f"the owner was asked for {MOST_TOLD_RECORDS} records: those of open transactions"
        yield Finding("", None, False, f"{text} that came later are not listed")


def _merged(
    source: Source,
    queue: QueueState,
    is_open: set[int | None],
    told: list[Told],
    committed: dict[int, TailRecord],
) -> Iterator[Listed]:
    """The owner's list, each record as the files have it; takes those out of `committed`."""
    since = {(r.transaction, r.ref.address) for r in committed.values()}  # DT2
    told = [t for t in told if t.position is not None or (t.transaction_id, t.address) not in since]
    by_kind = {k: {t.transaction_id for t in told if t.kind == k} for k in (OPEN, COMMIT, ROLLBACK)}
    commits = {  # by transaction, those whose own OPEN and COMMIT are told
        t.transaction_id: committed[t.position]
        for t in told
        if t.transaction_id in by_kind[OPEN] & by_kind[COMMIT] and t.position in committed
    }
    whole: list[TailRecord] = []  # consecutive ones that stand in the order as in the journal
    for each in told:
        number = each.transaction_id
        listed: Listed | None = None
        if each.position is not None:
            record = committed.pop(each.position, None)
            if record is None:
                continue  # sealed by now, or before where the list begins
            if number not in commits:
                whole.append(record)
                continue
            record = _numbered(record, number)
            listed = message_record(source, queue, record.ref, record), record.ref
        elif number in is_open | by_kind[ROLLBACK]:
            place = None
            if each.messages and number in is_open:  # what was rolled back has given its pages back
                place = source.place(part_of(queue, each))
            row = QueueRecord(queue.queue_id, queue.name, each.kind, None, number)
            row = replace(row, messages=each.messages, place=place, open=number in is_open)
            listed = row, None
        elif number in commits:
            listed = control(queue, each.kind, _numbered(commits[number], number)), None
        if listed is not None:
            yield from list_tail(source, queue, whole)
            whole = []
            yield listed
    yield from list_tail(source, queue, whole)


def _numbered(record: TailRecord, transaction: int | None) -> TailRecord:
    """With its transaction, which the journal does not tell of one that was prepared."""
    return record._replace(transaction=transaction or 0)
