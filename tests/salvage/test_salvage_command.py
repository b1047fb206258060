"""`quire salvage`, as docs/operations.md has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import quire
from quire.cli import main
from tests.source_tree import ROOT


def spoil(path: Path, text: bytes) -> None:
    """Flip a bit of a text in the file."""
    data = bytearray(path.read_bytes())
    data[data.index(text)] ^= 1
    path.write_bytes(data)


def test_a_damaged_store_is_salvaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is lost is told by queue and position, what is damaged by file; the rest is there."""
    damaged, new = tmp_path / "shop.quire", tmp_path / "new.quire"
    with quire.open(damaged) as store:
        store.create_queue("orders", kind="work")
        for letter in b"abc":
            with store.transaction() as transaction:
                transaction.put("orders", bytes([letter]) * 300_000)
    spoil(damaged / "data" / "0.dat", b"bbbb")
    before = {each: each.read_bytes() for each in damaged.rglob("*") if each.is_file()}
    assert main(["salvage", str(damaged), str(new)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{new}: 2 messages salvaged"
    assert shown[1] == "queue 'orders': 2 messages, 1 message lost"
    assert shown[2].startswith("lost: queue 'orders', position 1: data/0.dat, offset ")
    assert {each: each.read_bytes() for each in before} == before
    with quire.open(new) as store:
        assert [message.payload[:1] for message in store.browse("orders")] == [b"a", b"c"]
        assert store.admin.verify().ok
    assert main(["salvage", str(damaged), str(new)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["salvage", str(damaged), str(tmp_path / "json.quire"), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [lost["start"] for lost in told["lost"]] == [1]
    assert main(["salvage", str(new), str(tmp_path / "again.quire")]) == 0


@pytest.mark.parametrize("words", [["get", "orders"], ["serve"], ["verify"]])
def test_a_damaged_store_says_how_to_salvage_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Whoever opens it is told the command."""
    damaged = tmp_path / "shop.quire"
    quire.open(damaged).close()
    (damaged / "data" / "0.dat").write_bytes(b"")
    command, *others = words
    assert main([command, str(damaged), *others]) == 1
    assert f"`quire salvage {damaged} NEW`" in capsys.readouterr().err


def test_the_commands_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of docs/operations.md, one after another, of a store with a damaged message."""
    monkeypatch.chdir(tmp_path)
    with quire.open("shop.quire") as store:
        store.create_queue("orders", kind="work")
        store.put("orders", b"a" * 300_000)
    spoil(tmp_path / "shop.quire" / "data" / "0.dat", b"aaaa")
    page = (ROOT / "docs" / "operations.md").read_text()
    lines = re.findall(r"^quire (?:compact|salvage|verify)[^>|\n]*", page, re.MULTILINE)
    assert [line.split()[1] for line in lines] == ["compact", "salvage", "verify"]
    assert [main(line.split()[1:]) for line in lines] == [0, 1, 0]
    shown = capsys.readouterr().out
    assert "bytes given back" in shown
    assert "lost: queue 'orders', position 0: data/0.dat, offset" in shown
    assert shown.endswith("ok\n")
