"""A process of its own that owns a store for as long as others need it.

Starting one is safe however many processes try at once: the store's lock decides which of the
started owners stays, and the others end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from quire.calls.wake_up import Thread
from quire.env import Env
from quire.remote.limits import LOG_TAIL_BYTES
from quire.remote.wire.address import make_run_directory

LOG_NAME: Final = "serve.log"
LOCKED_EXIT_STATUS: Final = 75  # of `quire serve`: another process owns the store
_TO_LOG: Final = 'exec "$@" >>"$0" 2>&1'


class OwnerProcess:
    """A started `quire serve`, detached from this process; `further`: more of its options."""

    def __init__(
        self,
        env: Env,
        path: str,
        linger: float,
        *,
        create: bool = True,
        further: Sequence[str] = (),
    ) -> None:
        path = os.path.abspath(path)
        self._log = os.path.join(make_run_directory(env, path), LOG_NAME)
        command = [sys.executable, "-m", "quire", "serve", path, "--no-wait"]
        command += ["--linger", str(linger), *further]
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
        Thread(target=self._process.wait, name="quire-reap").start()

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    @property
    def has_failed(self) -> bool:
        """True if it ended by an error: not by a signal, nor because another owns the store."""
        status = self._process.poll() or 0
        return status > 0 and status != LOCKED_EXIT_STATUS

    def last_log_line(self) -> str:
        """The last line that an owner of the store wrote to the log."""
        try:
            with open(self._log, "rb") as file:
                file.seek(max(0, os.path.getsize(self._log) - LOG_TAIL_BYTES))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")
