"""Joining the owner of a store, where there is one."""

from __future__ import annotations

from quire.env import Env
from quire.errors import ConnectionLost
from quire.limits import DEFAULT_CALL_TIMEOUT

from .address import read_address
from .client import RemoteStore


def join(env: Env, path: str, call_timeout: float = DEFAULT_CALL_TIMEOUT) -> RemoteStore | None:
    """The owner's store, if an owner can be reached."""
    address = read_address(env, path)
    if address is None:
        return None
    try:
        return RemoteStore(address.url, epoch=address.epoch, call_timeout=call_timeout)
    except ConnectionLost:
        return None
