"""TLS beneath the frames: certificates, and a socket over TLS that behaves as a plain one."""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from quire.errors import CertificateRefused, InvalidArgument
from quire.remote.limits import TLS_BYTES_AT_ONCE
from quire.remote.wire.sockets import has_ended, send_all
from quire.remote.wire.tls_session import TlsSession, client_context, server_context
from quire.remote.wire.tls_socket import TlsSocket
from quire.tls import Tls
from tests.kit.certificates import Authority

NO_WAIT = socket.MSG_DONTWAIT


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority for a server and its client."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Tls:
    """The files of a server that demands certificates."""
    return authority.certificate("server")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Tls:
    """The files of a client that is let in."""
    return authority.certificate("client", hosts="DNS:client")


def shake(server: Tls, client: Tls, host: str = "localhost") -> tuple[TlsSession, TlsSession]:
    """The sessions of both sides, whose bytes are carried until the client has read an answer."""
    ours = TlsSession(client_context(client), client, host)
    theirs = TlsSession(server_context(server), server)
    refused: Exception | None = None
    answer = bytearray(1)
    is_answered = False
    for _ in range(4):
        with suppress(ssl.SSLWantReadError):
            ours.shake_hands()
        theirs.feed(ours.outgoing())
        try:
            if theirs.shake_hands() and not is_answered:
                theirs.encrypt(b"!")
                is_answered = True
        except (OSError, CertificateRefused) as error:
            refused = error
        ours.feed(theirs.outgoing())
        if ours.shake_hands() and ours.read_into(answer):
            return ours, theirs
    raise refused or AssertionError("they have not come to an end")


def test_both_sides_with_certificates_of_one_authority_read_each_other(
    server: Tls, client: Tls
) -> None:
    """What one encrypts the other reads; nothing is left over, and the version is TLS 1.3."""
    ours, theirs = shake(server, client)
    ours.encrypt(b"a put")
    theirs.feed(ours.outgoing())
    buffer = bytearray(3)
    assert theirs.read_into(buffer) == 3
    assert buffer == b"a p"
    assert theirs.has_unread
    assert theirs.read_into(buffer) == 2
    assert theirs.read_into(buffer) is None


def test_a_client_that_trusts_another_authority_says_what_to_do(
    server: Tls, client: Tls, tmp_path: Path
) -> None:
    """The words name the file that was given, and the one that is needed."""
    other = Authority(tmp_path, "other").file
    with pytest.raises(CertificateRefused, match=r"signed by none .*other.pem.*give Tls\(ca="):
        shake(server, Tls(ca=other, cert=client.cert, key=client.key))


def test_a_server_for_another_host_is_refused(server: Tls, client: Tls) -> None:
    """The host of the URL is to be in its certificate, or the name that the client gives."""
    with pytest.raises(CertificateRefused, match=r"another name than quire\.example"):
        shake(server, client, host="quire.example")
    named = Tls(ca=client.ca, cert=client.cert, key=client.key, server_name="localhost")
    shake(server, named, host="quire.example")


def test_a_certificate_that_has_expired_is_refused(
    authority: Authority, server: Tls, client: Tls
) -> None:
    """The server's by the client; the client's by the server, which tells it so."""
    expired = authority.certificate("expired", days=-1)
    with pytest.raises(CertificateRefused, match=r"server's certificate.* has expired"):
        shake(expired, client)
    with pytest.raises(CertificateRefused, match=r"refuses the certificate .*expired\.pem"):
        shake(server, expired)


def test_a_client_without_a_certificate_is_told_so(server: Tls, client: Tls) -> None:
    """Where the server demands one."""
    with pytest.raises(CertificateRefused, match=r"with a certificate only: give Tls\(cert="):
        shake(server, Tls(ca=client.ca))
    shake(Tls(cert=server.cert, key=server.key), Tls(ca=client.ca))  # which does not


def test_a_client_of_another_authority_is_refused(server: Tls, client: Tls, tmp_path: Path) -> None:
    """Its certificate is of no authority of the server's."""
    other = Authority(tmp_path, "other").certificate("stranger")
    with pytest.raises(CertificateRefused, match=r"refuses the certificate .*stranger\.pem"):
        shake(server, Tls(ca=client.ca, cert=other.cert, key=other.key))


def test_an_older_version_is_refused(server: Tls) -> None:
    """TLS 1.2 reaches no server (TL1)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    old = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        old.do_handshake()
    session = TlsSession(server_context(server), server)
    session.feed(outgoing.read())
    with pytest.raises(OSError, match=r"no TLS 1\.3 .* unsupported protocol"):
        session.shake_hands()


def test_files_that_cannot_be_used_are_named(server: Tls, client: Tls, tmp_path: Path) -> None:
    """Missing, no PEM, the key of another certificate, an encrypted key; and half a pair."""
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    encrypted = tmp_path / "encrypted.key"
    assert server.key is not None
    encrypted.write_text(
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
        "DEK-Info: AES-256-CBC,00000000000000000000000000000000\n\nAAAA\n"
        "-----END EC PRIVATE KEY-----\n"
    )
    wrong: list[tuple[Tls, str]] = [
        (Tls(ca=tmp_path / "none.pem"), "none.pem cannot be read"),
        (Tls(ca=empty), "empty.pem.* cannot be used"),
        (Tls(cert=server.cert, key=tmp_path / "none.key"), "none.key cannot be read"),
        (Tls(cert=server.cert, key=client.key), "the key of another|that of another"),
        (Tls(cert=server.cert, key=encrypted), "is encrypted"),
    ]
    for tls, words in wrong:
        with pytest.raises(InvalidArgument, match=words):
            client_context(tls)
    with pytest.raises(InvalidArgument, match="with cert and without key"):
        Tls(cert="a.pem")
    with pytest.raises(InvalidArgument, match="a certificate and its key"):
        server_context(Tls())


@pytest.fixture
def pair(server: Tls, client: Tls) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """A client and a server, connected, whose system buffers are small."""
    plain = socket.socketpair()
    for end in plain:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    ours = TlsSocket(plain[0], TlsSession(client_context(client), client, "localhost"))
    theirs = TlsSocket(plain[1], TlsSession(server_context(server), server))
    thread = threading.Thread(target=theirs.shake_hands)
    thread.start()
    assert ours.shake_hands()
    thread.join()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_what_is_sent_without_waiting_arrives_once_and_in_order(
    pair: tuple[TlsSocket, TlsSocket], rng: random.Random
) -> None:
    """Each send goes on with what the one before has not reported as sent (TK1)."""
    ours, theirs = pair
    data = rng.randbytes(400_000)
    sent, received, refused = 0, bytearray(), 0
    buffer = bytearray(50_000)
    while len(received) < len(data):
        with suppress(BlockingIOError):
            count = theirs.recv_into(memoryview(buffer)[: rng.randint(1, 50_000)], 0, NO_WAIT)
            received += buffer[:count]
        try:
            sent += ours.send(data[sent : sent + rng.randint(1, 100_000)], NO_WAIT)
        except BlockingIOError:
            refused += 1
    assert sent == len(data)
    assert received == data
    assert refused  # the system's buffer was full at times


def test_long_parts_are_sent_whole_while_the_other_side_reads(
    pair: tuple[TlsSocket, TlsSocket], rng: random.Random
) -> None:
    """`send_all` over TLS: a thread that reads gets the parts one after another."""
    ours, theirs = pair
    parts = [rng.randbytes(size) for size in (12, 3 * TLS_BYTES_AT_ONCE + 5, 1, 0, 40_000)]
    received = bytearray()

    def read() -> None:
        buffer = bytearray(4096)
        while len(received) < sum(map(len, parts)):
            received.extend(buffer[: theirs.recv_into(buffer)])

    reader = threading.Thread(target=read)
    reader.start()
    send_all(ours, parts)
    reader.join()
    assert bytes(received) == b"".join(parts)


def test_a_buffer_that_is_full_says_that_more_is_there(
    pair: tuple[TlsSocket, TlsSocket],
) -> None:
    """No poll tells of what the session has read ahead (TK3)."""
    ours, theirs = pair
    ours.send(b"0123456789")
    buffer = bytearray(4)
    assert theirs.recv_into(buffer) == 4
    assert theirs.has_unread
    assert not has_ended(theirs)
    assert theirs.recv_into(buffer) == 4
    assert theirs.recv_into(buffer) == 2
    with pytest.raises(BlockingIOError):
        theirs.recv_into(buffer, 0, NO_WAIT)


def test_the_end_of_the_connection_is_that_of_the_session(
    pair: tuple[TlsSocket, TlsSocket],
) -> None:
    """A socket that is closed gives the other side the end, as a plain one does."""
    ours, theirs = pair
    assert not has_ended(theirs)
    ours.close()
    assert theirs.recv_into(bytearray(4)) == 0
    assert has_ended(theirs)


def test_bytes_that_are_no_record_end_the_connection(
    pair: tuple[TlsSocket, TlsSocket], rng: random.Random
) -> None:
    """Whoever writes into the connection changes nothing of what was said on it."""
    ours, theirs = pair
    socket.socket.send(ours, b"\x17\x03\x03\x00\x20" + rng.randbytes(32))
    with pytest.raises(OSError, match=r"bad record mac|decryption failed"):
        theirs.recv_into(bytearray(4))
