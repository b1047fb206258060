"""Transactions: puts in every form, commit, rollback, time-outs, the ledger, large ones."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import Store
from quire.errors import (
    AlreadyCommitted,
    DiskFull,
    InvalidArgument,
    QueueFull,
    QueueNotFound,
    QuireError,
    SubscriptionNotFound,
    TransactionClosed,
    TransactionError,
    TransactionTimeout,
)
from quire.limits import MAX_ATTRIBUTES, MAX_LEDGER_KEY_BYTES, MAX_STRING_BYTES, MAX_TIME_US
from quire.message import MESSAGE_SCHEMA, Message
from quire.testing import SimEnv

FIELDS: dict[str, Any] = {
    "priority": 65535,
    "group": 65535,
    "sender": "sender é",
    "correlation_id": "correlation",
    "reply_to": "answers",
    "content_type": "text/plain",
    "expires_at": MAX_TIME_US,
    "deliver_at": 1_700_000_000_000_001,
    "attributes": {"key": "value", "": "", "ключ": "значение"},
}
WAIT = 20.0  # for what must come


def take(store: Store, source: str, limit: int = 1_000_000) -> list[bytes]:
    """All payloads that are there, taken and committed."""
    with store.transaction() as txn:
        return txn.get_many(source, limit).payloads()


def numbers(store: Store) -> tuple[Any, ...]:
    """What no refused call may change."""
    return store.queues(), store.status()["transactions"], store.ledger("key")


# Round trips


def test_all_fields_of_a_message_come_back(store: Store, topic: str) -> None:
    """What is put with every field is what get, get_many, browse and get_arrow return."""
    before = store._env.now_us()
    with store.transaction() as txn:
        put = txn.put(topic, b"payload", **FIELDS)
    with store.transaction() as txn:
        one = txn.get("topic/a")
        (many,) = txn.get_many("topic/b")
        assert one is not None
        assert one == many == store.browse(topic)[0]
    assert one.id == int(put)
    assert (one.queue, one.payload, one.delivery_count) == (topic, b"payload", 1)
    assert before <= one.time <= store._env.now_us()
    for name, value in FIELDS.items():
        assert getattr(one, name) == value, name


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
    store.put(work, payload, priority=1)
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
        txn.put_many(work, batch)
    with store.transaction() as txn:
        first, second = txn.get_many(work)
    assert (first.priority, first.group, first.sender, first.attributes) == (7, 0, "me", {"k": "v"})
    assert (first.correlation_id, first.expires_at) == (None, None)
    assert (second.priority, second.group, second.sender) == (65535, 9, None)
    assert (second.correlation_id, second.expires_at, second.attributes) == ("c", 5, {})


def test_what_get_arrow_gives_can_be_put_again(store: Store, topic: str, work: str) -> None:
    """A batch has MESSAGE_SCHEMA, and the columns that a put may set go in as they came out."""
    with store.transaction() as txn:
        txn.put(topic, b"1", **FIELDS)
        txn.put(topic, b"2")
    with store.transaction() as txn:
        batch = txn.get_arrow("topic/a", max_messages=10)
        assert batch.schema.equals(MESSAGE_SCHEMA)
        assert batch.num_rows == 2
        assert txn.get_arrow("topic/a").num_rows == 0
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
    ids += [int(b), *(int(i) for i in c), int(a), store.put(topic, b"e", priority=3)]
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
    assert many[5:2] == [] or len(many[5:2]) == 0
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
    txn.record("key", 4)
    assert store.browse(topic).payloads() == []
    assert take(store, "topic/a") == take(store, work) == []
    assert store.queue(work).messages == 1  # in flight is not read
    assert store.ledger("key") is None
    txn.commit()
    assert store.browse(topic).payloads() == [b"out"]
    assert take(store, work) == [b"more"]
    assert store.ledger("key") == 4


@pytest.mark.promise(2)
@pytest.mark.parametrize("way", ["rollback", "exception", "close"])
def test_a_rollback_leaves_nothing(store: Store, topic: str, work: str, way: str) -> None:
    """What was put is gone, what was got is back, the ledger and the space are as before."""
    store.put(work, b"in")
    before = numbers(store)
    txn = store.transaction()

    def use() -> None:
        assert txn.get(work) is not None
        txn.put(topic, b"out", attributes={"a": "b"})
        txn.put_many(work, [b"more"] * 10)
        txn.record("key", 4)

    if way == "exception":
        with pytest.raises(ZeroDivisionError), txn:
            use()
            raise ZeroDivisionError
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
        for use in (
            lambda t: t.put(work, b"y"),
            lambda t: t.put_many(work, [b"y"]),
            lambda t: t.put_many(work, pa.array([b"y"])),
            lambda t: t.get(work),
            lambda t: t.get_many(work),
            lambda t: t.get_arrow("topic/a", timeout=1.0),
            lambda t: t.read_to(work, 0),
            lambda t: t.record("key", 1),
            lambda t: t.commit(),
        ):
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
    with pytest.raises(ZeroDivisionError), store.transaction() as txn:
        txn.put(work, b"3")
        txn.commit()
        raise ZeroDivisionError
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
        lambda: short.record("key", 1),
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
    txn.put("work", b"x")
    deadline = time.monotonic() + WAIT
    while txn.state == "open" and time.monotonic() < deadline:
        time.sleep(0.02)
    with pytest.raises(TransactionTimeout):
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
        getattr(txn, end)()
        thread.join(WAIT)
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
            txn.record("key", version)
    for version in (0, 2, 3):
        txn = store.transaction()
        txn.put(work, b"again")
        txn.record("key", version)
        txn.record("other", 9)
        with pytest.raises(AlreadyCommitted, match="version 3"):
            txn.commit()
        assert txn.state == "rolled back"
    assert (store.ledger("key"), store.ledger("other")) == (3, None)
    assert take(store, work) == [b"0", b"3"]
    assert store.queue(work).used_bytes == 0
    with store.transaction() as txn:
        txn.record("other", 2**63 - 1)
    assert store.ledger("other") == 2**63 - 1


@pytest.mark.promise(2)
def test_one_of_two_commits_of_a_version_wins(store: Store, work: str) -> None:
    """Two transactions with one key and version, committed at once by two threads."""
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def commit(n: int) -> None:
        txn = store.transaction()
        txn.put(work, b"%d" % n)
        txn.record("key", 1)
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
        thread.join(WAIT)
    assert sorted(outcomes) == ["already"] * 3 + ["committed"]
    assert len(take(store, work)) == 1


# Large transactions


def ltds_files(store: Store) -> list[str]:
    """The files of large transactions on the disk."""
    return [n for n in store._env.list_directory(f"{store.path}/ltds") if not n.startswith(".")]


def swept(store: Store) -> list[str]:
    """The same, once what is not needed is removed."""
    store._manager.places.sweep()
    return ltds_files(store)


@pytest.mark.promise(9)
def test_a_large_transaction_goes_to_files(store: Store, topic: str, work: str) -> None:
    """`large=True`: a file for each queue, in place until it is read, gone afterwards."""
    payloads = [b"%d" % n * 50 for n in range(20_000)]
    with store.transaction(large=True) as txn:
        txn.put_many(work, pa.array(payloads[:10]))
        txn.put(topic, b"first")
        ids = txn.put_many(topic, payloads)
        txn.put(topic, b"last", **FIELDS)
        assert store.status()["transactions"][0]["large"]
    assert len(ltds_files(store)) == 2
    assert int(ids[-1]) - int(ids[0]) == len(payloads) - 1
    assert take(store, work) == payloads[:10]
    assert len(swept(store)) == 1
    expected = [b"first", *payloads, b"last"]
    with store.transaction() as txn:
        got = [txn.get("topic/a") for _ in range(3)]
        assert [m.payload for m in got if m] == expected[:3]
        assert txn.get_many("topic/a", 10_000).payloads() == expected[3:10_003]
    with store.transaction() as txn:
        rest = txn.get_many("topic/a", 100_000)
        assert rest.payloads() == expected[10_003:]
        for name, value in FIELDS.items():
            assert getattr(rest[-1], name) == value
        assert txn.get_arrow("topic/b", 100_000).num_rows == len(expected)
    assert swept(store) == []
    assert store.queue(topic).used_bytes == 0


def test_a_large_transaction_rolled_back_leaves_no_file(store: Store, topic: str) -> None:
    """Its files are removed, whether they are being written or finished."""
    txn = store.transaction(large=True)
    txn.put_many(topic, [b"x" * 100_000] * 100)
    assert len(ltds_files(store)) == 1
    txn.rollback()
    assert swept(store) == []
    with store.transaction() as txn:
        txn.record("key", 1)
    txn = store.transaction(large=True)
    txn.put_many(topic, [b"x" * 1000] * 100)
    txn.record("key", 1)
    with pytest.raises(AlreadyCommitted):
        txn.commit()
    assert swept(store) == []
    assert store.queue(topic).used_bytes == 0


@pytest.mark.promise(9)
@pytest.mark.parametrize(
    "option",
    [{"large_limit_bytes": 100_000}, {"large_limit_messages": 500}],
    ids=["bytes", "count"],
)
@pytest.mark.parametrize("how", ["put", "put_many", "arrow"])
def test_a_transaction_that_grows_becomes_large(option: dict[str, int], how: str) -> None:
    """Past either limit the messages go to a file on the fly, in their order."""
    payloads = [b"%04d" % n * 60 for n in range(1000)]
    with Store.open("/s", env=SimEnv(), background=False, **option) as store:
        store.create_queue("q", kind="work")
        with store.transaction() as txn:
            if how == "put":
                for payload in payloads:
                    txn.put("q", payload)
            else:
                for start in range(0, 1000, 100):
                    part = payloads[start : start + 100]
                    txn.put_many("q", part if how == "put_many" else pa.array(part))
            assert len(ltds_files(store)) == 1
            (shown,) = store.status()["transactions"]
            assert shown["large"]
            assert shown["messages"] == 1000
        assert store.verify().ok
        assert take(store, "q", 300) == payloads[:300]
        assert take(store, "q") == payloads[300:]
        assert swept(store) == []


@pytest.mark.promise(9)
def test_a_full_write_buffer_makes_the_largest_transaction_large() -> None:
    """All open transactions together stay within the buffer: the one that holds most leaves it."""
    with Store.open("/s", env=SimEnv(), background=False, write_buffer_bytes=1 << 20) as store:
        store.create_queue("q", kind="work")
        small, large, last = (store.transaction() for _ in range(3))
        for n in range(4):
            small.put_many("q", [b"s%d" % n * 50_000])
        for n in range(6):
            large.put_many("q", [b"l%d" % n * 50_000])
        for n in range(3):
            last.put_many("q", [b"t%d" % n * 50_000])
        assert [t.large for t in (small, large, last)] == [False, True, False]
        assert store.status()["write_buffer_bytes"] <= 1 << 20
        for txn in (last, large, small):
            txn.commit()
        assert take(store, "q") == [
            *(b"t%d" % n * 50_000 for n in range(3)),
            *(b"l%d" % n * 50_000 for n in range(6)),
            *(b"s%d" % n * 50_000 for n in range(4)),
        ]
        assert store.verify().ok


def test_a_middle_sized_transaction_goes_to_pages(store: Store, work: str) -> None:
    """Past the inline limit the blocks are written to pages of the data file, and come back."""
    payloads = [b"%03d" % n * 1000 for n in range(300)]
    before = store.status()["data"]
    with store.transaction() as txn:
        txn.put_many(work, payloads)
    after = store.status()["data"]
    used = after["bytes"] - after["free_bytes"] - (before["bytes"] - before["free_bytes"])
    assert used >= 900_000
    assert ltds_files(store) == []
    assert take(store, work) == payloads
    now = store.status()["data"]
    assert now["bytes"] - now["free_bytes"] == before["bytes"] - before["free_bytes"]


# A full disk


@pytest.mark.promise(5)
@pytest.mark.parametrize("kind", ["ledger", "middle", "drop"])
def test_a_full_disk_refuses_and_the_same_call_succeeds_later(kind: str) -> None:
    """DiskFull changes nothing: the transaction can be committed again once there is room."""
    env = SimEnv(capacity_bytes=8 << 20)
    with Store.open(
        "/s", env=env, background=False, segment_bytes=1 << 20, grow_bytes=1 << 16,
        inline_limit_bytes=1 << 16,
    ) as store:  # fmt: skip
        store.create_queue("q", kind="work")
        store.create_queue("other", kind="work")
        capacity, env.capacity_bytes = env.capacity_bytes, env.used_bytes()
        if kind == "drop":
            with pytest.raises(DiskFull):
                for n in range(100):
                    store.put("q", b"%04d" % n * 10_000)
            with pytest.raises(DiskFull):
                for _ in range(10_000):
                    store.create_queue("dropped", kind="work")
                    store.drop_queue("dropped")
            if "dropped" in [q.name for q in store.queues()]:
                store.put("dropped", b"") if False else None
            env.capacity_bytes = capacity
            store.put("other", b"x")
            store.drop_queue("other")
        else:
            txn = store.transaction()
            size = 60_000 if kind == "ledger" else 200_000
            txn.put("q", b"x" * size)
            txn.record("key", 1)
            if kind == "ledger":
                with pytest.raises(DiskFull):
                    for _ in range(1000):
                        store.put("other", b"y" * 50_000)
            with pytest.raises(DiskFull):
                txn.commit()
            assert txn.state == "open"
            assert store.queue("q").reserving == 0
            env.capacity_bytes = capacity
            txn.commit()
            assert store.ledger("key") == 1
            assert take(store, "q") == [b"x" * size]
        assert store.verify().ok


@pytest.mark.promise(13)
@pytest.mark.parametrize("how", ["declared", "converted", "buffer"])
def test_a_full_disk_while_a_large_transaction_is_written(how: str) -> None:
    """The put fails, and so does everything after it but the rollback: nothing is half there."""
    env = SimEnv()
    with Store.open(
        "/s", env=env, background=False, segment_bytes=1 << 20, grow_bytes=1 << 16,
        large_limit_bytes=1 << 20, large_flush_bytes=1 << 16, write_buffer_bytes=3 << 20,
    ) as store:  # fmt: skip
        store.create_queue("q", kind="work")
        env.capacity_bytes = env.used_bytes() + (1 << 18)
        txn = store.transaction(large=how == "declared")
        others = [store.transaction() for _ in range(5 if how == "buffer" else 0)]
        puts = 0
        for other in others:
            other.put("q", b"o" * 700_000)
        with pytest.raises((DiskFull, TransactionClosed)):
            for _ in range(100):
                txn.put_many("q", [b"%d" % puts * 10_000] * 10)
                puts += 1
        for other in others:
            other.rollback()
        env.capacity_bytes = None
        try:
            txn.commit()
            committed = True
        except TransactionError:
            committed = False
        got = take(store, "q")
        assert len(got) == (puts * 10 if committed else 0)
        assert store.queue("q").used_bytes == 0
        assert store.verify().ok


# Bad arguments


BAD_NAMES: list[Any] = ["", ".", "a b", "a/b", "é", "x" * 201, "../x", "a\0", None, 5, b"q", [], {}]
BAD_PAYLOADS: list[Any] = [None, "text", 5, 5.0, ["x"], object(), {}]


@pytest.mark.promise(13)
@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_bad_queue_names(store: Store, work: str, name: Any) -> None:
    """Every call that takes a queue or a source refuses what is none, and nothing changes."""
    txn = store.transaction()
    before = numbers(store)
    for call in (
        lambda: txn.put(name, b"x"),
        lambda: txn.put(name, b"x", priority=1),
        lambda: txn.put_many(name, [b"x"]),
        lambda: txn.put_many(name, pa.array([b"x"])),
        lambda: txn.get(name),
        lambda: txn.get_many(name),
        lambda: txn.get_arrow(name),
        lambda: txn.read_to(name, 0),
        lambda: store.put(name, b"x"),
        lambda: store.put(name, b"x", priority=1),
        lambda: store.browse(name),
        lambda: store.create_queue(name),
        lambda: store.queue(name),
        lambda: store.drop_queue(name),
        lambda: store.subscribe(name, "s"),
        lambda: store.subscriptions(name),
        lambda: store.positions(name),
        lambda: store.unsubscribe(name, "s"),
        lambda: store.lease(name, 0, 0),
    ):
        if name == "a/b" and call.__code__.co_names[0] in ("get", "get_many"):
            continue
        with pytest.raises((InvalidArgument, QueueNotFound)) as caught:
            call()
        assert len(str(caught.value)) > 20
    assert numbers(store) == before
    txn.put(work, b"still usable")
    txn.commit()


@pytest.mark.promise(13)
@pytest.mark.parametrize("payload", BAD_PAYLOADS, ids=repr)
def test_bad_payloads(store: Store, work: str, payload: Any) -> None:
    """What is not bytes is refused, alone and among others, and nothing of the call is put."""
    txn = store.transaction()
    txn.put(work, b"before")
    before = numbers(store)
    for call in (
        lambda: txn.put(work, payload),
        lambda: txn.put(work, payload, group=1),
        lambda: txn.put_many(work, [b"good", payload]),
        lambda: txn.put_many(work, [[payload]]),
        lambda: store.put(work, payload),
    ):
        with pytest.raises(InvalidArgument):
            call()
    if not isinstance(payload, (list, dict)):
        with pytest.raises(InvalidArgument):
            txn.put_many(work, payload)
    assert numbers(store) == before
    txn.put(work, b"after")
    txn.commit()
    assert take(store, work) == [b"before", b"after"]


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "batch",
    [
        pa.array([1, 2]),
        pa.array([b"a", None]),
        pa.record_batch({"text": pa.array([b"a"])}),
        pa.record_batch({"payload": pa.array([b"a"]), "colour": pa.array(["red"])}),
        pa.record_batch({"payload": pa.array([b"a"]), "priority": pa.array([65536])}),
        pa.record_batch({"payload": pa.array([b"a"]), "priority": pa.array([-1])}),
        pa.record_batch({"payload": pa.array([b"a"]), "priority": pa.array(["high"])}),
        pa.record_batch({"payload": pa.array([b"a"]), "sender": pa.array(["x" * 70_000])}),
        pa.record_batch({"payload": pa.array([b"a"]), "id": pa.array([1])}),
    ],
    ids=["ints", "null", "no payload", "unknown", "too high", "negative", "type", "long", "id"],
)  # fmt: skip
def test_bad_arrow_data(store: Store, work: str, batch: Any) -> None:
    """Wrong types, columns and values are refused as a whole."""
    with store.transaction() as txn:
        before = numbers(store)
        with pytest.raises(InvalidArgument):
            txn.put_many(work, batch)
        assert numbers(store) == before
    assert take(store, work) == []


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "fields",
    [
        {"priority": -1}, {"priority": 65536}, {"priority": "1"}, {"priority": 1.0},
        {"priority": True}, {"priority": None}, {"group": 65536}, {"group": None},
        {"sender": 5}, {"sender": b"x"}, {"sender": "x" * (MAX_STRING_BYTES + 1)},
        {"sender": "\ud800"}, {"correlation_id": 1}, {"reply_to": []}, {"content_type": {}},
        {"expires_at": -1}, {"expires_at": 1.5}, {"expires_at": MAX_TIME_US + 1},
        {"deliver_at": "now"}, {"attributes": []}, {"attributes": {"a": 1}},
        {"attributes": {1: "a"}}, {"attributes": {"a": None}}, {"attributes": "a=b"},
        {"attributes": {str(n): "" for n in range(MAX_ATTRIBUTES + 1)}},
        {"attributes": {"a": "x" * (MAX_STRING_BYTES + 1)}},
        {"colour": "red"}, {"id": 5}, {"time": 5}, {"delivery_count": 1},
    ],
    ids=lambda fields: f"{next(iter(fields))}={next(iter(fields.values()))!r:.20}",
)  # fmt: skip
def test_bad_fields(store: Store, work: str, fields: dict[str, Any]) -> None:
    """Each field has its type and its bounds; an unknown one is named."""
    with store.transaction() as txn:
        before = numbers(store)
        with pytest.raises(InvalidArgument, match=next(iter(fields)).rstrip("s")):
            txn.put(work, b"x", **fields)
        with pytest.raises(InvalidArgument, match=next(iter(fields)).rstrip("s")):
            store.put(work, b"x", **fields)
        assert numbers(store) == before
    assert take(store, work) == []


@pytest.mark.promise(13)
def test_bad_limits_positions_times_and_keys(store: Store, topic: str, work: str) -> None:
    """Numbers of the wrong type or range, and keys that the ledger cannot hold."""
    store.put(work, b"x")
    txn = store.transaction()
    before = numbers(store)
    nan = float("nan")
    for limit in (0, -1, 1.5, "1", None, True):
        for call in (txn.get_many, txn.get_arrow, store.browse):
            with pytest.raises(InvalidArgument, match="max_messages"):
                call(work, max_messages=limit)  # type: ignore[operator]
    for timeout in (-1, -0.5, nan, "1", None, True, []):
        for call in (txn.get, txn.get_many, txn.get_arrow):
            with pytest.raises(InvalidArgument, match="timeout"):
                call(work, timeout=timeout)  # type: ignore[operator]
    for position in (-1, 2, 1.0, "0", None, True):
        with pytest.raises(InvalidArgument, match="position"):
            txn.read_to(work, position)  # type: ignore[arg-type]
    for start in (-1, 1.0, "0", True):
        with pytest.raises(InvalidArgument, match="start"):
            store.browse(work, start=start)  # type: ignore[arg-type]
    for key in ("", 5, None, b"k", [], "x" * (MAX_LEDGER_KEY_BYTES + 1), "\ud800"):
        with pytest.raises(InvalidArgument, match="key"):
            txn.record(key, 1)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="key"):
            store.ledger(key)  # type: ignore[arg-type]
    for version in (-1, 1 << 63, 1.0, "1", None, True):
        with pytest.raises(InvalidArgument, match="version"):
            txn.record("key", version)  # type: ignore[arg-type]
    for seconds in (0, -1, nan, "1", True, []):
        with pytest.raises(InvalidArgument, match="timeout"):
            store.transaction(timeout=seconds)  # type: ignore[arg-type]
    for large in (None, 1, "yes"):
        with pytest.raises(InvalidArgument, match="large"):
            store.transaction(large=large)  # type: ignore[arg-type]
    assert numbers(store) == before
    assert txn.get(work, timeout=float("inf")) is not None
    txn.record("k" * MAX_LEDGER_KEY_BYTES, 0)
    txn.commit()


@pytest.mark.promise(13)
def test_sources_that_do_not_exist(store: Store, topic: str, work: str) -> None:
    """A topic is read through a subscription, a work queue without one; errors say how."""
    txn = store.transaction()
    for source, error, words in (
        ("topic", SubscriptionNotFound, "through a subscription"),
        ("topic/c", SubscriptionNotFound, "subscribe"),
        ("work/a", SubscriptionNotFound, "work queue"),
        ("none", QueueNotFound, "create_queue"),
        ("none/a", QueueNotFound, "create_queue"),
        ("topic/", InvalidArgument, "name"),
        ("/a", InvalidArgument, "name"),
        ("topic/a/b", InvalidArgument, "name"),
    ):
        for call in (txn.get, txn.get_many, txn.get_arrow):
            with pytest.raises(error, match=words):
                call(source)  # type: ignore[operator]
        with pytest.raises(error, match=words):
            txn.read_to(source, 0)
    assert isinstance(SubscriptionNotFound("x"), (QuireError, KeyError))
    txn.rollback()
