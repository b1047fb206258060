"""Commands that move messages from queue to queue, and put dead letters back."""

from __future__ import annotations

import argparse
from typing import Final

from quire.cli.command import Command, ExitStatus
from quire.cli.opened_store import opened
from quire.cli.typed_values import add_where, count


def _move_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="QUEUE, or QUEUE/SUBSCRIPTION of a topic")
    parser.add_argument("queue", metavar="QUEUE", help="where they go")
    parser.add_argument("-n", dest="count", type=count, metavar="N", help="up to N; else all")
    add_where(parser)


def _move(options: argparse.Namespace) -> int:
    with opened(options) as store:
        moved = store.admin.move(
            options.source, options.queue, where=options.where, max_messages=options.count
        )
    print(f"{moved} messages moved")
    return ExitStatus.DONE if moved else ExitStatus.NOTHING


def _redrive_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", metavar="QUEUE", help="where the dead letters are")
    parser.add_argument("-n", dest="count", type=count, metavar="N", help="up to N; else all")
    parser.add_argument("--to", metavar="QUEUE", help="put them there; else where they came from")
    add_where(parser)


def _redrive(options: argparse.Namespace) -> int:
    with opened(options) as store:
        done = store.admin.redrive(options.queue, options.where, options.count, options.to)
    print(f"{done} messages put back")
    return ExitStatus.DONE if done else ExitStatus.NOTHING


COMMANDS: Final = (
    Command(
        "move",
        "move messages to another queue",
        _move,
        _move_arguments,
        "In transactions of 1,000. The exit status is 3 where there was none.",
        calls=("admin.move",),
    ),
    Command(
        "redrive",
        "put dead letters back to the queues where they come from",
        _redrive,
        _redrive_arguments,
        "The exit status is 3 where there was none.\n\n"
        "  quire redrive shop.quire failed\n  quire redrive shop.quire failed -n 10 --to orders",
        calls=("admin.redrive",),
    ),
)
