"""The section that decides a prepared transaction: it is committed, or rolled back.

Layout: `format`.
"""

from __future__ import annotations

import struct
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from quire.engine.records import format
from quire.errors import StoreCorrupt

from .held import xid_in
from .section import Folding, PendingSection, Stamp


class Decides(NamedTuple):
    """What the section says."""

    xid: str
    commit: bool
    messages: int  # in all parts of it

    @property
    def kind(self) -> int:
        return format.DECIDES

    @property
    def record_name(self) -> str:
        return "COMMIT_PREPARED" if self.commit else "ROLLBACK_PREPARED"

    def fold(self, fold: Folding, stamp: Stamp, where: str) -> None:
        fold.decide(self, stamp, where)

    def pack(self) -> bytes:
        """The section's body."""
        xid = self.xid.encode()
        return format.DECIDES_HEADER.pack(self.messages, len(xid), self.commit, 0) + xid


def unpack_decides(body: memoryview, where: str) -> Decides:
    """Read the section; `StoreCorrupt` for contradictions."""
    try:
        messages, length, commit, _ = format.DECIDES_HEADER.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable decision ({error})") from error
    return Decides(xid_in(body, format.DECIDES_HEADER.size, length, where), bool(commit), messages)


class Decided(Protocol):
    """What the store holds for the transaction (see `queues.prepared`)."""

    transaction_id: int

    @property
    def messages(self) -> int:
        """How many it puts."""


D = TypeVar("D", bound=Decided)


class DecisionOrder(Protocol[D]):
    """What is prepared, and is decided next."""

    def decide(self, xid: str, expected: D | None) -> D:
        """A decision takes its place. Raises TransactionNotFound."""

    def undecide(self, prepared: D) -> None:
        """It was not written."""


class DecidesSection(PendingSection, Generic[D]):
    """The same on its way into the journal. `expected`: this one only, not a later one of its xid.

    `changing` is held while the values change that it sets.
    """

    KIND: ClassVar[int] = format.DECIDES

    __slots__ = (
        "_changing", "_expected", "_fold", "_order", "_prepared", "_said", "_stamp", "body",
        "messages",
    )  # fmt: skip

    room = -1  # what it is about has its place already

    def __init__(
        self,
        order: DecisionOrder[D],
        changing: AbstractContextManager[Any],
        fold: Folding,
        said: Decides,
        expected: D | None,
    ) -> None:
        self._order = order
        self._changing = changing
        self._fold = fold
        self._said = said
        self._expected = expected
        self._prepared: D | None = None
        self._stamp = Stamp(0, 0, 0)
        self.body: bytearray = bytearray(said.pack())
        self.messages = 0

    def check(self) -> None:
        self._prepared = prepared = self._order.decide(self._said.xid, self._expected)
        self._said = said = self._said._replace(messages=prepared.messages)
        if said.commit:
            self.messages = said.messages

    def place(self, first_id: int, time_us: int) -> None:
        self.body[:] = self._said.pack()
        self._stamp = Stamp(0, first_id, time_us)

    def withdraw(self) -> None:
        if self._prepared is not None:
            self._order.undecide(self._prepared)
            self._prepared = None

    def apply(self, address: int) -> None:
        assert self._prepared is not None
        stamp = self._stamp._replace(address=address)
        with self._changing:
            self._fold.decide(self._said, stamp, "decision", self._prepared.transaction_id)
