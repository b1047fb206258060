"""A store that is served to users, on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp

from msgspec.structs import replace

import quire
from quire.engine import EmbeddedStore
from quire.env import OsEnv
from quire.interface.store import Store
from quire.remote.access.tokens import UserToken
from quire.remote.access.user_access import UserAccess
from quire.remote.access.user_changes import limit
from quire.remote.access.users_document import Grant, TokenEntry, UserEntry
from quire.remote.access.users_file import UsersFile
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.server.network_entrance import NetworkEntrance, places_to_listen
from quire.tls import Tls
from tests.kit.network import certificates


def grants_of(words: str) -> tuple[Grant, ...]:
    """Return the grants of words: "put,get queue:orders; browse state:*"."""
    pairs = [part.split() for part in words.split(";") if part.strip()]
    return tuple(Grant.of(rights, target) for rights, target in pairs)


class Users:
    """A file of users, and their tokens."""

    def __init__(self, directory: Path) -> None:
        self.file = UsersFile(OsEnv(), directory / "users.json")
        self.file.change(lambda document: document, create=True)
        self.tokens: dict[str, UserToken] = {}

    def grant(self, name: str, words: str, **fields: object) -> None:
        """Have the user be there with exactly these rights, and one token."""
        token = self.tokens.setdefault(name, UserToken.draw(OsEnv()))
        entry = UserEntry(
            grants=grants_of(words),
            tokens=(TokenEntry(token.key_id, token.digest()),),
            **fields,  # type: ignore[arg-type]
        )
        self.file.change(lambda before: replace(before, users={**before.users, name: entry}))

    def limit(self, name: str, **values: float | None) -> None:
        """Limit what the user may have in use."""
        self.file.change(partial(limit, name=name, values=values))


@contextmanager
def serving_users(
    owner: Store,
    users: Users,
    tls: Tls | None = None,
    ports: Sequence[str] = ("localhost:0",),
    audit: Path | None = None,
) -> Iterator[str]:
    """Serve an owned store to users at a port of this machine; its URL."""
    assert isinstance(owner, SharedStore)
    places = places_to_listen(ports, tls, insecure=True, has_users=True)
    access = UserAccess(OsEnv(), users.file.path, None if audit is None else str(audit))
    with closing(NetworkEntrance(places, access)) as entrance:
        server = owner.share(OsEnv())
        entrance.let_in(lambda channel: server.let_in(channel, entrance.access))
        yield entrance.urls[0]


@contextmanager
def as_user(owner: EmbeddedStore, directory: Path, words: str) -> Iterator[Store]:
    """Open an owned store as a user with these rights."""
    users = Users(directory)
    users.grant("anna", words)
    with (
        serving_users(owner, users) as url,
        quire.open(url, token=users.tokens["anna"].text) as store,
    ):
        yield store


@cache
def _with_all_rights() -> Users:
    """Return a file with one user who may do everything; of this process."""
    users = Users(Path(mkdtemp(prefix="quire-users-")))
    users.grant("root", "admin *:*")
    return users


@contextmanager
def over_tls_with_all_rights(owner: Store) -> Iterator[Store]:
    """Open an owned store by a URL, over TLS, as a user who may do everything."""
    server, client = certificates()
    users = _with_all_rights()
    with (
        serving_users(owner, users, Tls(cert=server.cert, key=server.key)) as url,
        quire.open(url, tls=Tls(ca=client.ca), token=users.tokens["root"].text) as store,
    ):
        yield store
