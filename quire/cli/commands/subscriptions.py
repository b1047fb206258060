"""Commands that make, move and remove subscriptions of topics."""

from __future__ import annotations

import argparse
from typing import Final

from quire.cli.command import Command, argument
from quire.cli.opened_store import calling, opened
from quire.cli.typed_values import START, seconds, start

_NAMES: Final = (
    argument("queue", metavar="QUEUE"),
    argument("subscription", metavar="SUBSCRIPTION"),
)


def _subscribe(options: argparse.Namespace) -> None:
    with opened(options) as store:
        store.subscribe(
            options.queue,
            options.subscription,
            start(options.start),
            options.exclusive or None,
            where=options.where,
        )


def _seek(options: argparse.Namespace) -> None:
    with opened(options) as store, store.transaction() as txn:
        txn.seek(options.source, start(options.to), timeout=options.wait)


COMMANDS: Final = (
    Command(
        "subscribe",
        "make a subscription, which gets every message of a topic",
        _subscribe,
        (
            *_NAMES,
            argument("--start", default="earliest", help=f"{START}; else earliest"),
            argument(
                "--exclusive",
                action="store_true",
                help="one transaction at a time has messages of it",
            ),
            argument(
                "--where",
                metavar="SELECTOR",
                help='only messages that it holds for, as "total > 100"',
            ),
        ),
        "  quire subscribe shop.quire events audit\n  quire get shop.quire events/audit\n"
        '  quire subscribe shop.quire events large --where "total = 100"',
        calls=("subscribe",),
    ),
    Command(
        "unsubscribe",
        "remove a subscription; what only it had not read goes",
        calling("unsubscribe", "queue", "subscription"),
        _NAMES,
        calls=("unsubscribe",),
    ),
    Command(
        "seek",
        "read again, or skip: move a subscription to a position, a time or a message",
        _seek,
        (
            argument("source", metavar="QUEUE/SUBSCRIPTION"),
            argument("to", metavar="START", help=START),
            argument(
                "--wait",
                type=seconds,
                default=0.0,
                metavar="S",
                help="how long to wait for those who have got messages of it; else not at all",
            ),
        ),
        "What is kept from there on is unread then, and all before it is read.\n\n"
        "  quire seek shop.quire events/audit 2025-01-31T12:00:00",
        calls=("seek",),
    ),
)
