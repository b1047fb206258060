"""The sources that a joined store object awaits messages of, for all of its users.

- One channel carries all of it, and one thread reads there, however many wait.
- For each source at most one AWAIT is on its way or at the owner. Its READY is for all that wait
  for the source then; whoever finds nothing asks again.
- When the channel ends, with the owner or by `close`, or there can be none, all that wait are
  called: they look again, and meet the error or the next owner.
- AW4: that thread alone waits for the owner to let the channel in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from quire.calls.signal_safety import OwnLock
from quire.calls.wake_up import Thread
from quire.env.interpreter import Lock
from quire.errors import QuireError, RemoteError
from quire.remote.limits import MAX_AWAITED
from quire.remote.wire.protocol import AWAIT, CONNECTION, HEAD, READY

from .channel import Channel, StreamEnded
from .connection import OwnerConnection

_Callbacks = dict[object, Callable[[], None]]


class Awaiting:
    """The sources that a joined store awaits messages of, for all of its users. Thread-safe."""

    def __init__(self, connection: OwnerConnection) -> None:
        self._connection = connection
        self._sending = OwnLock(threading.Lock())
        self._channel: Channel | None = None
        self._reader: threading.Thread | None = None
        self._lock = Lock()
        self._callbacks: dict[str, _Callbacks] = {}  # by source

    def add(self, source: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Have it called when something may be got from the source; what withdraws it.

        Raises ConnectionLost, StoreClosed, RemoteError.
        """
        self._connection.check()
        key = object()
        with self._lock:
            callbacks = self._callbacks.get(source)
            is_first = callbacks is None
            if callbacks is None:
                if len(self._callbacks) >= MAX_AWAITED:
                    raise RemoteError(
                        f"this store object waits for {MAX_AWAITED} sources, as many as it may: "
                        "open another one"
                    )
                self._callbacks[source] = callbacks = {}
            callbacks[key] = callback
        if is_first:
            self._send(source)

        def withdraw() -> None:
            callbacks.pop(key, None)

        return withdraw

    def _send(self, source: str) -> None:
        """Tell the owner; nobody waits here for one that does not answer (AW4)."""
        try:
            with self._sending:
                if self._reader is None:
                    self._reader = reader = Thread(target=self._read, name="quire-await")
                    reader.start()  # which tells all sources
                elif self._channel is not None:
                    self._tell(self._channel, [source])
        except StreamEnded:  # the channel's thread finds it, too
            self._call_all()
        except BaseException:
            self._call_all()
            raise

    def _tell(self, channel: Channel, sources: list[str]) -> None:
        for source in sources:
            frame = HEAD.pack(len(source.encode()), AWAIT, CONNECTION) + source.encode()
            channel.tell(lambda _, frame=frame: [frame])  # type: ignore[misc]

    def _read(self) -> None:
        """The thread: until the channel ends."""
        channel: Channel | None = None
        try:
            channel = self._connection.borrow(alone=True)
            with self._sending:
                with self._lock:
                    sources = list(self._callbacks)
                self._channel = channel
                self._tell(channel, sources)
            while True:
                data = channel.next_frame()
                if data[4] == READY:
                    with self._lock:
                        callbacks = self._callbacks.pop(str(data[HEAD.size :], "utf-8"), {})
                    _call(callbacks)
        except (StreamEnded, QuireError):  # who is called finds it out
            pass
        finally:
            with self._sending:
                self._channel = self._reader = None
            if channel is not None:
                channel.broken = True
                self._connection.give_back(channel)
            self._call_all()

    def _call_all(self) -> None:
        with self._lock:
            waiting, self._callbacks = self._callbacks, {}
        for callbacks in waiting.values():
            _call(callbacks)


def _call(callbacks: _Callbacks) -> None:
    while callbacks:
        try:
            callback = callbacks.popitem()[1]
        except KeyError:  # it was withdrawn in between
            break
        callback()
