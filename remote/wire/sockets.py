"""Stream sockets of this machine: listening, connecting, sending whole frames.

SO1. A Unix socket may have any path: one too long for the system's address is named through its
    directory (`short_path`).
SO2. `send_all` sends all of the parts or raises; parts that are long are not copied.
SO3. A socket is its process' alone: a child that is forked, at whatever moment, closes its copy. So
    whoever is at the other end sees the end of the process that it talks to.
SO4. A machine that is gone, or cannot be reached any more, ends its connections here within
    `HEARTBEAT_SECONDS`, whether or not anything is sent: its system answers for it. Clients give
    signs of themselves, too (HB1).
"""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from quire.arguments import Bytes
from quire.calls.signal_safety import waiting
from quire.env import (
    UNIX_SOCKETS_REFUSE,
    give_owner_rights,
    keep_standard_descriptors,
    moved_socket,
    short_path,
    socket_pair,
)
from quire.env.interpreter import RLock
from quire.remote.limits import (
    BACKLOG,
    JOIN_BYTES,
    KEEP_ALIVE,
    KEPT_FILES,
    MAX_PARTS,
    MAX_SOCKET_PATH_BYTES,
    SEND_BYTES_PER_SECOND,
    SEND_SECONDS,
)

from . import tls_session, tls_socket
from .address import Endpoint, TcpPlace

if TYPE_CHECKING:
    from .tls_session import TlsSession
    from .tls_socket import TlsSocket

_TIME: Final = struct.Struct("ll")  # struct timeval
_sockets: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()  # from their beginning (SO3)
_making = RLock()  # no fork while a socket begins or ends; finalisers take it, too


def listen(place: Endpoint) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    if isinstance(place, TcpPlace):
        listener = bind(place)
        try:
            listener.listen(BACKLOG)
        except BaseException:
            listener.close()
            raise
        return listener
    listener = _unix()
    try:
        with _address(place) as address:
            listener.bind(address)
        give_owner_rights(place)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def bind(place: TcpPlace) -> socket.socket:
    """A socket at that port, which does not listen yet. Raises OSError."""
    family, address = _addresses_of(place)[0]
    bound = _made(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def connect(place: Endpoint, seconds: float) -> socket.socket:
    """A connected socket; calls on it time out after so many seconds.

    Raises OSError; over TLS also CertificateRefused, and InvalidArgument for files of no use.
    """
    if isinstance(place, TcpPlace):
        connection = _connect_tcp(place, seconds)
        if place.tls is not None:
            return _secured(connection, place)
        return connection
    connection = _unix()
    connection.settimeout(seconds)
    try:
        with _address(place) as address:
            waiting(connection.connect, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_tcp(place: TcpPlace, seconds: float) -> socket.socket:
    """Try one address of the host after another."""
    addresses = _addresses_of(place)
    while True:
        family, address = addresses.pop(0)
        connection = _made(family)
        connection.settimeout(seconds)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
            waiting(connection.connect, address)
        except OSError:
            connection.close()
            if not addresses:
                raise
        except BaseException:
            connection.close()
            raise
        else:
            return connection


def _addresses_of(place: TcpPlace) -> list[tuple[socket.AddressFamily, Any]]:
    if place.is_local:
        family = socket.AF_INET6 if place.host.startswith("[") else socket.AF_INET
        return [(family, (place.address, place.port))]
    found = waiting(socket.getaddrinfo, place.address, place.port, 0, socket.SOCK_STREAM)
    return [(family, address) for family, *_, address in found]


def _secured(plain: socket.socket, place: TcpPlace) -> socket.socket:
    """The connection over TLS, once both sides have shaken hands."""
    connection = plain
    try:
        assert place.tls is not None
        connection = over_tls = secured(plain, tls_session.client_session(place.tls, place.address))
        if not waiting(over_tls.shake_hands):
            raise TimeoutError("the other side does not go on with TLS")
    except BaseException:
        connection.close()
        raise
    return over_tls


def secured(plain: socket.socket, session: TlsSession) -> TlsSocket:
    """Return a socket of the session, which takes the place of the plain one (SO3)."""
    with _making:
        made = tls_socket.TlsSocket(plain, session)
        _sockets.add(made)
    return made


def keep_alive(connection: socket.socket) -> None:
    """Have the system ask whether the other machine is there, where nothing comes from it (SO4)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def address_of(connection: socket.socket) -> str:
    """Return the host at the other side of a port; nothing where it has gone."""
    with suppress(OSError):
        return str(connection.getpeername()[0])
    return ""


def accept(listener: socket.socket) -> socket.socket:
    """A connection that waits, made ready: sending does not wait for ever. Raises OSError."""
    with _making:
        keep_standard_descriptors()
        connection = moved_socket(listener.accept()[0])
        _sockets.add(connection)
    connection.setblocking(True)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIME.pack(int(SEND_SECONDS), 0))
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connection)
    return connection


def wake_up_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets, by which who polls is woken; of this process alone (SO3)."""
    with _making:
        pair = socket_pair()
        _sockets.update(pair)
    return pair


def close(connection: socket.socket) -> None:
    """Let go of it; a child that is forked meanwhile has no copy either (SO3)."""
    with _making:
        connection.close()


def has_ended(connection: socket.socket) -> bool:
    """Return True if the other side has closed; nothing is taken from the connection."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def is_readable(connection: socket.socket, seconds: float) -> bool:
    """Return True if something comes, or the connection ends, within so many seconds."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def refuse_more(connection: socket.socket) -> bool:
    """Refuse what the other side sends from now on; False if the system cannot.

    Where it does not, macOS would also throw away what has come: nothing is done then.
    Raises OSError where the connection has ended.
    """
    if not UNIX_SOCKETS_REFUSE:
        return False
    connection.shutdown(socket.SHUT_RD)
    return True


def tells_of_unread(place: Endpoint) -> bool:
    """Return True if the system tells a request that was not read from one that was (CH3)."""
    return UNIX_SOCKETS_REFUSE and not isinstance(place, TcpPlace)


def shut(connection: socket.socket) -> None:
    """End the connection for both sides: who waits on it, here or there, is released."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            raise


def send_all(
    connection: socket.socket,
    parts: Sequence[Bytes],
    clock: Callable[[], float] | None = None,
) -> None:
    """Send the parts (SO2). Raises OSError; with a `clock`, also when it takes too long.

    What counts as too long is for a connection of `accept`.
    """
    size = sum(map(len, parts))
    if size <= JOIN_BYTES:
        data = b"".join(parts)
        sent = connection.send(data)
        if sent == size:
            return
        views = [memoryview(data)[sent:]]
    else:
        views = [memoryview(part) for part in parts if len(part)]
    deadline = None
    while views:
        sent = connection.sendmsg(views[:MAX_PARTS])
        while views and sent >= len(views[0]):
            sent -= len(views[0])
            del views[0]
        if views:
            views[0] = views[0][sent:]
            if clock is not None:
                if deadline is None:
                    deadline = clock() + SEND_SECONDS + size / SEND_BYTES_PER_SECOND
                elif clock() > deadline:
                    raise TimeoutError("the other side does not read")


def send_some(connection: socket.socket, parts: Sequence[Bytes]) -> int:
    """Send what is taken without waiting, by a socket that never waits; return its count."""
    try:
        if len(parts) == 1:
            return connection.send(parts[0])
        return connection.sendmsg(parts[:MAX_PARTS])
    except BlockingIOError:
        return 0


def joined(parts: Sequence[Bytes]) -> list[Bytes]:
    """Return parts that are short as one, and others as views, which are not copied (SO2)."""
    if sum(map(len, parts)) <= JOIN_BYTES:
        return [b"".join(parts)]
    return [memoryview(part) for part in parts if len(part)]


def reads_ahead(connection: socket.socket) -> bool:
    """Return True if more may have come than polls tell of, as over TLS (`TlsSocket`)."""
    return hasattr(connection, "has_unread")


def has_unread(connection: socket.socket) -> bool:
    """Return True if something has come of which no poll tells, as some of TLS has."""
    return bool(getattr(connection, "has_unread", False))


def file_limit() -> int:
    """Return how many connections this process may have, as its open files are limited."""
    return max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - KEPT_FILES)


def now() -> float:
    """For `send_all`."""
    return time.monotonic()


def _unix() -> socket.socket:
    return _made(socket.AF_UNIX)


def _made(family: socket.AddressFamily) -> socket.socket:
    with _making:
        keep_standard_descriptors()
        made = moved_socket(socket.socket(family))
        _sockets.add(made)
    return made


@contextmanager
def _address(path: str) -> Iterator[bytes]:
    """Give the path in the form that the system takes (SO1)."""
    whole = os.fsencode(path)
    if len(whole) <= MAX_SOCKET_PATH_BYTES:
        yield whole
    else:
        with short_path(whole) as short:
            yield short


def _close_in_child() -> None:
    global _making  # noqa: PLW0603 - a lock cannot be made anew in place
    _making = RLock()
    for connection in list(_sockets):
        connection.close()


os.register_at_fork(
    before=lambda: _making.acquire(),  # noqa: PLW0108 - that of the moment
    after_in_parent=lambda: _making.release(),  # noqa: PLW0108
    after_in_child=_close_in_child,
)
