"""Commands that list what stays of clients in a store: listeners, and sessions."""

from __future__ import annotations

import argparse
from typing import Any, Final

from quire.cli.command import JSON, Command
from quire.cli.opened_store import seen
from quire.cli.printing import fields_of, print_listing
from quire.interface.sessions import session_opening

_LISTENER_HEADS: Final = ("LISTENER", "SOURCE", "ON", "GROUP", "POSITION", "BEHIND", "WHERE")
_SESSION_HEADS: Final = ("SESSION", "OPENED", "LAST PUT", "LAST TAKEN", "REPLIES", "WAITING")


def _listeners(options: argparse.Namespace) -> None:
    def look(store: Any) -> list[dict[str, Any]]:
        ends = {queue.name: queue.end_position for queue in store.queues()}
        return [
            fields_of(each) | {"behind": max(0, ends.get(_queue(each), 0) - each.position)}
            for each in store.listeners.list()
        ]

    found = seen(options, look)
    rows = (
        (
            each["name"],
            each["source"],
            each["on"],
            str(each["group"] or "-"),
            str(each["position"]),
            f"{each['behind']:,}",
            each["where"] or "-",
        )
        for each in found
    )
    print_listing(options, found, _LISTENER_HEADS, rows)


def _queue(listener: Any) -> str:
    return str(listener.source).partition("/")[0]


def _sessions(options: argparse.Namespace) -> None:
    found = seen(options, lambda store: [_session(store, *each) for each in _known(store)])
    rows = (
        (
            each["name"],
            f"{each['opened']:,} times",
            each["last_enqueued"] or "-",
            each["last_dequeued"] or "-",
            each["replies"],
            "-" if each["waiting"] is None else f"{each['waiting']:,}",
        )
        for each in found
    )
    print_listing(options, found, _SESSION_HEADS, rows)


def _known(store: Any) -> list[tuple[str, session_opening.Opening]]:
    if session_opening.SESSIONS not in store.states.names():
        return []
    values = store.states.items(session_opening.SESSIONS)
    return [(name, session_opening.Opening.of(name, value)) for name, value in values.items()]


def _session(store: Any, name: str, opening: session_opening.Opening) -> dict[str, Any]:
    state = session_opening.PREFIX + name
    kept = store.states.items(state) if state in store.states.names() else {}
    queues = {queue.name: queue for queue in store.queues()}
    replies = queues.get(opening.replies)
    return {
        "name": name,
        "opened": opening.epoch,
        "leaving": opening.leaving,
        "replies": opening.replies,
        "waiting": None if replies is None else replies.messages,
        "last_enqueued": kept.get("last_enqueued", b"").decode(errors="replace"),
        "last_dequeued": kept.get("last_dequeued", b"").decode(errors="replace"),
    }


COMMANDS: Final = (
    Command(
        "listeners",
        "list the durable listeners: what they hear, and how far they are",
        _listeners,
        (JSON,),
        "BEHIND is how many messages were put to their queue since.",
        calls=("listeners.list",),
    ),
    Command(
        "sessions",
        "list the sessions: their last requests, and replies that wait",
        _sessions,
        (JSON,),
        "LAST PUT and LAST TAKEN are the numbers of requests, as the session keeps them.",
    ),
)
