"""The journal's records as a dump lists them, with the names of queues and subscriptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from quire.dump_items import Change, JournalRecord, LedgerEntry, Moved, Part, Read, Request
from quire.engine.records import format
from quire.engine.records.catalog import QUEUE, SUBSCRIPTION
from quire.engine.records.commit_record import CommitRecord
from quire.engine.records.commit_record import Read as Run
from quire.engine.records.fold import Said
from quire.engine.records.handout_record import HandOut
from quire.engine.records.prepared_record import DecisionRecord, PrepareRecord
from quire.engine.records.sections import Moves, Seek, Values
from quire.journal import GENERATION_BODY, KIND_GENERATION, RECORD_HEADER_BYTES

from .log import Decoded
from .saved import Saved
from .source import Source


class Names:
    """What queues and subscriptions are called, as far as it was read."""

    def __init__(self, saved: Saved | None) -> None:
        self.queues: dict[int, str | None] = {}
        self.subscriptions: dict[int, str] = {}
        for queue in () if saved is None else saved.state.queues.values():
            self.queues[queue.queue_id] = queue.name
            known = queue.durable.subscriptions.values()
            self.subscriptions |= {s.subscription_id: s.name for s in known}

    def learn(self, decoded: Decoded) -> None:
        for change in decoded.said if isinstance(decoded.said, list) else ():
            name = (change.body or {}).get("name")
            if isinstance(name, str):
                if change.type == QUEUE:
                    self.queues[change.key] = name
                elif change.type == SUBSCRIPTION:
                    self.subscriptions[change.key] = name


def journal_record(source: Source, names: Names, decoded: Decoded) -> JournalRecord:
    """The record as a dump lists it."""
    group, record = decoded.group, decoded.record
    file, offset = source.journal_place(record.address)
    item = JournalRecord(
        lsn=record.address,
        group_lsn=group.header.lsn,
        generation=f"{group.header.generation:016x}",
        kind=record.kind,
        name=decoded.name,
        transaction=record.sequence,
        bytes=RECORD_HEADER_BYTES + len(record.body),
        file=file,
        offset=offset,
    )
    if record.kind == KIND_GENERATION and len(record.body) == GENERATION_BODY.size:
        return replace(item, time_us=GENERATION_BODY.unpack(record.body)[1])
    return _with_details(source, names, item, decoded.said)


def _with_details(source: Source, names: Names, item: JournalRecord, said: Said) -> JournalRecord:
    if isinstance(said, DecisionRecord):
        xid, first_id, time_us, messages = said
        return replace(item, xid=xid, first_id=first_id or None, time_us=time_us, messages=messages)
    if isinstance(said, PrepareRecord):
        commit = CommitRecord(0, said.prepared_us, said.parts, said.reads, said.entries)
        item = replace(_changes(source, names, item, commit), xid=said.xid, first_id=None)
        return _with_sections(names, item, said.sections, said.xid)
    if isinstance(said, CommitRecord):
        return _with_sections(names, _changes(source, names, item, said), said.sections)
    if isinstance(said, HandOut):
        item = replace(item, reads=tuple(_reads(names, said.runs)))
    elif isinstance(said, Moves):
        item = replace(item, moved=tuple(_moved(names, said.seeks)))
    elif said is not None:
        item = replace(item, changes=tuple(Change(*change) for change in said))
    return item


def _with_sections(
    names: Names, item: JournalRecord, sections: Sequence[object], xid: str | None = None
) -> JournalRecord:
    for section in sections:
        if isinstance(section, Moves):
            item = replace(item, moved=tuple(_moved(names, section.seeks)))
        elif isinstance(section, Values):
            made = section.changes() if xid is None else [section.held(xid)]
            item = replace(item, changes=tuple(Change(*change) for change in made))
    return item


def _changes(
    source: Source, names: Names, item: JournalRecord, commit: CommitRecord
) -> JournalRecord:
    return replace(
        item,
        time_us=commit.time_us,
        first_id=commit.first_id,
        messages=sum(part.count for part in commit.parts),
        parts=tuple(_parts(source, names, commit, item.lsn)),
        reads=tuple(_reads(names, commit.reads)),
        entries=tuple(LedgerEntry(e.key, e.version) for e in commit.entries if not e.queue_id),
        requests=tuple(
            Request(e.queue_id, names.queues.get(e.queue_id), e.key, e.version)
            for e in commit.entries
            if e.queue_id
        ),
    )


def _reads(names: Names, runs: Sequence[Run]) -> Iterator[Read]:
    for queue_id, subscription_id, start, end in runs:
        yield Read(
            queue_id,
            names.queues.get(queue_id),
            subscription_id,
            names.subscriptions.get(subscription_id),
            start,
            end,
        )


def _moved(names: Names, seeks: Sequence[Seek]) -> Iterator[Moved]:
    for queue_id, subscription_id, position in seeks:
        yield Moved(
            queue_id,
            names.queues.get(queue_id),
            subscription_id,
            names.subscriptions.get(subscription_id),
            position,
        )


def _parts(source: Source, names: Names, commit: CommitRecord, lsn: int) -> Iterator[Part]:
    first_id = commit.first_id
    for part in commit.parts:
        place = source.place(part, lsn if part.kind == format.INLINE else 0)
        name, known_id = names.queues.get(part.queue_id), first_id or None
        yield Part(part.queue_id, name, part.count, known_id, part.charge, place)
        if first_id:  # a prepared transaction has no ids before it is committed
            first_id += part.count
