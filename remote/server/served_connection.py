"""A client's connection, as its owner's threads see it: requests in, answers out.

CL1. Its streams are independent: a request is begun as soon as it is read, unless one of its
    stream is under way (`busy`), behind which it is kept. So one thread at a time works on a
    stream, in the order of its requests, and what waits or takes long delays its own stream alone.
CL2. A client that does not read its answer in time is cut off.
CL3. The first frame is a hello; before it next to nothing is taken.
CL4. The server's own thread alone reads, finds streams and begins requests. It waits for no client:
    what it cannot answer at once is a job for another thread (`Rest`), and what it cannot send
    goes into `_unsent`, for whoever sends.
CL5. What the client awaits (READY) is sent between answers.
CL6. One thread sends at a time, whole frames. Who finds another one at it leaves its frames there,
    and of an answer of several frames the next one goes behind the frames of others.
CL7. Memory is bounded, whatever the client does: with more than `PENDING_BYTES` of requests, or
    `UNSENT_BYTES` of answers, it is read no further until there is room; of its long requests
    `MAX_WORKERS_OF_CONNECTION` are worked on, and none is begun while too much is unsent.
CL8. Its end is once: what is open and not busy is closed by the server's own thread, each busy
    stream by the thread that finishes its request, and the socket by the last of them.
CL9. A client that has promised heartbeats, and gives no sign for as long as it was told, is cut
    off, so what it has open is rolled back. The system does that for machines that are gone (SO4),
    but not for a process that is stopped, nor where another machine between them goes on.
CL10. What it has in use is charged to the account of its user (LA1), bytes of requests when they
    are kept, of long ones as they begin to come; one that is refused stands as a `RefusedFrame` in
    its place, so answers keep their order.
CL11. One on which nothing was asked for as long as its user may, and nothing waits or is to be
    told, is cut off, with the transactions that are open on it. A request that takes so long that
    it is beyond `call_seconds` is ended, with its transaction: in both cases within a second.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol, cast

from quire.arguments import Bytes
from quire.env.interpreter import Lock
from quire.errors import LimitReached, QuireError, RemoteError
from quire.remote.access.use_limits import BYTES, IDLE_SECONDS, REQUEST_BYTES_LIMIT
from quire.remote.limits import (
    MAX_WORKERS_OF_CONNECTION,
    PENDING_BYTES,
    REQUEST_BYTES,
    UNSENT_BYTES,
    UNSENT_FRAME_BYTES,
)
from quire.remote.wire.protocol import CANCEL, Header, Role
from quire.remote.wire.sockets import (
    address_of,
    close,
    now,
    reads_ahead,
    refuse_more,
    send_all,
    shut,
)
from quire.remote.wire.wire_connection import RefusedFrame, WireConnection, WireSide

from .open_streams import OpenStreams
from .served_client import ServedClient
from .waiting_gets import WaitingGet

if TYPE_CHECKING:
    from quire.remote.access.use_account import UseAccount
    from quire.remote.wire.tls_socket import TlsSocket

    from .network_entrance import AdmitsUsers

_NO_WAIT: Final = socket.MSG_DONTWAIT


class Gone(Exception):
    """The client has ended the connection, or is cut off."""


class Admission(Protocol):
    """The server, as far as a connection that begins has to do with it."""

    def admit(
        self, connection: ServedConnection, hello: Header
    ) -> tuple[Header, OpenStreams[ServedClient]]:
        """The answer to a hello, and the connection's streams. Raises QuireError."""


class Rest(NamedTuple):
    """The work left of a request for a thread that may wait (CL4): one of these."""

    frame: Bytes | None = None  # the request
    get: WaitingGet | None = None  # which has waited, and is tried
    answer: Iterator[list[Bytes]] | None = None  # its frames

    @property
    def size(self) -> int:
        """The bytes of the request that count as pending (CL7)."""
        return 0 if self.frame is None else len(self.frame) + REQUEST_BYTES


class LongAnswer(NamedTuple):
    """The frames of an answer that are to follow, and the stream that is busy until then."""

    client: ServedClient
    frames: Iterator[list[Bytes]]


class ServedConnection:
    """A client's connection at the owner."""

    __slots__ = (
        "_admission",
        "_connection",
        "_guard",
        "_is_sending",
        "_jobs",
        "_pending_bytes",
        "_reading_bytes",
        "_refuses",
        "_unsent",
        "_unsent_bytes",
        "_working",
        "access",
        "account",
        "busy",
        "closed",
        "fd",
        "gone",
        "has_request",
        "has_sign",
        "heartbeat_seconds",
        "idle_seconds",
        "is_client",
        "is_counted",
        "is_ended",
        "is_paused",
        "is_reading",
        "over_tls",
        "role",
        "silent_seconds",
        "streams",
        "threads",
        "wire",
    )  # fmt: skip

    def __init__(
        self,
        connection: socket.socket,
        admission: Admission,
        scratch: memoryview,
        account: UseAccount,
        access: AdmitsUsers | None = None,
    ) -> None:
        """`account`: that of all clients, until the client's user is known."""
        self._connection = connection
        self.access = access  # of users, one of whom the client must be
        self.account = account  # that is charged
        self.is_counted = False  # among the connections there
        self.over_tls = cast("TlsSocket", connection) if reads_ahead(connection) else None
        self.fd = connection.fileno()
        self._admission = admission
        self.wire = WireConnection(WireSide.OWNER, scratch)
        self.wire.admit_long = self._admit_long
        self._reading_bytes = 0  # of the long frame that is coming, as charged
        self._refuses = True  # once no more is taken: the system refuses what comes
        self.is_reading = True  # what comes is read as it comes
        self.is_paused = False  # it is not, until there is room (CL7)
        self.gone = False  # nobody will read an answer
        self.is_ended = False  # streams are closed as soon as they are not busy (CL8)
        self.closed = False
        self.role: Role | None = None  # once it was admitted
        # After so long without a sign of its client it is to be ended; 0: it need not give any.
        self.heartbeat_seconds = 0.0
        self.has_sign = False  # something has come since the latest `add_silence`
        self.silent_seconds = 0.0
        self.has_request = False  # for something, since the latest `add_idle`
        self.idle_seconds = 0.0
        self.is_client = False  # the first connection of a client that the owner is open for
        self.streams: OpenStreams[ServedClient] | None = None  # likewise
        self.busy = set[ServedClient]()  # streams with a request under way (CL1)
        self.threads = 0  # that work on it, or are to, beside the server's own
        # Held for a few steps, and never while anything is waited for; it has what follows.
        self._guard = Lock()
        self._jobs: deque[tuple[ServedClient, Rest]] = deque()  # that are not begun
        self._working = 0  # jobs that are, and wait for no other client
        self._pending_bytes = 0
        self._unsent: deque[tuple[Sequence[Bytes], LongAnswer | None]] = deque()
        self._unsent_bytes = 0
        self._is_sending = False  # a thread is (CL6)

    def address(self) -> str:
        """Return the host of the client; nothing where it has gone."""
        return address_of(self._connection)

    def certificate_names(self) -> list[str]:
        """Return the names in the client's certificate, if it has shown one that is trusted."""
        names_of = getattr(self._connection, "peer_names", None)
        found: list[str] = [] if names_of is None else names_of()
        return found

    @property
    def is_admitted(self) -> bool:
        """True once its hello was answered."""
        return self.role is not None

    # Reading, by the server's own thread

    def receive(self) -> Bytes | None:
        """Receive what has come; return a frame if one is whole. Raises Gone."""
        wire = self.wire
        try:
            while True:
                count = self._connection.recv_into(wire.buffer, 0, _NO_WAIT)
                if not count:
                    raise Gone
                self.has_sign = True
                frame = wire.received(count)
                if frame is not None and self._reading_bytes:
                    self._end_long()
                if frame is not None or not self.has_unread:
                    return frame if self.streams is not None else self._admit(frame)
        except BlockingIOError:
            return None
        except RemoteError as error:
            self._refuse(error)
        except OSError:
            raise Gone from None

    def add_silence(self, seconds: float) -> bool:
        """Count time in which nothing has come; return True if it is more than may be (CL9).

        By one thread, whichever.
        """
        if self.has_sign or self.is_paused:
            self.has_sign = False
            self.silent_seconds = 0.0
        else:
            self.silent_seconds += seconds
        return 0.0 < self.heartbeat_seconds < self.silent_seconds

    def add_idle(self, seconds: float) -> bool:
        """Count time in which nothing is asked; return True if it is more than may be (CL11).

        By one thread, whichever.
        """
        streams = self.streams
        if self.role is not Role.WORK or streams is None or self.gone:
            return False
        if self.has_request or self.busy or self.threads or streams.holds or streams.awaited:
            self.has_request, self.idle_seconds = False, 0.0
        else:
            self.idle_seconds += seconds
        return self.idle_seconds > self.account.limit(IDLE_SECONDS)

    def next(self) -> Bytes | None:
        """Return a frame that came with the one before. Raises Gone."""
        try:
            frame = self.wire.next() if self.wire.rest else None
        except RemoteError as error:
            self._refuse(error)
        if frame is None and self.has_unread:
            return self.receive()
        return frame

    @property
    def has_unread(self) -> bool:
        """True if there is more to receive that no poll tells of."""
        return self.over_tls is not None and self.over_tls.has_unread

    def _admit(self, frame: Bytes | None) -> Bytes | None:
        """Admit the client if its hello is there, or say why not (CL3); the frame after it."""
        wire = self.wire
        if frame is not None:
            try:
                hello = wire.hello_of(frame)
                answer, self.streams = self._admission.admit(self, hello)
            except QuireError as error:
                self._refuse(error)
            wire.accept(hello, answer)
            frame = self.next()
        if wire.outgoing:
            self._connection.send(b"".join(wire.take_outgoing()), _NO_WAIT)
        return frame

    def _refuse(self, error: QuireError) -> NoReturn:
        """Say why, if that is read, and end the connection."""
        self.wire.refuse(error)
        words = b"".join(self.wire.take_outgoing())
        if not (self.threads or self._unsent):
            with suppress(OSError):
                self._connection.send(words, _NO_WAIT)
        raise Gone

    # What it has in use (CL10)

    def _admit_long(self, length: int) -> LimitReached | None:
        """Charge a long frame that begins to come; return why it is not taken."""
        try:
            self.account.check(REQUEST_BYTES_LIMIT, length)
            self.account.take(BYTES, length)
        except LimitReached as error:
            return error
        self._reading_bytes = length
        return None

    def _end_long(self) -> None:
        self.account.give_back(BYTES, self._reading_bytes)
        self._reading_bytes = 0

    def _charged(self, frame: Bytes) -> Bytes:
        """Charge a request that is kept; return it, or what stands in its place. Under the lock."""
        size = len(frame) + REQUEST_BYTES
        try:
            if type(frame) is RefusedFrame or frame[4] == CANCEL:
                self.account.add(BYTES, size)
            else:
                self.account.take(BYTES, size)
        except LimitReached as error:
            frame = RefusedFrame.of(frame, error)
            size = len(frame) + REQUEST_BYTES
            self.account.add(BYTES, size)
        self._pending_bytes += size
        return frame

    def _drop_pending(self, size: int) -> None:
        self._pending_bytes -= size
        self.account.give_back(BYTES, size)

    # Requests under way (CL1)

    def keep(self, client: ServedClient, frame: Bytes) -> bool:
        """Keep a request behind the one that is under way; False: none is, by now."""
        with self._guard:
            if client not in self.busy:
                return False
            client.kept.append(self._charged(frame))
            return True

    def keep_cancel(self, client: ServedClient, frame: Bytes) -> bool:
        """Keep a CANCEL in place of the requests that are kept; False: none is under way."""
        with self._guard:
            if client not in self.busy:
                return False
            self._drop_kept(client)
            client.is_cancelled = True
            client.kept.append(self._charged(frame))
            return True

    def add_job(self, client: ServedClient, rest: Rest) -> None:
        """Leave the rest of a request to another thread; its stream is busy."""
        with self._guard:
            self.busy.add(client)
            if rest.frame is not None:
                rest = Rest(frame=self._charged(rest.frame))
                client.began = now()
            self._jobs.append((client, rest))

    def next_job(self) -> tuple[ServedClient, Rest] | None:
        """Return the next job, which a thread is to do now, unless as many are done as may be."""
        with self._guard:
            if not self._jobs:
                return None
            if not self.gone and (
                self._working >= MAX_WORKERS_OF_CONNECTION or self._unsent_bytes > UNSENT_BYTES
            ):
                return None
            self.threads += 1
            self._working += 1
            return self._jobs.popleft()

    def finish_job(self, rest: Rest) -> None:
        """A job is done; the thread goes on to begin others before it leaves."""
        with self._guard:
            self._working -= 1
            if rest.frame is not None:
                self._drop_pending(rest.size)

    def leave(self) -> None:
        """A thread works on the connection no more."""
        with self._guard:
            self.threads -= 1

    def finish(self, client: ServedClient) -> None:
        """A request is answered, or nobody reads its answer: the stream's next one is a job."""
        with self._guard:
            if client.kept and not self.gone:
                client.began = now()
                self._jobs.append((client, Rest(frame=client.kept.popleft())))
                return
            self._drop_kept(client)
            self.busy.discard(client)
            is_closing = self.is_ended
            if not is_closing and self.streams is not None:
                self.streams.release(client)
        if is_closing:
            client.close()

    def _drop_kept(self, client: ServedClient) -> None:
        while client.kept:
            self._drop_pending(len(client.kept.popleft()) + REQUEST_BYTES)

    def begin_wait(self) -> None:
        """A job waits for other clients: another one may be done meanwhile."""
        with self._guard:
            self._working -= 1

    def end_wait(self) -> None:
        """It does so no more, and goes on in any case."""
        with self._guard:
            self._working += 1

    def has_room(self) -> bool:
        """True if more may be read (CL7)."""
        return self._pending_bytes <= PENDING_BYTES and self._unsent_bytes <= UNSENT_BYTES

    # Sending (CL6)

    def send(self, data: Bytes) -> bool:
        """Send a frame without waiting, by the server's own thread; True: all is sent.

        False: see `needs_sender`. Raises Gone.
        """
        is_alone = not (self.threads or self._unsent)  # no thread begins without this one
        if not is_alone and not self._begin_sending(data):
            return False
        try:
            sent = self._connection.send(data, _NO_WAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.gone = True
            self._end_sending(memoryview(b""))
            raise Gone from None
        if is_alone and sent == len(data):
            return True
        self._end_sending(memoryview(data)[sent:])
        return False

    def _begin_sending(self, data: Bytes) -> bool:
        """Return True if this thread is to send; else the frame stands behind those of others."""
        with self._guard:
            if self._is_sending or self._unsent:
                self._add_unsent((data,), None)
                return False
            self._is_sending = True
            return True

    def _end_sending(self, left: memoryview) -> None:
        with self._guard:
            self._is_sending = False
            if left:
                self._unsent.appendleft(((left,), None))
                self._add_unsent_bytes(len(left) + UNSENT_FRAME_BYTES)

    def _add_unsent(self, parts: Sequence[Bytes], more: LongAnswer | None) -> None:
        self._unsent.append((parts, more))
        self._add_unsent_bytes(sum(map(len, parts)) + UNSENT_FRAME_BYTES)

    def _add_unsent_bytes(self, size: int) -> None:
        self._unsent_bytes += size
        self.account.add(BYTES, size)

    def needs_sender(self) -> bool:
        """Return True if frames are unsent and nobody sends: a thread, which counts, is to."""
        with self._guard:
            if self._is_sending or not self._unsent:
                return False
            self.threads += 1
            return True

    def add_answer(self, parts: Sequence[Bytes], more: LongAnswer | None = None) -> None:
        """Have a frame of an answer sent by the `send_unsent` that follows, or by who sends."""
        with self._guard:
            self._add_unsent(parts, more)

    def send_unsent(self) -> Iterator[ServedClient | None]:
        """Send what is unsent, waiting as need be, unless another thread does.

        After each frame: the stream whose answer has ended by it, if one has. Where the client is
        gone, nothing is sent.
        """
        with self._guard:
            if self._is_sending:
                return
            self._is_sending = True
        while True:
            with self._guard:
                if not self._unsent:
                    self._is_sending = False
                    return
                parts, more = self._unsent.popleft()
            is_sent = self._send_frame(parts)
            following = None
            if more is not None and is_sent and not more.client.is_cancelled:
                following = next(more.frames, None)
            with self._guard:
                size = sum(map(len, parts)) + UNSENT_FRAME_BYTES
                self._unsent_bytes -= size
                self.account.give_back(BYTES, size)
                if following is not None:
                    self._add_unsent(following, more)
            yield more.client if more is not None and following is None else None

    def _send_frame(self, parts: Sequence[Bytes]) -> bool:
        """Send the parts; False: the client is gone, or does not read (CL2)."""
        if not self.gone:
            try:
                send_all(self._connection, parts, now)
            except OSError:
                self.gone = True
        return not self.gone

    # The end (CL8)

    def take_no_more(self) -> None:
        """Refuse, or do not read, what the client sends from now on; what has come is there."""
        try:
            self._refuses = refuse_more(self._connection)
        except OSError:  # it has ended
            self.gone = True

    @property
    def is_read_to_its_end(self) -> bool:
        """True if a `receive` that finds nothing after `take_no_more` was the last one."""
        return not self._refuses

    def cut(self) -> None:
        """End the connection for both sides; who works on it finds out."""
        self.gone = True
        shut(self._connection)

    def end(self) -> list[ServedClient]:
        """Begin the end; the streams that are not busy are the caller's to close."""
        with self._guard:
            self.gone = self.is_ended = True
            self.is_reading = False
            if self.busy or self.threads:
                shut(self._connection)
            return [] if self.streams is None else self.streams.take_idle(self.busy)

    def close(self, forget: Callable[[], object]) -> bool:
        """Let go of the socket if nobody works on the connection any more; True: just now.

        `forget`: called before, as the next connection may have the socket's number at once.
        """
        with self._guard:
            if self.closed or not self.is_ended or self.busy or self.threads:
                return False
            self.closed = True
            if self._reading_bytes:
                self._end_long()
        if self.streams is not None:
            self.streams.close()
        forget()
        close(self._connection)
        return True

    def abandon(self) -> None:
        """Close it in the child of a fork: it is the parent's, whose end its client must see."""
        self.closed = True
        close(self._connection)
