"""What a service manager is told of a process, by the protocol of sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

_log = logging.getLogger("quire.remote")


def notify(state: str) -> None:
    """Tell it, if there is one: NOTIFY_SOCKET says where it listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # a name that is no file's
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(address)
            manager.sendall(state.encode())
    except OSError as error:
        _log.warning("the service manager at NOTIFY_SOCKET cannot be told %r: %s", state, error)
