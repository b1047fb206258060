"""A server of HTTP that answers by a script, and breaks off where that says so."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterable
from typing import Final

RESET: Final = "reset"  # the connection, once the request has come
HANG: Final = "hang"  # until the server is closed
CUT: Final = "cut"  # the body in its midst
STALL: Final = "stall"  # there

DATED: Final = 'Last-Modified: Sat, 28 Nov 2026 19:40:27 GMT\r\nETag: "x"\r\n'


def part(data: bytes, first: int = 0, size: int | None = None) -> tuple[str, bytes]:
    """The answer to a read: bytes from an offset of an object of that size."""
    whole = len(data) if size is None else size
    head = f"Content-Range: bytes {first}-{first + len(data) - 1}/{whole}\r\n{DATED}"
    return f"206 Partial Content\r\n{head}", data


class ScriptedServer:
    """A server on loopback; each request takes the next answer, and the last again and again.

    An answer is a way to break off, a status, or a status with headers and a body; `requests` has
    the first line of each request.
    """

    def __init__(self, answers: Iterable[str | tuple[str, bytes]]) -> None:
        self.requests: list[str] = []
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """Break off what hangs, and end."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            connection.settimeout(10)
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            received = connection.recv(1 << 16)
            if not received:  # a connection that the client had in reserve
                return
            request += received
        head, _, body = request.partition(b"\r\n\r\n")
        fields = head.decode().lower().split("\r\n")
        lengths = [field.split(":")[1] for field in fields if field.startswith("content-length")]
        while len(body) < int(lengths[0] if lengths else 0):
            body += connection.recv(1 << 16)
        self.requests.append(head.decode().split("\r\n")[0])
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer == HANG:
            return
        if answer == RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            return
        breaks_off = answer if answer in (CUT, STALL) else ""
        status, data = (
            part(b"x" * 100)
            if breaks_off
            else answer
            if isinstance(answer, tuple)
            else (f"{answer}\r\n{DATED}", b"")
        )
        status = status if status.endswith("\r\n") else f"{status}\r\n"
        length = f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        connection.sendall(
            f"HTTP/1.1 {status}{length}".encode() + data[: 50 if breaks_off else None]
        )
        if breaks_off != STALL:
            connection.close()
