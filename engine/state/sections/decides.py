"""The section that decides a prepared transaction: it is committed, or rolled back.

Layout: `format`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Self

from msgspec.structs import replace

from quire.engine.records import format

from .held import Holding, HoldingOrder, xid_in
from .section import Folding, PendingSection, Section, Stamp


class Decides(Section, frozen=True):
    """What the section says."""

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


class DecidesSection(PendingSection):
    """A decision on its way into the journal. `expected`: of this one, not a later one of its xid.

    `changing` is held while the values change that it sets.
    """

    __slots__ = ("_changing", "_expected", "_order", "_prepared", "_stamp", "messages")

    room = -1  # what it is about has its place already
    said: Decides
    body: bytearray

    def __init__(
        self,
        order: HoldingOrder,
        changing: AbstractContextManager[Any],
        fold: Folding,
        said: Decides,
        expected: Holding | None,
    ) -> None:
        super().__init__(fold, said)
        self._order = order
        self._changing = changing
        self._expected = expected
        self._prepared: Holding | None = None
        self._stamp = Stamp(0, 0, 0)
        self.messages = 0

    def check(self) -> None:
        self._prepared = prepared = self._order.decide(self.said.xid, self._expected)
        self.said = said = replace(self.said, messages=prepared.record.messages)
        if said.commit:
            self.messages = said.messages

    def place(self, first_id: int, time_us: int) -> None:
        self.body[:] = self.said.pack()
        self._stamp = Stamp(0, first_id, time_us)

    def withdraw(self) -> None:
        if self._prepared is not None:
            self._order.undecide(self._prepared)
            self._prepared = None

    def apply(self, address: int) -> None:
        assert self._prepared is not None
        stamp = self._stamp._replace(address=address)
        with self._changing:
            self._fold.decide(self.said, stamp, "decision", self._prepared.transaction_id)
