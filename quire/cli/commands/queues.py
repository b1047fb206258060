"""Commands that make, change, list and remove queues."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any, Final

from quire.arguments import check_changes, check_making, check_name
from quire.cli.command import Command, ExitStatus, argument
from quire.cli.opened_store import calling, creation, opened, seen, source_parts
from quire.cli.printing import counted, fields_of, print_json, print_table
from quire.cli.typed_values import add_where, count, number, properties, size
from quire.definitions.properties import MADE_WITH
from quire.opening import checked_path
from quire.opening import open as open_store

QueuesAndReaders = tuple[list[Any], dict[str, list[Any]]]


_NAME: Final = argument("name", metavar="QUEUE")
DATA_FILES: Final = argument(
    "--data-files", type=number, metavar="N", help="how many data files a new store has"
)


def _create(options: argparse.Namespace) -> None:
    own = (*MADE_WITH, "type")
    values = properties(options.properties) | {
        name: getattr(options, name) for name in own if getattr(options, name) is not None
    }
    check_name(options.name, "queue")  # first, or a store would be made for nothing
    checked = check_making(values)
    with open_store(checked_path(options.path), **creation(options)) as store:
        store.create_queue(options.name, exist_ok=options.exist_ok, **checked)


def _alter(options: argparse.Namespace) -> None:
    changes = check_changes(properties(options.properties))
    with opened(options) as store:
        store.alter_queue(options.name, **changes)


def _drop(options: argparse.Namespace) -> int:
    with opened(options) as store:
        queue = store.queue(options.name)
        going = [counted(queue.messages, "message")]
        if queue.kind == "topic" and queue.subscriptions:
            plural = "s" * (len(queue.subscriptions) > 1)
            going.append(f"the subscription{plural} {', '.join(queue.subscriptions)}")
        is_empty = not (queue.messages or queue.subscriptions)
        is_alias = queue.name != options.name  # which the drop refuses
        if not (is_empty or is_alias or options.force):
            print(
                f"quire: queue {queue.name} has {' and '.join(going)}: give --force to drop it "
                f"with them, or first take them, move them (quire move) or purge it",
                file=sys.stderr,
            )
            return ExitStatus.USAGE
        store.drop_queue(options.name)
    print(f"queue {queue.name} is gone" + ("" if is_empty else f", with {' and '.join(going)}"))
    return ExitStatus.DONE


def _purge(options: argparse.Namespace) -> None:
    with opened(options) as store:
        removed = store.admin.purge(*source_parts(options.source), where=options.where)
        print(f"{removed} messages removed")


def _list(options: argparse.Namespace) -> None:
    found = seen(options, queues_and_readers)
    if options.json:
        queues, subscriptions = found
        print_json([_as_json(queue, subscriptions[queue.name]) for queue in queues])
    else:
        print_queues(found)


def print_queues(found: QueuesAndReaders) -> None:
    """Print the queues as a table."""
    queues, subscriptions = found
    rows = [("QUEUE", "KIND", "MESSAGES", "USED", "CAPACITY", "SUBSCRIPTIONS (PENDING)")]
    for queue in queues:
        readers = [f"{s.name or '-'} ({s.pending})" for s in subscriptions[queue.name]]
        numbers = queue.messages, queue.used_bytes, queue.capacity_bytes
        rows.append((queue.name, queue.kind, *map(str, numbers), ", ".join(readers)))
    print_table(rows)


def queues_and_readers(store: Any) -> QueuesAndReaders:
    """Return all queues, with their subscriptions by name."""
    queues = store.queues()
    return queues, {queue.name: store.subscriptions(queue.name) for queue in queues}


def _as_json(queue: Any, subscriptions: Iterable[Any]) -> dict[str, Any]:
    return {**fields_of(queue), "subscriptions": list(subscriptions)}


_PROPERTIES: Final = """\
NAME=VALUE sets a property, each in the same way here and in alter-queue: a text, a number, true or
false, JSON; bytes as 64K, 512M, 2G; times as 90s, 10m, 2h, 7d; null for none. Some:
max_deliveries=5 dead_letter=failed order=priority timed=true ttl=2h overflow=wait capacity=2G
text="what it is for". docs/queues.md tells of each."""

COMMANDS: Final = (
    Command(
        "create-queue",
        "make a queue, and a store for it where there is none",
        _create,
        (
            _NAME,
            argument("properties", nargs="*", metavar="NAME=VALUE", help="as max_deliveries=5"),
            argument(
                "--kind",
                choices=("topic", "work"),
                help="work (the default): each message goes to one reader; topic: each "
                "subscription gets every message",
            ),
            argument("--type", help="persistent (the default), volatile, or a registered one"),
            argument("--capacity", type=size, metavar="BYTES", help="bytes, or 64M, 2G; else 1G"),
            argument("--max-messages", type=count, metavar="N", help="how many it may hold"),
            argument("--data-file", type=number, metavar="N", help="from 0; else by the name"),
            DATA_FILES,
            argument(
                "--exist-ok",
                action="store_true",
                help="a queue that is there, as it is asked for, is fine",
            ),
        ),
        f"{_PROPERTIES}\n\n  quire create-queue shop.quire orders --capacity 2G\n"
        "  quire create-queue shop.quire jobs max_deliveries=5 dead_letter=failed",
        calls=("create_queue",),
    ),
    Command(
        "alter-queue",
        "change limits and properties of a queue",
        _alter,
        (_NAME, argument("properties", nargs="+", metavar="NAME=VALUE", help="as capacity=2G")),
        f"{_PROPERTIES}\n\nWhat is not named stays; puts=false and gets=false stop a queue.\n\n"
        "  quire alter-queue shop.quire orders capacity=2G puts=false",
        calls=("alter_queue",),
    ),
    Command(
        "drop-queue",
        "remove a queue with its messages and subscriptions",
        _drop,
        (
            _NAME,
            argument(
                "--force",
                action="store_true",
                help="also where messages wait, or subscriptions are there; they go with it",
            ),
        ),
        "It says what went. A queue that is not empty stays, unless --force is given.\n\n"
        "  quire drop-queue shop.quire orders --force",
        calls=("drop_queue",),
    ),
    Command(
        "rename-queue",
        "give a queue another name",
        calling("admin.rename_queue", "name", "new_name"),
        (_NAME, argument("new_name", metavar="NEW_NAME")),
        calls=("admin.rename_queue",),
    ),
    Command(
        "purge",
        "remove all messages that wait",
        _purge,
        (argument("source", metavar="SOURCE", help="QUEUE, or QUEUE/SUBSCRIPTION"), add_where),
        "Of QUEUE/SUBSCRIPTION, what waits for this subscription alone.",
        calls=("admin.purge",),
    ),
    Command(
        "queues",
        "list the queues with their subscriptions",
        _list,
        (argument("--json", action="store_true", help="as JSON, with all that is known"),),
        calls=("queues",),
    ),
)
