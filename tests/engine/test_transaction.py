"""Transactions: puts in every form, commit, rollback, time-outs, the ledger."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    AlreadyCommitted,
    TransactionClosed,
    TransactionError,
    TransactionTimeout,
)
from quire.messages.message import Message
from quire.messages.message_schema import MESSAGE_SCHEMA
from quire.testing import SimEnv
from tests.engine.unchanged import numbers
from tests.kit.messages import FIELDS, take
from tests.kit.waiting import SECONDS

# Round trips


def test_all_fields_of_a_message_come_back(store: Store, topic: str) -> None:
    """What is put with every field is what get, get_many and browse return, but for deliveries."""
    before = store._env.now_us()
    with store.transaction() as txn:
        put = txn.put_moved(topic, b"payload", FIELDS)
    with store.transaction() as txn:
        one = txn.get("topic/a")
        (many,) = txn.get_many("topic/b")
        assert one is not None
        assert one == many
        looked_at = store.browse(topic)[0]
        assert looked_at.delivery_count == 0
    assert one.id == int(put)
    assert (one.queue, one.payload, one.delivery_count) == (topic, b"payload", 1)
    assert before <= one.time <= store._env.now_us()
    assert (looked_at.id, looked_at.queue, looked_at.payload) == (one.id, topic, b"payload")
    assert looked_at.time == one.time
    for name, value in FIELDS.items():
        assert getattr(one, name) == getattr(looked_at, name) == value, name


def test_absent_fields_have_their_defaults(store: Store, work: str) -> None:
    """A plain message has priority and group 0, no strings, no times, no attributes."""
    store.put(work, b"")
    with store.transaction() as txn:
        message = txn.get(work)
        assert message is not None
        assert message == Message(message.id, work, b"", time=message.time)


@pytest.mark.parametrize("payload", [b"", b"x", bytearray(b"ab"), memoryview(b"abc"), b"\0" * 5000])
def test_payloads_are_bytes_of_any_kind(store: Store, work: str, payload: Any) -> None:
    """A payload is what can be read as bytes, and comes back as bytes."""
    store.put(work, payload)
    store.put(work, payload, group=1)
    with store.transaction() as txn:
        txn.put(work, payload)
    assert take(store, work) == [bytes(payload)] * 3


@pytest.mark.parametrize(
    "payloads",
    [
        [b"a", b"", b"ccc"],
        (b"a", b"", b"ccc"),
        [bytearray(b"a"), memoryview(b""), b"ccc"],
        pa.array([b"a", b"", b"ccc"]),
        pa.array([b"a", b"", b"ccc"], pa.large_binary()),
        pa.array(["a", "", "ccc"]),
        pa.array([b"-", b"a", b"", b"ccc", b"-"])[1:4],
        pa.chunked_array([[b"a"], [], [b"", b"ccc"]]),
        pa.record_batch({"payload": pa.array([b"a", b"", b"ccc"])}),
        pa.table({"payload": pa.chunked_array([[b"a", b""], [b"ccc"]])}),
    ],
    ids=["list", "tuple", "mixed", "array", "large", "strings", "slice", "chunked",
         "batch", "table"],
)  # fmt: skip
def test_put_many_takes_lists_and_arrow(store: Store, work: str, payloads: Any) -> None:
    """All forms in which many payloads may be put."""
    with store.transaction() as txn:
        ids = txn.put_many(work, payloads)
        assert len(ids) == 3
    with store.transaction() as txn:
        messages = txn.get_many(work)
    assert messages.payloads() == [b"a", b"", b"ccc"]
    assert messages.ids == [int(i) for i in ids] == list(range(int(ids[0]), int(ids[0]) + 3))


def test_a_batch_with_header_columns(store: Store, work: str) -> None:
    """Columns of a batch are the fields of its messages; nulls are absent."""
    store.alter_queue(work, timed=False)
    batch = pa.record_batch(
        {
            "payload": pa.array([b"1", b"2"]),
            "priority": pa.array([7, 65535], pa.int32()),
            "group": pa.array([0, 9], pa.int32()),
            "sender": pa.array(["me", None]),
            "correlation_id": pa.array([None, "c"]),
            "expires_at": pa.array([None, 5], pa.timestamp("us", "UTC")),
            "attributes": pa.array([[("k", "v")], []], pa.map_(pa.string(), pa.string())),
        }
    )
    with store.transaction() as txn:
        txn.put_moved_many(work, batch)
    with store.transaction() as txn:
        first, second = txn.get_many(work)
    assert (first.priority, first.group, first.sender, first.attributes) == (7, 0, "me", {"k": "v"})
    assert (first.correlation_id, first.expires_at) == (None, None)
    assert (second.priority, second.group, second.sender) == (65535, 9, None)
    assert (second.correlation_id, second.expires_at, second.attributes) == ("c", 5, {})


def test_what_get_arrow_gives_can_be_put_again(store: Store, topic: str, work: str) -> None:
    """A batch has MESSAGE_SCHEMA, and the columns that a put may set go in as they came out."""
    with store.transaction() as txn:
        txn.put_moved(topic, b"1", FIELDS)
        txn.put(topic, b"2")
    with store.transaction() as txn:
        batch = txn.get_arrow("topic/a", max_messages=10)
        assert batch.schema.equals(MESSAGE_SCHEMA)
        assert batch.num_rows == 2
        assert txn.get_arrow("topic/a").num_rows == 0
        store.alter_queue(work, order="priority", timed=True)
        txn.put_many(work, batch.drop_columns(["id", "time", "delivery_count"]))
    with store.transaction() as txn:
        again = txn.get_many(work)
    assert again[0].payload == b"1"
    for name, value in FIELDS.items():
        assert getattr(again[0], name) == value, name
    assert again[1].attributes == {}


# Order and ids


@pytest.mark.promise(3)
def test_messages_keep_put_order_and_transactions_commit_order(store: Store, topic: str) -> None:
    """Interleaved puts of two transactions: each one's messages together, in commit order."""
    first, second = store.transaction(), store.transaction()
    for n in range(5):
        first.put(topic, b"1%d" % n)
        second.put_many(topic, [b"2%d" % n, b"3%d" % n])
    second.commit()
    first.commit()
    expected = [x for n in range(5) for x in (b"2%d" % n, b"3%d" % n)]
    expected += [b"1%d" % n for n in range(5)]
    assert take(store, "topic/a") == expected
    assert take(store, "topic/b", 3) == expected[:3]
    assert take(store, "topic/b") == expected[3:]
    assert store.browse(topic).payloads() == []


def test_ids_ascend_in_commit_order_and_are_unique(store: Store, topic: str, work: str) -> None:
    """Ids count up over all queues in the order of the commits, across a reopening too."""
    ids = [store.put(work, b"x")]
    early, late = store.transaction(), store.transaction()
    a = early.put(topic, b"a")
    b = late.put(topic, b"b")
    c = late.put_many(work, [b"c", b"d"])
    late.commit()
    early.commit()
    ids += [int(b), *(int(i) for i in c), int(a), store.put(topic, b"e", group=3)]
    assert ids == sorted(set(ids))
    assert [m.id for m in store.browse(topic)] == [int(b), int(a), ids[-1]]
    assert [m.time for m in store.browse(topic)] == sorted(m.time for m in store.browse(topic))


def test_an_id_is_known_after_the_commit_only(store: Store, work: str) -> None:
    """Before the commit and after a rollback there is no id to be had, and the error says so."""
    txn = store.transaction()
    one, many = txn.put(work, b"1"), txn.put_many(work, [b"2", b"3", b"4"])
    for use in (int, hash, lambda i: i == 1, range):
        with pytest.raises(TransactionError, match="before its transaction"):
            use(one)
    assert "not committed" in repr(one)
    txn.commit()
    assert [int(i) for i in many] == [int(one) + 1, int(one) + 2, int(one) + 3]
    assert one == int(one)
    assert {one: 1}[int(one)] == 1  # type: ignore[index]
    assert int(many[-1]) == int(many[2]) == int(many[1:][1])
    assert len(many[5:2]) == 0
    with pytest.raises(IndexError):
        many[3]
    with pytest.raises(TransactionError):
        many[::2]
    lost = store.transaction()
    gone = lost.put(work, b"x")
    lost.rollback()
    with pytest.raises(TransactionError):
        int(gone)


# Atomic


@pytest.mark.promise(2)
def test_nothing_of_an_open_transaction_is_seen(store: Store, topic: str, work: str) -> None:
    """Puts, reads and ledger entries take effect at the commit, all together."""
    store.put(work, b"in")
    txn = store.transaction()
    assert txn.get(work) is not None
    txn.put(topic, b"out")
    txn.put_many(work, [b"more"])
    txn.enter("key", 4)
    assert store.browse(topic).payloads() == []
    assert take(store, "topic/a") == take(store, work) == []
    assert store.queue(work).messages == 1  # in flight is not read
    assert store.integration.ledger("key") is None
    txn.commit()
    assert store.browse(topic).payloads() == [b"out"]
    assert take(store, work) == [b"more"]
    assert store.integration.ledger("key") == 4


@pytest.mark.promise(2)
@pytest.mark.parametrize("way", ["rollback", "exception", "close"])
def test_a_rollback_leaves_nothing(store: Store, topic: str, work: str, way: str) -> None:
    """What was put is gone, what was got is back, the ledger and the space are as before."""
    store.put(work, b"in")
    before = numbers(store)
    txn = store.transaction()

    def use(then: Exception | None = None) -> None:
        assert txn.get(work) is not None
        txn.put(topic, b"out", attributes={"a": "b"})
        txn.put_many(work, [b"more"] * 10)
        txn.enter("key", 4)
        if then is not None:
            raise then

    if way == "exception":
        with pytest.raises(ZeroDivisionError), txn:
            use(then=ZeroDivisionError())
    else:
        use()
        txn.rollback()
    assert txn.state == "rolled back"
    assert numbers(store) == before
    with store.transaction() as again:
        message = again.get(work)
        assert message is not None
        assert message.delivery_count == 2


@pytest.mark.promise(13)
def test_an_ended_transaction_refuses_everything(store: Store, topic: str, work: str) -> None:
    """TransactionClosed, naming how it ended; rollback alone may be called again."""
    done, back = store.transaction(), store.transaction()
    done.put(work, b"x")
    done.commit()
    back.rollback()
    before = numbers(store)
    for txn, word in ((done, "committed"), (back, "rolled back")):
        assert txn.state == word
        uses: list[Callable[[Any], object]] = [
            lambda t: t.put(work, b"y"),
            lambda t: t.put_many(work, [b"y"]),
            lambda t: t.put_many(work, pa.array([b"y"])),
            lambda t: t.get(work),
            lambda t: t.get_many(work),
            lambda t: t.get_arrow("topic/a", timeout=1.0),
            lambda t: t.read_to(work, 0),
            lambda t: t.enter("key", 1),
            lambda t: t.commit(),
        ]
        for use in uses:
            with pytest.raises(TransactionClosed, match=word):
                use(txn)
        txn.rollback()
        assert txn.state == word
    assert numbers(store) == before


def test_a_commit_inside_the_with_block_is_kept(store: Store, work: str) -> None:
    """Ending a transaction by hand is allowed; the end of the block adds nothing."""
    with store.transaction() as txn:
        txn.put(work, b"1")
        txn.commit()
    with store.transaction() as txn:
        txn.put(work, b"2")
        txn.rollback()
    try:
        with store.transaction() as txn:
            txn.put(work, b"3")
            txn.commit()
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert txn.state == "committed"
    with store.transaction():
        pass
    assert take(store, work) == [b"1", b"3"]


# Time-outs


@pytest.mark.promise(7)
def test_a_forgotten_transaction_is_rolled_back(sim: SimEnv, sim_store: Store) -> None:
    """After its timeout (an hour by default) it is undone, and every use of it says why."""
    store = sim_store
    store.create_queue("work", kind="work")
    store.put("work", b"in")
    short, default = store.transaction(timeout=5.0), store.transaction()
    for txn in (short, default):
        txn.put("work", b"never")
    assert short.get("work") is not None
    sim.advance(6)
    store.put("work", b"tick")
    assert (short.state, default.state) == ("rolled back", "open")
    for use in (
        short.commit,
        lambda: short.put("work", b"x"),
        lambda: short.get("work"),
        lambda: short.put_many("work", [b"x"]),
        lambda: short.enter("key", 1),
    ):
        with pytest.raises(TransactionTimeout, match="open for too long"):
            use()
    with pytest.raises(TransactionTimeout), short:
        pass
    with pytest.raises(TimeoutError):
        short.commit()
    short.rollback()
    sim.advance(3500)
    store.put("work", b"tick")
    assert default.state == "open"
    sim.advance(100)
    store.put("work", b"tick")
    assert default.state == "rolled back"
    assert take(store, "work") == [b"in", b"tick", b"tick", b"tick"]


@pytest.mark.promise(7)
def test_the_time_out_needs_no_traffic(os_store: Store) -> None:
    """In the background a transaction is rolled back although nobody calls the store."""
    os_store.create_queue("work", kind="work")
    txn = os_store.transaction(timeout=0.05)
    deadline = time.monotonic() + SECONDS
    with pytest.raises(TransactionTimeout):  # noqa: PT012 - the put may come too late
        txn.put("work", b"x")
        while txn.state == "open" and time.monotonic() < deadline:
            time.sleep(0.02)
        txn.commit()
    assert os_store.queue("work").open_transactions == 0


@pytest.mark.promise(7)
def test_a_get_that_waits_ends_with_its_transaction(store: Store, work: str) -> None:
    """A rollback or time-out of a transaction wakes the thread that waits in its get."""
    for end in ("rollback", "expire"):
        txn = store.transaction()
        errors: list[BaseException] = []

        def wait(txn: Any = txn, errors: list[BaseException] = errors) -> None:
            try:
                txn.get(work, timeout=600.0)
            except TransactionError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        while txn._waits_for is None:
            time.sleep(0.001)
        if end == "rollback":
            txn.rollback()
        else:
            store._context.registry.expire(math.inf)
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert [type(e) for e in errors] == [
            TransactionClosed if end == "rollback" else TransactionTimeout
        ]


# The ledger


@pytest.mark.promise(2)
def test_the_ledger_lets_a_version_commit_once(store: Store, work: str) -> None:
    """A repeated version has no effect and says so; a later one goes on; keys are apart."""
    for version in (0, 3):
        with store.transaction() as txn:
            txn.put(work, b"%d" % version)
            txn.enter("key", version)
    for version in (0, 2, 3):
        txn = store.transaction()
        txn.put(work, b"again")
        txn.enter("key", version)
        txn.enter("other", 9)
        with pytest.raises(AlreadyCommitted, match="version 3"):
            txn.commit()
        assert txn.state == "rolled back"
    assert (store.integration.ledger("key"), store.integration.ledger("other")) == (3, None)
    assert take(store, work) == [b"0", b"3"]
    assert store.queue(work).used_bytes == 0
    with store.transaction() as txn:
        txn.enter("other", 2**63 - 1)
    assert store.integration.ledger("other") == 2**63 - 1


@pytest.mark.promise(2)
def test_one_of_two_commits_of_a_version_wins(store: Store, work: str) -> None:
    """Two transactions with one key and version, committed at once by two threads."""
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def commit(n: int) -> None:
        txn = store.transaction()
        txn.put(work, b"%d" % n)
        txn.enter("key", 1)
        barrier.wait()
        try:
            txn.commit()
            outcomes.append("committed")
        except AlreadyCommitted:
            outcomes.append("already")

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert sorted(outcomes) == ["already"] * 3 + ["committed"]
    assert len(take(store, work)) == 1
