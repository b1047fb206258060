"""A client's connection to a store's owner: its streams, and how it learns that the owner is gone.

CN1. One stream, the watch, carries nothing: its end tells at once that the owner is gone.
CN2. After that every operation raises ConnectionLost, and the connection never comes back by
    itself: what transactions had done at the old owner is rolled back. The store must be opened
    anew. What was under way and may have changed something raises OutcomeUnknown, if it had been
    sent.
CN3. A connection is of use only to the process that opened it, not to one forked from it.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Final

from quire.errors import ConnectionLost, OutcomeUnknown, QuireError, RemoteError, StoreClosed

from .channel import Channel, StreamEnded
from .fork_guard import check_flight, guard
from .limits import HELLO_SECONDS, MAX_IDLE_STREAMS
from .protocol import Frame, Header, Role, field
from .transport import FlightClient

_OPTIONS: Final = [
    ("grpc.use_local_subchannel_pool", 1),  # no waiting for a back-off of an earlier connection
    ("grpc.min_reconnect_backoff_ms", int(HELLO_SECONDS * 1000)),  # the time-out of connecting
    ("grpc.enable_http_proxy", 0),
]


class Connection:
    """The streams to one owner; thread-safe."""

    def __init__(self, url: str, *, epoch: str | None = None) -> None:
        """Connect to the owner at `url`, and to no other than that of `epoch`, if it is given.

        Raises ConnectionLost if nobody answers there, RemoteError in a process whose parent did so.
        """
        check_flight()
        from pyarrow import flight

        self.url = url
        self._expected_epoch = epoch
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[Channel] = []
        self._in_use: set[Channel] = set()
        self._lost: str | None = None
        self._closed = False
        try:
            self._flight: FlightClient = flight.FlightClient(url, generic_options=_OPTIONS)
        except (OSError, ValueError) as error:
            raise ConnectionLost(f"cannot connect to {url}: {error}") from None
        guard(self)
        atexit.register(self.close)
        try:
            hello = self._start_watch()
        except BaseException:
            self.close()
            raise
        self.epoch = field(hello.header, "epoch", str)
        self.path = field(hello.header, "path", str)
        self.store_id = field(hello.header, "store_id", int)
        self.owner_process_id = field(hello.header, "process_id", int)

    def flight_objects(self) -> list[object]:
        """See `fork_guard`."""
        return [self._flight]

    @property
    def lost(self) -> bool:
        """Whether the owner is gone."""
        return self._lost is not None

    @property
    def usable(self) -> bool:
        """Whether it is open, in the process that opened it."""
        return not self._closed and self._process_id == os.getpid()

    def check(self) -> None:
        """Raise what keeps this connection from being used, if anything does."""
        if self._closed:
            raise StoreClosed("this store object was closed: open the store again")
        if self._process_id != os.getpid():
            raise StoreClosed(
                f"this store object was opened by process {self._process_id}, from which this one"
                " was forked: open the store in a process that was started anew"
            )
        if self._lost is not None:
            raise ConnectionLost(
                f"the owner of the store is gone ({self._lost}); its open transactions are rolled"
                " back: open the store again"
            )

    def borrow(self) -> Channel:
        """A channel for one thread, until `give_back`."""
        self.check()
        with self._lock:
            if self._idle:
                channel = self._idle.pop()
                self._in_use.add(channel)
                return channel
        try:
            channel = Channel(self._flight, self._hello(Role.WORK))
            channel.receive_hello()
        except StreamEnded as error:
            raise self.lose(str(error)) from None
        with self._lock:
            if not self._closed:
                self._in_use.add(channel)
                return channel
        channel.close()
        raise StoreClosed("this store object was closed: open the store again")

    def give_back(self, channel: Channel) -> None:
        """The channel carries no transaction any more."""
        with self._lock:
            self._in_use.discard(channel)
            if not channel.broken and not self._closed and len(self._idle) < MAX_IDLE_STREAMS:
                self._idle.append(channel)
                return
        channel.close()

    def lose(self, reason: str) -> ConnectionLost | StoreClosed:
        """Give the connection up (CN2); the error for an operation that was under way."""
        if self._closed:
            return StoreClosed("this store object was closed during the operation")
        self._lost = self._lost or reason
        self._end_streams()
        return ConnectionLost(
            f"the owner of the store is gone ({self._lost}); nothing of this operation took effect:"
            " open the store again"
        )

    def lose_request(self, error: StreamEnded, doing: str, look: str) -> QuireError:
        """The error for a request whose effect nobody tells any more, if it was sent."""
        lost = self.lose(str(error))
        if not error.sent:
            return lost
        return OutcomeUnknown(
            f"the owner of the store was lost during {doing} ({error}): open the store again and"
            f" look {look}"
        )

    def close(self) -> None:
        """End all streams; what is open on them is rolled back. Twice is once."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        if self._process_id != os.getpid():
            return
        self._end_streams()
        if self._watch is not None:
            self._watch.cancel()
        if self._watcher is not threading.current_thread():
            self._watcher.join(1.0)  # it closes the stream
        self._flight.close()

    _watch: Channel | None = None
    _watcher: threading.Thread

    def _hello(self, role: Role) -> Header:
        return {
            "op": "hello",
            "role": role.value,
            "epoch": self._expected_epoch,
            "process_id": self._process_id,
        }

    def _start_watch(self) -> Frame:
        """Open the watch stream, and wait for the owner's hello but not for ever."""
        answered = threading.Event()
        hello: list[Frame] = []
        failure: list[Exception] = []

        def run() -> None:
            try:
                watch = self._watch = Channel(self._flight, self._hello(Role.WATCH))
                hello.append(watch.receive_hello())
            except Exception as error:  # noqa: BLE001 raised again below
                failure.append(error)
                return
            finally:
                answered.set()
            reason = watch.wait_for_end()
            watch.close()
            if not self._closed:
                self.lose(reason)

        self._watcher = threading.Thread(target=run, name="quire-watch", daemon=True)
        self._watcher.start()
        if not answered.wait(HELLO_SECONDS):
            raise ConnectionLost(f"{self.url} does not answer within {HELLO_SECONDS:.0f} seconds")
        if failure:
            if isinstance(failure[0], StreamEnded):
                raise ConnectionLost(f"nobody answers at {self.url}: {failure[0]}") from None
            raise failure[0]
        if field(hello[0].header, "op", str) != "hello":
            raise RemoteError(f"{self.url} is not the owner of a store")
        return hello[0]

    def _end_streams(self) -> None:
        with self._lock:
            channels = [*self._idle, *self._in_use]
            self._idle.clear()
        for channel in channels:
            channel.close()
