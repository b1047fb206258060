"""The page on operations: its commands for metrics, checks, alerts and a disk do what it says."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.metrics import ALERT_RULES
from tests.kit.waiting import SECONDS, eventually
from tests.metrics.scraping import number, page, scrape
from tests.source_tree import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text()


def blocks(heading: str, language: str) -> list[str]:
    """The blocks of a language below a heading."""
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


def free_address() -> str:
    """A port of loopback that is free, in place of that of the page."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with the store of the page, and its commands."""
    with quire.open(tmp_path / "shop.quire") as store:
        store.create_queue("orders", kind="work")
        store.put("orders", b"2 apples")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("quire", "-m quire"), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        program.chmod(0o700)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    """One in which the page's commands are found."""
    path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def run(folder: Path, commands: str) -> subprocess.CompletedProcess[str]:
    """Run commands of the page."""
    return subprocess.run(
        ["sh", "-c", commands],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_server_with_metrics_and_marks(shop: Path) -> None:
    """The server of the first block, with the marks of the last part."""
    address = free_address()
    command = blocks("Metrics and probes", "bash")[0].splitlines()[-1]
    marks = blocks("A disk that fills up", "bash")[0].split("shop.quire")[1].strip()
    line = command.replace("127.0.0.1:9464", address) + f" {marks}"
    url = f"http://{address}"
    with ExitStack() as ending:
        server = subprocess.Popen(["sh", "-c", f"exec {line}"], cwd=shop, env=environment(shop))
        ending.callback(server.wait, SECONDS)
        ending.callback(server.terminate)

        def is_ready() -> bool:
            try:
                return page(url, "/readyz")[0] == 200
            except OSError:
                return False

        eventually(is_ready)
        found = scrape(url)
        assert number(found, "quire_queue_messages", queue="orders", state="waiting") == 1
        assert number(found, "quire_disk_mark_bytes", mark="warn") == 2 << 30
        assert number(found, "quire_disk_mark_bytes", mark="refuse") == 500 << 20


def test_a_program_with_metrics(shop: Path) -> None:
    """It answers while it works."""
    address = free_address()
    program = blocks("Metrics and probes", "python")[0].replace("127.0.0.1:9464", address)
    with quire.open(shop / "shop.quire") as store:
        seen = []

        def work(store: object) -> None:
            seen.append(page(f"http://{address}", "/healthz"))

        exec(program, {"store": store, "work": work})
    assert seen == [(200, "ok\n")]


def test_the_marks_of_a_program(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the server."""
    monkeypatch.chdir(shop)
    names: dict[str, Any] = {"quire": quire}
    exec(blocks("A disk that fills up", "python")[0], names)
    with names["store"] as store:
        assert store.status()["disk"]["refuse_below_bytes"] == 500 << 20


def test_a_check(shop: Path) -> None:
    """It prints its line, whoever owns the store."""
    done = run(shop, blocks("A check for scripts", "bash")[0])
    assert (done.returncode, done.stdout) == (0, "OK: 1 message in 1 queue\n")


def test_the_rules_are_copied(shop: Path) -> None:
    """The first command of the part; promtool reads what it gives, where it is installed."""
    copying, checking = blocks("Alerts", "bash")[0].splitlines()
    done = run(shop, copying)
    assert (done.returncode, done.stderr) == (0, "")
    assert (shop / "quire-alerts.yml").read_text() == Path(ALERT_RULES).read_text()
    if run(shop, "command -v promtool").returncode == 0:
        assert run(shop, checking).returncode == 0
