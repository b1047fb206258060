"""This process's way to the store's owner: one connection for each store, opened when needed.

Spark calls the connector from several processes, forks some of them, and replaces them at any time.
None of them owns the store: each joins its owner, which is started if there is none. When the owner
dies, the next call starts another one, and what is safe to repeat is repeated. Whether the store
may live where it does was asked of whoever gave its path (`quire.env.check_file_system`), once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from quire.env import Env, OsEnv
from quire.env.interpreter import Lock
from quire.errors import (
    ConnectionLost,
    OutcomeUnknown,
    QuireError,
    StoreClosed,
    StoreLocked,
    StoreNotFound,
)
from quire.opening import open_or_serve

from .limits import PATIENCE_SECONDS
from .worker_garbage import leave_out_modules

if TYPE_CHECKING:
    from quire.remote import JoinedStore

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


def _open(path: str) -> JoinedStore:
    if not OsEnv().exists(path):
        raise StoreNotFound(
            f"there is no store at {path}; create it with quire.open({path!r}), and its queues "
            "with create_queue"
        )
    return open_or_serve(path, create=False, network_file_system=True)


def make(path: str) -> None:
    """Make the store at the path, if there is none. Raises what `quire.open` raises."""
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
    The last error is raised when the store could not be reached for PATIENCE_SECONDS.
    """
    env = env or OsEnv()
    repeated = (*_LOST, OutcomeUnknown) if repeat_unknown else _LOST
    deadline = env.monotonic() + PATIENCE_SECONDS
    pauses = iter(PAUSE_SECONDS)
    pause = 0.0
    while True:
        try:
            result = action(store_at(path))
        except repeated:
            forget(path)
            pause = next(pauses, pause)
            if env.monotonic() + pause > deadline:
                raise
            env.sleep(pause)
        else:
            leave_out_modules()
            return result
