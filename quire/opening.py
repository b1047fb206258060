"""Opening a store: owning it, or joining the process that owns it.

- OP1: one process owns a store at a time, by the lock in its directory; any other that opens it
  joins the owner over the store's socket, with the same methods, or gets `StoreLocked`, which names
  the owner.
- OP2: an owner serves others for as long as it has the store open, unless it asked not to.
- OP3: waiting for an owner that is just starting or just ending is bounded.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from quire.env import Env, OsEnv
from quire.errors import ConnectionLost, InvalidArgument, StoreFailed, StoreLocked
from quire.limits import JOIN_POLL_SECONDS, JOIN_SECONDS, START_SECONDS

if TYPE_CHECKING:
    from quire.remote import RemoteStore
    from quire.store import Store


def open(
    path: str,
    *,
    env: Env | None = None,
    create: bool = True,
    share: bool = True,
    background: bool = True,
    **options: Any,
) -> Store:
    """Open the store at `path`: own it, or join its owner.

    `create` makes a new store where there is none. `share` lets other processes join this one, and
    lets this one join another; without it the store is owned or StoreLocked is raised. `background`
    runs checkpoints, moves and time-outs in threads of the store. The options (see
    `quire.engine.Options`) are those of the owner: a process that joins takes the store as it is.

    Raises StoreNotFound, StoreLocked, StoreCorrupt, StoreVersion, StoreFailed, InvalidArgument.
    """
    path = checked_path(path)
    machine = OsEnv() if env is None else env
    share = share and isinstance(machine, OsEnv)  # nobody else can reach a simulated disk
    deadline = machine.monotonic() + JOIN_SECONDS
    while True:
        try:
            return _own(path, machine, create, share, background, options)
        except StoreLocked as error:
            if not share:
                raise
            locked = error
        joined = join(machine, path)
        if joined is not None:
            return joined
        if machine.monotonic() > deadline:
            raise StoreLocked(f"{locked} (it could not be joined over its socket)") from None
        machine.sleep(JOIN_POLL_SECONDS)


def connect(url: str) -> RemoteStore:
    """The store whose owner listens at `url`: quire+unix:///path, or quire://127.0.0.1:port.

    Raises ConnectionLost if nobody answers there, InvalidArgument for what is no such URL.
    """
    from quire.remote import RemoteStore

    return RemoteStore(url)


def serve(path: str, linger: float | None = None, *, create: bool = True, **options: Any) -> None:
    """Own the store at `path` and serve it until SIGTERM or SIGINT, and then close it.

    With `linger`, also end when no client has been connected for that many seconds. Raises what
    `open` raises; StoreLocked if another process owns the store.
    """
    from quire.remote import SharedStore, told_to_end

    path = checked_path(path)
    env = OsEnv()
    with (
        told_to_end() as end,
        SharedStore.open(path, env=env, create=create, owner="quire serve", **options) as store,
    ):
        server = store.share(env)
        server.wait_started()
        server.wait_until_idle(linger, end)


def open_or_serve(path: str, linger: float = 30.0, *, create: bool = True) -> RemoteStore:
    """Join the owner of the store at `path`; where there is none, start a process that owns it.

    That process ends once no client has been connected for `linger` seconds. Raises StoreNotFound
    and InvalidArgument as `open` does, and StoreFailed, with what that process said, if the store
    cannot be opened.
    """
    from quire.engine.checkpoints.opened import prepare_directory
    from quire.engine.layout import Layout
    from quire.remote import OwnerProcess

    path = checked_path(path)
    env = OsEnv()
    prepare_directory(env, Layout(path), create)
    deadline = env.monotonic() + START_SECONDS
    started: OwnerProcess | None = None
    retry_at = 0.0
    while True:
        joined = join(env, path)
        if joined is not None:
            return joined
        now = env.monotonic()
        if started is not None and started.has_failed:
            raise StoreFailed(f"the owner of {path} did not start: {started.last_words()}")
        if now > deadline:
            said = "" if started is None else started.last_words()
            raise StoreFailed(f"the owner of {path} cannot be joined; its log says: {said}")
        if started is None or (not started.is_running and now >= retry_at):
            started = OwnerProcess(env, path, linger, create=create)
            retry_at = now + 1.0
        env.sleep(JOIN_POLL_SECONDS)


def _own(
    path: str, env: Env, create: bool, share: bool, background: bool, options: dict[str, Any]
) -> Store:
    from quire.engine import EmbeddedStore

    if not share:
        return EmbeddedStore.open(path, env=env, create=create, background=background, **options)
    from quire.remote import SharedStore

    store = SharedStore.open(path, env=env, create=create, background=background, **options)
    store.share(env)
    return store


def join(env: Env, path: str) -> RemoteStore | None:
    """The owner's store, if an owner can be reached."""
    from quire.remote import RemoteStore, read_address

    address = read_address(env, path)
    if address is None:
        return None
    try:
        return RemoteStore(address.url, epoch=address.epoch)
    except ConnectionLost:
        return None


def checked_path(path: object) -> str:
    """The absolute path of a store. Raises InvalidArgument for what is no path."""
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
    except TypeError:
        text = ""
    if not text:  # which would be the working directory
        raise InvalidArgument(f"path is {path!r}: give the path of a directory")
    return os.path.abspath(text)
