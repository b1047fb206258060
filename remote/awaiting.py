"""The sources that a joined store object awaits messages of, for all of its users.

- AW1: one channel carries all of it, and one thread reads there, however many wait.
- AW2: for each source at most one AWAIT is on its way or at the owner. Its READY is for all that
  wait for the source then; whoever finds nothing asks again.
- AW3: when the channel ends, with the owner or by `close`, all that wait are called: they look
  again, and meet the error or the next owner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from quire.errors import RemoteError
from quire.uninterrupted import OwnLock

from .channel import Channel, StreamEnded
from .connection import Connection
from .limits import MAX_AWAITED
from .protocol import AWAIT, HEAD, READY

_Callbacks = dict[object, Callable[[], None]]


class Awaiting:
    """See the module. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = OwnLock(threading.Lock())
        self._channel: Channel | None = None
        self._lock = threading.Lock()
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
        name = source.encode()
        try:
            with self._sending:
                channel = self._channel
                if channel is None:
                    channel = self._channel = self._connection.borrow()
                    reader = threading.Thread(
                        target=self._read, args=(channel,), name="quire-await", daemon=True
                    )
                    reader.start()
                channel.tell([HEAD.pack(len(name), AWAIT) + name])
        except StreamEnded:  # the channel's thread finds it, too
            self._call_all()
        except BaseException:
            self._call_all()
            raise

    def _read(self, channel: Channel) -> None:
        """The thread: until the channel ends."""
        try:
            while True:
                data = channel.next_frame()
                if data[4] == READY:
                    with self._lock:
                        callbacks = self._callbacks.pop(str(data[HEAD.size :], "utf-8"), {})
                    _call(callbacks)
        except StreamEnded:
            pass
        finally:
            with self._sending:
                self._channel = None
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
