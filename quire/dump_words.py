"""A dump's items in words: one line each, details below it, indented by four spaces.

- DW1: whatever names, keys and payloads hold, only printable characters come out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import singledispatch
from typing import Final

from quire import dump_items as items
from quire.dump_items import INDIRECT, OPEN, PREPARE
from quire.limits import FIELD_START_CHARACTERS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DETAIL: Final = "    "


def in_words(item: items.Item) -> list[str]:
    """The lines of an item."""
    return [line if line.isprintable() else ascii(line)[1:-1] for line in _lines(item)]


def number(value: int) -> str:
    """With spaces between thousands."""
    return f"{value:,}".replace(",", " ")


def count(value: int, noun: str) -> str:
    return f"{number(value)} {noun}" if value == 1 else f"{number(value)} {noun}s"


def time(time_us: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us} us since 1970"
    return f"{moment:%Y-%m-%d %H:%M:%S.%f} UTC"


def span(noun: str, start: int, messages: int) -> str:
    """Positions or ids, both ends named."""
    if messages == 1:
        return f"{noun} {start}"
    return f"{noun}s {start}-{start + messages - 1}"


def queue_name(queue_id: int, name: str | None) -> str:
    return f"queue #{queue_id}" if name is None else f"queue #{queue_id} {name!r}"


def place(where: items.Place) -> str:
    if where.where == "ltds":
        return f"INDIRECT to {where.file}"
    size = count(where.bytes, "byte")
    if where.where == "journal":
        return f"inline in the journal at LSN {where.address or 0:#x}, {size}"
    return f"external: {where.file} page {where.page}, {size}"


@singledispatch
def _lines(item: object) -> Iterator[str]:
    raise TypeError(f"no item: {item!r}")


@_lines.register
def _store(item: items.StoreItem) -> Iterator[str]:
    yield (
        f"store {item.path!r}: id {item.store_id}, pages of {number(item.page_size)} bytes,"
        f" journal segments of {number(item.segment_bytes)} bytes"
    )


@_lines.register
def _checkpoint(item: items.CheckpointItem) -> Iterator[str]:
    yield (
        f"checkpoint {item.file}: the state at LSN {item.lsn:#x}; recovery reads the journal from"
        f" LSN {item.restart_lsn:#x}"
    )
    yield (
        f"{_DETAIL}{count(item.queues, 'queue')}, ledger of {number(item.ledger_entries)},"
        f" {count(item.large_files, 'large transaction')};"
        f" {count(item.data_files, 'data file')}: {count(item.data_pages, 'page')},"
        f" {number(item.free_pages)} free"
    )
    yield (
        f"{_DETAIL}next message id {item.next_id}, last commit {time(item.last_time_us)},"
        f" store made {time(item.created_us)}"
    )


@_lines.register
def _journal(item: items.JournalItem) -> Iterator[str]:
    kinds = ", ".join(f"{number(n)} {kind}" for kind, n in sorted(item.records.items()))
    yield (
        f"journal: {count(item.segments, 'segment')}, LSN {item.first_lsn:#x} to"
        f" {item.end_lsn:#x}, {count(item.groups, 'group')}, records of"
        f" {count(item.record_bytes, 'byte')}: {kinds or 'none'}"
    )


@_lines.register
def _record(item: items.JournalRecord) -> Iterator[str]:
    words = [f"LSN {item.lsn:#x}  {item.name}"]
    if item.transaction:
        words.append(f"transaction {item.transaction}")
    if item.time_us is not None:
        words.append(time(item.time_us))
    if item.xid is not None:
        words.append(f"xid {item.xid!r}")
    if item.messages:
        words.append(_messages(item.messages, item.first_id))
    if item.name == "GENERATION":
        words.append(f"the store was opened, generation {item.generation}")
    words.append(count(item.bytes, "byte"))
    yield ", ".join(words)
    for change in item.changes:
        fields = (f", {name} {_brief(value)}" for name, value in (change.body or {}).items())
        verb = "delete" if change.body is None else "put"
        yield f"{_DETAIL}{verb} {change.type} #{change.key}{''.join(fields)}"
    for part in item.parts:
        yield _DETAIL + _part(part)
    verb = "is given" if item.name == "HANDED_OUT" else "has read"
    for read in item.reads:
        positions = span("position", read.start, max(read.end - read.start, 1))
        yield f"{_DETAIL}{_reader(read)} {verb} {positions}"
    for moved in item.moved:
        yield f"{_DETAIL}{_reader(moved)} goes to position {moved.position}"
    for entry in item.entries:
        yield from (_DETAIL + line for line in _ledger(entry))
    for request in item.requests:
        where = queue_name(request.queue_id, request.queue)
        yield f"{_DETAIL}{where}: message {request.index} has request id {request.request_id!r}"


def _brief(value: object) -> str:
    """A field of an entry; a long one, as a state's value is, is cut off."""
    text, most = repr(value), FIELD_START_CHARACTERS
    return text if len(text) <= most else f"{text[:most]}... ({count(len(text), 'character')})"


def _part(part: items.Part) -> str:
    return (
        f"{queue_name(part.queue_id, part.queue)}: {_messages(part.messages, part.first_id)},"
        f" {place(part.place)}"
    )


def _messages(messages: int, first_id: int | None) -> str:
    ids = "" if first_id is None else ", " + span("id", first_id, messages)
    return count(messages, "message") + ids


def _reader(read: items.Read | items.Moved) -> str:
    reader = f"subscription #{read.subscription_id}"
    if read.subscription:
        reader += f" {read.subscription!r}"
    return f"{queue_name(read.queue_id, read.queue)}: {reader}"


@_lines.register
def _ledger(item: items.LedgerEntry) -> Iterator[str]:
    yield f"ledger {item.key!r} = {item.version}"


@_lines.register
def _queue(item: items.QueueItem) -> Iterator[str]:
    words = [f"{queue_name(item.queue_id, item.name)}: {item.kind or 'its definition is lost'}"]
    if item.capacity is not None:
        words.append(f"capacity {number(item.capacity)} bytes")
    if item.max_messages is not None:
        words.append(f"at most {count(item.max_messages, 'message')}")
    least = "" if item.certain else "at least "
    words.append(f"{least}{count(item.end_position, 'message')} committed")
    words.append(f"{number(item.released)} of them read by all")
    words.append(count(item.record_pages, "record page"))
    if item.data_file is not None:
        words.append(f"in data file {item.data_file}")
    if item.request_ids:
        words.append(f"keeps {count(item.request_ids, 'request id')}")
    if item.created_us is not None:
        words.append(f"made {time(item.created_us)}")
    yield ", ".join(words)


@_lines.register
def _subscription(item: items.SubscriptionItem) -> Iterator[str]:
    name = f" {item.name!r}" if item.name else " (built in)"
    yield (
        f"{_DETAIL}subscription #{item.subscription_id}{name}: has read all below position"
        f" {item.position}, {number(item.read)} in all, {number(item.pending)} to read"
    )


@_lines.register
def _prepared(item: items.PreparedItem) -> Iterator[str]:
    queues = ", ".join(map(repr, item.queues)) or "no queue"
    yield (
        f"in doubt: xid {item.xid!r}, prepared {time(item.prepared_us)},"
        f" {count(item.messages, 'message')} for {queues}, {count(item.reads, 'message')} taken"
    )


@_lines.register
def _open(item: items.OpenItem) -> Iterator[str]:
    queues = ", ".join(map(repr, item.queues)) or "no queue"
    yield (
        f"open: transaction {item.transaction}, since {time(item.opened_us)},"
        f" {count(item.messages, 'message')} of {count(item.bytes, 'byte')} for {queues},"
        f" {count(item.in_flight, 'message')} in flight"
    )


@_lines.register
def _queue_record(item: items.QueueRecord) -> Iterator[str]:
    words = [item.name]
    if item.messages:
        words.insert(0, _position(item))
    if item.transaction:
        words.append(f"transaction {item.transaction}")
    if item.xid is not None:
        words.append(f"xid {item.xid!r}")
    if item.messages:
        words.append(_messages(item.messages, item.first_id))
    yield ", ".join([*words, *_when(item), *_worth(item), *_told(item)])


def _position(item: items.QueueRecord) -> str:
    if item.position is None:
        return "no position yet" if item.open or item.xid is not None else "no position"
    where = span("position", item.position, item.messages)
    return where if item.certain else f"{where} or later"


def _when(item: items.QueueRecord) -> Iterator[str]:
    if item.time_us is None:
        return
    if item.name == PREPARE:
        yield f"in doubt since {time(item.time_us)}"
    elif item.name != OPEN:
        yield f"committed {time(item.time_us)}"


def _worth(item: items.QueueRecord) -> Iterator[str]:
    if item.place is not None:
        yield f"in {item.place.file}" if item.name == INDIRECT else place(item.place)
    if item.charge is not None:
        yield f"counts {count(item.charge, 'byte')}"
    if item.released:
        some = "" if item.released == item.messages else f"{number(item.released)} of them "
        yield f"{some}read by all"


def _told(item: items.QueueRecord) -> Iterator[str]:
    if item.record_file is not None:
        yield f"listed in {item.record_file} page {item.record_page}"
    elif item.lsn is not None and not item.messages:
        yield f"told by the record at LSN {item.lsn:#x}"
    elif item.open and not item.messages:
        yield "still open"


@_lines.register
def _message(item: items.MessageItem) -> Iterator[str]:
    fields = "".join(f", {name} {value!r}" for name, value in item.fields.items())
    more = "..." if item.payload_bytes > len(item.payload_start) else ""
    read = ", read by all" if item.released else ""
    yield (
        f"{_DETAIL}message at position {item.position}, id {item.id}, {time(item.time_us)}"
        f"{fields}{read}, {count(item.payload_bytes, 'byte')}: {item.payload_start!r}{more}"
    )


@_lines.register
def _pages(item: items.PagesItem) -> Iterator[str]:
    uses = {
        "header": "the file's header",
        "records": "record page",
        "block": "block",
        "prepared": f"messages of the prepared transaction {item.xid!r}",
        "open": f"messages of the open transaction {item.transaction}",
        "free": "free",
        "other": "in no queue: held by an open transaction or a checkpoint, or not yet given back",
    }
    words = f"{item.file} {span('page', item.first, item.pages)}: {uses[item.use]}"
    if item.queue_id is not None:
        words += f" of {queue_name(item.queue_id, item.queue)},"
        if item.position is None:
            words += f" {count(item.messages or 0, 'message')}"
        else:
            words += f" {span('position', item.position, item.messages or 1)}"
    yield words


@_lines.register
def _file(item: items.FileItem) -> Iterator[str]:
    if item.messages is None:
        held = "not finished, or damaged"
    else:
        held = count(item.messages, "message")
    if item.queue is None:
        whose = "of no committed transaction"
    elif item.xid is None:
        whose = f"of queue {item.queue!r}"
    else:
        whose = f"of the prepared transaction {item.xid!r} for queue {item.queue!r}"
    yield f"{item.file}: {count(item.bytes, 'byte')}, {held}, {whose}"


@_lines.register
def _finding(item: items.Finding) -> Iterator[str]:
    where = f"{item.file}: " if item.file else ""
    if item.file and item.offset is not None:
        where = f"{item.file}, offset {item.offset}: "
    if item.lsn is not None:
        where += f"LSN {item.lsn:#x}: "
    lost = f"; lost: {item.lost}" if item.lost else ""
    yield f"{'DAMAGE' if item.damage else 'note'}: {where}{item.message}{lost}"
