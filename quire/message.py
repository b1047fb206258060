"""Messages: what a put may set, what a get returns, and their Arrow schema."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import pyarrow as pa

from quire import codecs
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
from quire.payload_reader import PayloadReader, reader_of

if TYPE_CHECKING:
    from quire.block import Block
    from quire.properties import Expiry

MESSAGE_SCHEMA = pa.schema(
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
"""The columns of a batch of messages. Their queue is the schema's metadata `queue`."""

HEADER_SCHEMA = pa.schema(
    [field for field in MESSAGE_SCHEMA if field.name not in ("delivery_count", "payload")]
)
"""Those by which code may order them: see `quire.order_code`."""

SETTABLE = (
    "priority",
    "group",
    "sender",
    "correlation_id",
    "reply_to",
    "content_type",
    "expires_at",
    "deliver_at",
    "attributes",
)
"""What a put may set besides the payload."""

GROUP_KEY = "quire.group_key"
"""The attribute that holds a message's `group_key`."""

MISSING = "quire.missing"
"""The attribute that tells how many messages of a sender's sequence are missing before one."""

NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class _OpenMessage:
    """The fields of a message, while they may be set."""

    __slots__ = (
        "attributes",
        "content_type",
        "correlation_id",
        "deliver_at",
        "delivery_count",
        "expires_at",
        "failed_count",
        "group",
        "id",
        "payload",
        "priority",
        "queue",
        "reply_to",
        "sender",
        "time",
    )

    id: int
    queue: str
    payload: bytes
    priority: int
    group: int
    time: int
    sender: str | None
    correlation_id: str | None
    reply_to: str | None
    content_type: str | None
    expires_at: int | None
    deliver_at: int | None
    delivery_count: int
    attributes: Mapping[str, str]
    failed_count: int


MESSAGE_FIELDS = _OpenMessage.__slots__
"""The names of a message's fields."""
_GIVEN = tuple(_OpenMessage.__annotations__)  # the same as `Message` is given them


class Message(_OpenMessage):
    """One delivered message. Immutable.

    `id`: given at its commit, in commit order. `queue`: the name of the one that it came from.
    `payload`: its bytes; `decode` makes a value of them. `priority`, `group`, `sender`,
    `correlation_id`, `reply_to`, `content_type`, `expires_at`, `deliver_at` and `attributes` are as
    its put set them. `time`: that of its commit. `delivery_count` is 1 at the first delivery.
    `failed_count`: how many deliveries before this one were rolled back or rejected. Where the
    queue has `max_deliveries` the others ended with their process; without `retry` failures are
    counted in memory then. Elsewhere these are all. (Columns have no `failed_count`.)
    `time`, `expires_at` and `deliver_at` are microseconds since the epoch, UTC.
    """

    __slots__ = ()

    def __new__(
        cls,
        id: int,
        queue: str,
        payload: bytes,
        priority: int = 0,
        group: int = 0,
        time: int = 0,
        sender: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        content_type: str | None = None,
        expires_at: int | None = None,
        deliver_at: int | None = None,
        delivery_count: int = 1,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
        failed_count: int | None = None,
    ) -> Message:
        # Filled as its open base and then closed: four times faster than object.__setattr__.
        self = object.__new__(_OpenMessage)
        self.id = id
        self.queue = queue
        self.payload = payload
        self.priority = priority
        self.group = group
        self.time = time
        self.sender = sender
        self.correlation_id = correlation_id
        self.reply_to = reply_to
        self.content_type = content_type
        self.expires_at = expires_at
        self.deliver_at = deliver_at
        self.delivery_count = delivery_count
        self.failed_count = delivery_count - 1 if failed_count is None else failed_count
        if attributes is not NO_ATTRIBUTES:
            attributes = MappingProxyType(dict(attributes)) if attributes else NO_ATTRIBUTES
        self.attributes = attributes
        self.__class__ = cls
        return cast("Message", self)

    @property
    def value(self) -> Mapping[str, Any] | None:
        """Of a typed queue: the columns by name (see `TypedMessage`). None of others."""
        return None

    @property
    def group_key(self) -> str | None:
        """The ordered group that it is of (see docs/messages.md); None: of none."""
        return self.attributes.get(GROUP_KEY)

    @property
    def size(self) -> int:
        """Of the payload, in bytes; nothing is read for it."""
        return len(self.payload)

    def open(self) -> PayloadReader:
        """The payload as a binary file that is read, from its beginning; any number of times.

        Of a streamed message (see `Transaction.put_stream`) it holds about 1 MiB in memory, however
        large the payload is, and can be sought in. It works while the message is there: as long as
        the transaction that has got it is open, or nobody has read it for good. Then a read raises
        PositionLost; StoreCorrupt where a part is damaged, of which nothing is returned. For one
        thread.
        """
        return reader_of(self.payload)

    def decode(self, codec: str | None = None) -> Any:
        """The value of the payload, by its content type or the codec of that name: `quire.codecs`.

        Raises CodecNotFound, PayloadInvalid.
        """
        return codecs.decode(self, codec)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a message is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a message is immutable: {name} cannot be deleted")

    def _astuple(self) -> tuple[Any, ...]:
        values = [getattr(self, name) for name in _GIVEN]
        return tuple(dict(v) if isinstance(v, MappingProxyType) else v for v in values)

    def __eq__(self, other: object) -> bool:
        return self._astuple() == other._astuple() if isinstance(other, Message) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.queue, self.id))

    def __reduce__(self) -> tuple[type[Message], tuple[Any, ...]]:
        return Message, self._astuple()

    def __repr__(self) -> str:
        shown = self.payload if len(self.payload) <= 40 else self.payload[:37] + b"..."
        return f"Message(id={self.id}, queue={self.queue!r}, payload={shown!r})"


def plain_message(id: int, queue: str, payload: bytes, time: int, delivery_count: int) -> Message:
    """A message that its put gave a payload only; made in half the time of the general way."""
    message = _OpenMessage()
    message.id = id
    message.queue = queue
    message.payload = payload
    message.priority = message.group = 0
    message.time = time
    message.sender = message.correlation_id = message.reply_to = message.content_type = None
    message.expires_at = message.deliver_at = None
    message.delivery_count = delivery_count
    message.failed_count = delivery_count - 1
    message.attributes = NO_ATTRIBUTES
    message.__class__ = Message
    return message  # type: ignore[return-value]


_STRINGS = {"sender": 64, "correlation_id": 128, "reply_to": 256, "content_type": 512}


class Fields:
    """What a put may set besides the payload. Construction checks everything; immutable by habit.

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
        self.priority = 0 if priority is None else _check_int("priority", priority, MAX_PRIORITY)
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
        """The fields given, or None when none differs from its absent value."""
        try:
            fields = cls(**values)
        except TypeError:
            known = (*SETTABLE, "group_key", *_TIMES)
            unknown = ", ".join(repr(name) for name in values if name not in known)
            raise InvalidArgument(
                f"a put cannot set {unknown}: it may set {', '.join(known)}"
            ) from None
        return fields if fields.columns else None

    @classmethod
    def expiring(cls, given: Fields | None, expiry: Expiry) -> Fields:
        """The same of a message that expires when its queue says, or sooner."""
        own = None if given is None else given.expires_at
        fields = cls() if given is None else copy(given)
        fields.expires_at = expiry.unsaid if own is None else min(own, expiry.latest)
        fields.columns |= 4
        return fields


def with_moments(
    fields: Mapping[str, Any], now_us: Callable[[], int], *, is_moved: bool = False
) -> Mapping[str, Any]:
    """What a put sets, with all its times as microseconds since the epoch (see `quire.moments`).

    `is_moved`: they are those of a message that is there already, and stay as they are.
    """
    if _TIME_NAMES.isdisjoint(fields):
        return fields
    given = dict(fields)
    for name, (moment, least) in _TIMES.items():
        span, at = given.pop(name, None), given.get(moment)
        if at is not None and not is_moved:
            given[moment] = check_moment(moment, at)
        if span is None:
            continue
        if at is not None:
            raise InvalidArgument(f"{name} and {moment} say the same: give one of them")
        given[moment] = now_us() + _check_span(name, span, least)
    return given


def check_payload(payload: object) -> bytes:
    """The payload as bytes, or `InvalidArgument`."""
    if type(payload) is not bytes:
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise InvalidArgument(
                f"a payload must be bytes, bytearray or memoryview, not {type(payload).__name__}; "
                "encode it first, or for a typed queue give a mapping of its columns"
            )
        payload = bytes(payload)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidArgument(
            f"a payload of {len(payload)} bytes is above the limit of {MAX_PAYLOAD_BYTES}; "
            "split it, or put a pointer to where it is kept"
        )
    return payload


def check_message(message: object) -> Message:
    """One that was got."""
    if not isinstance(message, Message):
        raise InvalidArgument(f"message {message!r:.100}: give what a get has returned")
    return message


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


class Delivered(NamedTuple):
    """A slice of a block that was delivered. Message `i` of the block has the id `first_id + i`."""

    block: Block
    start: int
    stop: int
    first_id: int
    time_us: int
    delivery_count: int
    failed_count: int | None = None  # how many of those failed; None: all but this one
    missing: int | None = None  # messages of its sequence before it; -1: perhaps, None: none

    def message(self, queue: str, row: int) -> Message:
        """One of them, with the attribute that tells what is missing."""
        message = self.block.message(
            row,
            queue=queue,
            first_id=self.first_id,
            time_us=self.time_us,
            delivery_count=self.delivery_count,
            failed_count=self.failed_count,
        )
        if self.missing is not None:
            missing = "unknown" if self.missing < 0 else str(self.missing)
            attributes = MappingProxyType({**message.attributes, MISSING: missing})
            object.__setattr__(message, "attributes", attributes)  # nobody has seen it yet
        return message


class Messages(Sequence[Message]):
    """Messages of one queue in delivery order; `Message` objects are made when asked for."""

    __slots__ = ("_ends", "_slices", "queue", "schema")

    def __init__(
        self, queue: str, slices: Sequence[Delivered] = (), schema: str | None = None
    ) -> None:
        """`schema`: of the typed queue that there may be no messages of."""
        self.queue = queue
        self.schema = schema
        self._slices = [part for part in slices if part.start < part.stop]
        self._ends = list(accumulate(part.stop - part.start for part in self._slices))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: int | slice) -> Message | Messages:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return Messages(self.queue, self._narrow(start, stop), self.schema)
            rows = range(start, stop, step)
            parts = [self._narrow(row, row + 1)[0] for row in rows]
            return Messages(self.queue, parts, self.schema)
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"message {index} of {size}")
        part = self._narrow(index % size, index % size + 1)[0]
        return part.message(self.queue, part.start)

    def __iter__(self) -> Iterator[Message]:
        for part in self._slices:
            for row in range(part.start, part.stop):
                yield part.message(self.queue, row)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Messages(queue={self.queue!r}, {len(self)} messages)"

    @property
    def slices(self) -> Sequence[Delivered]:
        """The runs of messages in their blocks, for readers of columns."""
        return self._slices

    @property
    def ids(self) -> list[int]:
        """Of all messages, in their order."""
        ids: list[int] = []
        for part in self._slices:
            ids += part.block.ids(part.first_id, part.start, part.stop).tolist()
        return ids

    def payloads(self) -> list[bytes]:
        """Of all messages, in their order; no `Message` is made for it."""
        payloads: list[bytes] = []
        for part in self._slices:
            payloads += part.block.payloads(part.start, part.stop)
        return payloads

    def to_arrow(self) -> pa.RecordBatch:
        """One batch of `MESSAGE_SCHEMA` with its own memory.

        Of a typed queue its columns, and the header as the column `_meta`. Raises `InvalidArgument`
        above 2 GiB, which one batch cannot hold.
        """
        # Blocks know messages, so the way back is taken at run time.
        from quire.block import no_rows, slices_to_arrow

        if self.schema is not None and not self._slices:
            return no_rows(self.schema, self.queue)
        return slices_to_arrow(self._slices, queue=self.queue)

    def _narrow(self, start: int, stop: int) -> list[Delivered]:
        """The slices of the messages from `start` to `stop`."""
        parts = []
        number = bisect_right(self._ends, start)
        while start < stop:
            part = self._slices[number]
            first = self._ends[number] - (part.stop - part.start)
            end = min(stop, self._ends[number])
            parts.append(
                part._replace(start=part.start + start - first, stop=part.start + end - first)
            )
            start = end
            number += 1
        return parts
