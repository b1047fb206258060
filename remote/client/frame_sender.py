"""The frames that a client sends on a connection that many streams share (MC4, MC5)."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Protocol
from weakref import proxy

from quire.arguments import Bytes
from quire.env.interpreter import Lock, numbers_from
from quire.remote.limits import JOIN_BYTES
from quire.remote.wire.sockets import joined, send_some

from .stream_inbox import InvalidRequest, RequestFrames, StreamInbox


class SharedConnection(Protocol):
    """The connection, which others read."""

    streams: dict[int, StreamInbox]  # the same all the time
    ended: Exception | None
    is_closed: bool
    is_over: bool
    moved_at: float

    def wake_reader(self) -> None:
        """Have its reader look."""

    def close_if_unused(self) -> None:
        """Close the socket, if nobody uses it."""

    def cut(self) -> None:
        """End it."""


class FrameSender:
    """Sends whole frames, one after another. Thread-safe."""

    def __init__(self, connection: SharedConnection, to: socket.socket) -> None:
        self.lock = Lock()
        self.queue = deque[tuple[list[Bytes], StreamInbox | None]]()  # not sent whole
        self.under_way: StreamInbox | None = None  # whose frame the first of these is
        self.is_begun = False  # a part of that is sent
        self.latest: StreamInbox | None = None  # whose frame was sent after all others
        self.was_cut_late = False  # the connection, as the owner does not read (MC5)
        self.error: OSError | None = None
        self._connection: SharedConnection = proxy(connection)  # so that it ends once it is dropped
        self._streams = connection.streams
        self._socket = to
        self._unsent: list[memoryview] = []  # of the first that is queued, by the lock's holder
        self._new_number = numbers_from(1)

    def send(self, frames: RequestFrames, inbox: StreamInbox) -> None:
        """Send a request, or queue what does not go out at once; begin its stream if it has none.

        Raises OSError, and InvalidRequest for what `frames` raises.
        """
        with self.lock:
            number = inbox.number or self._new_number()
            try:
                parts = frames(number)
            except Exception as error:  # noqa: BLE001 - the caller raises it
                raise InvalidRequest(error) from None
            self._streams[number] = inbox
            inbox.number = number
            if self.queue or sum(map(len, parts)) > JOIN_BYTES:
                inbox.is_sent = False
                self.queue.append((joined(parts), inbox))
                return
            data = b"".join(parts)
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                inbox.is_sent = False
                raise
            self.latest = inbox
            if sent != len(data):
                self._queue_rest(data, sent, inbox)

    def _queue_rest(self, data: bytes, sent: int, inbox: StreamInbox) -> None:
        """Keep what is not sent of a short request, before which nothing is queued."""
        inbox.is_sent = False
        self.latest = None
        self.queue.append(([data], inbox))
        self._unsent = [memoryview(data)[sent:]]
        self.under_way, self.is_begun = inbox, sent > 0

    def send_unanswered(self, parts: Sequence[Bytes]) -> None:
        """Queue what has no answer, and send it if there is room. By anybody, anywhere."""
        self.queue.append((joined(parts), None))
        self.flush()

    def flush(self) -> None:
        """Send what is queued, as far as there is room; whoever waits sends the rest."""
        while self.queue and self.lock.acquire(blocking=False):
            try:
                is_blocked = not self._send_queued()
            finally:
                self.lock.release()
            if is_blocked:
                break
        if self._connection.is_closed:
            self._connection.close_if_unused()
        elif self.queue:
            self._connection.wake_reader()

    def _send_queued(self) -> bool:
        """Return False if there is no room for more."""
        while self.queue:
            if not self._unsent:
                parts, inbox = self.queue[0]
                if inbox is not None and inbox.is_withdrawn:
                    self.queue.popleft()
                    continue
                self._unsent = [memoryview(part) for part in parts]
                self.under_way, self.is_begun = inbox, False
            try:
                if self._connection.is_closed:
                    raise OSError("the connection is closed")
                sent = send_some(self._socket, self._unsent)
            except OSError as error:
                self._fail(error)
                return True
            if not sent:
                return False
            self.is_begun = True
            self.latest = None  # what is not read may be a part of this frame
            views = self._unsent
            while views and sent >= len(views[0]):
                sent -= len(views[0])
                del views[0]
            if views:
                views[0] = views[0][sent:]
                self._connection.moved_at = monotonic()
                continue
            self.queue.popleft()
            self.latest, self.under_way = self.under_way, None
            if self.latest is not None:
                self.latest.is_sent = True
                self.latest.wake()
        return True

    def _fail(self, error: OSError) -> None:
        """Nothing more can be sent; answers may come all the same."""
        self.error = error
        self._connection.is_over = True
        self._unsent, self.under_way = [], None
        while self.queue:
            inbox = self.queue.popleft()[1]
            if inbox is not None:
                inbox.error = error
                inbox.wake()
        self._connection.wake_reader()

    def withdraw(self, inbox: StreamInbox) -> bool:
        """Take back what is not sent of a request; return True if it is sent, or will be (MC5)."""
        connection = self._connection
        with self.lock:
            if inbox.is_sent:
                return True
            if self.under_way is inbox and self._unsent:
                if self.is_begun and connection.ended is None and len(self._streams) > 1:
                    return True
                if self.is_begun:
                    self.was_cut_late = True
                    connection.cut()
                self.queue.popleft()
                self._unsent, self.under_way = [], None
            inbox.is_withdrawn = True
            return False
