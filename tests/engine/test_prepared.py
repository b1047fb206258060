"""Two-phase commit: what a prepared transaction holds, how long, and how it is decided."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.engine.commits.queue_writes import QueueWrites
from quire.errors import (
    AlreadyCommitted,
    DiskFull,
    InvalidArgument,
    KeyHeld,
    QueueFull,
    QueueInUse,
    StoreClosed,
    StoreFailed,
    TransactionClosed,
    TransactionNotFound,
    XidExists,
)
from quire.limits import COMMIT_BYTES, MAX_XID_BYTES, MESSAGE_OVERHEAD_BYTES, OPEN_BYTES
from quire.ltds import LtdsWriter, new_id
from quire.testing import SimEnv
from tests.engine.workload import PATH, drain_all, new_machine, open_store
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

CONTROL = OPEN_BYTES + COMMIT_BYTES
STRATEGIES = ["lock-all", "reserve-at-open", "reserve-mode", "reserve-mode-counted"]


@pytest.fixture
def machine(seed: int) -> SimEnv:
    """A simulated machine with the directory of the store."""
    return new_machine(seed)


def crashed(env: SimEnv) -> tuple[SimEnv, Store]:
    """The machine after a power failure, and the store recovered on it."""
    after = env.crash(outcome="lost")
    return after, open_store(after)


def prepare(store: Store, xid: str, *, queue: str = "work", payloads: Any = (b"one",)) -> None:
    """A prepared transaction that puts the payloads."""
    transaction = store.transaction()
    transaction.put_many(queue, list(payloads))
    transaction.prepare(xid)


def sound(store: Store) -> None:
    """`verify` finds nothing."""
    report = store.admin.verify()
    assert report.ok, report.findings


# Deciding -----------------------------------------------------------------------------------------


def test_a_prepared_transaction_is_committed_by_its_object(store: Store, work: str) -> None:
    """Nothing is visible before the decision; then the messages are there, with ids and times."""
    with store.transaction() as transaction:
        message_id = transaction.put(work, b"prepared")
        transaction.prepare("x1")
        assert transaction.state == "prepared"
        assert "not committed" in repr(message_id)
        store.put(work, b"earlier")  # in commit order, as it commits first
        assert take(store, work) == [b"earlier"]
        transaction.commit()
    assert transaction.state == "committed"
    message = store.browse(work)[0]
    assert (message.payload, message.id) == (b"prepared", int(message_id))
    assert store.prepared.list() == []
    with pytest.raises(TransactionClosed, match="committed"):
        transaction.commit()
    transaction.rollback()
    assert take(store, work) == [b"prepared"]


def test_a_prepared_transaction_is_rolled_back_by_its_object(store: Store, topic: str) -> None:
    """What it put is gone, what it got comes again at its place, counted; the ledger is free."""
    store.put(topic, b"first")
    store.put(topic, b"second")
    used = store.queue(topic).used_bytes
    transaction = store.transaction()
    assert transaction.get(f"{topic}/a").payload == b"first"  # type: ignore[union-attr]
    transaction.put(topic, b"never")
    transaction.enter("key", 3)
    transaction.prepare("x1")
    transaction.rollback()
    assert transaction.state == "rolled back"
    with store.transaction() as other:
        messages = list(other.get_many(f"{topic}/a"))
        other.enter("key", 1)
    assert [(m.payload, m.delivery_count) for m in messages] == [(b"first", 2), (b"second", 1)]
    assert take(store, f"{topic}/b") == [b"first", b"second"]
    info = store.queue(topic)
    assert (info.used_bytes, info.prepared, used > 0) == (0, 0, True)


@pytest.mark.parametrize("commit", [True, False])
def test_the_store_decides_for_the_object(store: Store, work: str, commit: bool) -> None:
    """A decision by xid gives the object its final state, and its messages their ids."""
    transaction = store.transaction()
    ids = transaction.put_many(work, [b"a", b"b"])
    transaction.prepare("x1")
    (store.prepared.commit if commit else store.prepared.rollback)("x1")
    assert transaction.state == ("committed" if commit else "rolled back")
    if commit:
        assert [int(i) for i in ids] == store.browse(work).ids
    with pytest.raises(TransactionClosed):
        transaction.commit()
    transaction.rollback()  # nothing happens: it has ended
    assert take(store, work) == ([b"a", b"b"] if commit else [])


@pytest.mark.parametrize("decide", ["commit", "rollback"])
def test_an_unknown_xid(store: Store, work: str, decide: str) -> None:
    """Never prepared, or decided already: TransactionNotFound, which is a KeyError."""
    prepare(store, "x1")
    with pytest.raises(KeyError, match=r"'x2'.*prepared\.list\(\)"):
        getattr(store.prepared, decide)("x2")
    store.prepared.commit("x1")
    for again in ("commit", "rollback"):
        with pytest.raises(TransactionNotFound):
            getattr(store.prepared, again)("x1")
    assert take(store, work) == [b"one"]


def test_a_late_decision_hits_no_later_transaction(store: Store, work: str) -> None:
    """The object decides its own transaction, not one that was prepared under its xid since."""
    first = store.transaction()
    first.put(work, b"first")
    first.prepare("same")
    store.prepared.rollback("same")
    second = store.transaction()
    second.put(work, b"second")
    second.prepare("same")
    with pytest.raises(TransactionClosed, match="rolled back"):
        first.commit()
    first.rollback()
    assert [info.xid for info in store.prepared.list()] == ["same"]
    second.commit()
    assert take(store, work) == [b"second"]


def test_an_xid_is_used_once_at_a_time(store: Store, work: str) -> None:
    """A second one is refused and stays open; once the first is decided the xid is free."""
    prepare(store, "x1")
    transaction = store.transaction()
    transaction.put(work, b"two")
    with pytest.raises(XidExists, match="'x1'"):
        transaction.prepare("x1")
    assert transaction.state == "open"
    transaction.put(work, b"three")
    store.prepared.commit("x1")
    transaction.prepare("x1")
    transaction.commit()
    assert take(store, work) == [b"one", b"two", b"three"]


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "xid", ["", None, 5, b"x", "a\n", "\x00", "\ud800", "x" * (MAX_XID_BYTES + 1), "é" * 101]
)
def test_promise_13_what_is_no_xid(store: Store, work: str, xid: Any) -> None:
    """Refused by all three calls, and the transaction stays open."""
    transaction = store.transaction()
    transaction.put(work, b"x")
    for call in (transaction.prepare, store.prepared.commit, store.prepared.rollback):
        with pytest.raises(InvalidArgument, match="xid"):
            call(xid)
    assert transaction.state == "open"
    transaction.commit()
    assert take(store, work) == [b"x"]


def test_an_xid_of_the_largest_size(machine: SimEnv) -> None:
    """Any printable characters, to the last byte of the limit; found again after a crash."""
    xid = "é" * (MAX_XID_BYTES // 2)
    store = open_store(machine)
    store.create_queue("work", kind="work")
    for name in (xid, "with space / ' \" {}"):
        prepare(store, name)
    machine, store = crashed(machine)
    store.admin.checkpoint()
    machine, store = crashed(machine)
    assert [info.xid for info in store.prepared.list()] == [xid, "with space / ' \" {}"]
    store.prepared.commit(xid)
    store.close()


def test_a_transaction_with_nothing_in_it(machine: SimEnv) -> None:
    """It is prepared like any other: the coordinator finds it."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    transaction = store.transaction()
    transaction.prepare("empty")
    machine, store = crashed(machine)
    [info] = store.prepared.list()
    assert (info.xid, info.queues, info.messages, info.bytes) == ("empty", (), 0, 0)
    store.prepared.commit("empty")
    store.close()


def test_a_refused_first_put_leaves_nothing(store: Store, work: str) -> None:
    """A queue that was opened and not written to is let go when the transaction is prepared."""
    transaction = store.transaction()
    transaction.put_many(work, [])
    assert store.queue(work).open_transactions == 1
    transaction.prepare("x1")
    info = store.queue(work)
    assert (info.open_transactions, info.prepared, info.used_bytes) == (0, 0, 0)
    store.prepared.rollback("x1")


def test_exactly_one_decision_wins(os_store: Store) -> None:
    """Threads that commit and roll back the same xids at once: each xid has one winner."""
    os_store.create_queue("work", kind="work")
    for number in range(30):
        prepare(os_store, f"x{number}", payloads=[b"%d" % number])
    won: list[tuple[int, bool]] = []
    errors: list[BaseException] = []
    together = threading.Barrier(4)

    def decide(commit: bool) -> None:
        call = os_store.prepared.commit if commit else os_store.prepared.rollback
        for number in range(30):
            together.wait(SECONDS)
            try:
                call(f"x{number}")
                won.append((number, commit))
            except TransactionNotFound:
                pass
            except BaseException as error:  # noqa: BLE001 - shown by the main thread
                errors.append(error)

    threads = [threading.Thread(target=decide, args=(n % 2 == 0,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert not errors
    assert sorted(number for number, _ in won) == list(range(30))
    committed = [b"%d" % number for number, commit in sorted(won) if commit]
    assert take(os_store, "work") == committed
    assert os_store.prepared.list() == []


# What it holds ------------------------------------------------------------------------------------


@pytest.mark.promise(7)
def test_promise_7_it_never_expires(sim: SimEnv, sim_store: Store) -> None:
    """Past every time-out it is prepared; one that is only open is rolled back."""
    sim_store.create_queue("work", kind="work")
    transaction = sim_store.transaction(timeout=10)
    transaction.put("work", b"prepared")
    transaction.prepare("x1")
    other = sim_store.transaction(timeout=10)
    other.put("work", b"open")
    sim.advance(100 * 24 * 3600)
    sim_store.put("work", b"lets the store look for what is over its time")
    sim_store.admin.checkpoint()
    assert other.state == "rolled back"
    [info] = sim_store.prepared.list()
    assert info.age_seconds >= 100 * 24 * 3600
    assert (info.xid, info.queues, info.messages) == ("x1", ("work",), 1)
    assert info.bytes == len(b"prepared") + MESSAGE_OVERHEAD_BYTES + CONTROL
    assert sim_store.status()["prepared"][0]["xid"] == "x1"
    assert sim_store.status()["transactions"] == []
    transaction.commit()
    assert take(sim_store, "work")[1] == b"prepared"


@pytest.mark.promise(7)
@pytest.mark.parametrize("error", [None, ValueError])
def test_promise_7_the_with_block_decides_nothing(
    store: Store, work: str, error: type[Exception] | None
) -> None:
    """Neither its end nor an exception in it: the coordinator decides."""
    transaction = store.transaction()
    with contextlib.suppress(ValueError), transaction:
        transaction.put(work, b"x")
        transaction.prepare("x1")
        if error is not None:
            raise error
    assert transaction.state == "prepared"
    assert [info.xid for info in store.prepared.list()] == ["x1"]
    store.prepared.rollback("x1")


@pytest.mark.promise(7)
def test_promise_7_closing_the_store_decides_nothing(machine: SimEnv) -> None:
    """It is found by the next opening; the object of before says that its store is closed."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    transaction = store.transaction()
    transaction.put("work", b"x" * 3000)
    transaction.prepare("x1")
    store.close()
    for end in (transaction.commit, transaction.rollback):
        with pytest.raises(StoreClosed):
            end()
    assert transaction.state == "prepared"
    store = open_store(machine)
    store.prepared.commit("x1")
    assert take(store, "work") == [b"x" * 3000]
    store.close()


def test_it_takes_nothing_any_more(store: Store, work: str) -> None:
    """Put, get, record, prepare: TransactionClosed, which names the xid."""
    transaction = store.transaction()
    transaction.put(work, b"x")
    transaction.prepare("x1")
    calls: list[Callable[[], Any]] = [
        lambda: transaction.put(work, b"y"),
        lambda: transaction.put_many(work, [b"y"]),
        lambda: transaction.get(work),
        lambda: transaction.get_many(work, timeout=0.01),
        lambda: transaction.read_to(work, 0),
        lambda: transaction.enter("key", 1),
        lambda: transaction.prepare("x2"),
    ]
    for call in calls:
        with pytest.raises(TransactionClosed, match="prepared as 'x1'"):
            call()
    transaction.commit()
    assert take(store, work) == [b"x"]


def test_what_it_got_stays_in_flight(machine: SimEnv) -> None:
    """Live, after a crash, after a checkpoint and a crash: others get what is around it."""
    store = open_store(machine)
    store.create_queue("topic", kind="topic")
    for name in "ab":
        store.subscribe("topic", name)
    with store.transaction() as transaction:
        transaction.put_many("topic", [b"%d" % n for n in range(10)])
    early = store.transaction()
    early.get_many("topic/a", 2)
    transaction = store.transaction()
    assert transaction.get_many("topic/a", 3).payloads() == [b"2", b"3", b"4"]
    other = store.transaction()
    other.get_many("topic/a", 1)
    assert transaction.get_many("topic/a", 2).payloads() == [b"6", b"7"]
    transaction.prepare("x1")
    other.rollback()
    early.rollback()
    for checkpoint in (False, True, False):
        if checkpoint:
            store.admin.checkpoint()
        machine, store = crashed(machine)
        [a, b] = store.subscriptions("topic")
        assert (a.delivered, a.pending, b.delivered, b.pending) == (5, 10, 0, 10)
        with store.transaction() as reader:
            got = reader.get_many("topic/a", 100).payloads()
            assert got == [b"0", b"1", b"5", b"8", b"9"]
            reader.rollback()
    assert store.queue("topic").messages == 10
    store.prepared.rollback("x1")
    with store.transaction() as reader:
        messages = [reader.get("topic/a") for _ in range(10)]
    assert [m.payload for m in messages if m] == [b"%d" % n for n in range(10)]
    # All came back since the last opening; what came back before it no record tells.
    assert [m.delivery_count for m in messages if m] == [2] * 10
    assert len(take(store, "topic/b")) == 10
    sound(store)
    store.close()


def test_its_reads_are_acknowledged_by_its_commit(machine: SimEnv) -> None:
    """Also what it read by position, of what there was when it was prepared."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "s")
    for number in range(6):
        store.put("work", b"%d" % number)
        store.put("topic", b"%d" % number)
    transaction = store.transaction()
    transaction.get_many("work", 2)
    transaction.read_to("topic/s", 4)
    transaction.prepare("x1")
    machine, store = crashed(machine)
    assert store.subscriptions("topic")[0].delivered == 0
    with store.transaction() as other:  # read by position is not in flight
        assert other.get("topic/s").payload == b"0"  # type: ignore[union-attr]
    store.prepared.commit("x1")
    machine, store = crashed(machine)
    assert take(store, "work") == [b"2", b"3", b"4", b"5"]
    assert take(store, "topic/s") == [b"4", b"5"]
    assert [info.used_bytes for info in store.queues()] == [0, 0]
    sound(store)
    store.close()


def test_messages_that_were_read_by_others_meanwhile(store: Store, topic: str) -> None:
    """Somebody reads past what is in flight: the rollback gives back only what is unread."""
    for number in range(4):
        store.put(topic, b"%d" % number)
    transaction = store.transaction()
    transaction.get_many(f"{topic}/a", 3)
    transaction.prepare("x1")
    with store.transaction() as other:
        other.read_to(f"{topic}/a", 2)
    store.prepared.rollback("x1")
    assert take(store, f"{topic}/a") == [b"2", b"3"]
    assert store.subscriptions(topic)[0].delivered == 0


def test_its_ledger_keys_are_held(machine: SimEnv) -> None:
    """Commits and prepares that name one wait, stay open, and go on once it is decided."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    for version, decide in ((5, "commit"), (7, "rollback")):
        transaction = store.transaction()
        transaction.put("work", b"prepared %d" % version)
        transaction.enter("key", version)
        transaction.prepare("x1")
        machine, store = crashed(machine)
        other = store.transaction()
        other.put("work", b"other %d" % version)
        other.enter("key", version + 1)
        with pytest.raises(KeyHeld, match=r"'key'.*'x1'"):
            other.commit()
        with pytest.raises(KeyHeld):
            other.prepare("x2")
        assert other.state == "open"
        assert store.integration.ledger("key") == (None if version == 5 else 6)
        getattr(store.prepared, decide)("x1")
        assert store.integration.ledger("key") == (5 if version == 5 else 6)
        other.commit()
    transaction = store.transaction()
    transaction.enter("key", 8)
    with pytest.raises(AlreadyCommitted):
        transaction.prepare("x3")
    assert transaction.state == "rolled back"
    machine, store = crashed(machine)
    assert store.integration.ledger("key") == 8
    assert take(store, "work") == [b"prepared 5", b"other 5", b"other 7"]
    store.close()


def test_queues_and_subscriptions_stay(machine: SimEnv) -> None:
    """What it wrote to or got from cannot be removed, live and after a crash, until it is over."""
    store = open_store(machine)
    for name in ("written", "read"):
        store.create_queue(name, kind="topic")
        store.subscribe(name, "s")
        store.subscribe(name, "t")
    store.put("read", b"x")
    transaction = store.transaction()
    transaction.put("written", b"y")
    transaction.get("read/s")
    transaction.prepare("x1")
    for _ in range(2):
        with pytest.raises(QueueInUse, match="1 prepared"):
            store.drop_queue("written")
        with pytest.raises(QueueInUse, match="in flight"):
            store.drop_queue("read")
        with pytest.raises(QueueInUse, match=r"'x1'.*read/s"):
            store.unsubscribe("read", "s")
        machine, store = crashed(machine)
    assert store.prepared.list()[0].queues == ("read", "written")
    store.unsubscribe("read", "t")
    store.unsubscribe("written", "s")
    store.prepared.commit("x1")
    store.unsubscribe("read", "s")
    for name in ("read", "written"):
        store.drop_queue(name)
    store.close()


# Space --------------------------------------------------------------------------------------------


def test_space_is_exact_to_the_byte(machine: SimEnv) -> None:
    """Prepared, recovered, from a checkpoint, committed, read: each number as it has to be."""
    store = open_store(machine)
    store.create_queue("q", kind="work", max_messages=10)
    charge = 5 * (1000 + MESSAGE_OVERHEAD_BYTES) + CONTROL
    transaction = store.transaction()
    transaction.put_many("q", [b"x" * 1000] * 5)
    assert store.queue("q").used_bytes == charge - COMMIT_BYTES
    transaction.prepare("x1")
    for checkpoint in (False, True, False):
        info = store.queue("q")
        assert (info.used_bytes, info.messages, info.prepared) == (charge, 0, 1)
        assert (info.open_transactions, info.reserving, info.end_position) == (0, 0, 0)
        with pytest.raises(QueueFull, match="at most 10"), store.transaction() as other:
            other.put_many("q", [b""] * 6)
        if checkpoint:
            store.admin.checkpoint()
        sound(store)
        machine, store = crashed(machine)
    store.prepared.commit("x1")
    info = store.queue("q")
    assert (info.used_bytes, info.messages, info.prepared) == (charge, 5, 0)
    machine, store = crashed(machine)
    assert store.queue("q").used_bytes == charge
    prepare(store, "x2", queue="q")
    store.prepared.rollback("x2")
    assert store.queue("q").used_bytes == charge
    take(store, "q")
    assert store.queue("q").used_bytes == 0
    machine, store = crashed(machine)
    drain_all(store)
    store.close()


@pytest.mark.promise(5)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_promise_5_the_decision_needs_no_space(seed: int, strategy: str) -> None:
    """With all taken that can be after the prepare, each prepared one commits."""
    machine = new_machine(seed)
    store = open_store(machine, strategy=strategy)
    capacity = 8192
    store.create_queue("q", kind="work", capacity=capacity)
    for number in range(3):
        prepare(store, f"x{number}", queue="q", payloads=[b"x" * 500])
    filler = store.transaction()
    filler.put("q", b"")
    free = capacity - store.queue("q").used_bytes
    filler.put("q", bytes(free - COMMIT_BYTES - MESSAGE_OVERHEAD_BYTES))
    filler.prepare("full")
    assert store.queue("q").used_bytes == capacity
    store.prepared.commit("x0")
    store.prepared.rollback("x1")
    store.prepared.commit("full")
    store.prepared.commit("x2")
    assert store.queue("q").messages == 4
    machine = machine.crash(outcome="lost")
    store = open_store(machine, strategy=strategy)
    assert store.queue("q").messages == 4
    drain_all(store)
    store.close()


@pytest.mark.promise(5)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_promise_5_preparing_at_the_exact_boundary(seed: int, strategy: str) -> None:
    """A put that leaves room for the commit record is prepared; with one byte more it is refused.

    What was put before is prepared all the same.
    """
    for short in (0, 1):
        store = open_store(new_machine(seed), strategy=strategy)
        capacity = 8192
        store.create_queue("q", kind="work", capacity=capacity)
        transaction = store.transaction()
        transaction.put("q", b"")
        # All but the commit record's bytes, and one more where it shall fall short.
        rest = capacity - store.queue("q").used_bytes - COMMIT_BYTES + short
        with pytest.raises(QueueFull) if short else nullcontext():
            transaction.put("q", bytes(rest - MESSAGE_OVERHEAD_BYTES))
        transaction.prepare("x1")
        if not short:
            assert store.queue("q").used_bytes == capacity
        store.prepared.commit("x1")
        drain_all(store)
        store.close()


# Places -------------------------------------------------------------------------------------------


def test_blocks_go_to_the_data_file(machine: SimEnv) -> None:
    """However small: so checkpoints have nothing to move, and the journal's space comes back."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    prepare(store, "x1", payloads=[b"small"])
    store.admin.checkpoint()
    for _ in range(60):
        store.put("work", b"y" * 5000)
    store.admin.checkpoint()
    assert store.status()["checkpoints"]["moved_bytes"] > 0
    assert store.status()["journal"]["segments"] <= 2
    machine, store = crashed(machine)
    sound(store)
    store.prepared.commit("x1")
    assert take(store, "work")[-1] == b"small"
    drain_all(store)
    store.close()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("after", ["live", "crash", "checkpoint"])
def test_what_was_spilled_before(seed: int, commit: bool, after: str) -> None:
    """Blocks that had left the write buffer, those behind them, and an untouched second queue."""
    machine = new_machine(seed)
    store = open_store(machine)
    for name in ("spilled", "small"):
        store.create_queue(name, kind="work")
    transaction = store.transaction()
    transaction.put_many("spilled", [b"%d" % n for n in range(50)])
    assert transaction.leave(None)
    store.put("spilled", b"of another, in between")
    transaction.put("spilled", b"behind")
    transaction.put("small", b"small")
    transaction.prepare("x1")
    sound(store)
    if after == "checkpoint":
        store.admin.checkpoint()
    if after != "live":
        machine, store = crashed(machine)
    sound(store)
    (store.prepared.commit if commit else store.prepared.rollback)("x1")
    expected = [b"%d" % n for n in range(50)] + [b"behind"] if commit else []
    assert take(store, "spilled") == [b"of another, in between", *expected]
    assert take(store, "small") == ([b"small"] if commit else [])
    drain_all(store)
    store.close()


@pytest.mark.promise(4)
def test_promise_4_a_rollback_wakes_commits_that_wait_for_space(os_store: Store) -> None:
    """A commit that waits for the space that a prepared transaction holds goes on at once."""
    os_store.create_queue("q", kind="work", capacity=8192 + COMMIT_BYTES)
    prepare(os_store, "x1", queue="q", payloads=[b"x" * 2000])
    filler = os_store.transaction()
    filler.put("q", b"")
    free = 8192 - os_store.queue("q").used_bytes
    filler.put("q", bytes(free - MESSAGE_OVERHEAD_BYTES))
    os_store.alter_queue("q", capacity=8192)  # so that its record finds no room
    committing = threading.Thread(target=lambda: filler.commit(timeout=SECONDS))
    committing.start()
    while filler._waits_for is None and committing.is_alive():
        threading.Event().wait(0.001)
    os_store.prepared.rollback("x1")
    committing.join(SECONDS / 2)
    assert filler.state == "committed"


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("after", ["live", "crash", "checkpoint"])
def test_files_of_large_transactions(seed: int, commit: bool, after: str) -> None:
    """Its own file and one that it adopted: kept, and with the commit read, with the rollback gone.

    The adopted one stays with its writer after a rollback: it can be adopted again.
    """
    machine = new_machine(seed)
    store = open_store(machine)
    store.create_queue("work", kind="work")
    store.create_queue("other", kind="work")
    builder = BlockBuilder()
    builder.add_many([b"adopted"] * 50)
    writer = LtdsWriter(
        machine, f"{PATH}/ltds", store.integration.store_id, new_id(machine, foreign=True)
    )
    writer.add(builder)
    fragment = writer.finish()
    transaction = store.transaction(large=True)
    transaction.put_many("work", [b"%d" % n for n in range(500)])
    transaction.integration.adopt("other", fragment.id)
    transaction.put("other", b"behind")
    transaction.prepare("x1")
    if after == "checkpoint":
        store.admin.checkpoint()
    if after != "live":
        machine, store = crashed(machine)
    sound(store)
    assert store.admin.verify().checked["large_files"] == 2
    assert store.status()["large_transactions"]["files"] == 2
    with pytest.raises(Exception, match="belongs to"), store.transaction() as thief:
        thief.integration.adopt("other", fragment.id)
    if commit:
        store.prepared.commit("x1")
        assert take(store, "work") == [b"%d" % n for n in range(500)]
        assert take(store, "other") == [b"adopted"] * 50 + [b"behind"]
    else:
        store.prepared.rollback("x1")
        assert store.status()["large_transactions"]["files"] == 0
        with store.transaction() as again:
            again.integration.adopt("work", fragment.id)
        assert take(store, "work") == [b"adopted"] * 50
    sound(store)
    drain_all(store)
    store.close()
    assert [name for name in machine.files() if name.endswith(".ltds")] == []


def test_memory_is_let_go(store: Store, work: str) -> None:
    """What waited in the write buffer is in the files only (promise 9)."""
    transaction = store.transaction()
    ids = transaction.put_many(work, [b"x" * 100_000] * 5)
    transaction.prepare("x1")
    assert store.status()["write_buffer_bytes"] == 0
    assert isinstance(ids._written, QueueWrites)
    assert ids._written.placed == []
    transaction.commit()
    assert len(take(store, work)) == 5


def test_verify_finds_a_damaged_block(machine: SimEnv) -> None:
    """A flipped bit in what a prepared transaction puts is found, and told by xid and queue."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    prepare(store, "x1", payloads=[b"x" * 3000])
    part = next(iter(store._context.state.prepared)).record.parts[0]
    machine.corrupt(f"{PATH}/data/0.dat", part.address + 1000)
    findings = store.admin.verify().findings
    assert len(findings) == 1
    assert "'x1'" in findings[0]
    assert "'work'" in findings[0]


def test_verify_compares_the_counters(machine: SimEnv) -> None:
    """A queue that counts other bytes, messages or transactions as prepared is a finding."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    prepare(store, "x1")
    space = store._context.state.names["work"].space
    for name in ("prepared", "prepared_bytes", "prepared_messages"):
        setattr(space, name, getattr(space, name) + 1)
        assert "prepared" in str(store.admin.verify().findings)
        setattr(space, name, getattr(space, name) - 1)
    sound(store)


# Errors -------------------------------------------------------------------------------------------


def fill_journal(store: Store, env: SimEnv) -> None:
    """The disk is full, and the journal's segment too."""
    env.capacity_bytes = env.used_bytes()

    def put_all(size: int) -> None:
        for _ in range(1000):
            store.put("work", b"x" * size)

    for size in (2000, 1):
        with pytest.raises(DiskFull):
            put_all(size)


@pytest.mark.promise(5)
def test_promise_5_a_full_disk_at_prepare_and_decision(machine: SimEnv) -> None:
    """DiskFull leaves it open; with room the same call succeeds. A decision needs no room."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    prepare(store, "first", payloads=[b"first"])
    prepare(store, "gone", payloads=[b"gone"])
    transaction = store.transaction()
    transaction.put("work", b"second")
    transaction.enter("key", 1)
    fill_journal(store, machine)
    before = store.queue("work")
    with pytest.raises(DiskFull):
        transaction.prepare("second")
    assert transaction.state == "open"
    assert store.queue("work") == before
    assert [info.xid for info in store.prepared.list()] == ["first", "gone"]
    store.prepared.rollback("gone")
    store.prepared.commit("first")
    sound(store)
    machine.capacity_bytes = None
    transaction.prepare("second")
    transaction.commit()
    assert take(store, "work")[-2:] == [b"first", b"second"]
    assert store.integration.ledger("key") == 1
    sound(store)
    store.close()


@pytest.mark.promise(11)
def test_promise_11_an_error_at_the_prepare(machine: SimEnv) -> None:
    """StoreFailed: whether it is prepared is told by the next opening."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    transaction = store.transaction()
    transaction.put("work", b"x")
    machine.fail("write", "*.log")
    with pytest.raises(StoreFailed):
        transaction.prepare("x1")
    assert transaction.state == "in doubt"
    with pytest.raises(StoreFailed):
        store.put("work", b"y")
    store.close()
    machine, store = crashed(machine)
    assert store.prepared.list() == []
    sound(store)
    store.close()


@pytest.mark.promise(11)
def test_promise_11_an_error_at_the_decision(machine: SimEnv) -> None:
    """StoreFailed: it is prepared or decided, which `recover` of the next opening tells."""
    store = open_store(machine)
    store.create_queue("work", kind="work")
    transaction = store.transaction()
    transaction.put("work", b"x")
    transaction.prepare("x1")
    machine.fail("write", "*.log")
    with pytest.raises(StoreFailed):
        transaction.commit()
    assert transaction.state == "prepared"
    with pytest.raises(StoreFailed):
        store.prepared.rollback("x1")
    store.close()
    machine, store = crashed(machine)
    assert [info.xid for info in store.prepared.list()] == ["x1"]
    store.prepared.commit("x1")
    assert take(store, "work") == [b"x"]
    store.close()
