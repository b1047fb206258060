"""All commands, by subject."""

from __future__ import annotations

from functools import cache
from typing import Final

from .command import Command
from .commands import (
    aliases,
    checking,
    getting,
    graphs,
    moving,
    putting,
    queues,
    schedules,
    serving,
    subscriptions,
    transactions,
)

SUBJECTS: Final[dict[str, tuple[Command, ...]]] = {
    "queues": (*queues.COMMANDS, *aliases.COMMANDS),
    "subscriptions of topics": subscriptions.COMMANDS,
    "messages": (*putting.COMMANDS, *getting.COMMANDS, *moving.COMMANDS),
    "messages by the clock": schedules.COMMANDS,
    "transactions": transactions.COMMANDS,
    "the store": (*serving.COMMANDS, *checking.COMMANDS),
    "graphs of steps on Spark": graphs.COMMANDS,
}


@cache
def commands() -> dict[str, Command]:
    """By name."""
    return {command.name: command for several in SUBJECTS.values() for command in several}
