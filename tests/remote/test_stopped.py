"""An owner that is stopped (SIGSTOP, a debugger, swap): every call of the others has an end.

Nobody takes over, as the owner has its lock. When it goes on, all go on, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import quire.aio
from quire.aio import AsyncTransaction
from quire.block import encode_one
from quire.env import OsEnv
from quire.errors import ConnectionLost, OutcomeUnknown, QuireError, StoreLocked
from quire.interface.integration import TransactionIntegration
from quire.interface.store import Store
from quire.interface.transaction import Transaction
from quire.ltds import new_id
from quire.messages.message import Message
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.client.joining import join
from quire.remote.wire.named_calls import NAMESPACES
from tests.kit.actors import OPTIONS, Actor, actor
from tests.kit.children import is_stopped
from tests.kit.waiting import SECONDS, eventually

CALL_TIMEOUT = 2.0
WORK_SECONDS = 0.002  # of a processor, between two stops
PROCESS_CLOCK = 2  # in a clock's number: the processor time of all threads
LONG = 60.0  # within which all ends on a busy machine, and far from "for ever"
LOOK = (ConnectionLost,)
CHANGE = (OutcomeUnknown, ConnectionLost)  # the latter, where it was not sent

Calls = dict[str, tuple[Callable[[Any], object], tuple[type[QuireError], ...]]]

# Every call of a store that asks its owner.
STORE: Calls = {
    "create_queue": (lambda s: s.create_queue("new", kind="topic"), CHANGE),
    "admin.create_queues": (lambda s: s.admin.create_queues(["new"]), CHANGE),
    "alter_queue": (lambda s: s.alter_queue("work", capacity=1 << 30), CHANGE),
    "admin.rename_queue": (lambda s: s.admin.rename_queue("other", "another"), CHANGE),
    "drop_queue": (lambda s: s.drop_queue("other"), CHANGE),
    "admin.purge": (lambda s: s.admin.purge("other"), CHANGE),
    "admin.create_alias": (lambda s: s.admin.create_alias("alias", "other"), CHANGE),
    "admin.drop_alias": (lambda s: s.admin.drop_alias("alias"), CHANGE),
    "admin.aliases": (lambda s: s.admin.aliases(), LOOK),
    "admin.switch": (lambda s: s.admin.switch(), CHANGE),
    "cron.create": (lambda s: s.cron.create("s", "other", "0 0 1 1 *"), CHANGE),
    "cron.alter": (lambda s: s.cron.alter("s", paused=True), CHANGE),
    "cron.drop": (lambda s: s.cron.drop("s"), CHANGE),
    "cron.list": (lambda s: s.cron.list(), LOOK),
    "admin.catalog": (lambda s: s.admin.catalog(), LOOK),
    "admin.queue_names": (lambda s: s.admin.queue_names("w"), LOOK),
    "queue": (lambda s: s.queue("work"), LOOK),
    "queues": (lambda s: s.queues(), LOOK),
    "integration.positions": (lambda s: s.integration.positions("work"), LOOK),
    "integration.positions_many": (lambda s: s.integration.positions_many(["work"]), LOOK),
    "admin.position_at": (lambda s: s.admin.position_at("work", 1.0), LOOK),
    "admin.explain": (lambda s: s.admin.explain("work"), LOOK),
    "admin.queue_records": (lambda s: s.admin.queue_records("work"), LOOK),
    "subscribe": (lambda s: s.subscribe("topic", "one"), CHANGE),
    "integration.subscribe_many": (
        lambda s: s.integration.subscribe_many("one", {"topic": "latest"}),
        CHANGE,
    ),
    "unsubscribe": (lambda s: s.unsubscribe("topic", "zero"), CHANGE),
    "subscriptions": (lambda s: s.subscriptions("topic"), LOOK),
    "sync": (lambda s: s.sync(), CHANGE),
    "admin.transactions": (lambda s: s.admin.transactions(), LOOK),
    "admin.transaction": (lambda s: s.admin.transaction(1), LOOK),
    "admin.shutdown": (lambda s: s.admin.shutdown(), CHANGE),
    "admin.abort": (lambda s: s.admin.abort(1), CHANGE),
    "prepared.list": (lambda s: s.prepared.list(), LOOK),
    "prepared.commit": (lambda s: s.prepared.commit("xid"), CHANGE),
    "prepared.rollback": (lambda s: s.prepared.rollback("xid"), CHANGE),
    "put": (lambda s: s.put("other", b"x"), CHANGE),
    "put_many": (lambda s: s.put_many("other", [b"x"]), CHANGE),
    "put_stream": (lambda s: s.put_stream("other", b"x"), CHANGE),
    "get": (lambda s: s.get("work", timeout=1), LOOK),
    "get_many": (lambda s: s.get_many("work", timeout=1), LOOK),
    "browse": (lambda s: s.browse("work"), LOOK),
    "delayed.list": (lambda s: s.delayed.list("work"), LOOK),
    "delayed.cancel": (lambda s: s.delayed.cancel("work", 1), LOOK),
    "delayed.reschedule": (lambda s: s.delayed.reschedule("work", 1, delay=1), LOOK),
    "admin.redrive": (lambda s: s.admin.redrive("other"), CHANGE),
    "admin.move": (lambda s: s.admin.move("other", "work"), CHANGE),
    "integration.put_priorities": (lambda s: s.integration.put_priorities(), LOOK),
    "integration.ledger": (lambda s: s.integration.ledger("key"), LOOK),
    "integration.ledger_many": (lambda s: s.integration.ledger_many(["key"]), LOOK),
    "states.get": (lambda s: s.states.get("name", "key"), LOOK),
    "states.items": (lambda s: s.states.items("name"), LOOK),
    "states.names": (lambda s: s.states.names(), LOOK),
    "states.drop": (lambda s: s.states.drop("name"), CHANGE),
    "listeners.add": (lambda s: s.listeners.add("work"), LOOK),
    "listeners.poll_notices": (lambda s: s.listeners.poll_notices("work"), LOOK),
    "listeners.list": (lambda s: s.listeners.list(), LOOK),
    "listeners.remove": (lambda s: s.listeners.remove("name"), LOOK),
    "session": (lambda s: s.session("name"), CHANGE),
    "request": (lambda s: s.request("other", b"x", 1), CHANGE),
    "integration.lease": (lambda s: s.integration.lease("work", 0, 1), CHANGE),
    "integration.lease_many": (lambda s: s.integration.lease_many([("work", 0, 1)]), CHANGE),
    "integration.lease_names": (lambda s: s.integration.lease_names(["work/s"]), CHANGE),
    "integration.lease_state": (lambda s: s.integration.lease_state(), CHANGE),
    "integration.renew_lease": (lambda s: s.integration.renew_lease(1), CHANGE),
    "integration.end_lease": (lambda s: s.integration.end_lease(1), CHANGE),
    "integration.read_places": (
        lambda s: s.integration.read_places("q", [("data", 0, 0, 1)]),
        LOOK,
    ),
    "integration.file_size": (lambda s: s.integration.file_size("work", 1 << 62), LOOK),
    "integration.read_fragment": (lambda s: s.integration.read_fragment(1 << 62, 0, 1), LOOK),
    "integration.write_fragment": (
        lambda s: s.integration.write_fragment("q", 1 << 62, 0, b"1"),
        CHANGE,
    ),
    "integration.remove_fragments": (lambda s: s.integration.remove_fragments([1 << 62]), CHANGE),
    "integration.ship": (lambda s: s.integration.ship(), CHANGE),
    "integration.archive_boundary": (lambda s: s.integration.archive_boundary(1), CHANGE),
    "admin.set_archive": (lambda s: s.admin.set_archive("/proc/none/archive"), CHANGE),
    "admin.archive": (lambda s: s.admin.archive(), LOOK),
    "admin.stop_archive": (lambda s: s.admin.stop_archive(), CHANGE),
    "admin.checkpoint": (lambda s: s.admin.checkpoint(), CHANGE),
    "admin.compact": (lambda s: s.admin.compact(), CHANGE),
    "status": (lambda s: s.status(), LOOK),
    "admin.verify": (lambda s: s.admin.verify(), LOOK),
}
# Those that ask nobody, or are looked at beside the table.
BESIDE = {"transaction", "consume", "close", "integration.when_ready"}
BESIDE_IN_TRANSACTION = {"rollback"}

BLOCK = bytes(encode_one(b"x"))
FILE = new_id(OsEnv(), foreign=True)  # which nobody has written


def written(txn: Any) -> None:
    """A message that is put piece by piece."""
    with txn.put_writer("other") as writer:
        writer.write(b"x" * 100_000)


def then_commit(call: Callable[[Any], object]) -> Callable[[Any], object]:
    """For what is only noted or told, and asks nobody."""

    def calls(txn: Any) -> None:
        call(txn)
        txn.commit()

    return calls


# Every call of a transaction that has begun at its owner.
TRANSACTION: Calls = {
    "put_writer": (written, LOOK),
    "integration.put_block": (
        then_commit(lambda t: t.integration.put_block("other", BLOCK)),
        CHANGE,
    ),
    "integration.put_blocks": (
        then_commit(lambda t: t.integration.put_blocks([("other", BLOCK)])),
        CHANGE,
    ),
    "integration.adopt": (then_commit(lambda t: t.integration.adopt("other", FILE)), CHANGE),
    "move": (lambda t: t.move("work", "other"), LOOK),
    "reject": (lambda t: t.reject(Message(1, "work", b"x"), "bad"), LOOK),
    "extend": (lambda t: t.extend(60), LOOK),
    "enter": (then_commit(lambda t: t.enter("key", 1)), CHANGE),
    "set_value": (then_commit(lambda t: t.set_value("name", "key", b"x")), CHANGE),
    "put": (lambda t: t.put("other", b"x", timeout=1), LOOK),
    "put_many": (lambda t: t.put_many("other", [b"x"], timeout=1), LOOK),
    "put_stream": (lambda t: t.put_stream("other", b"x"), LOOK),
    "get": (lambda t: t.get("work", timeout=1), LOOK),
    "get_many": (lambda t: t.get_many("work", timeout=1), LOOK),
    "get_arrow": (lambda t: t.get_arrow("work", timeout=1), LOOK),
    "read": (lambda t: t.read("work", timeout=1), LOOK),
    "read_many": (lambda t: t.read_many("work", timeout=1), LOOK),
    "browse": (lambda t: t.browse("work"), LOOK),
    "describe": (lambda t: t.describe("work", timeout=1), LOOK),
    "attributes": (lambda t: t.attributes("work", 1), LOOK),
    "count": (lambda t: t.count("work", timeout=1), LOOK),
    "exists": (lambda t: t.exists("work", timeout=1), LOOK),
    "remove": (lambda t: t.remove("work", 1, timeout=1), LOOK),
    "get_delayed": (lambda t: t.get_delayed("work", 1), LOOK),
    "unget": (lambda t: t.unget(), LOOK),
    "read_to": (lambda t: t.read_to("work", 0), LOOK),
    "integration.read_to_many": (lambda t: t.integration.read_to_many({"work": 0}), LOOK),
    "seek": (lambda t: t.seek("topic/zero", "latest", timeout=1), LOOK),
    "get_value": (lambda t: t.get_value("name", "key"), LOOK),
    "commit": (lambda t: t.commit(), CHANGE),
    "prepare": (lambda t: t.prepare("mine"), CHANGE),
}


@contextmanager
def stopped(owner: Actor) -> Iterator[None]:
    """For the length of a block it does nothing."""
    os.kill(owner.process.pid, signal.SIGSTOP)
    try:
        eventually(lambda: is_stopped(owner.process.pid))
        yield
    finally:
        os.kill(owner.process.pid, signal.SIGCONT)


def cpu_seconds(owner: Actor) -> float:
    """Return the processor time of its process: the clock of another process has this number."""
    return time.clock_gettime((~owner.process.pid << 3) | PROCESS_CLOCK)


@pytest.fixture
def owner(store_path: str) -> Iterator[Actor]:
    """A process that owns the store, with ten messages in "work"."""
    with actor(store_path) as process:
        assert process.role == "owner"
        for name, kind in (("work", "work"), ("other", "work"), ("topic", "topic")):
            process.ask(f"store.create_queue({name!r}, kind={kind!r})")
        process.ask('store.subscribe("topic", "zero")')
        process.ask('store.put_many("work", [b"x"] * 10)')
        yield process


@pytest.fixture(params=["joined", "elected"])
def store(owner: Actor, store_path: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """The store, joined by this process, which waits for no call for long."""
    if request.param == "joined":
        joined = join(OsEnv(), store_path, CALL_TIMEOUT)
        assert isinstance(joined, JoinedStore)
        with joined:
            yield joined
    else:
        with open_store(store_path, call_timeout=CALL_TIMEOUT, **OPTIONS) as elected:
            assert isinstance(elected, JoinedStore)
            yield elected


class Beside(threading.Thread):
    """A call in a thread of its own, and what it raises."""

    def __init__(self, name: str, call: Callable[[], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._call = call
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - looked at
            self.error = error


def methods(kind: type, path: str = "") -> set[str]:
    """Its own, as far as they are calls, by the path to them."""
    own = {n for n, v in vars(kind).items() if callable(v) and not n.startswith("_")}
    return {f"{path}{name}" for name in own}


def test_the_table_has_all_calls() -> None:
    """One that is added comes to the table, too."""
    calls = methods(Store).union(*(methods(kind, f"{n}.") for n, kind in NAMESPACES.items()))
    assert calls == set(STORE) | BESIDE
    steps = methods(Transaction) | methods(TransactionIntegration, "integration.")
    assert steps == set(TRANSACTION) | BESIDE_IN_TRANSACTION


def check(calls: list[Beside], table: Calls) -> None:
    """Each has an end, and says what it must."""
    for call in calls:
        call.join(LONG)
        assert not call.is_alive(), call.name
        assert isinstance(call.error, table[call.name][1]), (call.name, call.error)


def goes_on(owner: Actor, store: Store) -> None:
    """All ten messages are there, one after another, for the same store object."""
    eventually(lambda: [q.messages for q in store.queues(["work"])] == [10])
    eventually(lambda: not store.admin.transactions())
    assert store.role == "joined"
    with store.transaction() as txn:
        assert len(txn.get_many("work")) == 10
    assert store.queue("work").messages == 0
    assert owner.ask("store.admin.verify().ok") == "True"


@pytest.mark.promise(12)
@pytest.mark.parametrize("seconds", [0.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_every_call_has_an_end(owner: Actor, store: Store, seconds: float) -> None:
    """All of them at once; then the owner goes on, and so does the store object."""
    begun = [store.transaction() for _ in TRANSACTION]
    for txn in begun:
        assert txn.get("topic/zero") is None  # it has reached the owner
    assert store.queue("other").messages == 0  # its name is known from now on
    since = time.monotonic()
    with stopped(owner):
        calls = [Beside(name, partial(call, store)) for name, (call, _) in STORE.items()]
        inner = [
            Beside(name, partial(call, txn))
            for txn, (name, (call, _)) in zip(begun, TRANSACTION.items(), strict=True)
        ]
        check(calls, STORE)
        check(inner, TRANSACTION)
        for txn in begun:
            assert txn.state in ("rolled back", "in doubt")
            txn.rollback()
        with pytest.raises(ConnectionLost):
            assert store.failed
        assert store.role == "joined"
        time.sleep(max(0.0, since + seconds - time.monotonic()))
    eventually(lambda: "work" in {q.name for q in store.queues()})
    for xid in [info.xid for info in store.prepared.list()]:
        store.prepared.rollback(xid)
    eventually(lambda: not store.admin.transactions())
    assert store.role == "joined"
    left = store.queue("work").messages
    with store.transaction() as txn:
        assert len(txn.get_many("work")) == left
    assert owner.ask("store.admin.verify().ok") == "True"


def test_loops_have_an_end(owner: Actor, store: Store) -> None:
    """One with a time-out ends by it; one without waits, and goes on with its owner."""
    found: list[bytes] = []

    def handle() -> None:
        with store.consume("other") as messages:
            for message in messages:
                found.append(message.payload)
                messages.stop()

    def limited() -> None:
        with store.consume("topic/zero", timeout=1) as messages:
            for _ in messages:
                raise AssertionError("nobody puts there")

    loop = Beside("loop", handle)
    eventually(lambda: "quire-await" in {thread.name for thread in threading.enumerate()})
    with stopped(owner):
        short = Beside("limited", limited)
        short.join(LONG)
        assert not short.is_alive()
        assert short.error is None or isinstance(short.error, ConnectionLost)
        assert loop.is_alive() or isinstance(loop.error, ConnectionLost)
    if loop.is_alive():
        store.put("other", b"1")
        loop.join(SECONDS)
        assert found == [b"1"]
    goes_on(owner, store)


def test_what_is_handed_out_to_nobody_is_given_back(owner: Actor, store: Store) -> None:
    """The get was given up, and the owner reads it when it goes on."""
    txn = store.transaction()
    assert txn.get("topic/zero") is None
    with stopped(owner), pytest.raises(ConnectionLost):
        txn.get("work", timeout=0.5)
    assert txn.state == "rolled back"
    goes_on(owner, store)


def test_a_commit_with_an_entry_can_be_looked_up(owner: Actor, store: Store) -> None:
    """In doubt while the owner is stopped; the ledger tells when it goes on."""
    txn = store.transaction()
    txn.put("other", b"x")
    txn.enter("mine", 1)
    with stopped(owner), pytest.raises((OutcomeUnknown, ConnectionLost)):
        txn.commit()
    committed = (store.integration.ledger("mine"), store.queue("other").messages)
    eventually(lambda: not store.admin.transactions())
    assert (store.integration.ledger("mine"), store.queue("other").messages) in ((None, 0), (1, 1))
    assert committed in ((None, 0), (1, 1))
    goes_on(owner, store)


def test_closing_has_an_end(owner: Actor, store: Store) -> None:
    """Whatever was open is rolled back when the owner goes on."""
    txn = store.transaction()
    assert txn.get("work") is not None
    with stopped(owner):
        closing = Beside("close", store.close)
        closing.join(LONG)
        assert not closing.is_alive()
        assert closing.error is None
    assert owner.ask("store.admin.transactions()") is not None
    eventually(lambda: owner.ask("len(store.admin.transactions())") == "0")
    assert owner.ask('store.queue("work").messages') == "10"


@pytest.mark.cases(8)
def test_opening_has_an_end(owner: Actor, store_path: str) -> None:
    """It says who has the store; and joins when that one goes on."""
    with stopped(owner):
        opening = Beside("open", lambda: open_store(store_path, call_timeout=CALL_TIMEOUT))
        opening.join(LONG)
        assert not opening.is_alive()
        assert isinstance(opening.error, StoreLocked)
        assert str(owner.process.pid) in str(opening.error)
        assert "stopped" in str(opening.error)
    with open_store(store_path) as store:
        assert store.role == "joined"


def test_a_large_transfer_that_goes_on_has_no_end(owner: Actor, store: Store) -> None:
    """What takes longer than a call may is waited for while the owner is at work.

    It goes on between two stops until it has had a processor, which others may use meanwhile.
    """
    payloads = [os.urandom(1 << 20)] * 24
    done = threading.Event()

    def stutter() -> None:
        while not done.is_set():
            with stopped(owner):
                done.wait(0.2)
            enough = cpu_seconds(owner) + WORK_SECONDS
            done.wait(0.05)
            while not done.is_set() and cpu_seconds(owner) < enough:
                done.wait(0.01)

    stuttering = Beside("stutter", stutter)
    try:
        store.put_many("other", payloads)
    finally:
        done.set()
        stuttering.join()
    assert store.queue("other").messages == 24
    goes_on(owner, store)


# asyncio ------------------------------------------------------------------------------------------


@pytest.mark.promise(12)
def test_tasks_have_an_end(owner: Actor, store_path: str) -> None:
    """The calls of the same table, as coroutines, many at once; and the owner goes on."""

    async def run() -> None:
        async with quire.aio.open(store_path, call_timeout=CALL_TIMEOUT) as store:
            assert store.role == "joined"
            await store.queues()
            with stopped(owner):
                async with asyncio.timeout(4 * LONG):
                    calls: dict[str, Any] = {name: call(store) for name, (call, _) in STORE.items()}
                    ended = await asyncio.gather(*calls.values(), return_exceptions=True)
            for name, error in zip(calls, ended, strict=True):
                # A loop whose time is over before it could ask has got nothing.
                is_over = name in ("get", "get_many") and not error
                assert is_over or isinstance(error, STORE[name][1]), (name, error)
            assert "work" in {q.name for q in await store.queues()}
            assert store.role == "joined"

    asyncio.run(run())
    assert owner.ask("store.admin.verify().ok") == "True"


def test_a_cancelled_task_does_not_wait(owner: Actor, store_path: str) -> None:
    """Wherever it is: in a call, between two of a transaction, or as more tasks than threads."""

    async def in_call(store: quire.aio.AsyncStore) -> None:
        await store.status()

    async def in_get(store: quire.aio.AsyncStore) -> None:
        async with store.transaction() as txn:
            await txn.get("work", timeout=1000)

    async def between(store: quire.aio.AsyncStore) -> None:
        async with store.transaction() as txn:
            await txn.put("other", b"x", timeout=0.1)
            await asyncio.sleep(1000)

    async def loop(store: quire.aio.AsyncStore) -> None:
        async with store.consume("other") as messages:
            async for _ in messages:
                raise AssertionError("nobody puts there")

    async def run() -> None:
        # With a time-out that none of this waits for.
        async with quire.aio.open(store_path, call_timeout=1000) as store:
            txn = await store.transaction()
            assert await txn.get("topic/zero") is None
            with stopped(owner):
                tasks = [
                    asyncio.create_task(kind(store))
                    for kind in (in_call, in_get, between, loop)
                    for _ in range(20)
                ]
                await asyncio.sleep(0.5)
                for task in tasks:
                    task.cancel()
                done, left = await asyncio.wait(tasks, timeout=LONG)
                assert not left
                assert not store.failed  # which asks nobody
                assert all(task.cancelled() for task in done)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(txn.get("work"), 0.2)
                assert txn.state == "rolled back"
            assert store.role == "joined"
            async with asyncio.timeout(LONG):
                while await store.admin.transactions():
                    await asyncio.sleep(0.05)
            assert (await store.queue("work")).messages == 10
            assert (await store.queue("other")).messages == 0

    asyncio.run(run())
    assert owner.ask("store.admin.verify().ok") == "True"


def test_a_get_that_is_cancelled_while_its_commit_waits(
    owner: Actor, store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for the owner, and says by its cause that the message may be gone."""
    end = AsyncTransaction._end

    async def run() -> None:
        async with quire.aio.open(store_path, call_timeout=1000) as store:
            await store.put("other", b"x")
            with contextlib.ExitStack() as stack:

                async def end_at_a_stopped_owner(*arguments: Any) -> Any:
                    stack.enter_context(stopped(owner))
                    return await end(*arguments)

                monkeypatch.setattr(AsyncTransaction, "_end", end_at_a_stopped_owner)
                getting = asyncio.create_task(store.get("other"))
                await asyncio.wait([getting], timeout=0.2)
                getting.cancel()
                with pytest.raises(asyncio.CancelledError) as caught:
                    await getting
                assert isinstance(caught.value.__cause__, OutcomeUnknown)
            monkeypatch.undo()
            assert (await store.queue("other")).messages <= 1  # its commit may have taken place

    asyncio.run(run())
    assert owner.ask("store.admin.verify().ok") == "True"
