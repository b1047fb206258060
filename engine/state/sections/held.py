"""The section of a transaction that is prepared: it takes effect once it is decided.

Its record has all its parts, on pages and in files, its reads and its entries. Layout: `format`.
"""

from __future__ import annotations

from typing import Self

from quire.engine.records import format
from quire.engine.records.commit_record import CommitRecord
from quire.engine.records.prepared_record import PrepareRecord

from .attachment import Attachment
from .section import Folding, Section, Stamp
from .values import Values

_HOLDABLE = (format.ATTACHMENT, format.HELD, format.VALUES)


class Held(Section, frozen=True):
    """The content of the section; the whole record is folded, as `Prepares`."""

    kind = format.HELD
    names = ("PREPARE",)

    xid: str
    taken: int  # so many of the reads, the first ones, are in flight

    def pack(self) -> bytes:
        xid = self.xid.encode()
        return format.HELD_HEADER.pack(len(xid), 0, self.taken) + xid

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        length, _, taken = format.HELD_HEADER.unpack_from(body)
        return cls(xid_in(body, format.HELD_HEADER.size, length), taken)

    def checked(self, record: CommitRecord) -> CommitRecord:
        """The record that it stands in. Raises ValueError for contradictions."""
        if (
            self.taken > len(record.reads)
            or any(part.kind == format.INLINE for part in record.parts)
            or any(read.start >= read.end for read in record.reads[: self.taken])
            or any(section.kind not in _HOLDABLE for section in record.sections)
        ):
            raise ValueError("it is not of a prepared transaction")
        return record

    def record(self, record: CommitRecord) -> PrepareRecord:
        """Return the part of its record that the state keeps."""
        values: Values | None = record.section(format.VALUES)
        attachment: Attachment | None = record.section(format.ATTACHMENT)
        return PrepareRecord(
            self.xid, self.taken, record.time_us, record.parts, record.reads, record.entries,
            () if values is None else values.sets,
            0 if attachment is None else attachment.attachment_id,
        )  # fmt: skip


class Prepares(Section, frozen=True):
    """A record with that section, as it is folded: nothing of it takes effect before a decision."""

    kind = format.HELD

    record: PrepareRecord

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        fold.prepare(self.record, where)


def xid_in(body: memoryview, start: int, length: int) -> str:
    """The xid at that place. Raises ValueError."""
    name = body[start : start + length]
    if not len(name) == length > 0:
        raise ValueError(f"an xid of {len(name)} bytes, not {length}")
    return str(name, "utf-8")
