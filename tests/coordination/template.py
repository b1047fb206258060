"""Processes that transfer and start at once: forks of one that has imported all that they need.

    python -m tests.coordination.template

reads the arguments of a `transfer` as a JSON list from each line of its standard input, runs it in
a child, and answers with the child's exit status.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from typing import IO, Any

import quire.engine  # opening a store would import it in each child anew
import quire.remote.ownership.election  # noqa: F401
from tests.coordination import transfer
from tests.source_tree import ROOT

__all__ = ["Template"]


class Template:
    """The process above, from `Template()` to `stop()`."""

    def __init__(self) -> None:
        self._said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by `stop`
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "tests.coordination.template"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a transfer; its exit status, and what it said of an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._said.truncate(0)
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        self._said.seek(0)
        said = self._said.read()
        assert answer, f"the template has ended: {said}"
        return int(answer), said

    def stop(self) -> None:
        """End it."""
        self._process.communicate("")
        self._said.close()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(arguments: list[Any]) -> None:
    """Be the child."""
    status = 1
    try:
        transfer.main(arguments)
        status = 0
    except BaseException:  # noqa: BLE001 - the status tells
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
