"""The bytes that a thread of this process sends to the owner of a store."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from quire.remote.wire.protocol import HEAD


def watch_sends(
    monkeypatch: pytest.MonkeyPatch, watch: Callable[[bytes], None], *, all_threads: bool = False
) -> None:
    """Have a function called with what is to be sent at once, by this thread or by all.

    What it raises is raised in place of the send.
    """
    thread = threading.get_ident()
    send, sendmsg = socket.socket.send, socket.socket.sendmsg

    def look(data: bytes) -> None:
        if len(data) >= HEAD.size and (all_threads or threading.get_ident() == thread):
            watch(data)

    def watched(connection: socket.socket, data: Any, flags: int = 0) -> int:
        look(bytes(data))
        return send(connection, data, flags)

    def watched_parts(connection: socket.socket, parts: Iterable[Any], *rest: Any) -> int:
        parts = list(parts)
        look(b"".join(map(bytes, parts)))
        return sendmsg(connection, parts, *rest)

    monkeypatch.setattr(socket.socket, "send", watched, raising=False)
    monkeypatch.setattr(socket.socket, "sendmsg", watched_parts, raising=False)
