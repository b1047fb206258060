"""The kinds of sections, and how several stand in one record. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from quire.block import EncodedBlock
from quire.engine.records import format
from quire.engine.records.commit_record import (
    ID_AND_TIME_OFFSET,
    Part,
    attached_bytes,
    entry_bytes,
    pack,
)
from quire.engine.records.local_tail import tail_bytes
from quire.engine.records.prepared_record import PrepareRecord
from quire.errors import StoreCorrupt, StoreVersion
from quire.journal.format import RECORD_HEADER_BYTES

from .attachment import Attachment, unpack_attachment
from .decides import unpack_decides
from .deliveries import unpack_deliveries
from .failures import unpack_failures
from .held import Held, unpack_held
from .moves import unpack_moves
from .numbers import unpack_numbers
from .section import PendingSection, Section
from .values import Values, pack_values, unpack_values

KINDS: Final[Mapping[int, Callable[[memoryview, str], Section]]] = {
    format.MOVES: unpack_moves,
    format.VALUES: unpack_values,
    format.ATTACHMENT: unpack_attachment,
    format.HELD: unpack_held,
    format.DECIDES: unpack_decides,
    format.DELIVERIES: unpack_deliveries,
    format.FAILURES: unpack_failures,
    format.NUMBERS: unpack_numbers,
}


def pack_sections(
    sections: Sequence[PendingSection], attachment: Attachment | None = None
) -> list[bytearray | bytes]:
    """The pieces of a record for those that have bytes: none if none has."""
    bodies = [(section.KIND, section.body) for section in sections if section.body]
    if attachment is not None:
        bodies.append((format.ATTACHMENT, attachment.pack()))
    return _pieces(bodies)


def pack_prepared(record: PrepareRecord) -> bytes:
    """The whole record of a prepared transaction, as checkpoints hold it."""
    more: list[tuple[int, bytes | bytearray]] = []
    if record.sets:
        more.append((format.VALUES, pack_values(record.sets)[0]))
    more.append((format.HELD, Held(record.xid, record.taken).pack()))
    attached = attached_bytes([(None, record.parts)])
    if attached:
        more.append((format.ATTACHMENT, Attachment(record.attachment, attached).pack()))
    parts: list[EncodedBlock | Part] = [*record.parts]  # which name their queues themselves
    packed, head, *_ = pack(0, [(_Any(), parts)], record.reads, record.entries, _pieces(more))
    format.ID_AND_TIME.pack_into(head, ID_AND_TIME_OFFSET, 0, record.prepared_us)
    return b"".join(packed if isinstance(packed, tuple) else (packed,))


def prepared_bytes(record: PrepareRecord) -> int:
    """What that takes."""
    sections = Held(record.xid, record.taken), Values(record.sets), Attachment(0, 0)
    size = RECORD_HEADER_BYTES + format.COMMIT_HEADER.size + format.SECTIONS_HEADER.size
    size += format.PART.size * len(record.parts) + format.READ.size * len(record.reads)
    size += sum([entry_bytes(entry.key) for entry in record.entries])
    size += tail_bytes(len(record.parts))
    return size + sum([format.SECTION.size + (each.bytes + 7 & -8) for each in sections])


class _Any:
    durable: Any = None


def _pieces(sections: Sequence[tuple[int, bytes | bytearray]]) -> list[bytearray | bytes]:
    pieces: list[bytearray | bytes] = []
    count = 0
    for kind, body in sections:
        count += 1
        pieces += (format.SECTION.pack(kind, 0, len(body)), body, bytes(-len(body) & 7))
    return [format.SECTIONS_HEADER.pack(count, 0), *pieces] if count else []


def read_sections(data: memoryview, where: str) -> tuple[Section, ...]:
    """What they say; behind them the record may have more.

    Raises StoreCorrupt, and StoreVersion for a kind that only a newer release knows.
    """
    sections: list[Section] = []
    try:
        count, _ = format.SECTIONS_HEADER.unpack_from(data)
        at = format.SECTIONS_HEADER.size
        for _ in range(count):
            kind, _, length = format.SECTION.unpack_from(data, at)
            at += format.SECTION.size
            if at + length > len(data):
                raise ValueError(f"a section of {length} bytes at {at}")
            read = KINDS.get(kind)
            if read is None:
                raise StoreVersion(
                    f"{where}: a section of kind {kind}, unknown to this release: use a newer one"
                )
            sections.append(read(data[at : at + length], where))
            at += (length + 7) & -8
    except (struct.error, ValueError) as error:
        raise StoreCorrupt(f"{where}: unreadable sections ({error})") from error
    if not sections or len({section.kind for section in sections}) != len(sections):
        raise StoreCorrupt(f"{where}: contradictory sections")
    return tuple(sections)
