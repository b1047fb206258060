"""A page of the documents whose commands and programs a test runs as they are printed.

The last block of `bash` serves a store at port 7400, in whose place a free one is taken.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.source_tree import ROOT

_PORT = "7400"


class PrintedPage:
    """A page whose commands run in a directory; at its end the server is stopped."""

    def __init__(self, name: str, directory: Path) -> None:
        self.text = (ROOT / "docs" / name).read_text()
        self._directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = str(probe.getsockname()[1])
        programs = directory / "bin"
        programs.mkdir()
        program = programs / "quire"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m quire "$@"\n')
        program.chmod(0o700)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.close()

    def blocks(self, language: str) -> list[str]:
        """Return the blocks of the page in that language."""
        found = re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        return [block.replace(_PORT, self._port) for block in found]

    def serve(self) -> subprocess.Popen[str]:
        """Run all blocks of commands, and leave the server of the last one running."""
        *making, serving = self.blocks("bash")
        for commands in making:
            subprocess.run(
                ["sh", "-ec", commands],
                cwd=self._directory,
                env=self._environment,
                check=True,
                capture_output=True,
            )
        server = subprocess.Popen(
            ["sh", "-c", f"exec {serving}"],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._closing.callback(_end, server)
        assert server.stdout is not None
        assert any(line.startswith("listening: ") for line in server.stdout)
        return server

    def run_program(self, number: int = 0) -> str:
        """Run a program of the page; what it prints."""
        program = subprocess.run(
            [sys.executable, "-c", self.blocks("python")[number]],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (program.returncode, program.stderr) == (0, "")
        return program.stdout


def stop(server: subprocess.Popen[str]) -> None:
    """Stop the server as a service manager does."""
    server.send_signal(signal.SIGTERM)
    assert server.wait() == 0


def _end(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.wait()
    assert server.stdout is not None
    server.stdout.close()
