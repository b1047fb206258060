"""This process's way to the store's owner: one connection for each store, opened when needed.

Spark calls the connector from several processes, forks some of them, and replaces them at any time.
None of them owns the store: each joins its owner, which is started if there is none, or the server
that a URL names. When the owner
dies, the next call starts another one, and what is safe to repeat is repeated. Whether the store
may live where it does was asked of whoever gave its path (`quire.env.check_file_system`), once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast

import quire.opening
from quire.env import Env, OsEnv
from quire.env.interpreter import Lock
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    LimitReached,
    OutcomeUnknown,
    QuireError,
    StoreClosed,
    StoreLocked,
    StoreNotFound,
)
from quire.libraries.late_imports import importing
from quire.opening import open_or_serve

from .limits import LIMIT_PAUSE_SECONDS, PATIENCE_SECONDS
from .worker_garbage import leave_out_modules

if TYPE_CHECKING:
    from quire.remote import JoinedStore
    from quire.remote.wire.address import Endpoint
    from quire.tls import Tls

SERVED: Final = "quire://"
TLS: Final = {"ca": "QUIRE_TLS_CA", "cert": "QUIRE_TLS_CERT", "key": "QUIRE_TLS_KEY"}
"""The variables with the paths of certificates, by the arguments of `quire.Tls`."""
PAUSE_SECONDS = (0.02, 0.1, 0.5, 1.0)

_LOST = (ConnectionLost, StoreClosed, StoreLocked)

_stores: dict[tuple[int, str], JoinedStore] = {}
_opening = Lock()  # leases are renewed in a thread of its own

Result = TypeVar("Result")


def store_at(path: str) -> JoinedStore:
    """The store at the path, by this process's connection. Raises StoreNotFound."""
    key = (os.getpid(), path)  # a forked child must not talk on its parent's socket
    with _opening:
        if key not in _stores:
            _stores[key] = _open(path)
        return _stores[key]


def is_served(path: str) -> bool:
    """Return True for the URL of a server, by which a store is reached from other hosts."""
    return path.startswith(SERVED)


def _open(path: str) -> JoinedStore:
    if is_served(path):
        return cast("JoinedStore", quire.opening.open(path, tls=_tls(path)))
    if not OsEnv().exists(path):
        raise StoreNotFound(
            f"there is no store at {path}; create it with quire.open({path!r}), and its queues "
            "with create_queue"
        )
    return open_or_serve(path, create=False, network_file_system=True)


def check_url(url: str) -> str:
    """Return the URL of a server without a slash behind it. Raises InvalidArgument."""
    with importing():
        from quire.remote.wire.address import place_of, urls_of
        from quire.tls import Tls

    if "@" in url:
        raise InvalidArgument(
            "the URL of a server has no user in it, nor a token, which would be in plans and logs: "
            "give quire://host:port, and the token by QUIRE_TOKEN in the environment"
        )
    found = url.rstrip("/")
    for each in urls_of(found):
        place_of(each, Tls())
    return found


def _tls(url: str) -> Tls | None:
    """Return the certificates for a server, by the variables of the environment.

    None: there are none, and all its addresses are of this machine, which TLS is not needed for.
    """
    with importing():
        from quire.remote.wire.address import place_of, urls_of
        from quire.tls import Tls

    named = {name: os.environ[variable] for name, variable in TLS.items() if variable in os.environ}
    if not named and all(_is_local(place_of(each, Tls())) for each in urls_of(url)):
        return None
    return Tls(**named)


def _is_local(place: Endpoint) -> bool:
    return isinstance(place, str) or place.is_local


def make(path: str) -> None:
    """Make the store at the path, if there is none. Raises what `quire.open` raises.

    One behind a URL is its server's to make.
    """
    if is_served(path):
        store_at(path)
        return
    key = (os.getpid(), path)
    with _opening:
        if key not in _stores:
            _stores[key] = open_or_serve(path, create=True, network_file_system=True)


def owner_of(path: str) -> int | None:
    """The process that this one's connection goes to; None: there is no connection."""
    store = _stores.get((os.getpid(), path))
    return None if store is None else store.owner_process_id


def forget(path: str) -> None:
    """Drop the connection, so that the next call opens another one."""
    store = _stores.pop((os.getpid(), path), None)
    if store is not None:
        with contextlib.suppress(QuireError):  # its owner is gone, which is why it is dropped
            store.close()


def call(
    path: str,
    action: Callable[[JoinedStore], Result],
    *,
    repeat_unknown: bool = True,
    env: Env | None = None,
) -> Result:
    """Return what `action` returns; it is repeated while the owner dies under it.

    With `repeat_unknown` the action is also repeated when it is not known whether it took effect.
    Where the server has as much in use as may be, it waits until there is room. The last error is
    raised when the store could not be reached, or had no room, for PATIENCE_SECONDS.
    """
    env = env or OsEnv()
    repeated = (*_LOST, OutcomeUnknown) if repeat_unknown else _LOST
    deadline = env.monotonic() + PATIENCE_SECONDS
    pauses = iter(PAUSE_SECONDS)
    pause = 0.0
    while True:
        try:
            result = action(store_at(path))
        except LimitReached as error:
            if error.retry_after is None:
                raise
            # By chance, so that tasks which are refused together do not come together again.
            pause = min(2 * max(pause, error.retry_after), LIMIT_PAUSE_SECONDS)
            if env.monotonic() + pause > deadline:
                raise
            env.sleep(pause * (1 + env.random_u64() / 2**64) / 2)
        except repeated:
            forget(path)
            pause = next(pauses, pause)
            if env.monotonic() + pause > deadline:
                raise
            env.sleep(pause)
        else:
            leave_out_modules()
            return result
