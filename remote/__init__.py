"""Sharing of a store: the server in its owner, and the client that gives others the same API.

What owns a store (`election`, `elected_store`, `shared_store`) is imported from its module: it
needs the whole engine, whose import takes most of the time of a process that joins an owner.
"""

from .client.joining import join
from .client.remote_store import RemoteStore
from .client.remote_transaction import RemoteTransaction
from .ownership.owner_process import LOCKED_EXIT_STATUS, OwnerProcess
from .server.service_manager import READY, STOPPING, notify
from .server.signals import on_hangup, told_to_end
from .server.store_server import StoreServer
from .wire.address import Address, read_address

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
