"""`quire status --check`: a line and an exit status for each state of a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.cli import main
from quire.reports.status_findings import Level, Threshold, Thresholds, findings
from tests.kit.waiting import eventually
from tests.source_tree import ROOT


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with a queue that is a quarter full, and one that is nearly full."""
    name = str(tmp_path / "shop.quire")
    with quire.open(name) as store:
        store.create_queue("orders", kind="work", capacity=100_000)
        store.create_queue("jobs", kind="work", capacity=100_000)
        store.put("orders", b"x" * 25_000)
        store.put("jobs", b"x" * 85_000)
    return name


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit status, and the line."""
    status = main(["status", *words, "--check"])
    out, err = capsys.readouterr()
    assert (err, out.count("\n")) == ("", 1)
    return status, out.rstrip("\n")


def test_levels(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By default, and with thresholds; with an owner and without, nothing is changed."""
    assert checked(capsys, path) == (1, "WARNING: queue jobs is 85 % full")
    assert checked(capsys, path, "--warning-used", "90")[1] == "OK: 2 messages in 2 queues"
    assert checked(capsys, path, "--warning-used", "90")[0] == 0
    status, line = checked(capsys, path, "--critical-used=85", "--warning-used=20")
    assert (status, line) == (
        2,
        "CRITICAL: queue jobs is 85 % full; queue orders is 25 % full",
    )
    assert checked(capsys, path, "--warning-used=99", "--critical-waiting=1") == (
        2,
        "CRITICAL: 1 messages wait in queue jobs; 1 messages wait in queue orders",
    )
    assert checked(capsys, path, "--owner") == (
        2,
        "CRITICAL: no process owns the store; queue jobs is 85 % full",
    )
    with quire.open(path):
        assert checked(capsys, path, "--owner")[0] == 1


def test_a_store_that_cannot_be_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Is critical, in one line on standard output."""
    status, line = checked(capsys, str(tmp_path / "none.quire"))
    assert status == 2
    assert line.startswith("CRITICAL: StoreNotFound: there is no store at ")


def test_what_waits_to_become_a_dead_letter(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Is told without an owner, too; the next owner moves it, though nobody gets from there."""
    with quire.open(path) as store:
        store.create_queue("dead", kind="work", puts=False)
        store.create_queue("mails", kind="work", max_deliveries=1, dead_letter="dead")
        store.put("mails", b"x")
        with store.transaction() as txn:
            message = txn.get("mails")
            assert message is not None
            txn.reject(message)
    said = "1 messages of mails cannot become dead letters"
    assert checked(capsys, path, "--warning-used=99") == (1, f"WARNING: {said}")
    with quire.open(path) as store:
        assert [info.spent for info in store.subscriptions("mails")] == [1]
        store.alter_queue("dead", puts=True)
        eventually(lambda: store.queue("dead").messages == 1)
    assert checked(capsys, path, "--warning-used=99")[0] == 0


def test_a_queue_is_refused(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no check of that queue, were it there or not: nothing is said to be well."""
    assert main(["status", path, "none", "--check"]) == 2
    assert "leave the queue out" in capsys.readouterr().out


def test_as_a_program(path: str) -> None:
    """The status of the process is the level."""
    words = [sys.executable, "-m", "quire", "status", path, "--check"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "WARNING: queue jobs is 85 % full\n"


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({}, Level.OK, ""),
        ({"failed": True}, Level.CRITICAL, "commits are refused"),
        ({"maintenance_error": "x"}, Level.WARNING, "the maintenance fails: x"),
        ({"kept_back": {"whole": False}}, Level.CRITICAL, "the disk is full"),
        ({"disk": {"level": "full", "free_bytes": 5}}, Level.CRITICAL, "5 bytes free"),
        ({"disk": {"level": "low", "free_bytes": 5}}, Level.WARNING, "fills up"),
        (
            {"subscriptions": [{"queue": "q", "name": "s", "spent": 3}]},
            Level.WARNING,
            "3 messages of q/s",
        ),
        ({"prepared": [{"xid": "x1", "age_seconds": 4000.0}]}, Level.WARNING, "x1 is prepared"),
        ({"prepared": [{"xid": "x1", "age_seconds": 1e6}]}, Level.CRITICAL, "x1 is prepared"),
        ({"archive": {"error": "no way"}}, Level.WARNING, "no way"),
        ({"archive": {"gap_since": "2026"}}, Level.WARNING, "gap since 2026"),
        ({"archive": {"puts_wait": True}}, Level.CRITICAL, "puts wait"),
        ({"archive": {"lag_seconds": 100.0}}, Level.WARNING, "100 s behind"),
        ({"archive": {"lag_seconds": 1000.0}}, Level.CRITICAL, "1000 s behind"),
    ],
)
def test_findings(changes: dict[str, Any], level: Level, words: str) -> None:
    """Each state of a status, and how bad it is."""
    archive = {"puts_wait": False, "error": "", "gap_since": None, "lag_seconds": 0.0}
    status: dict[str, Any] = {
        "failed": False,
        "disk": {"level": "ok", "free_bytes": 1 << 30},
        "kept_back": {"whole": True},
        "maintenance_error": None,
        "queues": [],
        "subscriptions": [],
        "prepared": [],
    }
    if "archive" in changes:
        changes = {"archive": archive | changes["archive"]}
    found = findings(status | changes, Thresholds())
    assert max((each.level for each in found), default=Level.OK) == level
    assert words in "; ".join(each.text for each in found)


def test_thresholds() -> None:
    """From the number on; one that is not set is never reached."""
    both = Threshold(1, 2)
    assert [both.level(n) for n in (0, 1, 2)] == [Level.OK, Level.WARNING, Level.CRITICAL]
    assert Threshold(None, 2).level(1) == Level.OK
    assert Threshold().level(1e9) == Level.OK
