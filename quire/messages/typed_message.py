"""Messages of typed queues: rows, with the header that every message has."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from quire.errors import InvalidArgument
from quire.libraries import pa

from .message import MESSAGE_FIELDS, Message

ARROW_STREAM = "application/vnd.apache.arrow.stream"
"""The content type of `payload`, which the codec `arrow` reads."""

_HEADER = tuple(name for name in MESSAGE_FIELDS if name != "payload")


class TypedMessage(Message):
    """A message of a typed queue. Immutable.

    `row`: a batch of one row, without the header. `payload`: the row as an Arrow stream, so that
    what takes bytes can have it; `decode` gives the value, whatever the content type says.
    """

    __slots__ = ("_value", "row")

    row: pa.RecordBatch
    _value: Mapping[str, Any] | None

    def __new__(cls, header: Message, row: pa.RecordBatch) -> TypedMessage:
        """`header`: a message whose payload does not count."""
        self = object.__new__(cls)
        keep = object.__setattr__
        for name in _HEADER:
            keep(self, name, getattr(header, name))
        keep(self, "row", row)
        keep(self, "_value", None)
        return self

    @property
    def value(self) -> Mapping[str, Any]:
        """The columns by name. Raises InvalidArgument for a time that Python cannot show."""
        if self._value is None:
            try:
                value = self.row.to_pylist()[0]
            except (ValueError, OverflowError, pa.ArrowException) as error:
                raise InvalidArgument(
                    f"message {self.id} of queue {self.queue!r} has a value that Python cannot "
                    f"show ({error}): read `row`, or get_arrow"
                ) from None
            object.__setattr__(self, "_value", MappingProxyType(value))
        return cast("Mapping[str, Any]", self._value)

    @property
    def payload(self) -> bytes:  # type: ignore[override]
        """The row as an Arrow stream."""
        return row_payload(self.row)

    def decode(self, codec: str | None = None) -> Any:
        """The value; by the codec of that name, if one is given, that of `payload`."""
        return self.value if codec is None else super().decode(codec)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypedMessage):
            return NotImplemented
        headers = [[getattr(each, name) for name in _HEADER] for each in (self, other)]
        return headers[0] == headers[1] and bool(self.row.equals(other.row))

    __hash__ = Message.__hash__

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        values = {name: getattr(self, name) for name in _HEADER}
        values["attributes"] = dict(self.attributes)
        return _restored, (values, self.payload)

    def __repr__(self) -> str:
        try:
            shown = repr(dict(self.value))
        except InvalidArgument:
            shown = "..."
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        return f"TypedMessage(id={self.id}, queue={self.queue!r}, value={shown})"


def _restored(values: Mapping[str, Any], payload: bytes) -> TypedMessage:
    return TypedMessage(Message(payload=b"", **values), row_of_payload(payload))


def content_of(message: Message) -> Any:
    """Return the content by which the message is put again: its row, or its bytes."""
    return message.row if isinstance(message, TypedMessage) else message.payload


def value_json(message: Message) -> Any:
    """The columns as JSON has them; None for a message that is no row.

    Times are in ISO 8601, decimals strings, bytes in base64, others as text.
    """
    if not isinstance(message, TypedMessage):
        return None
    try:
        value = dict(message.value)
    except InvalidArgument:
        columns = zip(message.row.schema.names, message.row.columns, strict=True)
        return {name: str(array) for name, array in columns}
    return row_json(value)


def row_json(value: Mapping[str, Any]) -> Any:
    """The values of a row as JSON has them (see `value_json`)."""
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value.isoformat()) if hasattr(value, "isoformat") else str(value)


def row_payload(row: pa.RecordBatch) -> bytes:
    """A row as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as stream:
        stream.write_batch(row)
    return bytes(sink.getvalue())


def row_of_payload(payload: bytes) -> pa.RecordBatch:
    """The one row of such a payload. Raises InvalidArgument for any other bytes."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
            table = stream.read_all()
            table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise InvalidArgument(f"the payload is no row of a typed queue: {error}") from None
    if table.num_rows != 1:
        raise InvalidArgument(f"the payload has {table.num_rows} rows: a message has one")
    return table.combine_chunks().to_batches()[0]
