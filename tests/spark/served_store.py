"""A store that the test's process owns, served to one user at a port of this machine over TLS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire.env import OsEnv
from quire.remote.access.tokens import UserToken
from quire.spark_graphs import connection
from quire.tls import Tls
from tests.kit.network import certificates
from tests.kit.users import Users, serving_users

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
