"""The table of all commands, by subject; the module of one is loaded when it is needed."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Final

from .command import Command
from .commands import (
    aliases,
    archives,
    checking,
    clients,
    getting,
    graphs,
    moving,
    putting,
    queues,
    schedules,
    serving,
    stopping,
    subscriptions,
    transactions,
    users,
    why,
)

_OF_USERS: Final = (
    "user add, user rm, user ls, user grant, user revoke, user token, user limit, user lock,"
    " user unlock"
)
_OF_GRAPHS: Final = (
    "graph ls, graph show, graph run, graph pause, graph resume, graph replay, graph state,"
    " graph reset"
)
# By subject: modules, and the names of the commands in each.
SUBJECTS: Final[dict[str, tuple[tuple[ModuleType, str], ...]]] = {
    "queues": (
        (queues, "create-queue, alter-queue, drop-queue, rename-queue, purge, queues"),
        (aliases, "create-alias, drop-alias, aliases"),
    ),
    "subscriptions of topics": ((subscriptions, "subscribe, unsubscribe, seek"),),
    "messages": (
        (putting, "put"),
        (getting, "get, browse, scheduled, cancel"),
        (why, "why"),
        (moving, "move, redrive, relay"),
    ),
    "clients": ((clients, "listeners, sessions"),),
    "messages by the clock": (
        (schedules, "create-schedule, alter-schedule, drop-schedule, schedules"),
    ),
    "transactions": (
        (transactions, "transactions, abort, recover, commit-prepared, rollback-prepared, state"),
    ),
    "the store": (
        (serving, "serve, status, disable, enable"),
        (stopping, "shutdown"),
        (checking, "verify, dump, salvage, catalog, checkpoint, compact"),
        (
            archives,
            "archive set, archive show, archive off, archive ship, backup, backups, restore",
        ),
    ),
    "users of a served store": ((users, _OF_USERS),),
    "graphs of steps on Spark": ((graphs, _OF_GRAPHS),),
}
_MODULES: Final = {
    name: module
    for several in SUBJECTS.values()
    for module, names in several
    for name in names.split(", ")
}
NAMES: Final = tuple(_MODULES)  # of all commands


def command_named(name: str) -> Command:
    """The command of that name. Raises KeyError."""
    several: tuple[Command, ...] = _MODULES[name].COMMANDS
    return {command.name: command for command in several}[name]


@cache
def commands() -> dict[str, Command]:
    """Return all commands by name."""
    return {name: command_named(name) for name in NAMES}
