"""Leases and space: what is pinned stays readable, what nobody needs any more comes back."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

import quire
from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.engine import PieceReader
from quire.engine.records.checkpoint_file import decode
from quire.errors import InvalidArgument, PositionLost, StoreCorrupt
from quire.ltds import LtdsWriter, new_id
from quire.reports.info import Lease, Piece
from quire.testing import SimEnv
from tests.engine.workload import PATH, new_machine, open_store

pytestmark = pytest.mark.crash


def furnish(store: Store) -> list[bytes]:
    """A work queue with messages in the journal, in pages and in a large transaction's file."""
    store.create_queue("work", kind="work")
    payloads = []
    for number, (size, count, large) in enumerate(
        [(50, 5, False), (9000, 2, False), (3000, 5, True), (70, 4, False), (40, 9, False)]
    ):
        part = [b"%d.%d:" % (number, n) + b"x" * size for n in range(count)]
        with store.transaction(large=large) as transaction:
            transaction.put_many("work", part)
        payloads += part
    return payloads


def read(env: SimEnv, lease: Lease) -> list[bytes]:
    """What another process reads of the leased pieces."""
    reader = PieceReader(PATH, env=env)
    try:
        batches = list(reader.read_all(lease.pieces, "work"))
    finally:
        reader.close()
    return [payload for batch in batches for payload in batch.column("payload").to_pylist()]


def read_all(store: Store) -> None:
    """Take everything from the work queue."""
    with store.transaction() as transaction:
        while transaction.get_many("work", 7):
            pass


def churn(store: Store, rounds: int = 12) -> None:
    """Use the journal and the data pages again and again."""
    if "churn" not in [info.name for info in store.queues()]:
        store.create_queue("churn", kind="work")
    for number in range(rounds):
        for size in (3000, 9000, 5000):
            store.put("churn", b"%d" % number * (size // 2))
        with store.transaction() as transaction:
            transaction.get_many("churn", 100)
        store.admin.checkpoint()


def in_use(store: Store) -> tuple[int, int, int]:
    """Pages, journal segments and large transactions' files that hold something."""
    numbers = store.status()
    data = numbers["data"]
    pages = (data["bytes"] - data["free_bytes"]) // data["page_size"]
    files = numbers["large_transactions"]
    return pages, numbers["journal"]["segments"], files["files"] + files["removable"]


@pytest.mark.promise(10)
@pytest.mark.parametrize("checkpoints", [0, 1])
def test_promise_10_leased_pieces_stay(seed: int, checkpoints: int) -> None:
    """Pieces are readable while all is read, moved and used again; after release space is back."""
    env = new_machine(seed)
    store = open_store(env)
    payloads = furnish(store)
    for _ in range(checkpoints):
        store.admin.checkpoint()
    lease = store.integration.lease("work", 0, len(payloads), seconds=1e9)
    part = store.integration.lease("work", 3, 9, seconds=1e9)
    kinds = {piece.kind for piece in lease.pieces}
    assert kinds == ({"data", "ltds"} if checkpoints else {"journal", "data", "ltds"})
    read_all(store)
    churn(store)
    assert read(env, lease) == payloads
    assert read(env, part) == payloads[3:9]
    store.integration.end_lease(lease.lease_id)
    churn(store)
    assert read(env, part) == payloads[3:9]
    store.integration.end_lease(part.lease_id)
    churn(store)
    store.admin.checkpoint()
    pages, segments, files = in_use(store)
    assert (pages, segments, files) == (1, 1, 0)
    assert store.admin.verify().ok
    assert not [path for path in env.files() if path.endswith(".ltds")]
    with pytest.raises(PositionLost):
        store.integration.lease("work", 0, 1)


@pytest.mark.promise(10)
@pytest.mark.parametrize("checkpoints", [0, 1])
def test_promise_10_a_leased_state_stays(seed: int, checkpoints: int) -> None:
    """All that a state names is there, while it is read, moved, dropped and used again."""
    env = new_machine(seed)
    store = open_store(env)
    payloads = furnish(store)
    for _ in range(checkpoints):
        store.admin.checkpoint()
    lease = store.integration.lease("work", 0, len(payloads), seconds=1e-9)  # for its pieces alone
    state = store.integration.lease_state(seconds=1e9)
    again = store.integration.lease_state(seconds=1e9)
    assert (again.number, again.state_hash) == (state.number, state.state_hash)
    number = decode(again.image, "the image").document["number"]
    assert number == state.number == store.admin.verify().checked["number"]
    read_all(store)
    store.drop_queue("work")
    churn(store)
    assert store.admin.verify().ok
    assert read(env, lease) == payloads
    store.integration.end_lease(state.lease_id)
    churn(store)
    assert read(env, lease) == payloads
    store.integration.end_lease(again.lease_id)
    store.integration.end_lease(again.lease_id)
    churn(store)
    store.admin.checkpoint()
    assert in_use(store)[1:] == (1, 0)
    assert store.admin.verify().ok
    with pytest.raises((PositionLost, StoreCorrupt)):
        read(env, lease)
    with pytest.raises(PositionLost):
        store.integration.renew_lease(state.lease_id)


@pytest.mark.promise(10)
def test_a_leased_state_ends_by_itself(seed: int) -> None:
    """Whoever took it has died: what it kept comes back, and no crash loses what it kept."""
    env = new_machine(seed)
    store = open_store(env)
    furnish(store)
    store.admin.checkpoint()
    state = store.integration.lease_state(seconds=5.0)
    read_all(store)
    churn(store, 2)
    crashed = env.image().crash()
    with open_store(crashed) as recovered:
        assert recovered.admin.verify().ok  # no page belongs to nobody
    env.sleep(6.0)
    churn(store, 2)
    assert in_use(store)[1:] == (1, 0)
    with pytest.raises(PositionLost):
        store.integration.renew_lease(state.lease_id)
    assert store.admin.verify().ok


def test_a_store_in_memory_leases_no_state() -> None:
    """It has no files that anybody could read."""
    with quire.open(":memory:") as store, pytest.raises(InvalidArgument, match="has no files"):
        store.integration.lease_state()


def head_of(reader: PieceReader, piece: Piece) -> memoryview:
    """The head of the piece's block."""
    [block] = reader.blocks(piece)
    assert block.part is not None
    return block.part.head()


@pytest.mark.promise(10)
@pytest.mark.parametrize("checkpoints", [0, 1])
def test_promise_10_a_bad_sector_is_no_ended_lease(seed: int, checkpoints: int) -> None:
    """A piece that the disk does not give is damage, with its file: to plan anew does not help."""
    env = new_machine(seed)
    store = open_store(env)
    payloads = furnish(store)
    for _ in range(checkpoints):
        store.admin.checkpoint()
    lease = store.integration.lease("work", 0, len(payloads), seconds=1e9)
    for piece in lease.pieces:
        suffix = {"journal": "*.log", "data": "*.dat", "ltds": "*.ltds"}[piece.kind]
        reader = PieceReader(PATH, env=env)
        with closing(reader):
            fault = env.fail("read", suffix, forever=True)
            with pytest.raises(StoreCorrupt, match=rf"{PATH}/.*\{suffix[1:]}.*cannot be read"):
                list(reader.read(piece, "work"))
            if piece.kind != "ltds":
                with pytest.raises(StoreCorrupt, match="cannot be read"):
                    head_of(reader, piece)
            fault.cancel()
    assert read(env, lease) == payloads


@pytest.mark.promise(10)
def test_promise_10_lost_pieces_are_never_wrong(seed: int, rounds: int) -> None:
    """Whatever became of a place: its messages, or PositionLost, never other messages."""
    rng = random.Random(seed)
    lost = 0
    for n in range(max(3, rounds // 3)):
        env = new_machine(seed + n)
        store = open_store(env)
        payloads = furnish(store)
        if rng.random() < 0.5:
            store.admin.checkpoint()
        leases = [
            store.integration.lease("work", p, p + 1, seconds=5.0) for p in range(len(payloads))
        ]
        read_all(store)
        for lease in leases:
            assert read(env, lease) == [payloads[lease.start]]
        env.advance(10)
        for _ in range(4):
            churn(store, rounds=rng.randint(1, 4))
            for lease in leases:
                try:
                    assert read(env, lease) == [payloads[lease.start]]
                except PositionLost:
                    lost += 1
        assert store.status()["leases"] == 0
        with pytest.raises(PositionLost):
            store.integration.renew_lease(leases[0].lease_id)
    assert lost > 20


def test_leases_end_with_the_store(seed: int) -> None:
    """After a power failure nothing is pinned: what was read is gone, its space is free."""
    env = new_machine(seed)
    store = open_store(env)
    payloads = furnish(store)
    store.integration.lease("work", 0, len(payloads), seconds=1e9)
    read_all(store)
    store.admin.checkpoint()
    after = env.crash(outcome="lost")
    store = open_store(after)
    store.admin.checkpoint()
    store.admin.checkpoint()
    assert in_use(store) == (1, 1, 0)
    assert not [path for path in after.files() if path.endswith(".ltds")]


def foreign(env: SimEnv, store: Store, payloads: list[bytes]) -> int:
    """A finished file as another process writes it."""
    writer = LtdsWriter(env, f"{PATH}/ltds", store.integration.store_id, new_id(env, foreign=True))
    builder = BlockBuilder()
    builder.add_many(payloads)
    writer.add(builder)
    return writer.finish().id


def test_a_file_is_adopted_once(seed: int) -> None:
    """A file that was committed is refused, even when all of it was read but it is still there."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("work", kind="work")
    ltds_id = foreign(env, store, [b"1", b"2"])
    with store.transaction() as transaction:
        transaction.integration.adopt("work", ltds_id)
        with pytest.raises(PositionLost), store.transaction() as other:
            other.integration.adopt("work", ltds_id)
    lease = store.integration.lease("work", 0, 2)
    read_all(store)
    with pytest.raises(PositionLost), store.transaction() as transaction:
        transaction.integration.adopt("work", ltds_id)
    assert read(env, lease) == [b"1", b"2"]


def test_a_refused_adoption_can_be_repeated(seed: int) -> None:
    """A file that did not fit the queue can be adopted by the next transaction."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("small", kind="work", capacity=4096)
    store.create_queue("work", kind="work")
    ltds_id = foreign(env, store, [b"x" * 5000])
    with store.transaction() as transaction:
        with pytest.raises(Exception, match="full"):
            transaction.integration.adopt("small", ltds_id)
        transaction.integration.adopt("work", ltds_id)
    assert store.browse("work").payloads() == [b"x" * 5000]
    assert store.queue("small").used_bytes == 0


# Space --------------------------------------------------------------------------------------------


@pytest.mark.cases(4)
def test_segments_come_round(seed: int) -> None:
    """A long run of small commits with checkpoints keeps to a few segments and few pages."""
    env = new_machine(seed)
    store = open_store(env, checkpoint_bytes=100_000)
    store.create_queue("work", kind="work")
    for number in range(1500):
        store.put("work", b"%d" % number * 50)
        if number % 5 == 4:
            with store.transaction() as transaction:
                transaction.get_many("work", 5)
    journal = store.status()["journal"]
    assert journal["end_lsn"] > 80 * (64 << 10)
    assert journal["bytes"] < 8 * (64 << 10)
    assert store.queue("work").used_bytes == 0
    assert store.status()["data"]["bytes"] <= 128 << 10


SOURCES = ("work", "topic/a", "topic/b")


def put_some(store: Store, rng: random.Random) -> None:
    """A transaction with several messages in both queues."""
    with store.transaction() as transaction:
        for queue in ("work", "topic"):
            sizes = [rng.randint(1, 700) for _ in range(rng.randint(1, 9))]
            transaction.put_many(queue, [b"x" * size for size in sizes])


def end_one(held: list[Transaction], rng: random.Random) -> None:
    """Commit or roll back any of the open transactions."""
    if held:
        transaction = held.pop(rng.randrange(len(held)))
        if rng.random() < 0.25:
            transaction.rollback()
        else:
            transaction.commit()


def read_out_of_order(store: Store, rng: random.Random) -> None:
    """Many consumers of a topic and a work queue, with checkpoints between them."""
    held: list[Transaction] = []
    for _ in range(60):
        action = rng.random()
        if action < 0.4:
            put_some(store, rng)
        elif action < 0.65:
            held.append(store.transaction())
            held[-1].get_many(rng.choice(SOURCES), rng.randint(1, 6))
        elif action < 0.85:
            end_one(held, rng)
        elif action < 0.95:
            store.admin.checkpoint()
        else:
            assert store.admin.verify().ok
    for transaction in held:
        transaction.commit()


@pytest.mark.cases(4)
def test_used_bytes_return_to_zero_in_any_order(seed: int, rounds: int) -> None:
    """Consumers that acknowledge out of order, packing in between: not one byte is left over."""
    for n in range(rounds):
        env = new_machine(seed + n)
        store = open_store(env)
        store.create_queue("work", kind="work")
        store.create_queue("topic", kind="topic")
        store.subscribe("topic", "a")
        store.subscribe("topic", "b")
        read_out_of_order(store, random.Random(seed + n))
        if n % 2:
            store = open_store(env.crash(outcome="lost"))
        for source in SOURCES:
            with store.transaction() as transaction:
                transaction.get_many(source, 10_000)
        for info in store.queues():
            assert (info.used_bytes, info.messages) == (0, 0), (seed + n, info)
            assert (info.open_transactions, info.reserving) == (0, 0)
        store.admin.checkpoint()
        store.admin.checkpoint()
        assert in_use(store)[0] == 1
        assert store.admin.verify().ok
