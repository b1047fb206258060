"""Blocks and files of other processes in a transaction; joined they travel with its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from quire.arguments import Bytes
from quire.block import BlockBuilder
from quire.env import OsEnv
from quire.errors import (
    InvalidArgument,
    PositionLost,
    QueueFull,
    QueueNotFound,
    QuireError,
    StoreCorrupt,
    TransactionClosed,
    TransactionError,
)
from quire.limits import MAX_LTDS_BLOCK_BYTES
from quire.ltds import LtdsWriter, new_id
from quire.remote import JoinedStore
from quire.remote.client.channel import Channel
from quire.remote.client.stream_inbox import RequestFrames
from quire.remote.limits import SEND_AHEAD_BYTES, TELL_BYTES
from tests.behaviour.forms import JOINED, AnyStore
from tests.kit.waiting import eventually


def block(*payloads: bytes) -> bytes:
    """An encoded block."""
    builder = BlockBuilder()
    builder.add_many(payloads)
    [encoded] = builder.build(MAX_LTDS_BLOCK_BYTES)
    return bytes(encoded.data)


def file(store: AnyStore, *payloads: bytes) -> int:
    """A file as another process writes it; its id."""
    env = OsEnv()
    writer = LtdsWriter(
        env, f"{store.path}/ltds", store.integration.store_id, new_id(env, foreign=True)
    )
    builder = BlockBuilder()
    builder.add_many(payloads)
    writer.add(builder)
    return writer.finish().id


@pytest.fixture
def requests(joined: JoinedStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """The operations that are asked of the owner."""
    seen: list[object] = []
    real, real_exchange = Channel.request, Channel.exchange

    def request(self: Channel, header: dict[str, object], *rest: Any, **options: Any) -> object:
        seen.append(header["op"])
        return real(self, header, *rest, **options)

    def exchange(self: Channel, frames: RequestFrames, *rest: Any, **options: Any) -> Bytes:
        seen.append("exchange")
        return real_exchange(self, frames, *rest, **options)

    monkeypatch.setattr(Channel, "request", request)
    monkeypatch.setattr(Channel, "exchange", exchange)
    yield seen
    assert joined.admin.verify().ok


def mixed(store: AnyStore, queue: str) -> tuple[list[object], Callable[[], list[int]]]:
    """A transaction with puts of every kind, not ended; and their ids, once it has committed."""
    txn = store.transaction()
    ids = [
        [txn.put(queue, b"0")],
        txn.integration.put_block(queue, block(b"1", b"2")),
        txn.integration.adopt(queue, file(store, b"3", b"4", b"5")),
        txn.put_many(queue, [b"6", b"7"]),
        txn.integration.adopt(queue, file(store, b"8")),
        txn.integration.adopt(queue, file(store, b"9", b"a")),
        [txn.put(queue, b"b")],
    ]
    return [txn, ids], lambda: [int(each) for some in ids for each in some]


PAYLOADS = [b"%x" % n for n in range(12)]


def test_puts_of_every_kind_keep_their_order(store: AnyStore, work: str) -> None:
    """Within their queue; and each has the id of its message."""
    (txn, _), ids = mixed(store, work)
    txn.commit()  # type: ignore[attr-defined]
    assert store.browse(work).payloads() == PAYLOADS
    assert ids() == store.browse(work).ids


@pytest.mark.parametrize("by_xid", [True, False])
def test_prepared_and_decided(store: AnyStore, work: str, by_xid: bool) -> None:
    """The ids are known after the decision, whoever makes it."""
    (txn, _), ids = mixed(store, work)
    txn.prepare("x1")  # type: ignore[attr-defined]
    if by_xid:
        store.prepared.commit("x1")
    else:
        txn.commit()  # type: ignore[attr-defined]
    assert store.browse(work).payloads() == PAYLOADS
    assert ids() == store.browse(work).ids


def test_they_take_one_round_trip(joined: JoinedStore, requests: list[object]) -> None:
    """However many: each queue is asked for once, and the commit brings all of them."""
    for queue in ("a", "b"):
        joined.create_queue(queue, kind="work")
    files = [file(joined, b"%d" % n) for n in range(40)]
    requests.clear()
    with joined.transaction() as txn:
        for n, ltds_id in enumerate(files):
            txn.integration.adopt("ab"[n % 2], ltds_id)
            txn.integration.put_block("ab"[n % 2], block(b"block %d" % n))
        txn.enter("query", 1)
    assert requests == ["queues", "queues", "exchange"]
    expected = [[b"%d" % n, b"block %d" % n] for n in range(0, 40, 2)]
    assert joined.browse("a").payloads() == [each for pair in expected for each in pair]
    requests.clear()
    with joined.transaction() as txn:
        txn.integration.put_block("a", block(b"again"))
    assert requests == ["exchange"]


def test_blocks_that_are_put_together(store: AnyStore) -> None:
    """Each goes to its queue, in their order; an error leaves the transaction open."""
    for queue in ("a", "b"):
        store.create_queue(queue, kind="work")

    def failing() -> Iterator[tuple[str, bytes]]:
        yield "b", block(b"5")
        raise RuntimeError("no more")

    with store.transaction() as txn:
        txn.put("a", b"0")
        made = txn.integration.put_blocks(
            [("a", block(b"1", b"2")), ("b", block(b"3")), ("a", block(b"4"))]
        )
        assert txn.integration.put_blocks([]) == []
        with pytest.raises(RuntimeError, match="no more"):
            txn.integration.put_blocks(failing())
        with pytest.raises(InvalidArgument):
            txn.integration.put_blocks([("b", block(b"6")), ("a", b"none")])
        txn.integration.put_block("b", block(b"7"))
        with pytest.raises(QueueNotFound):
            txn.integration.put_blocks([("b", block(b"8")), ("c", block(b"9"))])
    assert store.browse("a").payloads() == [b"0", b"1", b"2", b"4"]
    in_b = store.browse("b").payloads()
    before_errors = {b"5", b"6", b"8"}  # of which some may be there
    assert [each for each in in_b if each not in before_errors] == [b"3", b"7"]
    a, b = store.browse("a").ids, store.browse("b").ids
    assert [[int(each) for each in ids] for ids in made] == [a[1:3], b[:1], a[3:]]
    with pytest.raises(TransactionClosed):
        txn.integration.put_blocks([("a", block(b"10"))])


def test_the_first_puts_of_many_queues_are_told_together(
    joined: JoinedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In frames of some size, and none is put off to the commit."""
    queues = [f"q{n}" for n in range(100)]
    joined.admin.create_queues(queues)
    told: list[int] = []
    real = Channel.tell

    def tell(self: Channel, frames: RequestFrames) -> None:
        def counted(stream: int) -> Sequence[Bytes]:
            parts = frames(stream)
            told.append(sum(map(len, parts)))
            return parts

        real(self, counted)

    monkeypatch.setattr(Channel, "tell", tell)
    content = block(b"x" * (TELL_BYTES // 40))
    with joined.transaction() as txn:
        txn.integration.put_blocks((queue, content) for queue in queues)
        assert len(told) == 3
        assert sum(told) > len(queues) * len(content)
        eventually(
            lambda: [len(info.queues) for info in joined.admin.transactions()] == [len(queues)]
        )
    assert len(told) == 3
    assert [info.messages for info in joined.queues(queues)] == [1] * len(queues)


def test_many_queues_are_asked_for_at_once(joined: JoinedStore, requests: list[object]) -> None:
    """Many queues are asked for together and once: those that are known are not asked for again."""
    joined.admin.create_queues(["a", "b", "c"])
    requests.clear()
    joined.owner_session.own_names(["a", "b"])
    joined.owner_session.own_names(["b", "a"])
    assert requests == ["queues"]
    with pytest.raises(QueueNotFound, match="'d'"):
        joined.owner_session.own_names(["a", "c", "d"])


def test_many_blocks_are_sent_ahead(joined: JoinedStore, requests: list[object]) -> None:
    """So that a client holds no more than some MiB of them."""
    joined.create_queue("work", kind="work")
    large = block(b"x" * 1_000_000)
    with joined.transaction() as txn:
        ids = [txn.integration.put_block("work", large) for _ in range(20)]
        adopted = txn.integration.adopt("work", file(joined, b"1", b"2"))
        last = txn.put("work", b"last")
    assert requests.count("puts") >= 20 * len(large) // SEND_AHEAD_BYTES
    first = joined.browse("work").ids[0]
    assert [int(some[0]) - first for some in ids] == list(range(20))
    assert [*map(int, adopted), int(last)] == [first + 20, first + 21, first + 22]


@pytest.mark.parametrize("store", JOINED, indirect=True)
def test_the_ids_of_a_file_before_the_commit(store: AnyStore) -> None:
    """How many they are is not known yet, which is said."""
    store.create_queue("work", kind="work")
    with store.transaction() as txn:
        ids = txn.integration.adopt("work", file(store, b"1", b"2"))
        assert repr(ids) == "AdoptedIds(not committed)"
        for look in (lambda: len(ids), lambda: ids[0], lambda: list(ids)):
            with pytest.raises(TransactionError, match="has committed"):
                look()
    assert len(ids) == 2
    assert [*map(int, ids[1:])] == [int(ids[1])]


def refused(store: AnyStore, put: Callable[[], object], txn: object) -> QuireError:
    """What a transaction raises, at the put or at the commit."""
    with pytest.raises(QuireError) as caught:  # noqa: PT012
        put()
        txn.commit()  # type: ignore[attr-defined]
    txn.rollback()  # type: ignore[attr-defined]
    return caught.value


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("taken", PositionLost),
        ("missing", StoreCorrupt),
        ("full", QueueFull),
        ("full of a file", QueueFull),
        ("dropped", QueueNotFound),
        ("nowhere", QueueNotFound),
    ],
)
def test_what_is_refused(store: AnyStore, work: str, name: str, error: type[QuireError]) -> None:
    """The same errors for both, at the commit where the store is joined; nothing took effect."""
    store.create_queue("small", kind="work", capacity=4096)
    store.create_queue("dropped", kind="work")
    taken = file(store, b"x")
    with store.transaction() as other:
        other.integration.adopt(work, taken)
        other.integration.put_block("dropped", block(b"known"))
    store.drop_queue("dropped")
    txn = store.transaction()
    txn.put(work, b"never")
    puts: dict[str, Callable[[], object]] = {
        "taken": lambda: txn.integration.adopt(work, taken),
        "missing": lambda: txn.integration.adopt(work, 1 << 62),
        "full": lambda: txn.integration.put_block("small", block(b"x" * 5000)),
        "full of a file": lambda: txn.integration.adopt("small", file(store, b"x" * 5000)),
        "dropped": lambda: txn.integration.put_block("dropped", block(b"x")),
        "nowhere": lambda: txn.integration.adopt("nowhere", file(store, b"x")),
    }
    assert type(refused(store, puts[name], txn)) is error
    assert txn.state == "rolled back"
    assert store.browse(work).payloads() == [b"x"]
    assert store.queue("small").used_bytes == 0
    assert store.admin.transactions() == []


def test_a_refused_file_is_its_writers_again(store: AnyStore) -> None:
    """It can be adopted by the next transaction."""
    store.create_queue("small", kind="work", capacity=4096)
    store.create_queue("work", kind="work")
    ltds_id = file(store, b"x" * 5000)
    with pytest.raises(QueueFull), store.transaction() as txn:
        txn.integration.adopt("small", ltds_id)
    with store.transaction() as txn:
        txn.integration.adopt("work", ltds_id)
    assert store.browse("work").payloads() == [b"x" * 5000]
