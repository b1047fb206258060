"""Sharing of a store: the server in its owner, and the client that gives others the same API.

What owns a store (`election`, `elected_store`, `shared_store`) is imported from its module: it
needs the whole engine, whose import takes most of the time of a process that joins an owner.
"""

from .address import Address, read_address
from .client import RemoteStore
from .joining import join
from .owner_process import LOCKED_EXIT_STATUS, OwnerProcess
from .remote_transaction import RemoteTransaction
from .server import StoreServer
from .service_manager import READY, STOPPING, notify
from .signals import on_hangup, told_to_end

__all__ = [
    "LOCKED_EXIT_STATUS",
    "READY",
    "STOPPING",
    "Address",
    "OwnerProcess",
    "RemoteStore",
    "RemoteTransaction",
    "StoreServer",
    "join",
    "notify",
    "on_hangup",
    "read_address",
    "told_to_end",
]
