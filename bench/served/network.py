"""A store that is served at a port, with TLS and without, beside Redis and NATS JetStream.

One server of each kind runs, all on this machine; its clients, 1 to 64 processes, do the same in
turns. Messages have 100 bytes; each client has queues of its own. Redis syncs its append-only file,
and NATS its streams, before they answer. NATS has no transactions: there a message is put twice and
then acknowledged. Then up to 64 tasks of one process share a connection, and at last a proxy
delays all bytes, and counts how often a client waits for an answer. A server that is not installed
is left out, and named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_least, at_most, exactly
from bench.measuring.payloads import as_list
from bench.measuring.program import Program, spent_seconds
from bench.served.network_servers import (
    JetStreamServer,
    QuireSocketServer,
    QuireTcpServer,
    QuireTlsServer,
    RedisTcpServer,
)
from bench.served.served import Crowd

__all__ = ["run"]

CLIENTS = (1, 8, 64)
TASKS = (1, 8, 64)
OPERATIONS = {"put": "put", "get": "consume: a transaction with one get", "move": "get + 2 puts"}
TASK_OPERATIONS = ("put", "move")
SOCKET, TCP, TLS = "Quire", "Quire TCP", "Quire TLS"
NAMES = {SOCKET: "Quire, Unix socket", TCP: "Quire, TCP", TLS: "Quire, TLS"}
DELAY_SECONDS = 0.01  # each way
TURNS = {"put": 1.0, "get + 2 puts": 2.0}  # round trips, at most

# By kind, number of clients or tasks, operation: for each round what was measured.
Rounds = dict[tuple[str, int, str], list[dict[str, float]]]


class NetworkServer(Protocol):
    """A server at a port."""

    name: str
    address: str

    def __init__(self, folder: Path) -> None: ...

    @property
    def process_ids(self) -> list[int]: ...

    def stop(self) -> None: ...


KINDS: tuple[type[NetworkServer], ...] = (
    QuireSocketServer, QuireTcpServer, QuireTlsServer, RedisTcpServer, JetStreamServer,
)  # fmt: skip


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Figures with their targets, and tables of all that was measured."""
    with ExitStack() as stack:
        servers: list[NetworkServer] = []
        for kind in KINDS:
            try:
                server = kind(setting.folder / kind.name.replace(" ", "-"))
            except FileNotFoundError as error:
                print(f"  without {kind.name}: {error}")
                continue
            stack.callback(server.stop)
            servers.append(server)
        tcp, tls = servers[1], servers[2]
        assert isinstance(tcp, QuireTcpServer)
        assert isinstance(tls, QuireTlsServer)
        crowds = _measure_clients(setting, servers)
        tasks = _measure_tasks(setting, servers[:3])
        slow = _measure_slow_network(setting, tcp, tls)
    return [*_figures(crowds, slow), *_tables(crowds, tasks), _slow_table(slow)]


def _measure_clients(setting: BenchmarkSetting, servers: Sequence[NetworkServer]) -> Rounds:
    found: Rounds = {}
    rounds, seconds = setting.scaled(3, 1), 0.1 if setting.quick else 0.5
    for count in CLIENTS if not setting.quick else CLIENTS[:2]:
        with ExitStack() as stack:
            crowds = [
                (server, stack.enter_context(closing(Crowd(server, count)))) for server in servers
            ]
            for _ in range(rounds):
                for operation in OPERATIONS:
                    for server, crowd in crowds:
                        taken = _with_server_time(server, lambda: crowd.run(operation, seconds))  # noqa: B023
                        found.setdefault((server.name, count, operation), []).append(taken)
    return found


def _measure_tasks(setting: BenchmarkSetting, servers: Sequence[NetworkServer]) -> Rounds:
    found: Rounds = {}
    rounds, seconds = setting.scaled(3, 1), 0.1 if setting.quick else 0.5
    with ExitStack() as stack:
        programs = []
        for server in servers:
            address = server.path if isinstance(server, QuireSocketServer) else server.address
            program = Program("bench.served.network_tasks", address)
            stack.callback(program.close)
            programs.append((server, program))
        for count in TASKS:
            for _ in range(rounds):
                for operation in TASK_OPERATIONS:
                    for server, program in programs:
                        taken = program.ask(f"{operation} {count} {seconds}")
                        found.setdefault((server.name, count, operation), []).append(taken)
    return found


def _with_server_time(
    server: NetworkServer, call: Callable[[], dict[str, float]]
) -> dict[str, float]:
    """Return what the call gives, and the server's processor time for an operation, in us.

    The messages with which a queue is filled first count as time, not as operations: `put` alone
    has none.
    """
    before = spent_seconds(server.process_ids)
    taken = call()
    spent = spent_seconds(server.process_ids) - before
    return {**taken, "server": spent / max(1.0, taken["count"]) * 1e6}


def _measure_slow_network(
    setting: BenchmarkSetting, tcp: QuireTcpServer, tls: QuireTlsServer
) -> list[tuple[str, str, float, float]]:
    """For each kind of connection and operation: milliseconds, and round trips."""
    from tests.kit.tcp_proxy import TcpProxy

    payload = as_list(1, 1)[0]
    found = []
    for server in (tcp, tls):
        _, *files = server.address.split("\n")
        certificate = quire.Tls(ca=files[0], cert=files[1], key=files[2]) if files else None
        with (
            closing(TcpProxy(server.port)) as proxy,
            quire.open(proxy.url, tls=certificate) as store,
        ):
            for name in ("slow-a", "slow-b", "slow-c"):
                store.create_queue(name, kind="work")

            def put() -> None:
                store.put("slow-a", payload)

            def move() -> None:
                with store.transaction() as txn:
                    message = txn.get("slow-a")
                    assert message is not None
                    txn.put("slow-b", message.payload)
                    txn.put("slow-c", message.payload)

            for _ in range(3):  # all queues are known then
                put()
                move()
            proxy.delay_seconds = DELAY_SECONDS
            for operation, call in (("put", put), ("get + 2 puts", move)):
                count = setting.scaled(20, 3)
                for _ in range(count if call is move else 0):
                    put()
                turns, began = proxy.turns, time.perf_counter()
                for _ in range(count):
                    call()
                took = (time.perf_counter() - began) / count
                trips = (proxy.turns - turns) / count
                found.append((server.name, operation, took * 1e3, trips))
    return found


def _middle(found: Rounds, key: tuple[str, int, str], what: str) -> float:
    return median(each[what] for each in found[key])


def _ratio(found: Rounds, key: tuple[str, int, str], rival: str, what: str) -> float:
    """The ratio to the rival's, in each round: the median."""
    pairs = zip(found[key], found[rival, key[1], key[2]], strict=True)
    return median(own[what] / other[what] for own, other in pairs)


def _figures(found: Rounds, slow: Sequence[tuple[str, str, float, float]]) -> list[Figure]:
    counts = sorted({count for _, count, _ in found})
    figures = []
    if any(name == "Redis" for name, _, _ in found):
        for name in (TCP, TLS):
            for operation, words in OPERATIONS.items():
                ratio = _ratio(found, (name, 1, operation), "Redis", "p50")
                goal = at_most(1.0) if operation == "put" else None
                title = f"{words}, one client, {NAMES[name]}: p50 to Redis's"
                figures.append(Figure(title, ratio, "times", goal))
        for name in (TCP, TLS):
            for count in counts[1:]:
                ratio = _ratio(found, (name, count, "put"), "Redis", "rate")
                goal = at_least(0.8) if count == 64 else None
                title = f"put, {count} clients, {NAMES[name]}: rate to Redis's"
                figures.append(Figure(title, ratio, "times", goal))
    for name in (TCP, TLS):
        for count in counts[2:]:
            ratio = _ratio_of_counts(found, name, count, 8)
            title = f"server's time for a put, {count} clients to 8, {NAMES[name]}"
            figures.append(Figure(title, ratio, "times", at_most(1.1)))
    more = _middle(found, (TLS, 8, "put"), "server") - _middle(found, (SOCKET, 8, "put"), "server")
    title = "server's time for a put over TLS beyond the Unix socket's, 8 clients"
    figures.append(Figure(title, more, "us", at_most(40.0)))
    for name, operation, _, trips in slow:
        title = f"{operation}, {NAMES[name]}: round trips"
        figures.append(Figure(title, trips, "", exactly(TURNS[operation])))
    return figures


def _ratio_of_counts(found: Rounds, name: str, count: int, other: int) -> float:
    pairs = zip(found[name, count, "put"], found[name, other, "put"], strict=True)
    return median(own["server"] / less["server"] for own, less in pairs)


def _tables(crowds: Rounds, tasks: Rounds) -> list[Table]:
    names = list(dict.fromkeys(name for name, _, _ in crowds))
    counts = sorted({count for _, count, _ in crowds})
    tables = []
    for what, title, operations in (
        ("p50", "One transaction at a port, p50, us", tuple(OPERATIONS)),
        ("rate", "Transactions a second at a port, all clients together", tuple(OPERATIONS)),
        ("server", "Processor time of the server for a put, us", ("put",)),
    ):
        rows: list[list[Any]] = [
            [
                OPERATIONS[operation],
                count,
                *(f"{_middle(crowds, (name, count, operation), what):,.0f}" for name in names),
            ]
            for operation in operations
            for count in counts
        ]
        columns = ["operation", "clients", *(NAMES.get(name, name) for name in names)]
        tables.append(Table(title, columns, rows))
    own = list(dict.fromkeys(name for name, _, _ in tasks))
    for what, title in (
        ("p50", "Tasks of one process over one connection (asyncio), p50, us"),
        ("rate", "Tasks of one process over one connection, transactions a second"),
    ):
        rows = [
            [
                OPERATIONS[operation],
                count,
                *(f"{_middle(tasks, (name, count, operation), what):,.0f}" for name in own),
            ]
            for operation in TASK_OPERATIONS
            for count in TASKS
        ]
        tables.append(Table(title, ["operation", "tasks", *(NAMES[name] for name in own)], rows))
    return tables


def _slow_table(slow: Sequence[tuple[str, str, float, float]]) -> Table:
    rows: list[list[Any]] = [
        [operation, NAMES[name], took, trips] for name, operation, took, trips in slow
    ]
    title = f"Over a network with {2 * DELAY_SECONDS * 1e3:.0f} ms for a round trip"
    return Table(title, ["operation", "connection", "ms", "round trips"], rows)
