"""The section that names a transaction's attachment: its blocks that are on data pages, as one.

The parts say where in it each block is; the record's local tail says where this machine has it.
Layout: `format`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from quire.engine.records import format
from quire.errors import StoreCorrupt

from .section import Folding, Stamp


class Attachment(NamedTuple):
    """What the section says."""

    attachment_id: int  # random; 0: an earlier release prepared it
    attachment_bytes: int

    @property
    def kind(self) -> int:
        return format.ATTACHMENT

    @property
    def record_name(self) -> str:
        return ""

    def pack(self) -> bytes:
        """The section's body."""
        return format.ATTACHMENT_BODY.pack(*self)

    @property
    def bytes(self) -> int:
        """What the body takes."""
        return format.ATTACHMENT_BODY.size

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        """It only gives a name."""


def unpack_attachment(body: memoryview, where: str) -> Attachment:
    """Read the section; `StoreCorrupt` for contradictions."""
    try:
        return Attachment(*format.ATTACHMENT_BODY.unpack(body))
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable attachment ({error})") from error
