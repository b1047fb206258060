"""Messages on their way from one queue to another: what they keep, and what they get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from quire.arguments import are_several, split_source
from quire.definitions.row_schema import META
from quire.errors import InvalidArgument
from quire.libraries import pa
from quire.limits import MAX_ATTRIBUTES, MAX_ATTRIBUTES_BYTES
from quire.messages import message_schema, message_types, payload_writer, streamed_message
from quire.messages.message import SETTABLE, Message, check_message
from quire.messages.typed_message import TypedMessage, content_of
from quire.moments import Duration

from . import delivered_messages

if TYPE_CHECKING:
    from quire.messages.message_id import MessageId, MessageIds
    from quire.messages.payload_writer import Sink

    from .delivered_messages import Messages

OWN_PREFIX: Final = "quire."
"""The beginning of the attributes that a message has from Quire."""
QUEUE: Final = "quire.queue"
SUBSCRIPTION: Final = "quire.subscription"
DELIVERIES: Final = "quire.deliveries"
TIME: Final = "quire.time"

MOVED: Final = "moved"

_KEPT: Final = (*SETTABLE, "payload")


class Moving(Protocol):
    """A transaction, as far as it is needed here.

    What it puts by these is there already: its header is taken as it is, whatever the queue obeys.
    """

    @property
    def state(self) -> str:
        """The state, as of a transaction."""

    def get_many(
        self,
        source: str,
        max_messages: int = 1000,
        timeout: Duration | None = 0.0,
        *,
        where: Any = None,
    ) -> Messages:
        """Take messages."""

    def unget(self) -> None:
        """Give them back."""

    def unmark_moved(self) -> None:
        """Take back that messages were to be moved."""

    def rollback(self) -> None:
        """Drop all of it."""

    def put_moved(self, queue: str, content: Any, fields: Mapping[str, Any]) -> MessageId:
        """Put one: bytes, or a row."""

    def put_moved_many(self, queue: str, payloads: pa.RecordBatch) -> MessageIds:
        """Put many, as `put_many` takes them."""

    def begin_stream(
        self,
        queue: str,
        fields: Mapping[str, Any],
        size: int | None,
        timeout: float | None,
        *,
        is_moved: bool = False,
    ) -> Sink:
        """Begin to put one whose payload the sink takes."""


def origin(message: Message, subscription: str, reason: str) -> dict[str, str]:
    """The attributes that say where a message comes from, and why it is elsewhere."""
    return {
        QUEUE: message.queue,
        SUBSCRIPTION: subscription,
        DELIVERIES: str(max(message.delivery_count - 1, 0)),  # this one is none
        message_types.REASON: reason,
    }


def joined(own: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """A message's own attributes and more; its own alone where both are more than it may have."""
    both = {**own, **more}
    size = sum(len(text.encode()) for pair in both.items() for text in pair)
    fits = len(both) <= MAX_ATTRIBUTES and size <= MAX_ATTRIBUTES_BYTES
    return both if fits else dict(own)


def put_again(
    txn: Moving, queue: str, message: Message, fields: Mapping[str, Any], content: Any = None
) -> MessageId:
    """Put a message once more; the payload of a streamed one is copied chunk by chunk.

    `content`: what to put in the stead of its payload, or its row.
    """
    if isinstance(message, streamed_message.StreamedMessage):
        sink = txn.begin_stream(queue, fields, message.size, None, is_moved=True)
        with message.open() as payload, payload_writer.PayloadWriter(sink, message.size) as writer:
            for piece in payload_writer.pieces_of(payload):
                writer.write(piece)
        return writer.message_id
    return txn.put_moved(queue, content_of(message) if content is None else content, fields)


def move(
    txn: Moving, source: str | list[Message], queue: str, max_messages: int, where: Any = None
) -> int:
    """Move messages: see `Transaction.move`."""
    if not isinstance(source, str):
        try:
            return _put(txn, source, "", queue)
        except BaseException:
            if txn.state == "open":
                txn.unmark_moved()
            raise
    messages = txn.get_many(source, max_messages, where=where)
    if not messages:
        return 0
    try:
        return _put(txn, list(messages), split_source(source)[1] or "", queue)
    except BaseException:
        if txn.state == "open":
            txn.unget()
        raise


def check_movable(messages: object) -> list[Message]:
    """Messages that are to be moved, each once. Raises InvalidArgument."""
    if not are_several(messages):
        raise InvalidArgument(
            f'source {messages!r:.100}: give "queue", "queue/subscription", or messages that the '
            "transaction has got"
        )
    if isinstance(messages, delivered_messages.Messages):
        return list(messages)
    found = [check_message(each) for each in messages]
    seen = set()
    for message in found:
        if (message.queue, message.id) in seen:
            raise InvalidArgument(
                f"message {message.id} of queue {message.queue!r} is given twice: give each once"
            )
        seen.add((message.queue, message.id))
    return found


def _put(txn: Moving, messages: list[Message], subscription: str, queue: str) -> int:
    """Put all of them, or with an error none."""
    if any(isinstance(message, streamed_message.StreamedMessage) for message in messages):
        return _put_one_by_one(txn, messages, subscription, queue)
    names = SETTABLE if messages and isinstance(messages[0], TypedMessage) else _KEPT
    columns = {name: [getattr(m, name) for m in messages] for name in names}
    columns["attributes"] = [
        list(attributes_moved(m, subscription, m.delivery_count - 1).items()) for m in messages
    ]
    if messages:
        schema = pa.schema([message_schema.MESSAGE_SCHEMA.field(name) for name in names])
        kept = pa.RecordBatch.from_pydict(columns, schema=schema)
        are_rows = isinstance(messages[0], TypedMessage)
        if are_rows:
            kept = _rows(messages, kept)
        try:
            txn.put_moved_many(queue, kept)
        except InvalidArgument as error:
            what = "rows" if are_rows else "messages of bytes"
            raise InvalidArgument(f"{what} cannot be moved to queue {queue!r}: {error}") from error
    return len(messages)


def _rows(messages: list[Message], kept: pa.RecordBatch) -> pa.RecordBatch:
    """The messages' rows, with what they keep besides as the column `_meta`."""
    found = [message.row for message in messages if isinstance(message, TypedMessage)]
    if len(found) < len(messages) or any(row.schema != found[0].schema for row in found):
        raise InvalidArgument("the messages have different columns: move each kind by itself")
    rows = pa.concat_batches(found)
    return rows.append_column(META, kept.to_struct_array())


def _put_one_by_one(txn: Moving, messages: list[Message], subscription: str, queue: str) -> int:
    """Put messages of which some are streamed; an error after the first rolls all back."""
    count = 0
    try:
        for message in messages:
            fields = {name: getattr(message, name) for name in SETTABLE}
            failed = message.delivery_count - 1
            fields["attributes"] = attributes_moved(message, subscription, failed)
            put_again(txn, queue, message, fields)
            count += 1
    except BaseException:
        if count:
            txn.rollback()
        raise
    return count


def attributes_moved(message: Message, subscription: str, failed: int) -> dict[str, str]:
    """Return the attributes of a moved message; its first origin goes before the last one.

    `failed`: how often it was delivered in vain.
    """
    own = origin(message, subscription, MOVED) | {DELIVERIES: str(failed)}
    return joined(message.attributes, own | dict(message.attributes))
