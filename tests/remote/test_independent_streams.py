"""Streams of one connection at the owner: none waits for another one; bounds; order; ends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.env import OsEnv
from quire.errors import QuireError
from quire.remote import JoinedStore, StoreServer
from quire.remote.ownership.shared_store import SharedStore
from quire.remote.server.served_client import ServedClient
from quire.remote.server.served_connection import ServedConnection
from quire.remote.wire.protocol import (
    AWAIT,
    CALL,
    CANCEL,
    COMMIT,
    COMMITTED,
    CONNECTION,
    GREETING,
    HEAD,
    ID,
    MESSAGE,
    NOTHING,
    NUMBER_FRAME,
    PING,
    PLAIN,
    PONG,
    PUT,
    PUT_HEAD,
    READY,
    RESULT,
    ROLLBACK,
    STEP,
    STREAM,
    decode_call,
)
from tests.kit.limits import Limits
from tests.kit.raw_stream import RawStream, add, call, commit, get, good_hello
from tests.kit.waiting import SECONDS, eventually

LONG = 1000.0  # seconds that nobody waits
Answered = tuple[int, int, bytes]  # kind, stream, and what is after the head


@pytest.fixture
def server(owner: Store, joined: JoinedStore) -> StoreServer:
    """The server of an owner with a queue `work`."""
    owner.create_queue("work", kind="work")
    assert isinstance(owner, SharedStore)
    return owner.share(OsEnv())


@pytest.fixture
def stream(server: StoreServer) -> Iterator[RawStream]:
    """A connection to it."""
    with closing(RawStream(server.wait_started())) as found:
        yield found


def put(number: int, payload: bytes = b"x", queue: bytes = b"work") -> bytes:
    """A PUT."""
    size = 2 + len(queue) + len(payload)
    return PUT_HEAD.pack(size, PUT, number, len(queue)) + queue + payload


def plain(number: int, payload: bytes, first: int = 0, queue: str = "work") -> bytes:
    """An ADD of one payload."""
    return add(number, (queue, payload), first=first, form=PLAIN)


def step(number: int, op: str, **arguments: Any) -> bytes:
    """A STEP."""
    return call({"op": op, "arguments": arguments}, kind=STEP, stream=number)


def answer(stream: RawStream) -> Answered:
    """The next answer."""
    data = stream.frame()
    _, kind, number = HEAD.unpack_from(data)
    return kind, number, bytes(data[HEAD.size :])


def ask(stream: RawStream, request: bytes) -> tuple[int, int]:
    """Kind and stream of the next answer after a request."""
    stream.send(request)
    return answer(stream)[:2]


def wait(server: StoreServer, stream: RawStream, request: bytes) -> None:
    """Send a get, which waits at the owner by now."""
    before = int(str(server.status()["waiting"]))
    stream.send(request)
    eventually(lambda: server.status()["waiting"] == before + 1)


def ping(stream: RawStream, number: int = 7) -> None:
    """Ask whether the owner is at work: the next frame says so."""
    found = NUMBER_FRAME.pack(8, PING, CONNECTION, number)
    assert ask(stream, found) == (PONG, CONNECTION)


def served(server: StoreServer) -> ServedConnection:
    """The connection that has come last, at the owner."""
    return list(server._connections.values())[-1]


class Late:
    """Requests of a kind that another thread answers only when it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *kinds: int) -> None:
        self.may = threading.Event()
        self.under_way = 0
        whole = ServedClient.answer

        def answer_late(client: ServedClient, data: bytes) -> object:
            if data[4] in kinds:
                self.under_way += 1
                assert self.may.wait(SECONDS)
            return whole(client, data)

        monkeypatch.setattr(ServedClient, "answer", answer_late)

    def wait(self, count: int = 1) -> None:
        """So many are under way."""
        eventually(lambda: self.under_way == count)


def test_a_get_that_waits_delays_no_other_stream(
    owner: Store, server: StoreServer, stream: RawStream
) -> None:
    """CL1: puts, calls, transactions and PING are answered meanwhile; then it is, by what came."""
    owner.create_queue("other", kind="work")
    wait(server, stream, get(3, "other", LONG))
    ping(stream)
    assert ask(stream, put(5)) == (ID, 5)
    assert ask(stream, call({"op": "failed"}, stream=6)) == (RESULT, 6)
    assert ask(stream, plain(7, b"y") + get(7, "work")) == (MESSAGE, 7)
    assert ask(stream, commit(7, 1)) == (COMMITTED, 7)
    stream.send(put(8, b"awaited", b"other"))
    found = {answer(stream)[:2], answer(stream)[:2]}
    assert found == {(ID, 8), (MESSAGE, 3)}
    assert ask(stream, commit(3, 0)) == (COMMITTED, 3)
    assert owner.get_many("work").payloads() == [b"y"]


def test_a_put_wakes_a_get_of_the_same_connection(server: StoreServer, stream: RawStream) -> None:
    """WG1: one of them, the first; however often."""
    for number in range(1, 4):
        wait(server, stream, get(number, "work", LONG))
    for number in range(1, 4):
        stream.send(put(number + 10, b"%d" % number))
        found = {answer(stream)[:2], answer(stream)[:2]}
        assert found == {(ID, number + 10), (MESSAGE, number)}


@pytest.mark.parametrize(
    ("request_of", "kind"),
    [
        (lambda: call({"op": "failed"}, stream=3), CALL),
        (lambda: step(3, "count", source="work"), STEP),
        (lambda: plain(3, bytes(1 << 17)) + commit(3, 1), COMMIT),
    ],
    ids=["call", "step", "long commit"],
)
def test_a_request_of_another_thread_delays_no_other_stream(
    owner: Store,
    server: StoreServer,
    stream: RawStream,
    monkeypatch: pytest.MonkeyPatch,
    request_of: Callable[[], bytes],
    kind: int,
) -> None:
    """CL1: while it is under way PING, puts and a get of other streams are answered."""
    late = Late(monkeypatch, kind)
    stream.send(request_of())
    late.wait()
    ping(stream)
    assert ask(stream, put(5)) == (ID, 5)
    assert ask(stream, get(6, "work")) == (MESSAGE, 6)
    assert ask(stream, HEAD.pack(0, ROLLBACK, 6)) == (RESULT, 6)
    late.may.set()
    assert answer(stream)[1] == 3
    eventually(lambda: owner.admin.transactions() == [] or kind == STEP)


def test_a_source_is_ready_while_a_request_is_under_way(
    server: StoreServer, stream: RawStream, owner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL5: READY is sent at once, whatever another thread does for the connection."""
    stream.send(HEAD.pack(4, AWAIT, CONNECTION) + b"work")
    late = Late(monkeypatch, CALL)
    stream.send(call({"op": "failed"}, stream=1))
    late.wait()
    owner.put("work", b"x")
    assert answer(stream) == (READY, CONNECTION, b"work")
    late.may.set()
    assert answer(stream)[:2] == (RESULT, 1)


@pytest.mark.parametrize("op", ["get", "get_many"])
def test_cancel_ends_a_get_that_waits(
    owner: Store, server: StoreServer, stream: RawStream, op: str
) -> None:
    """Its transaction ends, and a message that comes then is for others."""
    request = get(3, "work", LONG) if op == "get" else step(3, op, source="work", timeout=LONG)
    wait(server, stream, request)
    wait(server, stream, get(4, "work", LONG))
    stream.send(HEAD.pack(0, CANCEL, 3))
    eventually(lambda: server.status()["waiting"] == 1)
    eventually(lambda: len(owner.admin.transactions()) == 1)
    owner.put("work", b"x")
    assert answer(stream)[:2] == (MESSAGE, 4)
    assert stream.cancelled == [3]
    found = ask(stream, commit(3, 0))
    assert found == (RESULT, 3)  # it has ended
    assert ask(stream, commit(4, 0)) == (COMMITTED, 4)


def test_cancel_ends_what_waits_in_a_thread(
    owner: Store, server: StoreServer, stream: RawStream
) -> None:
    """A chosen message and room in a queue are waited for no more; others' streams go on."""
    owner.create_queue("ranked", kind="work", order="priority")
    owner.create_queue("full", kind="work", max_messages=1, overflow="wait")
    owner.put("full", b"1")
    chosen = step(1, "get_many", source="ranked", timeout=LONG, where={"priority": 5})
    wait(server, stream, chosen)
    wait(server, stream, put(2, b"2", b"full"))
    stream.send(plain(3, b"3"))
    for number in (1, 2):
        stream.send(HEAD.pack(0, CANCEL, number))
    eventually(lambda: server.status()["waiting"] == 0)
    eventually(lambda: len(owner.admin.transactions()) == 1)
    stream.send(commit(3, 1))
    while answer(stream)[:2] != (COMMITTED, 3):
        pass  # the errors of those that were cancelled, which a client drops
    assert owner.browse("full").payloads() == [b"1"]


def test_cancel_while_a_request_is_under_way(
    owner: Store, stream: RawStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands behind it on the stream is dropped, and the transaction is rolled back."""
    late = Late(monkeypatch, STEP)
    stream.send(plain(1, b"1") + step(1, "count", source="work"))
    late.wait()
    stream.send(commit(1, 1) + HEAD.pack(0, CANCEL, 1) + commit(1, 1))
    ping(stream)
    late.may.set()
    assert answer(stream)[:2] == (RESULT, 1)  # of the step
    assert stream.cancelled == []  # as long as anything of the stream is under way
    assert answer(stream)[:2] == (RESULT, 1)  # of what came after the end
    assert stream.cancelled == [1]
    assert owner.admin.transactions() == []
    assert owner.queue("work").messages == 0


@pytest.mark.fuzz
def test_many_transactions_interleave(owner: Store, stream: RawStream, seed: int) -> None:
    """OS1, CL1: 64 open ones, whose requests come in any order: each has its own, in its order."""
    drawn = random.Random(seed)
    scripts = {
        number: [
            *(plain(number, b"%d-%d" % (number, n), first=n) for n in range(3)),
            get(number, "none"),
            step(number, "count", source="work"),
            commit(number, 3) if number % 3 else HEAD.pack(0, ROLLBACK, number),
        ]
        for number in range(1, 65)
    }
    owner.create_queue("none", kind="work")
    for script in scripts.values():  # they begin in the order of their numbers
        stream.send(script.pop(0))
    expected = {
        number: [NOTHING, RESULT, COMMITTED if number % 3 else RESULT] for number in scripts
    }
    while scripts:
        number = drawn.choice(list(scripts))
        stream.send(scripts[number].pop(0))
        if not scripts[number]:
            del scripts[number]
    found: dict[int, list[int]] = {number: [] for number in expected}
    for _ in range(3 * 64):
        kind, number, _ = answer(stream)
        found[number].append(kind)
    assert found == expected
    assert owner.admin.transactions() == []
    payloads = owner.get_many("work", 1000).payloads()
    assert sorted(payloads) == sorted(
        b"%d-%d" % (number, n) for number in range(1, 65) if number % 3 for n in range(3)
    )
    for number in range(1, 65):
        own = [p for p in payloads if p.startswith(b"%d-" % number)]
        assert own == sorted(own)


def test_order_within_a_stream(owner: Store, stream: RawStream) -> None:
    """CL1: long and short requests of one stream are done as they came, by whichever thread."""
    owner.create_queue("none", kind="work")
    frames = []
    for n in range(40):
        frames.append(plain(1, b"%03d" % n + bytes((1 << 17) if n % 7 == 3 else 0), first=n))
        if n % 3 == 0:
            frames.append(step(1, "count", source="work"))
        if n % 5 == 0:
            frames.append(get(1, "none"))
    stream.send(b"".join(frames) + commit(1, 40) + put(2, b"last"))
    kinds = [answer(stream)[:2] for _ in range(14 + 8 + 2)]
    assert kinds.index((COMMITTED, 1)) >= 22
    expected = [
        kind
        for n in range(40)
        for kind in ([RESULT] if n % 3 == 0 else []) + ([NOTHING] if n % 5 == 0 else [])
    ]
    assert [kind for kind, number in kinds if number == 1] == [*expected, COMMITTED]
    found = [p[:4] for p in owner.get_many("work", 100).payloads() if p != b"last"]
    assert [p[:3] for p in found] == [b"%03d" % n for n in range(40)]


def test_a_client_that_sends_and_does_not_read(
    server: StoreServer, joined: JoinedStore, owner: Store, limits: Limits
) -> None:
    """CL7: 10,000 puts whose answers nobody reads: little is kept, and others are served."""
    limits(UNSENT_BYTES=1 << 14, PENDING_BYTES=1 << 15)
    with closing(RawStream(server.wait_started())) as rude:
        requests = memoryview(b"".join(put(n) for n in range(1, 10_001)))
        rude.socket.setblocking(False)
        most = puts = 0
        connection = served(server)
        while puts < 50:
            try:
                while requests:
                    requests = requests[rude.socket.send(requests[: 1 << 14]) :]
            except BlockingIOError:
                pass
            joined.put("work", b"joined")
            puts += 1
            most = max(most, connection._unsent_bytes + connection._pending_bytes)
        eventually(lambda: connection.is_paused)
        assert most < (1 << 14) + (1 << 15) + (64 << 10)
        done = connection.streams.latest  # type: ignore[union-attr]
        assert 0 < done < 10_000
        ids = 0
        rude.socket.setblocking(True)
        rude.socket.settimeout(SECONDS)

        def send_rest() -> None:
            rude.socket.sendall(requests)

        sender = threading.Thread(target=send_rest)
        sender.start()
        while ids < 10_000:
            assert answer(rude)[0] == ID
            ids += 1
        sender.join(SECONDS)
        assert owner.queue("work").messages == 10_050


def between_requests(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, seed: int, connections: int
) -> list[int]:
    """How many requests of other connections are begun between each two of a quiet client.

    The others have sent all of theirs before the first is begun. The quiet client's next one is
    there as its last one is begun.
    """
    drawn = random.Random(seed)
    counts = [drawn.randrange(100, 400) for _ in range(connections)]
    url = server.wait_started()
    with ExitStack() as stack:
        quiet = stack.enter_context(closing(RawStream(url)))
        own, others = served(server), [0]
        may = threading.Event()
        whole = ServedClient.answer

        def noted(client: ServedClient, data: bytes) -> object:
            assert may.wait(SECONDS)
            if client.connection is own:
                others.append(0)
                with suppress(OSError):  # the test has ended
                    quiet.send(put(len(others)))
            else:
                others[-1] += 1
            return whole(client, data)

        monkeypatch.setattr(ServedClient, "answer", noted)
        quiet.send(put(1))
        readers = []
        for count in counts:
            rude = stack.enter_context(closing(RawStream(url, b"")))
            rude.send(good_hello() + b"".join(put(number) for number in range(1, count + 1)))

            def read(rude: RawStream = rude, count: int = count) -> None:
                rude.words(GREETING.size)
                for _ in range(count + 1):
                    rude.frame()

            readers.append(threading.Thread(target=read))
            readers[-1].start()
        may.set()
        for reader in readers:
            reader.join(SECONDS)
        eventually(lambda: sum(others) == sum(counts))
        monkeypatch.setattr(ServedClient, "answer", whole)
    return others


@pytest.mark.fuzz
@pytest.mark.parametrize("connections", [1, 7, 15])
def test_others_are_served_between(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, seed: int, connections: int
) -> None:
    """SV1: the connections take turns, whatever each has sent."""
    others = between_requests(server, monkeypatch, seed, connections)
    assert len(others) > 3
    assert max(others) <= 2 * (64 + connections)


@pytest.mark.fuzz
def test_canary_of_turns(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, seed: int, limits: Limits
) -> None:
    """The canary: without turns a quiet client waits for all that came before."""
    limits(REQUESTS_AT_ONCE=1 << 20)
    assert max(between_requests(server, monkeypatch, seed, 7)) > 2 * (64 + 7)


def test_the_end_of_a_connection_ends_all_its_streams(
    owner: Store, server: StoreServer, stream: RawStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SV2, CL8: all at once; its socket is closed when the last request is done."""
    owner.put_many("work", [b"%d" % n for n in range(5)])
    owner.create_queue("none", kind="work")
    for number in range(1, 6):
        assert ask(stream, get(number, "work")) == (MESSAGE, number)
    for number in range(6, 9):
        wait(server, stream, get(number, "none", LONG))
    late = Late(monkeypatch, STEP)
    stream.send(step(5, "count", source="work"))
    late.wait()
    before = server.status()["connections"]
    stream.close()
    eventually(lambda: not owner.admin.transactions())
    assert server.status()["waiting"] == 0
    assert server.status()["connections"] == before
    late.may.set()
    eventually(lambda: server.status()["connections"] == int(str(before)) - 1)
    assert len(owner.get_many("work", 10)) == 5


def test_the_close_tells_each_stream(owner: Store, server: StoreServer, stream: RawStream) -> None:
    """SV3: every get that waits on one connection is answered, before it ends."""
    for number in range(1, 6):
        request = step(number, "get_many", source="work", timeout=LONG)
        wait(server, stream, get(number, "work", LONG) if number % 2 else request)
    owner.close()
    ended = {}
    for _ in range(5):
        data = stream.frame()
        ended[STREAM.unpack_from(data)[0]] = decode_call(data).header
    assert ended.keys() == set(range(1, 6))
    assert {header["error"]["type"] for header in ended.values()} == {"StoreClosed"}  # type: ignore[index]
    with pytest.raises(EOFError):
        stream.frame()


@pytest.mark.parametrize("end", ["abort", "time-out"])
def test_others_end_one_stream(
    owner: Store, server: StoreServer, stream: RawStream, end: str
) -> None:
    """Its waiting get is answered by that; the others' wait on, and get what comes."""
    for number in (1, 2, 3):
        wait(server, stream, get(number, "work", LONG))
    second = sorted(info.id for info in owner.admin.transactions())[1]
    if end == "abort":
        owner.admin.abort(second)
    else:
        registry = owner._context.registry
        transaction = registry.get(second)
        assert transaction is not None
        transaction.deadline = 0.0
        registry.expire(owner._context.env.monotonic())
    assert answer(stream)[:2] == (RESULT, 2)
    owner.put_many("work", [b"1", b"2"])
    assert {answer(stream)[:2], answer(stream)[:2]} == {(MESSAGE, 1), (MESSAGE, 3)}


def long_and_short(stream: RawStream, owner: Store, answers: int) -> int:
    """Long answers and puts at the same time; how many puts were answered before the last one."""
    owner.create_queue("long", kind="work")
    with owner.transaction() as txn:
        txn.put_many("long", [random.Random(1).randbytes(1 << 17)] * 32)
    browse = {"op": "browse", "arguments": {"source": "long", "start": 0, "max_messages": 32}}
    for number in range(1, answers + 1):
        stream.send(call(browse, stream=number))

    def send_puts() -> None:
        with suppress(OSError):  # of the canary, which ends before them
            for number in range(answers + 1, answers + 101):
                stream.send(put(number))

    sent = threading.Thread(target=send_puts)
    sent.start()
    sent.join(SECONDS)  # before the first answer is read
    left, early = answers, 0
    ids: list[int] = []
    while left or len(ids) < 100:
        length, kind, number = HEAD.unpack(stream.words(HEAD.size))
        assert kind in (ID, RESULT), kind
        assert length < 8 << 20
        body = stream.words(length)
        if kind == ID:
            ids.append(number)
            early += left > 0
        else:
            header = decode_call(HEAD.pack(len(body), kind, number) + body).header
            assert "error" not in header, header
            left -= not header.get("more", False)
    assert sorted(ids) == list(range(answers + 1, answers + 101))
    return early


def test_a_long_answer_lets_others_in(
    owner: Store, server: StoreServer, stream: RawStream, limits: Limits
) -> None:
    """CL6: answers of many frames are whole, and what is short is sent between their frames."""
    limits(ANSWER_BYTES=1 << 17)
    assert long_and_short(stream, owner, 6) > 0


class Overtaking(ServedConnection):
    """Sends though another thread does."""

    def _begin_sending(self, data: Any) -> bool:
        return True

    def send_unsent(self) -> Iterator[ServedClient | None]:
        self._is_sending = False
        yield from super().send_unsent()


@pytest.mark.fuzz
def test_canary_of_frames_in_frames(
    server: StoreServer, owner: Store, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary: without one sender at a time, frames are found in the midst of others."""
    limits(ANSWER_BYTES=1 << 18)
    made = "quire.remote.server.store_server.served_connection.ServedConnection"
    monkeypatch.setattr(made, Overtaking)
    with closing(RawStream(server.wait_started())) as stream:
        stream.socket.settimeout(2)
        with pytest.raises((AssertionError, OSError, QuireError, EOFError)):
            long_and_short(stream, owner, 6)
