"""A server at a port under load that means it no good: its memory, and its time for each of them.

The server is a process of its own; this one is all of its clients. First consumers that wait, each
over a connection of its own, or many over one; one put is for one of them. Then hostile clients:
random and mutated frames before and after the greeting, handshakes that are begun and left,
certificates that nobody trusts, and clients that ask and read nothing. Processor time is that of
the server alone. All that it has open is closed between two of them.
"""

from __future__ import annotations

import random
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

import quire
from bench.figure import BenchmarkSetting, Figure, Result, Table, at_most
from bench.measuring.program import spent_seconds
from bench.served.network_servers import QuireTcpServer, QuireTlsServer
from quire.errors import CertificateRefused
from quire.remote.wire.address import TcpPlace
from quire.remote.wire.protocol import CALL, encode_call, greeting
from quire.remote.wire.sockets import connect
from tests.kit.certificates import Authority
from tests.kit.hostile_frames import HELLO, send_frames
from tests.kit.raw_stream import RawStream, get
from tests.kit.waiting import SECONDS, eventually

__all__ = ["run"]

CONSUMERS = 2_000
STREAMS = 500  # of them that share a connection, where they do
WAKES = 20
FRAMES = 100_000
CROWD = 500
ASKS = 100  # of a client that reads nothing
KINDS = {"Quire TLS": "TLS", "Quire TCP": "no TLS"}
MEMORY_MIB = 64.0  # that all hostile clients of a kind may cost


class Attacked(NamedTuple):
    """A server, and how it is reached."""

    server: QuireTcpServer
    url: str
    tls: quire.Tls | None
    place: TcpPlace
    store: quire.Store

    @property
    def resident_bytes(self) -> int:
        """The server's memory now."""
        found: int = psutil.Process(self.server.process_ids[0]).memory_info().rss
        return found

    def forget_peak(self) -> None:
        """Have the system begin anew to note the most memory that the server has."""
        Path(f"/proc/{self.server.process_ids[0]}/clear_refs").write_text("5")

    @property
    def peak_bytes(self) -> int:
        """The server's memory at its most, since then."""
        text = Path(f"/proc/{self.server.process_ids[0]}/status").read_text()
        return int(text.partition("VmHWM:")[2].split()[0]) << 10

    def sharing(self, name: str) -> int:
        """A number of its report on its clients."""
        found: int = self.store.status()["sharing"][name]
        return found


class Load(NamedTuple):
    """The cost of so many connections or frames of a kind."""

    clients: int
    server_us: float  # for each
    memory_mib: float  # by which the server's peak has grown


def run(setting: BenchmarkSetting) -> Sequence[Result]:
    """Figures with their targets, and a table of each."""
    figures: list[Figure] = []
    waiting: list[list[Any]] = []
    hostile: list[list[Any]] = []
    for kind in (QuireTlsServer, QuireTcpServer):
        with ExitStack() as stack:
            server = kind(setting.folder / kind.name.replace(" ", "-"))
            stack.callback(server.stop)
            attacked = stack.enter_context(attacked_store(server))
            hostile += _hostile(setting, attacked, figures)
            waiting += _consumers(setting, attacked, figures)
    return [
        *figures,
        Table(
            "Consumers that wait at one server",
            ["consumers", "connections", "over", "KiB each", "from put to message, p50, us"],
            waiting,
        ),
        Table(
            "Hostile clients of one server",
            ["clients", "over", "count", "server's time for each, us", "peak memory more, MiB"],
            hostile,
        ),
    ]


@contextmanager
def attacked_store(server: QuireTcpServer) -> Iterator[Attacked]:
    """Open the store of a server, to the end of the block."""
    url, *files = server.address.split("\n")
    tls = quire.Tls(ca=files[0], cert=files[1], key=files[2]) if files else None
    with quire.open(url, tls=tls) as store:
        yield Attacked(server, url, tls, TcpPlace("localhost", server.port, tls), store)


def _consumers(
    setting: BenchmarkSetting, attacked: Attacked, figures: list[Figure]
) -> list[list[Any]]:
    """Rows of consumers on connections of their own, and of those that share some."""
    rows = []
    count = setting.scaled(CONSUMERS, 50)
    attacked.store.create_queue("jobs", kind="work")
    for streams in (min(STREAMS, count), 1):  # what was freed is used again: the less comes first
        with ExitStack() as stack:
            before = attacked.resident_bytes
            connections = count // streams
            found: list[RawStream] = []
            for _ in range(connections):
                stream = RawStream(attacked.url, tls=attacked.tls)
                stack.callback(stream.close)
                stream.send(b"".join(get(n + 1, "jobs", 1e5) for n in range(streams)))
                found.append(stream)
            eventually(lambda: attacked.sharing("waiting") == count)
            each = (attacked.resident_bytes - before) / count / 1024
            wakes = [_wake_one(attacked, found) for _ in range(setting.scaled(WAKES, 3))]
        eventually(lambda: not attacked.sharing("waiting"))
        attacked.store.admin.purge("jobs")
        over = KINDS[attacked.server.name]
        rows.append([count, connections, over, each, f"{median(wakes) * 1e6:,.0f}"])
        title = f"memory of a consumer that waits, {streams} on a connection, {over}"
        figures.append(Figure(title, each, "KiB"))
    return rows


def _wake_one(attacked: Attacked, streams: list[RawStream]) -> float:
    """Seconds from a put until a consumer has the message, and no other one anything."""
    poll = select.poll()
    for stream in streams:
        poll.register(stream.socket.fileno(), select.POLLIN)
    waiting = attacked.sharing("waiting")
    began = time.perf_counter()
    attacked.store.put("jobs", b"message")
    [(number, _)] = poll.poll(1000 * SECONDS)
    took = time.perf_counter() - began
    [woken] = [stream for stream in streams if stream.socket.fileno() == number]
    woken.next()
    assert attacked.sharing("waiting") == waiting - 1
    return took


def _hostile(
    setting: BenchmarkSetting, attacked: Attacked, figures: list[Figure]
) -> list[list[Any]]:
    """Rows of hostile clients."""
    over = KINDS[attacked.server.name]
    attacks: dict[str, Callable[[], int]] = {
        "frames before the greeting": lambda: _frames(setting, attacked, 1.0),
        "frames after the greeting": lambda: _frames(setting, attacked, 0.0),
        "clients that ask and read nothing": lambda: _never_read(setting, attacked),
    }
    if attacked.tls is not None:
        attacks["handshakes that are left"] = lambda: _handshakes(setting, attacked)
        attacks["certificates that nobody trusts"] = lambda: _strangers(setting, attacked)
    rows = []
    for words, attack in attacks.items():
        load = _measured(attacked, attack)
        rows.append([words, over, load.clients, load.server_us, load.memory_mib])
        title = f"{words}, {over}: peak memory more"
        figures.append(Figure(title, load.memory_mib, "MiB", at_most(MEMORY_MIB)))
        if words.startswith("frames"):
            figures.append(Figure(f"{words}, {over}: server's time for each", load.server_us, "us"))
    return rows


def _measured(attacked: Attacked, attack: Callable[[], int]) -> Load:
    attacked.forget_peak()
    peak, spent = attacked.peak_bytes, spent_seconds(attacked.server.process_ids)
    count = attack()
    eventually(lambda: attacked.sharing("connections") <= 2)
    took = spent_seconds(attacked.server.process_ids) - spent
    return Load(count, took / count * 1e6, (attacked.peak_bytes - peak) / (1 << 20))


def _frames(setting: BenchmarkSetting, attacked: Attacked, share_before: float) -> int:
    """Before the greeting each costs a connection, and over TLS a handshake: there fewer do."""
    count = setting.scaled(FRAMES, 500)
    if share_before:
        count //= 50 if attacked.tls else 5
    send_frames(attacked.place, count, random.Random(setting.seed), share_before)
    return count


def _handshakes(setting: BenchmarkSetting, attacked: Attacked) -> int:
    """The beginning of a hello of TLS, and no more."""
    count = setting.scaled(CROWD, 20)
    place = attacked.place._replace(tls=None)
    with ExitStack() as stack:
        for n in range(count):
            connection = stack.enter_context(closing(connect(place, SECONDS)))
            with suppress(OSError):  # it has given way already
                connection.sendall(b"\x16\x03\x01\x02\x00\x01"[: 1 + n % 6])
        attacked.store.queues()
    return count


def _strangers(setting: BenchmarkSetting, attacked: Attacked) -> int:
    """A certificate of another authority."""
    count = setting.scaled(CROWD, 20)
    assert attacked.tls is not None
    stranger = Authority(setting.folder / "other", "other").certificate("stranger")
    tls = quire.Tls(ca=attacked.tls.ca, cert=stranger.cert, key=stranger.key)
    for _ in range(count):
        with suppress(CertificateRefused):
            quire.open(attacked.url, tls=tls)
            raise RuntimeError("a stranger is let in")
    return count


def _never_read(setting: BenchmarkSetting, attacked: Attacked) -> int:
    """They ask for reports, and leave the answers."""
    count = setting.scaled(CROWD, 20)
    ask = b"".join(
        b"".join(encode_call(CALL, n + 1, {"op": "status", "arguments": {}})) for n in range(ASKS)
    )
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(closing(connect(attacked.place, SECONDS)))
            connection.settimeout(0.01)
            with suppress(OSError):
                connection.sendall(greeting() + HELLO + ask)
        attacked.store.queues()
    return count
