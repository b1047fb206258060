"""Joining the owner of a store, where there is one."""

from __future__ import annotations

import os

from quire.env import Env
from quire.errors import ConnectionLost, StoreError
from quire.limits import DEFAULT_CALL_TIMEOUT
from quire.remote.limits import HELLO_SECONDS
from quire.remote.wire.address import ADDRESS_NAME, place_of, read_address, run_directory
from quire.remote.wire.sockets import close, connect

from .joined_store import JoinedStore
from .owner_session import OwnerSession


def join(env: Env, path: str, call_timeout: float = DEFAULT_CALL_TIMEOUT) -> JoinedStore | None:
    """The owner's store, if an owner can be reached."""
    session = begin_session(env, path, call_timeout)
    return None if session is None else JoinedStore.of(session)


def begin_session(env: Env, path: str, call_timeout: float) -> OwnerSession | None:
    """A session with the owner, if one can be reached."""
    address = read_address(env, path)
    if address is None:
        return None
    try:
        return OwnerSession(address.url, epoch=address.epoch, call_timeout=call_timeout)
    except ConnectionLost:
        return None


def forbidden(env: Env, path: str) -> str | None:
    """Return the path on the way to the owner that this process may not use, if there is one."""
    name = os.path.join(run_directory(path), ADDRESS_NAME)
    place = None
    try:
        env.open_file(name, read_only=True).close()
        address = read_address(env, path)
        if address is not None:
            place = place_of(address.url)
            close(connect(place, HELLO_SECONDS))
    except (OSError, StoreError) as error:
        if isinstance(error, PermissionError) or isinstance(error.__cause__, PermissionError):
            return name if place is None else str(place)
    return None
