"""A proxy between the clients of a store and its owner: it carries bytes, keeps them, or ends.

It knows nothing of the protocol. A store directory beside the real one has its socket, and all else
of the real one by links: who opens that reaches the owner through the proxy.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Container
from contextlib import suppress

from quire.remote.wire.address import RUN_DIRECTORY, SOCKET_NAME
from quire.remote.wire.sockets import connect, listen
from tests.kit.proxy_thread import READ_BYTES, ProxyThread
from tests.kit.waiting import SECONDS


def socket_of(path: str) -> str:
    """Return the path of the socket of the store at `path`."""
    return os.path.join(path, RUN_DIRECTORY, SOCKET_NAME)


def link_store(path: str, beside: str) -> None:
    """Make the directory `beside` with all of the store at `path` but its socket."""
    os.makedirs(os.path.join(beside, RUN_DIRECTORY), mode=0o700)
    for name in os.listdir(path):
        if name != RUN_DIRECTORY:
            os.symlink(os.path.join(path, name), os.path.join(beside, name))


class Link:
    """A connection of a client, and the one to the owner that the proxy has for it."""

    def __init__(self, client: socket.socket, owner: socket.socket) -> None:
        self.client = client
        self.owner = owner
        self.unread = False  # there is something of the client's, which is not read

    def close(self) -> None:
        """End both; the system tells the client if something of it was not read."""
        self.client.close()
        self.owner.close()


class Proxy(ProxyThread[Link]):
    """A thread that carries bytes. What a test sets holds from then on."""

    def __init__(self, path: str, owner: str) -> None:
        """Listen at the path; the socket of the owner is at `owner`."""
        self.lets_in = True  # else who connects waits
        self.reads = True  # requests
        # Called for each part of a request or of an answer.
        self.passes_requests: Callable[[], bool] = lambda: True
        self.passes_answers: Callable[[], bool] = lambda: True
        self.arrived = threading.Event()  # something that is not read, or not passed
        self.answers = 0  # of which parts have been passed
        self._owner = owner
        super().__init__(listen(path), "test-proxy")
        self._thread.start()

    def pass_all(self) -> None:
        """Carry all bytes from now on, of whoever comes."""
        self.change(self._pass_all)

    def begin_anew(self) -> None:
        """End all connections, and carry all bytes of whoever comes then."""

        def begin() -> None:
            self._end_links()
            self._pass_all()

        self.change(begin)

    def _pass_all(self) -> None:
        self.reads = self.lets_in = True
        self.passes_requests = self.passes_answers = lambda: True

    def _carry(self, link: Link, readable: Container[socket.socket]) -> None:
        if link.client in readable:
            self._take_request(link)
        if link.owner in readable and link in self._links:
            self._take_answer(link)

    def _wait(self) -> list[socket.socket]:
        watched = [self._woken, *([self._listener] if self.lets_in else [])]
        for link in self._links:
            if self.reads:
                link.unread = False
            if not link.unread:
                watched.append(link.client)
            if link.owner.fileno() >= 0:
                watched.append(link.owner)
        return select.select(watched, [], [])[0]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            owner = connect(self._owner, SECONDS)
        except OSError:  # there is none
            client.close()
            return
        owner.settimeout(None)
        self._links.append(Link(client, owner))

    def _take_request(self, link: Link) -> None:
        if not self.reads:
            link.unread = True
            if self._is_data(link.client):
                self.arrived.set()
            return
        data = b""
        with suppress(OSError):
            data = link.client.recv(READ_BYTES)
        if not data:
            link.close()
            self._links.remove(link)
        elif self.passes_requests():
            with suppress(OSError):  # the owner has ended
                link.owner.sendall(data)
        else:
            self.arrived.set()

    def _take_answer(self, link: Link) -> None:
        data = b""
        with suppress(OSError):
            data = link.owner.recv(READ_BYTES)
        if not data:  # its end is told when the test says so
            link.owner.close()
        elif self.passes_answers():
            self.answers += 1
            with suppress(OSError):
                link.client.sendall(data)
        else:
            self.arrived.set()

    @staticmethod
    def _is_data(connection: socket.socket) -> bool:
        with suppress(OSError):
            return bool(connection.recv(1, socket.MSG_PEEK))
        return False
