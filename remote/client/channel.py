"""One connection to a store's owner: a request goes out, its answer comes back.

CH1. A channel whose connection failed, or whose answer was not waited for, is never used again.
- Waiting for an answer can be interrupted by a signal (Ctrl-C), which breaks the channel.
CH3. A request that could not be sent whole, or was not read whole, was not done:
    `StreamEnded.progress` tells it from one that may have been. That it was not read Linux tells,
    on Unix sockets; elsewhere such a request counts as sent.
CH4. Nobody waits for ever for an owner that does not answer (`OwnerEvent.LATE`). A request with a
    time-out waits for that and a margin. Any other waits for `call_timeout`, counted from the last
    bytes that came, and longer only while the owner lets others in: then it is at work. When its
    time is over, the channel ends (`overdue`), and what the owner does with the request with it.
CH5. Who makes a call for somebody who gives it up is released at once (`quire.calls.errand`).
- What becomes of a request whose stream has ended, `request_outcomes` says.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from quire.arguments import Bytes
from quire.calls.errand import current, doing
from quire.calls.signal_safety import waiting
from quire.calls.wake_up import Thread
from quire.env.interpreter import Lock
from quire.errors import ConnectionLost, RemoteError
from quire.limits import ANSWER_SECONDS
from quire.messages.message_id import PutId
from quire.remote.limits import BACKLOG_PAUSE_SECONDS, HELLO_SECONDS
from quire.remote.wire.address import Endpoint
from quire.remote.wire.failures import raise_error
from quire.remote.wire.protocol import (
    CALL,
    ID,
    NUMBER_FRAME,
    PUT,
    PUT_HEAD,
    RESULT,
    STREAM,
    Frame,
    Header,
    check_size,
    decode_call,
    encode_call,
    field,
    state_of,
)
from quire.remote.wire.sockets import (
    close,
    connect,
    has_ended,
    is_readable,
    now,
    send_all,
    shut,
    tells_of_unread,
)
from quire.remote.wire.wire_connection import WireConnection, WireSide
from quire.reports.info import TransactionState

from .overdue_requests import overdue
from .request_outcomes import OwnerEvent, RequestProgress

_NOBODY_WAITS: Final = "nobody waits for an answer any more"

_stream_of: Final = STREAM.unpack_from


class StreamEnded(Exception):
    """The connection has ended while a request was under way, or before.

    `progress`: how far the request has come. `event`: LATE or CANCELLED, where the owner may be
    there all the same (CH4, CH5); None: it has ended the connection.
    """

    def __init__(
        self, reason: str, progress: RequestProgress, event: OwnerEvent | None = None
    ) -> None:
        super().__init__(reason)
        self.progress = progress
        self.event = event


class Channel:
    """Used by one thread at a time."""

    def __init__(
        self,
        place: Endpoint,
        hello: Header,
        seconds: float = HELLO_SECONDS,
        call_timeout: float = math.inf,
        is_at_work: Callable[[], bool] = lambda: False,
        begin: Callable[[Channel], object] = lambda _: None,
    ) -> None:
        """Connect, and say hello. Raises StreamEnded, or what the owner answers.

        `seconds`: for each step of that. `is_at_work`: whether the owner answers others. `begin`:
        told of the channel once it is connected, as it can be cut from then on.
        """
        self.broken = True  # until the hello is answered
        self.ended = False
        self.transaction_state: TransactionState | None = None  # as the latest answer said
        self.taken = 0  # puts of the transaction, as the latest error said
        self.stream = 0  # the latest, and the only one whose frames are not late (PR3)
        self._before: Sequence[Bytes] = ()  # what goes out with the next request, before it
        self._wire = WireConnection(WireSide.CLIENT)
        # Who takes what is sent when nobody is there any more, as a port does, is asked before.
        self._asks_first = not tells_of_unread(place)
        self._is_at_work = is_at_work
        self._is_late = False  # it was ended, as nobody waits any more
        self._call_patience = call_timeout - min(HELLO_SECONDS, call_timeout / 4)
        self._margin = min(ANSWER_SECONDS, call_timeout)
        self._patience = self._call_patience  # of the request
        self._strictly = False
        self._turn: list[float] = []  # of the request: until when it waits
        self._deciding = Lock()  # whether one that is overdue ends
        try:
            self._connection = _connect(place, seconds)
        except PermissionError:
            raise ConnectionLost(
                f"permission denied: this process may not use the socket {place}; a store is its "
                "user's alone, so run this as that user"
            ) from None
        except OSError as error:
            raise _not_greeted(error, seconds) from None
        try:
            begin(self)
            self._waits()
            try:
                self.hello = self._greet(hello)
            finally:
                self._check_withdrawn()
            self._connection.settimeout(None)
        except (OSError, EOFError) as error:
            close(self._connection)
            raise _not_greeted(error, seconds) from None
        except BaseException:
            close(self._connection)
            raise
        self.broken = False

    def _greet(self, hello: Header) -> Header:
        """The owner's answer to the hello."""
        self._wire.send_hello(hello)
        waiting(send_all, self._connection, self._wire.take_outgoing())
        frame = None
        while frame is None:
            frame = waiting(self._receive)
        return self._wire.accepted(frame)

    def _receive(self) -> Bytes | None:
        """A frame that came with the one before; or what comes next, if that is whole a frame."""
        if self._wire.rest and (frame := self._wire.next()) is not None:
            return frame
        count = self._connection.recv_into(self._wire.buffer)
        if not count:
            raise EOFError
        return self._wire.received(count)

    def next_stream(self) -> int:
        """Begin a stream: a transaction, or a request outside of any."""
        self.stream += 1
        return self.stream

    def put(self, queue: bytes, payload: Bytes) -> int:
        """One message in a transaction of its own: its id. Raises as `request`."""
        length = 2 + len(queue) + len(payload)
        check_size(length)
        stream = self.stream = self.stream + 1  # as `next_stream`
        head = PUT_HEAD.pack(length, PUT, stream, len(queue))
        answer = self.exchange((head + queue, payload))
        if answer[4] == RESULT:
            header = self._decode(answer).header
            return PutId.of(field(header, "id", int), field(header, "expires_by", int))
        if answer[4] != ID or len(answer) != NUMBER_FRAME.size:
            raise self.unexpected()
        number: int = NUMBER_FRAME.unpack(answer)[3]
        return number

    def request(
        self,
        header: Header,
        bodies: Sequence[Bytes] = (),
        wait: float | None = None,
        *,
        strictly: bool = True,
        kind: int = CALL,
    ) -> list[Frame]:
        """Send a request and wait for all frames of its answer.

        `kind`: STEP for one of the transaction that the channel carries. `wait`, `strictly`: as of
        `exchange`. Raises StreamEnded, or the error that the answer reports.
        """
        stream = self.next_stream() if kind == CALL else self.stream
        parts = encode_call(kind, stream, header, bodies)
        frames = waiting(self._frames, parts, wait, strictly)
        self.broken = self._is_late
        self._note(frames[-1].header)
        return frames

    def exchange(
        self, parts: Sequence[Bytes], wait: float | None = None, *, strictly: bool = True
    ) -> Bytes:
        """Send a short request; its answer, which is one frame.

        `wait`: the time-out that the request has, in seconds. Not `strictly`: it is waited for all
        the same while the owner is at work (CH4). Raises StreamEnded, or the error that the answer
        reports.
        """
        data = waiting(self._exchange, parts, wait, strictly)
        self.broken = self._is_late
        if data[4] == RESULT:
            self._note(self._decode(data).header)
        return data

    def _note(self, header: Header) -> None:
        """Note the state that an answer reports, and raise its error."""
        self.transaction_state = state_of(header)
        if "error" in header:
            taken = header.get("taken")
            self.taken = taken if type(taken) is int else 0
            raise_error(header)

    def precede(self, parts: Sequence[Bytes]) -> None:
        """Send parts without answer with the next request: so both wake the owner once."""
        self._before = parts

    def tell(self, parts: Sequence[Bytes]) -> None:
        """Send what has no answer. Raises StreamEnded."""
        waiting(self._exchange, parts, None, True, False)
        self.broken = self._is_late

    def next_frame(self) -> Bytes:
        """Return the next frame of the owner; others may `tell` meanwhile. Raises StreamEnded."""
        try:
            data = None
            while data is None:
                data = waiting(self._receive)
        except (OSError, EOFError, RemoteError) as error:
            raise self._ended(error, RequestProgress.SENT, begun=True) from None
        return data

    def unexpected(self) -> StreamEnded:
        """For an answer that is none to its request."""
        self.broken = True
        return StreamEnded("the owner's answer is of another kind", RequestProgress.SENT)

    def has_ended(self) -> bool:
        """Return True if the owner has ended the connection."""
        return has_ended(self._connection)

    def wait_for_end(self, seconds: float | None = None) -> bool:
        """Until the owner ends the connection, or `cut` does; nothing else comes on it.

        False: it goes on after so many seconds.
        """
        with suppress(OSError, ValueError):  # it is closed, or its number is
            if seconds is not None and not is_readable(self._connection, seconds):
                return False
            self._connection.recv(1, socket.MSG_PEEK)
        return True

    def _check(self) -> None:
        if self.broken:
            raise StreamEnded("the connection was broken before", RequestProgress.UNSENT)
        if self._asks_first and has_ended(self._connection):
            self.broken = True
            raise StreamEnded("the owner ended the connection", RequestProgress.UNSENT)

    # Handlers run in what follows, and may raise anywhere: the channel stays broken then (CH1).

    def _exchange(
        self,
        parts: Sequence[Bytes],
        wait: float | None,
        strictly: bool,
        is_answered: bool = True,
    ) -> Bytes:
        """Send the parts, and wait for a frame; without parts for the next one of an answer."""
        if parts:
            self._check()
        self.broken = True
        until = monotonic() + self._call_patience
        turn = self._turn = [until]
        sent = not parts
        data: Bytes | None = None
        try:
            if until < overdue.next_look:
                overdue.wake()
            if doing:
                self._waits()
            if parts:
                self._send(parts)
                sent = True
            if wait or doing:
                self._be_patient(turn, wait, strictly)
            if is_answered:
                data = self._receive()
                while data is None or _stream_of(data)[0] != self.stream:
                    self._wait_on(turn)
                    data = self._receive()
            if doing:
                self._check_withdrawn()
        except (OSError, EOFError, RemoteError) as error:
            progress = RequestProgress.SENT if sent else RequestProgress.UNREAD
            raise self._ended(error, progress, begun=not parts) from None
        finally:
            try:
                turn.pop()
            except IndexError:
                self._settle()
            if wait or doing:
                self._wait_no_more()
        return data or b""

    def _send(self, parts: Sequence[Bytes]) -> None:
        before, self._before = self._before, ()
        send_all(self._connection, [*before, *parts] if before else parts)

    def _frames(self, parts: Sequence[Bytes], wait: float | None, strictly: bool) -> list[Frame]:
        frames = [self._frame(self._exchange(parts, wait, strictly))]
        while frames[-1].header.get("more") is True:
            frames.append(self._frame(self._exchange((), wait, strictly)))
        return frames

    def _frame(self, data: Bytes) -> Frame:
        if data[4] != RESULT:
            raise self.unexpected()
        return self._decode(data)

    # Whose patience has an end (CH4, CH5)

    def _settle(self) -> None:
        """End the decision between the request's end and the looks at the owner."""
        with self._deciding:
            self._turn = []

    def _wait_no_more(self) -> None:
        """For somebody else, or for a time of its own."""
        self._strictly = False
        self._patience = self._call_patience
        errand = current()
        if errand is not None:
            errand.end()

    def _be_patient(self, turn: list[float], wait: float | None, strictly: bool) -> None:
        """The answer is waited for as long as the request has time."""
        patience = wait + self._margin if wait else self._call_patience
        is_limited = bool(wait)
        errand = current()
        if errand is not None and errand.until < math.inf:
            patience = min(patience, max(0.0, errand.until - now()) + self._margin)
            is_limited = True
        self._patience = patience
        self._strictly = strictly and is_limited
        self._wait_on(turn)

    def _wait_on(self, turn: list[float]) -> None:
        """From now on as long as the request's patience."""
        until = now() + self._patience
        with suppress(IndexError):  # whether it ends is being decided
            turn[0] = until
        if until < overdue.next_look:
            overdue.wake()

    def look(self, time: float) -> float:
        """See `Waits`."""
        turn = self._turn
        try:
            until = turn[0]
            if until > time:
                return until
            turn.pop()
        except IndexError:
            return math.inf
        if self._strictly:
            self._decide(turn, goes_on=False)
        else:
            try:
                Thread(target=self._ask, args=(turn,), name="quire-ask").start()
            except RuntimeError:  # no thread can be had: nor can it be asked
                self._decide(turn, goes_on=False)
        return math.inf

    def _ask(self, turn: list[float]) -> None:
        """Look if the owner is at work, in the thread of one look."""
        self._decide(turn, goes_on=self._is_at_work())

    def _decide(self, turn: list[float], *, goes_on: bool) -> None:
        with self._deciding:
            if self._turn is not turn:  # its answer has come
                return
            if goes_on:
                turn.append(now() + self._patience)
                overdue.wake()
            else:
                self._is_late = True
                shut(self._connection)

    def _waits(self) -> None:
        """From now on the call can be given up. Raises StreamEnded if it was already."""
        errand = current()
        if errand is not None and not errand.begin(self._give_up):
            raise StreamEnded(_NOBODY_WAITS, RequestProgress.UNSENT, OwnerEvent.CANCELLED)

    def _check_withdrawn(self) -> None:
        """Raises OSError if the call was: the answer is nobody's."""
        errand = current()
        if errand is not None:
            errand.end()
            if errand.withdrawn:
                raise OSError(_NOBODY_WAITS)

    def _give_up(self) -> None:
        self._is_late = True
        shut(self._connection)

    def _ended(
        self, error: Exception, progress: RequestProgress, *, begun: bool = False
    ) -> StreamEnded:
        """`begun`: a part of the answer came."""
        if isinstance(error, ConnectionResetError) and not (begun or self._asks_first):
            progress = RequestProgress.UNREAD  # so a Unix socket of Linux ends (CH3)
        if self._is_late:
            words = "the owner does not answer, or is stopped: the time to wait for it is over"
            return StreamEnded(words, progress, _cancellation() or OwnerEvent.LATE)
        return StreamEnded(_reason(error), progress, _cancellation())

    def _decode(self, data: Bytes) -> Frame:
        try:
            return decode_call(data)
        except RemoteError as error:  # whatever was asked may have been done
            self.broken = True
            raise StreamEnded(str(error), RequestProgress.SENT) from None

    def cut(self) -> None:
        """End the connection; who waits for an answer, in another thread, is released."""
        self.broken = True
        shut(self._connection)

    def close(self) -> None:
        """Let go of the connection, whose user this is."""
        self.broken = self.ended = True
        close(self._connection)
        overdue.wake()


def _connect(place: Endpoint, seconds: float) -> socket.socket:
    """Raises OSError. Where the system's line of those who wait is full, it is tried again."""
    deadline = now() + seconds
    while True:
        try:
            return connect(place, seconds)
        except BlockingIOError:
            errand = current()
            if now() > deadline or (errand is not None and errand.withdrawn):
                raise
            time.sleep(BACKLOG_PAUSE_SECONDS)


def _not_greeted(error: Exception, seconds: float) -> StreamEnded:
    if isinstance(error, TimeoutError | BlockingIOError):
        words = f"the owner does not answer, or is stopped: no answer within {seconds:.3g} seconds"
        return StreamEnded(words, RequestProgress.UNSENT, _cancellation() or OwnerEvent.LATE)
    return StreamEnded(_reason(error), RequestProgress.UNSENT, _cancellation())


def _cancellation() -> OwnerEvent | None:
    """Return CANCELLED if nobody waits for this thread's call any more (CH5)."""
    errand = current()
    return OwnerEvent.CANCELLED if errand is not None and errand.withdrawn else None


def _reason(error: BaseException) -> str:
    return "the owner ended the connection" if isinstance(error, EOFError) else str(error)
