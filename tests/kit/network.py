"""A store that is served over TLS, on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp

import quire
from quire.env import OsEnv
from quire.interface.store import Store
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.server.network_entrance import NetworkEntrance, places_to_listen
from quire.tls import Tls
from tests.kit.certificates import Authority


@cache
def certificates() -> tuple[Tls, Tls]:
    """Return the files of a server and of a client that it lets in; of this process."""
    authority = Authority(Path(mkdtemp(prefix="quire-certificates-")))
    return authority.certificate("server"), authority.certificate("client", hosts="DNS:client")


def drawn_port(rng: Random) -> int:
    """Return a port that nobody has, and that the system gives to nobody by itself."""
    while True:
        port = rng.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@contextmanager
def listening(
    owner: Store, tls: Tls | None = None, ports: Sequence[str] = ("localhost:0",)
) -> Iterator[NetworkEntrance]:
    """Serve an owned store at ports of this machine; without `tls` with plain sockets."""
    assert isinstance(owner, SharedStore)
    with closing(NetworkEntrance(places_to_listen(ports, tls, insecure=True))) as entrance:
        server = owner.share(OsEnv())
        entrance.let_in(lambda channel: server.let_in(channel, entrance.access))
        yield entrance


@contextmanager
def over_tls(owner: Store) -> Iterator[Store]:
    """Open an owned store by a URL."""
    server, client = certificates()
    with listening(owner, server) as entrance, quire.open(entrance.urls[0], tls=client) as store:
        yield store
