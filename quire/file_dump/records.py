"""A queue's ordered record list: record pages, what the journal tells, what is in doubt; messages.

- A record page that cannot be read is a finding with the positions that it covered; the list goes
  on with the next one.
- DR2: without a checkpoint there is no directory: the data file is searched for the queue's record
  pages, and what was superseded is left out as far as that can be told.
- DR3: an owner knows in which order records entered the queue since its checkpoint, and what of it
  is in no file (see `queue_log`). What is committed is shown as the files have it (DD3 of `dump`);
  the owner's word only gives it its place in the order.
- DR4: the owner was asked before the files are read, so they know all that it calls committed. What
  they have sealed since is not listed twice, and what they have besides comes at the end.
- Of messages only what their record's checksum covers is shown; a block that fails it is a finding,
  and those of a large transaction's file behind it are still listed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, Final

from msgspec.structs import replace

from quire.block import Block
from quire.engine.reading.block_messages import messages_of
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import Part
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.state.durable_state import PageEntry
from quire.limits import DUMPED_RECORDS, PAYLOAD_START_BYTES
from quire.messages.message import MESSAGE_COLUMNS, Message
from quire.messages.typed_message import TypedMessage, value_json
from quire.reports.info import QueueRecord

from .history import CHECKPOINT_LSN, QueueState, TailRecord
from .items import (  # fmt: skip
    COMMIT,
    INDIRECT,
    MESSAGES,
    OPEN,
    PREPARE,
    ROLLBACK,
    Described,
    DumpedQueueRecord,
    Finding,
)
from .owner import Owner, spilled_part
from .source import UNREADABLE, DumpSource

_NOT_SHOWN: Final = {"id", "time", "payload", "delivery_count"}
_FIELDS: Final = tuple(name for name in MESSAGE_COLUMNS if name not in _NOT_SHOWN)

Listed = tuple[DumpedQueueRecord, BlockRef | None]
"""A record, and where its messages can be read, if it has any."""


class ListedRecords:
    """The lists of one queue, each from a position on."""

    def __init__(self, source: DumpSource, queue: QueueState) -> None:
        self._source = source
        self._queue = queue
        self._row = partial(DumpedQueueRecord, queue.queue_id, queue.name)

    def in_order(self, start: int, owner: Owner | None) -> Iterator[Listed | Finding]:
        """Yield records as the files have them, new ones in the owner's order (DR3)."""
        queue = self._queue
        answers = [] if owner is None else owner.records.get(queue.name or "", [])
        is_open = set() if owner is None else owner.open
        first = min((t.position for t in answers if t.position is not None), default=0)
        known = list(queue.tail_from(start))
        # Behind damage the files' positions are not the owner's: its commits cannot be found there.
        committed = {r.ref.position: r for r in known if r.ref.position >= first and queue.certain}
        yield from self._sealed(start)
        yield from self._tail(r for r in known if r.ref.position not in committed)
        yield from self._tail(self._merged(answers, is_open, committed))
        yield from self._tail(committed.values())
        if len(answers) >= DUMPED_RECORDS:
            limited = f"the owner was asked for {DUMPED_RECORDS} records: those of open"
            text = f"{limited} transactions that came later are not listed"
            yield Finding("", None, False, text)

    def prepared(self, records: Iterable[PrepareRecord]) -> Iterator[Listed]:
        """Yield records of transactions in doubt, whose place is known when they are decided."""
        for record in records:
            parts = [part for part in record.parts if part.queue_id == self._queue.queue_id]
            row = partial(self._row, xid=record.xid)
            if parts:
                yield row(OPEN), None
                for part in parts:
                    size_fields: dict[str, Any] = {"messages": part.count, "charge": part.charge}
                    yield row(_kind(part), place=self._source.place(part), **size_fields), None
                yield row(PREPARE, time_us=record.prepared_us), None

    def _sealed(self, start: int) -> Iterator[Listed | Finding]:
        """Yield the records of record pages."""
        source = self._source
        for entry in self._queue.durable.directory:
            if entry.end <= start:
                continue
            file, page = source.page_place(entry.page)
            try:
                _, refs = source.records(entry.page, self._queue.queue_id)
            except UNREADABLE as error:
                lost = f"the records of positions {entry.position} to {entry.end - 1}"
                yield Finding.of(file, page * source.geometry.page_size, error, lost)
                continue
            for ref in refs:
                if ref.end > start:
                    yield self._messages(ref, record_file=file, record_page=page)

    def _tail(self, records: Iterable[TailRecord | Listed]) -> Iterator[Listed]:
        """Yield the journal's transactions, each with its records, its OPEN and its COMMIT.

        Records that a checkpoint holds (`CHECKPOINT_LSN`) tell nothing of their transactions. What
        is `Listed` already is left as it is.
        """
        for lsn, run in groupby(records, lambda r: r.lsn if isinstance(r, TailRecord) else None):
            entered: list[TailRecord] = []
            for record in run:
                if isinstance(record, TailRecord):
                    entered.append(record)
                else:
                    yield record
            if lsn == CHECKPOINT_LSN:
                yield from (self._messages(record.ref) for record in entered)
            elif entered:
                yield self._control(OPEN, entered[0])
                yield from map(self._journal_record, entered)
                yield self._control(COMMIT, entered[-1])

    def _merged(
        self, answers: list[QueueRecord], is_open: set[int | None], committed: dict[int, TailRecord]
    ) -> Iterator[TailRecord | Listed]:
        """The owner's list, each record as the files have it; takes those out of `committed`."""
        since = {(r.transaction, r.ref.address) for r in committed.values()}  # (DR4)
        by_kind = {
            k: {t.transaction_id for t in answers if t.kind == k} for k in (OPEN, COMMIT, ROLLBACK)
        }
        commits = {  # by transaction, those whose own OPEN and COMMIT are told
            t.transaction_id: committed[t.position]
            for t in answers
            if t.transaction_id in by_kind[OPEN] & by_kind[COMMIT] and t.position in committed
        }
        for each in answers:
            number = each.transaction_id
            # The journal does not tell the transaction of one that was prepared.
            named: dict[str, Any] = {"transaction": number or 0}
            if each.position is not None:
                record = committed.pop(each.position, None)  # None: it is sealed by now
                if record is not None:
                    is_complete = number in commits
                    yield self._journal_record(record._replace(**named)) if is_complete else record
            elif number in is_open | by_kind[ROLLBACK]:
                if (number, each.address) in since:
                    continue
                row = self._row(
                    each.kind, transaction=number, messages=each.messages, open=number in is_open
                )
                if row.open and row.messages:  # what was rolled back has given its pages back
                    row = replace(row, place=self._source.place(spilled_part(self._queue, each)))
                yield row, None
            elif number in commits:
                yield self._control(each.kind, commits[number]._replace(**named))

    def _control(self, name: str, record: TailRecord) -> Listed:
        """The OPEN or COMMIT of the transaction that a record belongs to."""
        of_it: dict[str, Any] = {"transaction": record.transaction, "lsn": record.lsn}
        return self._row(name, time_us=record.ref.time_us, **of_it), None

    def _journal_record(self, record: TailRecord) -> Listed:
        ref, transaction, lsn, certain = record
        return self._messages(ref, transaction=transaction, lsn=lsn, certain=certain)

    def _messages(self, ref: BlockRef, **known: Any) -> Listed:
        """A record of messages; `known`: what else is known of it."""
        queue = self._queue
        known = {"certain": queue.certain} | known
        row = self._row(
            _kind(ref), ref.position, messages=ref.count, first_id=ref.first_id,
            time_us=ref.time_us, charge=ref.charge, released=queue.released_of(ref),
            place=self._source.place(ref), **known,
        )  # fmt: skip
        return row, ref


def _kind(ref: BlockRef | Part) -> str:
    return INDIRECT if ref.kind == format.LTDS else MESSAGES


def find_directories(
    source: DumpSource, queue_of: Callable[[int], QueueState]
) -> Iterator[Finding]:
    """Give queues whose directory is lost the record pages that a search finds (DR2)."""
    found = defaultdict[int, list[PageEntry]](list)
    for number in source.data_files():
        try:
            for queue_id, entry in source.search_record_pages(number):
                found[queue_id].append(entry)
        except UNREADABLE as error:
            yield Finding.of(f"data/{number}.dat", None, error, "the record pages in it")
    for queue_id, entries in sorted(found.items()):
        queue, end = queue_of(queue_id), 0
        if queue.certain:  # the journal tells it all, from its definition on
            continue
        directory = queue.durable.directory
        for entry in sorted(entries, key=lambda entry: (entry.position, -entry.end)):
            if entry.end > end:
                directory.append(entry)
                end = entry.end
        text = f"{len(directory)} record pages of queue #{queue_id} were found by a search: some"
        yield Finding("data", None, False, f"{text} may be out of date")


def list_messages(
    source: DumpSource, queue: QueueState, ref: BlockRef, start: int, *, shown: bool
) -> Iterator[Described | Finding]:
    """Yield faults of a large transaction's file; if `shown`, the messages from a position on."""
    if ref.kind == format.LTDS and queue.released_of(ref) < ref.count:
        try:
            source.large(ref.address).checked(ref.count, ref.checksum).close()
        except UNREADABLE as error:
            yield source.unreadable(ref, error, f"{ref.count} messages")
            return
    for read, which in _blocks(source, queue, ref, start) if shown else ():
        try:
            block, first = read()
            for position, message in messages_of(block, first, ref, start, ref.end, queue.title):
                yield _item(queue, position, message)
        except UNREADABLE as error:
            yield source.unreadable(ref, error, f"the messages {which}")


def _blocks(
    source: DumpSource, queue: QueueState, ref: BlockRef, start: int
) -> Iterator[tuple[Callable[[], tuple[Block, int]], str]]:
    """Yield a reader for each block (it also gives the block's first message), and its name."""
    if ref.kind != format.LTDS:
        if queue.released_of(ref) < ref.count:  # else its place may be used again
            yield lambda: (source.block(ref), 0), f"at positions {ref.position} to {ref.end - 1}"
        return
    with suppress(*UNREADABLE), source.large(ref.address) as reader:  # else that is told
        within = max(start - ref.position, 0)
        first = reader.locate(within) if within < reader.count else reader.block_count
        for number in range(first, reader.block_count):
            yield partial(reader.block_at, number), f"of block {number} of {reader.block_count}"


def _item(queue: QueueState, position: int, message: Message) -> Described:
    if isinstance(message, TypedMessage):
        shown = json.dumps(value_json(message), ensure_ascii=False).encode()
        size = len(shown)
    else:
        size, shown = message.size, b""
        with suppress(*UNREADABLE):  # where the payload is damaged, nothing of it is shown
            shown = message.open().read(PAYLOAD_START_BYTES)
    values = {name: getattr(message, name) for name in _FIELDS}
    fields: dict[str, Any] = {
        "queue_id": queue.queue_id,
        "queue": queue.name,
        "position": position,
        "id": int(message.id),
        "time_us": message.time,
        "released": queue.durable.released.contains(position),
        # Those of the header that are not absent.
        "fields": {name: value for name, value in values.items() if value not in (None, 0, {})},
        "payload_bytes": size,
        "payload_start": shown[:PAYLOAD_START_BYTES],
    }
    return Described("message", fields)
