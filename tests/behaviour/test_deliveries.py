"""How often messages are delivered, rejected and where they end: the same however it is opened."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from quire.errors import InvalidArgument, QueueInUse, QueueNotFound, TransactionClosed
from quire.messages.message import Message
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.limits import Limits
from tests.kit.waiting import SECONDS, eventually


@pytest.fixture
def work(store: AnyStore) -> str:
    """A work queue whose messages are delivered twice."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work"},
            {"name": "work", "kind": "work", "max_deliveries": 2, "dead_letter": "dead"},
        ]
    )
    return "work"


def got(store: AnyStore, queue: str) -> list[Message]:
    """All that is there, read for good."""
    with store.transaction() as txn:
        return list(txn.get_many(queue, 100))


def test_deliveries_are_counted(store: AnyStore, work: str) -> None:
    """From one; a rollback does not count again."""
    store.put(work, b"m")
    with store.transaction() as txn:
        message = txn.get(work)
        assert message is not None
        assert message.delivery_count == 1
        txn.rollback()
    [message] = got(store, work)
    assert message.delivery_count == 2


def test_a_look_delivers_nothing(store: AnyStore, work: str) -> None:
    """Browsed messages tell no delivery, as messages and as columns; the next get tells its own."""
    store.put_many(work, [b"0", b"1"])
    store.put(work, b"2", sender="me", attributes={"a": "b"})
    with store.transaction() as txn:
        seen = txn.browse(work)
        assert [
            (m.payload, m.delivery_count, m.failed_count) for m in [*store.browse(work), *seen]
        ] == [(payload, 0, 0) for payload in (b"0", b"1", b"2") * 2]
        assert store.browse(work).to_arrow()["delivery_count"].to_pylist() == [0, 0, 0]
        assert [(m.delivery_count, m.failed_count) for m in txn.get_many(work)] == [(1, 0)] * 3


@pytest.mark.parametrize("joined_from", [1, 64])
def test_only_the_latest_call_is_undone(
    store: AnyStore, work: str, limits: Limits, joined_from: int
) -> None:
    """A second `unget` gives nothing back, however many runs of messages there are."""
    limits(RUNS_JOINED=joined_from)
    store.put_many(work, [b"1", b"2", b"3", b"4"])
    with store.transaction() as txn:
        assert [m.payload for m in txn.get_many(work, 2)] == [b"1", b"2"]
        third = txn.get(work)
        assert third is not None
        assert third.payload == b"3"
        txn.unget()
        txn.unget()
        assert txn.get_many(work, 1)[0].payload == b"3"
        txn.unget()
        txn.unget()
    assert [m.payload for m in store.get_many(work)] == [b"3", b"4"]


def test_what_is_rolled_back_leaves_the_state_as_it_was(store: AnyStore) -> None:
    """The counts of a queue that notes no deliveries are no part of what `verify` hashes."""
    store.create_queue("plain", kind="work")
    store.create_queue("other", kind="work")
    store.put_many("plain", [b"0", b"1", b"2"])

    def state() -> tuple[Any, ...]:
        report = store.admin.verify()
        return report.checked["number"], report.checked["state_hash"]

    before = state()
    with store.transaction() as txn:
        txn.get_many("plain", 2)
        txn.rollback()
    with store.transaction() as txn:
        message = txn.get("plain")
        assert message is not None
        assert message.delivery_count == 2
        txn.reject(message)
        assert txn.move("plain", "other") == 3
        txn.rollback()
    assert state() == before


def test_what_is_given_back_untouched_does_not_count(store: AnyStore, work: str) -> None:
    """However often; one by one and in batches, also the last delivery that a message has."""
    store.put_many(work, [b"0", b"1"])
    for _ in range(5):
        with store.transaction() as txn:
            assert [m.delivery_count for m in txn.get_many(work)] == [1, 1]
            txn.unget()
            message = txn.get(work)
            assert message is not None
            assert message.delivery_count == 1
            txn.unget()
    with store.transaction() as txn:
        assert len(txn.get_many(work)) == 2
        txn.rollback()
    for _ in range(5):
        with store.transaction() as txn:
            assert [m.delivery_count for m in txn.get_many(work)] == [2, 2]
            txn.unget()
    assert [message.delivery_count for message in got(store, work)] == [2, 2]
    assert store.queue("dead").messages == 0


def test_what_is_delivered_too_often_is_a_dead_letter(store: AnyStore, work: str) -> None:
    """With its header, and attributes that say where it comes from; the others go on."""
    message_id = store.put(work, b"poison", group=3, sender="me", attributes={"a": "b"})
    store.put(work, b"good")
    for _ in range(2):
        with store.transaction() as txn:
            assert txn.get(work).payload == b"poison"  # type: ignore[union-attr]
            txn.rollback()
    eventually(lambda: store.queue("dead").messages)
    [letter] = got(store, "dead")
    assert (letter.payload, letter.group, letter.sender) == (b"poison", 3, "me")
    assert letter.id > message_id
    assert int(letter.attributes["quire.time"]) > 1e15
    assert {k: v for k, v in letter.attributes.items() if k != "quire.time"} == {
        "a": "b",
        "quire.queue": work,
        "quire.subscription": "",
        "quire.deliveries": "2",
        "quire.reason": "delivered too often",
    }
    assert [m.payload for m in got(store, work)] == [b"good"]
    assert store.queue(work).messages == 0


def test_a_rejected_message_is_there_again(store: AnyStore, work: str) -> None:
    """Others of the transaction are read for good; after the last try it is a dead letter."""
    store.create_queue("plain", kind="work")
    for queue in (work, "plain"):
        with store.transaction() as txn:
            txn.put_many(queue, [b"0", b"1", b"2"])
        with store.transaction() as txn:
            messages = list(txn.get_many(queue, 10))
            txn.reject(messages[1], "not now")
        with store.transaction() as txn:
            message = txn.get(queue)
            assert message is not None
            assert (message.payload, message.delivery_count) == (b"1", 2)
            txn.reject(message, "never")
            again = txn.get(queue)
            assert (again is None) == (queue == work)
    [letter] = got(store, "dead")  # at once
    assert letter.attributes["quire.reason"] == "never"


def test_a_rejected_message_comes_again_later(store: AnyStore, clock: Clock) -> None:
    """Hidden meanwhile, and counted; a get that waits gets it when it is due."""
    store.create_queue("q", kind="work")
    store.put("q", b"m")
    with store.transaction() as txn:
        message = txn.get("q")
        assert message is not None
        txn.reject(message, delay=600.0)
        assert txn.get("q") is None
    [info] = store.subscriptions("q")
    assert (info.pending, info.delivered, info.delayed) == (1, 0, 1)
    clock.forward(599.7)
    with store.transaction() as txn:
        message = txn.get("q", timeout=SECONDS)
        assert message is not None
        assert message.delivery_count == 2


def test_what_cannot_be_rejected(store: AnyStore, work: str) -> None:
    """What another transaction got, or this one has rejected; and wrong arguments."""
    store.put(work, b"m")
    txn = store.transaction()
    message = txn.get(work)
    assert message is not None
    with store.transaction() as other, pytest.raises(InvalidArgument, match="none that this"):
        other.reject(message)
    wrong: list[tuple[Any, Any, Any]] = [
        (b"m", "", 0), (message, 1, 0), (message, "x" * 4097, 0), (message, "\ud800", 0),
        (message, "", -1), (message, "", float("nan")), (message, "", "1"),
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(InvalidArgument):
            txn.reject(*arguments)
    txn.reject(message)
    with pytest.raises(InvalidArgument, match="once"):
        txn.reject(message)
    txn.rollback()
    with pytest.raises(TransactionClosed):
        txn.reject(message)


def test_a_full_dead_letter_queue_makes_it_wait(store: AnyStore) -> None:
    """Visibly, and hidden from consumers; it moves when there is room."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work", "capacity": 4096},
            {"name": "work", "kind": "work", "max_deliveries": 1, "dead_letter": "dead"},
        ]
    )
    store.put("work", b"x" * 5000)
    with store.transaction() as txn:
        message = txn.get("work")
        assert message is not None
        txn.reject(message)
    assert got(store, "work") == []
    [info] = store.subscriptions("work")
    assert (info.pending, info.spent) == (1, 1)
    store.alter_queue("dead", capacity=1 << 20)
    eventually(lambda: store.queue("dead").messages)
    assert store.queue("work").messages == 0


def test_a_topic_has_dead_letters_of_each_subscription(store: AnyStore) -> None:
    """The others get the message all the same."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work"},
            {"name": "t", "kind": "topic", "max_deliveries": 1, "dead_letter": "dead"},
        ]
    )
    store.subscribe("t", "a")
    store.subscribe("t", "b")
    store.put("t", b"m")
    with store.transaction() as txn:
        message = txn.get("t/a")
        assert message is not None
        txn.reject(message, "bad")
    [letter] = got(store, "dead")
    assert letter.attributes["quire.subscription"] == "a"
    assert [m.payload for m in got(store, "t/b")] == [b"m"]


def test_limits_and_queues_belong_together(store: AnyStore, work: str) -> None:
    """A limit needs a queue, which is another one, is there, and stays there."""
    with pytest.raises(InvalidArgument, match="dead_letter"):
        store.create_queue("a", kind="topic", max_deliveries=3)
    with pytest.raises(InvalidArgument, match="another"):
        store.create_queue("a", kind="topic", max_deliveries=3, dead_letter="a")
    with pytest.raises(QueueNotFound, match="nowhere"):
        store.alter_queue(work, dead_letter="nowhere")
    with pytest.raises(QueueInUse, match="dead-letter queue"):
        store.drop_queue("dead")
    store.alter_queue(work, max_deliveries=None, dead_letter=None)
    store.drop_queue("dead")
    info = store.queue(work)
    assert (info.max_deliveries, info.dead_letter) == (None, None)


def test_a_limit_may_be_raised(store: AnyStore, work: str) -> None:
    """What waits as spent is delivered again."""
    store.alter_queue("dead", puts=False)
    store.put(work, b"m")
    for _ in range(2):
        with store.transaction() as txn:
            assert txn.get(work) is not None
            txn.rollback()
    assert got(store, work) == []
    store.alter_queue(work, max_deliveries=3)
    [message] = got(store, work)
    assert message.delivery_count == 3


def test_dead_letters_are_put_back(store: AnyStore, work: str) -> None:
    """Those that are chosen, as they were put; the others stay dead."""
    for number in range(3):
        store.put(work, b"%d" % number, group=number, attributes={"a": "b"})
    for _ in range(2):
        with store.transaction() as txn:
            for message in list(txn.get_many(work, 10)):
                txn.reject(message, "not yet")
    assert store.queue("dead").messages == 3
    assert store.admin.redrive("dead", lambda letter: letter.group != 1) == 2
    assert [letter.payload for letter in store.browse("dead")] == [b"1"]
    with store.transaction() as txn:
        back = list(txn.get_many(work, 10))
        assert [(m.payload, m.group, dict(m.attributes)) for m in back] == [
            (b"0", 0, {"a": "b"}), (b"2", 2, {"a": "b"}),
        ]  # fmt: skip
        assert {m.delivery_count for m in back} == {1}
    store.create_queue("other", kind="work")
    store.put("dead", b"none")
    assert store.admin.redrive("dead", max_messages=10) == 1
    assert store.admin.redrive("dead", to="other") == 1
    assert [m.payload for m in got(store, "other")] == [b"none"]
    with pytest.raises(InvalidArgument):
        store.admin.redrive("dead", 1.5)  # type: ignore[arg-type]


def test_what_never_finds_room_holds_up_no_other(store: AnyStore) -> None:
    """Neither what is larger than the queue takes, nor what is larger than the queue."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work", "capacity": 8192, "max_message_bytes": 6000},
            {"name": "work", "kind": "work", "max_deliveries": 1, "dead_letter": "dead"},
        ]
    )
    sizes = [6500, 20, 7000, 9000, 30, 8500, 40]
    store.put_many("work", [b"x" * size for size in sizes])
    with store.transaction() as txn:
        for message in txn.get_many("work"):
            txn.reject(message, "bad")
    eventually(lambda: store.queue("dead").messages == 3)
    assert [len(m.payload) for m in got(store, "dead")] == [20, 30, 40]
    # While the maintenance tries again it has some of them.
    eventually(lambda: [(i.pending, i.spent) for i in store.subscriptions("work")] == [(4, 4)])
    eventually(lambda: "dead letters of 'work'" in str(store.status()["maintenance_error"]))
    store.alter_queue("dead", capacity=1 << 20, max_message_bytes=None)
    eventually(lambda: store.queue("dead").messages == 4)
    assert [len(m.payload) for m in got(store, "dead")] == [6500, 7000, 9000, 8500]
    assert store.queue("work").messages == 0


def test_a_dead_letter_is_no_larger_than_its_queue_takes(store: AnyStore) -> None:
    """Where what tells where it comes from is too much, it goes without."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work", "max_message_bytes": 100},
            {"name": "work", "kind": "work", "max_message_bytes": 100},
        ]
    )
    store.alter_queue("work", max_deliveries=1, dead_letter="dead")
    store.put("work", b"x" * 90, attributes={"a": "b"})
    with store.transaction() as txn:
        message = txn.get("work")
        assert message is not None
        txn.reject(message, "bad")
    [letter] = got(store, "dead")
    assert (len(letter.payload), dict(letter.attributes)) == (90, {"a": "b"})


def test_letters_that_stay_are_not_hidden(store: AnyStore) -> None:
    """Also where their queue has a retry policy."""
    store.admin.create_queues(
        [
            {"name": "dead", "kind": "work", "retry": {"delay": 600.0}},
            {"name": "work", "kind": "work", "max_deliveries": 1, "dead_letter": "dead"},
        ]
    )
    store.put_many("work", [b"0", b"1"])
    with store.transaction() as txn:
        for message in txn.get_many("work"):
            txn.reject(message, "bad")
    assert store.admin.redrive("dead", lambda letter: letter.payload == b"1") == 1
    assert [m.payload for m in got(store, "dead")] == [b"0"]


@pytest.mark.parametrize("order", ["commit", "priority"])
def test_single_messages_of_a_batch_are_rejected(store: AnyStore, order: str) -> None:
    """In any order, between other gets: each is there again, the rest is read with the commit."""
    store.create_queue("q", order=order)
    ids = store.put_many("q", [b"%d" % n for n in range(200)])
    with store.transaction() as txn:
        batch = list(txn.get_many("q", 200))
        for message in batch[150:0:-2]:
            txn.reject(message)
        with pytest.raises(InvalidArgument, match="is none that this transaction has got"):
            txn.reject(batch[150])
        again = txn.get("q")
        assert again is not None
        assert again.id == batch[2].id
        txn.reject(again)
        txn.unget()  # what was rejected is not given back twice
        assert [each.id for each in txn.get_many("q", 3)] == [batch[n].id for n in (2, 4, 6)]
        txn.rollback()
    with store.transaction() as txn:
        batch = list(txn.get_many("q", 200))
        assert [each.id for each in batch] == list(ids)
        for message in (batch[7], batch[199], batch[0], batch[8]):
            txn.reject(message)
    left = list(store.get_many("q", 200))
    assert [each.id for each in left] == [ids[n] for n in (0, 7, 8, 199)]
    assert store.get("q") is None


def test_messages_are_pickled_as_a_list(store: AnyStore) -> None:
    """For another process: with all that each carries, of a typed queue too."""
    store.create_queue("q")
    store.create_queue("typed", schema="city string")
    store.put("q", b"1", attributes={"a": "b"})
    store.put("q", b"2")
    store.put("typed", {"city": "Ulm"})
    for name in ("q", "typed"):
        found = store.get_many(name)
        for copied in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found)):
            assert type(copied) is list
            assert copied == list(found)


@pytest.mark.parametrize("how", ["time-out", "abort"])
def test_a_dead_letter_tells_how_its_last_transaction_ended(
    store: AnyStore, clock: Clock, how: str
) -> None:
    """Where that was not its user's doing: it is named, and not only that it was too often."""
    store.create_queue("dead")
    store.create_queue("q", max_deliveries=1, dead_letter="dead")
    store.put("q", b"x")
    txn = store.transaction(timeout=5.0)
    assert txn.get("q") is not None
    if how == "abort":
        store.admin.abort(txn.id)
    else:
        clock.forward(10.0)
    eventually(lambda: store.queue("dead").messages == 1)
    (letter,) = store.browse("dead")
    name = "TransactionAborted" if how == "abort" else "TransactionTimeout"
    assert letter.attributes["quire.reason"].startswith(f"{name}: ")
    txn.rollback()
