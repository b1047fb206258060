"""The kinds of sections, and how several stand in one record. Layout: `format`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from quire.block import EncodedBlock
from quire.engine.records import format
from quire.engine.records.commit_record import ID_AND_TIME_OFFSET, Part, attached_bytes, pack
from quire.engine.records.prepared_record import PrepareRecord
from quire.errors import StoreVersion

from .attachment import Attachment
from .decides import Decides
from .deliveries import Deliveries, Untouched
from .failures import Failures
from .held import Held
from .section import Section
from .seeks import Seeks
from .sequence_numbers import SequenceNumbers
from .values import Values

KINDS: Final[Mapping[int, type[Section]]] = {
    section.kind: section
    for section in (
        Seeks,
        Values,
        Attachment,
        Held,
        Decides,
        Deliveries,
        Failures,
        SequenceNumbers,
        Untouched,
    )
}


def pack_prepared(record: PrepareRecord) -> bytes:
    """The whole record of a prepared transaction, as checkpoints hold it."""
    more: list[Section] = [Values(record.sets)] if record.sets else []
    more.append(Held(record.xid, record.taken))
    attached = attached_bytes([(None, record.parts)])
    if attached:
        more.append(Attachment(record.attachment, attached))
    pieces = section_pieces([(section.kind, section.pack()) for section in more])
    parts: list[EncodedBlock | Part] = [*record.parts]  # which name their queues themselves
    packed, head, *_ = pack(0, [(_Any(), parts)], record.reads, record.entries, pieces)
    format.ID_AND_TIME.pack_into(head, ID_AND_TIME_OFFSET, 0, record.prepared_us)
    return b"".join(packed if isinstance(packed, tuple) else (packed,))


class _Any:
    durable: Any = None


def section_pieces(sections: Sequence[tuple[int, bytes | bytearray]]) -> list[bytearray | bytes]:
    pieces: list[bytearray | bytes] = []
    count = 0
    for kind, body in sections:
        count += 1
        pieces += (format.SECTION.pack(kind, 0, len(body)), body, bytes(-len(body) & 7))
    return [format.SECTIONS_HEADER.pack(count, 0), *pieces] if count else []


def read_sections(data: memoryview, where: str) -> tuple[Section, ...]:
    """Return the sections of a record, which may have more behind them.

    Raises ValueError and struct.error for contradictions, StoreVersion for a kind that only a newer
    release knows.
    """
    sections: dict[int, Section] = {}
    count, _ = format.SECTIONS_HEADER.unpack_from(data)
    at = format.SECTIONS_HEADER.size
    for _ in range(count):
        kind, _, length = format.SECTION.unpack_from(data, at)
        at += format.SECTION.size
        if at + length > len(data) or kind in sections:
            raise ValueError(f"a section of {length} bytes at {at}, of kind {kind}")
        if kind not in KINDS:
            raise StoreVersion(
                f"{where}: a section of kind {kind}, unknown to this release: use a newer one"
            )
        sections[kind] = KINDS[kind].unpack(data[at : at + length])
        at += (length + 7) & -8
    if not sections:
        raise ValueError("no sections")
    return tuple(sections.values())
