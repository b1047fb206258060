"""An owner whose answers a test makes: what a client sends and awaits can be seen one by one."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from quire.arguments import Bytes
from quire.remote.client.channel import Channel
from quire.remote.client.multiplexed_connection import MultiplexedConnection
from quire.remote.wire.protocol import (
    CANCEL,
    CONNECTION,
    HEAD,
    ID,
    NUMBER_FRAME,
    PING,
    PONG,
    STREAM,
    Role,
)
from quire.remote.wire.sockets import is_readable
from quire.remote.wire.wire_connection import WireConnection, WireSide
from tests.kit.waiting import SECONDS, eventually

HELLO: Final = {"op": "hello", "role": Role.WORK.value, "epoch": None, "process_id": os.getpid()}
Answering = Callable[["ScriptedOwner", Bytes], None]


def number_of(frame: Bytes) -> int:
    """Return the number of the frame's stream."""
    found: int = STREAM.unpack_from(frame)[0]
    return found


def id_frame(stream: int, message_id: int) -> bytes:
    """Return the answer to a put."""
    return NUMBER_FRAME.pack(8, ID, stream, message_id)


class ScriptedOwner:
    """The owner of one connection. The frames that have come are in `frames`."""

    def __init__(self, path: str, answer: Answering | None = None) -> None:
        """`answer`: what is done with each frame; else nothing is."""
        self.frames: list[bytes] = []
        self.reads = threading.Event()
        self.reads.set()
        self._answer = answer
        self._connections: list[MultiplexedConnection] = []
        self._path = os.path.join(path, "socket")
        os.makedirs(path, exist_ok=True)
        self._reading = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        self.socket = self._listener
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def connect(self, seconds: float = SECONDS) -> MultiplexedConnection:
        """Return the client's side of the connection."""
        made = MultiplexedConnection(self._path, HELLO, seconds)
        self._connections.append(made)
        return made

    def _run(self) -> None:
        with suppress(OSError, ValueError):  # the test has ended the connection
            self._serve()

    def _serve(self) -> None:
        self.socket = self._listener.accept()[0]
        wire = WireConnection(WireSide.OWNER)
        is_let_in = False
        while True:
            self.reads.wait()
            if not is_readable(self.socket, 0.01):
                continue
            with self._reading:
                if not self.reads.is_set():
                    continue
                count = self.socket.recv_into(wire.buffer)
            if not count:
                return
            frame = wire.received(count)
            while frame is not None:
                if is_let_in:
                    self.frames.append(bytes(frame))
                    if self._answer is not None:
                        self._answer(self, frame)
                else:
                    wire.accept(wire.hello_of(frame), {"op": "hello"})
                    is_let_in = True
                frame = wire.next()
            for part in wire.take_outgoing():
                self.send(bytes(part))

    def pause(self) -> None:
        """Read no more, until `reads` is set."""
        with self._reading:
            self.reads.clear()

    def send(self, data: bytes) -> None:
        """Send what is an answer, or a part of some."""
        self.socket.sendall(data)

    def of_kind(self, kind: int) -> list[int]:
        """Return the streams of the frames of the kind that have come."""
        return [number_of(frame) for frame in self.frames if frame[4] == kind]

    def await_frames(self, kind: int, count: int = 1) -> list[int]:
        """Wait for so many of a kind; return their streams."""
        eventually(lambda: len(self.of_kind(kind)) >= count)
        return self.of_kind(kind)

    def close(self) -> None:
        """End the connection; what the owner has not read stays so, if it does not read."""
        self._listener.close()
        self.socket.close()
        self.reads.set()

    def __enter__(self) -> ScriptedOwner:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self._thread.join(SECONDS)
        for connection in self._connections:
            connection.close()


def answer_all(owner: ScriptedOwner, frame: Bytes) -> None:
    """Answer puts by the numbers of their streams, and what a connection asks."""
    number, kind = number_of(frame), frame[4]
    if kind == PING:
        owner.send(NUMBER_FRAME.pack(8, PONG, CONNECTION, NUMBER_FRAME.unpack(frame)[3]))
    elif kind == CANCEL:
        owner.send(HEAD.pack(0, CANCEL, number))
    else:
        owner.send(id_frame(number, number))


class Putting(threading.Thread):
    """A thread that makes a put on a channel of its own."""

    def __init__(self, channel: Channel, payload: bytes = b"x") -> None:
        super().__init__(daemon=True)
        self.channel = channel
        self.found: int | None = None
        self.error: BaseException | None = None
        self._payload = payload
        self.start()

    def run(self) -> None:
        try:
            self.found = self.channel.put(b"q", self._payload)
        except BaseException as error:  # noqa: BLE001 - looked at
            self.error = error

    def end(self) -> Putting:
        """Wait for its end."""
        self.join(SECONDS)
        assert not self.is_alive()
        return self
