"""Cutting the connections that others have to a socket of this process.

A Flight server has no call that ends streams: its shutdown waits for clients that may never leave.
So the owner of a store shuts the connections down itself; both sides see that at once.
"""

from __future__ import annotations

import os
import socket
import stat


def cut_connections(listener: str | int) -> int:
    """Shut down all accepted connections of a Unix socket's path or a TCP port; how many."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        connection = _socket_of(int(name))
        if connection is None:
            continue
        with connection:
            if _is_accepted_by(connection, listener):
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _socket_of(fd: int) -> socket.socket | None:
    """A socket object on a duplicate of the descriptor; None if it is no socket (any more)."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return None
        duplicate = os.dup(fd)
    except OSError:
        return None
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return None


def _is_accepted_by(connection: socket.socket, listener: str | int) -> bool:
    try:
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        name = connection.getsockname()
        connection.getpeername()  # fails unless it is connected
    except OSError:
        return False
    if connection.family == socket.AF_UNIX:
        return bool(name == listener)
    return connection.family in (socket.AF_INET, socket.AF_INET6) and name[1] == listener
