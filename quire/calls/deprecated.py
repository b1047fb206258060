"""Names that are others now. They work until 0.2.0, and warn of it; type checkers do not see them.

A table by kind of object: the old name, and how the same is called now. `with_old_names` gives them
to a class: of each kind of store and transaction, for asyncio too. An option of a queue that has
another name now is taken by calls with `with_old_options`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from operator import attrgetter
from typing import Any, Final, ParamSpec, TypeVar

from quire.errors import InvalidArgument
from quire.reports.info import QueueInfo

Class = TypeVar("Class", bound=type)
P = ParamSpec("P")
R = TypeVar("R")

STORE: Final[Mapping[str, str]] = {
    "create_queues": "admin.create_queues",
    "rename_queue": "admin.rename_queue",
    "purge": "admin.purge",
    "redrive": "admin.redrive",
    "create_alias": "admin.create_alias",
    "drop_alias": "admin.drop_alias",
    "aliases": "admin.aliases",
    "switch": "admin.switch",
    "disable": "admin.switch",
    "enable": "admin.switch",
    "catalog": "admin.catalog",
    "transactions": "admin.transactions",
    "transaction_info": "admin.transaction",
    "abort": "admin.abort",
    "checkpoint": "admin.checkpoint",
    "verify": "admin.verify",
    "position_at": "admin.position_at",
    "records": "admin.queue_records",
    "create_schedule": "cron.create",
    "alter_schedule": "cron.alter",
    "drop_schedule": "cron.drop",
    "schedules": "cron.list",
    "scheduled": "delayed.list",
    "cancel": "delayed.cancel",
    "reschedule": "delayed.reschedule",
    "get_state": "states.get",
    "state_items": "states.items",
    "state_names": "states.names",
    "drop_state": "states.drop",
    "recover": "prepared.list",
    "commit_prepared": "prepared.commit",
    "rollback_prepared": "prepared.rollback",
    "store_id": "integration.store_id",
    "positions": "integration.positions",
    "positions_many": "integration.positions_many",
    "subscribe_many": "integration.subscribe_many",
    "ledger": "integration.ledger",
    "ledger_many": "integration.ledger_many",
    "lease": "integration.lease",
    "lease_many": "integration.lease_many",
    "renew": "integration.renew_lease",
    "release": "integration.end_lease",
    "when_ready": "integration.when_ready",
}
TRANSACTION: Final[Mapping[str, str]] = {
    "record": "enter",
    "get_state": "get_value",
    "set_state": "set_value",
    "get_scheduled": "get_delayed",
    "put_block": "integration.put_block",
    "put_blocks": "integration.put_blocks",
    "adopt": "integration.adopt",
    "read_to_many": "integration.read_to_many",
}
# What was said by the name is an argument now.
_SWITCHED: Final = {"disable": False, "enable": True}


def with_old_names(names: Mapping[str, str]) -> Callable[[Class], Class]:
    """A decorator of a class."""

    def give(made: Class) -> Class:
        for old, new in names.items():
            if old not in vars(made):
                setattr(made, old, property(_getter(old, new)))
        return made

    return give


def with_old_options(method: Callable[P, R]) -> Callable[P, R]:
    """A call that takes options of queues: by name, or in mappings, one for each queue."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given: Any = [
            list(map(with_order, each)) if isinstance(each, list | tuple) else each for each in args
        ]
        named: Any = with_order(kwargs)
        return method(*given, **named)

    return call


def with_order(options: Any) -> Any:
    """`priority=True` is `order="priority"`, and False "commit". Raises InvalidArgument."""
    if not isinstance(options, Mapping) or not isinstance(options.get("priority"), bool):
        return options
    warnings.warn(_ORDER, DeprecationWarning, stacklevel=3)
    now = {name: value for name, value in options.items() if name != "priority"}
    is_first = options["priority"]
    if (now.setdefault("order", "priority" if is_first else "commit") == "priority") != is_first:
        raise InvalidArgument(
            f"order {now['order']!r:.100} and priority {is_first} contradict each other: leave "
            "priority out"
        )
    return now


def with_ack(ack: object) -> object:
    """`ack="session"` is "block": a session is something else now."""
    if ack != "session":
        return ack
    warnings.warn(
        'ack="session" goes with 0.2.0: use ack="block"', DeprecationWarning, stacklevel=4
    )
    return "block"


def _is_by_priority(queue: QueueInfo) -> bool:
    """What `QueueInfo.priority` told."""
    warnings.warn(_ORDER, DeprecationWarning, stacklevel=2)
    return queue.order == "priority"


_ORDER: Final = "'priority' of a queue goes with 0.2.0: use order='priority'"
for _old, _told in {"priority": _is_by_priority}.items():
    setattr(QueueInfo, _old, property(_told))


def _getter(old: str, new: str) -> Callable[[Any], Any]:
    find = attrgetter(new)

    def get(self: Any) -> Any:
        warnings.warn(
            f"{old!r} goes with 0.2.0: use {new!r} of the same object",
            DeprecationWarning,
            stacklevel=2,
        )
        found = find(self)
        return _switching(found, _SWITCHED[old]) if old in _SWITCHED else found

    return get


def _switching(switch: Callable[..., Any], to: bool) -> Callable[..., Any]:
    """What is True of both, or without arguments both, is switched."""

    def call(puts: bool = False, gets: bool = False) -> Any:
        is_all = not (puts or gets)
        return switch(to if puts or is_all else None, to if gets or is_all else None)

    return call
