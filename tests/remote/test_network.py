"""A store that is served over the network: who is let in, who is not, and what lives on."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import quire
import quire.aio
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    CertificateRefused,
    ConnectionLost,
    InvalidArgument,
    RemoteError,
)
from quire.remote.limits import KEEP_ALIVE, MAX_HELLO_BYTES
from quire.remote.server.network_entrance import NetworkEntrance, places_to_listen
from quire.remote.wire.protocol import CALL, HEAD, MAGIC, greeting
from quire.tls import Tls
from tests.aio.test_waiting import in_line
from tests.kit.certificates import Authority
from tests.kit.limits import Limits
from tests.kit.network import certificates, listening, over_tls
from tests.kit.waiting import SECONDS, eventually


@pytest.fixture
def entrance(owner: Store) -> Iterator[NetworkEntrance]:
    """The ports at which a store is served over TLS."""
    with listening(owner, certificates()[0]) as entrance:
        yield entrance


def port_of(entrance: NetworkEntrance) -> int:
    """Return the port on loopback."""
    return int(entrance.urls[0].rpartition(":")[2])


def dial(entrance: NetworkEntrance) -> socket.socket:
    """Connect, and say nothing."""
    connection = socket.create_connection(("127.0.0.1", port_of(entrance)), SECONDS)
    connection.settimeout(SECONDS)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """Return what comes until the server ends the connection."""
    data = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            data += part
    return data


def test_a_client_puts_and_gets_over_tls(owner: Store) -> None:
    """Short and long messages, in transactions, from several threads, and a get that waits."""
    with over_tls(owner) as store:
        store.create_queue("jobs", kind="work")
        with store.transaction() as txn:
            txn.put("jobs", b"first")
            txn.put("jobs", bytes(3_000_000))
        assert store.get("jobs").payload == b"first"  # type: ignore[union-attr]
        assert store.get("jobs").payload == bytes(3_000_000)  # type: ignore[union-attr]
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(store.get("jobs", SECONDS)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for n in range(4):
            store.put("jobs", b"%d" % n)
        for thread in threads:
            thread.join(SECONDS)
        assert sorted(message.payload for message in found) == [b"0", b"1", b"2", b"3"]


def test_who_has_no_certificate_of_the_authority_is_refused(
    entrance: NetworkEntrance, tmp_path: Path
) -> None:
    """None, another authority's, one that trusts another server; those with one are served on."""
    url, (_, client) = entrance.urls[0], certificates()
    stranger = Authority(tmp_path, "other").certificate("stranger")
    with pytest.raises(CertificateRefused, match="with a certificate only"):
        quire.open(url, tls=Tls(ca=client.ca))
    with pytest.raises(CertificateRefused, match="refuses the certificate"):
        quire.open(url, tls=Tls(ca=client.ca, cert=stranger.cert, key=stranger.key))
    with pytest.raises(CertificateRefused, match="signed by none"):
        quire.open(url, tls=stranger)
    quire.open(url, tls=client).close()


def test_who_speaks_no_tls_is_told_so(entrance: NetworkEntrance) -> None:
    """A client of Quire by its greeting; a client over TLS, of a port without, by its error."""
    with pytest.raises(RemoteError, match=r"served over TLS: give quire\.open tls="):
        quire.open(entrance.urls[0])
    with closing(dial(entrance)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert MAGIC not in rest_of(connection)


def test_a_port_without_tls(owner: Store) -> None:
    """On loopback, where it is asked for; a client over TLS is told that there is none."""
    with listening(owner) as entrance:
        with quire.open(entrance.urls[0]) as store:
            store.create_queue("jobs")
        with pytest.raises(RemoteError, match="speaks no TLS"):
            quire.open(entrance.urls[0], tls=certificates()[1])


@pytest.mark.parametrize(
    ("listen", "tls", "insecure", "words"),
    [
        ("0.0.0.0:7", None, True, "over TLS only"),
        ("127.0.0.1:7", None, False, "--insecure"),
        ("0.0.0.0:7", Tls(cert="a", key="b"), False, "--client-ca"),
        ("nowhere", None, True, "host:port"),
        ("127.0.0.1:99999", None, True, "host:port"),
        ("127.0.0.1:0", Tls(cert="/none", key="/none"), False, "cannot be read"),
    ],
)
def test_ports_that_are_not_served(
    listen: str, tls: Tls | None, insecure: bool, words: str
) -> None:
    """Beyond this machine only over TLS and with clients' certificates (NE3)."""
    with pytest.raises(InvalidArgument, match=words):
        NetworkEntrance(places_to_listen([listen], tls, insecure=insecure))


def test_a_port_that_is_taken_is_named(entrance: NetworkEntrance) -> None:
    """Two servers do not share a port."""
    again = places_to_listen([f"localhost:{port_of(entrance)}"], None, insecure=True)
    with pytest.raises(RemoteError, match=r"cannot listen at quire://localhost:\d+"):
        NetworkEntrance(again)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("quire://example.com:7", {}, "over TLS only"),
        ("quire://localhost", {}, "host:port"),
        ("quire://localhost:7", {"tls": "file"}, "quire.Tls"),
        ("quire://localhost:7", {"segment_bytes": 1 << 20}, "segment_bytes"),
        ("quire://localhost:7", {"share": False}, "share"),
        ("some.quire", {"tls": Tls()}, "goes without tls"),
    ],
)
def test_urls_that_are_not_opened(url: str, options: dict[str, Any], words: str) -> None:
    """Each with words that say what is to be given."""
    with pytest.raises(InvalidArgument, match=words):
        quire.open(url, **options)


def test_addresses_are_tried_in_turn(entrance: NetworkEntrance) -> None:
    """One at which nobody listens is passed over; where nobody answers, all are named."""
    client = certificates()[1]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = f"localhost:{nobody.getsockname()[1]}"
        url = f"quire://{dead},localhost:{port_of(entrance)}"
        quire.open(url, tls=client).close()
        with pytest.raises(ConnectionLost, match=rf"{dead}.*{dead}"):
            quire.open(f"quire://{dead},{dead}", tls=client)


def test_the_system_asks_for_machines_that_are_silent(owner: Store) -> None:
    """On both sides, so that neither keeps a connection to a machine that is gone (SO4)."""
    with listening(owner) as entrance, ExitStack() as stack:
        store = stack.enter_context(quire.connect(entrance.urls[0]))
        served = owner._server._connections  # type: ignore[attr-defined]
        ends = [each._connection for each in served.values()]
        ends.append(store.owner_session.connection._watch._socket)
        for end in ends:
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            assert idle == KEEP_ALIVE["TCP_KEEPIDLE"]


def test_a_handshake_that_does_not_end_is_ended(owner: Store, limits: Limits) -> None:
    """Half of one, one that is not begun, and a client without a hello (NE2)."""
    limits(HANDSHAKE_SECONDS=0.2)
    with listening(owner, certificates()[0]) as entrance, ExitStack() as stack:
        silent, half = (stack.enter_context(closing(dial(entrance))) for _ in range(2))
        half.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert rest_of(silent) == rest_of(half) == b""
    with listening(owner) as entrance, closing(dial(entrance)) as mute:
        mute.sendall(greeting()[:3])
        assert rest_of(mute) == b""


def test_many_handshakes_are_bounded_and_others_are_served(owner: Store, limits: Limits) -> None:
    """The oldest that is half done gives way to a new one, and costs no thread (NE2)."""
    limits(MAX_HANDSHAKES=8)
    threads = threading.active_count()
    with listening(owner, certificates()[0]) as entrance, ExitStack() as stack:
        half = [stack.enter_context(closing(dial(entrance))) for _ in range(60)]
        for connection in half:
            with suppress(OSError):  # it has given way already
                connection.sendall(b"\x16\x03\x01")
        assert rest_of(half[0]) == b""
        with quire.open(entrance.urls[0], tls=certificates()[1]) as store:
            assert store.queues() == []
        assert len(entrance._handshakes) <= 8
        assert threading.active_count() <= threads + 4


def test_connections_without_a_hello_are_bounded(owner: Store, limits: Limits) -> None:
    """The oldest that says nothing gives way once so many have come; who is let in stays (NE2)."""
    limits(MAX_HANDSHAKES=8, HANDSHAKE_SECONDS=1e6)
    with listening(owner) as entrance, quire.open(entrance.urls[0]) as store, ExitStack() as stack:
        mute = [stack.enter_context(closing(dial(entrance))) for _ in range(20)]
        assert rest_of(mute[0]) == b""
        assert store.queues() == []
        with quire.open(entrance.urls[0]) as other:
            assert other.queues() == []


def test_a_frame_of_10_gigabytes_is_only_claimed(owner: Store) -> None:
    """Before the hello nothing longer than one is taken: the connection ends with words."""
    with listening(owner) as entrance, closing(dial(entrance)) as connection:
        connection.sendall(greeting() + struct.pack("<IB3xI", (1 << 32) - 13, CALL, 0))
        assert f"at most {MAX_HELLO_BYTES} are taken".encode() in rest_of(connection)
        assert HEAD.size == 12


def test_certificates_are_read_again_when_they_have_changed(owner: Store, tmp_path: Path) -> None:
    """A new certificate is shown to the next client; one of no use leaves the one before (NE4)."""
    authority = Authority(tmp_path)
    server = authority.certificate("server", days=-1)
    client = authority.certificate("client", hosts="DNS:client")
    with listening(owner, server) as entrance:
        with pytest.raises(CertificateRefused, match="has expired"):
            quire.open(entrance.urls[0], tls=client)
        authority.certificate("server")
        quire.open(entrance.urls[0], tls=client).close()
        assert server.cert is not None
        Path(server.cert).write_text("nothing")
        quire.open(entrance.urls[0], tls=client).close()


def test_a_store_object_lives_on_when_its_server_comes_back(owner: Store) -> None:
    """An open transaction ends with ConnectionLost; what is called meanwhile waits."""
    server, client = certificates()
    with ExitStack() as stack:
        first = stack.enter_context(listening(owner, server))
        port = f"localhost:{port_of(first)}"
        with quire.open(first.urls[0], tls=client) as store:
            store.create_queue("jobs", kind="work")
            txn = store.transaction()
            txn.put("jobs", b"lost")
            assert txn.get("jobs") is None
            first.close()
            for each in list(owner._server._connections.values()):  # type: ignore[attr-defined]
                each.cut()
            with pytest.raises(ConnectionLost):
                txn.commit()
            stack.enter_context(listening(owner, server, [port]))
            store.put("jobs", b"kept")
            assert [m.payload for m in store.get_many("jobs")] == [b"kept"]


def test_a_get_that_waits_is_served_by_the_server_that_comes_back(owner: Store) -> None:
    """It goes on waiting at the next one."""
    server, client = certificates()
    owner.create_queue("jobs", kind="work")
    with ExitStack() as stack:
        first = stack.enter_context(listening(owner, server))
        with quire.open(first.urls[0], tls=client) as store:
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.append(store.get("jobs", SECONDS)))
            thread.start()
            eventually(lambda: owner.status()["sharing"]["waiting"])
            first.close()
            for each in list(owner._server._connections.values()):  # type: ignore[attr-defined]
                each.cut()
            port = f"localhost:{port_of(first)}"
            stack.enter_context(listening(owner, server, [port]))
            owner.put("jobs", b"at last")
            thread.join(SECONDS)
            assert [message.payload for message in found] == [b"at last"]


def test_tasks_wait_at_the_server_that_comes_back(owner: Store) -> None:
    """As threads do; each message is for one of them."""
    server, client = certificates()
    owner.create_queue("jobs", kind="work")

    async def main(stack: ExitStack) -> None:
        first = stack.enter_context(listening(owner, server))
        async with quire.aio.open(first.urls[0], tls=client) as store:
            tasks = [asyncio.create_task(store.get("jobs", SECONDS)) for _ in range(8)]
            await in_line(store, "jobs", 8)
            first.close()
            for each in list(owner._server._connections.values()):  # type: ignore[attr-defined]
                each.cut()
            stack.enter_context(listening(owner, server, [f"localhost:{port_of(first)}"]))
            owner.put_many("jobs", [b"%d" % n for n in range(8)])
            found = await asyncio.gather(*tasks)
            assert sorted(m.payload for m in found if m) == [b"%d" % n for n in range(8)]

    with ExitStack() as stack:
        asyncio.run(main(stack))
