"""The calls that a client may make, by their names, and how the owner answers them.

The rows are those of the interface (`quire.calls.call_table`): of `Store`, of what it has by
subject, and of what joined stores need besides.

NC1. Whatever a client may request is a row of `REQUESTS`: a frame without a header by its kind, the
    others by their kind and operation. What has no row is refused. Only what is the connection's
    has none: its hello and PING.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from quire.arguments import check_wait
from quire.batches.delivered_messages import Messages
from quire.calls.call_table import CallRow, Facts, calls_of, change
from quire.errors import RemoteError
from quire.interface.integration import Integration, TransactionIntegration
from quire.interface.namespaces import Admin, Cron, Delayed, Listeners, Prepared, States
from quire.interface.redriving import Redrives
from quire.interface.starts import Start
from quire.interface.store import Store
from quire.interface.transaction import Streaming, Transaction
from quire.messages.message import Message
from quire.messages.payload_reader import ReadChunk
from quire.reports.info import SubscriptionInfo

from .delivered_messages import (
    Answer,
    message_answer,
    messages_answers,
    read_message,
    read_messages,
)
from .payload_streams import ABANDON, FINISH, PUT_CHUNK, PUT_WHOLE, READ_CHUNK, Chunks
from .protocol import (
    ADD,
    AWAIT,
    CALL,
    CANCEL,
    COMMIT,
    GET,
    PUT,
    ROLLBACK,
    STEP,
    TELL,
    Decision,
    Frame,
    Header,
)
from .values import read


class HoldingStore(Protocol):
    """A store whose subscriptions clients may hold."""

    @change(again=True, held=True, needs="get sources:starts")
    def subscribe_for(
        self,
        holder: object,
        subscription: str | None,
        starts: Mapping[str, Start],
        exclusive: bool | None,
        durable: bool | None,
        where: str | None = None,
    ) -> list[SubscriptionInfo]:
        """`subscribe_many`, held by this client."""

    @change(again=True, held=True, needs="get pairs:names")
    def claim_for(self, holder: object, names: Iterable[tuple[str, str]]) -> None:
        """They are this client's, from the owner before."""

    def let_go_of(self, holder: object) -> None:
        """The client is gone."""


NAMESPACES: Final = {
    "admin": Admin, "cron": Cron, "delayed": Delayed, "states": States, "prepared": Prepared,
    "listeners": Listeners, "integration": Integration,
}  # fmt: skip
_CALLS: Final = [
    *calls_of(Store),
    *calls_of(HoldingStore),
    *calls_of(Redrives),
    *(call for path, interface in NAMESPACES.items() for call in calls_of(interface, path)),
]
CALLS: Final[Mapping[str, CallRow]] = {call.op: call for call in _CALLS}
STEPS: Final[Mapping[str, CallRow]] = {
    call.op: call
    for call in (
        *calls_of(Transaction),
        *calls_of(Streaming),
        *calls_of(TransactionIntegration, "integration"),
    )
}
"""The calls of a transaction, which are sent with its number."""

FAILED: Final = "failed"  # which a store has as a property
_GETS: Final = ("get", "get_many")  # of whatever comes next, unless they choose
BEGIN: Final = "begin"  # by TELL


def _row(
    method: Callable[..., Any], path: str = "", *, changes: bool = False, needs: str = ""
) -> CallRow:
    """The row of a method that has an encoding of its own."""
    return CallRow(method, Facts(changes, False, needs=needs), path)


_PUT: Final = _row(Transaction.put, needs="put queue:queue, get reply_to:reply_to")
_COMMIT: Final = _row(Transaction.commit, changes=True)
_ROLLBACK: Final = _row(Transaction.rollback)
_DECIDES: Final = "admin store"
REQUESTS: Final[Mapping[tuple[int, str], CallRow]] = {
    **{(CALL, op): row for op, row in CALLS.items()},
    (CALL, FAILED): _row(vars(Store)[FAILED].fget),
    (CALL, READ_CHUNK): _row(Chunks.chunk),
    (CALL, Decision.COMMIT.value): _row(Prepared.commit, "prepared", changes=True, needs=_DECIDES),
    (CALL, Decision.ROLLBACK.value): _row(
        Prepared.rollback, "prepared", changes=True, needs=_DECIDES
    ),
    **{(STEP, op): row for op, row in STEPS.items()},
    **dict.fromkeys([(STEP, op) for op in (PUT_CHUNK, PUT_WHOLE, FINISH, ABANDON)], _PUT),
    **dict.fromkeys([(STEP, op) for op in ("put_once", "puts")], _PUT),
    (STEP, "put_many_once"): _row(Transaction.put_many, needs="put queue:queue"),
    (STEP, "commit"): _COMMIT,
    (STEP, "prepare"): _row(Transaction.prepare, changes=True, needs=_DECIDES),
    (TELL, BEGIN): _row(Store.transaction),
    (PUT, ""): _row(Store.put, changes=True, needs="put queue:queue"),
    (ADD, ""): _PUT,
    (GET, ""): STEPS["get"],
    (COMMIT, ""): _COMMIT,
    (ROLLBACK, ""): _ROLLBACK,
    (CANCEL, ""): _ROLLBACK,
    (AWAIT, ""): _row(Integration.when_ready, "integration", needs="browse watched:source"),
}
"""Each kind of frame with each operation that it may have (NC1)."""


def request_row(kind: int, op: object) -> CallRow:
    """Return the row of a request with a header. Raises RemoteError if there is none."""
    row = REQUESTS.get((kind, op)) if isinstance(op, str) and op else None
    if row is None:
        raise RemoteError(f"the owner of the store knows no operation {op!r:.100}")
    return row


def changes(op: str) -> bool:
    """Return True if a call changes something, so that it matters if it took effect."""
    return request_row(CALL, op).facts.changes


def arguments_of(header: Header) -> dict[str, Any]:
    """Return the arguments of a request, by name. Raises RemoteError."""
    arguments = header.get("arguments", {})
    if not isinstance(arguments, dict) or not all(isinstance(name, str) for name in arguments):
        raise RemoteError("a message's arguments are no map with names")
    return arguments


def answer_call(store: Store, op: str, header: Header, holder: object) -> Iterator[Answer]:
    """Make a call and encode its result. `holder`: the client, for what ends with it."""
    if op == FAILED:
        yield {"result": store.failed}, ()
        return
    call = CALLS[op]
    arguments = arguments_of(header)
    values = call.decode_arguments(
        {**arguments, "holder": holder} if call.facts.held else arguments
    )
    yield from encode_result(getattr(call.target(store), call.name)(**values))


class WaitingStep(NamedTuple):
    """A get that found nothing, and waits for the next message of a source."""

    source: str
    seconds: float
    take: Callable[[str], object]  # without waiting, from what is called so now
    found: object  # nothing: None, or no messages


def answer_step(
    transaction: Transaction, call: CallRow, header: Header, waiting: Callable[[], Any]
) -> object:
    """Make a step of a transaction; a `WaitingStep` where it waits for a message, whichever it is.

    `waiting`: a block in which it waits for others.
    """
    values = call.decode_arguments(arguments_of(header))
    step = getattr(call.target(transaction), call.name)
    seconds = values.pop("timeout", 0.0) if call.facts.waits else 0.0
    if seconds == 0.0:
        return step(**values)
    if call.op in _GETS and values.get("id") is None and values.get("where") is None:
        seconds, source = check_wait(seconds), values.pop("source")
        found = step(source, **values)
        return found or WaitingStep(source, seconds, partial(step, **values), found)
    with ExitStack() as block:
        try:
            block.enter_context(waiting())
        except RemoteError:  # so many wait that this one may not: it gets what is there
            found = step(**values)
            if found or found is False:
                return found
            raise
        return step(**values, timeout=seconds)


def encode_result(found: object) -> Iterator[Answer]:
    """The answer that carries a result."""
    if isinstance(found, Messages):
        yield from messages_answers(found)
    elif isinstance(found, Message):
        yield message_answer(found)
    else:
        yield {"result": found}, ()


def read_answer(call: CallRow, frames: Sequence[Frame], read_chunk: ReadChunk) -> Any:
    """Return the result that such an answer carries. Raises RemoteError."""
    if call.result is Messages:
        return read_messages(frames, read_chunk)
    if call.result == Message | None:
        return read_message(frames[0], read_chunk)
    return read(call.result, frames[-1].header.get("result"))
