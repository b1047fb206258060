"""A stream socket over TLS, used as a plain one.

TK1. Its calls are those of a plain socket: what `send` reports as sent the system has, so who polls
    for WRITE and goes on with the rest sends each byte once. The rest must begin with the bytes
    that the call before has not reported, as whoever sends frames does anyway.
TK2. One thread reads, any number send: the session is used under a lock that nobody holds while he
    waits. Who sends without waiting is refused while another one sends, as by a full socket.
TK3. After a receive that fills its buffer more may be here without the system knowing of it
    (`has_unread`): who polls looks at that first. After any other one nothing is: OpenSSL is not
    called in vain, as an SSLWantReadError costs as much as the decryption of a record.
- Its end is that of the connection beneath: frames have lengths, so one that is cut off is noticed.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable
from typing import Final

from quire.arguments import Bytes
from quire.env.interpreter import Lock
from quire.remote.limits import TLS_BYTES_AT_ONCE

from .tls_session import TlsSession

_NO_WAIT: Final = socket.MSG_DONTWAIT
_HEAD: Final = struct.Struct(">B2xH")  # of a record: its kind and length
_KINDS: Final = range(20, 25)


class TlsSocket(socket.socket):
    """The socket of a session, in the place of the plain one that it takes."""

    def __init__(self, plain: socket.socket, session: TlsSession) -> None:
        timeout = plain.gettimeout()
        super().__init__(plain.family, plain.type, plain.proto, plain.detach())
        self.settimeout(timeout)
        self._session = session
        self._using = Lock()  # the session
        self._sending = Lock()  # the order of what is sent
        self._record = bytearray()  # of the handshake, as far as it has come
        self._unsent = memoryview(b"")  # of records
        self._owed = 0  # bytes that are in them
        self.has_unread = False  # a receive may give something of which no poll tells (TK3)

    def peer_names(self) -> list[str]:
        """As `TlsSession.peer_names`."""
        return self._session.peer_names()

    # The handshake, by the thread that has made the socket

    def shake_hands(self) -> bool:
        """Go on with the handshake; False: without waiting there is no more to be done.

        Raises CertificateRefused, OSError.
        """
        while True:
            try:
                done = self._session.shake_hands()
            finally:
                self._unsent = memoryview(bytes(self._unsent) + self._session.outgoing())
                is_sent = self._flush(0)
            if done and is_sent:
                return True
            if not is_sent:
                return False
            try:
                data = super().recv(self._missing())
            except BlockingIOError:
                return False
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the other side ended the connection")
            self._record += data
            if not self._missing():
                self._session.feed(self._record)
                self._record = bytearray()

    def _missing(self) -> int:
        """Return how many bytes are missing of the record, or of its head.

        The handshake receives no more than its own records: what comes after them is left to polls.
        """
        size = len(self._record)
        if size < _HEAD.size:
            return _HEAD.size - size
        kind, length = _HEAD.unpack_from(self._record)
        return _HEAD.size + length - size if kind in _KINDS else 0  # the session says what it is

    @property
    def is_sending(self) -> bool:
        """True if the handshake waits until more can be sent."""
        return len(self._unsent) > 0

    # Receiving

    def recv_into(self, buffer: Bytes, nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        """Receive what fits into the buffer; 0: the end. Raises as that of a plain socket."""
        view = memoryview(buffer)
        if nbytes:
            view = view[:nbytes]
        session, count = self._session, None
        if self.has_unread:
            with self._using:
                count = self._read_records(session, view)
        while count is None:
            data = super().recv(TLS_BYTES_AT_ONCE, flags)
            if not data:
                return 0
            with self._using:
                session.feed(data)
                count = self._read_records(session, view)
        return count

    def _read_records(self, session: TlsSession, view: memoryview) -> int | None:
        """Read all records that are here, as far as the buffer goes."""
        count = session.read_into(view)
        size = len(view)
        while count and count < size and session.has_unread:
            further = session.read_into(view[count:])
            if not further:
                break
            count += further
        self.has_unread = count == size and session.has_unread
        return count

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """Receive; with MSG_PEEK the result tells only whether something or the end is there."""
        if flags & socket.MSG_PEEK:
            return b"?" if self.has_unread else super().recv(bufsize, flags)
        buffer = bytearray(bufsize)
        return bytes(buffer[: self.recv_into(buffer, 0, flags)])

    # Sending

    def send(self, data: Bytes, flags: int = 0) -> int:  # type: ignore[override]
        """Send; the count of what the system has (TK1, TK2). Raises as that of a plain socket."""
        if not self._sending.acquire(blocking=not (flags & _NO_WAIT or self.gettimeout() == 0.0)):
            raise BlockingIOError(errno.EAGAIN, "another thread sends")
        try:
            return self._send(memoryview(data), flags)
        finally:
            self._sending.release()

    def sendall(self, data: Bytes, flags: int = 0) -> None:  # type: ignore[override]
        """Send all."""
        view = memoryview(data)
        while view:
            view = view[self.send(view, flags) :]

    def sendmsg(  # type: ignore[override]
        self, buffers: Iterable[Bytes], ancdata: tuple[()] = (), flags: int = 0
    ) -> int:
        """Send the beginning of what the buffers hold; the count of what the system has."""
        data = bytearray()
        for buffer in buffers:
            data += memoryview(buffer)[: TLS_BYTES_AT_ONCE - len(data)]
            if len(data) == TLS_BYTES_AT_ONCE:
                break
        return self.send(data, flags)

    def _send(self, view: memoryview, flags: int) -> int:
        done = 0
        while True:
            try:
                is_sent = not self._unsent or self._flush(flags)
            except TimeoutError:
                is_sent = False
            if not is_sent:
                if done:
                    return done
                raise BlockingIOError(errno.EAGAIN, "the other side does not read")
            counted = min(self._owed, len(view) - done)
            self._owed -= counted
            done += counted
            if done == len(view):
                return done
            part = view[done : done + TLS_BYTES_AT_ONCE]
            with self._using:
                self._session.encrypt(part)
                self._unsent = memoryview(self._session.outgoing())
            self._owed = len(part)

    def _flush(self, flags: int) -> bool:
        """Send what is left of records; False: the system takes no more now."""
        while len(self._unsent):
            try:
                self._unsent = self._unsent[super().send(self._unsent, flags) :]
            except BlockingIOError:
                return False
        return True
