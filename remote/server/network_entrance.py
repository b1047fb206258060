"""The entrance of a server for other machines: ports, and the handshakes of who comes there.

NE1. A connection reaches who serves it once its client has shaken hands, and shown a certificate of
    the authority that the server demands. Until then it costs no thread: one of its own does all.
NE2. `MAX_HANDSHAKES` may be under way; the oldest gives way to the next. One that takes longer
    than `HANDSHAKE_SECONDS` is ended, and so is a connection without a hello after as long again,
    or once so many have come after it.
NE3. Beyond this machine a port is served over TLS only, with certificates of clients or with users.
NE4. Files of certificates are read again when they have changed. Where they cannot be used then,
    those before stay in use, and the log says why.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from quire.calls.wake_up import Thread
from quire.env import READ, WRITE, socket_events
from quire.errors import CertificateRefused, InvalidArgument, QuireError, RemoteError
from quire.remote.limits import (
    ACCEPT_PAUSE_SECONDS,
    EVENTS_AT_ONCE,
    HANDSHAKE_SECONDS,
    MAX_HANDSHAKES,
    MAX_WAIT_SECONDS,
    RECEIVE_BYTES,
)
from quire.remote.wire import tls_session
from quire.remote.wire.address import LOOPBACK, TCP, TcpPlace, place_of, tcp_url
from quire.remote.wire.protocol import MAGIC, greeting
from quire.remote.wire.sockets import accept, address_of, bind, close, secured
from quire.tls import Tls

from .signals import SignalFlag

if TYPE_CHECKING:
    import ssl

    from quire.remote.wire.tls_socket import TlsSocket

_log = logging.getLogger("quire.remote")
_TLS_ONLY: Final = (
    "this port is served over TLS: give quire.open tls=quire.Tls(ca=..., cert=..., key=...)"
)


class AdmitsUsers(Protocol):
    """The users of a server: see `quire.remote.access.user_access`."""

    def admit(self, token: object, client: Any, store: Any) -> Any:
        """Return the store for whoever that is. Raises NotAllowed."""

    def limits_of(self, name: str) -> Sequence[float]:
        """Return the limits of a user at this moment (see `quire.remote.access.use_limits`)."""

    def tell_changes(self, accounts: Any) -> None:
        """Have the accounts of users be told of changes of these."""

    def close(self) -> None:
        """Nobody is let in any more."""

    def pause_of(self, address: str) -> float:
        """Return the seconds that a client at the address waits for its handshake."""

    def look(self) -> None:
        """Have a change of the users hold, if there is one."""

    def seconds_to_look(self) -> float:
        """Return the seconds until that is to be done again."""


class Adopted(Protocol):
    """A connection that somebody serves, as far as its hello is waited for."""

    @property
    def is_admitted(self) -> bool:
        """True once it has come and was answered."""

    def cut(self) -> None:
        """End it for both sides."""


def places_to_listen(
    listen: Sequence[str], tls: Tls | None, *, insecure: bool, has_users: bool = False
) -> list[TcpPlace]:
    """Return the ports that `host:port` texts name. Raises InvalidArgument (NE3)."""
    places = []
    for text in listen:
        place = place_of(TCP + str(text), tls or Tls())
        assert isinstance(place, TcpPlace)
        if tls is None and place.host not in LOOPBACK:
            raise InvalidArgument(
                f"{text}: other machines are let in over TLS only: give --tls-cert, --tls-key and"
                " --client-ca"
            )
        if tls is None and not insecure:
            raise InvalidArgument(
                f"{text}: give --tls-cert and --tls-key, or --insecure, which lets in every user of"
                " this machine without TLS"
            )
        if tls is not None and tls.ca is None and not has_users and place.host not in LOOPBACK:
            raise InvalidArgument(
                f"{text}: whoever reaches this port would be let in: give --users, or --client-ca,"
                " the file of the authority that signs the certificates of clients"
            )
        places.append(place._replace(tls=tls))
    return places


class _Handshake:
    """A connection that is not the server's yet."""

    __slots__ = ("connection", "is_begun", "is_refused", "until")

    def __init__(self, connection: TlsSocket, until: float) -> None:
        self.connection = connection
        self.until = until
        self.is_begun = False
        self.is_refused = False  # it is kept until the client has read why


class NetworkEntrance:
    """The ports of a server, which are bound from the beginning and let in once there is one."""

    def __init__(self, places: Sequence[TcpPlace], access: AdmitsUsers | None = None) -> None:
        """Bind the ports. Raises RemoteError, and InvalidArgument for files of no use.

        `access`: lets users in; without it whoever comes may do everything.
        """
        self.access: Final = access
        self._tls = places[0].tls
        self._context: ssl.SSLContext | None = None
        self._seen: list[object] = []  # the times of the files
        self._adopt: Callable[[socket.socket], Adopted | None] = _adopt_none
        self._listeners: dict[int, socket.socket] = {}
        self.urls: Final[list[str]] = []
        if self._tls is not None:
            self._seen = _times_of(self._tls)
            self._context = tls_session.server_context(self._tls)
        for place in places:
            self._bind(place)
        self._events = socket_events()
        self._wake = SignalFlag()
        self._is_closing = False
        self._handshakes: dict[int, _Handshake] = {}  # the oldest first
        self._without_hello: deque[tuple[float, Adopted]] = deque()
        self._put_off: deque[tuple[float, socket.socket]] = deque()  # the next to begin first
        self._pauses_until = 0.0  # accepting, where the system has no file
        self._thread: threading.Thread | None = None

    def _bind(self, place: TcpPlace) -> None:
        try:
            listener = bind(place)
        except OSError as error:
            for each in self._listeners.values():
                close(each)
            url = tcp_url(place.host, place.port)
            raise RemoteError(
                f"cannot listen at {url}: {error}; give a port that is free, and an address of this"
                " machine"
            ) from None
        listener.setblocking(False)
        self._listeners[listener.fileno()] = listener
        self.urls.append(tcp_url(place.host, listener.getsockname()[1]))

    def let_in(self, adopt: Callable[[socket.socket], Adopted | None]) -> None:
        """Let clients in from now on: `adopt` takes each connection, in another thread.

        It returns None for one that nobody serves, which is ended.
        """
        self._adopt = adopt
        for listener in self._listeners.values():
            listener.listen(MAX_HANDSHAKES)
            self._events.register(listener, READ)
        self._events.register(self._wake.fileno(), READ)
        self._thread = Thread(target=self._run, name="quire-network")
        self._thread.start()

    def close(self) -> None:
        """Let nobody in any more; who has come so far is not told. Twice is once."""
        if self._is_closing:
            return
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        for listener in self._listeners.values():
            close(listener)
        for handshake in self._handshakes.values():
            close(handshake.connection)
        for _, plain in self._put_off:
            close(plain)
        if self.access is not None:
            self.access.close()
        self.abandon()

    def abandon(self) -> None:
        """In the child of a fork, whose copies of the sockets are closed."""
        self._events.close()
        self._wake.close()

    # By its own thread (NE1)

    def _run(self) -> None:
        while not self._is_closing:
            for fd, _ in self._events.poll(self._time_left(), EVENTS_AT_ONCE):
                if fd in self._listeners:
                    self._accept(self._listeners[fd])
                elif fd in self._handshakes:
                    self._go_on(fd, self._handshakes[fd])
            self._end_late()
            if self.access is not None:
                self.access.look()

    def _time_left(self) -> float:
        """Seconds until something is to be ended, or begun again."""
        times = [MAX_WAIT_SECONDS]
        now = time.monotonic()
        if self._handshakes:
            times.append(next(iter(self._handshakes.values())).until - now)
        if self._without_hello:
            times.append(self._without_hello[0][0] - now)
        if self._put_off:
            times.append(self._put_off[0][0] - now)
        if self._pauses_until:
            times.append(self._pauses_until - now)
        if self.access is not None:
            times.append(self.access.seconds_to_look())
        return max(0.0, min(times))

    def _end_late(self) -> None:
        now = time.monotonic()
        if self._pauses_until and now >= self._pauses_until:
            self._pauses_until = 0.0
            for listener in self._listeners.values():
                self._events.modify(listener.fileno(), READ)
        while self._put_off and self._put_off[0][0] <= now:
            self._begin(self._put_off.popleft()[1])
        while self._handshakes:
            fd, handshake = next(iter(self._handshakes.items()))
            if handshake.until > now:
                break
            self._drop(fd)
        while self._without_hello and self._without_hello[0][0] <= now:
            self._end_without_hello()

    def _accept(self, listener: socket.socket) -> None:
        try:
            for _ in range(EVENTS_AT_ONCE):
                self._begin_in_time(accept(listener))
        except BlockingIOError:
            pass
        except OSError as error:
            if not self._is_closing:
                _log.warning("nobody can be let in at %s: %s", ", ".join(self.urls), error)
                self._pauses_until = time.monotonic() + ACCEPT_PAUSE_SECONDS
                for each in self._listeners.values():
                    self._events.modify(each.fileno(), 0)

    def _begin_in_time(self, plain: socket.socket) -> None:
        """Begin with a connection, a while later if too many of its address were refused."""
        pause = 0.0 if self.access is None else self.access.pause_of(address_of(plain))
        if not pause:
            self._begin(plain)
            return
        if len(self._put_off) >= MAX_HANDSHAKES:
            close(self._put_off.popleft()[1])
        self._put_off.append((time.monotonic() + pause, plain))

    def _begin(self, plain: socket.socket) -> None:
        if self._tls is None:
            self._hand_over(plain)
            return
        if len(self._handshakes) >= MAX_HANDSHAKES:
            self._drop(next(iter(self._handshakes)))
        plain.setblocking(False)
        session = tls_session.server_session(self._current_context(self._tls), self._tls)
        connection = secured(plain, session)
        fd = connection.fileno()
        self._handshakes[fd] = _Handshake(connection, time.monotonic() + HANDSHAKE_SECONDS)
        self._events.register(connection, READ)

    def _current_context(self, tls: Tls) -> ssl.SSLContext:
        """Return the context of the files as they are (NE4)."""
        seen = _times_of(tls)
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = tls_session.server_context(tls)
            except QuireError as error:
                _log.warning("the certificates before stay in use: %s", error)
        assert self._context is not None
        return self._context

    def _go_on(self, fd: int, handshake: _Handshake) -> None:
        connection = handshake.connection
        try:
            if handshake.is_refused:
                if not socket.socket.recv(connection, RECEIVE_BYTES):
                    self._drop(fd)
                return
            if not handshake.is_begun:
                handshake.is_begun = True
                if socket.socket.recv(connection, len(MAGIC), socket.MSG_PEEK) == MAGIC:
                    socket.socket.send(connection, greeting(_TLS_ONLY))
                    self._refuse(handshake)
                    return
            if connection.shake_hands():
                del self._handshakes[fd]
                self._events.unregister(fd)
                self._hand_over(connection)
            else:
                self._events.modify(fd, READ | WRITE if connection.is_sending else READ)
        except BlockingIOError:
            pass
        except CertificateRefused as error:
            _log.warning("a client is refused at %s: %s", ", ".join(self.urls), error)
            self._refuse(handshake)
        except OSError as error:
            _log.info("a connection at %s has ended: %s", ", ".join(self.urls), error)
            self._refuse(handshake)

    def _refuse(self, handshake: _Handshake) -> None:
        """End one, whose client reads why before the connection ends (it may send meanwhile)."""
        handshake.is_refused = True
        with suppress(OSError):
            handshake.connection.shutdown(socket.SHUT_WR)
        self._events.modify(handshake.connection.fileno(), READ)

    def _hand_over(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        adopted = self._adopt(connection)
        if adopted is None:
            close(connection)
            return
        self._without_hello.append((time.monotonic() + HANDSHAKE_SECONDS, adopted))
        if len(self._without_hello) > MAX_HANDSHAKES:
            self._end_without_hello()

    def _end_without_hello(self) -> None:
        """Look no more at the oldest connection, which is ended if there was no hello on it."""
        connection = self._without_hello.popleft()[1]
        if not connection.is_admitted:
            connection.cut()

    def _drop(self, fd: int) -> None:
        handshake = self._handshakes.pop(fd)
        self._events.unregister(fd)
        close(handshake.connection)


def _times_of(tls: Tls) -> list[object]:
    """Return what tells whether the files have changed."""
    times: list[object] = []
    for path in (tls.ca, tls.cert, tls.key):
        if path is not None:
            with suppress(OSError):
                status = os.stat(path)
                times.append((status.st_mtime_ns, status.st_ino, status.st_size))
    return times


def _adopt_none(connection: socket.socket) -> None:
    """Nobody is let in yet."""
