"""`quire verify` and `keyed.verify`: damage in keyed states has the names of state and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import quire
from quire import keyed
from quire.cli import main
from quire.keyed.manifest import RunEntry
from quire.ltds import path_of
from quire.testing import SimEnv
from tests.keyed.conftest import SMALL

SCHEMA = "id bigint, name string"
MANY, FEW = 20_000, 3


def filled(path: Path) -> tuple[RunEntry, RunEntry]:
    """Make a store with a state in a file, and one in a page; their runs."""
    with quire.open(path) as store:
        runs = list[RunEntry]()
        for name, count in (("big", MANY), ("small", FEW)):
            state = keyed.open_state(store, name, "id", SCHEMA)
            with store.transaction() as txn, state.within(txn) as rows:
                rows.put([{"id": each, "name": f"a name {each}"} for each in range(count)])
            runs += state.runs()
        store.admin.checkpoint()
    big, small = runs
    assert big.file
    assert not small.file
    return big, small


def flip(file: Path, offset: int) -> None:
    """Flip a bit."""
    data = bytearray(file.read_bytes())
    data[offset] ^= 4
    file.write_bytes(data)


def verified(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """The command's exit status, and what it prints."""
    capsys.readouterr()
    status = main(["verify", str(path), *options])
    return status, capsys.readouterr().out


@pytest.mark.promise(10)
def test_the_command_names_the_run_that_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flipped bit in a file, then one in a page, too; in words, and as JSON."""
    path = tmp_path / "store"
    big, small = filled(path)
    assert verified(path, capsys)[0] == 0
    found = json.loads(verified(path, capsys, "--json")[1])
    assert found["ok"]
    assert found["checked"]["keyed_states"] == 2
    file = Path(path_of(f"{path}/ltds", big.file))
    flip(file, 4096 + big.size // 2)
    status, text = verified(path, capsys)
    assert status == 1
    assert f"quire.keyed.big: run {big.name} ({file})" in text
    assert "quire.keyed.small" not in text
    page = path / "data" / "0.dat"
    flip(page, page.read_bytes().index(b"a name 1") + 3)
    status, text = verified(path, capsys, "--json")
    assert status == 1
    found = json.loads(text)
    assert not found["ok"]
    for name in (f"quire.keyed.big: run {big.name}", f"quire.keyed.small: run {small.name}"):
        assert any(name in finding for finding in found["findings"])


def test_each_state_that_is_not_whole_is_found(store: quire.Store, env: SimEnv) -> None:
    """A run that somebody has got, a message that is of no run, a manifest that is none."""
    for name in ("got", "put", "set", "whole"):
        state = keyed.open_state(store, name, "id", SCHEMA, env=env)
        with store.transaction() as txn, state.within(txn) as rows:
            rows.put([{"id": 1, "name": name}])
    assert keyed.verify(store, env).findings == []
    store.get("quire.keyed.got")
    store.put("quire.keyed.put", b"a run?")
    with store.transaction() as txn:
        txn.set_value("quire.keyed.set", "version", b"seven")
    report = keyed.verify(store, env)
    assert report.checked == {"keyed_states": 4}
    found = "\n".join(report.findings)
    assert len(report.damage) == 3
    for text in ("quire.keyed.got: run", "quire.keyed.put: message", "'quire.keyed.set' keeps"):
        assert text in found


def test_files_that_are_not_seen_are_no_damage(store: quire.Store, env: SimEnv) -> None:
    """Who asks without the files is told where to ask."""
    keyed.open_state(store, "far", "id", SCHEMA, env=env)
    elsewhere = SimEnv(1)
    with quire.open("/other", env=elsewhere, background=False, **SMALL):
        report = keyed.verify(store, elsewhere)
    assert report.ok
    assert [each for each in report.findings if "'far' was not checked" in each] == report.warnings
    assert report.warnings


def test_what_is_committed_meanwhile_is_no_stray(
    store: quire.Store, env: SimEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is put between the look at the messages and that at the manifest, and merged after."""
    state = keyed.open_state(store, "busy", "id", SCHEMA, env=env)

    def put(number: int) -> None:
        with store.transaction() as txn, state.within(txn) as rows:
            rows.put([{"id": number, "name": "busy"}])

    put(0)
    numbers = iter(range(1, 100))
    files: Any = state._reader.files
    real = files.messages

    def messages() -> Any:
        put(next(numbers))
        found = real()
        put(next(numbers))
        state.merge(all=True)
        return found

    monkeypatch.setattr(files, "messages", messages)
    assert state.verify() == []
