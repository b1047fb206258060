"""The time from a commit to a listener: in the owner, in another process, in asyncio, and Redis's
pub/sub.

One message of 100 bytes at a time: the next one is put when the listener has said when it heard of
the last. Two clocks begin: when the put is called, and when it has returned; one clock of the
machine counts for all processes. All puts are durable, then none are. Beside it Redis appends to a
list and publishes in one MULTI, synced before it answers (`appendfsync always`), or publishes
alone; its subscriber is a process that waits at its socket. A turn is so many messages of one kind;
the kinds take turns. Redis is left out, and named, where it is not installed.

A message may be heard of before its put returns: others hear while the answer is on its way. Then
the time from the return is below zero.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

import numpy as np

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table
from bench.served.served_clients import EXEC, MULTI, RedisClient, command
from bench.served.served_rivals import RedisServer

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[2]
QUEUE = "heard"
PAYLOAD = b"x" * 100
LISTENERS = {
    "in the owner, a function": "",
    "in another process, a function": "callback",
    "in another process, asyncio": "asyncio",
}
REDIS = "Redis's pub/sub, another process"

TimedPut = Callable[[bool], object]  # durable or not
NextNotice = Callable[[], float]  # the next time, of `time.monotonic`
NoticeTimes = dict[
    tuple[str, bool], list[tuple[float, float]]
]  # seconds from the call, from the return


def run(setting: BenchmarkSetting) -> list[Result]:
    """p50 and p99 of each kind, and how ours compare with Redis's."""
    times: NoticeTimes = {}
    with ExitStack() as stack:
        kinds = stack.enter_context(_kinds(setting.folder))
        for number in range(setting.scaled(20, 1) + 1):
            for name, (put, next_notice) in kinds.items():
                for durable in (True, False):
                    found = _turn(put, next_notice, durable, setting.scaled(50, 5))
                    if number:
                        times.setdefault((name, durable), []).extend(found)
    return [*_figures(times), _table(times)]


def _turn(
    put: TimedPut, next_notice: NextNotice, durable: bool, count: int
) -> list[tuple[float, float]]:
    found = []
    for _ in range(count):
        called = time.monotonic()
        put(durable)
        returned = time.monotonic()
        at = next_notice()
        found.append((at - called, at - returned))
    return found


@contextmanager
def _kinds(folder: Path) -> Iterator[dict[str, tuple[TimedPut, NextNotice]]]:
    """Return the kinds by name; each kind of ours has a store of its own."""
    with ExitStack() as stack:
        kinds: dict[str, tuple[TimedPut, NextNotice]] = {}
        for number, (name, how) in enumerate(LISTENERS.items()):
            store = stack.enter_context(quire.open(str(folder / f"store-{number}")))
            store.create_queue(QUEUE, capacity=1 << 32)
            if how:
                next_notice = stack.enter_context(_listener(how, str(folder / f"store-{number}")))
            else:
                next_notice = _hearing(store)
            kinds[name] = (_putting(store), next_notice)
        try:
            redis = RedisServer(folder / "redis")
        except FileNotFoundError as error:
            print(f"  without Redis: {error}")
        else:
            stack.callback(redis.stop)
            next_notice = stack.enter_context(_listener("redis", redis.address))
            kinds[REDIS] = (_publishing(stack, redis.address), next_notice)
        yield kinds


def _hearing(store: quire.Store) -> NextNotice:
    times: SimpleQueue[float] = SimpleQueue()
    store.listeners.add(QUEUE, lambda _: times.put(time.monotonic()))
    return times.get


def _putting(store: quire.Store) -> TimedPut:
    def put(durable: bool) -> object:
        return store.put(QUEUE, PAYLOAD, durable=durable)

    return put


def _publishing(stack: ExitStack, address: str) -> TimedPut:
    client = RedisClient(address, 0)
    stack.callback(client.close)
    publish = command(b"PUBLISH", QUEUE.encode(), b"1")
    both = MULTI + command(b"RPUSH", QUEUE.encode(), PAYLOAD) + publish + EXEC

    def put(durable: bool) -> object:
        return client.ask_all(both, 4) if durable else client.ask_all(publish, 1)

    return put


@contextmanager
def _listener(how: str, address: str) -> Iterator[NextNotice]:
    """A process that says, line by line, when it has heard."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.served.hearing", how, address],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    line = process.stdout.readline
    assert line() == "ready\n"
    try:
        yield lambda: float(line())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# Who listens in a process of its own --------------------------------------------------------------


def listen(how: str, address: str) -> None:
    """Say `ready`, and then when each message was heard of."""
    {"callback": _by_callback, "asyncio": _by_asyncio, "redis": _by_redis}[how](address)


def _say(_: object = None) -> None:
    print(time.monotonic(), flush=True)


def _by_callback(address: str) -> None:
    with quire.open(address) as store:
        store.listeners.add(QUEUE, _say, backlog=False)
        print("ready", flush=True)
        sys.stdin.read()
        time.sleep(3600)


def _by_asyncio(address: str) -> None:
    import asyncio

    import quire.aio

    async def run() -> None:
        async with quire.aio.open(address) as store:
            listener = await store.listeners.add(QUEUE, backlog=False)
            print("ready", flush=True)
            async for _ in listener:
                _say()

    asyncio.run(run())


def _by_redis(address: str) -> None:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    connection.sendall(command(b"SUBSCRIBE", QUEUE.encode()))
    assert connection.recv(1 << 16)
    print("ready", flush=True)
    while connection.recv(1 << 16):
        _say()


# What is told -------------------------------------------------------------------------------------


def _quantiles(times: NoticeTimes, name: str, durable: bool, which: int) -> tuple[float, float]:
    """p50 and p99, in microseconds."""
    taken = [each[which] * 1e6 for each in times[name, durable]]
    return float(np.quantile(taken, 0.5)), float(np.quantile(taken, 0.99))


def _figures(times: NoticeTimes) -> list[Figure]:
    figures = []
    for name in LISTENERS:
        p50, p99 = _quantiles(times, name, True, 1)
        figures.append(Figure(f"{name}, from the return of a durable put: p50", p50, "us"))
        figures.append(Figure(f"{name}, from the return of a durable put: p99", p99, "us"))
        if (REDIS, True) in times:
            ours, theirs = (_quantiles(times, each, True, 0)[0] for each in (name, REDIS))
            words = f"{name}, from the call of a durable put: p50 to Redis's"
            figures.append(Figure(words, ours / theirs, "times"))
    return figures


def _table(times: NoticeTimes) -> Table:
    rows: list[list[float | str]] = []
    for name, durable in times:
        row: list[float | str] = [name, "durable" if durable else "not durable"]
        for which in (0, 1):
            row += [f"{each:,.0f}" for each in _quantiles(times, name, durable, which)]
        rows.append(row)
    columns = ["listener", "put", "from the call: p50", "p99", "from the return: p50", "p99"]
    return Table("From a put to who listens, microseconds", columns, rows)


if __name__ == "__main__":
    listen(*sys.argv[1:])
