"""`quire get --exec`: a message is done with exactly if the command on it has succeeded (EX1)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.cli import main
from quire.interface.store import Store
from tests.kit.waiting import SECONDS, eventually


@pytest.fixture
def jobs(store_path: str) -> Iterator[Store]:
    """A store with a queue, which is open beside the command."""
    with quire.open(store_path) as store:
        store.create_queue("dead", kind="work")
        store.create_queue("jobs", kind="work", max_deliveries=2, dead_letter="dead")
        yield store


def left(store: Store) -> list[bytes]:
    """Return the payloads that wait."""
    return [bytes(payload) for payload in store.browse("jobs").payloads()]


def test_what_has_succeeded_is_gone(jobs: Store, store_path: str, tmp_path: Path) -> None:
    """One by default, so many with -n; 3 where none is there."""
    jobs.put_many("jobs", [b"1", b"2", b"3"])
    out = tmp_path / "out"
    command = f"cat >> {out}; echo >> {out}"
    assert main(["get", store_path, "jobs", "--exec", command]) == 0
    assert left(jobs) == [b"2", b"3"]
    assert main(["get", store_path, "jobs", "-n", "9", "--exec", command]) == 0
    assert out.read_text().split() == ["1", "2", "3"]
    assert main(["get", store_path, "jobs", "--exec", command]) == 3


def test_what_has_failed_comes_again_and_goes_to_the_dead_letters(
    jobs: Store, store_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As often as the queue says, with the status as its reason; no further one is taken."""
    jobs.put_many("jobs", [b"1", b"2"])
    assert main(["get", store_path, "jobs", "-n", "2", "--exec", "exit 7"]) == 1
    assert "status 7: message 1 of jobs is not done with" in capsys.readouterr().err
    assert left(jobs) == [b"1", b"2"]
    assert main(["get", store_path, "jobs", "--exec", "kill -9 $$"]) == 1
    assert left(jobs) == [b"2"]
    [letter] = jobs.browse("dead")
    assert letter.attributes["quire.reason"] == "the command was ended by signal 9"


def test_the_command_gets_payload_and_fields(jobs: Store, store_path: str, tmp_path: Path) -> None:
    """On its standard input, of any size, and in its environment; it need not read."""
    payload = bytes(range(256)) * 4096
    jobs.put("jobs", payload, priority=0, sender="till 7", attributes={"colour": "red"})
    out = tmp_path / "out"
    command = f"cat > {out}; env > {out}.env"
    assert main(["get", store_path, "jobs", "--exec", command]) == 0
    assert out.read_bytes() == payload
    fields = dict(line.split("=", 1) for line in Path(f"{out}.env").read_text().splitlines())
    assert (fields["QUIRE_QUEUE"], fields["QUIRE_SENDER"]) == ("jobs", "till 7")
    assert json.loads(fields["QUIRE_ATTRIBUTES"]) == {"colour": "red"}
    assert fields["QUIRE_DELIVERY_COUNT"] == "1"
    assert "QUIRE_REPLY_TO" not in fields
    jobs.put("jobs", payload)
    assert main(["get", store_path, "jobs", "--exec", "true"]) == 0
    jobs.put("jobs", b"as JSON")
    assert main(["get", store_path, "jobs", "--json", "--exec", f"cat > {out}"]) == 0
    assert json.loads(out.read_text())["payload"] == "as JSON"


def test_a_field_that_no_environment_holds(
    jobs: Store, store_path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Is left out, and the message handled: else nothing behind it would ever be."""
    out = tmp_path / "out"
    jobs.put("jobs", b"1", attributes={"text": "\u00e9" * 32_000})  # as JSON 192,000 bytes
    jobs.put("jobs", b"2", attributes={"text": "x" * 65_000})
    command = f"cat > /dev/null; env | grep -c ^QUIRE_ATTRIBUTES >> {out}; true"
    assert main(["get", store_path, "jobs", "-n", "2", "--exec", command]) == 0
    assert out.read_text().split() == ["0", "1"]
    assert left(jobs) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("trap", "is_done"), [("exit 0", True), ("exit 1", False)])
def test_a_signal_ends_the_command_and_then_the_get(
    jobs: Store, store_path: str, tmp_path: Path, trap: str, is_done: bool
) -> None:
    """SIGTERM is handed on to it; what it says of the message counts, and no more is taken."""
    jobs.put_many("jobs", [b"1", b"2"])
    begun = tmp_path / "begun"
    command = f"trap '{trap}' TERM; touch {begun}; while true; do sleep 0.05; done"
    line = [sys.executable, "-m", "quire", "get", store_path, "jobs", "-n", "9", "--exec", command]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL, env=dict(os.environ))
    eventually(begun.exists)
    assert [info.in_flight for info in jobs.admin.transactions()] == [1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == (0 if is_done else 1)
    assert left(jobs) == ([b"2"] if is_done else [b"1", b"2"])


def test_a_signal_while_the_command_begins_is_handed_on(
    jobs: Store, store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes to this process before that knows the other one."""
    jobs.put("jobs", b"1")
    begin = subprocess.Popen.__init__

    def begin_slowly(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess.Popen, "__init__", begin_slowly)
    assert main(["get", store_path, "jobs", "--exec", "sleep 600"]) == 1
    monkeypatch.undo()
    assert left(jobs) == [b"1"]


@pytest.mark.parametrize("words", ["", "  "])
def test_no_command_takes_no_message(
    jobs: Store, store_path: str, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    """As of a variable that is not set: the shell would say that nothing has succeeded."""
    jobs.put("jobs", b"1")
    with pytest.raises(SystemExit) as ended:
        main(["get", store_path, "jobs", "--exec", words])
    assert ended.value.code == 2
    assert f"{words!r} is no command: give one" in capsys.readouterr().err
    assert left(jobs) == [b"1"]


def test_an_ignored_signal_ends_neither(jobs: Store, store_path: str, tmp_path: Path) -> None:
    """As `nohup` has it: the command ignores it, too."""
    jobs.put("jobs", b"1")
    begun, end = tmp_path / "begun", tmp_path / "end"
    command = f"touch {begun}; while ! test -e {end}; do sleep 0.05; done"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        line = [sys.executable, "-m", "quire", "get", store_path, "jobs", "--exec", command]
        process = subprocess.Popen(line)
    finally:
        signal.signal(signal.SIGHUP, before)
    eventually(begun.exists)
    process.send_signal(signal.SIGHUP)
    end.touch()
    assert process.wait(SECONDS) == 0
    assert left(jobs) == []
