"""Many clients, idle ones, rude ones and dying ones: none of them harms the owner or another."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import quire.remote.server.served_client as served_client
from quire.engine import EmbeddedStore as Store
from quire.env import UNIX_SOCKETS_REFUSE, OsEnv
from quire.errors import ConnectionLost, OutcomeUnknown
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.server.stream_transaction import StreamTransaction
from quire.remote.wire.protocol import (
    ADD,
    CALL,
    CONNECTION,
    HEAD,
    ID,
    PROTOCOL_VERSION,
    PUT,
    RESULT,
    STEP,
    greeting,
)
from tests.kit.children import Child, child, join
from tests.kit.limits import Limits
from tests.kit.programs import OWNER
from tests.kit.raw_stream import RawStream, add, call, get
from tests.kit.sent_bytes import watch_sends
from tests.kit.waiting import SECONDS, eventually

IDLE = 500
MIB = 1 << 20


def memory(process_id: int) -> int:
    """The resident bytes of a process."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("a process has no VmRSS")


def test_idle_connections_are_cheap(store_path: str) -> None:
    """SV1: 500 of them take no thread and little memory, and others are served."""
    with child(OWNER, store_path) as owner, ExitStack() as stack:
        assert owner.line() == "ready"
        store = stack.enter_context(join(store_path))
        store.create_queue("work", kind="work")
        store.put("work", b"x")
        before = memory(owner.process.pid)
        for _ in range(IDLE):
            stack.enter_context(closing(RawStream(store.url)))
        sharing = store.status()["sharing"]
        assert sharing["connections"] >= IDLE
        assert sharing["threads"] < 10
        assert memory(owner.process.pid) - before < IDLE * 32 << 10
        store.put("work", b"y")
        assert store.queue("work").messages == 2


def test_a_begin_is_handed_over_to_nobody(
    owner: Store, joined: JoinedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SV1: how a transaction is to be is a short request, as what a worker begins each time."""
    threads: list[int] = []
    begin = StreamTransaction._begin

    def noted(served: StreamTransaction, *arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return begin(served, *arguments)

    monkeypatch.setattr(StreamTransaction, "_begin", noted)
    owner.create_queue("work", kind="work")
    for name in (None, "a worker", None, "a worker"):
        with joined.transaction(owner=name, durable=name is None) as txn:
            assert txn.get("work") is None
    assert len(threads) == 4
    assert len(set(threads)) == 1


def test_waiting_requests_are_bounded(owner: Store, joined: JoinedStore) -> None:
    """One too many is refused in words, and puts are taken all the same."""
    assert isinstance(owner, SharedStore)
    owner.share(OsEnv()).accounts.limit({"waiting_gets": 3})
    owner.create_queue("work", kind="work")
    with ExitStack() as stack:
        streams = [stack.enter_context(closing(RawStream(joined.url))) for _ in range(4)]
        for stream in streams[:3]:
            stream.send(get(1, "work", 1000.0))
        eventually(lambda: joined.status()["sharing"]["waiting"] == 3)
        refused = streams[3].ask(get(1, "work", 1000.0))
        assert "as many gets waiting as it may" in str(refused.header["error"])
        for n in range(3):
            joined.put("work", b"%d" % n)
        assert sorted(bytes(stream.next().bodies[0][-1:]) for stream in streams[:3]) == [
            b"0", b"1", b"2",
        ]  # fmt: skip


@pytest.mark.promise(13)
def test_a_frame_that_is_only_claimed(store_path: str) -> None:
    """IN3: the owner's memory grows with what has arrived, and others are served meanwhile."""
    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"
        with join(store_path) as store, ExitStack() as stack:
            store.create_queue("work", kind="work")
            streams = [stack.enter_context(closing(RawStream(store.url))) for _ in range(4)]
            before = memory(owner.process.pid)
            for stream, kind in zip(streams, (CALL, ADD, PUT, CALL), strict=True):
                size = (1000 if kind == PUT else 1900) * MIB
                stream.send(HEAD.pack(size, kind, 1) + bytes(100))
            for n in range(20):
                store.put("work", b"%d" % n)
            assert memory(owner.process.pid) - before < 16 * MIB


def test_a_client_that_never_reads(store_path: str) -> None:
    """CL1: it may ask for as much as it likes; the owner's memory is bounded, others are served."""
    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"
        with join(store_path) as store, closing(RawStream(store.url)) as rude:
            store.create_queue("full", kind="work")
            store.create_queue("work", kind="work")
            with store.transaction() as txn:
                txn.put_many("full", [bytes(MIB)] * 8)
            browse = {"source": "full", "start": 0, "max_messages": 8}
            store.browse("full")
            before = memory(owner.process.pid)
            browses = (call({"op": "browse", "arguments": browse}, stream=n) for n in count(1))
            sent = puts = 0
            request = memoryview(next(browses))
            rude.socket.setblocking(False)
            while puts < 500:
                try:
                    request = request[rude.socket.send(request) :]
                    if not request:
                        request, sent = memoryview(next(browses)), sent + 1
                except BlockingIOError:
                    store.put("work", b"x")
                    puts += 1
            asked = sent * 8 * MIB
            assert asked > 1 << 30
            # A few answers at once, and what the allocator keeps of those before them.
            assert memory(owner.process.pid) - before < 128 * MIB
            assert store.queue("work").messages == puts


def test_a_client_that_does_not_read_is_cut_off(store_path: str, limits: Limits) -> None:
    """CL2: after its time; what it had open is rolled back."""
    limits(SEND_SECONDS=1)
    with open_store(store_path) as owner, join(store_path) as joined:
        owner.create_queue("work", kind="work")
        with owner.transaction() as txn:
            txn.put_many("work", [bytes(MIB)] * 8)
        with closing(RawStream(joined.url)) as rude:
            rude.send(call({"op": "get_many", "arguments": {"source": "work"}}, kind=STEP))
            eventually(
                lambda: (
                    not owner.admin.transactions() and joined.status()["sharing"]["clients"] == 1
                )
            )
            with owner.transaction() as txn:
                assert len(txn.get_many("work", timeout=SECONDS)) == 8


def test_a_frame_of_which_only_a_part_comes(owner: Store, joined: JoinedStore) -> None:
    """It occupies nobody, and its end is that of its client."""
    owner.create_queue("work", kind="work")
    frames = [add(1, ("work", bytes(1 << 20)))[:-1], get(1, "work")[:-1]]
    with ExitStack() as stack:
        for frame in frames:
            stack.enter_context(closing(RawStream(joined.url))).send(frame)
        joined.put("work", b"x")
        assert owner.admin.transactions() == []
    eventually(lambda: joined.status()["sharing"]["connections"] == 2)


def test_commits_of_many_clients_share_writes(owner: Store, joined: JoinedStore) -> None:
    """Those that come together: there are fewer groups than commits, and each has its answer."""
    owner.create_queue("work", kind="work")
    sequencer = owner._context.sequencer
    assert isinstance(owner, SharedStore)
    server = owner.share(OsEnv())
    connected, barrier = threading.Barrier(9), threading.Barrier(9)
    ids: list[int] = []

    def put() -> None:
        with open_store(owner.path) as store:
            ids.append(store.put("work", b"first"))  # from now on it has a connection for puts
            connected.wait(SECONDS)
            barrier.wait(SECONDS)
            ids.extend(store.put("work", b"%d" % n) for n in range(50))

    def come_together() -> bool:
        poll = select.poll()
        for fd in list(server._connections):
            poll.register(fd, select.POLLIN)
        asking = [fd for fd, event in poll.poll(0) if event == select.POLLIN]
        return len(asking) > 1 or len(sequencer._queue) > 1

    def hold() -> None:
        barrier.wait(SECONDS)
        eventually(come_together)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    connected.wait(SECONDS)
    groups, changes = sequencer.groups, sequencer.changes
    sequencer.exclusive(hold)
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(ids) == owner.browse("work").ids
    assert sequencer.changes - changes == 400
    assert sequencer.groups - groups < 400


# Takes, moves, prepares, waits, and has much in flight, until it is killed.
RESTLESS = """
import random, sys
from quire.opening import open
rng = random.Random(int(sys.argv[2]))
store = open(sys.argv[1])
print("ready", flush=True)
number = 0
while True:
    number += 1
    txn = store.transaction(large=rng.random() < 0.1)
    for message in txn.get_many("a", rng.randint(1, 20), timeout=rng.choice([0, 0.01])):
        txn.put(rng.choice("ab"), message.payload)
    message = txn.get("b", timeout=rng.choice([0, 0.01]))
    if message is not None:
        txn.put("a", message.payload)
    if rng.random() < 0.1:
        txn.put_many("junk", [bytes(1 << 16)] * 100)
        txn.rollback()
    elif rng.random() < 0.1:
        txn.prepare(f"{sys.argv[2]}-{number}")
        txn.rollback()
    else:
        txn.commit()
"""


@pytest.mark.crash
@pytest.mark.promise(4)
def test_clients_killed_in_the_middle_of_everything(
    store_path: str, rng: random.Random, rounds: int
) -> None:
    """No message is lost or doubled, nothing stays open, and the owner goes on."""
    payloads = [b"%d" % n for n in range(500)]
    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"
        with join(store_path) as store:
            for name in ("a", "b", "junk"):
                store.create_queue(name, kind="work")
            with store.transaction() as txn:
                txn.put_many("a", payloads)
            clients: list[Child] = []
            for number in range(max(4, rounds // 4)):
                clients.append(Child(RESTLESS, store_path, str(number)))
                assert clients[-1].line() == "ready"
                if len(clients) > 2:
                    time.sleep(rng.uniform(0, 0.2))
                    clients.pop(rng.randrange(3)).close()
            for client in clients:
                client.close()
            eventually(lambda: not store.admin.transactions())
            eventually(lambda: store.status()["sharing"]["connections"] == 2)
            for info in store.prepared.list():
                store.prepared.rollback(info.xid)
            left = [p for name in "ab" for p in store.browse(name, max_messages=2000).payloads()]
            assert sorted(left) == sorted(payloads)
            assert store.queue("junk").used_bytes == 0
            assert store.admin.verify().ok


@pytest.mark.parametrize("reads", [True, False])
def test_an_owner_that_ends_before_it_has_read_a_request(tmp_path: Path, reads: bool) -> None:
    """CH3: nothing of it took effect; of one that was read nobody knows, nor elsewhere of any."""
    hello = {"op": "hello", "epoch": "e", "path": "p", "store_id": 1, "process_id": 1}
    hello |= {"version": PROTOCOL_VERSION, "capabilities": []}
    path = f"{tmp_path}/owner.sock"
    with socket.socket(socket.AF_UNIX) as listener, ExitStack() as stack:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            _, connection = (stack.enter_context(begun()) for _ in range(2))
            select.select([connection], [], [])
            if reads:
                connection.recv(1 << 16)
            connection.close()

        def begun() -> socket.socket:
            connection, _ = listener.accept()
            connection.recv(1 << 16)
            connection.sendall(greeting() + call(hello, kind=RESULT, stream=CONNECTION))
            return connection

        thread = threading.Thread(target=serve)
        thread.start()
        with JoinedStore.connect(f"quire+unix://{path}") as store:
            store.owner_session._own_names.add(
                "work"
            )  # it was asked for before: the put is the first request
            is_known = not reads and UNIX_SOCKETS_REFUSE
            with pytest.raises(ConnectionLost if is_known else OutcomeUnknown):
                store.put("work", b"x")
        thread.join(SECONDS)


def test_an_answer_of_another_kind(
    owner: Store, joined: JoinedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that answers a get by something else is no owner: the transaction is over."""
    joined.create_queue("q", kind="work")
    txn = joined.transaction()
    monkeypatch.setattr(served_client, "NOTHING", ID)
    with pytest.raises(ConnectionLost, match="another kind"):
        txn.get("q")
    assert txn.state == "rolled back"
    eventually(lambda: not owner.admin.transactions())


@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("call", ["get", "get_many", "get_arrow"])
def test_a_connection_that_ends_as_a_transaction_begins(
    owner: Store, joined: JoinedStore, monkeypatch: pytest.MonkeyPatch, call: str, idle: bool
) -> None:
    """CN2: what a transaction is to be is told without an answer; it raises what others do."""
    owner.create_queue("q", kind="work")
    if idle:  # a channel is there already
        assert joined.get("q") is None
    txn = joined.transaction(timeout=600.0)

    def broken(_: bytes) -> None:
        raise BrokenPipeError("a test")

    watch_sends(monkeypatch, broken)
    monkeypatch.setattr("quire.remote.client.connection.JOIN_SECONDS", 0.5)
    told = "took effect" if idle else "takes effect"  # no further channel could be made
    with pytest.raises(ConnectionLost, match=f"nothing of this operation {told}"):
        getattr(txn, call)("q")
    assert txn.state == "rolled back"
    assert owner.admin.transactions() == []
