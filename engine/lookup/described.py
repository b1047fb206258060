"""A message that was found, without its payload."""

from __future__ import annotations

from typing import Final

from quire.reports.info import Description

from .candidates import Candidate

_FIELDS: Final = (
    "id", "priority", "group", "time", "sender", "correlation_id", "reply_to", "content_type",
    "expires_at", "deliver_at", "size",
)  # fmt: skip


def described(queue: str, found: Candidate) -> Description:
    """Return the description of a message: its position, its attributes and its header fields."""
    message = found.part.message(queue, found.part.start)
    return Description(
        queue=queue,
        position=found.position,
        attributes=dict(message.attributes),
        **{name: getattr(message, name) for name in _FIELDS},
    )
