"""Calls and loops that take messages in transactions of their own, the same for all stores."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import quire
from quire.batches.delivered_messages import Messages
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    QueueExists,
    QueueFull,
    QueueNotFound,
    StoreClosed,
    SubscriptionNotFound,
    TransactionAborted,
    TransactionClosed,
)
from quire.messages.message import Message
from tests.behaviour.forms import FORMS, WITH_CALLBACKS, AnyStore
from tests.kit.children import child
from tests.kit.waiting import SECONDS, eventually


@pytest.fixture(params=WITH_CALLBACKS)
def plain_store(owner: Store, request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    """Any of them but those for asyncio, where a loop without its block is none."""
    with FORMS[request.param](owner) as store:
        yield store


@pytest.fixture
def plain_work(plain_store: AnyStore) -> str:
    """A work queue."""
    return plain_store.create_queue("work", kind="work").name


def left(store: AnyStore, source: str) -> list[bytes]:
    """What is there to get."""
    return store.get_many(source).payloads()


def in_a_moment(action: Callable[[], object]) -> threading.Thread:
    """The action, done by another thread while this one waits."""
    thread = threading.Timer(0.05, action)
    thread.start()
    return thread


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("many", [False, True])
def test_a_get_without_a_timeout_waits_for_ever(
    store: AnyStore, work: str, many: bool, in_transaction: bool
) -> None:
    """None, as for `consume`: until there is one."""
    adding = in_a_moment(partial(store.put, work, b"late"))
    if in_transaction:
        with store.transaction() as txn:
            found: Any = txn.get_many(work, 5, None) if many else txn.get(work, None)
    else:
        found = store.get_many(work, timeout=None) if many else store.get(work, timeout=None)
    adding.join(SECONDS)
    assert (found[0] if many else found).payload == b"late"
    assert left(store, work) == []


@pytest.mark.parametrize("many", [False, True])
def test_a_close_ends_what_waits_for_ever(store: AnyStore, work: str, many: bool) -> None:
    """By another thread: StoreClosed, and nothing is taken."""
    closing = in_a_moment(store.close)
    with pytest.raises(StoreClosed):
        _ = store.get_many(work, timeout=None) if many else store.get(work, timeout=None)
    closing.join(SECONDS)


@pytest.mark.parametrize("call", ["get", "get_many", "in a transaction"])
@pytest.mark.parametrize("path", [":memory:", "owned", "joined"])
def test_ctrl_c_ends_what_waits_for_ever(store_path: str, call: str, path: str) -> None:
    """Ctrl-C ends what waits for ever, and the store goes on."""
    owner = quire.open(store_path) if path == "joined" else None
    with child(WAITING, path if path == ":memory:" else store_path, call) as process:
        assert process.line() == "waits"
        time.sleep(0.2)
        process.process.send_signal(signal.SIGINT)
        assert process.line() == "interrupted"
        assert process.line() == "b'later'"
        assert process.wait() == 0
    if owner is not None:
        owner.close()


WAITING = """
import sys, quire
with quire.open(sys.argv[1]) as store:
    store.create_queue("work")
    print("waits", flush=True)
    try:
        if sys.argv[2] == "get":
            store.get("work", timeout=None)
        elif sys.argv[2] == "get_many":
            store.get_many("work", timeout=None)
        else:
            with store.transaction() as txn:
                txn.get("work", None)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    store.put("work", b"later")
    print(store.get("work").payload, flush=True)
"""


# One call


def test_one_message_is_taken_for_good(store: AnyStore, work: str) -> None:
    """It is in no transaction any more when the call returns; None where nothing is left."""
    store.put(work, b"1", group=3)
    message = store.get(work)
    assert message is not None
    assert (message.payload, message.group, message.delivery_count) == (b"1", 3, 1)
    assert store.admin.transactions() == []
    assert store.queue(work).messages == 0
    assert store.get(work) is None


def test_many_messages_are_taken_for_good(store: AnyStore, work: str) -> None:
    """As many as are there, up to the number; they can be read later."""
    store.put_many(work, [b"1", b"2", b"3"])
    first = store.get_many(work, 2)
    rest = store.get_many(work)
    assert (first.payloads(), rest.payloads()) == ([b"1", b"2"], [b"3"])
    nothing = store.get_many(work, 1)
    assert isinstance(nothing, Messages)
    assert (nothing.queue, list(nothing)) == (work, [])
    assert store.admin.transactions() == []


def test_a_call_that_takes_waits(store: AnyStore, work: str) -> None:
    """For a message that comes before its time is over."""
    thread = in_a_moment(lambda: store.put(work, b"late"))
    message = store.get(work, timeout=SECONDS)
    assert message is not None
    assert message.payload == b"late"
    thread.join()
    thread = in_a_moment(lambda: store.put(work, b"later"))
    assert store.get_many(work, 5, timeout=SECONDS).payloads() == [b"later"]
    thread.join()
    assert store.get(work, timeout=0.01) is None
    assert store.get_many(work, 5, timeout=0.01).payloads() == []


def test_many_messages_are_put_by_one_call(store: AnyStore, work: str) -> None:
    """All of them, with the ids in their order; lists and Arrow."""
    ids = store.put_many(work, [b"1", b"2"])
    assert {type(each) for each in ids} == {int}
    ids += store.put_many(work, pa.array([b"3"], pa.binary()))
    assert store.put_many(work, []) == []
    found = store.get_many(work)
    assert (found.payloads(), found.ids) == ([b"1", b"2", b"3"], ids)


def test_of_many_messages_all_are_put_or_none(store: AnyStore) -> None:
    """Where the queue has no room for the last of them."""
    store.create_queue("small", kind="work", max_messages=2)
    with pytest.raises(QueueFull):
        store.put_many("small", [b"1", b"2", b"3"])
    assert store.queue("small").messages == 0
    with pytest.raises(QueueNotFound):
        store.put_many("nowhere", [b"1"])
    assert store.admin.transactions() == []


def test_a_topic_is_taken_from_by_a_subscription(store: AnyStore) -> None:
    """Calls and loops take the sources of transactions, and raise what these raise."""
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    store.put_many("topic", [b"1", b"2"])
    message = store.get("topic/a")
    assert message is not None
    with store.consume("topic/a", timeout=0.0) as messages:
        assert [each.payload for each in messages] == [b"2"]
    for take in (store.get, store.get_many):
        with pytest.raises(SubscriptionNotFound):
            take("topic/b")
        with pytest.raises(InvalidArgument):
            take("topic/a", timeout=-1.0)
    with store.consume("nowhere") as messages, pytest.raises(QueueNotFound):
        next(messages)


# A queue that is there already


def test_a_queue_may_be_there_already(store: AnyStore) -> None:
    """Where that is asked for, and it is what is asked for; else the error tells what differs."""
    made = store.create_queue("q", "work", capacity=8192, max_messages=7, data_file=1)
    assert store.create_queue("q", "work", 8192, 7, 1, exist_ok=True) == made
    assert store.create_queue("q", "work", 8192, 7, exist_ok=True) == made
    with pytest.raises(QueueExists):
        store.create_queue("q", "work", 8192, 7, 1)
    for changed, words in {
        "kind": ("topic", "kind is 'work', not 'topic'"),
        "capacity": (4096, "capacity is 8192, not 4096"),
        "max_messages": (8, "max_messages is 7, not 8"),
        "data_file": (0, "data_file is 1, not 0"),
    }.items():
        asked: dict[str, Any] = {
            "kind": "work", "capacity": 8192, "max_messages": 7, "data_file": 1, changed: words,
        }  # fmt: skip
        asked[changed], told = words
        with pytest.raises(QueueExists) as error:
            store.create_queue("q", **asked, exist_ok=True)
        assert told in str(error.value)
        assert str(error.value).count(", not ") == 1
    assert store.queues() == [made]
    stopped = store.alter_queue("q", puts=False, text="mended")
    assert store.create_queue("q", "work", 8192, 7, exist_ok=True) == stopped
    assert store.create_queue("q", exist_ok=True) == stopped  # who says nothing takes it as it is
    assert store.create_queue("q", exist_ok=True, max_messages=None, ttl=None) == stopped
    assert store.create_queue("q", "work", 8192, 7, exist_ok=True, puts=False) == stopped
    with pytest.raises(QueueExists, match="text is 'mended', not ''; puts is False, not True"):
        store.create_queue("q", "work", 8192, 7, exist_ok=True, text="", puts=True)
    assert store.create_queue("new", kind="topic", exist_ok=True).kind == "topic"
    with pytest.raises(QueueExists, match="kind is 'topic', not 'work'"):  # which each call says
        store.create_queue("new", exist_ok=True)
    with pytest.raises(InvalidArgument):
        store.create_queue("q", kind="topic", exist_ok=1)  # type: ignore[arg-type]


# Loops


def test_a_loop_handles_each_message_in_a_transaction(store: AnyStore, work: str) -> None:
    """That commits, with all that the body put, when the loop comes for the next message."""
    store.create_queue("done", kind="work")
    store.put_many(work, [b"1", b"2", b"3"])
    seen = []
    with store.consume(work, timeout=0.0) as messages:
        for message in messages:
            seen.append(message.payload)
            assert store.queue("done").messages == len(seen) - 1
            messages.transaction.put("done", message.payload + b"!")
    assert seen == [b"1", b"2", b"3"]
    assert store.get_many("done").payloads() == [b"1!", b"2!", b"3!"]
    assert left(store, work) == []
    assert store.admin.transactions() == []


def test_a_loop_takes_batches(store: AnyStore, work: str) -> None:
    """Up to the number, as many as are there, in one transaction."""
    store.put_many(work, [b"%d" % n for n in range(5)])
    with store.consume(work, max_messages=3, timeout=0.0) as batches:
        found = [batch.payloads() for batch in batches]
    assert found == [[b"0", b"1", b"2"], [b"3", b"4"]]
    assert store.queue(work).messages == 0


@pytest.mark.parametrize("leaves", ["break", "raise"])
@pytest.mark.parametrize("ack", ["auto", "session"])
def test_a_block_that_is_left_has_its_message_there_again(
    store: AnyStore, work: str, leaves: str, ack: Any
) -> None:
    """By an exception; by break where messages are committed one by one."""
    store.create_queue("done", kind="work")
    store.put_many(work, [b"1", b"2", b"3"])

    def run() -> None:
        with store.consume(work, ack=ack) as messages:
            for message in messages:
                messages.transaction.put("done", message.payload)
                if message.payload == b"2":
                    if leaves == "break":
                        break
                    raise ZeroDivisionError

    if leaves == "break":
        run()
    else:
        with pytest.raises(ZeroDivisionError):
            run()
    done = {
        ("auto", "break"): [b"1"],
        ("auto", "raise"): [b"1"],
        ("session", "break"): [b"1", b"2"],
        ("session", "raise"): [],
    }[ack, leaves]
    assert left(store, "done") == done
    again = store.get(work)
    assert again is not None
    assert again.payload == [b"1", b"2", b"3"][len(done)]
    assert again.delivery_count == (1 if (ack, leaves) == ("session", "break") else 2)
    assert store.admin.transactions() == []


@pytest.mark.parametrize("leaves", ["break", "raise", "return"])
def test_a_bare_loop_that_is_left_has_its_message_there_again(
    plain_store: AnyStore, plain_work: str, leaves: str
) -> None:
    """At once: a `for` drops its iterator when it is left, and nobody else has it."""
    store, work = plain_store, plain_work
    store.put_many(work, [b"1", b"2", b"3"])

    def run() -> None:
        for message in store.consume(work):
            if message.payload == b"2":
                if leaves == "raise":
                    raise ZeroDivisionError
                if leaves == "return":
                    return
                break
        assert left(store, work) == [b"2", b"3"]

    if leaves == "raise":
        with pytest.raises(ZeroDivisionError):
            run()
    else:
        run()
    if leaves != "break":
        assert left(store, work) == [b"2", b"3"]
    assert store.admin.transactions() == []


def test_a_bare_loop_that_ends_has_committed(plain_store: AnyStore, plain_work: str) -> None:
    """Also the last message, before it waits for another one."""
    plain_store.put_many(plain_work, [b"1", b"2"])
    found = [message.payload for message in plain_store.consume(plain_work, timeout=0.01)]
    assert found == [b"1", b"2"]
    assert plain_store.queue(plain_work).messages == 0


def test_a_loop_waits(store: AnyStore, work: str) -> None:
    """For the next message, with no transaction open; its end comes when none does."""

    def put_when_free(payload: bytes) -> None:
        eventually(lambda: store.admin.transactions() == [])
        store.put(work, payload)

    with store.consume(work, timeout=SECONDS) as messages:
        for payload in (b"1", b"2"):
            thread = in_a_moment(partial(put_when_free, payload))
            assert next(messages).payload == payload
            thread.join()
    with store.consume(work, timeout=0.05) as messages:
        assert [message.payload for message in messages] == [b"2"]
    with store.consume(work, timeout=0.0) as messages:
        assert list(messages) == []


def test_a_loop_without_a_limit_waits_until_the_store_is_closed(
    plain_store: AnyStore, plain_work: str
) -> None:
    """Then it raises; `stop`, from another thread, ends it without an error."""
    with plain_store.consume(plain_work) as messages:
        thread = in_a_moment(messages.stop)
        assert list(messages) == []
        thread.join()
    with plain_store.consume(plain_work) as messages:
        thread = in_a_moment(plain_store.close)
        with pytest.raises(StoreClosed):
            next(messages)
        thread.join()


def test_a_loop_that_is_stopped_finishes_its_message(
    plain_store: AnyStore, plain_work: str
) -> None:
    """That is committed, and no other is taken."""
    plain_store.put_many(plain_work, [b"1", b"2"])
    seen = []
    with plain_store.consume(plain_work) as messages:
        for message in messages:
            seen.append(message.payload)
            messages.stop()
    assert (seen, left(plain_store, plain_work)) == ([b"1"], [b"2"])


def test_a_message_is_acknowledged_in_the_midst_of_its_turn(store: AnyStore, work: str) -> None:
    """It is done with, whatever comes after; there is no transaction before the next message."""
    store.put_many(work, [b"1", b"2"])
    with store.consume(work) as messages:
        with pytest.raises(TransactionClosed):
            _ = messages.transaction
        for _ in messages:
            messages.acknowledge()
            messages.acknowledge()
            with pytest.raises(TransactionClosed):
                _ = messages.transaction
            break
    assert left(store, work) == [b"2"]


def test_a_session_commits_when_it_is_told_to(store: AnyStore, work: str) -> None:
    """What came after that is there again where the block ends with an exception."""
    store.put_many(work, [b"%d" % n for n in range(5)])

    def fail() -> None:
        with store.consume(work, timeout=0.0, ack="session") as messages:
            for message in messages:
                assert len(store.admin.transactions()) == 1
                if message.payload == b"2":
                    messages.acknowledge()
                    assert store.queue(work).messages == 2
            assert store.queue(work).messages == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.consume(work, timeout=0.0, ack="session") as messages:
        assert [message.payload for message in messages] == [b"3", b"4"]
    assert store.queue(work).messages == 0


def test_the_body_may_end_the_transaction(store: AnyStore, work: str) -> None:
    """A rollback has the message delivered again, as the next one; a commit is a commit."""
    store.put_many(work, [b"1", b"2"])
    for ack in ("auto", "session"):
        seen = []
        with store.consume(work, timeout=0.0, ack=ack) as messages:
            for message in messages:
                seen.append((message.payload, message.delivery_count))
                if len(seen) == 1:
                    messages.transaction.rollback()
                elif len(seen) == 2:
                    messages.transaction.commit()
        count = seen[0][1]
        assert seen == [(b"1", count), (b"1", count + 1), (b"2", 1)]
        store.put_many(work, [b"1", b"2"])


def test_a_loop_whose_transaction_was_ended_by_others_raises(store: AnyStore, work: str) -> None:
    """As a transaction's own block does."""
    store.put(work, b"1")
    with store.consume(work, timeout=0.0) as messages:
        next(messages)
        [info] = store.admin.transactions()
        store.admin.abort(info.id)
        with pytest.raises(TransactionAborted):
            next(messages)
    assert left(store, work) == [b"1"]


def test_a_commit_that_fails_ends_the_loop(store: AnyStore, work: str) -> None:
    """With its error; what the message's turn did is undone."""
    store.create_queue("small", kind="work", max_messages=1)
    store.put_many(work, [b"1", b"2"])

    def overfill() -> None:
        with store.consume(work, timeout=0.0) as messages:
            for message in messages:
                for _ in range(2):
                    messages.transaction.put("small", message.payload)

    with pytest.raises(QueueFull):
        overfill()
    assert left(store, "small") == []
    assert left(store, work) == [b"1", b"2"]


def test_a_loop_says_what_it_takes(store: AnyStore, work: str) -> None:
    """At the call, before anything is taken."""
    with pytest.raises(InvalidArgument, match=r'"auto" .*"session"'):
        store.consume(work, ack="never")  # type: ignore[call-overload]
    wrong: list[dict[str, Any]] = [{"max_messages": 0}, {"timeout": -1.0}, {"source": "a/b/c"}]
    for each in wrong:
        with pytest.raises(InvalidArgument):
            store.consume(**{"source": work, **each})


def test_a_loop_shows_where_it_is(plain_store: AnyStore, plain_work: str) -> None:
    """Its source, and its transaction while there is one."""
    plain_store.put(plain_work, b"1")
    with plain_store.consume(plain_work, timeout=0.0) as messages:
        assert repr(messages) == "<Consumer of work, between messages>"
        assert isinstance(next(messages), Message)
        assert repr(messages) == f"<Consumer of work, in transaction {messages.transaction.id}>"
        assert list(messages) == []
        assert repr(messages) == "<Consumer of work, ended>"


def test_several_loops_share_a_queue(plain_store: AnyStore, plain_work: str) -> None:
    """Each message is handled by one of them, whoever is faster."""
    store, seen = plain_store, []

    def handle() -> None:
        with store.consume(plain_work) as messages:
            loops.append(messages)
            for message in messages:
                seen.append(message.payload)
                if message.payload == b"end":
                    for each in loops:
                        each.stop()

    loops: list[Any] = []
    threads = [threading.Thread(target=handle) for _ in range(4)]
    for thread in threads:
        thread.start()
    payloads = [b"%d" % n for n in range(40)]
    for payload in payloads:
        store.put(plain_work, payload)
    eventually(lambda: len(loops) == 4 and not store.queue(plain_work).messages)
    store.put(plain_work, b"end")
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted([*payloads, b"end"])


# What is shown ------------------------------------------------------------------------------------


def test_stores_and_transactions_show_what_they_are(plain_store: AnyStore) -> None:
    """Where, and how it is with them."""
    assert plain_store.path in repr(plain_store)
    assert type(plain_store).__name__ in repr(plain_store)
    with plain_store.transaction() as txn:
        assert repr(txn) == f"<{type(txn).__name__} {txn.id}, open>"
    assert repr(txn).endswith(", committed>")
