"""A client's connection to a store's owner: its channels, and how it learns that the owner is gone.

- One channel, the watch, carries nothing: its end tells that the owner is gone, to whoever asks
  (`lost`); there is no thread. Any other operation finds it out as it sends or waits.
CN2. After that the connection never comes back by itself: what transactions had done at the old
    owner is rolled back. The store must be opened anew. What each request raises that was under
    way, `request_outcomes` says, as for a store object that goes to no other owner.
CN3. A connection is of use only to the process that opened it. One forked from it is told so, and
    its copies of the sockets are closed, so that the owner sees the end of the process.
- `close` takes no lock: a finaliser may call it.
CN5. An owner that is there and does not answer in time is not gone: the channel ends that waited,
    and with it what was open on it, and the connection stays. So nobody looks for another owner.
CN6. Neither is one whose socket is not at its path any more: it will make another one (EN1), or is
    about to end. Who needs a channel tries until then, for as long as opening a store takes.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

from quire.calls.errand import current
from quire.calls.signal_safety import waiting
from quire.env import after_fork
from quire.env.interpreter import check_unpatched
from quire.errors import ConnectionLost, OutcomeUnknown, QuireError, RemoteError, StoreClosed
from quire.limits import (
    ANSWER_SECONDS,
    DEFAULT_CALL_TIMEOUT,
    JOIN_POLL_SECONDS,
    JOIN_SECONDS,
)
from quire.remote.limits import HELLO_SECONDS, LAST_STREAM, MAX_IDLE_CHANNELS, MAX_WAIT_SECONDS
from quire.remote.wire.address import place_of
from quire.remote.wire.protocol import Header, Role, field
from quire.remote.wire.sockets import now

from .channel import Channel, StreamEnded
from .overdue_requests import overdue
from .request_outcomes import OwnerEvent, Request, RequestAction, RequestProgress, action_of

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
        self._idle: deque[Channel] = deque()
        self._channels: set[Channel] = set()  # all, but the watch
        # Those that are not let in yet: who closes the store cuts them, too.
        self._beginning: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._lost: str | None = None
        self._closed = False
        try:
            seconds = min(HELLO_SECONDS, call_timeout)
            self._watch = Channel(self._place, self._hello(Role.WATCH), seconds)
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

    def borrow(self, wait: float | None = None) -> Channel:
        """A channel for one thread, until `give_back`. `wait`: the time-out of its request."""
        self.check()
        try:
            return self._idle.pop()
        except IndexError:
            pass
        seconds = self._call_timeout
        if wait:
            seconds = min(seconds, wait + ANSWER_SECONDS)
        elif (errand := current()) is not None:
            seconds = min(seconds, max(0.0, errand.until - now()) + ANSWER_SECONDS)
        channel = self._new_channel(min(seconds, MAX_WAIT_SECONDS))
        self._channels.add(channel)
        overdue.watch(channel)
        if self._closed:
            self._drop(channel)
            raise StoreClosed("this store object was closed: open the store again")
        return channel

    def _new_channel(self, seconds: float) -> Channel:
        """One more, within about so many seconds (CN6)."""
        until = now() + min(seconds, JOIN_SECONDS)
        while True:
            try:
                return Channel(
                    self._place,
                    self._hello(Role.WORK),
                    seconds,
                    self._call_timeout,
                    self._is_at_work,
                    self._note_beginning,
                )
            except StreamEnded as error:
                ended = error
            except ConnectionLost as error:  # it is about to end, or another one listens there
                ended = StreamEnded(str(error), RequestProgress.UNSENT)
            if ended.event is not None or self.lost or not self.usable:
                raise self.error_of(ended, Request.STEP)  # as for all requests that are not sent
            if now() > until:
                raise self.error_of(self._not_let_in(ended), Request.STEP)
            waiting(time.sleep, JOIN_POLL_SECONDS)

    def _note_beginning(self, channel: Channel) -> None:
        self._beginning.add(channel)
        if self._closed:
            channel.cut()

    def _not_let_in(self, error: StreamEnded) -> StreamEnded:
        return StreamEnded(
            f"process {self.owner_process_id} owns the store and cannot be reached at {self.url} "
            f"({error}): see to it that nothing else is there, or stop that process",
            RequestProgress.UNSENT,
            OwnerEvent.LATE,
        )

    def give_back(self, channel: Channel) -> None:
        """The channel carries no transaction any more."""
        if (
            not channel.broken
            and channel.stream < LAST_STREAM
            and len(self._idle) < MAX_IDLE_CHANNELS
        ):
            self._idle.append(channel)
            if not self._closed:
                return
            try:
                self._idle.remove(channel)
            except ValueError:  # who closes has it
                return
        self._drop(channel)

    def _is_at_work(self) -> bool:
        """Return True if the owner answers other connections; nothing more is requested of it."""
        if self._closed or self._lost is not None:
            return False
        seconds = min(HELLO_SECONDS, self._call_timeout / 4)
        try:
            Channel(self._place, self._hello(Role.WORK), seconds).close()
        except StreamEnded:
            return False
        except QuireError:  # it says why not
            return True
        return True

    def _drop(self, channel: Channel) -> None:
        self._channels.discard(channel)
        channel.close()

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

    def wait_for_end(self, seconds: float | None = None) -> bool:
        """Until it is lost, or closed. False: it goes on after so many seconds."""
        return self._watch.wait_for_end(seconds)

    def close(self) -> None:
        """End all channels; what is open on them is rolled back. Twice is once."""
        if self._closed:
            return
        self._closed = True
        if self._is_forked:
            return
        self._end_idle()
        for channel in [*self._channels, *self._beginning]:
            waits = channel.broken  # for an answer: who does lets go of it
            channel.cut()
            if not waits:
                channel.close()
        self._watch.cut()
        self._watch.close()

    def abandon(self) -> None:
        """In the child of a fork (CN3)."""
        self._is_forked = True
        if self._closed:
            return
        for channel in (self._watch, *self._channels):
            channel.close()

    def _hello(self, role: Role) -> Header:
        return {
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
