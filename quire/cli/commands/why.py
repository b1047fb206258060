"""The command that explains why a message is not delivered."""

from __future__ import annotations

import argparse
from typing import Any, Final

from quire.cli.command import JSON, Command, argument
from quire.cli.opened_store import seen
from quire.cli.printing import fields_of, print_json
from quire.cli.typed_values import number


def _why(options: argparse.Namespace) -> None:
    found: Any = seen(options, lambda store: store.admin.explain(options.source, options.id))
    text = options.in_commands(found.text)  # as an error's, whose text names calls
    if options.json:
        print_json(fields_of(found) | {"text": text})
    else:
        print(text)


COMMANDS: Final = (
    Command(
        "why",
        "explain why a message, or the next one, is not delivered",
        _why,
        (
            argument(
                "source",
                metavar="SOURCE",
                help="QUEUE of a work queue, QUEUE/SUBSCRIPTION of a topic",
            ),
            argument("id", nargs="?", type=number, metavar="ID", help="else the next message"),
            JSON,
        ),
        "It says why, since or until when, and what to do. Nothing is taken or changed.\n\n"
        "  quire why shop.quire orders\n"
        "  quire why shop.quire events/audit 17",
        calls=("admin.explain",),
    ),
)
