"""Gets, consumers and workers of all queues that a pattern names."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from quire.definitions.source_pattern import SourcePattern
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, QueueDisabled
from quire.workers import Workers
from tests.kit.waiting import SECONDS, eventually

from .forms import WITH_CALLBACKS, AnyStore, Clock

with_callbacks = pytest.mark.parametrize("store", WITH_CALLBACKS, indirect=True)


def filled(store: AnyStore, *names: str, messages: int = 3) -> None:
    """Work queues with so many messages each, put queue by queue."""
    for name in names:
        store.create_queue(name, kind="work")
        store.put_many(name, [b"%s %d" % (name.encode(), n) for n in range(messages)])


def got(store: AnyStore, source: str, count: int) -> list[bytes]:
    """So many messages, each in a transaction of its own."""
    found = [store.get(source, timeout=SECONDS) for _ in range(count)]
    return [message.payload for message in found if message is not None]


def test_each_queue_has_its_turn(store: AnyStore) -> None:
    """However much one of them has; of each in order, and what does not match stays (TN1)."""
    filled(store, "orders.eu", messages=20)
    filled(store, "orders.us", "orders.asia", messages=2)
    filled(store, "orders", "orders.eu.north", "others")
    first = got(store, "orders.*", 6)
    assert Counter(each.split()[0] for each in first) == {
        b"orders.eu": 2, b"orders.us": 2, b"orders.asia": 2
    }  # fmt: skip
    assert first[:3] != first[3:]
    assert got(store, "orders.*", 18) == [b"orders.eu %d" % n for n in range(2, 20)]
    assert store.get("orders.*") is None
    assert {each.split()[0] for each in got(store, "orders.#", 6)} == {
        b"orders", b"orders.eu.north"
    }  # fmt: skip
    assert got(store, "#", 3) == [b"others 0", b"others 1", b"others 2"]


def test_turns_within_a_transaction(store: AnyStore) -> None:
    """What is rolled back is there again, and in its place; a batch is of one queue."""
    filled(store, "a.1", "a.2")
    with store.transaction() as txn:
        messages = [txn.get("a.*") for _ in range(6)]
        assert txn.get("a.*") is None
        assert {each.queue for each in messages[:2] if each is not None} == {"a.1", "a.2"}
        txn.rollback()
    with store.transaction() as txn:
        batches = [txn.get_many("a.*"), txn.get_many("a.*", 2), txn.get_many("a.*")]
        assert [len(each) for each in batches] == [3, 2, 1]
        assert [len({m.queue for m in each}) for each in batches] == [1, 1, 1]
        assert len(txn.get_many("a.*")) == 0
        assert txn.get_arrow("a.*").num_rows == 0
        txn.rollback()
    assert len(got(store, "a.*", 6)) == 6


def test_subscriptions_of_topics(store: AnyStore) -> None:
    """Those of that name, with their rules; topics without one, and work queues, are not named."""
    filled(store, "news.work")
    for name in ("news.a", "news.b", "news.c"):
        store.create_queue(name, kind="topic", keep_forever=True, order="priority")
        store.put(name, name.encode())
    store.subscribe("news.a", "me")
    store.subscribe("news.b", "me", where="payload <> 'news.b'")
    store.subscribe("news.c", "me")
    store.subscribe("news.c", "you")
    assert sorted(got(store, "news.*/me", 2)) == [b"news.a", b"news.c"]
    assert store.get("news.*/me") is None
    assert got(store, "#/you", 1) == [b"news.c"]
    assert store.get("news.*/nobody") is None


@pytest.mark.parametrize("is_there", [True, False])
def test_who_waits_is_woken(store: AnyStore, owner: Store, is_there: bool) -> None:
    """By a put to any of them, also to one that was made meanwhile (TN2)."""
    owner.create_queue("w.old")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(store.get("w.*", timeout=SECONDS)))
    if is_there:
        owner.create_queue("w.new")
    thread.start()
    time.sleep(0.3)
    if not is_there:
        owner.create_queue("w.new")
    owner.put("w.new", b"1")
    thread.join()
    assert [(each.queue, each.payload) for each in found] == [("w.new", b"1")]


def test_a_wait_ends(store: AnyStore) -> None:
    """When its time is over, whether or not any queue is named."""
    assert store.get("w.*", timeout=0.05) is None
    store.create_queue("w.old")
    assert store.get("w.*", timeout=0.05) is None
    with store.transaction() as txn:
        assert txn.get("w.*", timeout=0.05) is None
        assert len(txn.get_many("w.*", 3, 0.05)) == 0


def test_what_is_due_later(store: AnyStore, clock: Clock) -> None:
    """Is got when it is."""
    filled(store, "w.a", messages=0)
    store.create_queue("w.timed", kind="work", timed=True)
    store.put("w.timed", b"later", delay=1000)
    assert store.get("w.*") is None
    clock.forward(1001)
    assert got(store, "w.*", 1) == [b"later"]


def test_what_is_stopped_or_dropped_is_passed_over(store: AnyStore) -> None:
    """Others go on, and it has its turn again; a name that changes counts from then on."""
    filled(store, "w.a", "w.b", messages=1)
    store.alter_queue("w.a", gets=False)
    assert got(store, "w.*", 1) == [b"w.b 0"]
    assert store.get("w.*", timeout=0.05) is None
    with pytest.raises(QueueDisabled):
        store.get("w.a")
    store.alter_queue("w.a", gets=True)
    store.admin.rename_queue("w.a", "x.a")
    assert store.get("w.*") is None
    assert got(store, "x.*", 1) == [b"w.a 0"]
    store.drop_queue("x.a")
    assert store.get("x.*") is None


@with_callbacks
def test_a_consumer_of_many_queues(store: AnyStore, owner: Store) -> None:
    """It commits in each where it got; a queue that is made meanwhile is one more."""
    filled(store, "w.a", "w.b", messages=2)
    handled = []
    with store.consume("w.*", timeout=SECONDS) as messages:
        for message in messages:
            handled.append(message.payload)
            if len(handled) == 4:
                owner.create_queue("w.c")
                owner.put("w.c", b"w.c 0")
            if len(handled) == 5:
                messages.acknowledge()
                break
    assert sorted(handled) == [b"w.a 0", b"w.a 1", b"w.b 0", b"w.b 1", b"w.c 0"]
    assert [owner.queue(name).messages for name in ("w.a", "w.b", "w.c")] == [0, 0, 0]


@with_callbacks
def test_workers_of_many_queues(store: AnyStore, owner: Store) -> None:
    """What has failed comes again from its own queue; all is handled once."""
    filled(store, "w.a", "w.b", messages=5)
    workers, handled, failed = Workers(store, retry={"delay": 0.01}), Counter[bytes](), set()

    @workers.on("w.*", concurrency=2)
    def handle(message: Any, _: Any) -> None:
        if message.payload.endswith(b"3") and message.payload not in failed:
            failed.add(message.payload)
            raise ValueError("once")
        handled[message.payload] += 1

    thread = threading.Thread(target=workers.run)
    thread.start()
    eventually(lambda: len(handled) == 10)
    owner.create_queue("w.c")
    owner.put("w.c", b"w.c 0")
    eventually(lambda: len(handled) == 11)
    workers.stop()
    thread.join()
    assert set(handled.values()) == {1}
    assert failed == {b"w.a 3", b"w.b 3"}


def test_many_who_wait_get_each_message_once(store: AnyStore, owner: Store) -> None:
    """Several threads of one pattern, and messages that come in all queues."""
    for n in range(5):
        owner.create_queue(f"w.{n}")
    found: list[bytes] = []

    def take() -> None:
        while (message := store.get("w.#", timeout=SECONDS)) is not None:
            if message.payload == b"end":
                return
            found.append(message.payload)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(40):
        owner.put(f"w.{n % 5}", b"%d" % n)
    eventually(lambda: len(found) == 40)
    for n in range(3):
        owner.put(f"w.{n}", b"end")
    for thread in threads:
        thread.join()
    assert sorted(found, key=int) == [b"%d" % n for n in range(40)]


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ("orders*", 7), ("a.*b", 3), ("a.**", 3), ("*a.b", 1), (".*", 1), ("a b.*", 2),
        ("a/b.*", 3), ("a.*/", 5), ("#/x/y", 3), ("/*", 1), ("#" + ".a" * 100, 201), ("ä.*", 1),
    ],
)  # fmt: skip
def test_a_wrong_pattern_is_refused_with_its_place(store: AnyStore, wrong: str, place: int) -> None:
    """By gets and consumers; nothing waits."""
    for refused in (
        lambda: store.get(wrong, timeout=SECONDS), lambda: store.get_many(wrong),
        lambda: list(store.consume(wrong, timeout=0)),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=re.escape(wrong[:50])) as caught:
            refused()
        assert f"character {place}:" in str(caught.value)


def test_other_calls_want_one_queue(store: AnyStore) -> None:
    """They say so."""
    store.create_queue("w.a")
    with store.transaction() as txn:
        calls: list[Callable[[], object]] = [
            lambda: txn.get("w.*", where="a = 1"), lambda: txn.read("w.*"),
            lambda: txn.get("w.*", id=1), lambda: txn.seek("w.*", 0),
            lambda: txn.remove("w.*", 1), lambda: txn.count("w.*"),
            lambda: store.put("w.*", b""), lambda: store.browse("w.*"),
            lambda: store.queue("w.*"), lambda: store.create_queue("w.*"),
            lambda: store.admin.purge("w.*"), lambda: store.subscribe("w.*", "me"),
        ]  # fmt: skip
        for refused in calls:
            with pytest.raises(InvalidArgument, match=r"w\.\*"):
                refused()


def test_patterns_against_a_plain_expression() -> None:
    """Of all short patterns and names: `*` is a word, `#` any number of them."""
    words = ("a", "b", "*", "#")
    names = [".".join(n) for k in (1, 2, 3, 4) for n in itertools.product("ab", repeat=k)]
    for size in (1, 2, 3):
        for pattern in itertools.product(words, repeat=size):
            made = SourcePattern(pattern, None)
            text = "".join(
                {"*": r"\.[^.]*", "#": r"(\.[^.]*)*"}.get(word, rf"\.{word}") for word in pattern
            )
            for name in names:
                is_named = re.fullmatch(text, "." + name) is not None
                assert made.matches(name) == is_named, (pattern, name)
