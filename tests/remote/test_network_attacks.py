"""Hostile clients at the ports of a server: they change nothing, and others are served meanwhile.

Each at a small size, and with `-m long` at full size: 100,000 frames, 500 connections of a kind.
"""

from __future__ import annotations

import random
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.errors import CertificateRefused
from quire.interface.store import Store as Interface
from quire.remote.limits import MAX_HANDSHAKES
from quire.remote.server.network_entrance import NetworkEntrance
from quire.remote.wire.address import TcpPlace
from quire.remote.wire.protocol import CALL, encode_call, greeting
from quire.remote.wire.sockets import connect
from quire.tls import Tls
from tests.kit.certificates import Authority
from tests.kit.hostile_frames import HELLO, send_frames
from tests.kit.network import certificates, listening
from tests.kit.raw_stream import RawStream, get
from tests.kit.waiting import SECONDS, eventually

FRAMES = [400, pytest.param(100_000, marks=pytest.mark.long)]
CROWD = [30, pytest.param(500, marks=pytest.mark.long)]
MEMORY_BYTES = 64 << 20  # that all of the hostile connections may cost
CONNECTION_BYTES = 96 << 10
secure_or_not = pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])


class Target(NamedTuple):
    """A server with the queue `kept`, in which there is a message, and a quiet client of it."""

    owner: Store
    entrance: NetworkEntrance
    place: TcpPlace
    quiet: Interface

    @property
    def waiting(self) -> int:
        """The gets that wait."""
        found: int = self.owner.status()["sharing"]["waiting"]
        return found

    def check(self) -> None:
        """The quiet client is served, and finds what was there."""
        assert self.quiet.queue("kept").messages == 1


@contextmanager
def attacked(owner: Store, *, secure: bool, connections: int = 0) -> Iterator[Target]:
    """The target of a test. At the end it is as it was, and the memory that it took is bounded.

    `connections`: that the test has open at the same time, both ends of them in this process.
    """
    server, client = certificates()
    owner.create_queue("kept", kind="work")
    owner.put("kept", b"message")
    with listening(owner, server if secure else None) as entrance, ExitStack() as stack:
        port = int(entrance.urls[0].rpartition(":")[2])
        tls = client if secure else None
        quiet = stack.enter_context(quire.open(entrance.urls[0], tls=tls))
        target = Target(owner, entrance, TcpPlace("localhost", port, tls), quiet)
        target.check()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield target
        target.check()
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (after - before) << 10 < MEMORY_BYTES + connections * CONNECTION_BYTES
    eventually(lambda: not owner.admin.transactions())


@pytest.mark.promise(13)
@secure_or_not
@pytest.mark.parametrize("count", FRAMES)
def test_hostile_frames_change_nothing(
    owner: Store, rng: random.Random, secure: bool, count: int
) -> None:
    """Before and after the greeting: a quiet client is served all the while, in bounded memory."""
    with attacked(owner, secure=secure) as target:
        for _ in range(10):
            send_frames(target.place, count // 10, rng, 0.5)
            target.check()
        assert [queue.name for queue in target.quiet.queues()] == ["kept"]


@pytest.mark.promise(13)
@pytest.mark.parametrize("crowd", CROWD)
def test_hostile_records_change_nothing(owner: Store, rng: random.Random, crowd: int) -> None:
    """Bytes that are no TLS, and records of which some bytes are others, before any handshake."""
    with attacked(owner, secure=True) as target:
        for _ in range(crowd):
            head = b"\x16\x03\x01" + struct.pack(">H", rng.choice([0, 1, 300, 16384, 65535]))
            data = head + rng.randbytes(rng.randrange(400))
            with suppress(OSError), closing(connect_plain(target)) as connection:
                connection.sendall(data[rng.randrange(3) :])
                connection.settimeout(0.005)
                connection.recv(1 << 12)


def connect_plain(target: Target) -> socket.socket:
    """Connect to the port without TLS, whatever is spoken there."""
    return socket.create_connection(("127.0.0.1", target.place.port), SECONDS)


@pytest.mark.parametrize("crowd", CROWD)
def test_half_done_handshakes_hold_nobody_up(owner: Store, crowd: int) -> None:
    """The oldest give way, and cost no thread each."""
    with attacked(owner, secure=True) as target, ExitStack() as stack:
        threads = threading.active_count()
        for n in range(crowd):
            connection = stack.enter_context(closing(connect_plain(target)))
            with suppress(OSError):  # it has given way already
                connection.sendall(b"\x16\x03\x01\x02\x00\x01"[: n % 7])
            if n % 100 == 0:
                target.check()
        eventually(lambda: len(target.entrance._handshakes) == min(crowd, MAX_HANDSHAKES))
        assert threading.active_count() <= threads + 4
        target.check()


@secure_or_not
@pytest.mark.parametrize("crowd", [*CROWD, pytest.param(2000, marks=pytest.mark.long)])
def test_a_put_wakes_one_of_many_consumers(owner: Store, secure: bool, crowd: int) -> None:
    """Each waits on a connection of its own, without a thread; who goes leaves what it got."""
    with attacked(owner, secure=secure, connections=crowd) as target, ExitStack() as stack:
        owner.create_queue("jobs", kind="work")
        threads = threading.active_count()
        streams: list[RawStream] = []
        for _ in range(crowd):
            stream = RawStream(target.entrance.urls[0], tls=target.place.tls)
            stack.callback(stream.close)
            stream.send(get(1, "jobs", 1e5))
            streams.append(stream)
        eventually(lambda: target.waiting == crowd)
        assert threading.active_count() <= threads + 4
        got: list[RawStream] = []
        for left in range(crowd, crowd - 5, -1):
            target.quiet.put("jobs", b"for one")
            got += woken_of(streams)
            assert bytes(got[-1].next().bodies[0]).endswith(b"for one")
            assert (len(got), target.waiting) == (crowd - left + 1, left - 1)
        streams.remove(got[-1])
        got[-1].close()
        [heir] = woken_of(streams)
        assert bytes(heir.next().bodies[0]).endswith(b"for one")


def woken_of(streams: list[RawStream]) -> list[RawStream]:
    """Return the streams for which something comes, or does a moment later."""
    poll = select.poll()
    found = {stream.socket.fileno(): stream for stream in streams}
    for number in found:
        poll.register(number, select.POLLIN)
    numbers = {number for number, _ in poll.poll(1000 * SECONDS)}
    time.sleep(0.02)
    return [found[number] for number in numbers | {number for number, _ in poll.poll(0)}]


@pytest.mark.parametrize("crowd", CROWD)
def test_clients_that_read_nothing_or_little_hold_nobody_up(owner: Store, crowd: int) -> None:
    """They never read, read a byte a second, or send half a frame, over TLS; others are served."""
    ask = b"".join(
        b"".join(encode_call(CALL, n + 1, {"op": "status", "arguments": {}})) for n in range(100)
    )
    with attacked(owner, secure=True) as target, ExitStack() as stack:
        slow: list[socket.socket] = []
        for n in range(crowd):
            connection = stack.enter_context(closing(connect(target.place, SECONDS)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(greeting() + HELLO)
            connection.settimeout(0.01)
            with suppress(OSError):
                connection.sendall(ask[:20] if n % 3 == 0 else ask)
            if n % 3 == 1:
                slow.append(connection)
            if n % 50 == 0:
                target.check()
        for connection in slow:
            with suppress(OSError):
                connection.recv(1)
        target.check()


@pytest.mark.promise(13)
@pytest.mark.parametrize("crowd", CROWD)
def test_wrong_and_expired_certificates_are_refused(
    owner: Store, tmp_path: Path, crowd: int
) -> None:
    """Each time, while others are served."""
    client = certificates()[1]
    stranger = Authority(tmp_path, "other").certificate("stranger")
    wrong = Tls(ca=client.ca, cert=stranger.cert, key=stranger.key)
    with attacked(owner, secure=True) as target:
        for n in range(crowd):
            with pytest.raises(CertificateRefused):
                quire.open(target.entrance.urls[0], tls=wrong if n % 2 else Tls(ca=client.ca))
