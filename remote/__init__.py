"""Sharing of a store: the server in its owner, and the client that gives others the same API.

Its names are imported when they are asked for: who joins needs no server. What owns a store
(`shared_store`) needs the whole engine, whose import takes most of the time of a process that
begins: who joins an owner imports it to succeed that one.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client.joined_store import JoinedStore
    from .client.joined_transaction import JoinedTransaction
    from .client.joining import join
    from .ownership.owner_process import LOCKED_EXIT_STATUS, OwnerProcess
    from .server.signals import READY, STOPPING, notify, on_hangup, stop_on_signals
    from .server.store_server import StoreServer
    from .wire.address import Address, read_address
else:
    from quire.libraries.late_modules import names_of

    __getattr__ = names_of(
        globals(),
        {
            "LOCKED_EXIT_STATUS": "quire.remote.ownership.owner_process",
            "READY": "quire.remote.server.signals",
            "STOPPING": "quire.remote.server.signals",
            "Address": "quire.remote.wire.address",
            "OwnerProcess": "quire.remote.ownership.owner_process",
            "JoinedStore": "quire.remote.client.joined_store",
            "JoinedTransaction": "quire.remote.client.joined_transaction",
            "StoreServer": "quire.remote.server.store_server",
            "join": "quire.remote.client.joining",
            "notify": "quire.remote.server.signals",
            "on_hangup": "quire.remote.server.signals",
            "read_address": "quire.remote.wire.address",
            "stop_on_signals": "quire.remote.server.signals",
        },
    )

__all__ = [
    "LOCKED_EXIT_STATUS",
    "READY",
    "STOPPING",
    "Address",
    "JoinedStore",
    "JoinedTransaction",
    "OwnerProcess",
    "StoreServer",
    "join",
    "notify",
    "on_hangup",
    "read_address",
    "stop_on_signals",
]
