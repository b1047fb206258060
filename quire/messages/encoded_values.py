"""Values that are put into a queue that names a codec: they become payloads with a content type.

- EV1: what is bytes is a payload as it is, whatever the queue's codec. Anything else is a value:
  its queue's codec encodes it, or the put is refused, with what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from quire import codecs
from quire.errors import InvalidArgument, PayloadInvalid
from quire.libraries import is_arrow, pa

M = TypeVar("M", bound=Mapping[str, Any])

_BYTES: Final = (bytes, bytearray, memoryview)


def check_codec(queue: str, name: str) -> None:
    """Check that a queue may name this codec. Raises InvalidArgument, CodecNotFound."""
    if name == "pickle":
        raise InvalidArgument(
            f"queue {queue!r}: who gets from it would run whatever code was put, with codec "
            "'pickle': pickle the value, and decode('pickle') where its sender is to be trusted"
        )
    codecs.codec(name)


def encoded_value(queue: str, codec: str | None, value: object, options: M) -> tuple[Any, M]:
    """The payload of a value, and the options of its put with the content type.

    As they are where the queue has no codec, or the value is bytes (EV1). Raises InvalidArgument,
    CodecNotFound.
    """
    if codec is None or not is_value(value):
        return value, options
    found = codecs.codec(codec)
    content_type = options.get("content_type")
    if content_type is None:
        options = cast(M, {**options, "content_type": found.content_type})
    elif str(content_type).partition(";")[0].strip().lower() != found.content_type:
        raise InvalidArgument(
            f"content_type {content_type!r:.100}: queue {queue!r} encodes values as "
            f"{found.content_type} (its codec): leave content_type out, or put the payload as bytes"
        )
    return _encoded(queue, found, value), options


def encoded_values(queue: str, codec: str, values: Any) -> Any:
    """The payloads of values with their content type, as columns; what holds bytes as it is.

    Raises InvalidArgument, CodecNotFound.
    """
    if is_arrow(values):
        return values
    if isinstance(values, (str, Mapping)) or not isinstance(values, Sequence):
        raise InvalidArgument(f"payloads {values!r:.100}: give a list of values, or put one")
    if not values or isinstance(values[0], _BYTES):
        return values
    found = codecs.codec(codec)
    payloads = [_encoded(queue, found, value) for value in values]
    types = pa.array([found.content_type] * len(payloads), pa.string())
    return pa.record_batch({"payload": pa.array(payloads, pa.binary()), "content_type": types})


def check_encoded(queue: str, codec: str | None, payload: bytes, content_type: str | None) -> Any:
    """Return the content type of a value that is written as bytes, by a person or in a schedule.

    Where the queue has a codec, and the bytes do not say that they are something else, they must be
    a payload of that. Raises InvalidArgument, CodecNotFound.
    """
    if codec is None or not payload:
        return content_type
    found = codecs.codec(codec)
    if content_type is not None and content_type != found.content_type:
        return content_type
    try:
        found.decode(payload)
    except PayloadInvalid as error:
        raise InvalidArgument(
            f"queue {queue!r} has the codec {codec!r}: {error}: give such a payload, or its own "
            "content type"
        ) from error
    return found.content_type


def is_value(payload: object) -> bool:
    """Return True if a put of it puts a value, or a row (EV1)."""
    return not isinstance(payload, _BYTES)


def _encoded(queue: str, codec: codecs.Codec, value: object) -> bytes:
    try:
        return codec.encode(value)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"queue {queue!r}: {error}: give a value that its codec takes, or the payload as bytes"
        ) from error
