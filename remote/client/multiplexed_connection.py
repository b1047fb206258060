"""A connection to a store's owner that many streams share, without a thread of its own.

MC1. Who waits reads. The reading role has one holder, who hands each frame to the stream that it
    names, or drops it if that has ended. Others wait for their wake-ups. Whoever leaves, for
    whatever reason, hands the role to one who waits, if nobody has it.
MC2. Handlers of signals run in the waits of `waits` alone, where nothing is received, sent or
    handed out: so a partial frame and unsent bytes are the connection's, whoever leaves.
MC3. A handler that makes a call while its own thread has the role reads itself; what came meanwhile
    for the call that it has interrupted is there when that goes on. A thread that waits is woken
    for its latest call alone.
MC4. Frames are sent whole, in the order in which they were queued, by whoever comes. A stream gets
    its number with its first frame, under the sender's lock: so numbers rise in the order of
    sending. That is never held in a wait. A finaliser, which may interrupt its holder, never waits
    for it, but leaves its frame to the holder, who looks again after letting go.
MC5. What was not begun to be sent is taken back when its caller leaves. A frame whose beginning is
    sent can only be completed: then it counts as sent; or, if nothing else is under way, the
    connection ends, and the frame with it.
MC6. A stream whose caller leaves is ended by CANCEL at the owner, and nothing of it comes to
    another: a number is used once.
MC7. The socket is closed once nobody polls it or sends on it, so that its number is nobody else's.
MC8. The owner answers CANCEL once nothing of the stream is under way. A thread that has left a
    change or a step of a transaction to the owner begins nothing else before that: so it finds
    what it has begun before as it stays.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from time import monotonic
from typing import Final

from quire.arguments import Bytes
from quire.calls.errand import current
from quire.env.interpreter import Lock, numbers_from
from quire.errors import RemoteError
from quire.libraries.late_imports import importing
from quire.remote.limits import LAST_STREAM
from quire.remote.wire.address import Endpoint
from quire.remote.wire.protocol import (
    CANCEL,
    CONNECTION,
    HEAD,
    NUMBER_FRAME,
    PING,
    PONG,
    READY,
    RESULT,
    STREAM,
    Header,
)
from quire.remote.wire.sockets import close, has_ended, has_unread, reads_ahead, shut
from quire.remote.wire.wire_connection import WireConnection, WireSide

from . import waits
from .connecting import connect_to_owner, not_greeted
from .frame_sender import FrameSender
from .request_outcomes import OwnerEvent, RequestProgress
from .socket_poller import SocketPoller
from .stream_inbox import NOBODY_WAITS, RequestFrames, StreamEnded, StreamInbox

_IN, _OUT = select.POLLIN, select.POLLOUT
_stream_of: Final = STREAM.unpack_from


class MultiplexedConnection:
    """A connection, and its streams. Thread-safe."""

    def __init__(
        self,
        place: Endpoint,
        hello: Header,
        seconds: float,
        begin: Callable[[MultiplexedConnection], object] = lambda _: None,
        *,
        is_alone: bool = False,
    ) -> None:
        """Connect, and say hello. Raises StreamEnded, or what the owner answers.

        `seconds`: for each step of that. `begin`: called with the connection once there is a
        socket, as it can be cut from then on. `is_alone`: it has one user, and ends with that.
        """
        self.is_alone = is_alone
        self.is_over = False  # it is for no more streams
        self.streams: dict[int, StreamInbox] = {}
        self.left: dict[int, object] = {}  # streams that are to end at the owner, by whom (MC8)
        self.ended: Exception | None = None
        self.connection_frames = StreamInbox()  # those on stream 0
        self.moved_at = 0.0  # when the latest part of a frame came or went that was not whole
        self.is_closed = False
        self._end_heartbeat: Callable[[], None] = lambda: None
        self._wire = WireConnection(WireSide.CLIENT)
        self._reading = Lock()  # the role (MC1)
        self._reader: object = None  # its holder
        self._outer: list[SocketPoller] = []  # by which it reads where it is interrupted (MC3)
        self._waiters: dict[object, StreamInbox] = {}  # of each waiter its latest call
        self._pings: dict[int, StreamInbox] = {}
        self._new_ping = numbers_from(1)
        self._socket = connect_to_owner(place, seconds)
        self.sender = FrameSender(self, self._socket)
        try:
            self._socket.setblocking(False)
            self._poller = SocketPoller(self._socket.fileno())  # by which the reader waits
            self._tells_all = not reads_ahead(self._socket)  # to a poll
            begin(self)
            self.hello = self._greet(hello, seconds)
            self._end_heartbeat = self._begin_heartbeat()
        except (OSError, EOFError) as error:
            self.close()
            raise not_greeted(error, seconds) from None
        except BaseException:
            self.close()
            raise

    def _begin_heartbeat(self) -> Callable[[], None]:
        """Begin what the owner demands of connections from other machines; return what ends it."""
        seconds = self.hello.get("heartbeat_seconds")
        if not isinstance(seconds, float) or not seconds > 0:
            return self._end_heartbeat
        with importing():
            from .heartbeat import begin_heartbeat

        return begin_heartbeat(self, seconds)

    def _greet(self, hello: Header, seconds: float) -> Header:
        """Return the owner's answer to the hello."""
        inbox, errand = self.connection_frames, current()
        if errand is not None and not errand.begin(self.cut):
            raise StreamEnded(NOBODY_WAITS, RequestProgress.UNSENT, OwnerEvent.CANCELLED)
        try:
            self._wire.send_hello(hello)
            self.sender.send_unanswered(self._wire.take_outgoing())
            if self.sender.error is not None:
                raise self.sender.error
            self.await_news(inbox, monotonic() + seconds)
        finally:
            if errand is not None:
                errand.end()
        if errand is not None and errand.withdrawn:
            raise EOFError
        if inbox.frames:
            return self._wire.accepted(inbox.frames.popleft())
        raise self.ended or TimeoutError()

    def leave(self, inbox: StreamInbox) -> None:
        """End a stream, by CANCEL at the owner (MC6). By anybody, anywhere."""
        number = inbox.number
        if number is None or self.streams.pop(number, None) is None:
            return
        if self.ended is None:
            if inbox.left_by is not None:
                self.left[number] = inbox.left_by
            self.sender.send_unanswered([HEAD.pack(0, CANCEL, number)])

    def finish(self, inbox: StreamInbox) -> None:
        """A stream has ended by its answer; the inbox is free for another one."""
        number = inbox.number
        if number is not None:
            self.streams.pop(number, None)
            inbox.number = None
            if number >= LAST_STREAM:
                self.is_over = True

    # Requests, and reading (MC1)

    def send(self, frames: RequestFrames, inbox: StreamInbox) -> Bytes | None:
        """Send a request as its sender does; return None as long as a part of it is not sent."""
        try:
            self.sender.send(frames, inbox)
        finally:
            if self.sender.queue or self.is_closed:
                self.sender.flush()
        return b"" if inbox.is_sent else None

    def exchange(
        self, frames: RequestFrames, inbox: StreamInbox, until: float, left: float
    ) -> Bytes | None:
        """Send a request, and return a frame: `send` and `await_frame` in one.

        It is so as long as nobody else reads, and what is sent and comes is whole.
        """
        if not (self._tells_all and self._reading.acquire(False)):
            self.send(frames, inbox)
            return self.await_frame(inbox, until, left)
        sender = self.sender
        try:
            self._reader = waits.waiter()
            sender.send(frames, inbox)
            if not sender.queue:
                poller = self._poller
                if waits.poll_for(poller, left) == poller.readable:
                    frame = self._receive(inbox)
                    if frame is not None:
                        return frame
        finally:
            self._reader = None
            self._reading.release()
            if self._waiters or sender.queue or self.is_closed:
                self._hand_over()
        return self.await_frame(inbox, until, until - monotonic())

    def await_frame(self, inbox: StreamInbox, until: float, left: float) -> Bytes | None:
        """Return the next frame for the inbox, in which there is none.

        None: something else has changed, the time is over, or frames are in the inbox now. `left`:
        how long that is from now.
        """
        if self._reading.acquire(False):
            self._reader = waits.waiter()
        elif self._take_role(inbox, until):
            left = until - monotonic()
        else:
            return None
        try:
            poller = self._poller
            while not inbox.has_news and left > 0:
                if self.sender.queue or not self._tells_all:
                    found = self._poll_specially(poller, left)
                else:
                    found = waits.poll_for(poller, left)
                if found == poller.readable or self._attend(found, poller):
                    frame = self._receive(inbox)
                    if frame is not None:
                        return frame
                left = until - monotonic()
        finally:
            if self._outer:
                self._read_on()
            else:
                self._reader = None
                self._reading.release()
                if self._waiters or self.is_closed:
                    self._hand_over()
        return None

    def _take_role(self, inbox: StreamInbox, until: float) -> bool:
        """Wait for the role; False: there is something for the inbox, or the time is over."""
        while not self._reading.acquire(False):
            if waits.is_own(self._reader):  # by a handler that interrupts it (MC3)
                self._outer.append(self._poller)
                self._poller = SocketPoller(self._socket.fileno())
                return True
            if not self._wait_for_reader(inbox, until):
                return False
        self._reader = waits.waiter()
        return True

    def _read_on(self) -> None:
        """Give the reader who was interrupted its poller back, and have it look."""
        inner, self._poller = self._poller, self._outer.pop()
        inner.close()
        self._poller.wake()

    def await_news(self, inbox: StreamInbox, until: float) -> None:
        """Wait until there is something in the inbox, or something has changed, or until then."""
        frame = self.await_frame(inbox, until, until - monotonic())
        if frame is not None:
            inbox.frames.append(frame)

    def _hand_over(self) -> None:
        """Wake one who waits, if nobody has the role: he takes it, or hands it on."""
        if self.sender.queue:
            self.sender.flush()
        if not self._reading.locked():
            inbox = waits.first_of(self._waiters)
            if inbox is not None:
                inbox.wake_up.set()
            if self.is_closed:
                self.close_if_unused()

    def _wait_for_reader(self, inbox: StreamInbox, until: float) -> bool:
        """Wait to be woken; return True if the role is to be taken, or waited for again."""
        number = waits.waiter()
        before = self._waiters.get(number)
        self._waiters[number] = inbox
        goes_on = False
        try:
            if self._reading.locked() and not inbox.has_news:
                left = until - monotonic()
                if left <= 0:
                    return False
                waits.wait_for(inbox.wake_up, left)
            goes_on = not inbox.has_news
            return goes_on
        finally:
            if before is None:
                self._waiters.pop(number, None)
            else:
                self._waiters[number] = before
            if not goes_on:
                self._hand_over()

    def _poll_specially(self, poller: SocketPoller, seconds: float) -> list[tuple[int, int]]:
        """Wait also for room to send, and for what no poll tells of."""
        if not self._tells_all and has_unread(self._socket):
            return poller.readable
        if not self.sender.queue:
            return waits.poll_for(poller, seconds)
        poller.poll.modify(poller.socket_number, _IN | _OUT)
        try:
            poller.room = True
            return waits.poll_for(poller, seconds)
        finally:
            poller.room = False
            poller.poll.modify(poller.socket_number, _IN)

    def _attend(self, found: list[tuple[int, int]], poller: SocketPoller) -> bool:
        """Do what can be done after a wait; return True if something has come, or the end."""
        has_come = False
        for number, events in found:
            if number != poller.socket_number:
                poller.clear()
                continue
            if events & _OUT:
                self.sender.flush()
            has_come = bool(events & ~_OUT)
        return has_come

    def _receive(self, own: StreamInbox) -> Bytes | None:
        """Receive what has come, and hand it out; return a frame for the reader's own inbox."""
        wire = self._wire
        try:
            count = self._socket.recv_into(wire.buffer)
            if not count:
                raise EOFError
            frame = wire.received(count)
            if frame is None:
                self.moved_at = monotonic()
            elif _stream_of(frame)[0] == own.number and not (wire.rest or own.frames):
                return frame
            while frame is not None:
                self._deliver(frame, own)
                frame = wire.next() if wire.rest else None
        except BlockingIOError:
            return None
        except (OSError, EOFError, RemoteError) as error:
            self._end(error)
            own.has_news = True
        return None

    def _deliver(self, frame: Bytes, own: StreamInbox) -> None:
        """Hand a frame to its stream; take the connection's own, and drop a late one (MC6)."""
        number, kind = _stream_of(frame)[0], frame[4]
        inbox = self.streams.get(number)
        if number == CONNECTION and kind in (READY, RESULT):
            inbox = self.connection_frames
        if inbox is not None:
            inbox.frames.append(frame)
            inbox.wake()
        elif kind == CANCEL:
            if self.left.pop(number, None) is not None:
                own.has_news = True
                for waiting in list(self._waiters.values()):
                    waiting.wake()
        elif kind == PONG and number == CONNECTION and len(frame) == NUMBER_FRAME.size:
            asker = self._pings.pop(NUMBER_FRAME.unpack(frame)[3], None)
            if asker is not None:
                asker.wake()

    # Questions

    def is_moving(self, inbox: StreamInbox) -> bool:
        """Return True if a part of a frame of the stream has come, or is sent."""
        number = inbox.number
        return self.sender.under_way is inbox or (
            number is not None and self._wire.part_stream == number
        )

    def has_left(self) -> bool:
        """Return True if the caller has left a stream that has not ended at the owner (MC8)."""
        return waits.waiter() in list(self.left.values())

    def await_left(self, inbox: StreamInbox, until: float) -> bool:
        """Wait until that has ended; False: the time is over."""
        while not (self.is_over or inbox.is_released) and self.has_left():
            if monotonic() >= until:
                return False
            inbox.has_news = False
            if self.has_left():
                self.await_news(inbox, until)
        return True

    def is_answered(self, seconds: float) -> bool:
        """Return True if the owner answers a PING within so many seconds."""
        return self.answers(StreamInbox(), seconds)

    def answers(self, inbox: StreamInbox, seconds: float) -> bool:
        """Return True if the owner answers within so many seconds, the inbox's caller or a ping."""
        number = self._new_ping()
        self._pings[number] = inbox
        self.sender.send_unanswered([NUMBER_FRAME.pack(8, PING, CONNECTION, number)])
        until = monotonic() + seconds
        while number in self._pings and not inbox.is_released and self.ended is None:
            inbox.has_news = False
            if inbox.frames or monotonic() >= until:
                break
            self.await_news(inbox, until)
        return self._pings.pop(number, None) is None or bool(inbox.frames)

    # The end

    def _end(self, error: Exception) -> None:
        """Nothing comes any more; whoever waits learns of it."""
        if self.ended is None:
            self.ended = error
            if isinstance(error, RemoteError):  # what comes after it is none, either
                shut(self._socket)
        self.is_over = True
        self.connection_frames.wake()
        for inbox in list(self.streams.values()) + list(self._waiters.values()):
            inbox.wake()
        self.wake_reader()

    def wake_reader(self) -> None:
        self._poller.wake()

    def release(self, inbox: StreamInbox) -> None:
        """Have the inbox's caller wait no more, by anybody."""
        inbox.is_released = True
        inbox.wake()
        self.wake_reader()

    def has_ended(self) -> bool:
        """Return True if the owner has ended the connection."""
        return self.ended is not None or has_ended(self._socket)

    def wait_for_end(self, seconds: float) -> bool:
        """Wait until the connection ends; False: it goes on after so many seconds."""
        inbox, until = StreamInbox(), monotonic() + seconds
        while self.ended is None and monotonic() < until:
            inbox.has_news = False
            if self.ended is None:
                self.await_news(inbox, until)
        return self.ended is not None

    def cut(self) -> None:
        """End the connection; who waits for an answer, in another thread, is released."""
        shut(self._socket)
        self._end(EOFError())

    def close(self) -> None:
        """End the connection, and close its socket once nobody uses it (MC7). By anybody."""
        self.is_closed = True
        self._end_heartbeat()
        self.cut()
        self.close_if_unused()

    def close_if_unused(self) -> None:
        if not (self._reading.locked() or self.sender.lock.locked()):
            self._close_now()

    def abandon(self) -> None:
        """Close it in the child of a fork, where nobody uses it."""
        self.is_closed = self.is_over = True
        self.ended = self.ended or EOFError()
        self._close_now()

    def _close_now(self) -> None:
        close(self._socket)
        self._poller.close()
