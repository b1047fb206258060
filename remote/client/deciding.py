"""Asking a store's owner to decide a prepared transaction. Nothing here is tied to a stream."""

from __future__ import annotations

from typing import Final, NamedTuple

from quire.errors import ConnectionLost
from quire.remote.wire.protocol import Decision, Header, field, state_of
from quire.reports.info import TransactionState

from .channel import StreamEnded
from .connection import OwnerConnection
from .request_outcomes import Request

LISTED: Final = "whether store.prepared.list() has it"


class Decided(NamedTuple):
    """The owner's answer on a transaction that it has decided."""

    number: int | None  # None: it was not prepared by a client of this owner
    state: TransactionState | None
    placed: Header
    committed: bool  # by this very request


def decide(
    connection: OwnerConnection, decision: Decision, xid: str, number: int | None = None
) -> Decided:
    """Have the owner decide the transaction. Raises OutcomeUnknown if it dies meanwhile.

    `number`: decide the transaction that was prepared under it, no other of the same xid.
    """
    try:
        channel = connection.borrow()
    except ConnectionLost as error:
        lost = ConnectionLost(
            f"{error}; what is prepared stays so: look at store.prepared.list(), and decide there"
        )
        lost.late = error.late
        raise lost from None
    try:
        answer = channel.request(
            {"op": decision.value, "arguments": {"xid": xid, "number": number}}
        )
    except StreamEnded as error:
        doing = f"{decision.value} of {xid!r}"
        raise connection.error_of(error, Request.DECISION, doing, LISTED) from None
    finally:
        connection.give_back(channel)
    result = field(answer[-1].header, "result", dict)
    if result.get("number") is None:
        return Decided(None, None, {}, False)
    return Decided(
        field(result, "number", int),
        state_of(result),
        field(result, "placed", dict),
        field(result, "committed", bool),
    )
