"""Purging, renaming, aliases, moving, sizes and the store's switch: the same for any store."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    NobodyReads,
    QueueDisabled,
    QueueExists,
    QueueFull,
    QueueInUse,
    QueueNotFound,
    SubscriptionNotFound,
)
from tests.behaviour.forms import AnyStore
from tests.behaviour.test_deliveries import got
from tests.kit.behind_loop import BehindLoop
from tests.kit.waiting import eventually


@pytest.fixture
def work(store: AnyStore) -> str:
    """A work queue of ten messages."""
    store.create_queue("work", kind="work")
    store.put_many("work", [b"%d" % number for number in range(10)])
    return "work"


# Purging


def test_what_waits_is_purged(store: AnyStore, work: str) -> None:
    """But what another transaction has got; that comes back if it is rolled back."""
    txn = store.transaction()
    assert txn.get_many(work, 3).payloads() == [b"0", b"1", b"2"]
    assert store.admin.purge(work) == 7
    assert store.queue(work).messages == 3
    assert store.admin.purge(work) == 0
    store.put(work, b"after")
    txn.rollback()
    assert [m.payload for m in got(store, work)] == [b"0", b"1", b"2", b"after"]
    assert store.queue(work).used_bytes == 0


def test_names_of_queues(store: AnyStore) -> None:
    """All of them, or those that begin so; an alias is none."""
    store.admin.create_queues(["b", "ab", "aa"])
    store.admin.create_alias("ac", "b")
    assert store.admin.queue_names() == ["aa", "ab", "b"]
    assert store.admin.queue_names("a") == ["aa", "ab"]
    assert store.admin.queue_names(prefix="none") == []


@pytest.mark.parametrize(
    "options", [{"order": "priority"}, {"timed": True}, {"grouped": True}], ids=str
)
def test_a_queue_in_another_order_is_purged(store: AnyStore, options: Any) -> None:
    """What was looked at already, what was not, and what is not due."""
    store.create_queue("q", kind="work", **options)
    for number in range(10):
        header = {"priority": number, "deliver_at": 1.0 if number % 2 else 1 << 55}
        asked = {"order": "priority", "timed": "deliver_at"}
        obeyed = [asked[option] for option in options if option in asked]
        store.put("q", b"%d" % number, **{name: header[name] for name in obeyed})  # type: ignore[arg-type]
    txn = store.transaction()
    held = txn.get("q")
    assert held is not None
    store.put("q", b"late")
    assert store.admin.purge("q") == 10
    txn.rollback()
    assert [m.payload for m in got(store, "q")] == [held.payload]


def test_what_is_spent_or_delayed_is_purged(store: AnyStore) -> None:
    """It waits too."""
    store.admin.create_queues(["dead", "q"])
    store.alter_queue("q", max_deliveries=1, dead_letter="dead")
    store.alter_queue("dead", puts=False)
    store.put_many("q", [b"spent", b"delayed"])
    with store.transaction() as txn:
        assert txn.get("q") is not None
        txn.rollback()
    store.alter_queue("q", max_deliveries=5)
    with store.transaction() as txn:
        for message in list(txn.get_many("q", 10)):
            txn.reject(message, delay=1000.0)
    store.alter_queue("q", max_deliveries=1)
    assert store.admin.purge("q") == 2
    [info] = store.subscriptions("q")
    assert (info.pending, info.spent, info.delayed, info.delivered) == (0, 0, 0, 0)


def test_subscriptions_are_purged(store: AnyStore) -> None:
    """One of them, or all; each message counts once."""
    store.create_queue("topic", kind="topic")
    with pytest.warns(NobodyReads):
        store.put_many("topic", [b"0", b"1"])
    assert store.admin.purge("topic") == 2  # nobody has subscribed
    assert store.queue("topic").messages == 0
    for name in ("a", "b"):
        store.subscribe("topic", name)
    store.put_many("topic", [b"2", b"3", b"4"])
    assert store.admin.purge("topic", "a") == 3
    assert [m.payload for m in got(store, "topic/b")] == [b"2", b"3", b"4"]
    store.put_many("topic", [b"5", b"6"])
    assert got(store, "topic/a")
    assert store.admin.purge("topic") == 2
    assert store.queue("topic").messages == 0
    with pytest.raises(SubscriptionNotFound):
        store.admin.purge("topic", "c")
    with pytest.raises(QueueNotFound):
        store.admin.purge("nothing")
    with pytest.raises(InvalidArgument):
        store.admin.purge("topic/a")


def test_what_a_topic_keeps_is_purged(store: AnyStore) -> None:
    """With the queue, not with a subscription; and with nobody subscribed too."""
    store.create_queue("t", kind="topic", keep_forever=True)
    store.subscribe("t", "a")
    store.put_many("t", [b"0", b"1", b"2"])
    with store.transaction() as txn:
        assert len(txn.get_many("t/a", 2)) == 2
    assert store.admin.purge("t", "a") == 1
    assert store.queue("t").messages == 3
    assert store.admin.purge("t") == 3
    assert (store.queue("t").messages, store.queue("t").used_bytes) == (0, 0)
    store.put("t", b"3")
    txn = store.transaction()
    assert txn.get("t/a") is not None
    assert store.admin.purge("t") == 0
    txn.rollback()
    store.unsubscribe("t", "a")
    assert store.browse("t").payloads() == []  # it went with its last reader
    store.put("t", b"4")
    assert store.admin.purge("t") == 1
    assert store.integration.positions("t") == (5, 5)


def test_a_subscription_that_moves_is_not_purged(store: AnyStore) -> None:
    """Before the transaction that moves it has ended; who reads an exclusive one keeps its own."""
    store.create_queue("t", kind="topic", keep_forever=True)
    store.subscribe("t", "a", exclusive=True)
    store.put_many("t", [b"0", b"1", b"2"])
    with store.transaction() as txn:
        assert txn.get("t/a") is not None
        assert store.admin.purge("t", "a") == 2
        assert txn.get("t/a") is None
    with store.transaction() as txn:
        txn.seek("t/a", "earliest")
        store.admin.transactions()
        with pytest.raises(QueueInUse, match="a transaction moves t/a"):
            store.admin.purge("t", "a")
    assert store.admin.purge("t", "a") == 3


def test_a_prepared_transaction_keeps_what_it_has(store: AnyStore, work: str) -> None:
    """When its queue is purged and renamed, in both directions."""
    with store.transaction() as txn:
        assert len(txn.get_many(work, 2)) == 2
        txn.put(work, b"prepared")
        txn.prepare("x")
    assert store.admin.purge(work) == 8
    store.admin.rename_queue(work, "w2")
    store.prepared.commit("x")
    assert [m.payload for m in got(store, "w2")] == [b"prepared"]
    store.put("w2", b"more")
    with store.transaction() as txn:
        assert txn.get("w2") is not None
        txn.prepare("y")
    assert store.admin.purge("w2") == 0
    store.admin.rename_queue("w2", work)
    store.prepared.rollback("y")
    assert [m.payload for m in got(store, work)] == [b"more"]


# Names


def test_a_queue_is_renamed(store: AnyStore, work: str) -> None:
    """With all it holds, while transactions have put to it and got from it."""
    before = store.queue(work)
    store.create_queue("other", kind="work", max_deliveries=3, dead_letter=work)
    txn = store.transaction()
    first = txn.get(work)
    txn.put(work, b"by the old name")
    store.admin.transactions()
    after = store.admin.rename_queue(work, "jobs")
    assert (after.name, after.id, after.created_us) == ("jobs", before.id, before.created_us)
    assert store.queue("other").dead_letter == "jobs"
    assert [info.name for info in store.queues()] == ["jobs", "other"]
    assert first is not None
    txn.reject(first)
    txn.commit()
    store.put("jobs", b"by the new one")
    payloads = [m.payload for m in got(store, "jobs")]
    assert payloads == [b"%d" % n for n in range(10)] + [b"by the old name", b"by the new one"]
    for call in (store.queue, store.get, store.drop_queue, store.admin.purge):
        with pytest.raises(QueueNotFound):
            call(work)
    with pytest.raises(QueueNotFound):
        store.put(work, b"")
    with pytest.raises(QueueNotFound), store.transaction() as txn:
        txn.put(work, b"")
    store.create_queue(work, kind="topic")
    assert store.queue(work).id != before.id
    with pytest.raises(QueueExists):
        store.admin.rename_queue("jobs", work)
    for wrong in ("a/b", "", 1):
        with pytest.raises(InvalidArgument):
            store.admin.rename_queue("jobs", wrong)  # type: ignore[arg-type]
    with pytest.raises(QueueNotFound):
        store.admin.rename_queue("none", "some")


def test_who_waits_follows_the_queue_or_is_told(store: AnyStore, owner: Store) -> None:
    """A get that waits takes what is put by the new name; in asyncio it asks for its name again."""
    store.create_queue("q", kind="work")
    found: list[object] = []

    def wait() -> None:
        try:
            message = store.get("q", timeout=120.0)
            found.append(None if message is None else message.payload)
        except QueueNotFound:
            found.append("not found")

    thread = threading.Thread(target=wait)
    thread.start()
    queue = owner._context.state.source("q")[0]
    eventually(lambda: queue._arrived)  # somebody waits for what does
    store.admin.rename_queue("q", "r")
    store.put("r", b"m")
    thread.join(120)
    assert found == (["not found"] if isinstance(store, BehindLoop) else [b"m"])


def test_an_alias_names_a_queue(store: AnyStore, work: str) -> None:
    """An alias names a queue for every call that names one."""
    store.create_queue("topic", kind="topic")
    store.admin.create_alias("w", work)
    store.admin.create_alias("t", "topic")
    store.admin.create_alias("tt", "t")
    assert store.admin.aliases() == {"t": "topic", "tt": "topic", "w": work}
    assert [info.name for info in store.queues(["w", "tt"])] == [work, "topic"]
    assert [info.name for info in store.queues()] == ["topic", work]
    assert store.subscribe("t", "a").queue == "topic"
    assert [info.name for info in store.subscriptions("tt")] == ["a"]
    message_id = store.put("t", b"0", sender="me")
    assert store.put_many("tt", [b"1"]) == [message_id + 1]
    assert store.browse("t").payloads() == [b"0", b"1"]
    with store.transaction() as txn:
        message = txn.get("tt/a")
        assert message is not None
        assert (message.queue, message.payload) == ("topic", b"0")
        plain = txn.get("t/a")
        assert plain is not None
        assert plain.queue == "topic"
        txn.reject(plain)
    assert store.integration.positions("t") == (1, 2)
    assert store.integration.lease("t", 1, 2).queue == "topic"
    assert len(store.admin.queue_records("t")) > 0
    assert store.alter_queue("t", text="words").name == "topic"
    assert store.admin.purge("t") == 1
    store.unsubscribe("t", "a")
    assert [m.payload for m in got(store, "w")] == [b"%d" % n for n in range(10)]


def test_puts_by_several_names_are_in_order(store: AnyStore) -> None:
    """Those of one transaction; each has its id."""
    store.create_queue("q", kind="work")
    store.admin.create_alias("a", "q")
    with store.transaction() as txn:
        ids = [txn.put(("q", "a")[number % 2], b"%d" % number) for number in range(12)]
        many = txn.put_many("a", [b"12", b"13"])
    messages = got(store, "a")
    assert [m.payload for m in messages] == [b"%d" % number for number in range(14)]
    assert [m.id for m in messages] == [*map(int, ids), *map(int, many)]


def test_an_alias_follows_its_queue(store: AnyStore, work: str) -> None:
    """When that is renamed, and to another one when it is given to it."""
    store.admin.create_alias("w", work)
    store.admin.rename_queue(work, "jobs")
    assert store.admin.aliases() == {"w": "jobs"}
    store.put("w", b"first")
    store.create_queue("next", kind="work")
    store.admin.create_alias("w", "next", replace=True)
    store.put("w", b"second")
    with store.transaction() as txn:
        txn.put("w", b"third")
    assert [m.payload for m in got(store, "next")] == [b"second", b"third"]
    assert store.queue("jobs").messages == 11
    store.admin.create_alias(work, "jobs")  # the old name of a queue may be its alias
    store.put(work, b"by the old name")
    assert store.queue("jobs").messages == 12


def test_names_are_taken_once(store: AnyStore, work: str) -> None:
    """By a queue or by an alias; and what an alias is not for."""
    store.admin.create_alias("a", work)
    store.create_queue("other", kind="work")
    for call in (
        lambda: store.create_queue("a", kind="topic"),
        lambda: store.admin.create_alias("a", "other"),
        lambda: store.admin.create_alias("other", work),
        lambda: store.admin.create_alias("other", work, replace=True),
        lambda: store.admin.rename_queue("other", "a"),
    ):
        with pytest.raises(QueueExists):
            call()
    for call in (lambda: store.drop_queue("a"), lambda: store.admin.rename_queue("a", "b")):
        with pytest.raises(InvalidArgument, match="alias of queue 'work'"):
            call()
    with pytest.raises(QueueInUse, match="alias 'a'"):
        store.drop_queue(work)
    with pytest.raises(InvalidArgument, match="not an alias"):
        store.admin.drop_alias(work)
    with pytest.raises(QueueNotFound):
        store.admin.drop_alias("none")
    with pytest.raises(QueueNotFound):
        store.admin.create_alias("b", "none")
    for wrong in [("a/b", work), ("b", 1), ("b", work, 1)]:
        with pytest.raises(InvalidArgument):
            store.admin.create_alias(*wrong)  # type: ignore[arg-type]
    store.admin.drop_alias("a")
    with pytest.raises(QueueNotFound):
        store.put("a", b"")
    with pytest.raises(QueueNotFound), store.transaction() as txn:
        txn.put("a", b"")
    assert store.admin.aliases() == {}
    store.drop_queue(work)


def test_dead_letters_go_to_an_alias(store: AnyStore) -> None:
    """To whichever queue it means; it stays as long as they go there, and leads in no ring."""
    store.admin.create_queues([{"name": name, "kind": "work"} for name in ("q", "dead", "more")])
    store.admin.create_alias("letters", "dead")
    store.alter_queue("q", max_deliveries=1, dead_letter="letters")
    for target in ("dead", "more"):
        store.admin.create_alias("letters", target, replace=True)
        store.put("q", b"m")
        with store.transaction() as txn:
            assert txn.get("q") is not None
            txn.rollback()
        eventually(lambda name=target: store.queue(name).messages)  # type: ignore[misc]
    with pytest.raises(QueueInUse, match="dead-letter queue of 'q'"):
        store.admin.drop_alias("letters")
    with pytest.raises(InvalidArgument, match="another queue"):
        store.admin.create_alias("letters", "q", replace=True)
    store.admin.create_alias("self", "more")
    with pytest.raises(InvalidArgument, match="another one"):
        store.alter_queue("more", dead_letter="self")


def test_a_queue_of_this_run_has_a_name_too(store: AnyStore) -> None:
    """It is renamed, purged and moved from; an alias would be there after it."""
    made: Any = {"kind": "work", "type": "volatile", "persistent": False}
    store.create_queue("other", kind="work")
    store.create_queue("dead", **made)
    store.create_queue("q", max_deliveries=3, dead_letter="dead", **made)
    store.put_many("q", [b"0", b"1", b"2"])
    assert store.admin.rename_queue("q", "run").messages == 3
    store.admin.rename_queue("dead", "letters")
    assert store.queue("run").dead_letter == "letters"
    with pytest.raises(InvalidArgument, match="not there after a restart"):
        store.admin.create_alias("a", "run")
    with store.transaction() as txn:
        assert txn.move("run", "other", 1) == 1
    assert store.admin.purge("run") == 2
    assert store.browse("other").payloads() == [b"0"]
    store.drop_queue("run")


# Moving


def test_messages_are_moved(store: AnyStore) -> None:
    """With payload, header and attributes, in order, by one commit; and back."""
    store.admin.create_queues([{"name": "from", "kind": "work"}, {"name": "to", "kind": "work"}])
    store.alter_queue("from", order="priority", timed=True)
    store.put("from", b"0", priority=5, sender="me", attributes={"a": "b"}, expires_at=1 << 55)
    store.alter_queue("from", order="commit")
    store.put_many("from", [b"1", b"2"])
    with store.transaction() as txn:
        assert txn.move("from", "to", 2) == 2
        assert store.queue("to").messages == 0
    assert store.queue("from").messages == 1
    with store.transaction() as txn:
        first, second = txn.get_many("to")
        assert (first.payload, first.priority, first.sender) == (b"0", 5, "me")
        assert (first.expires_at, second.expires_at) == (1 << 55, None)
        assert dict(first.attributes) == {
            "a": "b",
            "quire.queue": "from",
            "quire.subscription": "",
            "quire.deliveries": "0",
            "quire.reason": "moved",
        }
        assert second.payload == b"1"
        txn.rollback()
    assert store.admin.redrive("to") == 2
    with store.transaction() as txn:
        messages = txn.get_many("from", 10)
        assert messages.payloads() == [b"2", b"0", b"1"]
        assert dict(messages[1].attributes) == {"a": "b"}
        with pytest.raises(InvalidArgument, match="is given twice"):
            txn.move([messages[1], messages[2], messages[1]], "to")
        assert txn.move(list(messages)[1:], "to") == 2
        assert txn.move([], "to") == 0
        assert txn.move("from", "to") == 0
    assert store.browse("to").payloads() == [b"0", b"1"]
    with store.transaction() as txn:
        txn.move("to", "from")
        txn.rollback()
    assert store.queue("to").messages == 2


def test_what_was_not_got_is_not_moved(store: AnyStore, work: str) -> None:
    """It would stay where it is, beside a copy: what was looked at, given back or rejected."""
    store.create_queue("to", kind="work")
    [seen, *_] = store.browse(work)
    with store.transaction() as txn:
        with pytest.raises(InvalidArgument, match=r"message \d+ of queue 'w.*none that this"):
            txn.move([seen], "to")
        first, second, third = txn.get_many(work, 3)
        txn.reject(second)
        for wrong in ([second], [first, second], [first, store.browse(work)[-1]]):
            with pytest.raises(InvalidArgument, match="is none that this transaction has got"):
                txn.move(wrong, "to")
        assert txn.move([third, first], "to") == 2
        txn.get(work)
        txn.unget()
        single = txn.get(work)
        assert single is not None
        assert txn.move(iter([single]), "to") == 1
    assert store.browse("to").payloads() == [b"2", b"0", b"1"]
    with store.transaction() as txn, pytest.raises(InvalidArgument, match="none that this"):
        txn.move([single], "to")  # it was got by another one
    assert (store.queue(work).messages, store.queue("to").messages) == (7, 3)


def test_what_was_got_is_moved_by_any_name(store: AnyStore, work: str) -> None:
    """Of a queue that was renamed meanwhile, or was read by an alias."""
    store.create_queue("to", kind="work")
    store.admin.create_alias("alias", work)
    with store.transaction() as txn:
        got = list(txn.get_many("alias", 2))
        store.admin.rename_queue(work, "renamed")
        more = txn.get_many("renamed", 2)
        assert txn.move([*got, *more], "to") == 4
    assert store.browse("to").payloads() == [b"0", b"1", b"2", b"3"]


def test_what_cannot_be_moved_stays(store: AnyStore, work: str) -> None:
    """What cannot be moved stays and the transaction is as before."""
    store.create_queue("small", kind="work", max_messages=3)
    with store.transaction() as txn:
        with pytest.raises(QueueNotFound):
            txn.move(work, "none")
        with pytest.raises(InvalidArgument):
            txn.move(work, "small", 0)
        for wrong in (b"work", 5, [b"m"]):
            with pytest.raises(InvalidArgument):
                txn.move(wrong, "small")  # type: ignore[arg-type]
        assert txn.get_many(work, 1).payloads() == [b"0"]
        txn.rollback()
    with pytest.raises(QueueFull), store.transaction() as txn:
        txn.move(work, "small")
    assert (store.queue(work).messages, store.queue("small").messages) == (10, 0)


# Sizes


def test_a_message_may_be_so_large(store: AnyStore) -> None:
    """With its strings and attributes, however it is put; a larger one changes nothing."""
    store.create_queue("q", kind="work", max_message_bytes=10)
    assert store.queue("q").max_message_bytes == 10
    store.put("q", b"x" * 10)
    store.put("q", b"x" * 6, sender="abcd")
    large: list[Any] = [
        [b"x", b"x" * 11],
        pa.array([b"x", b"x" * 11]),
        pa.RecordBatch.from_pydict({"payload": [b"x" * 6, b"x"], "sender": ["abcde", None]}),
    ]
    with pytest.raises(InvalidArgument, match="up to 10"):
        store.put("q", b"x" * 11)
    with pytest.raises(InvalidArgument, match="up to 10"):
        store.put("q", b"x" * 6, sender="abcde")
    with pytest.raises(InvalidArgument, match="up to 10"):
        store.put("q", b"", attributes={"k": "x" * 10})
    for payloads in large:
        with pytest.raises(InvalidArgument, match="up to 10"):
            store.put_many("q", payloads)
    store.put_many("q", (b"x" * 10 for _ in range(3)))
    assert store.queue("q").messages == 5
    store.alter_queue("q", max_message_bytes=None)
    store.put("q", b"x" * 11)
    for wrong in (0, -1, True, "1 byte", 1 << 40):
        with pytest.raises(InvalidArgument):
            store.alter_queue("q", max_message_bytes=wrong)


# The whole store


def test_the_whole_store_is_stopped(store: AnyStore, work: str) -> None:
    """For puts, for gets or for both; its queues have their own switches besides."""
    txn = store.transaction()
    assert txn.get(work) is not None
    txn.put(work, b"before")
    store.admin.transactions()
    store.admin.switch(puts=False, gets=False)
    assert store.admin.switch() == {"puts": False, "gets": False}
    store.create_queue("new", kind="work")
    for queue in (work, "new"):
        with pytest.raises(QueueDisabled, match="the store is stopped for puts"):
            store.put(queue, b"")
        with pytest.raises(QueueDisabled, match="the store is stopped for gets"):
            store.get(queue)
    txn.commit()
    store.admin.switch(puts=True)
    store.put(work, b"after")
    with pytest.raises(QueueDisabled, match="the store is stopped for gets"):
        store.get_many(work)
    store.alter_queue(work, gets=False)
    store.admin.switch(puts=True, gets=True)
    assert store.admin.switch() == {"puts": True, "gets": True}
    with pytest.raises(QueueDisabled, match="queue 'work' is stopped for gets"):
        store.get(work)
    store.alter_queue(work, gets=True)
    assert len(got(store, work)) == 11
    store.admin.switch(puts=False)
    assert store.get(work) is None
    with pytest.raises(InvalidArgument):
        store.admin.switch(puts=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        store.admin.switch(gets="no")  # type: ignore[arg-type]
    assert [item.body for item in store.admin.catalog("store")] == [{"puts": False, "gets": True}]
    assert store.admin.switch(puts=True) == {"puts": True, "gets": True}
    assert store.admin.catalog("store") == []


def test_who_waits_is_told_that_the_store_is_stopped(store: AnyStore) -> None:
    """Who waits is told at once that the store is stopped."""
    store.create_queue("q", kind="work")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            store.get("q", timeout=120.0)
        except QueueDisabled as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    threading.Event().wait(0.2)
    store.admin.switch(gets=False)
    thread.join(120)
    assert len(errors) == 1
    store.admin.switch(puts=True, gets=True)
