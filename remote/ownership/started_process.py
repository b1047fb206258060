"""A Python process that is started beside this one, and logs into the store's run directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from quire.calls.wake_up import Thread
from quire.env import Env
from quire.remote.limits import LOG_TAIL_BYTES
from quire.remote.wire.address import make_run_directory

_TO_LOG: Final = 'exec "$@" >>"$0" 2>&1'
_TO_NEW_LOG: Final = 'exec "$@" >"$0" 2>&1'


class StartedProcess:
    """A started `python -m`, in a session of its own; a thread waits for its end."""

    def __init__(
        self, env: Env, path: str, arguments: Sequence[str], log: str, *, ends_with_us: bool = False
    ) -> None:
        """`log`: the name of its log. `ends_with_us`: its standard input ends with this process,
        and has a byte when `release` is called; its log begins anew."""
        self._log = os.path.join(make_run_directory(env, os.path.abspath(path)), log)
        self._process = subprocess.Popen(
            [
                "/bin/sh", "-c", _TO_NEW_LOG if ends_with_us else _TO_LOG, self._log,
                sys.executable, "-m", *arguments,
            ],
            stdin=subprocess.PIPE if ends_with_us else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )  # fmt: skip
        # Reaps it when it ends, should that be before this process does.
        Thread(target=self._process.wait, name="quire-reap").start()

    @property
    def process_id(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    @property
    def status(self) -> int:
        """The exit status, 0 while it runs; less than 0: a signal has ended it."""
        return self._process.poll() or 0

    def release(self) -> None:
        """Have it end: a byte says so, as a forked child may hold its standard input open."""
        if self._process.stdin is not None:
            with suppress(OSError, ValueError):  # it has ended by itself, or is told already
                self._process.stdin.write(b"\n")
            with suppress(OSError):
                self._process.stdin.close()

    def wait(self, seconds: float) -> bool:
        """Wait for its end, for so long at most; return True if it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it at once, if it runs."""
        self._process.kill()

    def last_log_line(self) -> str:
        """The last line that was written to the log."""
        try:
            with open(self._log, "rb") as file:
                file.seek(max(0, os.path.getsize(self._log) - LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")
