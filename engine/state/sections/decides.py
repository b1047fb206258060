"""The section that decides a prepared transaction: it is committed, or rolled back.

Layout: `format`.
"""

from __future__ import annotations

from typing import Self

from quire.engine.records import format

from .held import xid_in
from .section import Folding, Section, Stamp


class Decides(Section, frozen=True):
    """The decision on a prepared transaction."""

    kind = format.DECIDES
    names = ("COMMIT_PREPARED", "ROLLBACK_PREPARED")

    xid: str
    commit: bool
    messages: int  # in all parts of it

    @property
    def record_name(self) -> str:
        return self.names[0 if self.commit else 1]

    def pack(self) -> bytearray:
        xid = self.xid.encode()
        header = format.DECIDES_HEADER.pack(self.messages, len(xid), self.commit, 0)
        return bytearray(header + xid)

    @classmethod
    def unpack(cls, body: memoryview) -> Self:
        messages, length, commit, _ = format.DECIDES_HEADER.unpack_from(body)
        return cls(xid_in(body, format.DECIDES_HEADER.size, length), bool(commit), messages)

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        fold.decide(self, stamp, where)
