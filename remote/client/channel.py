"""A stream of a connection to a store's owner: a request goes out, its answer comes back.

CH1. A stream whose connection failed, or whose answer was not waited for, is never used again.
- Waiting for an answer can be interrupted by a signal (Ctrl-C), which ends the stream.
CH3. A request that could not be sent whole, or was not read whole, was not done:
    `StreamEnded.progress` tells it from one that may have been. That it was not read Linux tells,
    on Unix sockets, of the last bytes that were sent; other requests count as sent.
CH4. Nobody waits for ever for an owner that does not answer (`OwnerEvent.LATE`). A request with a
    time-out waits for that and a margin, and longer only while a part of its answer comes. Any
    other waits for `call_timeout`, and longer only while the owner answers others: then it is at
    work. When its time is over, the stream ends, and what the owner does with the request with it.
CH5. Who makes a call for somebody who gives it up is released at once (`quire.calls.errand`).
- What becomes of a request whose stream has ended, `request_outcomes` says.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from time import monotonic

from quire.arguments import Bytes
from quire.calls.errand import Errand, current, doing
from quire.errors import RemoteError
from quire.limits import ANSWER_SECONDS
from quire.messages.message_id import PutId
from quire.remote.limits import HELLO_SECONDS
from quire.remote.wire.failures import raise_error
from quire.remote.wire.protocol import (
    CALL,
    ID,
    NUMBER_FRAME,
    PUT,
    PUT_HEAD,
    RESULT,
    Frame,
    Header,
    check_size,
    decode_call,
    encode_call,
    field,
    state_of,
)
from quire.reports.info import TransactionState

from .multiplexed_connection import (
    NOBODY_WAITS,
    MultiplexedConnection,
    StreamEnded,
    StreamInbox,
    cancellation,
    reason_of,
)
from .request_outcomes import OwnerEvent, RequestProgress

__all__ = ["Channel", "StreamEnded"]


class Channel:
    """One stream after another of a connection. Used by one thread at a time."""

    def __init__(
        self,
        connection: MultiplexedConnection,
        call_timeout: float = math.inf,
        is_at_work: Callable[[MultiplexedConnection, StreamInbox], bool] = lambda *_: False,
        *,
        asks_first: bool = False,
    ) -> None:
        """`is_at_work`: whether the owner answers others than the stream of this inbox.

        `asks_first`: its end is looked for before a request, as the system takes what is sent when
        nobody is there any more, as a port does.
        """
        self.connection = connection
        self.broken = False
        self.ended = False
        self.transaction_state: TransactionState | None = None  # as the latest answer said
        self.taken = 0  # puts of the transaction, as the latest error said
        self.stream = 0  # the latest, and the only one whose frames are not late (PR3)
        self._before: Sequence[Bytes] = ()  # what goes out with the next request, before it
        self._inbox = StreamInbox()
        self._asks_first = asks_first
        self._is_at_work = is_at_work
        self._call_patience = call_timeout - min(HELLO_SECONDS, call_timeout / 4)
        self._margin = min(ANSWER_SECONDS, call_timeout)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing() and not getattr(self, "ended", True):
            self.close()  # what an interrupt has lost is rolled back

    def next_stream(self) -> int:
        """Begin a stream: a transaction, or a request outside of any."""
        if self.stream:
            self.connection.streams.pop(self.stream, None)
        stream = self.stream = self.connection.begin(self._inbox)
        return stream

    def put(self, queue: bytes, payload: Bytes) -> int:
        """One message in a transaction of its own: its id. Raises as `request`."""
        length = 2 + len(queue) + len(payload)
        check_size(length)
        head = PUT_HEAD.pack(length, PUT, self.next_stream(), len(queue))
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
        frames = self._frames(parts, wait, strictly)
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
        data = self._exchange(parts, wait, strictly)
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
        self._exchange(parts, None, True, False)

    def next_frame(self) -> Bytes:
        """Return the next of the connection's own frames; others may `tell` meanwhile.

        Raises StreamEnded.
        """
        connection = self.connection
        inbox = connection.connection_frames
        while not inbox.frames:
            if connection.ended is not None:
                raise self._ended(connection.ended, RequestProgress.SENT)
            connection.await_news(inbox, math.inf)
        return inbox.frames.popleft()

    def unexpected(self) -> StreamEnded:
        """For an answer that is none to its request."""
        self.broken = True
        return StreamEnded("the owner's answer is of another kind", RequestProgress.SENT)

    def _check(self) -> None:
        if self.broken:
            raise StreamEnded("the connection was broken before", RequestProgress.UNSENT)
        if self._asks_first and self.connection.has_ended():
            self.broken = True
            raise StreamEnded("the owner ended the connection", RequestProgress.UNSENT)

    def _exchange(
        self,
        parts: Sequence[Bytes],
        wait: float | None,
        strictly: bool,
        is_answered: bool = True,
    ) -> Bytes:
        """Send the parts, and wait for a frame; without parts for the next one of an answer.

        Handlers run in the waits alone (MC2). What they raise leaves the stream broken (CH1).
        """
        connection, inbox = self.connection, self._inbox
        frames = inbox.frames
        errand: Errand | None = None
        patience, strict = self._call_patience, False
        if parts:
            self._check()
        self.broken = True
        try:
            if wait or doing:
                errand = current()
                patience, strict = self._patience(wait, errand)
                strict = strict and strictly
                if errand is not None:
                    self._begin_errand(errand, bool(parts))
            until = monotonic() + patience
            if parts:
                connection.send(self._with_before(parts) if self._before else parts, inbox)
            if is_answered:
                connection.await_news(inbox, until)
            while not (frames if is_answered else inbox.is_sent):
                until = self._wait_on(until, patience, strict)
            data = frames.popleft() if is_answered else b""
            if errand is not None:
                self._end_errand(errand)
        except (OSError, EOFError, RemoteError) as error:
            is_sent = connection.withdraw(inbox) or not parts
            progress = RequestProgress.SENT if is_sent else RequestProgress.UNREAD
            raise self._ended(error, progress) from None
        except BaseException:
            connection.withdraw(inbox)
            raise
        finally:
            if errand is not None:
                errand.end()
        self.broken = False
        return data

    def _with_before(self, parts: Sequence[Bytes]) -> Sequence[Bytes]:
        parts, self._before = [*self._before, *parts], ()
        return parts

    def _wait_on(self, until: float, patience: float, strictly: bool) -> float:
        """Wait until something has changed; return until when to wait on."""
        connection, inbox = self.connection, self._inbox
        inbox.has_news = False  # first: what comes from here on is looked at next time
        if inbox.error is not None:
            raise inbox.error
        if inbox.is_released:
            raise self._late(NOBODY_WAITS)
        if connection.ended is not None and not inbox.frames:
            raise connection.ended
        if monotonic() >= until and not inbox.frames:
            until = self._more_time(until, patience, strictly)
        connection.await_news(inbox, until)
        return until

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

    def _patience(self, wait: float | None, errand: Errand | None) -> tuple[float, bool]:
        """Return how long the answer is waited for, and if the request has a time of its own."""
        patience = wait + self._margin if wait else self._call_patience
        if errand is not None and errand.until < math.inf:
            return min(patience, max(0.0, errand.until - monotonic()) + self._margin), True
        return patience, bool(wait)

    def _begin_errand(self, errand: Errand, is_new: bool) -> None:
        """From now on the call can be given up. Raises StreamEnded if it was already."""
        self._inbox.is_released = False
        if not errand.begin(self._give_up):
            progress = RequestProgress.UNSENT if is_new else RequestProgress.SENT
            raise StreamEnded(NOBODY_WAITS, progress, OwnerEvent.CANCELLED)

    def _end_errand(self, errand: Errand) -> None:
        """Raise StreamEnded if the call was given up: the answer is nobody's."""
        errand.end()
        if errand.withdrawn:
            raise StreamEnded(NOBODY_WAITS, RequestProgress.SENT, OwnerEvent.CANCELLED)

    def _give_up(self) -> None:
        self.connection.release(self._inbox)

    def _more_time(self, until: float, patience: float, strictly: bool) -> float:
        """Return until when to wait on for the answer. Raises StreamEnded if nobody waits on."""
        connection, inbox = self.connection, self._inbox
        longer = connection.moved_at + patience
        if longer > until and (not strictly or connection.is_moving(self.stream, inbox)):
            return longer
        if not strictly and self._is_at_work(connection, inbox):
            return monotonic() + patience
        if inbox.frames or inbox.is_released:
            return monotonic() + patience
        raise self._late(
            "the owner does not answer, or is stopped: the time to wait for it is over"
        )

    def _late(self, words: str) -> StreamEnded:
        is_sent = self.connection.withdraw(self._inbox)
        progress = RequestProgress.SENT if is_sent else RequestProgress.UNREAD
        return StreamEnded(words, progress, cancellation() or OwnerEvent.LATE)

    def _ended(self, error: Exception, progress: RequestProgress) -> StreamEnded:
        connection = self.connection
        if (
            isinstance(error, ConnectionResetError)
            and connection.latest is self._inbox
            and not self._asks_first
            and not connection.is_moving(self.stream, self._inbox)
        ):
            progress = RequestProgress.UNREAD  # so a Unix socket of Linux ends (CH3)
        if connection.was_cut_late:  # by another stream (MC5)
            words = "the owner does not read what is sent to it"
            return StreamEnded(words, progress, cancellation() or OwnerEvent.LATE)
        return StreamEnded(reason_of(error), progress, cancellation())

    def _decode(self, data: Bytes) -> Frame:
        try:
            return decode_call(data)
        except RemoteError as error:  # whatever was asked may have been done
            self.broken = True
            raise StreamEnded(str(error), RequestProgress.SENT) from None

    def pause(self) -> None:
        """End the stream whose request is answered, and keep the channel for another one."""
        self.connection.streams.pop(self.stream, None)
        self.stream = 0

    def close(self) -> None:
        """End the stream: what is open on it is rolled back at the owner. By anybody, anywhere."""
        self.broken = self.ended = True
        if self.connection.is_alone:
            self.connection.close()
        else:
            self.connection.leave(self.stream)
