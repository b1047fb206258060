"""A request and its reply: Quire beside NATS, Redis lists and RabbitMQ's direct reply-to.

One client with one request of 100 bytes in flight, one server that answers with the same bytes. A
turn is so many requests of one kind; the kinds take turns, so that a ratio compares what happened
in the same minutes. What each keeps on disk is not the same, and stands beside it. The floor are
two pages of 4 KiB, each written and synced: as many as a durable request and reply need.

The time of a request is what the client sees. Processor time is that of all processes: the client,
who answers, and the server between them. On a machine that does other things as well, that and the
ratios count; the microseconds are those of the day. A rival that is not installed is left out, and
named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct, field

from bench.figure import BenchmarkSetting, Figure, Result, Table
from bench.measuring.program import Program, spent_seconds
from bench.rivals.bare_loop import BareLoop
from bench.rivals.brokers import NatsServer, RabbitServer
from bench.served.request_programs import SERVERS
from bench.served.served_rivals import QuireServer, RedisServer, UnsyncedRedisServer

__all__ = ["SIDES", "RequestTimes", "RunningSide", "figures", "run"]

PROGRAMS = "bench.served.request_programs"
FLOOR = "floor: two synced pages"
FLOOR_PAGES = 4096
SYNCED = "request and reply synced"
CONFIRMED = "the request is written and confirmed, the reply is in memory"
MEMORY = "nothing"


class BetweenThem(Protocol):
    """A server between who asks and who answers."""

    @property
    def address(self) -> str:
        """The address for clients."""

    @property
    def process_ids(self) -> list[int]:
        """The processes that work for them."""

    def stop(self) -> None:
        """End it."""


class RequestSide(NamedTuple):
    """A row: who asks and answers how, through what, and what that keeps on disk."""

    kind: str
    keeps: str
    server: Callable[[Path], BetweenThem] | None = None  # None: the client's own process


SIDES = {
    "Quire, threads of one process": RequestSide("threads", SYNCED),
    "Quire, tasks of one process": RequestSide("coroutines", SYNCED),
    "Quire, three processes": RequestSide("joined", SYNCED, QuireServer),
    "Redis lists, appendfsync always": RequestSide("redis", SYNCED, RedisServer),
    "RabbitMQ, persistent requests": RequestSide("rabbit durable", CONFIRMED, RabbitServer),
    "Quire, three processes, volatile": RequestSide("volatile", MEMORY, QuireServer),
    "NATS": RequestSide("nats", MEMORY, NatsServer),
    "Redis lists, in memory": RequestSide("redis", MEMORY, UnsyncedRedisServer),
    "RabbitMQ, in memory": RequestSide("rabbit", MEMORY, RabbitServer),
}
OURS = {
    "Quire, three processes": (
        "Redis lists, appendfsync always", "RabbitMQ, persistent requests",
    ),
    "Quire, three processes, volatile": (
        "NATS", "Redis lists, in memory", "RabbitMQ, in memory",
    ),
}  # fmt: skip


class RequestTimes(Struct):
    """The times of one side."""

    seconds: list[float] = field(default_factory=list)
    processor: float = 0.0


class RunningSide:
    """The processes of one side."""

    def __init__(self, side: RequestSide, folder: Path, stack: ExitStack) -> None:
        self._process_ids: list[int] = []
        address = str(folder)
        if side.server is not None:
            server = side.server(folder)
            stack.callback(server.stop)
            address = server.address
            self._process_ids += server.process_ids
        self._client = Program(PROGRAMS, "client", side.kind, address)
        stack.callback(self._client.close)
        if side.kind in SERVERS:
            answering = Program(PROGRAMS, "server", side.kind, address)
            stack.callback(answering.kill)
            self._process_ids.append(answering.process_id)
        self._process_ids.append(self._client.process_id)

    def turn(self, count: int, times: RequestTimes) -> None:
        """Make so many requests."""
        began = spent_seconds(self._process_ids)
        times.seconds += self._client.ask(count)
        times.processor += spent_seconds(self._process_ids) - began


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Return how ours compare, and a table of all."""
    times: dict[str, RequestTimes] = {}
    with ExitStack() as stack:
        sides: dict[str, RunningSide] = {}
        for number, (name, side) in enumerate(SIDES.items()):
            try:
                sides[name] = RunningSide(side, setting.folder / str(number), stack)
            except FileNotFoundError as error:
                print(f"  without {name}: {error}")
        floor = BareLoop(setting.folder / "pages", FLOOR_PAGES)
        stack.callback(floor.close)
        for running in sides.values():  # the first one begins when who answers is there
            running.turn(setting.scaled(50, 5), RequestTimes())
        count = setting.scaled(100, 10)
        for _ in range(setting.scaled(20, 1)):
            for name, running in sides.items():
                running.turn(count, times.setdefault(name, RequestTimes()))
            _floor_turn(floor, count, times.setdefault(FLOOR, RequestTimes()))
    return [*figures(times), _table(times)]


def _floor_turn(floor: BareLoop, count: int, times: RequestTimes) -> None:
    spent = time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        floor.step()
        floor.step()
        times.seconds.append(time.perf_counter() - began)
    times.processor += time.process_time() - spent


def _quantile(times: RequestTimes, share: float) -> float:
    return float(np.quantile(times.seconds, share) * 1e6)


def _processor(times: RequestTimes) -> float:
    return times.processor / len(times.seconds) * 1e6


def figures(times: dict[str, RequestTimes]) -> list[Figure]:
    """Return how ours compare with each that was measured."""
    figures = []
    for ours, others in OURS.items():
        for other in (*others, *((FLOOR,) if SIDES[ours].keeps == SYNCED else ())):
            if other not in times:
                continue
            p50 = _quantile(times[ours], 0.5) / _quantile(times[other], 0.5)
            spent = _processor(times[ours]) / _processor(times[other])
            figures.append(Figure(f"{ours}: p50 to {other}", p50, "times"))
            if other != FLOOR:
                figures.append(Figure(f"{ours}: processor to {other}", spent, "times"))
    return figures


def _table(times: dict[str, RequestTimes]) -> Table:
    rows = [
        [
            name,
            SIDES[name].keeps if name in SIDES else "both pages synced",
            f"{_processor(each):,.0f}",
            f"{_quantile(each, 0.5):,.0f}",
            f"{_quantile(each, 0.99):,.0f}",
        ]
        for name, each in times.items()
    ]
    columns = ["through", "on disk before the client goes on", "processor", "p50", "p99"]
    return Table("A request and its reply, microseconds", columns, rows)
