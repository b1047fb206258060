"""Sharing of a store: the server in its owner, and the client that gives others the same API."""

from .address import Address, read_address
from .client import RemoteStore
from .elected_store import ElectedStore
from .elected_transaction import ElectedTransaction
from .election import Election, join
from .owner_process import LOCKED_EXIT_STATUS, OwnerProcess
from .remote_transaction import RemoteTransaction
from .server import StoreServer
from .service_manager import READY, STOPPING, notify
from .shared_store import SharedStore
from .signals import on_hangup, told_to_end

__all__ = [
    "LOCKED_EXIT_STATUS",
    "READY",
    "STOPPING",
    "Address",
    "ElectedStore",
    "ElectedTransaction",
    "Election",
    "OwnerProcess",
    "RemoteStore",
    "RemoteTransaction",
    "SharedStore",
    "StoreServer",
    "join",
    "notify",
    "on_hangup",
    "read_address",
    "told_to_end",
]
