"""A wait for a socket that anybody can end."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress

from quire.remote.wire.sockets import close, wake_up_pair


class SocketPoller:
    """Waits for a socket, or to be woken."""

    __slots__ = ("_reader", "_writer", "on_wake", "poll", "readable", "room", "socket_number")

    def __init__(self, number: int) -> None:
        self.socket_number = number
        self.readable = [(number, int(select.POLLIN))]  # found where something has come
        self.room = False  # to send is waited for, too
        self.on_wake: Callable[[], object] | None = None
        self._reader, self._writer = wake_up_pair()
        self.poll = select.poll()
        self.poll.register(number, select.POLLIN)
        self.poll.register(self._reader, select.POLLIN)

    def wake(self) -> None:
        """End the wait that is under way, or the next one; by anybody."""
        with suppress(OSError):  # enough of them are there, or it is closed
            self._writer.send(b"\0")
        on_wake = self.on_wake
        if on_wake is not None:
            on_wake()

    def clear(self) -> None:
        try:
            self._reader.recv(1024)
        except OSError:
            return

    def close(self) -> None:
        close(self._reader)
        close(self._writer)
