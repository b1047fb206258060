"""Workers: handlers in threads, with a transaction for each message, and a stop that finishes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

import quire
from quire import Workers
from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, QueueNotFound, StoreClosed, SubscriptionNotFound
from quire.limits import MAX_CONCURRENCY, STOP_POLL_SECONDS
from tests.behaviour.forms import FORMS, WITH_CALLBACKS, AnyStore, Clock
from tests.kit.children import child
from tests.kit.moments import Alarm, alarmed, at_moment, some_moments
from tests.kit.open_files import left_open, open_files
from tests.kit.waiting import SECONDS, eventually
from tests.test_callbacks import HIDDEN, LAZY


@pytest.fixture(params=WITH_CALLBACKS)
def store(owner: Store, request: pytest.FixtureRequest) -> Iterator[AnyStore]:
    """Any of them but those for asyncio, which has tasks instead."""
    with FORMS[request.param](owner) as store:
        yield store


@pytest.fixture
def work(store: AnyStore) -> str:
    """A work queue, and one for what is done."""
    store.admin.create_queues([{"name": name, "kind": "work"} for name in ("work", "done")])
    return "work"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Of those that handle messages."""
    yield
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("quire-worker")])


def beside(workers: Workers) -> threading.Thread:
    """They run in a thread of their own."""
    thread = threading.Thread(target=workers.run)
    thread.start()
    return thread


def test_each_message_is_handled_in_a_transaction(store: AnyStore, work: str) -> None:
    """By several threads; what the handler puts is committed with it."""
    workers = Workers(store)
    together = threading.Barrier(3)
    names = set()

    @workers.on(work, concurrency=3)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        if message.payload in (b"0", b"1", b"2"):
            together.wait(SECONDS)
        names.add(threading.current_thread().ident)
        txn.put("done", message.payload)

    payloads = [b"%d" % n for n in range(30)]
    store.put_many(work, payloads)
    thread = beside(workers)
    eventually(lambda: store.queue("done").messages == 30)
    workers.stop()
    thread.join()
    assert len(names) == 3
    assert sorted(store.get_many("done").payloads()) == sorted(payloads)
    assert store.get(work) is None
    [info] = workers.status()
    assert (info.source, info.running, info.handled, info.failures) == (work, 0, 30, 0)
    assert info.handler.endswith("handle")
    assert info.last_error is None


def test_several_handlers_and_batches(store: AnyStore, work: str) -> None:
    """Each for its source, a topic's subscription too; a batch is one transaction."""
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "a")
    workers = Workers(store)
    sizes = []

    @workers.on(work, max_messages=10)
    def take(messages: quire.Messages, txn: quire.Transaction) -> None:
        sizes.append(len(messages))
        txn.put_many("topic", messages.payloads())

    @workers.on("topic/a")
    def pass_on(message: quire.Message, txn: quire.Transaction) -> None:
        txn.put("done", message.payload)

    store.put_many(work, [b"x"] * 25)
    thread = beside(workers)
    eventually(lambda: store.queue("done").messages == 25)
    workers.stop()
    thread.join()
    assert sizes == [10, 10, 5]
    assert [info.handled for info in workers.status()] == [3, 25]


def test_a_failure_is_rolled_back_logged_and_counted(
    store: AnyStore, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The message comes again later, and the thread goes on with the next one."""
    workers = Workers(store, retry={"delay": 0.05})
    counts = []

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        txn.put("done", message.payload)
        counts.append((message.payload, message.delivery_count))
        if counts[-1] in ((b"1", 1), (b"1", 2)):
            raise ZeroDivisionError("by design")

    store.put_many(work, [b"1", b"2"])
    with caplog.at_level(logging.ERROR, "quire.workers"):
        thread = beside(workers)
        eventually(lambda: store.queue("done").messages == 2)
        workers.stop()
        thread.join()
    assert counts[0] == (b"1", 1)
    assert sorted(counts) == [(b"1", 1), (b"1", 2), (b"1", 3), (b"2", 1)]
    assert sorted(store.get_many("done").payloads()) == [b"1", b"2"]
    [info] = workers.status()
    assert (info.handled, info.failures, workers.failures) == (2, 2, 2)
    assert info.last_error == "ZeroDivisionError: by design"
    told = [record for record in caplog.records if record.name == "quire.workers"]
    assert len(told) == 2
    assert "delivery 1" in told[0].getMessage()
    assert told[0].exc_info is not None


@pytest.mark.parametrize("handler", LAZY)
def test_a_handler_that_would_do_nothing_is_refused(
    store: AnyStore, work: str, handler: Callable[..., Any]
) -> None:
    """Its messages would be gone; the error says what there is for coroutines."""
    with pytest.raises(InvalidArgument, match=r"quire\.aio"):
        Workers(store).on(work)(handler)


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_handler_that_returns_its_work_has_failed(
    store: AnyStore, work: str, hidden: Callable[..., Any]
) -> None:
    """The message is there again, and the error is told: nothing is handled by not being done."""
    workers = Workers(store)

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> Any:
        txn.put("done", message.payload)
        if message.delivery_count == 2:
            workers.stop()
        return hidden()

    store.put(work, b"1")
    workers.run()
    [info] = workers.status()
    assert (info.handled, info.failures) == (0, 2)
    assert info.last_error is not None
    assert "whose work is not done" in info.last_error
    assert store.get("done") is None
    message = store.get(work, timeout=SECONDS)
    assert message is not None
    assert (message.payload, message.delivery_count) == (b"1", 3)


def run_until(workers: Workers, condition: Callable[[], object]) -> None:
    """They are stopped then."""
    thread = beside(workers)
    try:
        eventually(condition)
    finally:
        workers.stop()
        thread.join()


def failing(workers: Workers, source: str, **how: Any) -> list[tuple[bytes, int]]:
    """A handler that fails with what begins with "x"; what it got, and the delivery of each."""
    seen: list[tuple[bytes, int]] = []

    @workers.on(source, **how)
    def handle(given: Any, txn: quire.Transaction) -> None:
        messages = [given] if isinstance(given, quire.Message) else list(given)
        seen.extend((m.payload, m.delivery_count) for m in messages)
        for message in messages:
            txn.put("done", message.payload)
            if message.payload.startswith(b"x"):
                raise ValueError(f"poison {message.payload!r}")

    return seen


def test_a_message_that_always_fails_stops_nobody(store: AnyStore, work: str, clock: Clock) -> None:
    """It comes again, later each time, and what is behind it is handled."""
    workers = Workers(store)
    seen = failing(workers, work)
    store.put_many(work, [b"x", *(b"%d" % number for number in range(5))])
    run_until(workers, lambda: store.queue("done").messages == 5)
    assert seen[0] == (b"x", 1)
    for delivery in (2, 3, 4):
        clock.forward(600)
        run_until(workers, lambda now=delivery: (b"x", now) in seen)  # type: ignore[misc]
    assert [payload for payload, _ in seen].count(b"x") == 4
    assert store.queue(work).messages == 1
    with store.transaction() as txn:
        assert txn.get(work) is None  # five minutes are not over


def test_workers_wait_as_they_or_the_queue_say(store: AnyStore, work: str, clock: Clock) -> None:
    """The queue's own policy is the one that counts."""
    store.create_queue("other", kind="work", retry={"delay": 1000.0})
    workers = Workers(store, retry={"delay": 5000.0, "growth": "constant"})
    seen, others = failing(workers, work), failing(workers, "other")
    for queue in (work, "other"):
        store.put_many(queue, [b"x", b"good"])
    run_until(workers, lambda: store.queue("done").messages == 2)
    clock.forward(1100)
    run_until(workers, lambda: (b"x", 2) in others)
    assert seen == [(b"x", 1), (b"good", 1)]
    clock.forward(4000)
    run_until(workers, lambda: (b"x", 2) in seen)
    for wrong in (None, 1.0, {"delay": 0}, {}):
        with pytest.raises(InvalidArgument, match="retry"):
            Workers(store, retry=wrong)  # type: ignore[arg-type]


def test_a_message_that_fails_too_often_is_a_dead_letter(store: AnyStore, clock: Clock) -> None:
    """With the error as its reason; only its own deliveries are counted."""
    store.admin.create_queues(["dead", "done"])
    store.create_queue("work", max_deliveries=3, dead_letter="dead")
    workers = Workers(store, retry={"delay": 0.01})
    seen = failing(workers, "work")
    store.put_many("work", [b"x", b"good"])
    run_until(workers, lambda: store.queue("dead").messages == 1)
    letter = store.get("dead")
    assert letter is not None
    assert letter.attributes["quire.reason"] == "ValueError: poison b'x'"
    assert sorted(seen) == [(b"good", 1), (b"x", 1), (b"x", 2), (b"x", 3)]


def test_a_batch_that_fails_is_taken_one_by_one(store: AnyStore, work: str) -> None:
    """So its good messages are handled, and then as many at once as before."""
    workers = Workers(store)
    seen = failing(workers, work, max_messages=4)
    store.put_many(work, [b"1", b"x", b"2", b"3", b"4", b"5", b"6"])
    run_until(workers, lambda: store.queue("done").messages == 6)
    assert [payload for payload, count in seen if count == 2] == [b"1", b"x", b"2", b"3"]
    assert sorted(payload for payload, count in seen if count == 1) == [
        b"1", b"2", b"3", b"4", b"5", b"6", b"x",
    ]  # fmt: skip
    assert workers.status()[0].handled == 4  # three by themselves, and the other three


def test_where_order_demands_it_they_wait(store: AnyStore, clock: Clock) -> None:
    """A group for its message; a sequence, and an exclusive subscription, as a whole."""
    store.create_queue("done")
    store.create_queue("groups", grouped=True)
    store.create_queue("numbers", order={"sequence": "n"})
    store.create_queue("topic", kind="topic")
    store.subscribe("topic", "one", exclusive=True)
    workers = Workers(store)
    seen = {name: failing(workers, name) for name in ("groups", "numbers", "topic/one")}
    for payload, group in ((b"x", "a"), (b"1", "a"), (b"2", "b")):
        store.put("groups", payload, group_key=group)
    for number, payload in enumerate((b"x", b"1")):
        store.put("numbers", payload, attributes={"n": str(number + 1)})
        store.put("topic", payload)
    run_until(workers, lambda: all((b"x", 2) in got for got in seen.values()))
    assert (b"2", 1) in seen["groups"]
    for got in seen.values():
        assert b"1" not in [payload for payload, _ in got]


def test_delays_last_over_a_restart(store_path: str) -> None:
    """Of a queue of default options: what has failed comes when it is due, and not before."""
    with quire.open(store_path) as store:
        store.admin.create_queues(["work", "done"])
        store.put_many("work", [b"x", b"1"])
        workers = Workers(store, retry={"delay": 3600.0})
        failing(workers, "work")
        run_until(workers, lambda: store.queue("done").messages == 1)
    with quire.open(store_path) as store:
        assert store.get("work") is None
        assert store.queue("work").messages == 1


def test_what_is_not_the_message_s_fault_is_there_at_once(store: AnyStore, work: str) -> None:
    """No room for what a handler puts: it does not wait for its turn, and the next is not taken."""
    store.create_queue("small", max_messages=1)
    store.put("small", b"in the way")
    workers = Workers(store)
    seen = []

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        seen.append(message.payload)
        txn.put("small", message.payload, timeout=0.0)

    store.put_many(work, [b"1", b"2"])
    run_until(workers, lambda: len(seen) == 2)
    assert seen[:2] == [b"1", b"1"]
    assert store.get_many(work).payloads() == [b"1", b"2"]


def test_a_commit_that_fails_is_a_failure(store: AnyStore, work: str) -> None:
    """What the handler put has no room: the message is there again."""
    store.create_queue("small", kind="work", max_messages=1)
    store.put("small", b"in the way")
    workers = Workers(store)

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        if message.delivery_count == 2:
            workers.stop()
        txn.put("small", message.payload)

    store.put(work, b"1")
    workers.run()
    assert workers.failures == 2
    assert store.get_many(work).payloads() == [b"1"]


def test_a_stop_finishes_what_is_in_work(store: AnyStore, work: str) -> None:
    """Its transaction commits; no other message is taken."""
    workers = Workers(store)
    begun, go_on = threading.Event(), threading.Event()

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        begun.set()
        assert go_on.wait(SECONDS)
        txn.put("done", message.payload)

    store.put_many(work, [b"1", b"2"])
    thread = beside(workers)
    assert begun.wait(SECONDS)
    assert repr(workers) == "<Workers of work, 1 threads>"
    assert workers.status()[0].running == 1
    workers.stop()
    go_on.set()
    thread.join()
    assert repr(workers) == "<Workers of work, not running>"
    assert store.get_many("done").payloads() == [b"1"]
    assert store.get_many(work).payloads() == [b"2"]


def test_what_is_not_finished_in_time_is_rolled_back(
    store: AnyStore, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` returns, and the message is there for others, whatever its handler still does."""
    workers = Workers(store, grace=0.0)
    begun, go_on = threading.Event(), threading.Event()

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        txn.put("done", message.payload)
        begun.set()
        assert go_on.wait(SECONDS)

    store.put(work, b"1")
    other = store.transaction()  # of somebody else
    other.put("done", b"other")
    thread = beside(workers)
    assert begun.wait(SECONDS)
    workers.stop()
    thread.join()
    try:
        assert "has not ended in time" in caplog.text
        message = store.get(work)
        assert message is not None
        assert (message.payload, message.delivery_count) == (b"1", 2)
    finally:
        go_on.set()
    other.commit()
    eventually(lambda: workers.failures == 1)
    assert store.get_many("done").payloads() == [b"other"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_them(store: AnyStore, work: str, number: signal.Signals) -> None:
    """As `stop` does; what the signals did before they do again."""
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    workers = Workers(store)

    @workers.on(work, concurrency=2)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        os.kill(os.getpid(), number)
        txn.put("done", message.payload)

    store.put(work, b"1")
    workers.run()
    assert store.get_many("done").payloads() == [b"1"]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_second_signal_ends_the_grace(store: AnyStore, work: str) -> None:
    """Whoever presses Ctrl-C twice does not wait for the handler."""
    workers = Workers(store, grace=10 * SECONDS)
    go_on = threading.Event()

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        while not go_on.is_set():
            os.kill(os.getpid(), signal.SIGINT)
            go_on.wait(0.1)

    store.put(work, b"1")
    before = signal.signal(signal.SIGINT, lambda *_: None)  # one may come when `run` has returned
    try:
        workers.run()
        go_on.set()
        eventually(lambda: workers.status()[0].running == 0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert store.get_many(work).payloads() == [b"1"]


def test_another_stop_ends_no_grace(store: AnyStore, work: str) -> None:
    """Each of several handlers may call it: what the others have in work is finished."""
    workers = Workers(store, grace=10 * SECONDS)
    stopped, go_on = threading.Event(), threading.Event()

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        workers.stop()
        eventually(lambda: workers._threads[0]._stopping)
        for _ in range(3):
            workers.stop()
        stopped.set()
        assert go_on.wait(SECONDS)
        txn.put("done", message.payload)

    store.put(work, b"1")
    thread = beside(workers)
    assert stopped.wait(SECONDS)
    thread.join(3 * STOP_POLL_SECONDS)
    assert thread.is_alive()
    go_on.set()
    thread.join()
    assert store.get_many("done").payloads() == [b"1"]


def test_what_a_signal_raises_while_they_finish_is_raised_at_the_end(
    store: AnyStore, work: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends the grace: what is in work is rolled back then, and its thread ends when it can."""
    workers = Workers(store, grace=10 * SECONDS)
    go_on = threading.Event()

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        txn.put("done", message.payload)
        os.kill(os.getpid(), signal.SIGTERM)
        eventually(lambda: workers._threads[0]._stopping)
        os.kill(os.getpid(), signal.SIGALRM)
        assert go_on.wait(SECONDS)

    store.put(work, b"1")
    with alarmed(), pytest.raises(Alarm):
        workers.run()
    assert store.get_many(work).payloads() == [b"1"]
    go_on.set()
    eventually(lambda: not workers.status()[0].running)
    assert "descriptor" not in caplog.text
    assert workers._threads[0].run.ended_by is None
    assert not store.get_many("done")


@pytest.mark.parametrize("most", [6, pytest.param(0, marks=pytest.mark.long)])
def test_an_interrupt_at_any_step_leaves_no_thread_and_no_file(
    store: AnyStore, work: str, rng: Random, most: int
) -> None:
    """Of `run`, from its begin to its end: each message was handled, or is there."""

    def prepared() -> Workers:
        """Workers, and a message with which they end."""
        store.put(work, b"1")
        workers = Workers(store)

        @workers.on(work)
        def handle(message: quire.Message, txn: quire.Transaction) -> None:
            txn.put("done", message.payload)
            workers.stop()

        return workers

    moments = list(some_moments(prepared().run, rng, most, last=2))
    store.get_many("done")
    before = open_files()
    for moment in moments:
        workers = prepared()
        at_moment(workers.run, moment)
        assert repr(workers) == "<Workers of work, not running>", moment
        eventually(lambda workers=workers: not any(each.running for each in workers.status()))  # type: ignore[misc]
        found = [*store.get_many("done"), *store.get_many(work)]
        assert (moment, len(found)) == (moment, 1)
    assert not left_open(before, apart_from=store.path)
    if isinstance(store, Store):  # the owner, which has the store's files
        store.close()
        assert not [name for name in open_files() if name.startswith(f"{store.path}/")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_of_workers_ends_by_a_signal(store_path: str, number: signal.Signals) -> None:
    """With the message in work done, the store closed, and status 0."""
    code = """
import sys, time, quire
with quire.open(sys.argv[1]) as store:
    store.admin.create_queues([{"name": n, "kind": "work"} for n in ("work", "done")])
    store.put("work", b"1")
    workers = quire.Workers(store)
    @workers.on("work")
    def handle(message, txn):
        print("begun", flush=True)
        sys.stdin.readline()
        txn.put("done", message.payload)
    workers.run()
    print([m.payload for m in store.get_many("done")], flush=True)
"""
    with child(code, store_path) as process:
        assert process.line() == "begun"
        process.process.send_signal(number)
        process.say("go on")
        assert process.line() == "[b'1']"
        assert process.wait() == 0


def test_a_store_that_is_closed_ends_them(store: AnyStore, work: str) -> None:
    """`run` raises it."""
    workers = Workers(store)
    closing = threading.Thread(target=store.close)

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        closing.start()

    store.put(work, b"1")
    with pytest.raises(StoreClosed):
        workers.run()
    closing.join()  # else its files go before


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("by design")])
def test_a_handler_that_ends_its_thread_ends_them_all(
    store: AnyStore, work: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """`run` raises what it raised, as if it were its own thread; the message is there again."""
    workers = Workers(store)

    @workers.on(work, concurrency=2)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        raise error

    message_id = store.put(work, b"1")
    with pytest.raises(type(error)) as caught:
        workers.run()
    assert caught.value is error
    [info] = workers.status()
    assert (info.handled, info.running) == (0, 0)
    assert info.failures >= 1  # the other thread may have taken it once more
    assert info.last_error == f"{type(error).__name__}: {error}"
    shown = f"failed with message {message_id} of queue {work!r}, delivery 1: it is rolled back"
    assert shown in caplog.text
    assert store.get_many(work).payloads() == [b"1"]


def test_a_program_whose_handler_exits_has_its_status(store_path: str) -> None:
    """It does not look as if it had been told to end."""
    code = """
import sys, quire
with quire.open(sys.argv[1]) as store:
    store.create_queue("work", kind="work")
    store.put("work", b"1")
    workers = quire.Workers(store)
    workers.on("work")(lambda message, txn: sys.exit(3))
    workers.run()
"""
    with child(code, store_path) as process:
        assert process.wait() == 3


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit])
def test_what_is_no_exception_is_a_failure(
    store: AnyStore, work: str, error: type[BaseException]
) -> None:
    """As when a task that a handler has run was cancelled: the thread goes on."""
    workers = Workers(store)

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        if message.delivery_count == 1:
            raise error
        workers.stop()

    store.put(work, b"1")
    workers.run()
    [info] = workers.status()
    assert (info.handled, info.failures) == (1, 1)


def test_they_can_be_stopped_before_they_run_and_run_again(store: AnyStore, work: str) -> None:
    """The first `run` returns at once."""
    workers = Workers(store)
    seen: Counter[bytes] = Counter()

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        seen[message.payload] += 1
        workers.stop()

    workers.stop()
    workers.run()
    store.put_many(work, [b"1", b"2"])
    for n in (1, 2):
        workers.run()
        assert sum(seen.values()) == n
        assert workers.status()[0].handled == 1


def test_what_they_take(store: AnyStore, work: str) -> None:
    """Sources that are there, numbers in their bounds, one run at a time."""
    store.create_queue("topic", kind="topic")
    handlers: list[tuple[str, type[Exception]]] = [
        ("nowhere", QueueNotFound),
        ("topic/nobody", SubscriptionNotFound),
        ("topic", InvalidArgument),
        ("work/nobody", InvalidArgument),
    ]
    for source, error in handlers:
        workers = Workers(store)
        workers.on(source)(print)
        with pytest.raises(error):
            workers.run()
    workers = Workers(store)
    wrong: list[dict[str, Any]] = [
        {"source": 7},
        {"concurrency": 0},
        {"concurrency": MAX_CONCURRENCY + 1},
        {"concurrency": True},
        {"max_messages": 0},
    ]
    for each in wrong:
        with pytest.raises(InvalidArgument):
            workers.on(**{"source": work, **each})
    refused: list[Callable[[], object]] = [
        workers.run,  # nothing to do
        lambda: workers.on(work)(None),  # type: ignore[type-var]
        lambda: Workers(store, grace=-1.0),
    ]
    for call in refused:
        with pytest.raises(InvalidArgument):
            call()
    errors: list[Exception] = []

    @workers.on(work)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        try:
            workers.run()
        except InvalidArgument as error:
            errors.append(error)
        workers.stop()

    store.put(work, b"1")
    workers.run()
    assert len(errors) == 1
