"""The options of a schedule, at its making and later."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict, cast

from quire.arguments import Bytes, check_flag, check_name
from quire.errors import InvalidArgument
from quire.limits import MAX_CRON_CHARACTERS
from quire.messages.message_fields import Fields, check_payload, with_moments
from quire.moments import Duration, seconds_of

MissedPolicy = Literal["skip", "once", "all"]
SKIP: Final = "skip"
ONCE: Final = "once"
ALL: Final = "all"
MISSED: Final = (SKIP, ONCE, ALL)

SCHEDULE: Final = "quire.schedule"
DUE: Final = "quire.due"
"""Attributes of a message that a schedule has put: its name, and when it was due."""


class ScheduleOptions(TypedDict, total=False):
    """The options of `store.cron.create` and `alter`, by name; those left out stay as they are.

    But for the first three these are fields of the message, as `Transaction.put` takes them.
    """

    timezone: str
    """In which the cron text is read, as "Europe/Berlin"; by default "UTC"."""
    missed: MissedPolicy
    """The treatment of due times to which the store comes more than a minute late, as it was not
    open or its queue was full. "skip": nothing is put. "once" (the default): one message stands for
    them all, the last one. "all": each is put, 1,000 of them at most, the last ones."""
    paused: bool
    """True: nothing is put for the time being. Due times meanwhile do not count as missed."""
    priority: int | None
    group: int | None
    sender: str | None
    correlation_id: str | None
    reply_to: str | None
    content_type: str | None
    ttl: Duration | None
    """Seconds from its put on, as `delay`."""
    delay: Duration | None
    attributes: Mapping[str, str] | None
    """To which `quire.schedule` and `quire.due` are added: the schedule's name, and the due time
    in microseconds since the epoch."""
    group_key: str | None


class ScheduleChanges(ScheduleOptions, total=False):
    """The changes that `store.cron.alter` takes by name."""

    queue: str
    """The queue that gets the messages."""
    cron: str
    """The times of the messages, as for `create`."""
    payload: Bytes
    """The messages' payload."""


OWN: Final = ("queue", "cron", "payload", "timezone", "missed", "paused")
FIELDS: Final = tuple(name for name in ScheduleOptions.__annotations__ if name not in OWN)
DEFAULTS: Final[Mapping[str, Any]] = {
    "payload": "", "timezone": "UTC", "missed": ONCE, "paused": False,
}  # fmt: skip


def check_schedule(arguments: Mapping[str, object]) -> dict[str, Any]:
    """Check the options of a schedule, and return them as JSON has them. Raises InvalidArgument.

    Whether the cron text names any time, and the time zone is known, is for the store's owner to
    say.
    """
    _check_names(arguments)
    checked: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == "queue":
            checked[name] = check_name(value, "queue")
        elif name == "payload":
            checked[name] = base64.b64encode(check_payload(value)).decode()
        elif name == "paused":
            checked[name] = check_flag(name, value)
        elif name == "missed":
            checked[name] = _missed(value)
        elif name in ("cron", "timezone"):
            checked[name] = _text(name, value)
    fields = {name: seconds_of(arguments[name]) for name in FIELDS if name in arguments}
    if isinstance(fields.get("attributes"), Mapping):
        fields["attributes"] = dict(cast("Mapping[str, str]", fields["attributes"]))
    present = {name: value for name, value in fields.items() if value is not None}
    Fields.of(**with_moments(present, _epoch))
    return checked | fields


def _check_names(arguments: Mapping[str, object]) -> None:
    unknown = [name for name in arguments if name not in (*OWN, *FIELDS)]
    if unknown:
        raise InvalidArgument(
            f"{unknown[0]!r:.100} is nothing of a schedule: there are {', '.join((*OWN, *FIELDS))}"
        )


def message_of(body: Mapping[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Payload and fields of the message that an entry of the catalog says."""
    fields = {name: body[name] for name in FIELDS if body.get(name) is not None}
    return base64.b64decode(body["payload"]), fields


def _epoch() -> int:
    """Moments are only checked, and not kept."""
    return 0


def _missed(value: object) -> MissedPolicy:
    if not isinstance(value, str) or value not in MISSED:
        raise InvalidArgument(f"missed {value!r:.100}: give one of {', '.join(MISSED)}")
    return cast(MissedPolicy, value)


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_CRON_CHARACTERS and value.isprintable():
        return value
    raise InvalidArgument(
        f"{name} {value!r:.100}: give a printable str of up to {MAX_CRON_CHARACTERS} characters"
    )
