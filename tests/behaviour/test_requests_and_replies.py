"""Requests that are answered: by a pool of workers, by hand; errors, time-outs, who is told.

In the forms for asyncio the pool is one of tasks, of that store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import quire
from quire import RequestState, Workers, put_reply
from quire.aio import AsyncWorkers
from quire.engine import EmbeddedStore as Store
from quire.errors import (
    InvalidArgument,
    QueueDisabled,
    QueueFull,
    QueueNotFound,
    RequestFailed,
    RequestTimeout,
)
from quire.interface.sessions.answering import answering as answer_by
from quire.interface.sessions.reply import outcome_of
from tests.behaviour.forms import AnyStore, Clock
from tests.kit.behind_loop import BehindLoop
from tests.kit.waiting import SECONDS, eventually


def answered(request: Any, txn: Any) -> bytes:
    """What the tests' server does."""
    txn.put("log", request.payload)
    return reversed_of(request)


async def answered_by_task(request: Any, txn: Any) -> bytes:
    """The same, as a coroutine function."""
    await txn.put("log", request.payload)
    return reversed_of(request)


def reversed_of(request: Any) -> bytes:
    """The reply, or what ends the request, or what has it come again."""
    if request.payload == b"bad":
        raise RequestFailed("no such fruit")
    if request.payload == b"worse":
        raise ValueError("it broke")
    reply: bytes = request.payload[::-1]
    return reply


@contextmanager
def answering(store: AnyStore, owner: Store) -> Iterator[None]:
    """Two threads, or two tasks, that answer what comes to "asked"."""
    owner.create_queue("log")
    owner.create_queue("dead")
    owner.create_queue("asked", max_deliveries=2, dead_letter="dead", retry={"delay": 0.01})
    with answering_tasks(store) if isinstance(store, BehindLoop) else answering_threads(owner):
        yield
        assert owner.queue("asked").messages == 0


@contextmanager
def answering_threads(owner: Store) -> Iterator[None]:
    """Those of a store."""
    workers = Workers(owner)
    workers.answer("asked", concurrency=2)(answered)
    thread = threading.Thread(target=workers.run)
    thread.start()
    try:
        yield
    finally:
        workers.stop()
        thread.join(SECONDS)


@contextmanager
def answering_tasks(store: BehindLoop) -> Iterator[None]:
    """Those of a store for asyncio, in its event loop."""
    workers = AsyncWorkers(store._inner)
    workers.answer("asked", concurrency=2)(answered_by_task)
    running = asyncio.run_coroutine_threadsafe(workers.run(), store._loop)
    try:
        yield
    finally:
        store._loop.call_soon_threadsafe(workers.stop)
        running.result(SECONDS)


def test_a_request_is_answered(store: AnyStore, owner: Store) -> None:
    """By what the function returned; request and reply are gone then, and nothing else."""
    with answering(store, owner):
        for _ in range(3):
            reply = store.request("asked", b"abc", SECONDS)
            assert (reply.payload, reply.attributes["quire.type"]) == (b"cba", "reply")
        assert [store.queue(name).messages for name in ("asked", "log", "quire.replies")] == [
            0, 3, 0,
        ]  # fmt: skip


def test_many_ask_at_once(store: AnyStore, owner: Store) -> None:
    """Each gets its own reply out of the queue that they share."""
    found: dict[int, bytes] = {}

    def ask(number: int) -> None:
        found[number] = store.request("asked", b"%d" % number, SECONDS).payload

    with answering(store, owner):
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(10, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
    assert found == {number: str(number)[::-1].encode() for number in range(10, 20)}


def test_an_error_ends_a_request(store: AnyStore, owner: Store) -> None:
    """Of what its function did nothing is there; the client has its words."""
    with answering(store, owner):
        with pytest.raises(RequestFailed, match="no such fruit"):
            store.request("asked", b"bad", SECONDS)
        assert [store.queue(name).messages for name in ("asked", "log", "dead")] == [0, 0, 0]
        session = store.session("till")
        number = session.put("asked", b"bad")
        reply = session.take(number, SECONDS)
        assert reply is not None
        assert (reply.state, reply.reason) == (RequestState.FAILED, "no such fruit")
        assert session.lookup(number).reason == "no such fruit"


def test_a_failure_is_told_when_it_is_final(store: AnyStore, owner: Store) -> None:
    """An exception is tried again, as the queue says; the client has its words at last."""
    with answering(store, owner):
        with pytest.raises(RequestFailed, match="ValueError: it broke"):
            store.request("asked", b"worse", SECONDS)
        assert store.queue("dead").messages == 1
        session = store.session("till")
        number = session.put("asked", b"worse")
        reply = session.result(number, SECONDS)
        assert reply is not None
        assert reply.state == RequestState.FAILED
        assert "it broke" in str(reply.error)


def test_a_message_that_asks_for_nothing_is_handled(store: AnyStore, owner: Store) -> None:
    """As by any handler."""
    with answering(store, owner):
        store.put("asked", b"abc")
        eventually(lambda: owner.queue("log").messages == 1)
        assert owner.queue("asked").messages == 0


def test_a_server_of_ones_own(store: AnyStore, owner: Store, work: str) -> None:
    """`put_reply` is all that it needs; of both kinds."""
    session = store.session("till")
    good, bad = session.put(work, b"x"), session.put(work, b"y")
    with owner.transaction() as txn:
        for error in (None, "no"):
            request = txn.get(work)
            assert request is not None
            put_reply(txn, request, b"done", error=error, attributes={"a": "b"})
    reply = session.take(good, SECONDS)
    assert reply is not None
    assert reply.message is not None
    assert (reply.payload, reply.message.attributes["a"]) == (b"done", "b")
    assert session.resolve(bad) == RequestState.FAILED
    store.put(work, b"z")
    request = owner.get(work)
    assert request is not None
    with owner.transaction() as txn, pytest.raises(InvalidArgument, match="no reply"):
        put_reply(txn, request, b"done")


def test_a_request_that_says_no_sensible_time_is_answered(
    store: AnyStore, owner: Store, work: str
) -> None:
    """Whoever has put it: else it would fail each time it is handled. Its reply has no limit."""
    store.create_queue("told", timed=True)
    for by in ("soon", "-5", "1764000000", "9" * 20):
        store.put(work, b"x", reply_to="told", attributes={"quire.reply_by": by})
        with owner.transaction() as txn:
            request = txn.get(work)
            assert request is not None
            put_reply(txn, request, b"done")
        reply = store.get("told")
        assert reply is not None
        assert (reply.payload, reply.expires_at) == (b"done", None)


def test_nobody_answers(store: AnyStore, owner: Store, clock: Clock, work: str) -> None:
    """A time-out says so. A reply that comes too late expires, and leaves nothing behind."""
    with pytest.raises(RequestTimeout, match="no reply"):
        store.request(work, b"x", 0.1)
    with owner.transaction() as txn:
        request = txn.get(work)
        assert request is not None
        put_reply(txn, request, b"late")
    assert owner.queue("quire.replies").messages == 1
    clock.forward(70)
    eventually(lambda: owner.queue("quire.replies").messages == 0)
    with pytest.raises(QueueNotFound):
        store.request("nowhere", b"x", 0.1)
    with pytest.raises(QueueNotFound):
        store.request(work, b"x", 0.1, replies="nowhere")
    with pytest.raises(InvalidArgument, match="reply_to"):
        store.request(work, b"x", 0.1, reply_to="mine")  # type: ignore[call-arg,unused-ignore]


def test_a_request_that_expires_is_not_waited_for(
    store: AnyStore, owner: Store, clock: Clock
) -> None:
    """Its client is told when it is not executed any more; and its report does not stay."""
    owner.create_queue("timed", timed=True)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            store.request("timed", b"x", 1000, ttl=5)
        except quire.QuireError as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: owner.queue("timed").messages == 1)
    clock.forward(6)
    thread.join(SECONDS)
    assert [type(error) for error in raised] == [RequestFailed]
    assert owner.queue("quire.replies").messages == 0


# What ends a request, and only once ---------------------------------------------------------------


def failing(request: Any, txn: Any) -> bytes:
    """A function that refuses each request for good."""
    raise RequestFailed("no such fruit")


def fine(request: Any, txn: Any) -> bytes:
    """A function that does what it is asked."""
    return b"done"


def test_nobody_else_gets_a_request_that_has_failed_for_good(store: AnyStore) -> None:
    """Not in the moment between its roll-back and its reply, either: it is executed once."""
    store.create_queue("asked")
    store.put("asked", b"x", reply_to="asked", correlation_id="1")

    class InBetween:
        """Begins the transaction that answers, after another worker has asked."""

        def queue(self, name: str) -> Any:
            return store.queue(name)

        def transaction(self, *_: Any) -> Any:
            assert store.get("asked") is None
            return store.transaction()

    with store.transaction() as txn:
        answer_by(InBetween(), "asked", failing)(txn.get("asked", SECONDS), txn)
    told = store.get_many("asked")
    assert [each.attributes["quire.reason"] for each in told] == ["no such fruit"]


def test_a_request_of_a_pattern_fails_once(store: AnyStore) -> None:
    """Its answer takes it from the queue that it came from."""
    for name in ("asked.a", "told"):
        store.create_queue(name)
    store.put("asked.a", b"x", reply_to="told", correlation_id="1")
    with store.transaction() as txn:
        answer_by(store, "asked.*", failing)(txn.get("asked.*", SECONDS), txn)
    assert store.queue("asked.a").messages == 0
    assert store.queue("told").messages == 1


def test_a_request_whose_reply_queue_is_gone_is_done_with(
    store: AnyStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for the reply: else it would be executed for ever."""
    store.create_queue("asked")
    for function in (fine, failing):
        store.put("asked", b"x", reply_to="log", correlation_id="1")
        with store.transaction() as txn:
            answer_by(store, "asked", function)(txn.get("asked", SECONDS), txn)
        assert store.queue("asked").messages == 0
    assert "is not answered: there is no queue 'log'" in caplog.text


# Replies that their queue does not take ----------------------------------------------------------

REFUSING: dict[str, Callable[[AnyStore], object]] = {
    "gone": lambda store: store.drop_queue("told"),
    "typed": lambda store: [
        store.drop_queue("told"),
        store.create_queue("told", schema="n bigint"),
    ],
    "stopped": lambda store: store.alter_queue("told", puts=False),
    "full": lambda store: [store.alter_queue("told", max_messages=1), store.put("told", b"x")],
}


def executed_until_answered(store: AnyStore, function: Any) -> int:
    """How often the request in "asked" is executed, by a function that puts something itself."""
    count = 0

    def execute(request: Any, txn: Any) -> Any:
        nonlocal count
        count += 1
        assert count < 3
        txn.put("log", b"executed")
        return function(request, txn)

    while store.queue("asked").messages:
        with suppress(QueueFull, QueueDisabled, InvalidArgument), store.transaction() as txn:
            execute_next(store, txn, execute)
    return count


def execute_next(store: Any, txn: Any, function: Any) -> None:
    """The request in "asked" by the function, in the transaction."""
    request = txn.get("asked", SECONDS)
    if isinstance(store, BehindLoop):  # as `AsyncWorkers` does
        store, txn = store._inner._inner, txn._inner._inner
    answer_by(store, "asked", function)(request, txn)


@pytest.mark.parametrize(
    ("how", "function"),
    [("gone", fine), ("typed", fine), ("stopped", failing), ("full", fine)],
)
def test_a_reply_that_is_refused_becomes_a_dead_letter(
    store: AnyStore, how: str, function: Any
) -> None:
    """The request is executed once, and its reply can be put back when the cause is mended."""
    for name in ("told", "letters", "log"):
        store.create_queue(name)
    store.create_queue("asked", max_deliveries=5, dead_letter="letters")
    REFUSING[how](store)
    store.put("asked", b"x", reply_to="told", correlation_id="1")
    assert executed_until_answered(store, function) == 1
    assert store.queue("log").messages == (function is fine)
    [letter] = store.browse("letters")
    assert letter.attributes["quire.queue"] == "told"
    assert "told" in letter.attributes["quire.reason"]
    if how in ("gone", "typed"):
        with suppress(QueueNotFound):
            store.drop_queue("told")
        store.create_queue("told")
    else:
        store.alter_queue("told", puts=True, max_messages=None)
        store.get_many("told")
    assert store.admin.redrive("letters") == 1
    [reply] = store.get_many("told")
    assert (reply.payload, reply.correlation_id) == (b"done" * (function is fine), "1")
    state, reason = outcome_of(reply.attributes)
    if function is fine:
        assert (state, reason) == (RequestState.ANSWERED, None)
    else:
        assert (state, reason) == (RequestState.FAILED, "no such fruit")


def test_a_reply_to_no_queue_is_told_by_the_log(
    store: AnyStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there are no dead letters: the request is executed once."""
    store.create_queue("asked")
    store.create_queue("log")
    store.create_queue("rows", schema="n bigint")
    for done, name in enumerate(("rows", "asked/x", "a*"), 1):
        store.put("asked", b"x", reply_to=name, correlation_id="1")
        assert executed_until_answered(store, fine) == 1
        assert store.queue("log").messages == done
        assert f"is not answered: queue {'name ' * (name != 'rows')}'{name}'" in caplog.text


def test_a_put_of_the_function_that_is_refused_is_no_refused_reply(store: AnyStore) -> None:
    """Its request comes again, with nothing put: the reply behind it was refused by that alone."""
    for name in ("told", "letters"):
        store.create_queue(name)
    store.create_queue("narrow", puts=False)
    store.create_queue("asked", dead_letter="letters", max_deliveries=5)
    store.put("asked", b"x", reply_to="told", correlation_id="1")

    def narrow(request: Any, txn: Any) -> bytes:
        txn.put("narrow", b"x")
        return b"done"

    with pytest.raises(QueueDisabled, match="narrow"), store.transaction() as txn:
        execute_next(store, txn, narrow)
    assert [store.queue(name).messages for name in ("asked", "told", "letters")] == [1, 0, 0]


def test_a_function_that_puts_to_its_client_itself(store: AnyStore) -> None:
    """What it has put stands, though the reply finds no room behind it."""
    store.create_queue("told", max_messages=1)
    store.create_queue("letters")
    store.create_queue("log")
    store.create_queue("asked", dead_letter="letters", max_deliveries=5)
    store.put("asked", b"x", reply_to="told", correlation_id="1")

    def tell(request: Any, txn: Any) -> bytes:
        txn.put("told", b"begun")
        return b"done"

    assert executed_until_answered(store, tell) == 1
    assert [store.get_many(name).payloads() for name in ("told", "log", "letters")] == [
        [b"begun"], [b"executed"], [b"done"],
    ]  # fmt: skip


def test_what_a_function_returns_is_its_own_fault(store: AnyStore) -> None:
    """A reply that is no bytes has the request come again, as any failure."""
    store.create_queue("asked")
    store.create_queue("told")
    store.put("asked", b"x", reply_to="told", correlation_id="1")
    with pytest.raises(InvalidArgument), store.transaction() as txn:
        execute_next(store, txn, lambda request, txn: 7)
    assert store.queue("asked").messages == 1


def test_a_queue_that_takes_no_replies_is_refused_before_the_request_is_put(
    store: AnyStore, work: str
) -> None:
    """One that is not there, a topic, a typed one."""
    store.create_queue("rows", schema="n bigint")
    store.create_queue("news", kind="topic")
    for name, error in (
        ("nowhere", QueueNotFound),
        ("rows", InvalidArgument),
        ("news", InvalidArgument),
    ):
        with pytest.raises(error):
            store.request(work, b"x", 0.1, replies=name)
        with pytest.raises(error):
            store.session("till", name)
    assert store.queue(work).messages == 0


def test_a_reply_that_nobody_claims_is_gone_after_a_day(
    store: AnyStore, owner: Store, clock: Clock, work: str
) -> None:
    """Of a client that would have waited for ever, and has died; or by a server of another kind."""
    with pytest.raises(RequestTimeout):
        store.request(work, b"x", 0.0)
    store.get(work)  # the queue for replies is there
    for number in "12":
        store.put(
            work, b"x", reply_to="quire.replies", correlation_id=number
        )  # as by such a client
    with owner.transaction() as txn:
        request = txn.get(work)
        assert request is not None
        put_reply(txn, request, b"y")
        other = txn.get(work)
        assert other is not None
        txn.put("quire.replies", b"y", correlation_id=other.correlation_id)
    assert owner.get("quire.replies", id=1000) is None  # from this look on their time counts
    clock.forward(3600)
    assert owner.queue("quire.replies").messages == 2
    clock.forward(86400)
    eventually(lambda: owner.queue("quire.replies").messages == 0)
