"""A part of a benchmark in a process of its own: an order is a line, its answer a line of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

__all__ = ["Program", "answer_orders", "say_ready", "spent_seconds"]

ROOT = Path(__file__).resolve().parents[2]


class Program:
    """`python -m MODULE ARGUMENTS`, once it has said that it is ready."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            self.answer()
        except BaseException:
            self.kill()
            raise

    @property
    def process_id(self) -> int:
        """The id of its process."""
        return self._process.pid

    def tell(self, order: str) -> None:
        """Give an order; `answer` waits for what comes of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Return its next answer. Raises RuntimeError where it has ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} has failed; see what it printed")
        return json.loads(line)

    def ask(self, order: object) -> Any:
        """Give an order, and return its answer. Raises RuntimeError."""
        self.tell(str(order))
        return self.answer()

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()  # closes both pipes, and waits for the end

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.communicate()


def answer_orders(answer: Callable[[str], object]) -> None:
    """Answer orders in such a program until there are no more, after saying that it is ready."""
    say_ready()
    for order in sys.stdin:
        print(json.dumps(answer(order.strip())), flush=True)


def say_ready() -> None:
    """Tell the process that has begun the program; one that takes no orders goes on with what it
    does.
    """
    print(json.dumps("ready"), flush=True)


def spent_seconds(process_ids: list[int]) -> float:
    """Processor time of these processes and of all that they have begun."""
    total = 0.0
    for process_id in process_ids:
        process = psutil.Process(process_id)
        for each in (process, *process.children(recursive=True)):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
