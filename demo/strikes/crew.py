"""The processes of the demo, and how they die: by SIGKILL, each with all its descendants.

Every process is the leader of a session of its own. A Spark driver's JVM and Python workers are in
that session, though some make process groups of their own; a kill reads the members from /proc and
ends those, and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

__all__ = ["Member", "kill", "session_members", "tails"]


class Member:
    """A process of the demo; what it prints goes to `<name>.log` in `folder`."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self.command = command
        self.folder = folder
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status; None before its start and while it runs."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it, or start it again."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.starts += 1

    def ask_to_finish(self) -> None:
        """End its input, which means the same to it (`demo.processes.finish`); does not wait."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def bury(self) -> None:
        """Collect it after it was killed."""
        self.ask_to_finish()
        assert self._process is not None
        self._process.wait()


def kill(members: list[Member], *others: int) -> int:
    """SIGKILL all processes of the members' sessions, and others, at once; how many there were."""
    running = [member for member in members if member.running]
    victims = [pid for member in running for pid in session_members(member.pid)]
    victims += others
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for member in running:
        member.bury()
    return len(victims)


def session_members(leader: int) -> list[int]:
    """The processes whose session is led by process `leader`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The command in brackets may hold anything; the session is the fourth field after.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader and fields[0] != "Z":
                    found.append(int(entry.name))
    return sorted(found)


def tails(members: list[Member], lines: int = 15) -> str:
    """The last lines of the members' logs, to explain a failure."""
    parts = []
    for member in members:
        if member.log.exists():
            text = member.log.read_text(errors="replace").splitlines()[-lines:]
            parts.append("\n".join([f"--- {member.log}", *text]))
    return "\n".join(parts)
