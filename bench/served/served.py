"""Durable transactions through a server on one machine: Quire joined, Redis, PostgreSQL, a floor.

One server of each kind runs; its clients, 1, 8 or 64 processes, do the same in turns, so that a
ratio compares what happened in the same minute. Messages have 100 bytes; each client has queues of
its own. A rate is that of all clients together. The floor is a server in Python that receives,
writes and syncs a page once for all requests that are there, and answers: what is above it is
Quire's own. A server that is not installed is left out, and named.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import BenchmarkSetting, Figure, Result, Table, at_least, at_most
from bench.served.served_clients import BATCH
from bench.served.served_rivals import FloorServer, PostgresServer, QuireServer, RedisServer, Server

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[2]
CROWDS = (1, 8, 64)
OPERATIONS = {"put": "put", "get": "transaction with one get", "move": "get + 2 puts"}
BATCHES = {"put_batch": "put, bytes", "get_batch": "get, bytes"}
ARROW = {"put_arrow": "put, Arrow", "get_arrow": "get, Arrow"}
KINDS: tuple[type[Server], ...] = (QuireServer, RedisServer, PostgresServer, FloorServer)
TARGETS = {"put": 1.0, "move": 1.5}  # p50 to Redis's

CrowdRounds = dict[
    tuple[str, int, str], list[dict[str, float]]
]  # server, clients, operation: rounds


class Crowd:
    """`bench.served.served_crowd` in a process of its own."""

    def __init__(self, server: Server, count: int) -> None:
        command = [sys.executable, "-m", "bench.served.served_crowd", server.name, server.address]
        self._process = subprocess.Popen(
            [*command, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._line()

    def run(self, operation: str, seconds: float) -> dict[str, float]:
        """Return the figures of all clients together: their rates added, the middle of their
        times.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(f"{operation} {seconds}\n")
        self._process.stdin.flush()
        each: list[dict[str, float]] = json.loads(self._line())
        return {
            **{name: sum(one[name] for one in each) for name in ("rate", "count")},
            **{name: median(one[name] for one in each) for name in ("p50", "p99", "processor")},
        }

    def close(self) -> None:
        self._process.communicate()  # closes both pipes, and waits for the end

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a client failed")
        return line


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Figures with their targets, and tables of all that was measured."""
    with ExitStack() as stack:
        servers: list[Server] = []
        for kind in KINDS:
            try:
                server = kind(setting.folder / kind.name)
            except FileNotFoundError as error:
                print(f"  without {kind.name}: {error}")
                continue
            stack.callback(server.stop)
            servers.append(server)
        found = _measure(setting, servers)
    names = [server.name for server in servers]
    return [*_figures(found, names), *_tables(found, names)]


def _measure(setting: BenchmarkSetting, servers: Sequence[Server]) -> CrowdRounds:
    found: CrowdRounds = {}
    rounds, seconds = setting.scaled(5, 1), 0.1 if setting.quick else 1.0
    for count in CROWDS if not setting.quick else CROWDS[:2]:
        crowds = {server.name: Crowd(server, count) for server in servers}
        for _ in range(rounds):
            for operation in OPERATIONS:
                for name, crowd in crowds.items():
                    taken = crowd.run(operation, seconds)
                    found.setdefault((name, count, operation), []).append(taken)
        if count == 1:
            _measure_batches(found, crowds, rounds, seconds)
        for crowd in crowds.values():
            crowd.close()
    return found


def _measure_batches(
    found: CrowdRounds, crowds: dict[str, Crowd], rounds: int, seconds: float
) -> None:
    for _ in range(rounds):
        for operation in (*BATCHES, *ARROW):
            for name, crowd in crowds.items():
                if name == "Quire" or (operation in BATCHES and name != "floor"):
                    taken = crowd.run(operation, seconds / 2)
                    found.setdefault((name, 1, operation), []).append(taken)


def _middle(found: CrowdRounds, name: str, count: int, operation: str, what: str) -> float:
    return median(one[what] for one in found[name, count, operation])


def _ratio(found: CrowdRounds, count: int, operation: str, what: str, rival: str) -> float:
    """Quire's to the rival's, in each round: the median."""
    pairs = zip(found["Quire", count, operation], found[rival, count, operation], strict=True)
    return median(own[what] / other[what] for own, other in pairs)


def _figures(found: CrowdRounds, names: Sequence[str]) -> list[Figure]:
    figures = []
    counts = sorted({count for _, count, _ in found})
    if "Redis" in names:
        for operation, words in OPERATIONS.items():
            ratio = _ratio(found, 1, operation, "p50", "Redis")
            target = TARGETS.get(operation)
            goal = None if target is None else at_most(target)
            figures.append(Figure(f"{words}: p50 to Redis's", ratio, "times", goal))
        for count in counts:
            for operation, words in OPERATIONS.items():
                ratio = _ratio(found, count, operation, "rate", "Redis")
                name = f"{words}, {count} clients: rate to Redis's"
                figures.append(Figure(name, ratio, "times", at_least(1.0)))
    for count in counts:
        ratio = _ratio(found, count, "put", "rate", "floor")
        figures.append(Figure(f"put, {count} clients: rate to the floor's", ratio, "times"))
    return figures


def _tables(found: CrowdRounds, names: Sequence[str]) -> list[Table]:
    counts = sorted({count for _, count, _ in found})
    tables = []
    for what, title in (
        ("p50", "One transaction, p50, us"),
        ("p99", "One transaction, p99, us"),
        ("rate", "Transactions a second, all clients together"),
        ("processor", "Processor time of the client for one transaction, us"),
    ):
        rows: list[list[Any]] = [
            [words, count, *(f"{_middle(found, n, count, operation, what):,.0f}" for n in names)]
            for operation, words in OPERATIONS.items()
            for count in counts
        ]
        tables.append(Table(title, ["operation", "clients", *names], rows))
    rows = []
    for operation, words in (BATCHES | ARROW).items():
        cells = [
            f"{BATCH * _middle(found, name, 1, operation, 'rate'):,.0f}"
            if (name, 1, operation) in found
            else "-"
            for name in names
            if name != "floor"
        ]
        rows.append([words, *cells])
    columns = ["operation", *(name for name in names if name != "floor")]
    title = f"Messages a second in transactions of {BATCH:,}, one client"
    return [*tables, Table(title, columns, rows)]
