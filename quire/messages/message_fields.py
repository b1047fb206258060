"""The fields of a message that a put may set, and its payload, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from quire.arguments import copied_bytes
from quire.errors import InvalidArgument
from quire.limits import (
    MAX_ATTRIBUTES,
    MAX_ATTRIBUTES_BYTES,
    MAX_DELAY_SECONDS,
    MAX_GROUP,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    MAX_STRING_BYTES,
    MAX_TIME_US,
)
from quire.moments import check_moment, seconds_of

from .message import GROUP_KEY, NO_ATTRIBUTES, SETTABLE

if TYPE_CHECKING:
    from quire.definitions.properties import Granted

_STRINGS = {"sender": 64, "correlation_id": 128, "reply_to": 256, "content_type": 512}


class Fields:
    """The fields that a put may set besides the payload. Construction checks everything; immutable
    by habit.

    `columns` has the bits of the block columns that differ from their absent value, `extra_bytes`
    is what the strings and attributes count against the queue's capacity.
    """

    __slots__ = (
        "attributes",
        "columns",
        "content_type",
        "correlation_id",
        "deliver_at",
        "expires_at",
        "extra_bytes",
        "group",
        "priority",
        "reply_to",
        "sender",
    )

    def __init__(
        self,
        *,
        priority: int | None = None,
        group: int = 0,
        sender: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        content_type: str | None = None,
        expires_at: int | None = None,
        deliver_at: int | None = None,
        attributes: Mapping[str, str] | None = None,
        group_key: str | None = None,
    ) -> None:
        # None: the put says none, and its queue may grant one; 0 is one.
        self.priority = priority
        if priority is not None:
            _check_int("priority", priority, MAX_PRIORITY)
        self.group = _check_int("group", group, MAX_GROUP)
        self.expires_at = _check_time("expires_at", expires_at)
        self.deliver_at = _check_time("deliver_at", deliver_at)
        self.sender = sender
        self.correlation_id = correlation_id
        self.reply_to = reply_to
        self.content_type = content_type
        # The bits are those of quire.block.format.Column; a test holds the two together.
        columns = (
            (1 if priority else 0)
            | (2 if group else 0)
            | (0 if expires_at is None else 4)
            | (0 if deliver_at is None else 8)
        )
        extra_bytes = 0
        for name, bit in _STRINGS.items():
            text = getattr(self, name)
            if text is not None:
                extra_bytes += _check_string(name, text)
                columns |= bit
        self.attributes = NO_ATTRIBUTES
        if group_key is not None:
            attributes = _with_group(attributes, group_key)
        if attributes is not None:
            self.attributes, attributes_bytes = _check_attributes(attributes)
            extra_bytes += attributes_bytes
            columns |= 1024 if self.attributes else 0
        self.columns = columns
        self.extra_bytes = extra_bytes

    @classmethod
    def of(cls, **values: Any) -> Fields | None:
        """The fields given, or None when they say nothing. A priority of 0 is said."""
        try:
            fields = cls(**values)
        except TypeError:
            known = (*SETTABLE, "group_key", *_TIMES)
            unknown = ", ".join(repr(name) for name in values if name not in known)
            raise InvalidArgument(
                f"a put cannot set {unknown}: it may set {', '.join(known)}"
            ) from None
        return fields if fields.columns or fields.priority is not None else None

    @classmethod
    def with_granted(cls, base: Fields | None, granted: Granted) -> Fields:
        """The fields of a message that has what its queue grants, too."""
        fields = cls() if base is None else copy(base)
        if granted.priority:
            if fields.priority is None:
                fields.priority = granted.priority
            fields.columns |= 1  # also of 0: a block without priorities is granted the queue's
        if granted.latest is not None:
            own = fields.expires_at
            fields.expires_at = granted.expires_at if own is None else min(own, granted.latest)
            fields.columns |= 4
        return fields


def with_moments(
    fields: Mapping[str, Any], now_us: Callable[[], int], *, is_moved: bool = False
) -> Mapping[str, Any]:
    """Return the fields that a put sets, with all times as microseconds since the epoch (see
    `quire.moments`).

    `is_moved`: they are those of a message that is there already, and stay as they are.
    """
    if _TIME_NAMES.isdisjoint(fields):
        return fields
    values, now = dict(fields), None  # which is one for both
    for name, (moment, least) in _TIMES.items():
        span, at = values.pop(name, None), values.get(moment)
        if at is not None and not is_moved:
            values[moment] = check_moment(moment, at)
        if span is None:
            continue
        if at is not None:
            raise InvalidArgument(f"{name} and {moment} say the same: give one of them")
        now = now_us() if now is None else now
        values[moment] = now + _check_span(name, span, least)
    due, over = values.get("deliver_at"), values.get("expires_at")
    if due is not None and over is not None and due >= over and not is_moved:
        raise InvalidArgument(
            f"the message would be due {(due - over) / 1e6:g} seconds after it has expired, and "
            "nobody would get it: give a ttl that is longer than its delay"
        )
    return values


def check_payload(payload: object) -> bytes:
    """The payload as bytes, or `InvalidArgument`."""
    if type(payload) is not bytes:
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise InvalidArgument(
                f"a payload must be bytes, bytearray or memoryview, not {type(payload).__name__}; "
                "encode it first, or for a typed queue give a mapping of its columns"
            )
        payload = copied_bytes("payload", payload)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidArgument(
            f"a payload of {len(payload)} bytes is above the limit of {MAX_PAYLOAD_BYTES}; "
            "split it, or put a pointer to where it is kept"
        )
    return payload


def _check_int(name: str, value: object, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{name} must be an int, not {type(value).__name__}")
    if not 0 <= value <= maximum:
        raise InvalidArgument(f"{name} must be from 0 to {maximum}, not {value}")
    return value


def _check_time(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(
            f"{name} must be an int, microseconds since the epoch, not {type(value).__name__}"
        )
    if not 0 <= value <= MAX_TIME_US:
        raise InvalidArgument(
            f"{name} must be microseconds since the epoch, from 0 to {MAX_TIME_US}, not {value}"
        )
    return value


# What a put may set as a span from now: which moment it is, and the least, in microseconds.
_TIMES = {"ttl": ("expires_at", 1), "delay": ("deliver_at", 0)}
_TIME_NAMES = frozenset((*_TIMES, "expires_at", "deliver_at"))


def _check_span(name: str, value: object, least: int) -> int:
    """Microseconds."""
    value = seconds_of(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= cast(float, value) <= MAX_DELAY_SECONDS:
        us = round(cast(float, value) * 1e6)
        if us >= least:
            return us
    raise InvalidArgument(
        f"{name} {value!r:.100}: give seconds {'from' if not least else 'above'} 0, up to "
        f"{MAX_DELAY_SECONDS}, or a timedelta"
    )


def _with_group(attributes: object, group_key: object) -> Mapping[str, str]:
    if not isinstance(group_key, str) or not group_key:
        raise InvalidArgument(f"group_key {group_key!r:.100}: give a str of 1 character or more")
    if attributes is not None and not isinstance(attributes, Mapping):
        _check_attributes(attributes)
    return {**cast("Mapping[str, str]", attributes or {}), GROUP_KEY: group_key}


def _check_string(name: str, value: object) -> int:
    """The size of the string in UTF-8."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a str, not {type(value).__name__}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} has lone surrogates, which UTF-8 cannot hold") from None
    if size > MAX_STRING_BYTES:
        raise InvalidArgument(
            f"{name} has {size} bytes; at most {MAX_STRING_BYTES} are possible: "
            "put long text in the payload"
        )
    return size


def _check_attributes(attributes: object) -> tuple[Mapping[str, str], int]:
    if not isinstance(attributes, Mapping):
        raise InvalidArgument(
            f"attributes must be a mapping of str to str, not {type(attributes).__name__}"
        )
    if len(attributes) > MAX_ATTRIBUTES:
        raise InvalidArgument(
            f"{len(attributes)} attributes are above the limit of {MAX_ATTRIBUTES}: "
            "put them in the payload"
        )
    size = 0
    for key, value in attributes.items():
        size += _check_string("the key of an attribute", key)
        size += _check_string(f"attribute {key!r}", value)
    if size > MAX_ATTRIBUTES_BYTES:
        raise InvalidArgument(
            f"the attributes have {size} bytes; at most {MAX_ATTRIBUTES_BYTES} are possible: "
            "put them in the payload"
        )
    return (MappingProxyType(dict(attributes)) if attributes else NO_ATTRIBUTES), size
