"""The process that owns a store and its environment: signals, and what a service manager learns.

A signal handler runs in the midst of whatever the main thread does, perhaps while that holds the
lock of the very object that the handler would use. So a handler here writes a byte to a socket and
nothing else; whoever waits reads the socket. A service manager is notified by the protocol of
sd_notify(3).
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from quire.calls.wake_up import Thread
from quire.env import socket_pair


class SignalFlag:
    """A flag that a signal handler may set at any moment, and that threads wait for."""

    def __init__(self) -> None:
        self._reader, self._writer = socket_pair()
        self._wakes: socket.socket | None = None
        self._process_id = os.getpid()
        self.signals = 0  # so many have set it

    def set(self) -> None:
        """Set the flag. Takes no lock."""
        with suppress(BlockingIOError):  # full: it has long been set
            self._writer.send(b"x")

    def set_by(self, number: int) -> None:
        """Set the flag by a signal's handler. A forked child has its parent's, and ends by it."""
        if self._process_id == os.getpid():
            self.signals += 1
            self.set()
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def wait(self, timeout: float | None = None) -> bool:
        """Return True if the flag is set, at the latest after so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        wakes = self._wakes if threading.current_thread() is threading.main_thread() else None
        if wakes is not None:
            poll.register(wakes, select.POLLIN)
        while True:
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            found = {number for number, _ in poll.poll(left)}
            if wakes is None or wakes.fileno() not in found or self._reader.fileno() in found:
                return self._reader.fileno() in found
            _drain(wakes)  # the handlers of what came run now

    @contextmanager
    def woken_by_signals(self) -> Iterator[None]:
        """Let every signal end a `wait` of the main thread for a moment, so that handlers run.

        The system wakes a thread that waits already. A signal that comes the moment before, or is
        given to another thread, would have its handler wait for the next one.
        """
        self._wakes, waker = socket_pair()
        before = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            wakes, self._wakes = self._wakes, None
            wakes.close()
            waker.close()

    def fileno(self) -> int:
        """Return the file that is readable once the flag is set, for who waits for others, too."""
        return self._reader.fileno()

    def clear(self) -> None:
        """Unset the flag."""
        _drain(self._reader)

    def close(self) -> None:
        """Give back its files. Nobody waits any more."""
        self._reader.close()
        self._writer.close()


def _drain(reader: socket.socket) -> None:
    with suppress(BlockingIOError):
        while reader.recv(4096):
            pass


@contextmanager
def stop_on_signals() -> Iterator[SignalFlag]:
    """A flag that SIGTERM and SIGINT set, for as long as the block lasts.

    Only the main thread can ask for signals; elsewhere nobody sets it.
    """
    flag = SignalFlag()
    with ExitStack() as handlers:
        handlers.callback(flag.close)
        if threading.current_thread() is threading.main_thread():
            handlers.enter_context(flag.woken_by_signals())
            for number in (signal.SIGTERM, signal.SIGINT):
                before = signal.signal(number, lambda number, _: flag.set_by(number))
                handlers.callback(signal.signal, number, before)
        yield flag


@contextmanager
def on_hangup(action: Callable[[], None]) -> Iterator[None]:
    """SIGHUP lets a thread do something, for as long as the block lasts, instead of ending it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    flag, ended = SignalFlag(), list[None]()

    def run() -> None:
        while flag.wait() and not ended:
            flag.clear()
            action()

    before = signal.signal(signal.SIGHUP, lambda number, _: flag.set_by(number))
    thread = Thread(target=run, name="quire-hangup")
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        ended.append(None)
        flag.set()
        thread.join()
        flag.close()


READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

_log = logging.getLogger("quire.remote")


def notify(state: str) -> None:
    """Tell it, if there is one: NOTIFY_SOCKET says where it listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # a name that is no file's
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.connect(address)
            manager.sendall(state.encode())
    except OSError as error:
        _log.warning("the service manager at NOTIFY_SOCKET cannot be told %r: %s", state, error)
