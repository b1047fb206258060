"""Asking a store's owner to decide a prepared transaction. Nothing here is tied to a stream."""

from __future__ import annotations

from typing import Any, Final

from quire.errors import ConnectionLost, OutcomeUnknown

from .channel import StreamEnded
from .connection import Connection
from .protocol import field

COMMIT: Final = "commit_prepared"
ROLLBACK: Final = "rollback_prepared"


def decide(connection: Connection, op: str, xid: str, number: int | None = None) -> dict[str, Any]:
    """What the owner tells of the transaction. Raises OutcomeUnknown if it dies meanwhile.

    `number`: decide the transaction that was prepared under it, no other of the same xid.
    """
    try:
        channel = connection.borrow()
    except ConnectionLost as error:
        raise ConnectionLost(
            f"{error}; what is prepared stays so: look at recover(), and decide there"
        ) from None
    try:
        answer = channel.request({"op": op, "arguments": {"xid": xid, "number": number}})
    except StreamEnded as error:
        lost = connection.lose(str(error))
        raise (outcome_unknown(op, xid, error) if error.sent else lost) from None
    finally:
        connection.give_back(channel)
    return field(answer[-1].header, "result", dict)


def outcome_unknown(doing: str, xid: str, error: StreamEnded) -> OutcomeUnknown:
    """The owner's end came before its answer."""
    return OutcomeUnknown(
        f"the owner of the store died during {doing} of {xid!r} ({error}): open the store again and"
        " look whether recover() lists it"
    )
