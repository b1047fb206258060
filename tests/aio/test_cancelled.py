"""Calls that are cancelled: a get has taken nothing, a commit's outcome stands."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

import quire.aio
from quire.aio import AsyncStore, AsyncTransaction
from quire.aio.pool import Pool
from quire.calls.signal_safety import waiting
from quire.errors import QueueFull
from quire.interface.sessions.requesting import Replying
from quire.limits import AIO_THREADS, COMMIT_BYTES, MESSAGE_OVERHEAD_BYTES
from quire.remote.client.waits import ClientWakeUp
from tests.aio.test_waiting import SEGMENT_BYTES, in_line, opened, take_one
from tests.kit.waiting import SECONDS

CAPACITY = 10_000


class Gate:
    """Calls of a method wait in their thread, or their greenlet, until it is open."""

    def __init__(self, target: object, method: str) -> None:
        self.entered = threading.Event()
        self.open = ClientWakeUp()
        self._inner = getattr(target, method)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._inner(*args, **kwargs)
        self.entered.set()
        assert waiting(self.open.wait, SECONDS)
        self.open.set()
        return result


class Gated:
    """An object, but for one method."""

    def __init__(self, target: object, method: str) -> None:
        self.gate = Gate(target, method)
        self._target = target
        self._method = method

    def __getattr__(self, name: str) -> Any:
        return self.gate if name == self._method else getattr(self._target, name)


def gated(txn: AsyncTransaction, method: str) -> Gate:
    """Have the transaction's calls of the method end only when the gate is opened."""
    found = Gated(txn._inner, method)
    txn._inner = found
    return found.gate


async def left(store: AsyncStore, queue: str = "work") -> list[bytes]:
    """What can be got there."""
    most = (await store.queue(queue)).messages + 1
    async with store.transaction() as txn:
        found = (await txn.get_many(queue, most)).payloads()
        await txn.rollback()
    return found


def test_a_get_that_waits(store_path: str, role: str) -> None:
    """Cancelled it has taken nothing, and the next in line gets the message."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            first, second = (asyncio.create_task(take_one(store, "work")) for _ in range(2))
            await in_line(store, "work", 2)
            first.cancel()
            await store.put("work", b"x")
            assert await second == b"x"
            assert first.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("method", ["get", "get_many", "get_arrow"])
def test_a_get_that_has_just_taken_something(store_path: str, role: str, method: str) -> None:
    """It is given back, in a transaction that goes on: its commit does not count it as read."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            for payload in (b"1", b"2", b"3"):
                await store.put("work", payload)
            async with store.transaction() as txn:
                kept = await txn.get("work")
                gate = gated(txn, method)
                task = asyncio.create_task(getattr(txn, method)("work"))
                await asyncio.to_thread(gate.entered.wait, SECONDS)
                task.cancel()
                await asyncio.sleep(0)
                task.cancel()
                gate.open.set()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert kept is not None
                assert await left(store) == [b"2", b"3"]
            assert await left(store) == [b"2", b"3"]
            async with store.transaction() as txn:
                message = await txn.get("work")
                assert message is not None
                assert (message.payload, message.delivery_count) == (b"2", 3)  # `left` had it

    asyncio.run(main())


def test_a_get_with_a_time_limit_of_asyncio(store_path: str, role: str) -> None:
    """As with its own: it takes nothing once the time is over, and the transaction goes on."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            async with store.transaction() as txn:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(txn.get("work", SECONDS), 0.1)
                await txn.put("work", b"x")
            assert await left(store) == [b"x"]

    asyncio.run(main())


def test_a_commit(store_path: str, role: str) -> None:
    """It is waited for: CancelledError comes when the outcome is there, and the state tells it."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            txn = await store.transaction()
            await txn.put("work", b"x")
            gate = gated(txn, "commit")
            task = asyncio.create_task(txn.commit())
            await asyncio.to_thread(gate.entered.wait, SECONDS)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=0.1)
            assert not done
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert txn.state == "committed"
            assert await left(store) == [b"x"]

    asyncio.run(main())


def test_a_block(store_path: str, role: str) -> None:
    """Its transaction is rolled back."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.put("work", b"x")
            begun: list[AsyncTransaction] = []

            async def work() -> None:
                async with store.transaction() as txn:
                    begun.append(txn)
                    await txn.get("work")
                    await txn.put("work", b"y")
                    await txn.get("work", SECONDS)

            task = asyncio.create_task(work())
            await in_line(store, "work", 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert begun[0].state == "rolled back"
            assert await left(store) == [b"x"]

    asyncio.run(main())


def test_opening(store_path: str) -> None:
    """A store that nobody gets is closed."""

    async def main() -> None:
        for delay in (0.0, 0.001, 0.01, 0.1):
            task = asyncio.ensure_future(quire.aio.open(store_path, segment_bytes=SEGMENT_BYTES))
            await asyncio.sleep(delay)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await (await task).close()
            async with quire.aio.open(store_path, share=False) as store:
                assert store.role == "owner"

    asyncio.run(main())


def test_a_call_that_no_thread_has_begun() -> None:
    """It is never made, unless it is one that ends something."""

    async def main() -> None:
        pool, gate, made = Pool(), threading.Event(), list[str]()
        held = [asyncio.create_task(pool.run(gate.wait)) for _ in range(AIO_THREADS)]
        await asyncio.sleep(0)
        call = asyncio.create_task(pool.run(lambda: made.append("call")))
        end = asyncio.create_task(pool.run(lambda: made.append("end"), surely=True))
        await asyncio.sleep(0)
        call.cancel()
        end.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await end
        await asyncio.gather(*held)
        assert made == ["end"]
        pool.close()

    asyncio.run(main())


def test_commits_that_wait_for_room(store_path: str) -> None:
    """However many they are, there are threads for the calls that make room."""

    async def main() -> None:
        async with quire.aio.open(store_path, segment_bytes=SEGMENT_BYTES) as store:
            names = [f"q{n}" for n in range(AIO_THREADS + 2)]
            commits, others = [], []
            for name in names:
                room = CAPACITY + 2 * COMMIT_BYTES  # which puts leave
                await store.create_queue(name, kind="work", capacity=room)
                await store.put(name, b"x" * 3000)
                first, second = await store.transaction(), await store.transaction()
                await first.put(name, b"1")
                await second.put(name, b"2")
                free = CAPACITY - (await store.queue(name)).used_bytes
                await second.put(name, b"x" * (free - MESSAGE_OVERHEAD_BYTES))
                await store.alter_queue(name, capacity=CAPACITY)
                with pytest.raises(QueueFull):
                    await first.commit(0.0)
                commits.append(asyncio.create_task(first.commit(SECONDS)))
                others.append(second)
            await asyncio.sleep(0.1)
            async with asyncio.timeout(SECONDS / 2):
                await asyncio.gather(*(txn.rollback() for txn in others))
                await asyncio.gather(*commits)
            assert [(await store.queue(name)).messages for name in names] == [2] * len(names)

    asyncio.run(main())


async def disturb(
    tasks: list[asyncio.Task[None]],
    work: Callable[[], Coroutine[Any, Any, None]],
    committed: Counter[bytes],
    rng: random.Random,
) -> None:
    """Cancel one after another, and begin its work anew. Slow ones, too, get on in between."""
    for number in itertools.count():
        before = sum(committed.values())
        while number % 8 == 0 and sum(committed.values()) == before:
            await asyncio.sleep(0.001)
        await asyncio.sleep(rng.random() * 0.01)
        n = rng.randrange(len(tasks))
        tasks[n].cancel()
        await asyncio.wait([tasks[n]])  # which is itself cancelled at the end
        tasks[n] = asyncio.create_task(work())


@pytest.mark.cases(2)
@pytest.mark.fuzz
def test_cancelled_at_any_moment(
    store_path: str, role: str, rng: random.Random, rounds: int
) -> None:
    """Consumers that are cancelled at random lose nothing and get nothing twice."""

    count = 20 * rounds

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.create_queue("done", kind="work")
            committed: Counter[bytes] = Counter()

            async def consume() -> None:
                while True:
                    txn = await store.transaction()
                    got: list[bytes] = []
                    try:
                        for _ in range(rng.randrange(1, 4)):
                            limit = rng.choice([0.0005, 0.002, 0.01, 1.0])
                            with suppress(TimeoutError):
                                async with asyncio.timeout(limit):
                                    if rng.random() < 0.5:
                                        message = await txn.get("work", timeout=0.5)
                                        got += [] if message is None else [message.payload]
                                    else:
                                        got += (await txn.get_many("work", 3, 0.5)).payloads()
                        await txn.put_many("done", got)
                        await txn.commit()
                    finally:
                        if txn.state == "committed":
                            committed.update(got)
                        else:
                            await txn.rollback()

            tasks = [asyncio.create_task(consume()) for _ in range(8)]
            trouble = asyncio.create_task(disturb(tasks, consume, committed, rng))
            for n in range(count):
                await store.put("work", b"%d" % n)
            async with asyncio.timeout(SECONDS):
                while sum(committed.values()) < count:
                    await asyncio.sleep(0.01)
            for task in (trouble, *tasks):
                task.cancel()
            await asyncio.gather(trouble, *tasks, return_exceptions=True)
            expected = Counter(b"%d" % n for n in range(count))
            assert committed == expected
            assert Counter(await left(store, "done")) == expected
            assert await left(store) == []
            assert await store.admin.transactions() == []

    asyncio.run(main())


GETS: dict[str, Callable[[AsyncStore], Coroutine[Any, Any, Any]]] = {
    "get": lambda store: store.get("work", timeout=None),
    "get where": lambda store: store.get("work", timeout=None, where="JMSPriority >= 0"),
    "get_many": lambda store: store.get_many("work", 1, timeout=None),
    "get_many where": lambda store: store.get_many(
        "work", 1, timeout=None, where="JMSPriority >= 0"
    ),
}


def payloads_of(found: Any) -> list[bytes]:
    """The payloads of what a get has returned."""
    return [found.payload] if isinstance(found, quire.Message) else found.payloads()


def hold_commits(store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Let the commits of the store's transactions return only when the gate is opened."""
    begin, gates = store._inner.transaction, Gate(len, "__call__")

    def transaction(*args: Any, **options: Any) -> Any:
        inner = begin(*args, **options)
        commit = inner.commit

        def commit_and_wait(*seconds: Any) -> None:
            commit(*seconds)
            gates([])

        return Replaced(inner, "commit", commit_and_wait)

    monkeypatch.setattr(store._inner, "transaction", transaction)
    return gates


class Replaced:
    """An object with another method in the place of one."""

    def __init__(self, target: Any, method: str, replacement: Callable[..., Any]) -> None:
        self._target = target
        self._method = method
        self._replacement = replacement

    def __getattr__(self, name: str) -> Any:
        return self._replacement if name == self._method else getattr(self._target, name)


@pytest.mark.parametrize("call", GETS)
def test_a_time_limit_while_a_get_commits(
    store_path: str, role: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The get returns its message: neither is it lost nor does the time limit strike later."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.put("work", b"x")
            gate = hold_commits(store, monkeypatch)
            limit = asyncio.timeout(None)

            async def get() -> Any:
                async with limit:
                    return await GETS[call](store)

            async def get_and_go_on() -> list[bytes]:
                found = await get()
                await asyncio.sleep(0.01)  # where a cancellation that is left over would strike
                return payloads_of(found)

            task = asyncio.create_task(get_and_go_on())
            await asyncio.to_thread(gate.entered.wait, SECONDS)
            limit.reschedule(0.0)
            await asyncio.sleep(0.01)
            gate.open.set()
            assert await task == [b"x"]
            assert limit.expired()
            monkeypatch.undo()
            assert await left(store) == []

    asyncio.run(main())


def test_a_time_limit_around_more_than_the_get(
    store_path: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It strikes at what is waited for next, and is a TimeoutError."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.put("work", b"x")
            gate = hold_commits(store, monkeypatch)
            found: list[bytes] = []
            limit = asyncio.timeout(None)

            async def work() -> None:
                async with limit:
                    found.extend(payloads_of(await store.get("work", timeout=None)))
                    await asyncio.sleep(SECONDS)

            task = asyncio.create_task(work())
            await asyncio.to_thread(gate.entered.wait, SECONDS)
            limit.reschedule(0.0)
            await asyncio.sleep(0.01)
            gate.open.set()
            with pytest.raises(TimeoutError):
                await task
            assert found == [b"x"]

    asyncio.run(main())


@pytest.mark.parametrize("call", GETS)
def test_a_task_of_a_get_alone(
    store_path: str, role: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled while the get commits it has the message as its result, as `wait_for` needs it."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.put("work", b"x")
            gate = hold_commits(store, monkeypatch)
            task = asyncio.create_task(GETS[call](store))
            await asyncio.to_thread(gate.entered.wait, SECONDS)
            task.cancel()
            await asyncio.sleep(0)
            gate.open.set()
            assert payloads_of(await task) == [b"x"]
            monkeypatch.undo()
            assert await left(store) == []

    asyncio.run(main())


@pytest.mark.parametrize("call", GETS)
def test_a_task_that_is_cancelled_while_its_get_commits(
    store_path: str, role: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its message, and is cancelled where it waits next; what it handles is not lost."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.put("work", b"x")
            gate = hold_commits(store, monkeypatch)
            found: list[bytes] = []

            async def work() -> None:
                while True:
                    found.extend(payloads_of(await GETS[call](store)))

            task = asyncio.create_task(work())
            await asyncio.to_thread(gate.entered.wait, SECONDS)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            gate.open.set()
            done, _ = await asyncio.wait([task], timeout=SECONDS)
            assert done
            assert task.cancelled()
            assert found == [b"x"]
            monkeypatch.undo()
            assert await left(store) == []

    asyncio.run(main())


@pytest.mark.parametrize("call", GETS)
def test_a_get_that_is_cancelled_before_its_commit(
    store_path: str, role: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken nothing: the message is there at its place, and does not count as delivered."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            await store.put_many("work", [b"1", b"2"])
            tasks: list[asyncio.Task[Any]] = []

            async def cancelled(*_: Any) -> None:
                tasks[0].cancel()
                await asyncio.sleep(0)

            monkeypatch.setattr(AsyncTransaction, "_end", cancelled)
            tasks.append(asyncio.create_task(GETS[call](store)))
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            monkeypatch.undo()
            assert await store.admin.transactions() == []
            message = await store.get("work")
            assert message is not None
            assert (message.payload, message.delivery_count) == (b"1", 1)

    asyncio.run(main())


@pytest.mark.cases(2)
@pytest.mark.parametrize("call", GETS)
def test_gets_with_a_time_out_in_a_loop(store_path: str, role: str, call: str) -> None:
    """Each message is got once, wherever the time-outs strike."""
    count = 30

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            found: list[bytes] = []

            async def put() -> None:
                for n in range(count):
                    await store.put("work", b"%d" % n)

            putting = asyncio.create_task(put())
            limits = itertools.cycle(n / 2000 for n in range(13))
            async with asyncio.timeout(SECONDS):
                while len(found) < count and not (
                    putting.done() and not (await store.queue("work")).messages
                ):
                    with suppress(TimeoutError):
                        found += payloads_of(
                            await asyncio.wait_for(GETS[call](store), next(limits))
                        )
            await putting
            assert found == [b"%d" % n for n in range(count)]

    asyncio.run(main())


def test_requests_with_a_time_out(store_path: str, role: str) -> None:
    """A reply is returned, or it is in the queue for replies still."""
    count = 20

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            answered: list[bytes] = []

            async def answer() -> None:
                async with store.consume("work") as requests:
                    async for request in requests:
                        to, number = str(request.reply_to), str(request.correlation_id)
                        payload = request.payload
                        await requests.transaction.put(to, payload, correlation_id=number)
                        answered.append(payload)

            answering = asyncio.create_task(answer())
            found: list[bytes] = []
            for n in range(count):
                with suppress(TimeoutError):
                    asking = store.request("work", b"%d" % n)
                    found.append((await asyncio.wait_for(asking, 0.004 + n / 10_000)).payload)
            while (await store.queue("work")).messages:
                await asyncio.sleep(0.01)
            answering.cancel()
            await asyncio.wait([answering])
            there = await left(store, "quire.replies")
            assert sorted(found + there) == sorted(answered)

    asyncio.run(main())


def test_a_request_that_is_cancelled_as_it_takes_its_reply(
    store_path: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns the reply."""
    gate, take = Gate(len, "__call__"), Replying.take

    def take_and_wait(replying: Replying, seconds: float) -> quire.Message | None:
        reply = take(replying, seconds)
        if reply is not None:
            gate([])
        return reply

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            asking = asyncio.create_task(store.request("work", b"x"))
            async with store.transaction() as txn:
                request = await txn.get("work", timeout=None)
                assert request is not None
                number = str(request.correlation_id)
                await txn.put(str(request.reply_to), b"y", correlation_id=number)
            await asyncio.to_thread(gate.entered.wait, SECONDS)
            asking.cancel()
            await asyncio.sleep(0)
            gate.open.set()
            assert (await asking).payload == b"y"

    monkeypatch.setattr(Replying, "take", take_and_wait)
    asyncio.run(main())


def test_a_session_that_is_cancelled_as_it_takes_its_reply(
    store_path: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returns the reply."""

    async def main() -> None:
        async with opened(store_path, role) as store:
            await store.create_queue("work", kind="work")
            session = await store.session("client")
            number = await session.put("work", b"x")
            async with store.transaction() as txn:
                request = await txn.get("work", timeout=None)
                assert request is not None
                correlated = str(request.correlation_id)
                await txn.put(str(request.reply_to), b"y", correlation_id=correlated)
            gate = hold_commits(store, monkeypatch)
            taking = asyncio.create_task(session.take(number, SECONDS))
            await asyncio.to_thread(gate.entered.wait, SECONDS)
            taking.cancel()
            await asyncio.sleep(0)
            gate.open.set()
            reply = await taking
            assert reply is not None
            assert reply.payload == b"y"

    asyncio.run(main())
