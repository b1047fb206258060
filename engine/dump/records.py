"""A queue's ordered record list, for a dump: the record pages, then what the journal tells.

- DR1: a record page that cannot be read is a finding with the positions that it covered; the list
  goes on with the next one.
- DR2: without a checkpoint there is no directory: the data file is searched for the queue's record
  pages, and what was superseded is left out as far as that can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from quire.dump_items import COMMIT, INDIRECT, MESSAGES, OPEN, PREPARE, Finding, QueueRecord
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import Part
from quire.engine.records.durable_state import PageEntry
from quire.engine.records.prepared_record import PrepareRecord
from quire.ltds import LtdsReader

from .queue_state import CHECKPOINT_LSN, QueueState, TailRecord
from .source import UNREADABLE, Source

Listed = tuple[QueueRecord, BlockRef | None]


def kind_name(ref: BlockRef | Part) -> str:
    """A record of messages, or an INDIRECT one."""
    return INDIRECT if ref.kind == format.LTDS else MESSAGES


def list_sealed(source: Source, queue: QueueState, start: int) -> Iterator[Listed | Finding]:
    """What record pages list, from the position on; with records of messages, where they are."""
    for entry in queue.directory:
        if entry.end > start:
            yield from _sealed(source, queue, entry, start)


def _sealed(
    source: Source, queue: QueueState, entry: PageEntry, start: int
) -> Iterator[Listed | Finding]:
    try:
        refs = source.record_page(entry.page, queue.queue_id)
    except UNREADABLE as error:
        file, page = source.page_place(entry.page)
        lost = f"the records of positions {entry.position} to {entry.end - 1}"
        yield Finding.of(file, page * source.geometry.page_size, error, lost)
        return
    for ref in refs:
        if ref.end > start:
            yield message_record(source, queue, ref, record_page=entry.page), ref


def list_records(source: Source, queue: QueueState, start: int) -> Iterator[Listed | Finding]:
    """All that the files know, from the position on."""
    yield from list_sealed(source, queue, start)
    yield from list_tail(source, queue, queue.tail_from(start))


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
        queue.queue_id, queue.name, name, record.transaction, record.lsn, time_us=record.ref.time_us
    )


def message_record(
    source: Source,
    queue: QueueState,
    ref: BlockRef,
    told: TailRecord | None = None,
    record_page: int | None = None,
) -> QueueRecord:
    """A record of messages, or an INDIRECT one."""
    file, page = (None, None) if record_page is None else source.page_place(record_page)
    return QueueRecord(
        queue_id=queue.queue_id,
        queue=queue.name,
        name=kind_name(ref),
        transaction=None if told is None else told.transaction,
        lsn=None if told is None else told.lsn,
        position=ref.position,
        messages=ref.count,
        released=queue.released_of(ref),
        first_id=ref.first_id,
        time_us=ref.time_us,
        charge=ref.charge,
        place=source.place(ref),
        record_file=file,
        record_page=page,
        certain=queue.certain if told is None else told.certain,
    )


def prepared_records(
    source: Source, queue: QueueState, prepared: Iterable[PrepareRecord]
) -> Iterator[Listed]:
    """What transactions in doubt hold of the queue: they have their place when they are decided."""
    for record in prepared:
        parts = [part for part in record.parts if part.queue_id == queue.queue_id]
        if parts:
            of_it = partial(QueueRecord, queue.queue_id, queue.name, xid=record.xid)
            yield of_it(OPEN), None
            for part in parts:
                name, place = kind_name(part), source.place(part)
                held = of_it(name, messages=part.count, charge=part.charge, place=place)
                yield held, None
            yield of_it(PREPARE, time_us=record.prepared_us), None


def check_large_file(source: Source, ref: BlockRef) -> Finding | None:
    """What is wrong with the large transaction's file of an INDIRECT record, if anything."""
    file = source.place(ref).file
    lost = f"{ref.count} messages"
    try:
        with LtdsReader(
            source.env, source.layout.ltds, ref.address, source.geometry.store_id
        ) as reader:
            if reader.count == ref.count:
                return None
            text = f"holds {reader.count} messages, its record says {ref.count}"
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
                same = found.setdefault(queue_id, {})
                known = same.get(entry.position)
                if known is None or known.end < entry.end:
                    same[entry.position] = entry
        except UNREADABLE as error:
            yield Finding.of(f"data/{number}.dat", None, error, "the record pages in it")
    for queue_id, entries in sorted(found.items()):
        queue = queue_of(queue_id)
        if queue.certain:  # the journal tells it all, from its definition on
            continue
        end = 0
        for _, entry in sorted(entries.items()):
            if entry.end > end:
                queue.directory.append(entry)
                end = entry.end
        text = (
            f"{len(queue.directory)} record pages of queue #{queue_id} were found by a search:"
            " some may be out of date"
        )
        yield Finding("data", None, False, text)
