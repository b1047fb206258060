"""Commands for schedules: messages that are put whenever a cron text says."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any, Final

from quire.cli.command import JSON, Command, argument
from quire.cli.opened_store import calling, opened, seen
from quire.cli.printing import moment_text, print_listing
from quire.cli.typed_values import pairs, value
from quire.interface import schedules as schedule_checks

_NAME: Final = argument("name", metavar="SCHEDULE")
_HEADS: Final = ("SCHEDULE", "QUEUE", "CRON", "TIME ZONE", "LAST", "NEXT", "WAITS FOR")


def _list(options: argparse.Namespace) -> None:
    schedules = seen(options, lambda store: store.cron.list())
    print_listing(options, schedules, _HEADS, map(_row, schedules))


def _row(info: Any) -> tuple[str, ...]:
    following = "paused" if info.paused else moment_text(info.next_us)
    last, waiting = moment_text(info.last_us), info.waiting or "-"
    return info.name, info.queue, info.cron, info.timezone, last, following, waiting


def _create(options: argparse.Namespace) -> None:
    values = {"queue": options.queue, "cron": options.cron} | _changes(options.changes)
    with opened(options) as store:
        store.cron.create(options.name, **values)


def _alter(options: argparse.Namespace) -> None:
    changes = _changes(options.changes)
    with opened(options) as store:
        store.cron.alter(options.name, **changes)


def _changes(words: Iterable[str]) -> dict[str, Any]:
    """Return the changes of NAME=VALUE; the payload is a text. Raises InvalidArgument."""
    texts = dict(pairs(words, "payload=books"))
    changes = {name: value(text) for name, text in texts.items()}
    changes |= {name: os.fsencode(text) for name, text in texts.items() if name == "payload"}
    schedule_checks.check_schedule(changes)
    return changes


_WORDS: Final = """\
NAME=VALUE: payload, timezone, missed (skip, once, all), paused; and of the messages priority,
delay, ttl, group_key, content_type, correlation_id, reply_to, sender,
attributes={"name": "value"}."""

COMMANDS: Final = (
    Command(
        "create-schedule",
        "have a message put whenever a cron text says",
        _create,
        (
            _NAME,
            argument("queue", metavar="QUEUE"),
            argument("cron", metavar="CRON", help="as '30 2 * * MON-FRI', or @daily"),
            argument(
                "changes",
                nargs="*",
                metavar="NAME=VALUE",
                help="as payload=TEXT timezone=Europe/Berlin",
            ),
        ),
        f"{_WORDS}\n\n  quire create-schedule shop.quire nightly jobs '30 2 * * *' payload=clean",
        calls=("cron.create",),
    ),
    Command(
        "alter-schedule",
        "change or pause a schedule",
        _alter,
        (_NAME, argument("changes", nargs="+", metavar="NAME=VALUE", help="as paused=true")),
        f"{_WORDS}\n\n  quire alter-schedule shop.quire nightly paused=true",
        calls=("cron.alter",),
    ),
    Command(
        "drop-schedule",
        "remove a schedule; what it has put stays",
        calling("cron.drop", "name"),
        (_NAME,),
        calls=("cron.drop",),
    ),
    Command(
        "schedules",
        "list the schedules: when they were and are due",
        _list,
        (JSON,),
        calls=("cron.list",),
    ),
)
