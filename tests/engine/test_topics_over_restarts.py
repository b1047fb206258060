"""Topics over restarts and power failures: subscriptions that are moved, and what is kept."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.commits.pending_sections import MovesSection, pack_sections
from quire.engine.records import format
from quire.engine.state.durable_state import (
    SHARED,
    DurableQueue,
    QueueConfig,
    QueueEffects,
    Ranges,
)
from quire.engine.state.fold import decode
from quire.engine.state.sections.kinds import read_sections
from quire.engine.state.sections.seeks import Seek, Seeks
from quire.errors import DiskFull, PositionLost, QueueInUse, StoreCorrupt, StoreFailed, StoreVersion
from quire.file_dump.dump import dump
from quire.file_dump.items import as_json
from quire.file_dump.words import in_words
from quire.limits import CLAIM_SECONDS
from quire.testing import SimEnv
from tests.engine.crashing.parts import try_parts
from tests.engine.crashing.topics import Moves as PartOfMoves
from tests.engine.workload import PATH, new_machine, open_store

Operation = tuple[str, int]


class Model:
    """A topic that keeps everything, and what one subscription has not read of it."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.unread: list[int] = []

    def do(self, operation: Operation) -> None:
        """As the store does."""
        kind, number = operation
        if kind == "put":
            self.unread += range(len(self.messages), len(self.messages) + number)
            self.messages += [b"%d" % len(self.messages) for _ in range(number)]
        elif kind == "get":
            del self.unread[:number]
        elif kind == "seek":
            position = min(number, len(self.messages))
            self.unread = list(range(position, len(self.messages)))

    def left(self) -> list[bytes]:
        """What is to be read."""
        return [b"%d" % self._first(position) for position in self.unread]

    def _first(self, position: int) -> int:
        return int(self.messages[position])


def plan(seed: int, length: int) -> list[Operation]:
    """Puts, gets, moves and checkpoints."""
    rng = random.Random(seed)
    kinds = ["put"] * 4 + ["get"] * 3 + ["seek"] * 3 + ["checkpoint"]
    return [("put", 3), *((rng.choice(kinds), rng.randrange(1, 9)) for _ in range(length))]


def do(store: Store, model: Model, number: int, operation: Operation) -> None:
    """One operation, whose transaction enters its number into the ledger."""
    kind, count = operation
    if kind == "checkpoint":
        store.admin.checkpoint()
        return
    with store.transaction() as txn:
        if kind == "put":
            txn.put_many("t", [b"%d" % len(model.messages)] * count)
        elif kind == "get":
            txn.get_many("t/a", count)
        else:
            if count % 2:  # what it has got besides is where it goes to
                txn.get("t/a")
            txn.seek("t/a", min(count, len(model.messages)))
        txn.enter("operation", number)


def make(store: Store) -> None:
    """The topic of the model."""
    store.create_queue("t", kind="topic", keep_forever=True)
    store.subscribe("t", "a")


def check_left(store: Store, model: Model) -> None:
    """The subscription has not read what it has not read in the model."""
    assert store.browse("t/a").payloads() == model.left()
    assert store.subscriptions("t")[0].pending == len(model.unread)


def test_moves_against_a_model(seed: int) -> None:
    """Whatever comes between them: gets, checkpoints, power failures."""
    env = new_machine(seed)
    store, model = open_store(env), Model()
    make(store)
    rng = random.Random(seed)
    for number, operation in enumerate(plan(seed, 300)):
        do(store, model, number, operation)
        model.do(operation)
        check_left(store, model)
        if rng.random() < 0.05:
            env = env.crash(seed=seed + number)
            store = open_store(env)
            check_left(store, model)
    with store.transaction() as txn:
        assert txn.get_many("t/a").payloads() == model.left()
    assert store.admin.verify().ok
    store.close()


def test_canary_moves_that_are_not_journaled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that moves subscriptions in memory only is caught."""
    none = lambda sections, *attachment: pack_sections([], *attachment)  # noqa: E731
    monkeypatch.setattr("quire.engine.commits.committer.pack_sections", none)
    with pytest.raises(AssertionError):
        try_parts(seed, PartOfMoves)


def test_positions_are_found_whatever_holds_the_messages(seed: int) -> None:
    """The journal, packed blocks, record pages, files: by time and by id, after a restart too."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("t", kind="topic", keep_forever=True)
    rng = random.Random(seed)
    for number in range(120):
        with store.transaction(large=number % 40 == 39) as txn:
            for _ in range(rng.randrange(1, 5)):
                txn.put("t", bytes(rng.randrange(200)))
        env.advance(rng.choice((0, 0.001, 2)))
        if number % 50 == 49:
            store.admin.checkpoint()
    for _ in range(2):
        messages = list(store.browse("t", max_messages=1000))
        times = [message.time for message in messages]
        assert times == sorted(times)
        for position in rng.sample(range(len(messages)), 60):
            message = messages[position]
            assert store.admin.position_at("t", message.time / 1e6) == times.index(message.time)
            later = sum(time <= message.time for time in times)
            assert store.admin.position_at("t", (message.time + 1) / 1e6) == later
            name = f"s{position}"
            assert store.subscribe("t", name, start=message).position == position
            store.unsubscribe("t", name)
        env = env.crash(seed=seed)
        store = open_store(env)
    store.close()


def test_few_pages_are_read_to_find_a_position(seed: int) -> None:
    """However many messages are kept."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("t", kind="topic", keep_forever=True)
    for number in range(300):
        with store.transaction(large=number % 2 == 1) as txn:
            txn.put("t", bytes(9000))  # no small ones, which would be packed together
        env.advance(0.1)
    store.admin.checkpoint()
    start = next(iter(store.browse("t"))).time
    assert len(store._context.state.queue("t").records.directory) > 4
    env = env.crash(seed=seed)
    store = open_store(env)
    before = env.calls.count("read", "*.dat")
    assert 100 < store.admin.position_at("t", start / 1e6 + 15) < 200
    assert env.calls.count("read", "*.dat") - before < 12
    store.close()


def test_the_section_is_read_as_it_was_written() -> None:
    """And garbage is refused."""
    seeks = [Seek(1, 2, 3), Seek(1, 3, 1 << 40)]
    with Store.open("/s", env=SimEnv()) as store:
        pieces = pack_sections([MovesSection(store._context.state, seeks, set())])
    assert read_sections(memoryview(b"".join(pieces)), "here") == (Seeks(seeks),)
    good = b"".join(pieces)
    for wrong in (b"", good[:-1], bytes(8), b"\xff" * 24, good[:8] + b"\x01" + bytes(40)):
        with pytest.raises(StoreCorrupt, match="here"):
            decode(format.COMMIT, memoryview(bytes(32) + wrong), "here", format.SECTIONS)
    with pytest.raises(StoreVersion, match="here"):
        read_sections(memoryview(good[:8] + b"\xff" * 2 + bytes(40)), "here")


def test_a_move_of_what_is_gone_leaves_its_record(seed: int) -> None:
    """Recovery passes over moves of a subscription, or a queue, that went later."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.put("t", b"0")
    removals: list[Callable[[], None]] = [
        lambda: store.unsubscribe("t", "a"),
        lambda: store.drop_queue("t"),
    ]
    for remove in removals:
        if store.subscriptions("t") == []:
            store.subscribe("t", "a")
        with store.transaction() as txn:
            txn.seek("t/a", 1)
        remove()
    env = env.crash(seed=seed)
    store = open_store(env)
    assert store.queues() == []
    store.close()


def test_a_move_that_is_not_possible_any_more_is_refused(seed: int) -> None:
    """The subscription or the queue went while the transaction was open."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    removals: list[Callable[[], None]] = [
        lambda: store.unsubscribe("t", "a"),
        lambda: store.drop_queue("t"),
    ]
    for remove in removals:
        if store.subscriptions("t") == []:
            store.subscribe("t", "a")
        txn = store.transaction()
        txn.seek("t/a", 0)
        txn.enter("moved", 1)
        remove()
        with pytest.raises(KeyError):
            txn.commit()
        txn.rollback()
    assert store.integration.ledger("moved") is None
    store.close()


def test_a_dump_tells_of_moves_and_deliveries(seed: int) -> None:
    """In words, with the names."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.create_queue("dead", kind="work")
    store.create_queue("q", kind="work", max_deliveries=2, dead_letter="dead")
    store.put("q", b"m")
    store.put("t", b"m")
    with store.transaction() as txn:
        txn.get("q")
        txn.seek("t/a", 1)
    items = [item for item in dump(PATH, journal=True, env=env) if item.item == "record"]
    names = [as_json(item)["name"] for item in items]
    assert names[-2:] == ["HANDED_OUT", "COMMIT"]
    words = [line for item in items for line in in_words(item)]
    assert any(line.endswith("'q', subscription #4, start 0, end 1") for line in words), words
    assert any(line.endswith("'t', subscription #2 'a', position 1") for line in words), words
    store.close()


def fill(store: Store) -> None:
    """Put until nothing more can be put."""
    for _ in range(10_000):
        store.put("t", bytes(1000))


def test_a_full_disk_lets_go(seed: int) -> None:
    """What is kept goes by transactions that make room, also where there is none."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("t", kind="topic", keep_seconds=10.0)
    store.subscribe("t", "a")
    for number in range(20):
        store.put("t", b"%d" % number)
    assert len(store.get_many("t/a")) == 20
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        fill(store)
    with store.transaction() as txn:
        txn.get_many("t/a", 100_000)
    assert store.queue("t").messages > 20
    env.advance(11)
    with store.transaction() as txn:
        txn.read_to("t/a", 1)
    with suppress(DiskFull):  # of the journal's next segment, after all that makes room
        store._maintenance.step()
    assert store.queue("t").messages == 0
    assert store.admin.verify().ok
    store.close()


@pytest.mark.promise(5)
def test_promise_5_moves_on_a_full_disk_never_end(seed: int) -> None:
    """They may make room, so they are written, though most of these free nothing."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.put_many("t", [b"%d" % number for number in range(10)])
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        fill(store)
    for number in range(600):
        with store.transaction() as txn:
            txn.seek("t/a", number % 10)
    assert store.browse("t/a", max_messages=1).payloads() == [b"9"]
    txn = store.transaction()
    txn.put("t", b"not this one")
    txn.seek("t/a", 0)
    with pytest.raises(DiskFull):
        txn.commit()
    txn.rollback()
    store.alter_queue("t", keep_forever=False)
    with store.transaction() as txn:
        txn.seek("t/a", "latest")
    assert store.queue("t").messages == 0
    assert store.admin.verify().ok
    store.close()


class Released(QueueEffects):
    """Notes what the latest move has released."""

    def sought(self, subscription_id: int, released: Ranges) -> tuple[()]:
        self.latest = list(released)
        return ()


def moved(durable: DurableQueue, reader: int, position: int) -> tuple[list[tuple[int, int]], int]:
    """What is released by a move of subscription 1 or 2, and what 1 has read."""
    durable.beside = beside = Released()
    durable.seek(reader, position)
    return beside.latest, durable.subscriptions[1].done.total


def test_moves_as_the_fold_makes_them() -> None:
    """What is released stays so; what is before the place is released once all have read it."""
    durable = DurableQueue(QueueConfig(1, "t", "topic", 1 << 20, None, 0, 0), {})
    durable.end_position = 10
    for number in (1, 2):
        durable.subscribe(number, str(number), 0, SHARED)
    durable.acknowledge((1, 1, 0, 10))
    durable.acknowledge((1, 2, 2, 4))
    durable.subscriptions[1].attempts.add(5, 8)
    assert durable.released.to_list() == [(2, 4)]
    assert moved(durable, 1, 0) == ([], 2)
    assert moved(durable, 1, 6) == ([], 6)
    assert durable.subscriptions[1].attempts.rows() == [(6, 8, 1, 0, 0)]
    assert moved(durable, 2, 10) == ([(0, 2), (4, 6)], 6)
    assert moved(durable, 1, 10) == ([(6, 10)], 10)
    assert moved(durable, 3, 0) == ([], 10)


def test_clients_claim_what_they_had(seed: int) -> None:
    """From the next owner, within a minute; who does not come loses it."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    for name in ("b", "c"):
        store.subscribe("t", name, durable=False)
    env = env.crash(seed=seed)
    store = open_store(env)
    store.claim_for("client", [("t", "a"), ("t", "b"), ("t", "none"), ("none", "b")])
    env.advance(CLAIM_SECONDS - 1)
    store.put("t", b"0")
    assert [info.name for info in store.subscriptions("t")] == ["a", "b", "c"]
    env.advance(2)
    store.put("t", b"1")
    assert [info.name for info in store.subscriptions("t")] == ["a", "b"]
    store.let_go_of("somebody else")
    store.put("t", b"2")
    assert store.browse("t/b").payloads() == [b"0", b"1", b"2"]
    store.let_go_of("client")
    store.subscribe_for("another", "b", {"t": "earliest"}, False, False)  # in time
    store.put("t", b"3")
    assert [info.name for info in store.subscriptions("t")] == ["a", "b"]
    store.let_go_of("another")
    store.drop_queue("t")
    store.create_queue("t", kind="topic")
    store.subscribe("t", "b")
    store.put("t", b"4")
    assert [info.name for info in store.subscriptions("t")] == ["b"]
    store.close()


def test_a_client_that_ends_makes_room_on_a_full_disk(seed: int) -> None:
    """Its subscription goes, and what only that one had not read."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("t", kind="topic")
    store.subscribe("t", "a")
    store.subscribe_for("client", "b", {"t": "earliest"}, False, False)
    for _ in range(300):
        store.put("t", bytes(1000))
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        fill(store)
    store.get_many("t/a", 100_000)
    assert store.queue("t").messages > 0
    store.let_go_of("client")
    with suppress(DiskFull):  # of the journal's next segment, after all that makes room
        store._maintenance.step()
    assert store.queue("t").messages == 0
    store.admin.checkpoint()
    store.put("t", b"1")
    assert store.browse("t/a").payloads() == [b"1"]
    store.close()


def test_many_threads_read_while_one_moves(seed: int) -> None:
    """Every message from the last place on is read once after the last move, by one of them."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.put_many("t", [b"%d" % number for number in range(200)])
    read: list[tuple[int, bytes]] = []
    moves = 0
    guard = threading.Lock()
    stop = threading.Event()

    def reader(number: int) -> None:
        rng = random.Random(seed + number)
        while True:
            is_last = stop.is_set()
            with store.transaction() as txn:
                payloads = txn.get_many("t/a", 7, timeout=0.01).payloads()
                version = moves  # nobody moves it while messages are in flight
                if is_last and not payloads:
                    return
                if rng.random() < 0.3:
                    txn.rollback()
                    continue
            with guard:
                read.extend((version, payload) for payload in payloads)

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        with store.transaction() as txn:
            txn.seek("t/a", 100, timeout=60.0)
            moves += 1
    stop.set()
    for thread in threads:
        thread.join()
    last = sorted(int(payload) for version, payload in read if version == moves)
    assert last == list(range(100, 200))
    assert store.subscriptions("t")[0].delivered == 0
    assert store.subscriptions("t")[0].pending == 0
    assert store.admin.verify().ok
    store.close()


def test_an_interrupted_wait_holds_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while a move waits for readers: they go on as before."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.put_many("t", [b"0", b"1"])
    queue, subscription = store._context.state.source("t/a")
    reader, mover = store.transaction(), store.transaction()
    assert reader.get("t/a") is not None

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(queue, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mover.seek("t/a", 0, timeout=60.0)
    assert subscription.seeker is None
    assert reader.get("t/a") is not None
    with pytest.raises(QueueInUse):
        mover.seek("t/a", 0)
    reader.commit()
    mover.seek("t/a", 0)
    mover.rollback()
    assert subscription.seeker is None
    assert subscription.is_plain
    store.close()


FATES = [(True, "write"), (False, "write"), (False, "sync")]


def machines(env: SimEnv) -> list[SimEnv]:
    """What may be left of a machine whose power fails now."""
    return [env.crash(outcome="lost"), *(env.crash(seed=number) for number in range(4))]


@pytest.mark.crash
@pytest.mark.promise(2, 11)
@pytest.mark.parametrize("lands", [True, False, None])
@pytest.mark.parametrize(("direct", "kind"), FATES)
def test_promise_2_11_a_move_whose_write_failed_is_whole_or_not_there(
    seed: int, direct: bool, kind: str, lands: bool | None
) -> None:
    """The commit is in doubt; what the next opening tells of it then lasts, as a whole."""
    env = new_machine(seed, direct=direct)
    store = open_store(env)
    make(store)
    store.put_many("t", [b"0", b"1", b"2"])
    store.get_many("t/a")
    env.fail(kind, "*.log", lands=lands)
    txn = store.transaction()
    txn.put("t", b"3")
    txn.seek("t/a", 1)
    txn.enter("moved", 1)
    with pytest.raises(StoreFailed):
        txn.commit()
    assert txn.state == "in doubt"
    env = env.kill()
    store = open_store(env)
    is_there = store.integration.ledger("moved") == 1
    expected = [b"1", b"2", b"3"] if is_there else []
    assert lands is None or is_there == (lands or kind == "sync")
    store.put("t", b"4")
    for after in machines(env):
        again = open_store(after)
        assert again.integration.ledger("moved") == (1 if is_there else None)
        assert again.browse("t/a").payloads() == [*expected, b"4"]
        assert again.admin.verify().ok


@pytest.mark.crash
@pytest.mark.promise(1, 11)
@pytest.mark.parametrize("lands", [True, False, None])
@pytest.mark.parametrize(("direct", "kind"), FATES)
def test_promise_1_11_what_is_kept_when_its_going_could_not_be_written(
    seed: int, direct: bool, kind: str, lands: bool | None
) -> None:
    """The put before it stands; no more went than may go, and the rest goes after the opening."""
    env = new_machine(seed, direct=direct)
    store = open_store(env)
    store.create_queue("t", kind="topic", keep_messages=2)
    store.subscribe("t", "a")
    for number in range(2):
        store.put("t", b"%d" % number)
    store.get_many("t/a")
    env.fail(kind, "*.log", nth=2, lands=lands)
    store.put("t", b"2")  # and the maintenance lets the first one go
    assert store.failed
    with pytest.raises(StoreFailed):
        store.put("t", b"not this one")
    for after in [env.kill(), *machines(env)]:
        again = open_store(after)
        assert again.browse("t").payloads() in ([b"0", b"1", b"2"], [b"1", b"2"])
        assert again.browse("t/a").payloads() == [b"2"]
        again.put("t", b"3")
        assert again.browse("t").payloads() == [b"2", b"3"]
        assert again.admin.verify().ok


def test_a_move_behind_what_went_in_its_own_group_is_refused(seed: int) -> None:
    """What `place` finds is so when the move is applied, as it is alone in its group."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("t", kind="topic")
    for name in ("a", "b"):
        store.subscribe("t", name)
    store.put_many("t", [b"0", b"1"])
    store.get_many("t/a")
    mover, reader = store.transaction(), store.transaction()
    mover.seek("t/a", 0)
    reader.get_many("t/b")
    failures: list[Exception] = []

    def commit_move() -> None:
        try:
            mover.commit()
        except PositionLost as error:
            failures.append(error)

    store.together([reader.commit, commit_move])
    if not failures:
        assert store.browse("t/a").payloads() == [b"0", b"1"]
    else:
        mover.rollback()
        assert store.integration.positions("t") == (2, 2)
    store.close()
