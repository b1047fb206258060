"""The section that names a transaction's attachment: its blocks that are on data pages, as one.

The parts say where in it each block is; the record's local tail says where this machine has it.
Layout: `format`.
"""

from __future__ import annotations

from typing import Self

from quire.engine.records import format

from .section import Section


class Attachment(Section, frozen=True):
    """The id and size of an attachment. The fold, which has the parts, gives a name only."""

    kind = format.ATTACHMENT

    attachment_id: int  # random
    attachment_bytes: int

    def pack(self) -> bytes:
        return format.ATTACHMENT_BODY.pack(self.attachment_id, self.attachment_bytes)

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        return cls(*format.ATTACHMENT_BODY.unpack(body))
