"""A proxy between the clients of a server and its port: real sockets of this machine.

It knows nothing of the protocol, nor of TLS. It carries bytes, later if a test wants that, ends all
connections at a byte, or keeps them open and drops what goes one way.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import time
from collections import deque
from collections.abc import Container
from contextlib import suppress
from typing import Final

from tests.kit.proxy_thread import READ_BYTES, ProxyThread
from tests.kit.waiting import SECONDS

ATTACH_FILTER: Final = 26  # SO_ATTACH_FILTER of Linux


class OneWay:
    """The bytes that go from one side to the other. What a test sets holds from then on."""

    def __init__(self) -> None:
        self.carried = 0  # bytes, of all connections
        self.cut_at: int | None = None  # so many bytes are carried, then all connections end
        self.is_dropped = False  # what comes is read, and goes nowhere; the end of a side neither

    def pass_on(self, data: bytes) -> tuple[bytes, bool]:
        """Return what of the data goes on, and True if the connections end then."""
        if self.is_dropped:
            return b"", False
        is_cut = self.cut_at is not None and self.carried + len(data) >= self.cut_at
        if is_cut:
            assert self.cut_at is not None
            data = data[: self.cut_at - self.carried]
            self.cut_at = None
        self.carried += len(data)
        return data, is_cut


class _End:
    """One side of a link: its socket, and the bytes that are to be sent there."""

    def __init__(self, connection: socket.socket, incoming: OneWay, *, is_client: bool) -> None:
        self.connection = connection
        self.incoming = incoming  # from this side
        self.is_client = is_client
        self.unsent: deque[tuple[float, bytes]] = deque()  # from when on, and what; empty: its end
        self.has_ended = False  # and the other side does not learn of it


class _Link:
    """A connection of a client, and the one to the server that the proxy has for it."""

    def __init__(self, client: _End, server: _End) -> None:
        self.client = client
        self.server = server
        self.asks = False  # the latest bytes were the client's

    def ends(self) -> tuple[tuple[_End, _End], tuple[_End, _End]]:
        """Return each side, and the other one."""
        return (self.client, self.server), (self.server, self.client)

    def close(self) -> None:
        self.client.connection.close()
        self.server.connection.close()


class TcpProxy(ProxyThread[_Link]):
    """A port of its own, and a thread that carries bytes between it and the server's."""

    def __init__(self, port: int) -> None:
        """`port`: that of the server."""
        self.requests = OneWay()
        self.answers = OneWay()
        self.delay_seconds = 0.0  # of all bytes, either way
        self.turns = 0  # how often an answer began to come after a request: round trips
        self.connections = 0  # that have come
        self.server_port = port
        super().__init__(socket.create_server(("127.0.0.1", 0)), "test-tcp-proxy")
        self.port: Final[int] = self._listener.getsockname()[1]
        self._thread.start()

    @property
    def url(self) -> str:
        """Where clients open the store."""
        return f"quire://localhost:{self.port}"

    def drop(self, *ways: OneWay) -> None:
        """Drop what goes these ways from now on."""

        def drop() -> None:
            for way in ways:
                way.is_dropped = True

        self.change(drop)

    def mend(self) -> None:
        """End all connections, and carry all bytes of those who come then."""

        def mend() -> None:
            self._end_links()
            self.requests.is_dropped = self.answers.is_dropped = False

        self.change(mend)

    def silence(self) -> None:
        """Have the system drop all that the server sends from now on, and acknowledge nothing.

        So the server has connections to a machine that is gone, as its own system sees it.
        """

        def silence() -> None:
            for link in self._links:
                _drop_incoming(link.server.connection)

        self.change(silence)

    # By its thread

    def _carry(self, link: _Link, readable: Container[socket.socket]) -> None:
        for end, other in link.ends():
            if link in self._links and end.connection in readable:
                self._receive(link, end, other)
        for end, _ in link.ends():
            if link in self._links:
                self._send(link, end)

    def _wait(self) -> set[socket.socket]:
        reads: list[socket.socket] = [self._woken, self._listener]
        writes, times = [], [SECONDS + time.monotonic()]
        for link in self._links:
            for end, _ in link.ends():
                if not end.has_ended:
                    reads.append(end.connection)
                if end.unsent and end.unsent[0][0] <= time.monotonic():
                    writes.append(end.connection)
                elif end.unsent:
                    times.append(end.unsent[0][0])
        return set(select.select(reads, writes, [], max(0.0, min(times) - time.monotonic()))[0])

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self.server_port), SECONDS)
        except OSError:  # nobody serves
            client.close()
            return
        for connection in (client, server):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections += 1
        self._links.append(
            _Link(
                _End(client, self.requests, is_client=True),
                _End(server, self.answers, is_client=False),
            )
        )

    def _receive(self, link: _Link, end: _End, other: _End) -> None:
        data = b""
        with suppress(ConnectionError):
            data = end.connection.recv(READ_BYTES)
        if not data and end.incoming.is_dropped:
            end.has_ended = True
            return
        kept, is_cut = end.incoming.pass_on(data)
        if kept and link.asks != end.is_client:
            link.asks = end.is_client
            self.turns += not end.is_client
        if kept or not data:
            other.unsent.append((time.monotonic() + self.delay_seconds, kept))
        if is_cut:
            self._send(link, other)
            self._end_links()

    def _send(self, link: _Link, end: _End) -> None:
        while end.unsent and end.unsent[0][0] <= time.monotonic():
            due, data = end.unsent.popleft()
            if not data:
                self._drop(link)
                return
            try:
                sent = end.connection.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._drop(link)
                return
            if sent < len(data):
                end.unsent.appendleft((due, data[sent:]))
                return

    def _drop(self, link: _Link) -> None:
        link.close()
        self._links.remove(link)


class _Program(ctypes.Structure):
    """`struct sock_fprog` of Linux."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _drop_incoming(connection: socket.socket) -> None:
    """Have the system take nothing that comes, as if the network had lost it."""
    code = (ctypes.c_uint64 * 1)(0x0006)  # BPF_RET | BPF_K, 0: of each packet no byte is taken
    program = _Program(1, ctypes.cast(code, ctypes.c_void_p))
    connection.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, bytes(program))


CAN_SILENCE: Final = os.uname().sysname == "Linux"
