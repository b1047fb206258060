"""Sharing of a store: the server in its owner, and the client that gives others the same API."""

from .address import Address, read_address
from .client import RemoteStore
from .owner_process import LOCKED_EXIT_STATUS, OwnerProcess, told_to_end
from .remote_transaction import RemoteTransaction
from .server import StoreServer
from .shared_store import SharedStore

__all__ = [
    "LOCKED_EXIT_STATUS",
    "Address",
    "OwnerProcess",
    "RemoteStore",
    "RemoteTransaction",
    "SharedStore",
    "StoreServer",
    "read_address",
    "told_to_end",
]
