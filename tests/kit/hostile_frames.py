"""Bytes of clients that mean harm, or are broken: random ones, random frames, mutated requests."""

from __future__ import annotations

import random
import struct
from contextlib import closing, suppress
from typing import Final

from quire.remote.wire.address import TcpPlace
from quire.remote.wire.protocol import (
    CALL,
    COMMIT,
    COMMIT_FRAME,
    CONNECTION,
    GET,
    GET_HEAD,
    HEAD,
    PUT,
    PUT_HEAD,
    STEP,
    TELL,
    Header,
    encode_call,
    greeting,
    spoken_versions,
)
from quire.remote.wire.sockets import connect
from tests.kit.waiting import SECONDS

HELLO: Final = b"".join(
    encode_call(
        CALL,
        CONNECTION,
        {"op": "hello", "role": "work", "epoch": None, "process_id": 1, **spoken_versions()},
    )
)
NOBODY: Final = "nobody"  # a queue that is not there
FRAMES_OF_CONNECTION: Final = 100  # after the greeting
PATIENCE_SECONDS: Final = 0.002  # with a server that waits for the rest of a greeting
_STREAMS: Final = 200  # so some frames meet others of their stream
_CALLS: Final[list[tuple[int, Header, tuple[bytes, ...]]]] = [
    (CALL, {"op": "queues", "arguments": {"names": [NOBODY]}}, ()),
    (CALL, {"op": "browse", "arguments": {"source": NOBODY}}, ()),
    (STEP, {"op": "put_many_once", "queue": NOBODY, "request_ids": ["a"]}, (b"block",)),
    (STEP, {"op": "get_many", "arguments": {"source": NOBODY, "max_messages": 9}}, ()),
    (TELL, {"op": "begin", "timeout": 1.0, "large": False}, ()),
]
_REQUESTS: Final = [
    PUT_HEAD.pack(2 + len(NOBODY) + 5, PUT, 1, len(NOBODY)) + NOBODY.encode() + b"bytes",
    GET_HEAD.pack(GET_HEAD.size - HEAD.size + len(NOBODY), GET, 1, 0.0) + NOBODY.encode(),
    COMMIT_FRAME.pack(COMMIT_FRAME.size - HEAD.size, COMMIT, 1, 3, 0.0),
    *(b"".join(encode_call(kind, 1, header, bodies)) for kind, header, bodies in _CALLS),
]


def before_greeting(rng: random.Random) -> bytes:
    """Return the beginning of a connection: random bytes, frames, or a greeting and hello with
    other bytes in them.
    """
    kind = rng.randrange(3)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 400))
    if kind == 1:
        return random_frame(rng) + random_frame(rng)
    return mutated(greeting() + HELLO, rng)


def after_greeting(rng: random.Random) -> bytes:
    """Return a frame: its head is right as to the length, as else the connection ends with it."""
    if rng.randrange(2):
        return random_frame(rng)
    request = bytearray(mutated(rng.choice(_REQUESTS), rng))
    struct.pack_into("<I", request, 0, len(request) - HEAD.size)
    struct.pack_into("<I", request, 8, rng.randrange(_STREAMS))
    return bytes(request)


def random_frame(rng: random.Random) -> bytes:
    """Return a frame of any kind, with any flags, and a random body."""
    body = rng.randbytes(rng.randrange(60))
    return (
        struct.pack(
            "<IBBHI",
            len(body),
            rng.randrange(26),
            rng.randrange(256),
            rng.randrange(1 << 16),
            rng.randrange(_STREAMS),
        )
        + body
    )


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes with up to five others in them."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def impossible_frame(rng: random.Random) -> bytes:
    """Return the head of a frame of gigabytes, and some of it."""
    kind = rng.choice([CALL, PUT, STEP])
    return struct.pack("<IB3xI", (1 << 32) - 1 - rng.randrange(1000), kind, 1) + rng.randbytes(50)


def send_frames(place: TcpPlace, count: int, rng: random.Random, share_before: float) -> int:
    """Send so many frames to a server, over connections that end with an impossible one.

    `share_before`: of the connections, those with bytes before the greeting in its place. Returns
    how many connections there were.
    """
    connections = 0
    while count > 0:
        connections += 1
        if rng.random() < share_before:
            count -= 1
            _send(place, before_greeting(rng), PATIENCE_SECONDS)
        else:
            frames = [after_greeting(rng) for _ in range(min(count, FRAMES_OF_CONNECTION))]
            count -= len(frames)
            data = b"".join([greeting(), HELLO, *frames, impossible_frame(rng)])
            _send(place, data, SECONDS)
    return connections


def _send(place: TcpPlace, data: bytes, seconds: float) -> None:
    """Send the bytes on a connection of their own, and read until it ends, for so long at most."""
    with suppress(OSError), closing(connect(place, SECONDS)) as connection:
        connection.sendall(data)
        connection.settimeout(seconds)
        while connection.recv(1 << 16):
            pass
