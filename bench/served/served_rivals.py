"""Servers beside Quire's: Redis, PostgreSQL, and the least that a server in Python can be.

Each is a process with a Unix socket of its own in a private folder, and durable as Quire is: Redis
with an append-only file that it syncs before it answers, PostgreSQL with its defaults. The floor
receives a request, writes a page and syncs it once for all requests that are there, and answers.
"""

from __future__ import annotations

import select
import shutil
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Protocol

from bench.rivals.bare_loop import BareLoop
from bench.rivals.server_process import ServerProcess

__all__ = [
    "FloorServer",
    "PostgresServer",
    "QuireServer",
    "RedisServer",
    "Server",
    "UnsyncedRedisServer",
    "serve_floor",
]

PAGES = 4096  # of the floor's file


class Server(Protocol):
    """A running server; `address` is for its clients."""

    name: str
    address: str

    def __init__(self, folder: Path) -> None: ...

    def stop(self) -> None: ...


class QuireServer(ServerProcess):
    """`quire serve`, in a process of its own."""

    name = "Quire"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.address = str(folder / "store")
        command = [sys.executable, "-m", "quire", "serve", self.address]
        super().__init__(command, (folder / "store" / "run" / "address").exists)


class RedisServer(ServerProcess):
    """redis-server with appendonly yes, appendfsync always. Raises FileNotFoundError."""

    name = "Redis"
    syncs = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        """`port`: on loopback, beside the Unix socket; 0: none."""
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("redis-server is not installed")
        folder.mkdir()
        self.address = str(folder / "redis.sock")
        settings = {
            "port": str(port), "bind": "127.0.0.1",
            "unixsocket": self.address, "unixsocketperm": "600", "save": "",
            "appendonly": "yes" if self.syncs else "no", "appendfsync": "always",
            "dir": str(folder), "auto-aof-rewrite-percentage": "0",
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        super().__init__([program, *options], partial(_listens, self.address))


class UnsyncedRedisServer(RedisServer):
    """redis-server that writes nothing."""

    syncs = False


class PostgresServer:
    """A cluster of its own, as the tests make it. Raises FileNotFoundError."""

    name = "PostgreSQL"

    def __init__(self, folder: Path) -> None:
        from tests.coordination.postgres import SETTINGS, Cluster, NotInstalled

        folder.mkdir()
        settings = {**SETTINGS, "max_connections": "200"}
        try:
            self._cluster = Cluster(settings, folder)
        except NotInstalled as error:
            raise FileNotFoundError(str(error)) from None
        self.address = self._cluster.conninfo

    def stop(self) -> None:
        self._cluster.stop()


class FloorServer(ServerProcess):
    """`serve_floor` in a process of its own."""

    name = "floor"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.address = str(folder / "floor.sock")
        floor = "from bench.served.served_rivals import serve_floor; serve_floor(*sys.argv[1:])"
        code = f"import sys; {floor}"
        command = [sys.executable, "-c", code, self.address, str(folder / "pages")]
        super().__init__(command, partial(_listens, self.address))


def serve_floor(address: str, pages: str) -> None:
    """Echo; what begins with "d" after a synced write, one for all that are there."""
    bare = BareLoop(Path(pages), PAGES)
    clients: dict[int, socket.socket] = {}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(128)
    events = select.epoll()
    events.register(listener.fileno(), select.EPOLLIN)
    while True:
        ready: list[tuple[socket.socket, bytes]] = []
        durable = False
        for fd, _ in events.poll():
            if fd == listener.fileno():
                client, _ = listener.accept()
                clients[client.fileno()] = client
                events.register(client.fileno(), select.EPOLLIN)
                continue
            data = clients[fd].recv(65536)
            if not data:
                events.unregister(fd)
                clients.pop(fd).close()
                continue
            durable |= data[0] == ord("d")
            ready.append((clients[fd], data))
        if durable:
            bare.step()
        for client, data in ready:
            client.send(data)


def _listens(address: str) -> bool:
    with socket.socket(socket.AF_UNIX) as tried:
        return tried.connect_ex(address) == 0
