"""A store that the test's process owns, served to one user at a port of this machine over TLS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire.remote.access.tokens import UserToken
from quire.spark_graphs import connection
from quire.tls import Tls
from tests.kit.network import certificates
from tests.kit.users import Users, serving_users

USER = "spark"


def credentials(token: str) -> dict[str, str]:
    """The variables by which Spark's processes are let in."""
    server, _ = certificates()
    return {"QUIRE_TOKEN": token, connection.TLS["ca"]: str(server.ca)}


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
def served(
    owner: Any, directory: Path, token: UserToken, rights: str = "admin *:*"
) -> Iterator[str]:
    """Serve the store to the user with the token, as which this process goes too; the URL."""
    server, _ = certificates()
    users = Users(directory)
    users.tokens[USER] = token
    users.grant(USER, rights)
    with (
        serving_users(owner, users, Tls(cert=server.cert, key=server.key)) as url,
        variables(credentials(token.text)),
    ):
        yield f"{url}/"
