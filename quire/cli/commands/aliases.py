"""Commands for aliases: further names of queues."""

from __future__ import annotations

import argparse
from typing import Final

from quire.cli.command import Command
from quire.cli.opened_store import opened, seen
from quire.cli.printing import print_json, print_table


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="ALIAS")
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument("--replace", action="store_true", help="take it from another queue")


def _create(options: argparse.Namespace) -> None:
    with opened(options) as store:
        store.admin.create_alias(options.name, options.queue, options.replace)


def _drop_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="ALIAS")


def _drop(options: argparse.Namespace) -> None:
    with opened(options) as store:
        store.admin.drop_alias(options.name)


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def _list(options: argparse.Namespace) -> None:
    aliases = seen(options, lambda store: store.admin.aliases())
    if options.json:
        print_json(aliases)
    else:
        print_table([("ALIAS", "QUEUE"), *aliases.items()])


COMMANDS: Final = (
    Command(
        "create-alias",
        "give a queue one more name",
        _create,
        _create_arguments,
        calls=("admin.create_alias",),
    ),
    Command(
        "drop-alias",
        "take an alias away; its queue stays",
        _drop,
        _drop_arguments,
        calls=("admin.drop_alias",),
    ),
    Command(
        "aliases",
        "list the aliases of queues",
        _list,
        _list_arguments,
        calls=("admin.aliases",),
    ),
)
