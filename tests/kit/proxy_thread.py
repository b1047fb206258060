"""The thread of a proxy between clients and a server, which does all that is done to its links."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from queue import SimpleQueue
from typing import Final, Generic, Protocol, TypeVar

from tests.kit.waiting import SECONDS

READ_BYTES: Final = 1 << 16


class ProxyLink(Protocol):
    """A connection of a client, and the one to the server that the proxy has for it."""

    def close(self) -> None:
        """End both."""


L = TypeVar("L", bound=ProxyLink)


class ProxyThread(ABC, Generic[L]):
    """A thread that carries bytes between those who connect and a server."""

    def __init__(self, listener: socket.socket, name: str) -> None:
        self._listener = listener
        self._links: list[L] = []
        self._wake, self._woken = socket.socketpair()
        self._jobs: SimpleQueue[tuple[Callable[[], None], threading.Event]] = SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def change(self, action: Callable[[], None] = lambda: None) -> None:
        """Do something between two steps of the thread."""
        done = threading.Event()
        self._jobs.put((action, done))
        self._wake.send(b"x")
        assert done.wait(SECONDS)

    def cut(self) -> None:
        """End all connections."""
        self.change(self._end_links)

    def close(self) -> None:
        """End all connections, and let nobody in any more."""
        self.change(self._stop)
        self._thread.join(SECONDS)
        self._listener.close()
        self._wake.close()
        self._woken.close()

    # By its thread

    def _stop(self) -> None:
        self._end_links()
        self._is_closed = True

    def _end_links(self) -> None:
        for link in self._links:
            link.close()
        self._links.clear()

    def _run(self) -> None:
        while not self._is_closed:
            readable = self._wait()
            if self._woken in readable:
                self._woken.recv(READ_BYTES)
                while not self._jobs.empty():
                    action, done = self._jobs.get()
                    action()
                    done.set()
                continue  # the links may be others
            if self._listener in readable:
                self._accept()
            for link in list(self._links):
                self._carry(link, readable)

    @abstractmethod
    def _wait(self) -> Container[socket.socket]:
        """Wait until there is something to do, or `change` wakes; return what can be read."""

    @abstractmethod
    def _accept(self) -> None:
        """Let the next client in."""

    @abstractmethod
    def _carry(self, link: L, readable: Container[socket.socket]) -> None:
        """Carry what has come on a link."""
