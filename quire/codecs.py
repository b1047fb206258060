"""Values as payloads and back, by a message's content type.

    payload, content_type = quire.codecs.encode({"item": "apple", "count": 3})
    store.put("orders", payload, content_type=content_type)
    order = store.get("orders").decode()

| name | content type | values | comes back as |
|---|---|---|---|
| bytes | application/octet-stream, or none | bytes, bytearray, memoryview | bytes |
| text | text/plain, in UTF-8 | str | str |
| json | application/json | dict, list, tuple, int, float, bool, None | the same; tuples as lists |
| arrow | application/vnd.apache.arrow.stream | pyarrow RecordBatch, Table | pyarrow Table |
| msgpack | application/msgpack | as for json, and bytes; if asked for | the same; tuples as lists |
| pickle | application/x-pickle | almost all; if asked for by name | the same |

The codec `msgpack` needs the package of that name: `pip install 'quire-mq[msgpack]'`.

Who unpickles a payload runs whatever code its sender put there. So the codec `pickle` is taken only
by name, `codec("pickle")` or `message.decode("pickle")`, and never for the content type that a
message came with, unless the program has said `register(codec("pickle"))`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from msgspec import Struct

from quire.callbacks import check_function
from quire.errors import CodecNotFound, InvalidArgument, PayloadInvalid
from quire.libraries import is_arrow, pa
from quire.libraries.late_modules import stand_in

if TYPE_CHECKING:
    import pickle
else:
    pickle = stand_in("pickle")
msgpack: Any = stand_in("msgpack")

__all__ = ["Codec", "codec", "decode", "encode", "register"]


class Carrier(Protocol):
    """A message, as far as a codec has to do with it."""

    @property
    def payload(self) -> bytes:
        """As it was put."""

    @property
    def content_type(self) -> str | None:
        """The content type of the message."""


class Codec(Struct, frozen=True):
    """A way to make payloads of values, and values of payloads. See `register`."""

    name: str
    content_type: str  # without parameters
    dump: Callable[[Any], bytes]  # any exception that it raises: it cannot encode the value
    load: Callable[[bytes], Any]  # any exception that it raises: the payload is none of its
    takes: tuple[type, ...] = ()  # values that `encode` gives it where no content type is given

    def __post_init__(self) -> None:
        """Raises InvalidArgument for functions that would make coroutines or generators."""
        check_function("dump", self.dump, "give a function of a value that returns bytes")
        check_function("load", self.load, "give a function of bytes that returns the value")

    def encode(self, value: Any) -> bytes:
        """The payload. Raises InvalidArgument for a value that it cannot encode."""
        try:
            return self.dump(value)
        except CodecNotFound:
            raise
        except Exception as error:
            raise InvalidArgument(
                f"the codec {self.name!r} cannot encode a {type(value).__name__}: {error}"
            ) from error

    def decode(self, payload: bytes) -> Any:
        """The value. Raises PayloadInvalid for what is none of its payloads."""
        try:
            return self.load(payload)
        except CodecNotFound:
            raise
        except Exception as error:
            raise PayloadInvalid(
                f"a payload of {len(payload)} bytes is no {self.content_type}: "
                f"{type(error).__name__}: {error}"
            ) from error


def encode(value: Any, content_type: str | None = None) -> tuple[bytes, str]:
    """The value as (payload, content type), for `put`.

    Without a content type the value's own type chooses the codec (see the table). Raises
    CodecNotFound for a content type that has none, InvalidArgument for a value that cannot be
    encoded.
    """
    if content_type is not None:
        return _codec_of(content_type).encode(value), content_type
    for each in reversed(_registered.values()):
        if isinstance(value, each.takes):
            return each.encode(value), each.content_type
    raise InvalidArgument(
        f"no codec takes a {type(value).__name__}: give its content type, take a codec by name, or "
        "register one that takes it"
    )


def decode(message: Carrier, name: str | None = None) -> Any:
    """The value that the message carries, by the codec of that name or of its content type.

    A message without a content type gives its bytes. Raises CodecNotFound, PayloadInvalid,
    InvalidArgument for what is no message.
    """
    if name is not None:
        found = codec(name)
    elif not hasattr(message, "content_type"):
        raise InvalidArgument(f"message {message!r:.100}: give what a get has returned")
    elif message.content_type is None:
        return message.payload
    else:
        found = _codec_of(message.content_type)
    return found.decode(message.payload)


def codec(name: str) -> Codec:
    """The codec of that name: one of the table, or one that was registered.

    Raises CodecNotFound.
    """
    for each in (*_registered.values(), _PICKLE):
        if each.name == name:
            return each
    names = ", ".join(sorted({each.name for each in (*_registered.values(), _PICKLE)}))
    raise CodecNotFound(f"there is no codec {name!r:.100}: there are {names}")


def register(codec: Codec) -> None:
    """Have `encode` and `decode` take a codec for its content type, in the place of another one.

    `encode` asks the latest first whether it takes a value. In this process, for all stores. Raises
    InvalidArgument for what is no codec.
    """
    if not isinstance(codec, Codec):
        raise InvalidArgument(f"codec {codec!r:.100}: give a Codec")
    plain = _plain(codec.content_type)
    _registered.pop(plain, None)  # so that it is the latest
    _registered[plain] = codec


def _codec_of(content_type: object) -> Codec:
    plain = _plain(content_type)
    found = _registered.get(plain)
    if found is None:
        _refuse(plain)
    if found is _TEXT:
        _check_charset(str(content_type))
    return found


def _plain(content_type: object) -> str:
    """Without parameters, in small letters."""
    if not isinstance(content_type, str):
        raise InvalidArgument(f"content type {content_type!r:.100}: give a string")
    return content_type.partition(";")[0].strip().lower()


def _refuse(plain: str) -> NoReturn:
    if plain == _PICKLE.content_type:
        raise CodecNotFound(
            "a message's content type alone does not have its payload unpickled, which may run any "
            'code: where its sender is to be trusted, ask for the codec "pickle" by name'
        )
    raise CodecNotFound(
        f"no codec for the content type {plain!r:.100}: register one, or use the payload as it is; "
        f"there are {', '.join(sorted(_registered))}"
    )


def _check_charset(content_type: str) -> None:
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        charset = value.strip().strip('"').lower()
        if name.strip().lower() == "charset" and charset not in ("utf-8", "us-ascii"):
            raise CodecNotFound(f"text in {charset!r:.100}: the codec 'text' has UTF-8 only")


# The codecs of the table


def _dump_bytes(value: Any) -> bytes:
    if not isinstance(value, _BYTES):
        raise TypeError("give bytes")
    return bytes(value)


def _dump_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError("give a string")
    return value.encode()


def _dump_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def _load_json(payload: bytes) -> Any:
    return json.loads(str(payload, "utf-8"), parse_constant=_no_constant)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_batch(value: object) -> bool:
    return is_arrow(value) and isinstance(value, (pa.RecordBatch, pa.Table))


class _AsArrow(type):
    def __instancecheck__(cls, value: object) -> bool:
        return _is_batch(value)


class _BatchOrTable(metaclass=_AsArrow):
    """PyArrow's batches and tables: PyArrow is not loaded to tell if a value is one."""


def _dump_arrow(value: Any) -> bytes:
    if not _is_batch(value):
        raise TypeError("give a pyarrow RecordBatch or Table")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    return bytes(sink.getvalue())


def _load_arrow(payload: bytes) -> Any:
    with pa.ipc.open_stream(payload) as reader:
        table = reader.read_all()
    table.validate(full=True)  # so that no offset leads out of it
    return table


def _msgpack() -> Any:
    try:
        _ = msgpack.packb
    except ImportError:
        raise CodecNotFound(
            "the codec 'msgpack' needs the package of that name: pip install 'quire-mq[msgpack]'"
        ) from None
    return msgpack


def _dump_pickle(value: Any) -> bytes:
    return pickle.dumps(value)


def _load_pickle(payload: bytes) -> Any:
    return pickle.loads(payload)


_BYTES: Final = (bytes, bytearray, memoryview)
_ARROW: Final = (_BatchOrTable,)
_JSON: Final = (dict, list, tuple, int, float, bool, type(None))
_TEXT: Final = Codec("text", "text/plain", _dump_text, lambda p: str(p, "utf-8"), (str,))
_PICKLE: Final = Codec("pickle", "application/x-pickle", _dump_pickle, _load_pickle)

_registered: Final[dict[str, Codec]] = {
    each.content_type: each
    for each in (
        Codec("bytes", "application/octet-stream", _dump_bytes, bytes, _BYTES),
        _TEXT,
        Codec("json", "application/json", _dump_json, _load_json, _JSON),
        Codec("arrow", "application/vnd.apache.arrow.stream", _dump_arrow, _load_arrow, _ARROW),
        Codec(
            "msgpack",
            "application/msgpack",
            lambda value: _msgpack().packb(value),
            lambda payload: _msgpack().unpackb(payload, strict_map_key=False),
        ),
    )
}
