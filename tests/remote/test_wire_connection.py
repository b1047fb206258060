"""A side of a connection without its socket: bytes in any cut, frames and greetings out."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator

import pytest

from quire.arguments import Bytes
from quire.errors import ConnectionLost, RemoteError
from quire.remote.limits import (
    FIRST_BUFFER_BYTES,
    FIRST_RECEIVE_BYTES,
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    RECEIVE_BYTES,
)
from quire.remote.wire.protocol import (
    CALL,
    HEAD,
    MAX_BYTES_OF_KIND,
    RESULT,
    Kind,
    greeting,
)
from quire.remote.wire.wire_connection import WireConnection, WireSide
from tests.kit.limits import Limits
from tests.kit.raw_stream import call, good_hello

HELLO = {"op": "hello", "role": "work"}
ANSWER = {"op": "hello", "epoch": "e"}


def owner() -> WireConnection:
    """The owner's side."""
    return WireConnection(WireSide.OWNER, memoryview(bytearray(RECEIVE_BYTES)))


def feed(wire: WireConnection, data: bytes) -> Iterator[bytes]:
    """Have it receive the bytes, as much at once as it takes; the frames."""
    left = memoryview(data)
    while left:
        count = min(len(wire.buffer), len(left))
        wire.buffer[:count] = left[:count]
        left = left[count:]
        frame = wire.received(count)
        while frame is not None:
            yield bytes(frame)
            frame = wire.next()


def outgoing(wire: WireConnection) -> bytes:
    """Everything that it has to send."""
    return b"".join(wire.take_outgoing())


def admitted() -> WireConnection:
    """An owner's side that has answered the hello."""
    wire = owner()
    [hello] = feed(wire, good_hello())
    wire.accept(wire.hello_of(hello), ANSWER)
    outgoing(wire)
    return wire


def test_two_sides_let_each_other_in() -> None:
    """Greeting, hello and answer; each side sends what it has at once."""
    client, server = WireConnection(WireSide.CLIENT), owner()
    client.send_hello(HELLO)
    [hello] = feed(server, outgoing(client))
    assert server.hello_of(hello) == {**HELLO, "versions": [6, 6], "capabilities": []}
    server.accept(server.hello_of(hello), ANSWER)
    [answer] = feed(client, outgoing(server))
    assert client.accepted(answer) == {**ANSWER, "version": 6, "capabilities": []}
    assert client.limit == server.limit == MAX_FRAME_BYTES


def test_every_cut_gives_the_same_frames() -> None:
    """IN1, IN4: wherever the bytes of a session are cut, and though they come one by one."""
    frames = [good_hello()[len(greeting()) :], HEAD.pack(0, 9, 1), call({"op": "status"}), b""]
    frames[-1] = HEAD.pack(300, RESULT, 1) + bytes(range(256)) + bytes(44)
    session = greeting() + b"".join(frames)
    for cut in range(len(session) + 1):
        wire = owner()
        found = [*feed(wire, session[:cut]), *feed(wire, session[cut:])]
        assert found == frames
        assert outgoing(wire) == greeting()
    wire = owner()
    assert [frame for byte in session for frame in feed(wire, bytes([byte]))] == frames


def test_long_frames_in_every_kind_of_pieces(
    rng: random.Random, rounds: int, limits: Limits
) -> None:
    """IN1, IN2, IN3: however the bytes arrive, the frames are those that were sent."""
    limits(FIRST_BUFFER_BYTES=RECEIVE_BYTES)
    sizes = (0, 1, 100, RECEIVE_BYTES - HEAD.size, RECEIVE_BYTES, 3 * RECEIVE_BYTES)
    for number in range(rounds):
        frames = [
            HEAD.pack(size, RESULT, 1) + rng.randbytes(size) for size in rng.choices(sizes, k=8)
        ]
        data = memoryview(b"".join(frames))
        wire = WireConnection(WireSide.CLIENT) if number % 2 else owner()
        list(feed(wire, greeting()))
        wire.limit = MAX_FRAME_BYTES
        found: list[bytes] = []
        while data:
            count = rng.choice((1, 7, HEAD.size, 1000, 1 << 20))
            found += feed(wire, bytes(data[:count]))
            data = data[count:]
        assert found == frames


def test_a_long_frame_is_received_in_place() -> None:
    """IN2: the socket writes into the buffer that the frame is given in."""
    here, there = socket.socketpair()
    wire = admitted()
    frame: Bytes | None = None
    data = HEAD.pack(3 * RECEIVE_BYTES, CALL, 1) + bytes(3 * RECEIVE_BYTES)
    with here, there:
        there.setblocking(False)
        left, buffers = memoryview(data), set[int]()
        while frame is None:
            if left:
                left = left[there.send(left[:RECEIVE_BYTES]) :]
            frame = wire.received(here.recv_into(wire.buffer))
            buffers.add(id(wire.buffer.obj))
    assert isinstance(frame, bytearray)
    assert frame == data
    assert id(frame) in buffers


def test_the_buffer_grows_with_what_has_arrived() -> None:
    """IN3: it is never more than twice that, whatever the frame's head claims."""
    wire = admitted()
    assert not list(feed(wire, HEAD.pack(1900 << 20, CALL, 1)))
    arrived, piece = HEAD.size, bytes(RECEIVE_BYTES)
    while arrived < 6 << 20:
        frame = wire.buffer.obj
        assert isinstance(frame, bytearray)
        assert len(frame) <= max(FIRST_BUFFER_BYTES, 2 * arrived)
        assert not list(feed(wire, piece))
        arrived += len(piece)


def test_a_connection_of_its_own_buffer_begins_small() -> None:
    """IN1: an idle client costs a page; one that receives much at once gets more."""
    wire = WireConnection(WireSide.CLIENT)
    assert len(wire.buffer) == FIRST_RECEIVE_BYTES
    list(feed(wire, greeting()))
    wire.limit = MAX_FRAME_BYTES
    frame = HEAD.pack(2 * FIRST_RECEIVE_BYTES, RESULT, 1) + bytes(2 * FIRST_RECEIVE_BYTES)
    assert list(feed(wire, frame)) == [frame]
    assert len(wire.buffer) == RECEIVE_BYTES


def test_a_length_that_cannot_be_is_refused() -> None:
    """PR1, IN4: before the hello next to nothing is taken, and never more than a frame may have."""
    early = owner()
    list(feed(early, greeting()))
    for wire, limit in ((early, MAX_HELLO_BYTES), (admitted(), MAX_FRAME_BYTES)):
        with pytest.raises(RemoteError, match="at most"):
            list(feed(wire, HEAD.pack(limit, CALL, 1)))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in MAX_BYTES_OF_KIND])
def test_a_kind_that_carries_no_payload_is_short(kind: Kind) -> None:
    """PR1: its length is not believed where it is longer than a hello may be."""
    with pytest.raises(RemoteError, match="at most"):
        list(feed(admitted(), HEAD.pack(MAX_HELLO_BYTES + 1, kind, 1)))


@pytest.mark.promise(13)
def test_a_side_is_refused_in_words() -> None:
    """In the greeting, or after it by the answer to what came; the client raises both."""
    wire = owner()
    with pytest.raises(RemoteError, match="not Quire's protocol"):
        list(feed(wire, b"GET / HTTP/1.1\r\n\r\n"))
    wire.refuse(RemoteError("no, because"))
    assert outgoing(wire) == greeting("no, because")
    client = WireConnection(WireSide.CLIENT)
    words = greeting("no, because")
    assert not list(feed(client, words[:-1]))
    with pytest.raises(RemoteError, match="no, because"):
        list(feed(client, words[-1:]))

    wire, client = owner(), WireConnection(WireSide.CLIENT)
    client.send_hello(HELLO)
    list(feed(wire, outgoing(client)))
    wire.refuse(ConnectionLost("later"))
    [answer] = feed(client, outgoing(wire))
    with pytest.raises(ConnectionLost, match="later"):
        client.accepted(answer)
    assert client.limit == MAX_HELLO_BYTES


@pytest.mark.promise(13)
@pytest.mark.parametrize("frame", [call({}), call({"op": "hello"}), HEAD.pack(0, 9, 1)])
def test_what_is_no_hello(frame: bytes) -> None:
    """CL3: the first frame is one."""
    wire = owner()
    [found] = feed(wire, greeting() + frame)
    with pytest.raises(RemoteError, match="hello"):
        wire.hello_of(found)


@pytest.mark.fuzz
@pytest.mark.promise(13)
def test_hostile_bytes_take_little_memory(rng: random.Random, rounds: int) -> None:
    """IN1, IN3: random and changed frames before and after the greeting, in any pieces."""
    good = good_hello() + call({"op": "status"}) + HEAD.pack(70_000, CALL, 2) + bytes(70_000)
    for _ in range(rounds * 40):
        data = bytearray(good if rng.random() < 0.9 else rng.randbytes(200))
        places = [rng.randrange(len(data)), rng.randrange(200), rng.randrange(200)]
        for place in places[: rng.randint(0, 3)]:
            data[place] = rng.randrange(256)
        wire, left, arrived = owner(), memoryview(data), 0
        with contextlib.suppress(RemoteError):
            while left:
                piece = left[: rng.choice((1, 13, 1000, len(left)))]
                for frame in feed(wire, bytes(piece)):
                    if wire.limit == MAX_HELLO_BYTES:
                        wire.accept(wire.hello_of(frame), ANSWER)
                left, arrived = left[len(piece) :], arrived + len(piece)
                assert (
                    len(wire.rest) < 2 * RECEIVE_BYTES
                )  # a short frame, and what came with its end
                assert wire.buffer.nbytes <= max(FIRST_BUFFER_BYTES, 2 * arrived)
