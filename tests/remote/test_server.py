"""The owner's server alone, over a store in memory: bad bytes, late requests, limits, ends."""

from __future__ import annotations

import os
import socket
import stat
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.block import encode_one
from quire.env import READ, OsEnv
from quire.errors import (
    ConnectionLost,
    InvalidArgument,
    QueueNotFound,
    RemoteError,
    StoreClosed,
    StoreCorrupt,
    TransactionClosed,
)
from quire.remote import JoinedStore, StoreServer, read_address
from quire.remote.server.signals import SignalFlag
from quire.remote.wire.address import SOCKET_NAME, path_of
from quire.remote.wire.failures import raise_error
from quire.remote.wire.protocol import (
    CALL,
    GREETING,
    HEAD,
    MAGIC,
    PROTOCOL_VERSION,
    RESULT,
    STEP,
    STREAM,
    Header,
    decode_call,
    field,
    greeting,
)
from tests.kit.raw_stream import RawStream, call, commit, get, good_hello
from tests.kit.waiting import SECONDS, eventually
from tests.remote.plain_store import PlainStore, served


@pytest.fixture
def plain() -> PlainStore:
    """The store that is served."""
    return PlainStore("q")


@pytest.fixture
def server(plain: PlainStore, tmp_path: Path) -> Iterator[StoreServer]:
    """A server that listens at the store's socket."""
    server = StoreServer(served(plain), OsEnv(), str(tmp_path))
    server.start()
    yield server
    server.close()


@pytest.fixture
def stream(server: StoreServer) -> Iterator[RawStream]:
    """A stream to the server."""
    stream = RawStream(server.wait_started())
    yield stream
    stream.close()


@pytest.mark.promise(12)
def test_only_the_stores_user_can_connect(server: StoreServer, tmp_path: Path) -> None:
    """AD1: the socket has mode 0600 and lies in a directory of mode 0700."""
    assert stat.S_IMODE(os.stat(tmp_path / "run").st_mode) == 0o700
    status = os.stat(tmp_path / "run" / SOCKET_NAME)
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o600


@pytest.mark.parametrize("name", ["long" * 30, "a b", "ä%41#?[", "n\nl", "\udc80"])
def test_any_path_has_a_socket(plain: PlainStore, tmp_path: Path, name: str) -> None:
    """SO1, UR1: in the store's own directory, however long the path is, and whatever is in it."""
    path = tmp_path / name
    path.mkdir()
    server = StoreServer(served(plain), OsEnv(), str(path))
    socket_path = Path(str(path_of(server.start())))
    assert socket_path.parent == path / "run"
    assert stat.S_IMODE(os.stat(socket_path).st_mode) == 0o600
    address = read_address(OsEnv(), str(path))
    assert address is not None
    with JoinedStore.connect(address.url, epoch=address.epoch) as store:
        assert store.status() == {"q": 0}
        assert store.path == str(path)
    server.close()
    assert not socket_path.exists()
    assert read_address(OsEnv(), str(path)) is None


def test_what_a_dead_owner_left_is_replaced(plain: PlainStore, tmp_path: Path) -> None:
    """AD2: a stale socket, address and half-written address are no hindrance."""
    first = StoreServer(served(plain), OsEnv(), str(tmp_path))
    first.start()
    address = (tmp_path / "run" / "address").read_bytes()
    first.close()
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "run" / SOCKET_NAME))
    left.close()
    (tmp_path / "run" / "address").write_bytes(address)
    (tmp_path / "run" / "address.new").write_bytes(b"{")
    second = StoreServer(served(plain), OsEnv(), str(tmp_path))
    with JoinedStore.connect(second.start(), epoch=second.epoch) as store:
        assert store.status() == {"q": 0}
        with pytest.raises(ConnectionLost, match="opened again"):
            JoinedStore.connect(second.wait_started(), epoch=first.epoch)
    second.close()


def test_a_store_object_that_its_owner_has_dropped_is_closed(tmp_path: Path) -> None:
    """Before its server is: a client is told so, and nothing of its call took effect."""
    owned = PlainStore("q")
    server = StoreServer(served(weakref.proxy(owned)), OsEnv(), str(tmp_path))
    url = server.start()
    store = JoinedStore.connect(url)
    assert store.status() == {"q": 0}
    del owned
    with pytest.raises(StoreClosed, match="the owner has closed the store"):
        store.status()
    with pytest.raises(ConnectionLost, match="the owner is closing the store"):
        JoinedStore.connect(url)
    store.close()
    server.close()


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"version": 9}', b"\xff"])
def test_an_address_that_cannot_be_read_is_none(tmp_path: Path, text: bytes) -> None:
    """AD2: whatever is in the file, nobody is misled."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "address").write_bytes(text)
    assert read_address(OsEnv(), str(tmp_path)) is None


BAD_REQUESTS: list[tuple[bytes, str]] = [
    (HEAD.pack(0, CALL, 1), "too few"),
    (HEAD.pack(0, 99, 1), "kind 99"),
    (HEAD.pack(0, RESULT, 1), "kind 16"),
    (HEAD.pack(3, 3, 1) + b"\xff\xffq", "cut off in its queue"),
    (HEAD.pack(1, 5, 1) + b"x", "cannot be read"),
    (HEAD.pack(1, 6, 1) + b"x", "cannot be read"),
    (HEAD.pack(1, 7, 1) + b"x", "cannot be read"),
    (call({}), "'op'"),
    (call({"op": 5}), "'op'"),
    (call({"op": "explode"}), "explode"),
    (call({"op": "close"}), "close"),
    (call({"op": "__class__"}), "__class__"),
    (call({"op": "status", "arguments": [1]}), "arguments"),
    (call({"op": "status", "arguments": {1: 1}}), "no map with names"),
    (call({"op": "admin.purge", "arguments": {"x": 1}}), "misses queue"),
    (call({"op": "commit"}), "commit"),
    (call({"op": "status"}, kind=STEP), "status"),
]


@pytest.mark.promise(13)
@pytest.mark.parametrize(("data", "words"), BAD_REQUESTS, ids=[words for _, words in BAD_REQUESTS])
def test_a_bad_request_is_answered_and_harms_nothing(
    plain: PlainStore, stream: RawStream, data: bytes, words: str
) -> None:
    """SS1: an error from the tree; no transaction was begun, and the stream goes on."""
    answer = stream.ask(data).header
    error = field(answer, "error", dict)
    assert words in error["message"]
    assert error["type"] in ("RemoteError", "InvalidArgument", "ConnectionLost")
    assert plain.transactions == []
    assert stream.ask(call({"op": "status"}, stream=2)).header["result"] == {"q": 0}


def test_an_argument_that_is_not_known_is_passed_over(stream: RawStream) -> None:
    """TC1: a client of another release may know more."""
    answer = stream.ask(call({"op": "status", "arguments": {"from_the_future": 1}}))
    assert answer.header["result"] == {"q": 0}


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "frame",
    [call({}), call({"op": "hello"}), call({"op": "status"}), commit(1, 0), b"\0" * HEAD.size],
)
def test_a_connection_without_a_hello_is_refused(server: StoreServer, frame: bytes) -> None:
    """CL3: the answer says why, and the server goes on."""
    stream = RawStream(server.wait_started(), greeting() + frame)
    stream.words(GREETING.size)
    with pytest.raises(RemoteError, match="hello"):
        raise_error(stream.next().header)
    stream.close()
    with JoinedStore.connect(server.wait_started()) as store:
        assert store.status() == {"q": 0}


def test_a_client_of_an_earlier_opening_is_told(server: StoreServer) -> None:
    """An epoch is of one opening of the store."""
    stream = RawStream(server.wait_started(), good_hello(epoch="of an earlier owner"))
    stream.words(GREETING.size)
    with pytest.raises(ConnectionLost, match="opened again"):
        raise_error(stream.next().header)
    stream.close()


@pytest.mark.promise(13)
def test_other_versions_are_refused_in_words(server: StoreServer, tmp_path: Path) -> None:
    """Either side tells both versions; the greeting is the same in all of them."""
    stream = RawStream(server.wait_started(), GREETING.pack(MAGIC, 5, 0))
    magic, version, length = GREETING.unpack(stream.words(GREETING.size))
    assert (magic, version) == (MAGIC, PROTOCOL_VERSION)
    words = stream.words(length)
    assert b"speaks version 5 at most of the protocol, this one version 6: update Quire" in words
    with pytest.raises(EOFError):
        stream.frame()
    stream.close()

    def answer(listener: socket.socket, data: bytes) -> None:
        with listener.accept()[0] as connection:
            connection.sendall(data)
            connection.recv(1 << 16)

    for number, (data, expected) in enumerate(
        [
            (GREETING.pack(MAGIC, 5, 0), "speaks version 5"),
            (greeting("no, because"), "no, because"),
            (b"HTTP/1.1 400", "not Quire's protocol"),
        ]
    ):
        path = f"{tmp_path}/{number}.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            thread = threading.Thread(target=answer, args=(listener, data))
            thread.start()
            with pytest.raises(RemoteError, match=expected):
                JoinedStore.connect(f"quire+unix://{path}")
            thread.join(SECONDS)


@pytest.mark.promise(13)
def test_garbage_on_the_socket(server: StoreServer, tmp_path: Path) -> None:
    """Bytes that are not even a greeting, or no frame after it, end their connection only."""
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 4096,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff",
        greeting() + b"\xff" * 4096,
        good_hello() + b"\xff" * 4096,
    ):
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(SECONDS)
            raw.connect(str(tmp_path / "run" / SOCKET_NAME))
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            while True:
                try:
                    if not raw.recv(4096):
                        break
                except ConnectionResetError:
                    break
    with JoinedStore.connect(server.wait_started()) as store:
        assert store.status() == {"q": 0}


def test_a_hello_may_come_byte_by_byte(server: StoreServer) -> None:
    """So may anything else: a frame is taken when it is whole."""
    stream = RawStream(server.wait_started(), good_hello()[:1])
    for byte in good_hello()[1:] + call({"op": "status"}):
        stream.send(bytes([byte]))
    stream.words(GREETING.size)
    assert stream.next().header["op"] == "hello"
    assert stream.next().header["result"] == {"q": 0}
    stream.close()


def test_requests_may_come_together(server: StoreServer) -> None:
    """Each is answered on its stream, in whatever order they are done."""
    stream = RawStream(server.wait_started())
    ops = ["status"] * 100 + ["explode"]
    stream.send(b"".join(call({"op": op}, stream=n) for n, op in enumerate(ops, 1)))
    answers: dict[int, Header] = {}
    for _ in ops:
        data = stream.frame()
        answers[STREAM.unpack_from(data)[0]] = decode_call(data).header
    assert all(answers[number]["result"] == {"q": 0} for number in range(1, 101))
    assert "explode" in str(answers[101]["error"])
    stream.close()


@pytest.mark.promise(13)
def test_damaged_blocks_are_refused(plain: PlainStore, stream: RawStream) -> None:
    """TP1: a put whose bytes are no block is not taken, and nothing is committed without it."""
    good = bytes(encode_one(b"payload"))
    with pytest.raises(StoreCorrupt):
        stream.commit(("q", good), ("q", good[:-1] + b"?"), ("q", good))
    assert plain.status() == {"q": 0}
    with pytest.raises(StoreCorrupt):
        stream.commit(("q", good), first=2)
    stream.commit(("q", good), first=1)
    assert plain.status() == {"q": 2}


def test_a_late_request_reaches_no_other_transaction(plain: PlainStore, stream: RawStream) -> None:
    """SS2: an ended transaction's number is refused, while others are open."""
    block = ("q", bytes(encode_one(b"payload")))
    stream.commit(block)
    with pytest.raises(TransactionClosed, match="transaction 1"):
        stream.commit()
    stream.ask(get(2, "q"))
    with pytest.raises(TransactionClosed):
        stream.commit(block, txn=1)
    stream.commit(block, txn=3)
    with pytest.raises(TransactionClosed, match="transaction 3"):
        stream.commit(block, txn=3)
    assert len(plain.transactions) == 3
    stream.close()
    eventually(lambda: plain.status() == {"q": 2})


def test_the_end_of_a_stream_rolls_back(plain: PlainStore, server: StoreServer) -> None:
    """SV2: what was got is available again as soon as the client is gone."""
    with JoinedStore.connect(server.wait_started()) as store, store.transaction() as txn:
        txn.integration.put_block("q", encode_one(b"payload"))
    stream = RawStream(server.wait_started())
    stream.ask(get(1, "q"))
    assert plain.status() == {"q": 0}
    stream.close()
    eventually(lambda: plain.status() == {"q": 1})


def test_the_end_of_a_stream_ends_its_waiting(plain: PlainStore, server: StoreServer) -> None:
    """SV2: also while a get waits in the owner."""
    stream = RawStream(server.wait_started())
    stream.send(get(1, "q", 1000.0))
    eventually(lambda: plain.transactions)
    stream.close()
    eventually(lambda: plain.transactions[0].state == "rolled back")


def test_connections_are_bounded(server: StoreServer) -> None:
    """SV1: one too many is refused with what to do, and is let in when another has left."""
    server._max_connections = 2
    with JoinedStore.connect(server.wait_started()) as store:
        assert store.status() == {"q": 0}
        with pytest.raises(RemoteError, match="as many connections as it may"):
            JoinedStore.connect(server.wait_started())
        assert store.status() == {"q": 0}
    eventually(lambda: server.status()["connections"] == 0)

    def connects() -> bool:
        try:
            JoinedStore.connect(server.wait_started()).close()
        except RemoteError:
            return False
        return True

    eventually(connects)


def test_close_waits_for_nobody(plain: PlainStore, tmp_path: Path) -> None:
    """SV3: idle clients, open transactions and waiting gets end with the server, and are told."""
    server = StoreServer(served(plain), OsEnv(), str(tmp_path))
    store = JoinedStore.connect(server.start())
    opened = store.transaction()
    assert opened.get("q") is None
    outcome: list[BaseException] = []

    def wait() -> None:
        try:
            store.transaction().get("q", timeout=1000)
        except (StoreClosed, ConnectionLost) as error:
            outcome.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: len(plain.transactions) == 2)
    server.close()
    waiting.join(SECONDS)
    assert len(outcome) == 1
    assert {txn.state for txn in plain.transactions} == {"rolled back"}
    eventually(lambda: store.owner_session.connection.lost)
    for operation in (store.status, store.transaction, opened.commit):
        with pytest.raises(ConnectionLost, match="open the store again"):
            operation()
    store.close()
    with pytest.raises(StoreClosed):
        store.status()


def test_errors_of_the_store_arrive_and_the_stream_goes_on(server: StoreServer) -> None:
    """The same class and message; an unexpected failure is a RemoteError that names it."""
    with JoinedStore.connect(server.wait_started()) as store:
        with store.transaction() as txn:
            with pytest.raises(QueueNotFound, match="'nowhere'"):
                txn.get("nowhere")
            assert txn.state == "open"
        with pytest.raises(RemoteError, match="AttributeError"):
            store.admin.checkpoint()
        assert store.status() == {"q": 0}


def test_a_server_is_closed_while_it_starts(
    plain: PlainStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails as it is opened lets go of itself in another thread."""
    server = StoreServer(served(plain), OsEnv(), str(tmp_path))
    start = threading.Thread.start

    def start_late(thread: threading.Thread) -> None:
        monkeypatch.undo()
        server.close()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    server.start_in_background()
    with pytest.raises(StoreClosed):
        server.wait_started()
    assert server.url is None


def test_tcp_is_served_on_loopback_only(plain: PlainStore, tmp_path: Path) -> None:
    """A URL of this machine works, any other is refused."""
    server = StoreServer(served(plain), OsEnv(), str(tmp_path))
    with pytest.raises(InvalidArgument, match=r"127\.0\.0\.1"):
        server.start("quire://0.0.0.0:0")
    url = server.start("quire://127.0.0.1:0")
    store = JoinedStore.connect(url)
    assert store.status() == {"q": 0}
    server.close()
    eventually(lambda: store.owner_session.connection.lost)
    store.close()


def test_nobody_listens(tmp_path: Path) -> None:
    """Connecting to nothing is ConnectionLost at once."""
    with pytest.raises(ConnectionLost, match="nobody answers"):
        JoinedStore.connect(f"quire+unix://{tmp_path}/none.sock")
    with pytest.raises(ConnectionLost):
        JoinedStore.connect("quire://127.0.0.1:1")


def test_a_listener_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting to a socket whose process hangs is bounded."""
    monkeypatch.setattr("quire.remote.client.channel.HELLO_SECONDS", 0.3)
    path = f"{tmp_path}/hang.sock"
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(path)
        hanging.listen()
        with pytest.raises(ConnectionLost, match="no answer within"):
            JoinedStore.connect(f"quire+unix://{path}")


def test_what_cannot_be_delivered_is_not_taken(
    plain: PlainStore, server: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SS3: on either side, a failure on the way of messages rolls their transaction back."""

    def fail(*_: Any) -> Any:
        raise StoreCorrupt("a test")

    with JoinedStore.connect(server.wait_started()) as store:
        with store.transaction() as txn:
            txn.integration.put_block("q", encode_one(b"payload"))
        for name in ("named_calls.messages_answers", "named_calls.read_messages"):
            with monkeypatch.context() as patch:
                patch.setattr(f"quire.remote.wire.{name}", fail)
                txn = store.transaction()
                with pytest.raises(StoreCorrupt):
                    txn.get_many("q")
            assert txn.state == "rolled back"
            with pytest.raises(TransactionClosed):
                txn.commit()
            assert plain.status() == {"q": 1}


def test_a_file_that_nobody_knows_is_waited_for_no_more(server: StoreServer) -> None:
    """Its event is none of the listener's, and would come again and again."""
    known, unknown = socket.socketpair()
    with known, unknown:
        server._events.register(unknown, READ)
        known.sendall(b"x")

        def is_waited_for() -> bool:
            try:
                server._events.modify(unknown.fileno(), READ)
            except OSError:
                return False
            return True

        eventually(lambda: not is_waited_for())
        RawStream(server.wait_started()).close()  # others are let in, and served


def test_who_comes_too_late_is_told(server: StoreServer) -> None:
    """A server that has decided to end takes no more clients, and needs not have closed yet."""
    url = server.wait_started()
    with JoinedStore.connect(url) as store:
        stop = SignalFlag()
        threading.Timer(0.3, stop.set).start()
        server.wait_until_idle(0.05, stop)
        assert stop.wait(0.0)
        stop.clear()
        assert store.status() == {"q": 0}
    server.wait_until_idle(0.05, stop)
    stop.close()
    with pytest.raises(ConnectionLost, match="closing"):
        JoinedStore.connect(url)
