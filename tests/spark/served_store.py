"""A store that is served to one user at a port of this machine over TLS, by the test's process or
by another one, which may be killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import quire
from quire.env import OsEnv
from quire.remote.access.tokens import UserToken
from quire.spark_graphs import connection
from quire.tls import Tls
from tests.kit.network import certificates, drawn_port
from tests.kit.users import Users, serving_users
from tests.kit.waiting import SECONDS
from tests.source_tree import ROOT

USER = "spark"
RIGHTS = "admin queue:*; admin state:*; admin graph:*"  # and none on the store as a whole
TOKEN = UserToken.draw(OsEnv())  # of this process


class AtServer:
    """A store that this process owns, as Spark is told of it: by its server's URL."""

    def __init__(self, owned: Any, url: str) -> None:
        self._owned = owned
        self.path = url
        self.directory = owned.path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owned, name)


def directory(store: Any) -> str:
    """Where its files are."""
    found: str = store.directory if isinstance(store, AtServer) else store.path
    return found


def credentials() -> dict[str, str]:
    """The variables by which Spark's processes are let in."""
    server, _ = certificates()
    return {"QUIRE_TOKEN": TOKEN.text, connection.TLS["ca"]: str(server.ca)}


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Have the environment of this process, and of those that it starts, be so."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def served(owner: Any, directory: Path, rights: str = RIGHTS) -> Iterator[str]:
    """Serve the store to the user with the token, as which this process goes too; the URL."""
    server, _ = certificates()
    users = Users(directory)
    users.tokens[USER] = TOKEN
    users.grant(USER, rights)
    with (
        serving_users(owner, users, Tls(cert=server.cert, key=server.key)) as url,
        variables(credentials()),
    ):
        yield f"{url}/"


SERVE = """
import json
import sys
import quire

path, listen, cert, key, users, limits = sys.argv[1:]
tls = quire.Tls(cert=cert, key=key)
quire.serve(path, listen=[listen], tls=tls, users=users, limits=json.loads(limits))
"""


class ServerProcess:
    """A process that serves a store at a port, and is ended and started again there."""

    def __init__(self, directory: str, users: str, rng: Random, **limits: int) -> None:
        port = drawn_port(rng)
        self.path = f"quire://localhost:{port}"  # as Spark is told of it
        server, _ = certificates()
        arguments = (
            directory, f"localhost:{port}", server.cert, server.key, users, json.dumps(limits)
        )  # fmt: skip
        self._command = [sys.executable, "-c", SERVE, *map(str, arguments)]
        self.process = subprocess.Popen(self._command, cwd=ROOT)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it by a signal, and start another one at its port."""
        self._end(number)
        self.process = subprocess.Popen(self._command, cwd=ROOT)

    def close(self) -> None:
        """Have it end well."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.process.wait(SECONDS)


@contextmanager
def served_elsewhere(directory: Path, rng: Random) -> Iterator[ServerProcess]:
    """Have a process of its own serve a new store to the user with the token, who may do all."""
    path = str(directory / "store")
    quire.open(path).close()
    users = Users(directory)
    users.tokens[USER] = TOKEN
    users.grant(USER, "admin *:*")
    made = ServerProcess(path, users.file.path, rng)
    with variables(credentials()), closing(made):
        yield made
        connection.forget(made.path)
    with quire.open(path) as store:
        assert store.admin.verify().ok
