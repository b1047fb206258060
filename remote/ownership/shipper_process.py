"""The shipper beside an owner: started, watched, ended.

- SP1: it is a process of its own that has joined the store: commits do not share an interpreter
  with it, what reaches object stores is loaded where nothing forks, and whatever it does to itself
  the store goes on. It ends with the owner: its standard input does, and its connection.
- SP2: one that has ended is started again, after a pause that grows. One that says nothing for
  `SILENT_SECONDS` is killed: whatever it waits for, each of its calls is bounded.
- SP3: an owner that is closed lets it ship what is there, for `LAST_SHIPPING_SECONDS` at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import QuireError
from quire.loggers import logger
from quire.remote.limits import (
    LAST_SHIPPING_SECONDS,
    MAX_RESTART_SECONDS,
    RESTART_SECONDS,
    SILENT_SECONDS,
)

from .started_process import StartedProcess

_MODULE: Final = "quire.archive.shipping"
_LOG_NAME: Final = "archive.log"
_log = logger("quire.archive")


class ShipperProcess:
    """The shipper of one owned store, if the store has an archive."""

    def __init__(
        self,
        env: Env,
        path: str,
        has_archive: Callable[[], bool],
        calls: Callable[[], int],
        helpers: set[int],
    ) -> None:
        """`has_archive`: the store has an archive now; `calls`: so often a shipper has called;
        `helpers`: where its process is noted."""
        self._env = env
        self._path = path
        self._has_archive, self._calls = has_archive, calls
        self._known_calls = 0
        self._helpers = helpers
        self._lock = Lock()
        self._process: StartedProcess | None = None
        self._is_closed = False
        self._start_at = 0.0
        self._pause = RESTART_SECONDS
        self._called_at = 0.0

    @property
    def process_id(self) -> int | None:
        """The id of its process; None: none runs."""
        process = self._process
        return process.process_id if process is not None and process.is_running else None

    def look(self) -> None:
        """Start it, or start it again (SP2). Called now and then; must not raise.

        It goes by itself where the archive was taken off: its calls say so.
        """
        process, now = self._process, self._env.monotonic()
        if process is not None and process.is_running:
            if (calls := self._calls()) != self._known_calls:
                self._known_calls, self._called_at, self._pause = calls, now, RESTART_SECONDS
            elif now - self._called_at > SILENT_SECONDS:
                _log.warning("the shipper of %s does not answer: it is started again", self._path)
                process.kill()
            return
        if process is not None:
            process.release()
            self._process = None
            self._helpers.discard(process.process_id)  # which may be a client's from now on
        if not self._has_archive():
            self._start_at = 0.0
            return
        if process is not None:
            if process.status:
                text = "the shipper of %s has ended (status %d): %s; it is started again"
                _log.warning(text, self._path, process.status, process.last_log_line())
            self._start_at, self._pause = (
                now + self._pause,
                min(2 * self._pause, MAX_RESTART_SECONDS),
            )
        if now >= self._start_at:
            self._start(now)

    def _start(self, now: float) -> None:
        with self._lock:
            if self._is_closed:
                return
            try:
                # Its standard input ends with this process (SP1).
                self._process = StartedProcess(
                    self._env, self._path, [_MODULE, self._path], _LOG_NAME, ends_with_us=True
                )
            except (OSError, QuireError) as error:
                _log.warning("the shipper of %s cannot be started: %s", self._path, error)
                self._start_at = now + self._pause
                self._pause = min(2 * self._pause, MAX_RESTART_SECONDS)
            else:
                self._helpers.add(self._process.process_id)
            self._called_at = now

    def close(self, *, seconds: float = LAST_SHIPPING_SECONDS) -> None:
        """Let it ship what is there, for so long at most, and end it (SP3)."""
        with self._lock:
            self._is_closed = True
            process, self._process = self._process, None
        if process is not None:
            process.release()
            if not process.wait(seconds):
                process.kill()
