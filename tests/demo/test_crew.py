"""How the demo's processes are started, asked to finish, and killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from demo.strikes.crew import Member, kill, session_members, tails

# Starts a child in a process group of its own, as PySpark's daemons do, and waits.
PARENT = """
import os, subprocess, sys
code = "import os, sys; os.setpgid(0, 0); print(os.getpid(), flush=True); sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
sys.stdin.read()
print("finished")
"""


def is_running(process: int) -> bool:
    """Whether there is such a process, and it is no zombie that waits for its parent."""
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def started(tmp_path: Path) -> tuple[Member, int]:
    """A member with a child, and the child's process id."""
    member = Member("parent", [sys.executable, "-c", PARENT], tmp_path)
    member.start()
    while not (member.log.read_text().endswith("\n")):
        time.sleep(0.01)
    return member, int(member.log.read_text())


def test_a_kill_ends_all_descendants_whatever_their_group(tmp_path: Path) -> None:
    """The whole session dies, and is counted."""
    member, child = started(tmp_path)
    assert session_members(member.pid) == sorted([member.pid, child])
    assert kill([member]) == 2
    assert member.status == -9
    deadline = time.monotonic() + 100
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child)


def test_a_kill_leaves_other_processes_alone(tmp_path: Path) -> None:
    """Only what the members started dies; a second kill finds nobody."""
    (tmp_path / "other").mkdir()
    member, _ = started(tmp_path)
    other, _ = started(tmp_path / "other")
    kill([member])
    assert kill([member]) == 0
    assert other.running
    kill([other])


def test_a_member_that_is_asked_finishes_by_itself(tmp_path: Path) -> None:
    """The end of its input is the sign; its last words are in its log."""
    member, _ = started(tmp_path)
    member.ask_to_finish()
    while member.running:
        time.sleep(0.01)
    assert member.status == 0
    assert "finished" in tails([member])
    kill([member])
