"""Commands that make, move and remove subscriptions of topics."""

from __future__ import annotations

import argparse
from typing import Final

from quire.cli.command import Command
from quire.cli.opened_store import opened
from quire.cli.typed_values import START, seconds, start


def _names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("subscription", metavar="SUBSCRIPTION")


def _subscribe_arguments(parser: argparse.ArgumentParser) -> None:
    _names(parser)
    parser.add_argument("--start", default="earliest", help=f"{START}; else earliest")
    parser.add_argument(
        "--exclusive", action="store_true", help="one transaction at a time has messages of it"
    )


def _subscribe(options: argparse.Namespace) -> None:
    with opened(options) as store:
        store.subscribe(
            options.queue, options.subscription, start(options.start), options.exclusive or None
        )


def _unsubscribe(options: argparse.Namespace) -> None:
    with opened(options) as store:
        store.unsubscribe(options.queue, options.subscription)


def _seek_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="QUEUE/SUBSCRIPTION")
    parser.add_argument("to", metavar="START", help=START)
    parser.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="S",
        help="how long to wait for those who have got messages of it; else not at all",
    )


def _seek(options: argparse.Namespace) -> None:
    with opened(options) as store, store.transaction() as txn:
        txn.seek(options.source, start(options.to), timeout=options.wait)


COMMANDS: Final = (
    Command(
        "subscribe",
        "make a subscription, which gets every message of a topic",
        _subscribe,
        _subscribe_arguments,
        "  quire subscribe shop.quire events audit\n  quire get shop.quire events/audit",
        calls=("subscribe",),
    ),
    Command(
        "unsubscribe",
        "remove a subscription; what only it had not read goes",
        _unsubscribe,
        _names,
        calls=("unsubscribe",),
    ),
    Command(
        "seek",
        "read again, or skip: move a subscription to a position, a time or a message",
        _seek,
        _seek_arguments,
        "What is kept from there on is unread then, and all before it is read.\n\n"
        "  quire seek shop.quire events/audit 2025-01-31T12:00:00",
        calls=("seek",),
    ),
)
