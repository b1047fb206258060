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
from typing import Final

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

from . import waits
from .multiplexed_connection import MultiplexedConnection
from .request_outcomes import OwnerEvent, RequestProgress
from .stream_inbox import (
    NOBODY_WAITS,
    InvalidRequest,
    RequestFrames,
    StreamEnded,
    StreamInbox,
    cancellation,
    reason_of,
)

__all__ = ["Channel", "StreamEnded"]

_LATE: Final = "the owner does not answer, or is stopped: the time to wait for it is over"


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
        self._is_call = False  # neither a put nor of a transaction
        self._before: RequestFrames | None = None  # what goes out with the next request, before it
        self.inbox = StreamInbox()
        self._asks_first = asks_first
        self._is_checked = asks_first  # something is to be done before each request
        self._is_at_work = is_at_work
        self._call_patience = call_timeout - min(HELLO_SECONDS, call_timeout / 4)
        self._margin = min(ANSWER_SECONDS, call_timeout)

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing() and not getattr(self, "ended", True):
            self.close()  # what an interrupt has lost is rolled back

    @property
    def stream(self) -> int:
        """Number of the stream; 0: it has not begun."""
        return self.inbox.number or 0

    def put(self, queue: bytes, payload: Bytes) -> int:
        """One message in a transaction of its own: its id. Raises as `request`."""
        length = 2 + len(queue) + len(payload)
        check_size(length)
        if self.inbox.number is not None:
            self.pause()
        answer = self._exchange(
            lambda stream: (PUT_HEAD.pack(length, PUT, stream, len(queue)), queue, payload),
            None,
            True,
        )
        if answer[4] == ID and len(answer) == NUMBER_FRAME.size:
            number: int = NUMBER_FRAME.unpack(answer)[3]
            return number
        if answer[4] != RESULT:
            raise self.unexpected()
        header = self._decode(answer).header
        self._note(header)
        return PutId.of(field(header, "id", int), field(header, "expires_by", int))

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
        if kind == CALL:
            self.pause()
        try:
            self._is_call = kind == CALL
            frames = self._answer(
                lambda stream: encode_call(kind, stream, header, bodies), wait, strictly
            )
        finally:
            self._is_call = False
        self._note(frames[-1].header)
        return frames

    def exchange(
        self, frames: RequestFrames, wait: float | None = None, *, strictly: bool = True
    ) -> Bytes:
        """Send a short request; its answer, which is one frame.

        `wait`: the time-out that the request has, in seconds. Not `strictly`: it is waited for all
        the same while the owner is at work (CH4). Raises StreamEnded, or the error that the answer
        reports.
        """
        data = self._exchange(frames, wait, strictly)
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

    def precede(self, frames: RequestFrames) -> None:
        """Send frames without answer with the next request: so both wake the owner once."""
        self._before = frames
        self._is_checked = True

    def tell(self, frames: RequestFrames) -> None:
        """Send what has no answer. Raises StreamEnded."""
        self._exchange(frames, None, True, False)

    def next_frame(self) -> Bytes:
        """Return the next of the connection's own frames; others may `tell` meanwhile.

        Raises StreamEnded.
        """
        connection = self.connection
        inbox = connection.connection_frames
        while True:
            inbox.has_news = False  # first: what comes from here on is looked at next time
            if inbox.frames:
                return inbox.frames.popleft()
            if connection.ended is not None:
                raise self._ended(connection.ended, RequestProgress.SENT)
            connection.await_news(inbox, math.inf)

    def unexpected(self) -> StreamEnded:
        """For an answer that is none to its request."""
        self.broken = True
        return StreamEnded("the owner's answer is of another kind", RequestProgress.SENT)

    def _checked(self, frames: RequestFrames) -> RequestFrames:
        """Return a request, with what goes before it. Raises StreamEnded if it cannot be sent."""
        if self.broken:
            raise StreamEnded("the connection was broken before", RequestProgress.UNSENT)
        if self._asks_first and self.connection.has_ended():
            self.broken = True
            raise StreamEnded("the owner ended the connection", RequestProgress.UNSENT)
        before = self._before
        if before is None:
            return frames

        def both(stream: int) -> Sequence[Bytes]:
            parts = [*before(stream), *frames(stream)]
            self._before = None
            self._is_checked = self._asks_first
            return parts

        return both

    def _exchange(
        self, frames: RequestFrames, wait: float | None, strictly: bool, is_answered: bool = True
    ) -> Bytes:
        """Send a request, and wait for a frame of its answer, or until it is sent.

        Handlers run in the waits alone (MC2). What they raise leaves the stream broken (CH1).
        """
        connection, inbox = self.connection, self.inbox
        patience, is_strict, errand = self._call_patience, False, None
        data: Bytes | None = None
        if self.broken or self._is_checked:
            frames = self._checked(frames)
        try:
            if wait or doing:
                patience, is_strict, errand = self._begin(wait, strictly, is_new=True)
            until = monotonic() + patience
            if connection.left:
                self._await_left(until)
            self.broken = True
            if is_answered:
                data = connection.exchange(frames, inbox, until, patience)
            else:
                data = connection.send(frames, inbox)
            if data is None:
                data = self._wait_on(until, patience, is_strict, is_answered)
            if errand is not None:
                self._end_errand(errand)
        except (InvalidRequest, OSError, EOFError, RemoteError) as error:
            raise self._failure(error) from None
        except BaseException:
            if self.broken and connection.sender.withdraw(inbox) and not self._is_call:
                inbox.left_by = waits.waiter()  # the owner may be on it for a while (MC8)
            raise
        finally:
            if errand is not None:
                errand.end()
        self.broken = False
        return data

    def _next_of_answer(self, wait: float | None, strictly: bool) -> Bytes:
        """Wait for the next frame of an answer, as `_exchange` does for the first."""
        patience, is_strict, errand = self._begin(wait, strictly, is_new=False)
        self.broken = True
        try:
            data = self._wait_on(monotonic() + patience, patience, is_strict, is_answered=True)
            if errand is not None:
                self._end_errand(errand)
        except (OSError, EOFError, RemoteError) as error:
            raise self._ended(error, RequestProgress.SENT) from None
        finally:
            if errand is not None:
                errand.end()
        self.broken = False
        return data

    def _failure(self, error: Exception) -> Exception:
        """Return the error of a request that was begun to be sent, or could not be."""
        if isinstance(error, InvalidRequest):
            self.broken = False
            return error.error
        is_sent = self.connection.sender.withdraw(self.inbox)
        return self._ended(error, RequestProgress.SENT if is_sent else RequestProgress.UNREAD)

    def _wait_on(self, until: float, patience: float, strictly: bool, is_answered: bool) -> Bytes:
        """Wait for the next frame; or, if there is no answer, until the request is sent."""
        connection, inbox = self.connection, self.inbox
        while True:
            inbox.has_news = False  # first: what comes from here on is looked at next time
            if inbox.frames and is_answered:
                return inbox.frames.popleft()
            if inbox.is_sent and not is_answered:
                return b""
            if inbox.error is not None:
                raise inbox.error
            if inbox.is_released:
                raise self._late(NOBODY_WAITS)
            if connection.ended is not None:
                raise connection.ended
            if monotonic() >= until:
                until = self._more_time(until, patience, strictly)
            if not inbox.frames or not is_answered:
                data = connection.await_frame(inbox, until, until - monotonic())
                if data is not None:
                    return data

    def _await_left(self, until: float) -> None:
        """Wait for the end of what this thread has left (MC8). Raises StreamEnded."""
        connection, inbox = self.connection, self.inbox
        if connection.await_left(inbox, until) and not inbox.is_released:
            return
        words = NOBODY_WAITS if inbox.is_released else _LATE
        event = cancellation() or OwnerEvent.LATE
        raise StreamEnded(words, RequestProgress.UNSENT, event)

    def _answer(self, frames: RequestFrames, wait: float | None, strictly: bool) -> list[Frame]:
        found = [self._frame(self._exchange(frames, wait, strictly))]
        while found[-1].header.get("more") is True:
            found.append(self._frame(self._next_of_answer(wait, strictly)))
        return found

    def _frame(self, data: Bytes) -> Frame:
        if data[4] != RESULT:
            raise self.unexpected()
        return self._decode(data)

    # Whose patience has an end (CH4, CH5)

    def _begin(
        self, wait: float | None, strictly: bool, *, is_new: bool
    ) -> tuple[float, bool, Errand | None]:
        """Return how long to wait for a frame, if that is an end, and for whom.

        From now on the call can be given up. Raises StreamEnded if it was already.
        """
        errand = current()
        patience = wait + self._margin if wait else self._call_patience
        is_limited = bool(wait)
        if errand is not None:
            self.inbox.is_released = False
            if not errand.begin(self._give_up):
                self.broken = self.broken or not is_new
                progress = RequestProgress.UNSENT if is_new else RequestProgress.SENT
                raise StreamEnded(NOBODY_WAITS, progress, OwnerEvent.CANCELLED)
            if errand.until < math.inf:
                left = max(0.0, errand.until - monotonic())
                patience, is_limited = min(patience, left + self._margin), True
        return patience, strictly and is_limited, errand

    def _end_errand(self, errand: Errand) -> None:
        """Raise StreamEnded if the call was given up: the answer is nobody's."""
        errand.end()
        if errand.withdrawn:
            raise StreamEnded(NOBODY_WAITS, RequestProgress.SENT, OwnerEvent.CANCELLED)

    def _give_up(self) -> None:
        self.connection.release(self.inbox)

    def _more_time(self, until: float, patience: float, strictly: bool) -> float:
        """Return until when to wait on for the answer. Raises StreamEnded if nobody waits on."""
        connection, inbox = self.connection, self.inbox
        longer = connection.moved_at + patience
        if longer > until and (not strictly or connection.is_moving(inbox)):
            return longer
        if not strictly and self._is_at_work(connection, inbox):
            return monotonic() + patience
        if inbox.frames or inbox.is_released:
            return monotonic() + patience
        raise self._late(_LATE)

    def _late(self, words: str) -> StreamEnded:
        is_sent = self.connection.sender.withdraw(self.inbox)
        progress = RequestProgress.SENT if is_sent else RequestProgress.UNREAD
        return StreamEnded(words, progress, cancellation() or OwnerEvent.LATE)

    def _ended(self, error: Exception, progress: RequestProgress) -> StreamEnded:
        connection = self.connection
        if (
            isinstance(error, ConnectionResetError)
            and connection.sender.latest is self.inbox
            and not self._asks_first
            and not connection.is_moving(self.inbox)
        ):
            progress = RequestProgress.UNREAD  # so a Unix socket of Linux ends (CH3)
        if connection.sender.was_cut_late:  # by another stream (MC5)
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
        self.connection.finish(self.inbox)

    def close(self) -> None:
        """End the stream: what is open on it is rolled back at the owner. By anybody, anywhere."""
        self.broken = self.ended = True
        if self.connection.is_alone:
            self.connection.close()
        else:
            self.connection.leave(self.inbox)
