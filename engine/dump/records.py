"""A queue's ordered record list, for a dump: the record pages, then what the journal tells.

- DR1: a record page that cannot be read is a finding with the positions that it covered; the list
  goes on with the next one.
- DR2: without a checkpoint there is no directory: the data file is searched for the queue's record
  pages, and what was superseded is left out as far as that can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from quire.dump_items import COMMIT, INDIRECT, MESSAGES, OPEN, PREPARE, Finding, QueueRecord
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import Part
from quire.engine.records.durable_state import PageEntry
from quire.engine.records.prepared_record import PrepareRecord

from .queue_state import CHECKPOINT_LSN, QueueState, TailRecord
from .source import UNREADABLE, Source

Listed = tuple[QueueRecord, BlockRef | None]


def list_sealed(source: Source, queue: QueueState, start: int) -> Iterator[Listed | Finding]:
    """What record pages list, from the position on; with records of messages, where they are."""
    for entry in queue.directory:
        if entry.end <= start:
            continue
        file, page = source.page_place(entry.page)
        try:
            refs = source.record_page(entry.page, queue.queue_id)
        except UNREADABLE as error:
            lost = f"the records of positions {entry.position} to {entry.end - 1}"
            yield Finding.of(file, page * source.geometry.page_size, error, lost)
            continue
        for ref in refs:
            if ref.end > start:
                record = message_record(source, queue, ref)
                yield replace(record, record_file=file, record_page=page), ref


def list_tail(source: Source, queue: QueueState, records: Iterable[TailRecord]) -> Iterator[Listed]:
    """What the journal tells: each transaction with the records that it entered and ended with.

    Records that a checkpoint holds (`CHECKPOINT_LSN`) tell nothing of their transactions.
    """
    before: TailRecord | None = None
    for record in records:
        if record.lsn == CHECKPOINT_LSN:
            yield message_record(source, queue, record.ref), record.ref
            continue
        if before is None or record.lsn != before.lsn:
            if before is not None:
                yield control(queue, COMMIT, before), None
            yield control(queue, OPEN, record), None
        yield message_record(source, queue, record.ref, record), record.ref
        before = record
    if before is not None:
        yield control(queue, COMMIT, before), None


def control(queue: QueueState, name: str, record: TailRecord) -> QueueRecord:
    """The OPEN or COMMIT of the transaction that a record belongs to."""
    return QueueRecord(
        queue.queue_id, queue.name, name, transaction=record.transaction,
        time_us=record.ref.time_us, lsn=record.lsn,
    )  # fmt: skip


def message_record(
    source: Source, queue: QueueState, ref: BlockRef, told: TailRecord | None = None
) -> QueueRecord:
    """A record of messages, or an INDIRECT one."""
    record = QueueRecord(
        queue.queue_id, queue.name, kind_name(ref), ref.position, messages=ref.count,
        first_id=ref.first_id, time_us=ref.time_us, charge=ref.charge,
        released=queue.released_of(ref), place=source.place(ref), certain=queue.certain,
    )  # fmt: skip
    if told is None:
        return record
    return replace(record, transaction=told.transaction, lsn=told.lsn, certain=told.certain)


def kind_name(ref: BlockRef | Part) -> str:
    """A record of messages, or an INDIRECT one."""
    return INDIRECT if ref.kind == format.LTDS else MESSAGES


def prepared_records(
    source: Source, queue: QueueState, prepared: Iterable[PrepareRecord]
) -> Iterator[Listed]:
    """What transactions in doubt hold of the queue: they have their place when they are decided."""
    for record in prepared:
        first = QueueRecord(queue.queue_id, queue.name, OPEN, xid=record.xid)
        parts = [part for part in record.parts if part.queue_id == queue.queue_id]
        rows = [
            replace(first, name=kind_name(part), messages=part.count, charge=part.charge,
                    place=source.place(part))
            for part in parts
        ]  # fmt: skip
        if rows:
            last = replace(first, name=PREPARE, time_us=record.prepared_us)
            yield from ((row, None) for row in (first, *rows, last))


def check_large_file(source: Source, ref: BlockRef) -> Finding | None:
    """What is wrong with the large transaction's file of an INDIRECT record, if anything."""
    file, lost = source.place(ref).file, f"{ref.count} messages"
    try:
        with source.large(ref.address) as reader:
            if reader.count != ref.count:
                text = f"holds {reader.count} messages, its record says {ref.count}"
            elif ref.checksum not in (0, reader.checksum):  # 0: of an earlier release
                text = "is not the file that its record names: its trailer's checksum differs"
            else:
                return None
            return Finding(file, None, True, text, lost)
    except UNREADABLE as error:
        return Finding.of(file, None, error, lost)


def find_directories(source: Source, queue_of: Callable[[int], QueueState]) -> Iterator[Finding]:
    """Give queues whose directory is lost the record pages that a search finds (DR2)."""
    found: dict[int, dict[int, PageEntry]] = {}
    for number in source.data_files():
        try:
            for page, queue_id, refs in source.search_record_pages(number):
                entry = PageEntry(refs[0].position, refs[-1].end, page, len(refs))
                known = found.setdefault(queue_id, {}).setdefault(entry.position, entry)
                if known.end < entry.end:
                    found[queue_id][entry.position] = entry
        except UNREADABLE as error:
            yield Finding.of(f"data/{number}.dat", None, error, "the record pages in it")
    for queue_id, entries in sorted(found.items()):
        queue, end = queue_of(queue_id), 0
        if queue.certain:  # the journal tells it all, from its definition on
            continue
        for _, entry in sorted(entries.items()):
            if entry.end > end:
                queue.directory.append(entry)
                end = entry.end
        text = (
            f"{len(queue.directory)} record pages of queue #{queue_id} were found by a search:"
            " some may be out of date"
        )
        yield Finding("data", None, False, text)
