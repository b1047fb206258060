"""Commands that take messages, and that look at them."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

from quire.cli import message_command
from quire.cli.command import Command, ExitStatus, argument
from quire.cli.opened_store import opened, seen, source_parts
from quire.cli.printing import add_forms, moment_text, payload_start, print_message, print_table
from quire.cli.typed_values import add_where, count, number, place, shell_command, wait
from quire.limits import COMMAND_BATCH_MESSAGES

_SOURCE: Final = argument(
    "source", metavar="SOURCE", help="QUEUE of a work queue, QUEUE/SUBSCRIPTION of a topic"
)
_LIMIT: Final = argument(
    "-n", dest="count", type=count, default=COMMAND_BATCH_MESSAGES, metavar="N",
    help=f"up to N; else {COMMAND_BATCH_MESSAGES}",
)  # fmt: skip


def _get(options: argparse.Namespace) -> int:
    if options.exec is not None:
        return _get_and_run(options)
    with opened(options) as store, store.transaction() as txn:
        messages = _take(txn, options)
        for message in messages:
            print_message(message, options)
        sys.stdout.flush()  # LN4
    return ExitStatus.DONE if messages else ExitStatus.NOTHING


def _get_and_run(options: argparse.Namespace) -> int:
    """Run a command on each message, in a transaction of its own (EX1)."""
    done = 0
    with opened(options) as store:
        while done < options.count:
            with store.transaction(timeout=math.inf) as txn:
                message = txn.get(options.source, timeout=options.wait, where=options.where)
                if message is None:
                    break
                outcome = message_command.run_on(options.exec, message, options)
                if outcome.failure:
                    txn.reject(message, outcome.failure)
            if outcome.failure:
                print(
                    f"quire: {outcome.failure}: message {message.id} of {options.source} is not "
                    "done with: it comes again, or becomes a dead letter",
                    file=sys.stderr,
                )
            if outcome.stopped_by == signal.SIGINT:
                return ExitStatus.INTERRUPTED
            if outcome.failure:
                return ExitStatus.ERROR
            done += 1
            if outcome.stopped_by is not None:
                break
    return ExitStatus.DONE if done else ExitStatus.NOTHING


def _take(txn: Any, options: argparse.Namespace) -> Sequence[Any]:
    criteria = {"timeout": options.wait, "where": options.where}
    if options.count > 1:
        return txn.get_many(options.source, options.count, **criteria)  # type: ignore[no-any-return]
    message = txn.get(options.source, **criteria)
    return () if message is None else (message,)


def _browse(options: argparse.Namespace) -> None:
    def shown(store: Any) -> tuple[list[Any], int]:
        messages = list(
            store.browse(
                options.source, options.count, start=options.start, after=options.after,
                where=options.where,
            )
        )  # fmt: skip
        return messages, _message_count(store, options.source) - len(messages)

    messages, more = seen(options, shown)
    for message in messages:
        print_message(message, options)
    is_part = options.start is not None or options.after is not None or options.where is not None
    if len(messages) == options.count and more > 0 and not is_part:
        sys.stdout.flush()
        print(f"quire: {more} more are there: give -n {options.count + more}", file=sys.stderr)


def _message_count(store: Any, source: str) -> int:
    """Return how many messages a queue holds, or how many a subscription has not read."""
    queue, subscription = source_parts(source)
    if subscription is None:
        return int(store.queue(queue).messages)
    return sum(info.pending for info in store.subscriptions(queue) if info.name == subscription)


def _scheduled(options: argparse.Namespace) -> None:
    messages = seen(options, lambda store: list(store.delayed.list(options.source, options.count)))
    if options.json or options.raw:
        for message in messages:
            print_message(message, options)
        return
    rows = [("ID", "DUE", "BYTES", "PAYLOAD")]
    for message in messages:
        due, size = moment_text(message.deliver_at), str(message.size)
        rows.append((str(message.id), due, size, payload_start(message.payload)))
    print_table(rows)


def _cancel(options: argparse.Namespace) -> int:
    with opened(options) as store:
        if store.delayed.cancel(options.source, options.id):
            return ExitStatus.DONE
    print(
        f"quire: no message {options.id} waits in {options.source}: it was due, or there is none",
        file=sys.stderr,
    )
    return ExitStatus.NOTHING


COMMANDS: Final = (
    Command(
        "get",
        "take messages and print them",
        _get,
        (
            _SOURCE,
            argument("-n", dest="count", type=count, default=1, metavar="N", help="up to N"),
            argument(
                "--wait", type=wait, default=0.0, metavar="S",
                help="how long to wait for the first one: seconds, or 10m, 2h, or forever",
            ),
            argument(
                "--exec", type=shell_command, metavar="COMMAND",
                help="run this command of the shell on each, and keep it until that has succeeded",
            ),
            add_where,
            add_forms,
        ),
        "They are gone when they were printed. The exit status is 3 where none came.\n\n"
        "With --exec the payload is the command's standard input (--json: all fields), and its\n"
        "environment has QUIRE_ID, QUIRE_QUEUE, QUIRE_PRIORITY, QUIRE_DELIVERY_COUNT and so on,\n"
        "QUIRE_ATTRIBUTES as JSON (of 128 KiB at most: a longer one is left out). Status 0 is\n"
        "success. With any other, or where a signal ends it, the message is rejected: it comes\n"
        "again, by the queue's `retry` and `max_deliveries`; no further one is taken, and the\n"
        "status here is 1.\n\n"
        "  quire get shop.quire orders --wait 10\n"
        "  quire get shop.quire events/audit -n 100 --json\n"
        "  quire get shop.quire films --raw > film\n"
        "  quire get shop.quire orders -n 1000 --wait forever --exec ./handle-order",
        calls=("get", "get_many"),
    ),
    Command(
        "browse",
        "print messages without taking them",
        _browse,
        (
            argument(
                "source", metavar="SOURCE",
                help="QUEUE: all that is kept; QUEUE/SUBSCRIPTION: its unread",
            ),
            _LIMIT,
            argument(
                "--from", dest="start", type=place, metavar="POSITION",
                help="begin at this position",
            ),
            argument("--after", type=number, metavar="ID", help="begin behind this message"),
            add_where,
            add_forms,
        ),
        "  quire browse shop.quire orders -n 10 --json\n"
        '  quire browse shop.quire orders --where "total = 100"',
        calls=("browse",),
    ),
    Command(
        "scheduled",
        "list messages that are not due yet",
        _scheduled,
        (_SOURCE, _LIMIT, add_forms),
        "Those of a queue with timed=true that were put with --delay or --deliver-at.",
        calls=("delayed.list",),
    ),
    Command(
        "cancel",
        "take a message away before it is due",
        _cancel,
        (_SOURCE, argument("id", type=number, metavar="ID", help="as `scheduled` lists it")),
        "The exit status is 3 where it was too late.\n\n  quire cancel shop.quire mails 17",
        calls=("delayed.cancel",),
    ),
)  # fmt: skip
