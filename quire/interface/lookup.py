"""How messages are asked for by what they are: by their id, by a template, by a selector."""

from __future__ import annotations

from typing import TypeAlias

from quire.arguments import check_message_id
from quire.batches.delivered_messages import Messages
from quire.errors import InvalidArgument
from quire.messages.message import Message
from quire.messages.message_id import MessageId
from quire.selectors.template import Template

MessageKey: TypeAlias = int | MessageId
"""The id of a message, as its put returned it."""

Where: TypeAlias = str | Template | MessageKey
"""A selector, a template, or the id of a message."""

Seen: TypeAlias = Message | MessageKey
"""A message that was seen, behind which a look goes on."""


def check_key_of(id: object) -> int:
    """The number of a message's id. Raises InvalidArgument; TransactionError before its commit."""
    return check_message_id(int(id) if isinstance(id, MessageId) else id)


def where_of(id: object, where: Where | None) -> Where | None:
    """Return the condition, by id or otherwise, not by both. Raises InvalidArgument."""
    if id is None:
        return where
    if where is not None:
        raise InvalidArgument("id and where: give one of them; an id says already which it is")
    return check_key_of(id)


def check_seen(after: object) -> int | None:
    """The number of a message's id; None: there is none. Raises InvalidArgument."""
    if after is None:
        return None
    return check_key_of(after.id if isinstance(after, Message) else after)


def first_of(messages: Messages) -> Message | None:
    """The first, if there is any."""
    return messages[0] if messages else None
