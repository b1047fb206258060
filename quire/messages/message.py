"""Messages: what a put may set, what a get returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from quire.errors import InvalidArgument, PayloadInvalid
from quire.libraries.late_modules import stand_in

from .payload_reader import PayloadReader, reader_of

if TYPE_CHECKING:
    from quire import codecs
else:
    codecs = stand_in("quire.codecs")

MESSAGE_COLUMNS = (
    "id",
    "priority",
    "group",
    "time",
    "sender",
    "correlation_id",
    "reply_to",
    "content_type",
    "expires_at",
    "deliver_at",
    "delivery_count",
    "attributes",
    "payload",
)
"""The columns of a batch of messages: see `quire.messages.message_schema`."""

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
"""The fields that a put may set besides the payload."""

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
_ARGUMENTS = tuple(_OpenMessage.__annotations__)  # in the order of `Message`'s own


class Message(_OpenMessage):
    """A delivered message. Immutable.

    `id`: given at its commit, in commit order. `queue`: the name of the one that it came from.
    `payload`: its bytes; `decode` makes a value of them. `priority`, `group`, `sender`,
    `correlation_id`, `reply_to`, `content_type`, `expires_at`, `deliver_at` and `attributes` are as
    its put set them. `time`: that of its commit. `delivery_count` is 1 at the first delivery,
    and 0 where the message was browsed, which delivers nothing.
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
    def value(self) -> Any:
        """The columns by name, of a typed queue (see `TypedMessage`). Else what `decode` gives.

        None of a message without a payload and a content type; PayloadInvalid is raised where there
        is a payload of which nothing says what it is. Raises CodecNotFound, PayloadInvalid.
        """
        if self.content_type is None:
            if not self.size:
                return None
            raise PayloadInvalid(
                f"message {self.id} of queue {self.queue!r} has no content type, by which its "
                f"{self.size} bytes would be a value: take its payload, or put values"
            )
        return codecs.decode(self)

    @property
    def group_key(self) -> str | None:
        """The ordered group that it is of (see docs/order.md); None: of none."""
        return self.attributes.get(GROUP_KEY)

    @property
    def size(self) -> int:
        """The size of the payload, in bytes; nothing is read for it."""
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
        values = [getattr(self, name) for name in _ARGUMENTS]
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


def check_message(message: object) -> Message:
    """Return the message. Raises InvalidArgument for anything else."""
    if not isinstance(message, Message):
        raise InvalidArgument(f"message {message!r:.100}: give what a get has returned")
    return message


def check_messages(messages: object) -> list[Message]:
    """Return the messages as a list. Raises InvalidArgument."""
    if not isinstance(messages, Iterable):
        raise InvalidArgument(f"messages {messages!r:.100}: give messages that were got")
    return [check_message(message) for message in messages]
