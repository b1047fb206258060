"""Commands for transactions: the open ones, those that are prepared, and what they keep."""

from __future__ import annotations

import argparse
from typing import Any, Final

from quire.cli.command import JSON, Command, argument
from quire.cli.opened_store import calling, seen
from quire.cli.printing import bytes_json, payload_start, print_json, print_listing, print_table
from quire.cli.typed_values import number

_XID: Final = argument("xid", metavar="XID", help="as `recover` lists it")
_HEADS: Final = (
    "ID", "AGE", "LEFT", "OWNER", "QUEUES", "MESSAGES", "BYTES", "SPILLED", "IN FLIGHT",
)  # fmt: skip


def _list(options: argparse.Namespace) -> None:
    if options.id is not None:
        _show(options)
        return
    transactions = seen(options, lambda store: store.admin.transactions())
    rows = (
        (
            str(info.id),
            f"{info.age_seconds:.0f}s",
            _left(info),
            info.owner,
            ", ".join(info.queues) or "-",
            str(info.messages),
            str(info.bytes),
            str(info.spilled_bytes + info.file_bytes),
            str(info.in_flight),
        )
        for info in transactions
    )
    print_listing(options, transactions, _HEADS, rows)


def _show(options: argparse.Namespace) -> None:
    info = seen(options, lambda store: store.admin.transaction(options.id))
    if options.json:
        print_json(info)
        return
    places = (
        (info.buffered_bytes, "in memory"),
        (info.spilled_bytes, "in pages of the data files"),
        (info.file_bytes, "in files"),
    )
    sizes = ", ".join(f"{size} {place}" for size, place in places if size)
    rows = (
        ("ID", str(info.id)),
        ("OWNER", info.owner),
        ("AGE", f"{info.age_seconds:.0f}s"),
        ("LEFT", _left(info)),
        ("LARGE", "yes" if info.large else "no"),
        ("QUEUES", ", ".join(info.queues) or "-"),
        ("MESSAGES", str(info.messages)),
        ("BYTES", f"{info.bytes}: {sizes}" if sizes else str(info.bytes)),
        ("IN FLIGHT", str(info.in_flight)),
        ("SOURCES", ", ".join(info.sources) or "-"),
    )
    print_table(rows)


def _left(info: Any) -> str:
    """Return the time until it is rolled back."""
    return "-" if info.seconds_left is None else f"{info.seconds_left:.0f}s"


def _recover(options: argparse.Namespace) -> None:
    prepared = seen(options, lambda store: store.prepared.list())
    rows = (
        (
            info.xid,
            f"{info.age_seconds:.0f}s",
            str(info.messages),
            str(info.bytes),
            ", ".join(info.queues),
        )
        for info in prepared
    )
    print_listing(options, prepared, ("XID", "AGE", "MESSAGES", "BYTES", "QUEUES"), rows)


def _state(options: argparse.Namespace) -> None:
    """The names of the state with how much they hold, or the values of one name."""

    def look(store: Any) -> dict[str, dict[str, bytes]]:
        names = store.states.names() if options.name is None else [options.name]
        return {name: store.states.items(name) for name in names}

    found = seen(options, look)
    if options.json:
        print_json(
            [
                {"name": name, "key": key, **bytes_json("value", value)}
                for name, items in found.items()
                for key, value in items.items()
            ]
        )
        return
    if options.name is None:
        rows = [("NAME", "KEYS", "BYTES")]
        for name, items in found.items():
            size = sum(len(key.encode()) + len(value) for key, value in items.items())
            rows.append((name, str(len(items)), str(size)))
    else:
        rows = [("KEY", "BYTES", "VALUE")]
        for key, value in found[options.name].items():
            rows.append((key, str(len(value)), payload_start(value)))
    print_table(rows)


COMMANDS: Final = (
    Command(
        "transactions",
        "list the open transactions: whose, how old, what they hold",
        _list,
        (argument("id", nargs="?", type=number, metavar="ID", help="all of this one"), JSON),
        calls=("admin.transactions", "admin.transaction"),
    ),
    Command(
        "abort",
        "roll back an open transaction, whosever it is",
        calling("admin.abort", "id"),
        (argument("id", type=number, metavar="ID", help="as `transactions` lists it"),),
        calls=("admin.abort",),
    ),
    Command(
        "recover",
        "list the prepared transactions that wait for a decision",
        _recover,
        (JSON,),
        calls=("prepared.list",),
    ),
    Command(
        "commit-prepared",
        "commit a prepared transaction",
        calling("prepared.commit", "xid"),
        (_XID,),
        calls=("prepared.commit",),
    ),
    Command(
        "rollback-prepared",
        "roll back a prepared transaction",
        calling("prepared.rollback", "xid"),
        (_XID,),
        calls=("prepared.rollback",),
    ),
    Command(
        "state",
        "list the values that transactions have set, by name and key",
        _state,
        (argument("name", nargs="?", metavar="NAME", help="the values of this one"), JSON),
        calls=("states.names", "states.items"),
    ),
)
