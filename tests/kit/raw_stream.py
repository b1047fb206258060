"""A connection to an owner on which a test writes what it likes."""

from __future__ import annotations

from itertools import count
from typing import Any

from quire.arguments import Bytes
from quire.remote.wire.address import place_of
from quire.remote.wire.failures import raise_error
from quire.remote.wire.protocol import (
    ADD,
    ADD_HEAD,
    BLOCK,
    CALL,
    CANCEL,
    COMMIT,
    COMMIT_FRAME,
    CONNECTION,
    ENTRY,
    GET,
    GET_HEAD,
    GREETING,
    HEAD,
    RESULT,
    Frame,
    Header,
    decode_call,
    encode_call,
    greeting,
    spoken_versions,
)
from quire.remote.wire.sockets import connect
from quire.tls import Tls
from tests.kit.waiting import SECONDS


class RawStream:
    """Opened with a correct greeting and hello, unless `hello` is given: bytes to begin with."""

    def __init__(self, url: str, hello: bytes | None = None, tls: Tls | None = None) -> None:
        self.socket = connect(place_of(url, tls), SECONDS)
        self.send(good_hello() if hello is None else hello)
        self.hello: Frame | None = None
        self.cancelled: list[int] = []  # streams whose CANCEL was answered
        self._streams = count(1)  # of those that `request` makes
        if hello is None:
            self.words(GREETING.size)
            self.hello = self.next()

    @property
    def epoch(self) -> object:
        """The owner's, by its hello."""
        assert self.hello is not None
        return self.hello.header["epoch"]

    def send(self, data: bytes) -> None:
        """Write a request, and wait for nothing."""
        self.socket.sendall(data)

    def words(self, size: int) -> bytes:
        """So many bytes, of the greeting or of a frame. Raises EOFError."""
        found = b""
        while len(found) < size:
            data = self.socket.recv(size - len(found))
            if not data:
                raise EOFError
            found += data
        return found

    def frame(self) -> Bytes:
        """The next frame of an answer, its head included. Raises EOFError.

        The answers to CANCEL are dropped, and their streams noted.
        """
        while True:
            head = self.words(HEAD.size)
            length, kind, stream = HEAD.unpack(head)
            if kind != CANCEL:
                return head + self.words(length)
            self.cancelled.append(stream)

    def next(self) -> Frame:
        """The next one that is a RESULT; one of another kind has an empty header."""
        data = self.frame()
        return (
            decode_call(data) if data[4] == RESULT else Frame({}, [memoryview(data)[HEAD.size :]])
        )

    def ask(self, data: bytes) -> Frame:
        """The answer to a request."""
        self.send(data)
        return self.next()

    def request(self, op: str, *bodies: bytes, **header: Any) -> Frame:
        """The answer to a CALL; raises what it reports."""
        answer = self.ask(call({"op": op, **header}, *bodies, stream=next(self._streams)))
        raise_error(answer.header)
        return answer

    def commit(self, *puts: tuple[str, bytes], txn: int = 1, first: int = 0) -> Frame:
        """Put blocks and commit, with one write; raises what the answer reports."""
        answer = self.ask(add(txn, *puts, first=first) + commit(txn, first + len(puts)))
        raise_error(answer.header)
        return answer

    def close(self) -> None:
        """End the connection."""
        self.socket.close()


def good_hello(**more: Any) -> bytes:
    """What a client begins with."""
    hello = {"op": "hello", "role": "work", **spoken_versions(), **more}
    return greeting() + call(hello, stream=CONNECTION)


def call(header: Header, *bodies: bytes, kind: int = CALL, stream: int = 1) -> bytes:
    """A CALL, or another frame with a header."""
    return b"".join(encode_call(kind, stream, header, bodies))


def add(txn: int, *puts: tuple[str, bytes], first: int = 0, form: int = BLOCK) -> bytes:
    """An ADD of blocks, in the transaction that this stream is."""
    entries = b"".join(
        ENTRY.pack(len(queue.encode()), form, len(data)) + queue.encode() + data
        for queue, data in puts
    )
    return ADD_HEAD.pack(ADD_HEAD.size - HEAD.size + len(entries), ADD, txn, first) + entries


def commit(txn: int, puts: int, wait: float = float("nan")) -> bytes:
    """A COMMIT."""
    return COMMIT_FRAME.pack(COMMIT_FRAME.size - HEAD.size, COMMIT, txn, puts, wait)


def get(txn: int, source: str, wait: float = 0.0) -> bytes:
    """A GET."""
    name = source.encode()
    return GET_HEAD.pack(GET_HEAD.size - HEAD.size + len(name), GET, txn, wait) + name
