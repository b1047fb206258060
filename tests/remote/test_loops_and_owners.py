"""Loops and workers while owners fail, end one after another, or are not to be had."""

from __future__ import annotations

import asyncio
import threading
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

import quire.aio
from quire import Workers
from quire.errors import ConnectionLost, OutcomeUnknown, QuireError, StoreClosed, StoreFailed
from quire.interface.store import Store
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.ownership.election import Election
from quire.remote.ownership.shared_store import SharedStore
from tests.kit.actors import OPTIONS, Actor, actor, joined_elected, succession_of
from tests.kit.limits import Limits
from tests.kit.waiting import SECONDS, eventually
from tests.remote.test_failed_owner import fail

NEVER = 1e6  # seconds


class Beside(threading.Thread):
    """A call in a thread of its own, and what it raises."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - looked at
            self.error = error

    def ends(self) -> BaseException | None:
        """What it has raised, when it has ended."""
        self.join(SECONDS)
        assert not self.is_alive()
        return self.error


@pytest.fixture
def owner(store_path: str) -> Iterator[Actor]:
    """A process that owns the store, with the queues that the loops use."""
    with actor(store_path) as process:
        process.ask(
            'store.admin.create_queues([{"name": n, "kind": "work"} for n in ("work", "done")])'
        )
        yield process


store = pytest.fixture(joined_elected)


@pytest.fixture
def nobody_owns(
    owner: Actor, store: JoinedStore, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """The owner is gone, this process is kept from being the next one, and calls wait for long."""
    monkeypatch.setattr(Election, "succeed", lambda election: None)
    limits(HAND_OVER_SECONDS=NEVER)
    monkeypatch.setattr("quire.remote.ownership.succession.ANSWER_SECONDS", 0.2)
    owner.kill()
    connection = store.owner_session.connection
    eventually(lambda: connection.lost)


@contextmanager
def broken(store: Store) -> Iterator[None]:
    """Its disk fails for good, as far as it knows."""
    assert isinstance(store, SharedStore)
    with suppress(StoreFailed), store._context.sequencer.fail_stop("a trial"):
        raise OSError(5, "injected")
    assert store.failed
    yield


def payloads(number: int) -> list[bytes]:
    """So many, each another."""
    return [b"%d" % n for n in range(number)]


@pytest.mark.promise(11)
@pytest.mark.parametrize("others", [False, True])
def test_workers_of_an_owner_that_failed_end(store_path: str, *, others: bool) -> None:
    """WR6: `run` says so; what they had not committed is there when the store is opened again."""
    handled: list[bytes] = []
    with ExitStack() as held:
        store = held.enter_context(open_store(store_path))
        store.admin.create_queues([{"name": name, "kind": "work"} for name in ("work", "done")])
        store.put_many("work", payloads(10))
        joined = held.enter_context(open_store(store_path)) if others else None
        workers = Workers(store)

        @workers.on("work", concurrency=2)
        def handle(message: quire.Message, txn: quire.Transaction) -> None:
            txn.put("done", message.payload)
            handled.append(message.payload)
            if len(handled) == 4:
                held.enter_context(broken(store))

        assert isinstance(Beside(workers.run).ends(), StoreFailed)
        assert len(handled) < 10
        assert workers.status()[0].running == 0
        if joined is not None:  # it has taken over, or is about to
            eventually(lambda: joined.role == "owner")
    with open_store(store_path) as again:
        left, done = (again.get_many(name).payloads() for name in ("work", "done"))
        assert sorted(left + done) == payloads(10)
        assert again.admin.verify().ok


@pytest.mark.promise(2)
def test_workers_of_a_joined_store_get_the_next_owner(owner: Actor, store: JoinedStore) -> None:
    """WR6: that the owner failed is no more than a failure; what is in doubt is told as that."""
    workers = Workers(store)
    failed = threading.Event()

    @workers.on("work", concurrency=2)
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        txn.put("done", message.payload)
        if message.payload == b"5" and not failed.is_set():
            failed.set()
            fail(owner)

    store.put_many("work", payloads(20))
    running = Beside(workers.run)
    eventually(lambda: store.role == "owner" and not store.queue("work").messages)
    assert running.is_alive()
    workers.stop()
    assert running.ends() is None
    assert sorted(store.get_many("done").payloads()) == sorted(payloads(20))
    assert workers.failures >= 1


@pytest.mark.usefixtures("nobody_owns")
def test_workers_end_where_nobody_owns_the_store(store: JoinedStore) -> None:
    """WR2, WR3: whatever their threads wait for, a stop comes to its end."""
    workers = Workers(store, grace=0.2)

    @workers.on("work")
    def handle(message: quire.Message, txn: quire.Transaction) -> None:
        raise AssertionError("there is none")

    waits = threading.Event()
    policy = succession_of(store)
    waiting = policy._wait_for_another

    def wait(*arguments: Any) -> None:
        waits.set()
        waiting(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(policy, "_wait_for_another", wait)
        patched.setattr("quire.workers._check_there", lambda *_: None)  # it was, some time ago
        running = Beside(workers.run)
        eventually(waits.is_set)
        workers.stop()
        assert running.ends() is None


@pytest.mark.usefixtures("nobody_owns")
def test_a_loop_with_a_time_out_ends_where_nobody_owns_the_store(store: JoinedStore) -> None:
    """By its time-out and the margin, as where the owner does not answer."""

    def loop() -> None:
        with store.consume("work", timeout=0.1) as messages:
            for _ in messages:
                raise AssertionError("there is none")

    assert isinstance(Beside(loop).ends(), ConnectionLost)


@pytest.mark.usefixtures("nobody_owns")
@pytest.mark.parametrize("ack", ["auto", "block"])
def test_a_loop_waits_for_the_next_owner_as_long_as_a_call(
    store: JoinedStore, monkeypatch: pytest.MonkeyPatch, limits: Limits, ack: Any
) -> None:
    """LM3: once, not once for each owner that may be lost."""
    limits(HAND_OVER_SECONDS=0.1)
    waits: list[float] = []
    policy = succession_of(store)
    waiting = policy._wait_for_another

    def wait(lost: Any, seconds: float) -> None:
        waits.append(seconds)
        waiting(lost, seconds)

    monkeypatch.setattr(policy, "_wait_for_another", wait)

    def loop() -> None:
        with store.consume("work", ack=ack) as messages:
            for _ in messages:
                raise AssertionError("there is none")

    assert isinstance(Beside(loop).ends(), ConnectionLost)
    assert len(waits) == 1


@pytest.mark.parametrize("moment", ["waiting", "at work"])
@pytest.mark.parametrize("how", ["killed", "closed"])
def test_workers_of_a_connection_end_with_its_owner(owner: Actor, moment: str, how: str) -> None:
    """WR6: it never comes back, whoever owns the store then; `run` says what to do."""
    handled = threading.Event()
    over = threading.Event()
    url = literal_eval(owner.ask('store.status()["sharing"]["url"]'))
    with quire.connect(url) as store:
        connection = store.owner_session.connection
        workers = Workers(store, grace=0.2)

        @workers.on("work", concurrency=2)
        def handle(message: quire.Message, txn: quire.Transaction) -> None:
            handled.set()
            assert over.wait(SECONDS)

        running = Beside(workers.run)
        if moment == "at work":
            store.put("work", b"1")
            assert handled.wait(SECONDS)
        else:
            eventually(lambda: store.owner_session._awaiting._callbacks.get("work"))
        if how == "killed":
            owner.kill()
        else:
            owner.say("store.close()")
        eventually(lambda: connection.lost)
        over.set()
        error = running.ends()
    # One that closes may have said so itself.
    assert isinstance(error, ConnectionLost if how == "killed" else (ConnectionLost, StoreClosed))
    assert "again" in str(error)


def _loop(path: str, stores: list[Any], found: list[bytes]) -> None:
    with open_store(path, **OPTIONS) as store, store.consume("work") as messages:
        stores.append(store)
        for message in messages:
            found.append(message.payload)
            messages.stop()


def _tasks(path: str, stores: list[Any], found: list[bytes]) -> None:
    async def run() -> None:
        async with (
            quire.aio.open(path, **OPTIONS) as store,
            store.consume("work") as messages,
        ):
            stores.append(store._inner)
            async for message in messages:
                found.append(message.payload)
                await messages.acknowledge()
                break

    asyncio.run(run())


@pytest.mark.parametrize("kind", [_loop, _tasks])
def test_a_loop_goes_on_however_many_owners_end(
    owner: Actor,
    store: JoinedStore,
    store_path: str,
    kind: Callable[[str, list[Any], list[bytes]], None],
) -> None:
    """LM3: each of them ends while it is asked for a message, and none was taken."""
    found: list[bytes] = []
    stores: list[JoinedStore] = []  # the loop's: an owner that hangs lets nobody else in
    with ExitStack() as held:
        owners = [owner, *(held.enter_context(actor(store_path)) for _ in range(2))]
        by_pid = {each.process.pid: each for each in owners}
        store.put("work", b"1")
        for each in owners:  # as they are asked, the line says so
            each.ask('hang(EmbeddedTransaction, "get", "before")')
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Election, "succeed", lambda election: election.join())
            loop = Beside(lambda: kind(store_path, stores, found))
            eventually(lambda: stores)
            for _ in range(2):
                process_id = stores[0].owner_process_id
                each = by_pid.pop(process_id)
                assert each.line() == "hanging"
                each.kill()
                eventually(lambda p=process_id: stores[0].owner_process_id != p)  # type: ignore[misc]
        (last,) = by_pid.values()  # the last one hangs, too, and this process is the next
        assert last.line() == "hanging"
        last.kill()
        assert loop.ends() is None
    assert found == [b"1"]
    assert store.queue("work").messages == 0


def test_tasks_while_owners_fail(owner: Actor, store: JoinedStore, store_path: str) -> None:
    """Many loops in one thread: each message is done with once, and no loop ends."""
    ended: list[BaseException] = []
    doubtful: list[bytes] = []

    async def one(joined: quire.aio.AsyncStore) -> None:
        while True:
            taken: bytes | None = None
            try:
                async with joined.consume("work") as messages:
                    async for message in messages:
                        taken = message.payload
                        await messages.transaction.put("done", taken)
                        await messages.acknowledge()
                        taken = None
            except (ConnectionLost, OutcomeUnknown, StoreFailed) as error:
                if taken is None:  # LM3
                    ended.append(error)
                doubtful.append(taken or b"")

    async def run() -> None:
        async with quire.aio.open(store_path, **OPTIONS) as joined:
            tasks = [asyncio.create_task(one(joined)) for _ in range(20)]
            while not over.is_set():
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    over = threading.Event()
    with actor(store_path) as second, pytest.MonkeyPatch.context() as patched:
        patched.setattr(Election, "succeed", lambda election: election.join())
        loops = Beside(lambda: asyncio.run(run()))
        put: list[bytes] = []
        maybe: list[bytes] = []
        for number in range(60):
            if number == 30:
                fail(owner, after=3)
            payload = b"%d" % number
            try:
                store.put("work", payload)
                put.append(payload)
            except QuireError:
                maybe.append(payload)
        eventually(lambda: store.owner_process_id == second.process.pid)
        eventually(lambda: store.queue("work").messages == 0)
        over.set()
        assert loops.ends() is None
        done = store.get_many("done").payloads()
        assert len(set(done)) == len(done)
        assert set(put) <= set(done) <= {*put, *maybe}
        assert ended == []
