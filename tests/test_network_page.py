"""The page on other machines: its commands, and its program, do what it says."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

PAGE = (ROOT / "docs" / "network.md").read_text()
PORT = "7400"


@pytest.fixture
def port() -> str:
    """A port that nobody has, in place of the page's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def blocks(language: str, port: str) -> list[str]:
    """The blocks of the page in that language."""
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [block.replace(PORT, port) for block in found]


def test_a_server_and_a_client_work_as_printed(tmp_path: Path, port: str) -> None:
    """Certificates, the server, and the program of a client, one after another."""
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    program = bin_directory / "quire"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m quire "$@"\n')
    program.chmod(0o700)
    environment = {
        **os.environ,
        "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    *making, serving = blocks("bash", port)
    for commands in making:
        subprocess.run(
            ["sh", "-ec", commands], cwd=tmp_path, env=environment, check=True, capture_output=True
        )
    server = subprocess.Popen(
        ["sh", "-c", f"exec {serving}"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert any(line.startswith("listening: ") for line in server.stdout)
        [program_text] = blocks("python", port)
        client = subprocess.run(
            [sys.executable, "-c", program_text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (client.returncode, client.stderr) == (0, "")
        printed = re.search(r"It prints `([^`]*)`", PAGE)
        assert printed is not None
        assert client.stdout.strip() == printed[1]
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
        server.stdout.close()
    finally:
        server.kill()
        server.wait()
