"""A relay to the owner of a store: connections of other machines, at a process that is not it.

RE1. Each has a connection of its own at the owner's socket, and bytes pass as they are. So streams
    keep their numbers, and what the owner promises of a connection holds for it.
RE2. Nothing but bytes of at most one receive is kept for each direction: where one side does not
    read, the other one is read no further. A client that reads nothing is cut off as the owner
    would do it (CL2).
RE3. The end of one side is the end of both, once all has passed that came before; the owner's words
    to a client that it refuses arrive. A client whose bytes the owner does not take is gone at
    once, so that what it has open is rolled back (SV2).
RE4. One thread does all, and waits for nobody: an owner that is stopped, or is not there, lets
    nobody in.

What may go wrong, and what becomes of it:

| what | becomes |
|---|---|
| no process owns the store at the moment | the connection ends, and the client tries again |
| the owner ends, or is killed | its connections end, and so do the clients': they come again |
| this process becomes the owner | the same; who comes then is served here (see `ServedPorts`) |
| this process is killed | the owner sees the end of each connection, and rolls back |
| the owner is stopped | requests wait at its socket, and time out at the clients |
| the client sends faster than the owner takes | it is read no further |
| the client is gone without a word | the system tells (SO4), and the owner learns of it |
| this process is to end | see `drain` |
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Final

from quire.calls.wake_up import Thread
from quire.env import ENDED, HANG_UP, READ, WRITE, Env, socket_events
from quire.remote.limits import (
    DRAIN_LOOK_SECONDS,
    EVENTS_AT_ONCE,
    MAX_CONNECTIONS,
    MAX_WAIT_SECONDS,
    RECEIVE_BYTES,
    SEND_SECONDS,
)
from quire.remote.wire.address import place_of, read_address
from quire.remote.wire.frame_boundaries import FrameBoundaries
from quire.remote.wire.protocol import CONNECTION, DRAIN, DRAINED, HEAD
from quire.remote.wire.sockets import close, connect, file_limit, has_unread, shut

from .signals import SignalFlag

_NO_WAIT: Final = socket.MSG_DONTWAIT
_DRAIN: Final = HEAD.pack(0, DRAIN, CONNECTION)


class _Flow:
    """One direction of a relayed connection."""

    __slots__ = ("_source", "_target", "frames", "is_drain_due", "is_last", "unsent")

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source = source
        self._target = target
        self.frames = FrameBoundaries()
        self.unsent = b""
        self.is_last = False  # the source has ended: all that it has sent is here
        self.is_drain_due = False  # a DRAIN is to pass where a frame may begin

    def carry(self, scratch: memoryview) -> None:
        """Pass on what has come, as far as the other side takes it. Raises EOFError, OSError."""
        while self.flush():
            try:
                count = self._source.recv_into(scratch, 0, _NO_WAIT)
            except BlockingIOError:
                return
            if not count:
                raise EOFError
            self.unsent = self._with_drain(scratch[:count])
            if not (self.is_last or has_unread(self._source)):
                self.flush()
                return

    def flush(self) -> bool:
        """Send what is unsent, as far as may be; True: all of it. Raises OSError."""
        if self.unsent:
            with suppress(BlockingIOError):
                self.unsent = self.unsent[self._target.send(self.unsent, _NO_WAIT) :]
        return not self.unsent

    def _with_drain(self, data: memoryview) -> bytes:
        place = self.frames.scan(data)
        if self.is_drain_due and place is not None:
            self.is_drain_due = False
            return b"".join((data[:place], _DRAIN, data[place:]))
        return bytes(data)

    def drain(self) -> None:
        """Have a DRAIN pass, now or as soon as a frame may begin. Raises OSError."""
        if self.unsent or not self.frames.is_between:
            self.is_drain_due = True
        else:
            self.unsent = _DRAIN
            self.flush()


class RelayedConnection:
    """A client's connection, and the one to the owner that is its alone."""

    __slots__ = (
        "_answers",
        "_client",
        "_is_refused",
        "_owner",
        "_requests",
        "awaited",
        "client_fd",
        "owner_fd",
    )

    def __init__(self, client: socket.socket, owner: socket.socket) -> None:
        self._client = client
        self._owner = owner
        self.client_fd = client.fileno()
        self.owner_fd = owner.fileno()
        self._requests = _Flow(client, owner)
        self._answers = _Flow(owner, client)
        self._is_refused = False  # the owner takes no more requests; answers may come
        self.awaited: tuple[int, int | None] = (READ, READ)  # at each socket, as `events`

    @property
    def is_admitted(self) -> bool:
        """True once the owner has answered the hello."""
        return self._answers.frames.count > 0

    @property
    def is_drained(self) -> bool:
        """True if no transaction is open on it, and none will be."""
        return DRAINED in self._answers.frames.kinds

    @property
    def is_stalled(self) -> bool:
        """True if an answer waits for the client to read."""
        return bool(self._answers.unsent)

    def cut(self) -> None:
        """End it; the relay's thread finds out. By any thread."""
        shut(self._client)

    def go_on(self, fd: int, event: int, scratch: memoryview) -> None:
        """Do what can be done after an event. Raises EOFError, OSError: it is over."""
        comes = event & ~WRITE
        if fd == self.client_fd:
            if event & WRITE:
                self._answers.carry(scratch)
            if event & ENDED and (self._requests.unsent or self._is_refused):
                raise EOFError
            if comes:
                self._take_requests(scratch)
        else:
            self._answers.is_last = bool(event & ENDED)
            if comes:
                self._answers.carry(scratch)
            if event & WRITE:
                self._take_requests(scratch)

    def _take_requests(self, scratch: memoryview) -> None:
        if not self._is_refused:
            try:
                self._requests.carry(scratch)
            except BrokenPipeError:  # also where the owner has ended, which is found then
                self._is_refused = True

    def drain(self) -> None:
        """Have the owner begin no more transactions on it. Raises OSError."""
        if self.is_admitted and not (self.is_drained or self._is_refused):
            self._requests.drain()

    def events(self) -> tuple[int, int | None]:
        """Return what is to be waited for at the client's socket, and at the owner's (RE2).

        None: the owner has ended, and what it has sent passes as the client reads it (RE3).
        """
        sends, answers = bool(self._requests.unsent), self.is_stalled
        client = HANG_UP if sends or self._is_refused else READ
        if answers:
            client |= WRITE
        if self._answers.is_last:
            return client, None
        owner = HANG_UP if answers else READ
        if sends and not self._is_refused:
            owner |= WRITE
        return client, owner

    def close(self) -> None:
        """Close both sockets."""
        close(self._client)
        close(self._owner)


class ConnectionRelay:
    """The relayed connections of a process, and their thread."""

    def __init__(self, env: Env, path: str) -> None:
        """`path`: of the store, whose owner has its address there."""
        self._env = env
        self._path = path
        self._max_connections = min(MAX_CONNECTIONS, file_limit() // 2)
        self._arriving: deque[RelayedConnection] = deque()  # not waited for yet
        self._connections: dict[int, RelayedConnection] = {}  # by the files of both sockets
        self._stalled: dict[RelayedConnection, float] = {}  # until when, the oldest first
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))
        self._events = socket_events()
        self._wake = SignalFlag()
        self._events.register(self._wake.fileno(), READ)
        self._ended: list[RelayedConnection] = []  # whose sockets are still open
        self._is_draining = False
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread. Raises RuntimeError if there is none to be had."""
        thread = Thread(target=self._run, name="quire-relay")
        thread.start()
        self._thread = thread

    def adopt(self, client: socket.socket) -> RelayedConnection | None:
        """Relay a connection from now on; None: nobody lets it in. By one thread until `close`."""
        owner = self._connect()
        if owner is None:
            return None
        connection = RelayedConnection(client, owner)
        self._arriving.append(connection)
        self._wake.set()
        return connection

    def _connect(self) -> socket.socket | None:
        """Connect to the owner, if it listens, and at once (RE4)."""
        address = read_address(self._env, self._path)
        if address is None or len(self._connections) >= 2 * self._max_connections:
            return None
        try:
            return connect(place_of(address.url), 0.0)
        except OSError:
            return None

    def drain(self, seconds: float) -> None:
        """Let open transactions end, for so long at most, while the owner begins no more of them.

        A DRAIN passes on each connection, again and again, until the owner answers it.
        """
        self._is_draining = True
        self._wake.set()
        until = time.monotonic() + seconds
        while self._has_open() and time.monotonic() < until:
            time.sleep(DRAIN_LOOK_SECONDS)

    def _has_open(self) -> bool:
        return any(each.is_admitted and not each.is_drained for each in self._all_connections())

    def _all_connections(self) -> list[RelayedConnection]:
        return [*self._arriving, *set(self._connections.values())]

    def close(self) -> None:
        """End all connections. Nobody adopts any more."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        for connection in [*self._all_connections(), *self._ended]:
            connection.close()
        self.abandon()

    def abandon(self) -> None:
        """In the child of a fork, whose copies of the sockets are closed."""
        self._events.close()
        self._wake.close()

    # By its own thread (RE4)

    def _run(self) -> None:
        while not self._is_closing:
            for fd, event in self._events.poll(self._time_left(), EVENTS_AT_ONCE):
                connection = self._connections.get(fd)
                if connection is not None:
                    self._go_on(connection, fd, event)
                elif fd == self._wake.fileno():
                    self._wake.clear()
            self._look()
            while self._arriving:
                self._begin(self._arriving.popleft())
            while self._ended:  # no event of theirs is left, so their numbers may be others'
                self._ended.pop().close()

    def _begin(self, connection: RelayedConnection) -> None:
        for fd in (connection.client_fd, connection.owner_fd):
            self._connections[fd] = connection
            self._events.register(fd, READ)

    def _go_on(self, connection: RelayedConnection, fd: int, event: int) -> None:
        try:
            connection.go_on(fd, event, self._scratch)
        except (OSError, EOFError):
            self._end(connection)
        else:
            self._wait_on(connection, is_read=fd == connection.client_fd and bool(event & WRITE))

    def _time_left(self) -> float:
        """Seconds until there is something to do whatever comes."""
        if self._is_draining:
            return DRAIN_LOOK_SECONDS
        if self._stalled:
            return max(0.0, next(iter(self._stalled.values())) - time.monotonic())
        return MAX_WAIT_SECONDS

    def _look(self) -> None:
        now = time.monotonic()
        while self._stalled:
            connection, until = next(iter(self._stalled.items()))
            if until > now:
                break
            self._end(connection)
        if self._is_draining:
            for connection in self._all_connections():
                try:
                    connection.drain()
                except OSError:
                    self._end(connection)
                else:
                    self._wait_on(connection, is_read=False)

    def _wait_on(self, connection: RelayedConnection, *, is_read: bool) -> None:
        """Wait for what comes next; `is_read`: its client has just read something."""
        events, awaited = connection.events(), connection.awaited
        if events == awaited == (READ, READ):
            return
        connection.awaited = client, owner = events
        self._events.modify(connection.client_fd, client)
        if owner is not None:
            self._events.modify(connection.owner_fd, owner)
        elif self._connections.pop(connection.owner_fd, None) is not None:
            self._events.unregister(connection.owner_fd)
        if is_read or not connection.is_stalled:
            self._stalled.pop(connection, None)
        if connection.is_stalled:
            self._stalled.setdefault(connection, time.monotonic() + SEND_SECONDS)

    def _end(self, connection: RelayedConnection) -> None:
        self._stalled.pop(connection, None)
        for fd in (connection.client_fd, connection.owner_fd):
            if self._connections.pop(fd, None) is not None:
                self._events.unregister(fd)
        self._ended.append(connection)
