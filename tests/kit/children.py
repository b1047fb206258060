"""Child processes of a test: a snippet of Python each, talked to by lines, ended by their id."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import quire.remote
from quire.env import OsEnv
from quire.remote import JoinedStore
from tests.kit.fork_server import ForkedProcess
from tests.kit.waiting import SECONDS


class Child:
    """A Python process that runs `code`, with its arguments in `sys.argv[1:]`."""

    def __init__(self, code: str, *arguments: str) -> None:
        self.process = ForkedProcess(code, *arguments)

    def line(self) -> str:
        """The next line that it prints; empty if it ends or says nothing for long."""
        timer = threading.Timer(SECONDS, self.process.kill)
        timer.start()
        try:
            return self.process.stdout.readline().strip()
        finally:
            timer.cancel()

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.process.kill()
        self.process.wait(SECONDS)

    def wait(self) -> int:
        """Its exit status."""
        return self.process.wait(SECONDS)

    def close(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def child(code: str, *arguments: str) -> Iterator[Child]:
    """A child for the length of a block."""
    process = Child(code, *arguments)
    try:
        yield process
    finally:
        process.close()


def join(path: str) -> JoinedStore:
    """The store of an owner that runs, for as long as that one lives."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        store = quire.remote.join(OsEnv(), path)
        if store is not None:
            return store
        time.sleep(0.02)
    raise AssertionError(f"nobody serves {path}")


def is_stopped(process_id: int) -> bool:
    """Whether SIGSTOP has come to all its threads: one after another stops."""
    texts = [file.read_text() for file in Path(f"/proc/{process_id}/task").glob("*/stat")]
    return {text.rpartition(")")[2].split()[0] for text in texts} == {"T"}
