"""Commands for aliases: further names of queues."""

from __future__ import annotations

import argparse
from typing import Final

from quire.cli.command import JSON, Command, argument
from quire.cli.opened_store import calling, seen
from quire.cli.printing import print_listing

_ALIAS: Final = argument("name", metavar="ALIAS")


def _list(options: argparse.Namespace) -> None:
    aliases = seen(options, lambda store: store.admin.aliases())
    print_listing(options, aliases, ("ALIAS", "QUEUE"), aliases.items())


COMMANDS: Final = (
    Command(
        "create-alias",
        "give a queue one more name",
        calling("admin.create_alias", "name", "queue", "replace"),
        (
            _ALIAS,
            argument("queue", metavar="QUEUE"),
            argument("--replace", action="store_true", help="take it from another queue"),
        ),
        calls=("admin.create_alias",),
    ),
    Command(
        "drop-alias",
        "take an alias away; its queue stays",
        calling("admin.drop_alias", "name"),
        (_ALIAS,),
        calls=("admin.drop_alias",),
    ),
    Command("aliases", "list the aliases of queues", _list, (JSON,), calls=("admin.aliases",)),
)
