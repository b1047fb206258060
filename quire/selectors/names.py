"""The names of a selector, and the values that they stand for.

| name | what it is |
|---|---|
| `JMSPriority`, `JMS_Quire_Group` | `priority`, `group`: numbers |
| `JMSMessageID` | `id`: a number |
| `JMSTimestamp`, `JMSExpiration`, `JMSDeliveryTime` | `time`, `expires_at`, `deliver_at` in milliseconds since 1970, UTC, cut off; of the last two null where there is none |
| `JMSCorrelationID`, `JMSReplyTo`, `JMSType`, `JMSXUserID` | `correlation_id`, `reply_to`, `content_type`, `sender`: texts |
| `JMSXGroupID` | `group_key`: a text |
| `JMSDeliveryMode` | 'PERSISTENT', in volatile queues 'NON_PERSISTENT' |
| `payload` | of queues of bytes the payload, where it is UTF-8 |
| any other | in typed queues a column of that name; else the attribute |

A name in double quotes is a column or an attribute, whatever it is.
"""  # noqa: E501 - rows of a table

from __future__ import annotations

from typing import Final

from quire.libraries import pa
from quire.messages.message import GROUP_KEY

from .values import Attribute, HeaderField, PayloadText, RowColumn, Value, ValueKind

_HEADER: Final[dict[str, Value]] = {
    "JMSPriority": HeaderField("priority", ValueKind.NUMBER),
    "JMS_Quire_Group": HeaderField("group", ValueKind.NUMBER),
    "JMSMessageID": HeaderField("id", ValueKind.NUMBER),
    "JMSTimestamp": HeaderField("time", ValueKind.NUMBER, 1000),
    "JMSExpiration": HeaderField("expires_at", ValueKind.NUMBER, 1000),
    "JMSDeliveryTime": HeaderField("deliver_at", ValueKind.NUMBER, 1000),
    "JMSCorrelationID": HeaderField("correlation_id", ValueKind.TEXT),
    "JMSReplyTo": HeaderField("reply_to", ValueKind.TEXT),
    "JMSType": HeaderField("content_type", ValueKind.TEXT),
    "JMSXUserID": HeaderField("sender", ValueKind.TEXT),
    "JMSXGroupID": Attribute(GROUP_KEY),
}
DELIVERY_MODE: Final = "JMSDeliveryMode"
HEADER_NAMES: Final = (*_HEADER, DELIVERY_MODE)
PAYLOAD: Final = "payload"


def header_named(name: str) -> Value | None:
    """The field of the header; None: there is none of that name."""
    return _HEADER.get(name)


def named(name: str, schema: pa.Schema | None, *, is_quoted: bool = False) -> Value:
    """A column, the payload or an attribute."""
    if schema is not None and (index := schema.get_field_index(name)) >= 0:
        type_ = schema.field(index).type
        return RowColumn(name, kind_of(type_), type_)
    if name == PAYLOAD and schema is None and not is_quoted:
        return PayloadText()
    return Attribute(name)


def kind_of(type_: pa.DataType) -> ValueKind:
    """Return the kind of a column's values, by which they can be compared."""
    types = pa.types
    kinds = (
        (types.is_integer, ValueKind.NUMBER),
        (types.is_floating, ValueKind.NUMBER),
        (types.is_decimal, ValueKind.NUMBER),
        (types.is_string, ValueKind.TEXT),
        (types.is_boolean, ValueKind.BOOLEAN),
        (types.is_timestamp, ValueKind.TIME),
        (types.is_date, ValueKind.DATE),
        (types.is_binary, ValueKind.BYTES),
    )
    return next((kind for is_one, kind in kinds if is_one(type_)), ValueKind.NESTED)
