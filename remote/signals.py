"""What a process that owns a store does when it is sent a signal.

A signal handler runs in the midst of whatever the main thread does, perhaps while that holds the
lock of the very object that the handler would use. So a handler here writes a byte to a socket and
nothing else; whoever waits reads the socket.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress


class SignalFlag:
    """A flag that a signal handler may set at any moment, and that threads wait for."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def set(self) -> None:
        """Set the flag. Takes no lock."""
        with suppress(BlockingIOError):  # full: it has long been set
            self._writer.send(b"x")

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the flag is set, at the latest after so many seconds."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def clear(self) -> None:
        """Unset the flag."""
        with suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        """Give back its files. Nobody waits any more."""
        self._reader.close()
        self._writer.close()


@contextmanager
def told_to_end() -> Iterator[SignalFlag]:
    """A flag that SIGTERM and SIGINT set, for as long as the block lasts.

    Only the main thread can ask for signals; elsewhere nobody sets it.
    """
    flag = SignalFlag()
    with ExitStack() as handlers:
        handlers.callback(flag.close)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before = signal.signal(number, lambda *_: flag.set())
                handlers.callback(signal.signal, number, before)
        yield flag


@contextmanager
def on_hangup(action: Callable[[], None]) -> Iterator[None]:
    """SIGHUP lets a thread do something, for as long as the block lasts, instead of ending it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    flag, ended = SignalFlag(), threading.Event()

    def run() -> None:
        while flag.wait() and not ended.is_set():
            flag.clear()
            action()

    before = signal.signal(signal.SIGHUP, lambda *_: flag.set())
    thread = threading.Thread(target=run, name="quire-hangup", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        ended.set()
        flag.set()
        thread.join()
        flag.close()
