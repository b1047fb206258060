"""Hostile bytes at the ports of a server: they change nothing, and others are served meanwhile."""

from __future__ import annotations

import random
import resource
import socket
import struct
from contextlib import ExitStack, closing, suppress

import pytest

import quire
from quire.engine import EmbeddedStore as Store
from quire.remote.server.network_entrance import NetworkEntrance
from quire.remote.wire.address import TcpPlace
from quire.remote.wire.protocol import (
    CALL,
    CONNECTION,
    encode_call,
    greeting,
    spoken_versions,
)
from quire.remote.wire.sockets import connect
from tests.kit.network import certificates, listening
from tests.kit.waiting import SECONDS

HELLO = b"".join(
    encode_call(
        CALL,
        CONNECTION,
        {"op": "hello", "role": "work", "epoch": None, "process_id": 1, **spoken_versions()},
    )
)
MEMORY_BYTES = 64 << 20  # that all of the hostile connections may cost


def hostile(rng: random.Random, *, begun: bool) -> bytes:
    """Random bytes, random frames, or a session of which some bytes are others."""
    match rng.randrange(3):
        case 0:
            data = rng.randbytes(rng.randrange(1, 400))
        case 1:
            data = b"".join(
                struct.pack(
                    "<IBBHI",
                    rng.choice([0, 5, 40, 1 << 20, 10_000_000_000 & 0xFFFFFFFF]),
                    rng.randrange(24),
                    rng.randrange(256),
                    rng.randrange(1 << 16),
                    rng.randrange(4),
                )
                + rng.randbytes(rng.randrange(60))
                for _ in range(rng.randrange(1, 5))
            )
        case _:
            mutated = bytearray(greeting() + HELLO)
            for _ in range(rng.randrange(1, 6)):
                mutated[rng.randrange(len(mutated))] = rng.randrange(256)
            data = bytes(mutated)
    return greeting() + HELLO + data if begun else data


def attack(entrance: NetworkEntrance, data: bytes, *, over_tls: bool) -> None:
    """Send the bytes on a connection of their own, and look at some of the answer."""
    port = int(entrance.urls[0].rpartition(":")[2])
    place = TcpPlace("localhost", port, certificates()[1] if over_tls else None)
    with suppress(OSError), closing(connect(place, SECONDS)) as connection:
        connection.sendall(data)
        connection.settimeout(0.005)
        connection.recv(1 << 12)


@pytest.mark.parametrize("secure", [True, False], ids=["tls", "plain"])
@pytest.mark.parametrize("rounds", [30, pytest.param(5000, marks=pytest.mark.long)])
def test_hostile_frames_change_nothing(
    owner: Store, rng: random.Random, secure: bool, rounds: int
) -> None:
    """Before and after the greeting: a quiet client is served all the while, in bounded memory."""
    server, client = certificates()
    owner.create_queue("kept", kind="work")
    owner.put("kept", b"message")
    with (
        listening(owner, server if secure else None) as entrance,
        quire.open(entrance.urls[0], tls=client if secure else None) as quiet,
    ):
        quiet.queues()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for n in range(rounds):
            attack(entrance, hostile(rng, begun=n % 2 == 0), over_tls=secure)
            if n % 10 == 0:
                assert quiet.queue("kept").messages == 1
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert (after - before) * 1024 < MEMORY_BYTES
        assert [queue.name for queue in quiet.queues()] == ["kept"]


def test_hostile_records_change_nothing(owner: Store, rng: random.Random) -> None:
    """Bytes that are no TLS, and records of which some bytes are others, before any handshake."""
    server, client = certificates()
    with listening(owner, server) as entrance:
        for _ in range(30):
            head = b"\x16\x03\x01" + struct.pack(">H", rng.choice([0, 1, 300, 16384, 65535]))
            data = head + rng.randbytes(rng.randrange(400))
            attack(entrance, data[rng.randrange(3) :], over_tls=False)
        with quire.open(entrance.urls[0], tls=client) as quiet:
            assert quiet.queues() == []


def test_clients_that_never_read_or_send_half_a_frame_hold_nobody_up(owner: Store) -> None:
    """Twenty of each, over TLS, while another one puts and gets."""
    server, client = certificates()
    with listening(owner, server) as entrance, ExitStack() as stack:
        place = TcpPlace("localhost", int(entrance.urls[0].rpartition(":")[2]), client)
        ask = b"".join(
            b"".join(encode_call(CALL, n + 1, {"op": "status", "arguments": {}}))
            for n in range(200)
        )
        for n in range(40):
            connection = stack.enter_context(closing(connect(place, SECONDS)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(greeting() + HELLO)
            connection.settimeout(0.01)
            with suppress(OSError):
                connection.sendall(ask if n % 2 else ask[:20])
        with quire.open(entrance.urls[0], tls=client) as quiet:
            quiet.create_queue("jobs", kind="work")
            for n in range(20):
                quiet.put("jobs", b"%d" % n)
            assert len(quiet.get_many("jobs")) == 20
