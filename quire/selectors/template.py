"""A template: a message-shaped value that asks for the messages that look like it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import force_setattr

from quire.errors import InvalidArgument
from quire.messages.message import GROUP_KEY
from quire.messages.message_fields import Fields, check_payload
from quire.moments import Moment, check_moment


class Presence(Enum):
    """A demand that a template makes on a field besides values."""

    ANY = "any"

    def __repr__(self) -> str:
        return "quire.ANY"


ANY: Final = Presence.ANY
"""The demand of a template that the field is there, whatever its value is."""

HEADER_FIELDS: Final = (
    "priority",
    "group",
    "sender",
    "correlation_id",
    "reply_to",
    "content_type",
    "expires_at",
    "deliver_at",
)
"""The fields of a template that are columns of every block."""
_TIMES: Final = ("expires_at", "deliver_at")


class Template(Struct, frozen=True, kw_only=True):
    """The messages that are asked for: those whose fields are equal to all that are set here.

    A field that is None is not asked. `quire.ANY` asks that it is there, with any value. Of
    attributes and columns the named ones are asked, whatever others a message has. What is not set
    at all asks for every message. Raises InvalidArgument, as a put does, for what no message can
    have.
    """

    payload: bytes | Presence | None = None
    """The whole payload; of queues of bytes."""
    priority: int | Presence | None = None
    """0 is one, too, which messages have of which their puts said none; so ANY is always there."""
    group: int | Presence | None = None
    """The group, as `priority`."""
    sender: str | Presence | None = None
    """The sender that its put has set."""
    correlation_id: str | Presence | None = None
    """The value that its put has set."""
    reply_to: str | Presence | None = None
    """The value that its put has set."""
    content_type: str | Presence | None = None
    """The value that its put has set."""
    expires_at: Moment | Presence | None = None
    """The moment until which it is handed out, to the microsecond."""
    deliver_at: Moment | Presence | None = None
    """The moment from which it is handed out, to the microsecond."""
    group_key: str | Presence | None = None
    """The key of its ordered group."""
    attributes: Mapping[str, str | Presence] = field(default_factory=dict)
    """Pairs that are in the message's."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Values by column, of typed queues; None is not asked here, too."""

    def __post_init__(self) -> None:
        keep = force_setattr
        for name in ("attributes", "columns"):
            content = getattr(self, name)
            if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
                raise InvalidArgument(f"{name} {content!r:.100}: give a mapping of texts to values")
            keep(self, name, MappingProxyType(dict(content)))
        for name in _TIMES:
            content = getattr(self, name)
            if content is not None and content is not ANY:
                keep(self, name, check_moment(name, content))
        if self.payload is not None and self.payload is not ANY:
            keep(self, "payload", check_payload(self.payload))
        fields = {name: getattr(self, name) for name in (*HEADER_FIELDS, "group_key")}
        fields = {name: value for name, value in fields.items() if value not in (None, ANY)}
        pairs = {key: "" if value is ANY else value for key, value in self.attributes.items()}
        Fields(**fields, attributes=pairs or None)
        if self.group_key is not None and GROUP_KEY in self.attributes:
            raise InvalidArgument(
                f"group_key and the attribute {GROUP_KEY!r} say the same: give one of them"
            )

    def __hash__(self) -> int:
        return hash((self.payload, self.correlation_id, *self.attributes, *self.columns))

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.plain(),)

    def plain(self) -> dict[str, Any]:
        """Return the fields that are set, by name; as keyword arguments they make the template
        again.
        """
        content = {name: getattr(self, name) for name in self.__struct_fields__}
        content = {name: value for name, value in content.items() if value is not None}
        for name in ("attributes", "columns"):
            content[name] = dict(content[name])
            if not content[name]:
                del content[name]
        return content


def _made(content: dict[str, Any]) -> Template:
    return Template(**content)


SelectorOrTemplate: TypeAlias = str | Template
"""A selector or a template."""


def check_selecting(where: object) -> SelectorOrTemplate | None:
    """A selector or a template, not yet read for a queue; None: all. Raises InvalidArgument."""
    if where is None or isinstance(where, str | Template):
        return where
    raise refused(where)


def refused(where: object) -> InvalidArgument:
    """Return the error for a value that is neither."""
    return InvalidArgument(f"where {where!r:.100}: give a selector as text, or a quire.Template")
