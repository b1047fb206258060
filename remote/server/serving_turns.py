"""The turns in which a server begins requests: user by user, and connection by connection.

TU1. In a turn each user on whose connections something has come has a share of the
    `REQUESTS_AT_ONCE` requests, the same for all and one at least. So between two requests of one
    user there are at most twice as many of all others, on however many connections these are.
TU2. The connections of a user share what the user has, the same for all of those whose turn it is.
    One that has more to begin stands behind the user's others.
- All clients that are no users count as one, and so do those that have not said who they are.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.remote.limits import REQUESTS_AT_ONCE

if TYPE_CHECKING:
    from quire.remote.access.use_account import UseAccount

    from .served_connection import ServedConnection

Serve = Callable[["ServedConnection", int], int]


class ServingTurns:
    """The connections with requests that came and are not begun. For the server's own thread."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        # By users, the next first; of each the connections, the next first.
        self._lines: OrderedDict[UseAccount, deque[ServedConnection]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, connection: ServedConnection) -> None:
        """Have a connection stand behind the others of its user."""
        connection.is_reading = False
        line = self._lines.get(connection.account)
        if line is None:
            self._lines[connection.account] = deque((connection,))
        else:
            line.append(connection)

    def take(self, serve: Serve) -> None:
        """Take a turn. `serve`: begins so many requests of a connection at most; how many it has.

        It adds the connection again if there is more.
        """
        lines = self._lines
        users = len(lines)
        share = REQUESTS_AT_ONCE // users
        for _ in range(users):
            account, line = lines.popitem(last=False)
            left = share or 1
            of_connection = left // len(line) or 1
            while line and left > 0:
                left -= serve(line.popleft(), of_connection)
            if line:
                line.extend(lines.pop(account, ()))
                lines[account] = line
