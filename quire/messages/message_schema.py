"""The Arrow schemas of messages, each made when it is first asked for: see `quire.libraries`.

Who asks, asks this module, as in `message_schema.MESSAGE_SCHEMA`; who needs names only has
`MESSAGE_COLUMNS` of `message`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.libraries import pa

if TYPE_CHECKING:
    MESSAGE_SCHEMA: pa.Schema
    """The columns of a batch of messages. Their queue is the schema's metadata `queue`."""

    HEADER_SCHEMA: pa.Schema
    """The columns by which code may order messages: see `quire.definitions.order_code`."""


def _message_schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("priority", pa.int32(), nullable=False),
            pa.field("group", pa.int32(), nullable=False),
            pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("sender", pa.string()),
            pa.field("correlation_id", pa.string()),
            pa.field("reply_to", pa.string()),
            pa.field("content_type", pa.string()),
            pa.field("expires_at", pa.timestamp("us", "UTC")),
            pa.field("deliver_at", pa.timestamp("us", "UTC")),
            pa.field("delivery_count", pa.int32(), nullable=False),
            pa.field("attributes", pa.map_(pa.string(), pa.string()), nullable=False),
            pa.field("payload", pa.binary(), nullable=False),
        ]
    )


def __getattr__(name: str) -> pa.Schema:
    if name not in ("MESSAGE_SCHEMA", "HEADER_SCHEMA"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    whole = _message_schema()
    of_headers = [field for field in whole if field.name not in ("delivery_count", "payload")]
    made = {"MESSAGE_SCHEMA": whole, "HEADER_SCHEMA": pa.schema(of_headers)}
    globals().update(made)
    return made[name]
