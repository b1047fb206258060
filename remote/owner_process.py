"""A process of its own that owns a store for as long as others need it.

Starting one is safe however many processes try at once: the store's lock decides which of the
started owners stays, and the others end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from quire.env import Env

from .address import make_run_directory
from .limits import LOG_TAIL_BYTES

LOG_NAME: Final = "serve.log"
LOCKED_EXIT_STATUS: Final = 75  # of `quire serve`: another process owns the store
_TO_LOG: Final = 'exec "$@" >>"$0" 2>&1'


@contextmanager
def told_to_end() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, for as long as the block lasts.

    Only the main thread can ask for signals; elsewhere nobody sets it.
    """
    event = threading.Event()
    with ExitStack() as handlers:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before = signal.signal(number, lambda *_: event.set())
                handlers.callback(signal.signal, number, before)
        yield event


@contextmanager
def on_hangup(action: Callable[[], None]) -> Iterator[None]:
    """SIGHUP lets a thread do something, for as long as the block lasts, instead of ending it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, ended = threading.Event(), threading.Event()

    def run() -> None:
        while told.wait() and not ended.is_set():
            told.clear()
            action()

    before = signal.signal(signal.SIGHUP, lambda *_: told.set())
    thread = threading.Thread(target=run, name="quire-hangup", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        ended.set()
        told.set()
        thread.join()


class OwnerProcess:
    """A started `quire serve`, detached from this process."""

    def __init__(self, env: Env, path: str, linger: float, *, create: bool = True) -> None:
        path = os.path.abspath(path)
        self._log = os.path.join(make_run_directory(env, path), LOG_NAME)
        command = [sys.executable, "-m", "quire", "serve", path, "--linger", str(linger)]
        if not create:
            command.append("--no-create")
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _TO_LOG, self._log, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        # Reaps it when it ends, should that be before this process does.
        threading.Thread(target=self._process.wait, name="quire-reap", daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    @property
    def has_failed(self) -> bool:
        """Whether it ended by an error: not by a signal, nor because another owns the store."""
        status = self._process.poll() or 0
        return status > 0 and status != LOCKED_EXIT_STATUS

    def last_words(self) -> str:
        """The last line that an owner of the store wrote to the log."""
        try:
            with open(self._log, "rb") as file:
                file.seek(max(0, os.path.getsize(self._log) - LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")
