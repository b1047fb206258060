"""A client's way to a store's owner: its streams, and how it learns that the owner is gone.

- One connection, the watch, carries nothing: its end tells that the owner is gone, to whoever asks
  (`lost`); there is no thread. Any other operation finds it out as it sends or waits.
CN4. All requests go over one other connection, each channel a stream of it. Another one is opened
    where that has ended, or its numbers are used up, by one caller, for whom others wait. What the
    owner sends unasked has a connection of its own: its reader would read all answers of the shared
    one.
CN2. After that the connection never comes back by itself: what transactions had done at the old
    owner is rolled back. The store must be opened anew. What each request raises that was under
    way, `request_outcomes` says, as for a store object that goes to no other owner.
CN3. A connection is of use only to the process that opened it. One forked from it is told so, and
    its copies of the sockets are closed, so that the owner sees the end of the process.
- `close` takes no lock: a finaliser may call it.
CN5. An owner that is there and does not answer in time is not gone: the stream ends that waited,
    and with it what was open on it, and the connection stays. So nobody looks for another owner.
CN6. Neither is one whose socket is not at its path any more: it will make another one (EN1), or is
    about to end. Who needs a connection tries until then, for as long as opening a store takes.
"""

from __future__ import annotations

import math
import os
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

from quire.calls.errand import current
from quire.env import after_fork
from quire.env.interpreter import Lock, check_unpatched
from quire.errors import ConnectionLost, OutcomeUnknown, QuireError, RemoteError, StoreClosed
from quire.limits import (
    ANSWER_SECONDS,
    CANCEL_SECONDS,
    DEFAULT_CALL_TIMEOUT,
    JOIN_POLL_SECONDS,
    JOIN_SECONDS,
)
from quire.remote.limits import HELLO_SECONDS, MAX_IDLE_CHANNELS, MAX_WAIT_SECONDS
from quire.remote.wire.address import TcpPlace, place_of
from quire.remote.wire.protocol import Header, Role, field
from quire.remote.wire.sockets import now, tells_of_unread

from . import waits
from .channel import Channel, StreamEnded
from .multiplexed_connection import MultiplexedConnection
from .request_outcomes import OwnerEvent, Request, RequestAction, RequestProgress, action_of
from .stream_inbox import StreamInbox

if TYPE_CHECKING:
    from quire.remote.access.tokens import UserToken
    from quire.tls import Tls

_connections: Final[weakref.WeakSet[OwnerConnection]] = weakref.WeakSet()


class OwnerConnection:
    """The channels to one owner; thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        epoch: str | None = None,
        call_timeout: float = DEFAULT_CALL_TIMEOUT,
        tls: Tls | None = None,
        token: UserToken | None = None,
    ) -> None:
        """Connect to the owner at `url`, and to no other than that of `epoch`, if it is given.

        Raises ConnectionLost if nobody answers there, RemoteError if it speaks another version.
        """
        check_unpatched()
        self.url = url
        self._place = place_of(url, tls)
        self._expected_epoch = epoch
        self._token = token
        self._call_timeout = call_timeout
        self._process_id = os.getpid()
        self._is_forked = False  # it is the parent's
        self._asks_first = not tells_of_unread(self._place)
        self._idle: deque[Channel] = deque()
        self._shared: MultiplexedConnection | None = None
        self._opening = waits.ClientCondition(Lock())
        self._opener: object = None  # the caller who opens the shared connection
        # All but the watch, also those that are not let in yet.
        self._open: weakref.WeakSet[MultiplexedConnection] = weakref.WeakSet()
        self._lost: str | None = None
        self._closed = False
        try:
            seconds = min(HELLO_SECONDS, call_timeout)
            self._watch = MultiplexedConnection(self._place, self._hello(Role.WATCH), seconds)
        except StreamEnded as error:
            self._closed = True
            raise ConnectionLost(
                f"nobody answers at {url}: {error}; start the owner, or open the store by its path"
            ) from None
        except BaseException:
            self._closed = True
            raise
        _connections.add(self)
        hello = self._watch.hello
        try:
            if field(hello, "op", str) != "hello":
                raise RemoteError(f"{url} is not the owner of a store")
            self.epoch = field(hello, "epoch", str)
            self.path = field(hello, "path", str)
            self.store_id = field(hello, "store_id", int)
            self.owner_process_id = field(hello, "process_id", int)
            self.fixed_options = field({"fixed": {}, **hello}, "fixed", dict)
        except BaseException:
            self.close()
            raise

    @property
    def lost(self) -> bool:
        """Return True if the owner is gone."""
        if self._lost is None and self.usable and self._watch.has_ended():
            self.lose("it ended the connection")
        return self._lost is not None

    @property
    def usable(self) -> bool:
        """Return True if it is open, in the process that opened it."""
        return not (self._closed or self._is_forked)

    def check(self) -> None:
        """Raise what keeps this connection from being used, if anything does."""
        if self._closed or self._is_forked or self._lost is not None:
            raise self._refusal()

    def _refusal(self) -> QuireError:
        if self._closed:
            return StoreClosed("this store object was closed: open the store again")
        if self._is_forked:
            return StoreClosed(
                f"this store object was opened by process {self._process_id}, from which this one"
                " was forked: open the store here, too"
            )
        return ConnectionLost(
            f"the owner of the store is gone ({self._lost}); its open transactions are rolled"
            " back: open the store again"
        )

    def borrow(self, wait: float | None = None, *, alone: bool = False) -> Channel:
        """A channel for one thread, until `give_back`. `wait`: the time-out of its request.

        `alone`: over a connection of its own (CN4).
        """
        self.check()
        try:
            while True:
                channel = self._idle.pop()
                if not channel.connection.is_over:
                    return channel
                channel.close()
        except IndexError:
            pass
        connection = None if alone else self._shared
        if connection is None or connection.is_over:
            seconds = self._call_timeout
            if wait:
                seconds = min(seconds, wait + ANSWER_SECONDS)
            elif (errand := current()) is not None:
                seconds = min(seconds, max(0.0, errand.until - now()) + ANSWER_SECONDS)
            seconds = min(seconds, MAX_WAIT_SECONDS)
            connection = self._connect(seconds, alone) if alone else self._open_shared(seconds)
        return Channel(
            connection, self._call_timeout, self._is_at_work, asks_first=self._asks_first
        )

    def _open_shared(self, seconds: float) -> MultiplexedConnection:
        """Open the connection of all, or wait for so long until another caller has opened it."""
        until, errand, changed = now() + seconds, current(), self._opening
        with changed:
            while self._opener is not None and not waits.is_own(self._opener):
                left = until - now()
                if left <= 0 or (errand is not None and errand.withdrawn):
                    break
                # Who may give the call up does not know this lock.
                changed.wait(left if errand is None else min(left, CANCEL_SECONDS))
            shared, is_first = self._shared, self._opener is None
            if shared is not None and not shared.is_over:
                return shared
            if is_first:
                self._opener = waits.waiter()
        try:
            return self._share(self._connect(max(0.0, until - now()), False))
        finally:
            if is_first:
                with changed:
                    self._opener = None
                    changed.notify_all()

    def _share(self, connection: MultiplexedConnection) -> MultiplexedConnection:
        """Let all use a new connection, or use that of another thread that was faster."""
        other = self._shared
        if other is not None and not other.is_over:
            connection.close()
            return other
        self._shared = connection
        if other is not None and not other.streams:  # else who ends the last of them closes it
            other.close()
        return connection

    def _connect(self, seconds: float, alone: bool) -> MultiplexedConnection:
        """One more connection, within about so many seconds (CN6)."""
        until = now() + min(seconds, JOIN_SECONDS)
        while True:
            try:
                return MultiplexedConnection(
                    self._place,
                    self._hello(Role.WORK),
                    seconds,
                    self._note_beginning,
                    is_alone=alone,
                )
            except StreamEnded as error:
                ended = error
            except ConnectionLost as error:  # it is about to end, or another one listens there
                ended = StreamEnded(str(error), RequestProgress.UNSENT)
            if ended.event is not None or self.lost or not self.usable:
                raise self.error_of(ended, Request.STEP)  # as for all requests that are not sent
            if now() > until:
                raise self.error_of(self._not_let_in(ended), Request.STEP)
            waits.pause(JOIN_POLL_SECONDS)

    def _note_beginning(self, connection: MultiplexedConnection) -> None:
        self._open.add(connection)
        if self._closed:
            connection.cut()

    def _not_let_in(self, error: StreamEnded) -> StreamEnded:
        return StreamEnded(
            f"process {self.owner_process_id} owns the store and cannot be reached at {self.url} "
            f"({error}): see to it that nothing else is there, or stop that process",
            RequestProgress.UNSENT,
            OwnerEvent.LATE,
        )

    def give_back(self, channel: Channel) -> None:
        """The channel carries no transaction any more."""
        connection = channel.connection
        if channel.broken or connection.is_over or len(self._idle) >= MAX_IDLE_CHANNELS:
            self._drop(channel)
            return
        connection.finish(channel.inbox)
        self._idle.append(channel)
        if self._closed:
            self._end_idle()

    def _is_at_work(self, connection: MultiplexedConnection, inbox: StreamInbox) -> bool:
        """Return True if the owner answers others; nothing more is requested of it."""
        if self._closed or self._lost is not None:
            return False
        seconds = min(HELLO_SECONDS, self._call_timeout / 4)
        return connection.answers(inbox, seconds)

    def _drop(self, channel: Channel) -> None:
        if self._is_forked:
            return
        if channel.broken or channel.connection.is_alone:
            channel.close()
        else:
            channel.pause()
            channel.ended = True
        connection = channel.connection
        if connection.is_over and not connection.streams:
            connection.close()

    def lose(self, reason: str) -> None:
        """Give the connection up (CN2).

        Others that are under way end by themselves: an owner that closes still answers them.
        """
        self._lost = self._lost or reason
        self._watch.cut()
        self._end_idle()

    def error_of(
        self, ended: StreamEnded, request: Request, doing: str = "", look: str = ""
    ) -> QuireError:
        """Return the error of a request whose stream has ended, and lose an owner that is gone.

        `doing` and `look` are for OutcomeUnknown: what it is, and how its outcome is found out.
        """
        if self._closed:
            event = OwnerEvent.CLOSED
        elif ended.event is not None and self._lost is None:  # (CN5)
            event = ended.event
        else:
            event = OwnerEvent.LAST_OWNER
            self.lose(str(ended))
        action = action_of(request, ended.progress, event)
        if action is RequestAction.STORE_CLOSED:
            return StoreClosed("this store object was closed during the operation")
        error: RemoteError
        if action is RequestAction.OUTCOME_UNKNOWN:
            error = OutcomeUnknown(
                f"the owner of the store was lost during {doing} ({ended}): look {look}"
            )
        elif event is OwnerEvent.LAST_OWNER:
            error = ConnectionLost(
                f"the owner of the store is gone ({self._lost}); nothing of this operation took"
                " effect: open the store again"
            )
        else:
            error = ConnectionLost(
                f"{ended}; nothing of this operation takes effect, and an open transaction that it"
                " was part of is rolled back: try again later"
            )
        error.late = event in (OwnerEvent.LATE, OwnerEvent.CANCELLED)
        return error

    def wait_for_end(self, seconds: float = math.inf) -> bool:
        """Until it is lost, or closed. False: it goes on after so many seconds."""
        return self._watch.wait_for_end(seconds)

    def close(self) -> None:
        """End all connections; what is open on them is rolled back. Twice is once."""
        if self._closed:
            return
        self._closed = True
        if self._is_forked:
            return
        self._end_idle()
        for connection in [*self._open, self._watch]:
            connection.close()

    def abandon(self) -> None:
        """In the child of a fork (CN3)."""
        self._is_forked = True
        if self._closed:
            return
        for connection in (self._watch, *self._open):
            connection.abandon()

    def _hello(self, role: Role) -> Header:
        is_beating = role is Role.WORK and isinstance(self._place, TcpPlace)  # (HB1)
        return {
            **({"heartbeats": True} if is_beating else {}),
            **({} if self._token is None else {"token": self._token.text}),
            "op": "hello",
            "role": role.value,
            "epoch": self._expected_epoch,
            "process_id": self._process_id,
        }

    def _end_idle(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:
                break


def _abandon_in_child(parent: int) -> None:
    for connection in list(_connections):
        connection.abandon()


after_fork(_abandon_in_child)
