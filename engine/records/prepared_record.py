"""The records of two-phase commit: PREPARE and the two decisions. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from quire.block import EncodedBlock
from quire.errors import StoreCorrupt
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES

from . import format
from .commit_record import Entry, Part, Read, ReadMore, commit_kind, pack, unpack


class PrepareRecord(NamedTuple):
    """What a PREPARE record says. `reads` begins with the `taken` ones, which are in flight."""

    xid: str
    taken: int
    prepared_us: int
    parts: Sequence[Part]
    reads: Sequence[Read]
    entries: Sequence[Entry]
    sections: Sequence[Any] = ()  # of the record itself; what they hold is in the state


class _Any:
    durable: Any = None


class DecisionRecord(NamedTuple):
    """What COMMIT_PREPARED and ROLLBACK_PREPARED say."""

    xid: str
    first_id: int
    time_us: int
    messages: int


def pack_prepare(
    transaction_id: int, prepared: PrepareRecord, more: Sequence[bytes | bytearray] = ()
) -> tuple[bytes | bytearray, ...]:
    """The whole record. No part is inline: checkpoints need not move the blocks.

    `more`: as for `pack`.
    """
    xid = prepared.xid.encode()
    parts: list[EncodedBlock | Part] = [*prepared.parts]  # which name their queues themselves
    _, head, *_ = pack(transaction_id, [(_Any(), parts)], prepared.reads, prepared.entries)
    format.ID_AND_TIME.pack_into(head, RECORD_HEADER_BYTES, 0, prepared.prepared_us)
    body = b"".join(
        (
            format.PREPARE_HEADER.pack(len(xid), 0, prepared.taken),
            _padded(xid),
            memoryview(head)[RECORD_HEADER_BYTES:],
        )
    )
    length = RECORD_HEADER_BYTES + len(body) + sum(map(len, more))
    has_requests = commit_kind(prepared.entries) == format.COMMIT_ONCE
    kind = format.PREPARE_ONCE if has_requests else format.PREPARE
    if more:
        kind = format.PREPARE_MORE
    return (RECORD_HEADER.pack(length, kind, 0, transaction_id) + body, *more)


def unpack_prepare(
    body: memoryview, where: str, read_more: ReadMore | None = None
) -> PrepareRecord:
    """Read the record's body; `StoreCorrupt` for contradictions."""
    try:
        length, _, taken = format.PREPARE_HEADER.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable prepare record ({error})") from error
    start = format.PREPARE_HEADER.size
    xid = _xid(body, start, length, where)
    record = unpack(body[start + len(_padded(xid.encode())) :], where, read_more)
    if (
        taken > len(record.reads)
        or any(part.kind == format.INLINE for part in record.parts)
        or any(read.start >= read.end for read in record.reads[:taken])
    ):
        raise StoreCorrupt(f"{where}: contradictory prepare record")
    _, time_us, parts, reads, entries, sections = record
    return PrepareRecord(xid, taken, time_us, parts, reads, entries, sections)


def pack_decision(kind: int, xid: str) -> bytearray:
    """The whole record; `fill_decision` does the rest when its place in the order is known."""
    name = xid.encode()
    body = format.DECISION_HEADER.pack(0, 0, 0, len(name), 0) + _padded(name)
    return bytearray(RECORD_HEADER.pack(RECORD_HEADER_BYTES + len(body), kind, 0, 0) + body)


def fill_decision(record: bytearray, first_id: int, time_us: int, messages: int) -> None:
    format.DECISION_FILLED.pack_into(record, RECORD_HEADER_BYTES, first_id, time_us, messages)


def unpack_decision(body: memoryview, where: str) -> DecisionRecord:
    """Read the record's body; `StoreCorrupt` for contradictions."""
    try:
        first_id, time_us, messages, length, _ = format.DECISION_HEADER.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable decision ({error})") from error
    xid = _xid(body, format.DECISION_HEADER.size, length, where)
    return DecisionRecord(xid, first_id, time_us, messages)


def _xid(body: memoryview, start: int, length: int, where: str) -> str:
    name = body[start : start + length]
    try:
        if len(name) == length > 0:
            return str(name, "utf-8")
    except ValueError:
        pass
    raise StoreCorrupt(f"{where}: unreadable xid")


def _padded(name: bytes) -> bytes:
    return name + bytes(-len(name) & 7)
