"""A relay: bytes between clients of other machines and the owner, whatever either of them does."""

from __future__ import annotations

import os
import random
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import RemoteError
from quire.remote.limits import RECEIVE_BYTES
from quire.remote.server.connection_relay import ConnectionRelay, RelayedConnection
from quire.remote.server.network_entrance import NetworkEntrance, places_to_listen
from quire.remote.wire.address import (
    Address,
    make_run_directory,
    place_of,
    remove_address,
    unix_url,
    write_address,
)
from quire.remote.wire.failures import raise_error
from quire.remote.wire.frame_boundaries import FrameBoundaries
from quire.remote.wire.protocol import CALL, CONNECTION, DRAIN, DRAINED, GREETING, HEAD, STEP
from quire.remote.wire.sockets import listen
from tests.kit.limits import Limits
from tests.kit.raw_stream import RawStream, add, call, commit, good_hello
from tests.kit.waiting import SECONDS, eventually
from tests.remote.test_golden_frames import SESSION

Ends = tuple[ConnectionRelay, socket.socket, socket.socket]
COUNT = call({"op": "count", "arguments": {"source": "q"}}, kind=STEP, stream=1)
LONG = 5_000_000  # more than all buffers on the way together


@contextmanager
def relaying(path: str) -> Iterator[tuple[ConnectionRelay, str]]:
    """A relay to the owner of a store, and the URL of its port."""
    with closing(ConnectionRelay(OsEnv(), path)) as relay:
        relay.begin()
        places = places_to_listen(["localhost:0"], None, insecure=True)
        with closing(NetworkEntrance(places)) as entrance:
            entrance.let_in(relay.adopt)
            yield relay, entrance.urls[0]


@pytest.fixture
def relay_and_url(owner: Store) -> Iterator[tuple[ConnectionRelay, str]]:
    """A relay to a store of this process."""
    with relaying(owner.path) as found:
        yield found


def dial(url: str) -> socket.socket:
    """Connect, and say nothing."""
    place = place_of(url)
    connection = socket.create_connection(("127.0.0.1", place.port), SECONDS)  # type: ignore[union-attr]
    connection.settimeout(SECONDS)
    return connection


class ScriptedOwner:
    """The owner's end of relayed connections, which does what a test says."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "store")
        os.mkdir(self.path)
        name = os.path.join(make_run_directory(OsEnv(), self.path), "quire.sock")
        self.listener = listen(name)
        write_address(OsEnv(), self.path, Address(unix_url(name), "epoch", os.getpid()))

    def accept(self) -> socket.socket:
        """The end of the next connection."""
        connection, _ = self.listener.accept()
        connection.settimeout(SECONDS)
        return connection


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    """A relay, and a connection by it: its client's end, and the owner's."""
    scripted = ScriptedOwner(tmp_path)
    with (
        closing(scripted.listener),
        relaying(scripted.path) as (relay, url),
        closing(dial(url)) as client,
        closing(scripted.accept()) as owner,
    ):
        eventually(relay._all_connections)
        yield relay, client, owner


def only(relay: ConnectionRelay) -> RelayedConnection:
    """The one connection of a relay."""
    [found] = relay._all_connections()
    return found


def send_until_full(connection: socket.socket, data: bytes) -> int:
    """Send as much of it as the other side takes; the count."""
    connection.setblocking(False)
    sent = 0
    view = memoryview(data)
    while select.select([], [connection], [], 0.1)[1] and sent < len(data):
        with suppress(BlockingIOError):
            sent += connection.send(view[sent:])
    connection.settimeout(SECONDS)
    return sent


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side ends."""
    data = bytearray()
    while part := connection.recv(1 << 16):
        data += part
    return bytes(data)


def test_the_end_of_a_client_is_the_owners_to_see(
    owner: Store, relay_and_url: tuple[ConnectionRelay, str]
) -> None:
    """RE3, SV2: what it has open is rolled back."""
    owner.create_queue("q")
    relay, url = relay_and_url
    with closing(RawStream(url)) as stream:
        stream.send(add(1, ("q", b"never"), form=0))
        raise_error(stream.ask(COUNT).header)
        assert len(owner.admin.transactions()) == 1
    eventually(lambda: not owner.admin.transactions())
    eventually(lambda: not relay._all_connections())


def test_the_words_of_a_refusal_arrive(relay_and_url: tuple[ConnectionRelay, str]) -> None:
    """RE3: who speaks another version reads the owner's words."""
    with closing(RawStream(relay_and_url[1], good_hello().replace(b"work", b"none"))) as stream:
        stream.words(GREETING.size)
        with pytest.raises(RemoteError, match="begins with a hello"):
            raise_error(stream.next().header)


def test_nobody_is_let_in_where_no_process_owns_the_store(
    owner: Store, relay_and_url: tuple[ConnectionRelay, str]
) -> None:
    """RE4: the connection ends, and the port stays open for the next one."""
    relay, url = relay_and_url
    remove_address(OsEnv(), owner.path)
    with closing(dial(url)) as connection:
        assert read_all(connection) == b""
    owner._server.look()  # type: ignore[attr-defined]
    RawStream(url).close()
    relay._max_connections = 0
    with closing(dial(url)) as connection:
        assert read_all(connection) == b""


def test_a_client_that_sends_faster_than_the_owner_takes(
    ends: Ends,
) -> None:
    """RE2: it is read no further; the owner gets all of it, as it came, once it reads (RE1)."""
    relay, client, owner = ends
    data = random.Random(1).randbytes(3 * LONG)
    sent = send_until_full(client, data)
    assert sent < len(data)
    eventually(lambda: only(relay)._requests.unsent)
    assert len(only(relay)._requests.unsent) <= RECEIVE_BYTES
    found = bytearray()
    while len(found) < sent:
        found += owner.recv(1 << 16)
    assert found == data[:sent]


def test_a_client_that_is_gone_while_its_bytes_wait(
    ends: Ends,
) -> None:
    """RE3: the owner, which does not read, sees its end at once, and not behind all of that."""
    relay, client, owner = ends
    send_until_full(client, bytes(3 * LONG))
    eventually(lambda: only(relay)._requests.unsent)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # as a process that is killed
    eventually(lambda: not relay._all_connections())
    assert len(read_all(owner)) < 3 * LONG


def test_a_client_that_does_not_read_is_cut_off(ends: Ends, limits: Limits) -> None:
    """RE2: no more than a receive is kept for it, and not for longer than the owner would."""
    limits(SEND_SECONDS=0.3)
    relay, _, owner = ends
    connection = only(relay)
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            owner.sendall(bytes(RECEIVE_BYTES))
            assert len(connection._answers.unsent) <= RECEIVE_BYTES
    eventually(lambda: not relay._all_connections())


def test_what_the_owner_sent_before_its_end_arrives(
    ends: Ends,
) -> None:
    """RE3: however slowly the client reads; then its connection ends."""
    relay, client, owner = ends
    data = random.Random(2).randbytes(LONG)
    sent = send_until_full(owner, data)
    eventually(lambda: only(relay)._answers.unsent)
    owner.close()
    assert read_all(client) == data[:sent]
    eventually(lambda: not relay._all_connections())


def test_the_owner_takes_no_more_and_answers(
    ends: Ends,
) -> None:
    """RE3: as it does when it closes; the end of the client is noticed all the same."""
    relay, client, owner = ends
    owner.shutdown(socket.SHUT_RD)
    client.sendall(b"refused")
    eventually(lambda: only(relay)._is_refused)
    client.sendall(b"not read")
    owner.sendall(b"closing")
    assert client.recv(100) == b"closing"
    client.close()
    eventually(lambda: not relay._all_connections())


def test_a_drain_waits_for_open_transactions(
    owner: Store, relay_and_url: tuple[ConnectionRelay, str]
) -> None:
    """It is over once each connection has none; nobody who has none is waited for."""
    relay, url = relay_and_url
    owner.create_queue("q")
    with ExitStack() as stack:
        idle, busy = (stack.enter_context(closing(RawStream(url))) for _ in range(2))
        busy.send(add(1, ("q", b"kept"), form=0))
        raise_error(busy.ask(COUNT).header)
        relay.drain(0.05)
        assert idle.frame() == HEAD.pack(0, DRAINED, CONNECTION)
        assert [each.is_drained for each in relay._all_connections()].count(True) == 1
        assert busy.ask(commit(1, 1)).header == {}
        relay.drain(SECONDS)
        assert all(each.is_drained for each in relay._all_connections())
    assert owner.browse("q").payloads() == [b"kept"]


def frames_of_session() -> list[bytes]:
    """The beginning of a client's bytes, and its requests."""
    return [good_hello(), *(bytes.fromhex(request) for request, _ in SESSION)]


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_found_however_their_bytes_come(seed: int) -> None:
    """Each place in the bytes is one where a frame may begin, or is not, whatever was cut where."""
    rng = random.Random(seed)
    frames = frames_of_session()
    data = b"".join(frames)
    places, at = {GREETING.size}, 0  # the greeting, behind which the hello comes
    for frame in frames:
        at += len(frame)
        places.add(at)
    found, scanned, at = FrameBoundaries(), set(), 0
    while at < len(data):
        part = data[at : at + rng.choice((1, 2, 7, 12, 50, 1000))]
        place = found.scan(part)
        inside = [p for p in places if at <= p <= at + len(part)]
        assert place == (max(inside) - at if inside else None)
        at += len(part)
        assert found.is_between == (at in places)
        scanned.add(at)
    assert found.count == len(frames)
    assert CALL in found.kinds


def test_a_drain_comes_between_frames(
    ends: Ends,
) -> None:
    """Whenever it is asked for, and however the bytes come: nothing else is changed."""
    relay, client, owner = ends
    data, asks = b"".join(frames_of_session()), HEAD.pack(0, DRAIN, CONNECTION)
    owner.sendall(good_hello())  # as if it had answered
    eventually(lambda: only(relay).is_admitted)
    relay.drain(0.0)
    for at in range(0, len(data), 5):
        client.sendall(data[at : at + 5])
    client.shutdown(socket.SHUT_WR)
    found = read_all(owner)
    boundaries = FrameBoundaries()
    for at in range(len(found)):
        boundaries.scan(found[at : at + 1])
    count = boundaries.count - len(frames_of_session())
    assert boundaries.is_between
    assert count > 0
    assert len(found) == len(data) + count * len(asks)
    assert found.replace(asks, b"") == data
