"""The ports of a process that serves a store, whether or not it owns the store.

NP1. They are bound from the beginning, and open until the process ends. Who comes there is served
    by this process while it owns the store, and relayed to the owner else: which, is looked at for
    each connection. So neither gaining nor losing the store closes a port.
NP2. Where users are let in alone, nobody is relayed: the owner, which knows no users of this
    process, would serve them with all rights. Their connections end until this process is it.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from quire.env import Env, after_fork
from quire.errors import QuireError
from quire.remote.server.connection_relay import ConnectionRelay
from quire.remote.server.network_entrance import (
    AdmitsUsers,
    Adopted,
    NetworkEntrance,
    places_to_listen,
)
from quire.remote.server.store_server import StoreServer
from quire.tls import Tls

_ports: Final[weakref.WeakSet[ServedPorts]] = weakref.WeakSet()


class ServedPorts:
    """The ports of a process, and where who comes there is served."""

    def __init__(
        self,
        env: Env,
        path: str,
        listen: Sequence[str],
        tls: Tls | None,
        access: AdmitsUsers | None,
        *,
        insecure: bool,
    ) -> None:
        """Bind the ports. `access`: to users alone. Raises InvalidArgument, RemoteError."""
        has_users = access is not None
        places = places_to_listen(listen, tls, insecure=insecure, has_users=has_users)
        self._entrance = NetworkEntrance(places, access)
        self._relay = ConnectionRelay(env, path)
        self._server: Callable[[], StoreServer | None] = lambda: None
        _ports.add(self)

    @property
    def urls(self) -> Sequence[str]:
        """The URL of each port."""
        return self._entrance.urls

    @property
    def relays(self) -> bool:
        """True if clients are let in while another process owns the store (NP2)."""
        return self._entrance.access is None

    def open(self, server: Callable[[], StoreServer | None]) -> None:
        """Let clients in. `server`: finds the server of this process, while it owns the store."""
        self._server = server
        self._relay.begin()
        self._entrance.let_in(self._adopt)

    def _adopt(self, connection: socket.socket) -> Adopted | None:
        adopted: Adopted | None = None
        access = self._entrance.access
        with suppress(QuireError):  # the store was closed meanwhile
            server = self._server()
            adopted = None if server is None else server.let_in(connection, access)
        if adopted is None and self.relays:
            adopted = self._relay.adopt(connection)
        return adopted

    def drain(self, seconds: float) -> None:
        """Let open transactions of relayed clients end, for so long at most, and no more begin."""
        self._relay.drain(seconds)

    def close(self) -> None:
        """Close the ports, and end what was relayed. Twice is once."""
        self._entrance.close()
        self._relay.close()

    def abandon(self) -> None:
        """In the child of a fork, whose copies of the sockets are closed."""
        self._entrance.abandon()
        self._relay.abandon()


def _abandon_in_child(parent: int) -> None:
    for ports in list(_ports):
        ports.abandon()


after_fork(_abandon_in_child)
