"""Many transactions on one connection, frame by frame: each is a stream, and meets no other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.transactions.transaction import EmbeddedTransaction
from quire.errors import QueueNotFound, RemoteError, TransactionAborted, TransactionClosed
from quire.remote import JoinedStore
from quire.remote.limits import MAX_STREAMS
from quire.remote.server.served_client import ServedClient
from quire.remote.wire.failures import raise_error
from quire.remote.wire.protocol import (
    CANCEL,
    COMMITTED,
    CONNECTION,
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
    ROLLBACK,
    STEP,
    TELL,
)
from tests.kit.limits import Limits
from tests.kit.raw_stream import RawStream, add, call, commit, get
from tests.kit.waiting import SECONDS, eventually


@pytest.fixture
def stream(owner: Store, joined: JoinedStore) -> Iterator[RawStream]:
    """A connection to an owner with a queue."""
    owner.create_queue("q")
    with closing(RawStream(joined.url)) as found:
        yield found


def put(number: int, payload: bytes, queue: bytes = b"q") -> bytes:
    """A PUT."""
    size = 2 + len(queue) + len(payload)
    return PUT_HEAD.pack(size, PUT, number, len(queue)) + queue + payload


def plain(number: int, payload: bytes, first: int = 0) -> bytes:
    """An ADD of one payload."""
    return add(number, ("q", payload), first=first, form=PLAIN)


def frame(stream: RawStream, data: bytes) -> tuple[int, int, bytes]:
    """Kind and stream of the answer to a request, and what is after its head."""
    stream.send(data)
    answer = stream.frame()
    _, kind, number = HEAD.unpack_from(answer)
    return kind, number, bytes(answer[HEAD.size :])


def ask(stream: RawStream, data: bytes) -> None:
    """Raise what the answer to a request reports."""
    raise_error(stream.ask(data).header)


def test_transactions_interleave(owner: Store, stream: RawStream) -> None:
    """OS1: the puts and gets of each are its own, in any order; answers name their stream."""
    owner.put_many("q", [b"1", b"2"])
    assert frame(stream, get(1, "q"))[:2] == (MESSAGE, 1)
    assert frame(stream, get(2, "q"))[:2] == (MESSAGE, 2)
    stream.send(plain(2, b"of 2") + plain(1, b"of 1") + plain(2, b"of 2, too", first=1))
    assert frame(stream, get(1, "q"))[:2] == (NOTHING, 1)
    assert len(owner.admin.transactions()) == 2
    assert frame(stream, put(3, b"of none"))[:2] == (ID, 3)
    assert frame(stream, commit(2, 2))[:2] == (COMMITTED, 2)
    assert len(owner.admin.transactions()) == 1
    assert frame(stream, call({"op": "failed"}, stream=4))[1] == 4
    ask(stream, HEAD.pack(0, ROLLBACK, 1))
    assert owner.admin.transactions() == []
    assert owner.get_many("q").payloads() == [b"1", b"of none", b"of 2", b"of 2, too"]


def test_cancel_rolls_back_one(owner: Store, stream: RawStream) -> None:
    """OS1: the transaction of its stream; it is nobody's answer, and nothing on other streams."""
    for number in (1, 2):
        stream.send(plain(number, b"%d" % number))
    stream.send(HEAD.pack(0, CANCEL, 1) + HEAD.pack(0, CANCEL, 1) + HEAD.pack(0, CANCEL, 9))
    stream.send(HEAD.pack(0, CANCEL, CONNECTION))
    with pytest.raises(TransactionClosed, match="transaction 1"):
        ask(stream, commit(1, 1))
    assert frame(stream, commit(2, 1))[0] == COMMITTED
    assert owner.get_many("q").payloads() == [b"2"]
    stream.send(HEAD.pack(0, CANCEL, 3))
    assert frame(stream, get(3, "q"))[0] == NOTHING  # it was not begun


def test_the_end_of_the_connection_ends_all(owner: Store, stream: RawStream) -> None:
    """SV2: what they got is there for others."""
    owner.put_many("q", [b"1", b"2", b"3"])
    for number in (1, 2, 3):
        assert frame(stream, get(number, "q"))[0] == MESSAGE
    stream.close()
    eventually(lambda: not owner.admin.transactions())
    assert owner.get_many("q").payloads() == [b"1", b"2", b"3"]


@pytest.mark.promise(13)
def test_a_late_frame_meets_no_other_stream(owner: Store, stream: RawStream) -> None:
    """PR3: of a stream that has ended, or of a number that another kind of request has."""
    stream.send(plain(2, b"open"))
    assert frame(stream, put(3, b"put"))[0] == ID
    late = [commit(3, 0), get(3, "q"), HEAD.pack(0, ROLLBACK, 3), commit(1, 0), get(0, "q")]
    late.append(call({"op": "count", "arguments": {"source": "q"}}, kind=STEP, stream=3))
    for request in late:
        with pytest.raises(TransactionClosed, match="has ended"):
            ask(stream, request)
    used = [put(3, b"no"), put(2, b"no"), put(CONNECTION, b"no")]
    used += [call({"op": "status"}, stream=number) for number in (0, 1, 2, 3)]
    for request in used:
        with pytest.raises(RemoteError, match="begun before"):
            ask(stream, request)
    stream.send(plain(1, b"no") + plain(3, b"no") + call({"op": "begin"}, kind=TELL, stream=3))
    assert frame(stream, commit(2, 1))[0] == COMMITTED
    assert owner.get_many("q").payloads() == [b"put", b"open"]
    assert owner.admin.transactions() == []


@pytest.mark.promise(13)
def test_open_streams_are_bounded(owner: Store, stream: RawStream, limits: Limits) -> None:
    """OS2: one too many is refused in words, and is let in when another has ended."""
    limits(MAX_STREAMS=2)
    stream.send(plain(1, b"1") + plain(2, b"2") + plain(3, b"3"))
    with pytest.raises(RemoteError, match="2 transactions are open on this connection"):
        ask(stream, commit(3, 1))
    assert frame(stream, put(4, b"put"))[0] == ID
    assert len(owner.admin.transactions()) == 2
    assert frame(stream, commit(1, 1))[0] == COMMITTED
    stream.send(plain(5, b"5"))
    assert frame(stream, commit(5, 1))[0] == COMMITTED
    for number in range(6, 12):  # what has not begun is not open
        with pytest.raises(QueueNotFound):
            ask(stream, get(number, "none"))
        stream.send(HEAD.pack(0, CANCEL, number))
    assert frame(stream, commit(2, 1))[0] == COMMITTED


HOSTILE = 10_000  # streams that a client begins and does not end


@pytest.mark.promise(13)
def test_streams_that_are_begun_and_not_ended(
    owner: Store, joined: JoinedStore, stream: RawStream
) -> None:
    """OS2: as many as may be are open, the rest is kept nowhere; others are served meanwhile."""
    for number in range(1, HOSTILE + 1):
        stream.send(plain(number, b"never"))
    with pytest.raises(RemoteError, match=f"{MAX_STREAMS} transactions are open on this connec"):
        ask(stream, commit(HOSTILE, 1))
    [connection] = [
        each
        for each in owner._server._connections.values()  # type: ignore[attr-defined]
        if each.streams is not None and each.streams.has_open
    ]
    assert len(owner.admin.transactions()) == len(connection.streams._open) == MAX_STREAMS
    assert not connection.busy
    assert connection._pending_bytes == 0
    joined.put("q", b"of another client")
    stream.close()
    eventually(lambda: not owner.admin.transactions())
    assert owner.get_many("q").payloads() == [b"of another client"]


@pytest.mark.promise(13)
def test_streams_that_wait_and_are_not_ended(
    owner: Store, joined: JoinedStore, stream: RawStream
) -> None:
    """OS2: as many gets wait as streams may be open, the rest is refused; then none does."""
    for number in range(1, 2 * MAX_STREAMS):
        stream.send(get(number, "q", SECONDS))
        if number > MAX_STREAMS:
            with pytest.raises(RemoteError, match="as many as may be"):
                raise_error(stream.next().header)
    assert owner.status()["sharing"]["waiting"] == MAX_STREAMS
    stream.close()
    eventually(lambda: not owner.status()["sharing"]["waiting"])
    joined.put("q", b"of another client")
    assert owner.get_many("q").payloads() == [b"of another client"]


def test_an_error_ends_no_other_stream(
    owner: Store, stream: RawStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OS1, SS4: one that was aborted, a refused request, and a failure inside the owner."""
    for number in (1, 2, 3):
        stream.send(plain(number, b"%d" % number))
    assert frame(stream, call({"op": "failed"}, stream=4))[1] == 4
    first, *_ = sorted(info.id for info in owner.admin.transactions())
    owner.admin.abort(first)
    with pytest.raises(TransactionAborted):
        ask(stream, commit(1, 1))
    with pytest.raises(TransactionClosed):
        ask(stream, commit(1, 1))

    with pytest.raises(RemoteError, match="no operation"):
        ask(stream, call({"op": "explode"}, kind=STEP, stream=2))

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    count = {"op": "count", "arguments": {"source": "q"}}
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedTransaction, "count", fail)
        with pytest.raises(RemoteError, match="ZeroDivisionError"):
            ask(stream, call(count, kind=STEP, stream=2))
    with pytest.raises(TransactionClosed):
        ask(stream, commit(2, 1))
    assert frame(stream, commit(3, 1))[0] == COMMITTED
    assert owner.get_many("q").payloads() == [b"3"]


def test_a_ping_is_answered_by_the_servers_thread(
    owner: Store, stream: RawStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between requests, beside open transactions; a damaged one by an error."""
    threads: list[str] = []
    whole = ServedClient.answer

    def noted(client: ServedClient, data: bytes) -> object:
        threads.append(threading.current_thread().name)
        return whole(client, data)

    monkeypatch.setattr(ServedClient, "answer", noted)
    stream.send(plain(1, b"1"))
    for number in (0, 5, (1 << 64) - 1):
        ping = NUMBER_FRAME.pack(8, PING, CONNECTION, number)
        pong = PONG, CONNECTION, number.to_bytes(8, "little")
        assert frame(stream, ping) == pong
    assert len(threads) == 4
    assert len(set(threads)) == 1
    with pytest.raises(RemoteError, match="cannot be read"):
        ask(stream, HEAD.pack(3, PING, CONNECTION) + b"???")
    assert frame(stream, commit(1, 1))[0] == COMMITTED
    assert owner.queue("q").messages == 1
