"""A server of a benchmark, in a process of its own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

START_SECONDS = 60.0


class ServerProcess:
    """A process that serves until it is stopped."""

    def __init__(
        self,
        command: Sequence[str],
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        stderr: int | None = None,
    ) -> None:
        """Start it, and wait until it is ready. Raises RuntimeError."""
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=stderr
        )
        deadline = time.monotonic() + START_SECONDS
        try:
            while not is_ready():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command!r} did not start")
                time.sleep(0.02)
        except BaseException:
            self.stop()
            raise

    @property
    def process_ids(self) -> list[int]:
        """The processes that work for its clients."""
        return [self._process.pid]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
