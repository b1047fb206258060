"""One connection to a store's owner: a request goes out, its answer comes back.

CH1. A channel whose connection failed, or whose answer was not waited for, is never used again.
CH2. Waiting for an answer can be interrupted by a signal (Ctrl-C), which breaks the channel.
CH3. A request that could not be sent whole, or was not read whole, was not done:
    `StreamEnded.sent` tells it from one whose outcome nobody tells any more.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from quire.arguments import Bytes
from quire.errors import RemoteError
from quire.info import TransactionState
from quire.message_id import PutId
from quire.uninterrupted import waiting

from .failures import raise_error
from .incoming import Incoming
from .limits import HELLO_SECONDS
from .protocol import (
    CALL,
    GREETING,
    ID,
    ID_FRAME,
    PUT,
    PUT_HEAD,
    RESULT,
    Frame,
    Header,
    check_greeting,
    check_size,
    decode_call,
    encode_call,
    field,
    greeting,
    state_of,
)
from .sockets import connect, has_ended, send_all, shut
from .urls import Place, TcpPlace


class StreamEnded(Exception):
    """The owner ended the connection. `sent` tells whether the request may have reached it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Channel:
    """Used by one thread at a time."""

    def __init__(self, place: Place, hello: Header) -> None:
        """Connect, and say hello. Raises StreamEnded, or what the owner answers."""
        self.broken = True  # until the hello is answered
        self.transaction_state: TransactionState | None = None  # as the latest answer said
        self.taken = 0  # puts of the transaction, as the latest error said
        self._transactions = 0
        self._incoming = Incoming()
        # A port takes what is sent when nobody is there any more: so it is asked before.
        self._asks_first = isinstance(place, TcpPlace)
        try:
            self._connection = connect(place, HELLO_SECONDS)
        except OSError as error:
            raise StreamEnded(_reason(error), sent=False) from None
        try:
            self.hello = self._greet(hello)
            self._connection.settimeout(None)
        except (OSError, EOFError) as error:
            self._connection.close()
            raise StreamEnded(_reason(error), sent=False) from None
        except BaseException:
            self._connection.close()
            raise
        self._incoming.trust()
        self.broken = False

    def _greet(self, hello: Header) -> Header:
        """The owner's answer to the hello."""
        waiting(send_all, self._connection, [greeting(), *encode_call(CALL, hello)])
        incoming = self._incoming
        data = None
        while data is None:
            data = waiting(incoming.receive_greeting, self._connection, GREETING.size)
        length = check_greeting(data)
        if length:
            words = None
            while words is None:
                words = waiting(incoming.receive_greeting, self._connection, length)
            raise RemoteError(words.decode(errors="replace"))
        frame = incoming.next()
        while frame is None:
            frame = waiting(incoming.receive, self._connection)
        header = decode_call(frame).header
        raise_error(header)
        return header

    def next_transaction(self) -> int:
        """The number of a transaction that begins on this channel."""
        self._transactions += 1
        return self._transactions

    def put(self, queue: bytes, payload: Bytes) -> int:
        """One message in a transaction of its own: its id. Raises as `request`."""
        length = 2 + len(queue) + len(payload)
        check_size(length)
        answer = self.exchange((PUT_HEAD.pack(length, PUT, len(queue)) + queue, payload))
        if answer[4] == RESULT:
            told = self._decode(answer).header
            return PutId.of(field(told, "id", int), field(told, "expires_by", int))
        if answer[4] != ID or len(answer) != ID_FRAME.size:
            raise self.unexpected()
        number: int = ID_FRAME.unpack(answer)[2]
        return number

    def request(self, header: Header, bodies: Sequence[Bytes] = ()) -> list[Frame]:
        """Send a request and wait for all frames of its answer.

        Raises StreamEnded, or the error that the answer reports.
        """
        parts = encode_call(CALL, header, bodies)
        frames: list[Frame] = []
        self._send(parts)
        self.broken = True  # until the answer is complete, whatever interrupts (CH1)
        while not frames or frames[-1].header.get("more") is True:
            data = self._receive(begun=bool(frames))
            if data[4] != RESULT:
                raise self.unexpected()
            frames.append(self._decode(data))
        self.broken = False
        self._note(frames[-1].header)
        return frames

    def exchange(self, parts: Sequence[Bytes]) -> Bytes:
        """Send a short request; its answer, which is one frame.

        Raises StreamEnded, or the error that the answer reports.
        """
        self._send(parts)
        self.broken = True  # (CH1)
        data = self._receive()
        self.broken = False
        if data[4] == RESULT:
            self._note(self._decode(data).header)
        return data

    def _note(self, header: Header) -> None:
        """Of an answer: raise the error that it reports."""
        self.transaction_state = state_of(header)
        if "error" in header:
            taken = header.get("taken")
            self.taken = taken if type(taken) is int else 0
            raise_error(header)

    def tell(self, parts: Sequence[Bytes]) -> None:
        """Send what has no answer. Raises StreamEnded."""
        self._send(parts)

    def next_frame(self) -> Bytes:
        """What comes by itself; another thread may `tell` meanwhile. Raises StreamEnded."""
        return self._receive()

    def unexpected(self) -> StreamEnded:
        """For an answer that is none to its request."""
        self.broken = True
        return StreamEnded("the owner's answer is of another kind", sent=True)

    def has_ended(self) -> bool:
        """Whether the owner has ended the connection."""
        return has_ended(self._connection)

    def wait_for_end(self) -> None:
        """Until the owner ends the connection, or `cut` does; nothing else comes on it."""
        with suppress(OSError):
            self._connection.recv(1, socket.MSG_PEEK)

    def _send(self, parts: Sequence[Bytes]) -> None:
        if self.broken:
            raise StreamEnded("the connection was broken before", sent=False)
        if self._asks_first and has_ended(self._connection):
            self.broken = True
            raise StreamEnded("the owner ended the connection", sent=False)
        self.broken = True
        try:
            waiting(send_all, self._connection, parts)
        except OSError as error:  # not whole: it is not done (CH3)
            raise StreamEnded(_reason(error), sent=False) from None
        self.broken = False

    def _receive(self, *, begun: bool = False) -> Bytes:
        try:
            data = self._incoming.next()
            while data is None:
                data = waiting(self._incoming.receive, self._connection)
        except ConnectionResetError as error:
            # So a Unix socket ends whose owner had not read all that was sent (CH3).
            raise StreamEnded(_reason(error), sent=begun or self._asks_first) from None
        except (OSError, EOFError, RemoteError) as error:
            raise StreamEnded(_reason(error), sent=True) from None
        return data

    def _decode(self, data: Bytes) -> Frame:
        try:
            return decode_call(data)
        except RemoteError as error:  # whatever was asked may have been done
            self.broken = True
            raise StreamEnded(str(error), sent=True) from None

    def cut(self) -> None:
        """End the connection; who waits for an answer, in another thread, is released."""
        self.broken = True
        shut(self._connection)

    def close(self) -> None:
        """Let go of the connection, whose user this is."""
        self.broken = True
        self._connection.close()


def _reason(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "the owner ended the connection"
    if isinstance(error, socket.timeout):
        return f"no answer within {HELLO_SECONDS:.0f} seconds"
    return str(error)
