"""A status with a bounded number of names: those beyond are one, called `(other)`.

- MF1: no name of a queue, subscription or user is the one of those that are folded: so no series
  comes twice.
- Those that were made first have names of their own, so that a name does not come and go with
  others. A metric says how many were folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quire.metrics.limits import LABELED_QUEUES, LABELED_SUBSCRIPTIONS, LABELED_USERS

OTHER: Final = "(other)"  # no name has brackets (MF1)
_SUMS: Final = ("used_bytes", "capacity_bytes", "open_transactions", "dropped")
_COUNTERS: Final = ("put_messages", "read_messages")


def folded(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status with lists of queues, subscriptions and uses of limits as metrics are."""
    queues = sorted(status.get("queues", ()), key=lambda queue: int(queue["id"]))
    readers = status.get("subscriptions", ())
    own = {reader["queue"]: reader for reader in readers if not reader["name"]}
    ids = {queue["name"]: int(queue["id"]) for queue in queues}
    all_queues = [_queue(queue, own.get(queue["name"])) for queue in queues]
    by_name = {queue["name"]: queue for queue in queues}
    all_readers = [
        _reader(reader, by_name[reader["queue"]])
        for reader in sorted(readers, key=lambda each: (ids.get(each["queue"], 0), each["name"]))
        if reader["name"] and reader["queue"] in by_name
    ]
    uses, users = _limit_uses(status)
    return {
        **status,
        "queues": _bounded(all_queues, LABELED_QUEUES, {"queue": OTHER}),
        "subscriptions": _bounded(
            all_readers, LABELED_SUBSCRIPTIONS, {"queue": OTHER, "subscription": OTHER}
        ),
        "limit_uses": uses,
        "folded": [
            {"label": "queue", "count": max(len(all_queues) - LABELED_QUEUES, 0)},
            {"label": "subscription", "count": max(len(all_readers) - LABELED_SUBSCRIPTIONS, 0)},
            {"label": "user", "count": max(users - LABELED_USERS, 0)},
        ],
    }


def _queue(queue: Mapping[str, Any], reader: Mapping[str, Any] | None) -> dict[str, Any]:
    """The numbers of a queue; `reader`: the one that every work queue has."""
    numbers = {name: queue[name] for name in _SUMS}
    counters: dict[str, int] = {}
    if not queue["volatile"]:  # whose positions begin anew with each opening
        counters["put_messages"] = int(queue["end_position"])
    if reader is None:
        states = {"kept": int(queue["messages"])}
    else:
        states = _states(reader)
        if counters:
            counters["read_messages"] = int(queue["end_position"]) - int(reader["pending"])
    return {"queue": queue["name"], **numbers, **counters, "states": states}


def _reader(reader: Mapping[str, Any], queue: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a subscription of a topic."""
    found = {"queue": reader["queue"], "subscription": reader["name"], "states": _states(reader)}
    if not queue["volatile"]:
        found["read_messages"] = max(int(queue["end_position"]) - int(reader["pending"]), 0)
    return found


def _states(reader: Mapping[str, Any]) -> dict[str, int]:
    """Every message that is not read is in one of them."""
    in_flight, delayed, spent = (int(reader[n]) for n in ("delivered", "delayed", "spent"))
    waiting = max(int(reader["pending"]) - in_flight - delayed - spent, 0)
    return {"waiting": waiting, "in_flight": in_flight, "delayed": delayed, "spent": spent}


def _bounded(
    parts: list[dict[str, Any]], most: int, labels: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the first parts, and the sum of the others under their common name."""
    first, others = parts[:most], parts[most:]
    if others:
        total: dict[str, Any] = dict(labels)
        states: dict[str, int] = {}
        for part in others:
            for name in (*_SUMS, *_COUNTERS):
                if name in part:
                    total[name] = total.get(name, 0) + part[name]
            for state, count in part["states"].items():
                states[state] = states.get(state, 0) + count
        first.append({**total, "states": states})
    return first


def _limit_uses(status: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The uses of limits by user, those beyond the bound as one; and how many users there are."""
    users = status.get("sharing", {}).get("limits", {}).get("users", {})
    uses: dict[tuple[str, str], dict[str, Any]] = {}
    for number, (user, report) in enumerate(sorted(users.items())):
        name = user if number < LABELED_USERS else OTHER
        for limit, use in report.items():
            known = uses.setdefault((name, limit), {"user": name, "limit": limit})
            for key in ("used", "refused"):
                known[key] = known.get(key, 0) + use[key]
            if name != OTHER:
                known["of"] = use["limit"]
    return list(uses.values()), len(users)
