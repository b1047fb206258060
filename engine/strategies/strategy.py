"""What a commit strategy answers: how many bytes must be available for a step.

In all of them T is the number of transactions that are open in the queue, R how many commits hold
it in reserve mode, the asking one included. Sizes are bytes. The queue's lock is held when they are
asked, and no other queue's.
"""

from __future__ import annotations

from typing import Protocol

from quire.errors import InvalidArgument


class Strategy(Protocol):
    """One of the strategies; stateless."""

    name: str
    locks_queues: bool  # a commit keeps writers out of all its queues from its check to its end

    def open_need(self, open_transactions: int) -> int:
        """To open a transaction in the queue; T does not count it yet."""

    def write_need(self, charge: int, open_transactions: int, reserving: int) -> int:
        """To write messages of `charge` bytes."""

    def commit_need(self, open_transactions: int, reserving: int) -> int:
        """To commit."""


def strategy_named(name: str) -> Strategy:
    """By its name. Raises `InvalidArgument`."""
    from . import LockAll, ReserveAtOpen, ReserveMode, ReserveModeCounted

    strategies: list[Strategy] = [LockAll(), ReserveAtOpen(), ReserveMode(), ReserveModeCounted()]
    for strategy in strategies:
        if strategy.name == name:
            return strategy
    raise InvalidArgument(
        f"strategy {name!r}: there are {', '.join(strategy.name for strategy in strategies)}"
    )
