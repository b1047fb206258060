"""Values on their way between a store's owner and its clients: MessagePack, by `msgspec`.

What the store tells of its parts (`quire.reports.info`) are maps with the names of their fields.
Read is what the annotated type of a call's result says: fields that this release does not know are
passed over, and those that are missing have their defaults.

- VA1: what is read is of the type that is asked for, or RemoteError is raised.
- VA2: an argument that cannot be sent is told as what it looks like: no kind of argument, so that
  the owner refuses it, with the same words as it would the argument itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from quire.calls.decoded_types import decodable
from quire.definitions.row_schema import check_schema
from quire.errors import InvalidArgument, RemoteError
from quire.libraries import pa
from quire.messages.message import Message
from quire.messages.message_id import KnownId, MessageId, id_of
from quire.remote.limits import LOOK_CHARACTERS, SPAN_LEVELS
from quire.selectors.template import ANY, Template

T = TypeVar("T")
SentArguments = Mapping[str, object] | msgspec.Raw
"""Those of a call: a map, or its bytes."""

_UNSENT: Final = 1  # codes of extended values: what an argument looks like
_MESSAGE: Final = 2  # of which queue and number are told
_TEXT: Final = 3  # with half a character, which is no UTF-8
_SPAN: Final = 4  # of time, in microseconds; in decimal digits where 64 bits do not hold them
_INT: Final = 5  # of more than 64 bits, in decimal digits
_PRESENT: Final = 6  # in a template: with any value
_ID: Final = 7  # of a message
_US: Final = timedelta(microseconds=1)


class Unsent:
    """A value that the other side could not send (VA2)."""

    def __init__(self, looks: str) -> None:
        self._looks = looks

    def __repr__(self) -> str:
        return self._looks


def _plain(value: Any) -> Any:
    """Encode a value that MessagePack has no form for."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Message):
        return msgspec.msgpack.Ext(_MESSAGE, _encode([value.queue, value.id]))
    if isinstance(value, MessageId):
        return msgspec.msgpack.Ext(_ID, _encode(int(value)))
    if isinstance(value, pa.Schema):
        return check_schema("schema", value)
    kinds: tuple[type, ...] = int, str, float, bytes
    for kind in kinds:  # a class of the program's own, or numpy's
        if isinstance(value, kind):
            return kind(value)
    return _unsent(value)


def _unsent(value: object) -> msgspec.msgpack.Ext:
    looks = repr(value)[:LOOK_CHARACTERS].encode(errors="backslashreplace")
    return msgspec.msgpack.Ext(_UNSENT, looks)


def _message(data: memoryview) -> Message:
    queue, number = msgspec.msgpack.decode(data, type=tuple[str, int])
    return Message(number, queue, b"")


def _number(data: memoryview) -> int:
    return msgspec.msgpack.decode(data, type=int)


_EXTENDED: Final[Mapping[int, Callable[[memoryview], Any]]] = {
    _UNSENT: lambda data: Unsent(str(data, "utf-8", "replace")),
    _MESSAGE: _message,
    _TEXT: lambda data: str(data, "utf-8", "surrogatepass"),
    _SPAN: lambda data: timedelta(microseconds=int(msgspec.msgpack.decode(data))),
    _INT: lambda data: int(str(data, "ascii")),
    _PRESENT: lambda _: ANY,
    _ID: lambda data: id_of(KnownId(_number(data)), 0),
}


def _extended(code: int, data: memoryview) -> Any:
    read = _EXTENDED.get(code)
    if read is None:
        raise ValueError(f"a value of kind {code} is none")
    return read(data)


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decode: Final = msgspec.msgpack.Decoder(dict[str, Any], ext_hook=_extended).decode


def encode_map(value: Mapping[str, object]) -> bytes:
    """The bytes of a map. Raises InvalidArgument for what holds itself."""
    try:
        try:
            return _encode(value)
        except (UnicodeEncodeError, OverflowError, BufferError, ValueError):
            return _encode(_sendable(value))
    except RecursionError:
        raise InvalidArgument("an argument is nested too deeply for the store's owner") from None


def decode_map(data: memoryview) -> dict[str, Any]:
    """A map. Raises RemoteError for what is none."""
    try:
        return _decode(data)
    except (ValueError, RecursionError, TypeError, OverflowError) as error:  # msgspec's, too
        raise RemoteError(f"a message's header is no MessagePack map: {error}") from None


def read(kind: type[T], value: object) -> T:
    """Convert a received value to its type (VA1)."""
    try:
        return msgspec.convert(value, decodable(kind))
    except (ValueError, RecursionError) as error:  # msgspec's, and what no UTF-8 can hold
        raise RemoteError(f"what the other side sent cannot be read: {error}") from None


def ready(arguments: Mapping[str, object]) -> msgspec.Raw:
    """The bytes of arguments, in a map that is sent: what cannot be is refused before.

    A span of time, or a datetime without a zone, would arrive as a text. Raises InvalidArgument,
    TransactionError.
    """
    return msgspec.Raw(
        encode_map({name: _ready(value, SPAN_LEVELS) for name, value in arguments.items()})
    )


def _ready(value: Any, levels: int) -> Any:
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else _unsent(value)
    if isinstance(value, timedelta):
        length = value // _US
        digits = length if abs(length) < 1 << 63 else str(length)
        return msgspec.msgpack.Ext(_SPAN, _encode(digits))
    if value is ANY:
        return msgspec.msgpack.Ext(_PRESENT, b"")
    if isinstance(value, Template):
        value = value.plain()
    if levels and isinstance(value, Mapping):
        return {key: _ready(each, levels - 1) for key, each in value.items()}
    if levels and isinstance(value, list):
        return [_ready(each, levels - 1) for each in value]
    return value


def _sendable(value: Any) -> Any:
    """A value as it can be sent: what cannot is sent as it looks (VA2)."""
    if isinstance(value, str | int | memoryview):
        return _sendable_scalar(value)
    if isinstance(value, Mapping):
        if any(_sendable(key) is not key for key in value):  # no key can be an extended value
            return _unsent(value)
        return {key: _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_sendable(each) for each in value]
    return value


def _sendable_scalar(value: str | int | memoryview) -> Any:
    try:
        if isinstance(value, memoryview):
            return value.tobytes()  # it may have gaps
        if isinstance(value, str):
            value.encode()
        elif not -(1 << 63) <= value < 1 << 64:
            return msgspec.msgpack.Ext(_INT, str(value).encode())
    except UnicodeEncodeError:
        return msgspec.msgpack.Ext(_TEXT, str(value).encode(errors="surrogatepass"))
    except ValueError:  # a view that was released, or a number of too many digits to be shown
        return _unsent(value)
    return value
