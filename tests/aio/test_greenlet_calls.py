"""The calls of a joined store are made in the loop's thread: none waits there for another."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import pytest
from greenlet import getcurrent

import quire
import quire.aio
from quire.aio import AsyncStore
from quire.aio.greenlet_calls import GreenletCall, GreenletCalls
from quire.calls import signal_safety
from quire.calls.errand import doing
from quire.calls.signal_safety import OwnLock, as_call, waiting
from quire.errors import QuireError, ReentrantCall
from quire.remote.client import connecting, waits
from quire.remote.client.connection import OwnerConnection
from quire.remote.client.multiplexed_connection import MultiplexedConnection
from quire.remote.client.waits import ClientWakeUp
from quire.remote.wire.address import Endpoint
from quire.remote.wire.sockets import connect
from tests.aio.test_waiting import SEGMENT_BYTES, in_line, take_one
from tests.kit.children import Child, child, is_stopped
from tests.kit.network import certificates, listening
from tests.kit.waiting import SECONDS, eventually

R = TypeVar("R")
TASKS = 64

OWNER = (
    "import sys, quire\n"
    "with quire.open(sys.argv[1], segment_bytes=4 << 20) as store:\n"
    "    store.create_queue('work', kind='work')\n"
    "    print('ready', flush=True)\n"
    "    sys.stdin.readline()\n"
)


def run(main: Callable[[AsyncStore], Coroutine[Any, Any, R]], path: str) -> R:
    """Run it with a joined store that has a queue."""

    async def with_store() -> R:
        async with quire.aio.open(path) as store:
            return await main(store)

    with quire.open(path, segment_bytes=SEGMENT_BYTES) as owner:
        owner.create_queue("work", kind="work")
        owner.create_queue("done", kind="work")
        return asyncio.run(with_store())


async def move_one(store: AsyncStore) -> None:
    """Move a message once there is one, in a transaction that has begun at the owner before."""
    async with store.transaction() as txn:
        await txn.put("done", b"1")
        assert await txn.get("work", SECONDS) is not None


async def get_one(store: AsyncStore) -> None:
    """Get a message once there is one."""
    assert await store.get("work", SECONDS) is not None


@pytest.mark.parametrize(("work", "tasks"), [(move_one, TASKS), (get_one, 1000)])
def test_tasks_wait_without_threads(
    store_path: str, work: Callable[[AsyncStore], Coroutine[Any, Any, None]], tasks: int
) -> None:
    """However many wait, the process has no thread more, and the owner no connection."""

    async def main(store: AsyncStore) -> None:
        async def wait(count: int) -> tuple[int, int]:
            waiting = [asyncio.create_task(work(store)) for _ in range(count)]
            await in_line(store, "work", count)
            await asyncio.sleep(0.05)
            threads = len([t for t in threading.enumerate() if t.name != "quire-serve"])
            connections = (await store.status())["sharing"]["connections"]
            await store.put_many("work", [b"x"] * count)
            await asyncio.gather(*waiting)
            return threads, connections

        assert await wait(tasks) == await wait(1)
        assert not [t for t in threading.enumerate() if t.name.startswith("quire-aio")]
        assert (await store.queue("work")).messages == 0

    run(main, store_path)


@contextmanager
def at_wait(number: int, action: Callable[[], object]) -> Iterator[list[int]]:
    """Do it before a greenlet waits for the time of that number; the list counts them."""
    counted = [0]

    def counting(wait: Callable[..., R]) -> Callable[..., R]:
        def count(*arguments: Any) -> R:
            counted[0] += 1
            if counted[0] == number:
                action()
            return wait(*arguments)

        return count

    with pytest.MonkeyPatch.context() as patch:
        for name in ("poll_for", "wait_for"):
            patch.setattr(GreenletCall, name, counting(getattr(GreenletCall, name)))
        yield counted


async def move(store: AsyncStore, states: list[str]) -> None:
    """Move one message, and note how its transaction has ended."""
    txn = await store.transaction()
    try:
        message = await txn.get("work", SECONDS)
        assert message is not None
        await txn.put("done", message.payload)
        await txn.commit()
    finally:
        if txn.state == "open":
            await txn.rollback()
        states.append(txn.state)


def test_a_task_that_is_cancelled_at_any_wait(store_path: str) -> None:
    """What it has committed is moved, all else is there as before; and the state tells it."""

    async def main(store: AsyncStore) -> None:
        moved = attempts = 0
        number, cut_at = 1, set[int]()
        while not cut_at >= {1, 2} or number > 1:
            await store.put("work", b"x")
            attempts += 1
            states: list[str] = []
            task = asyncio.create_task(move(store, states))
            with at_wait(number, task.cancel) as counted, suppress(asyncio.CancelledError):
                await task
            has_ended = counted[0] < number
            moved += states.count("committed")
            assert not has_ended or states == ["committed"]
            work, done = await store.queue("work"), await store.queue("done")
            assert (done.messages, work.messages) == (moved, attempts - moved)
            if has_ended:
                number = 1  # once more, as an answer that is there at once is not waited for
            else:
                cut_at.add(number)
                number += 1
        assert not doing
        assert threading.get_ident() not in signal_safety.inside

    run(main, store_path)


@pytest.mark.filterwarnings("ignore:transaction [0-9]+ was dropped:ResourceWarning")
def test_a_loop_that_is_closed_with_a_call_under_way(store_path: str) -> None:
    """The call is interrupted where it waits, and lets go of what it has."""

    async def move_one(store: AsyncStore) -> None:
        txn = await store.transaction()
        await txn.get("work")
        await txn.put("done", b"x")
        await txn.commit()

    with quire.open(store_path, segment_bytes=SEGMENT_BYTES) as owner:
        owner.create_queue("work", kind="work")
        owner.create_queue("done", kind="work")
        number, cut_at = 1, set[int]()
        for attempts in itertools.count(1):
            owner.put("work", b"x")
            loop = asyncio.new_event_loop()
            store = loop.run_until_complete(_open(store_path))
            task = loop.create_task(move_one(store))
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.add_done_callback(partial(_stop, loop))
            with at_wait(number, loop.stop) as counted:
                loop.run_forever()
            if counted[0] < number:
                loop.run_until_complete(store.close())
            loop.close()
            del task
            gc.collect()
            eventually(lambda: not owner.admin.transactions())
            assert not doing
            assert threading.get_ident() not in signal_safety.inside
            store._inner.close()
            store._pool.close()
            assert owner.queue("work").messages + owner.queue("done").messages == attempts
            if counted[0] >= number:
                cut_at.add(number)
                number += 1
            elif cut_at >= {1, 2}:
                break
            else:
                number = 1  # once more, as an answer that is there at once is not waited for


def _stop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    loop.stop()


async def _open(path: str) -> AsyncStore:
    return await quire.aio.open(path)


def test_an_interrupt_while_tasks_wait(store_path: str) -> None:
    """Ctrl-C ends the loop as asyncio does it, and the handlers are those of the program."""
    before = signal.getsignal(signal.SIGINT)

    async def main(store: AsyncStore) -> None:
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(take_one(store, "work")) for _ in range(8)
        ]
        tasks.append(asyncio.create_task(store.get("work", SECONDS, where="JMSPriority = 9")))
        await in_line(store, "work", 8)
        await asyncio.sleep(0.05)
        signal.raise_signal(signal.SIGINT)
        await asyncio.gather(*tasks)

    with pytest.raises(KeyboardInterrupt):
        run(main, store_path)
    assert signal.getsignal(signal.SIGINT) is before
    assert threading.get_ident() not in signal_safety.inside
    with quire.open(store_path) as store:
        store.put("work", b"x")
        assert store.get("work") is not None


@contextmanager
def handler(action: Callable[[], object]) -> Iterator[None]:
    """It is done when SIGUSR1 comes."""

    def handle(number: int, frame: FrameType | None) -> None:
        action()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signals_are_held_back_by_a_call_that_runs_alone(store_path: str) -> None:
    """By one that is suspended none is; one that goes on holds them back to its end."""
    came: list[str] = []
    gate = ClientWakeUp()

    def call() -> None:
        signal.raise_signal(signal.SIGUSR1)
        came.append("in the call")
        waiting(gate.wait, SECONDS)
        signal.raise_signal(signal.SIGUSR1)
        came.append("goes on")

    async def main(store: AsyncStore) -> None:
        task = asyncio.create_task(store._pool.run(lambda: as_call(call)))
        await asyncio.sleep(0)
        assert came == ["in the call", "signal"]
        signal.raise_signal(signal.SIGUSR1)
        assert came == ["in the call", "signal", "signal"]
        await store.put("work", b"x")  # others call meanwhile
        gate.set()
        await task
        assert came[3:] == ["goes on", "signal"]

    with handler(lambda: came.append("signal")):
        run(main, store_path)


def test_a_handler_that_calls_while_a_greenlet_reads(store_path: str) -> None:
    """It waits for its own answer, and not for the greenlets of its thread."""
    found: list[int] = []

    async def main(store: AsyncStore) -> None:
        await store.alter_queue("work", order="priority")
        with handler(lambda: found.append(store._inner.queue("work").messages)):
            waiting = [
                asyncio.create_task(store.get("work", SECONDS, where="JMSPriority = 9"))
                for _ in range(3)
            ]
            await store.put("work", b"x")
            await asyncio.sleep(0.05)  # all of them wait for the owner's answer
            signal.raise_signal(signal.SIGUSR1)
            assert found == [1]
            for _ in range(3):
                await store.put("work", b"y", priority=9)
            assert [m.payload for m in await asyncio.gather(*waiting) if m] == [b"y"] * 3

    run(main, store_path)


def test_calls_of_other_threads_beside_greenlets(store_path: str) -> None:
    """Those of one store object, which share a connection, get their answers."""

    async def main(store: AsyncStore) -> None:
        def call() -> int:
            assert type(getcurrent()) is not GreenletCall
            return sum(store._inner.queue("work").messages for _ in range(50))

        tasks = [asyncio.create_task(store.queue("work")) for _ in range(TASKS)]
        others = [asyncio.create_task(asyncio.to_thread(call)) for _ in range(3)]
        assert [info.messages for info in await asyncio.gather(*tasks)] == [0] * TASKS
        assert await asyncio.gather(*others) == [0] * 3

    run(main, store_path)


def test_a_lock_of_greenlets(store_path: str) -> None:
    """Who finds it taken by another of its thread waits, and is not refused; its holder is."""
    lock = OwnLock(threading.Lock())
    order: list[int] = []

    def call(number: int) -> None:
        with lock:
            order.append(number)
            waits.pause(0.01)
            order.append(number)
            if number == 2:
                with pytest.raises(ReentrantCall), lock:
                    pass

    async def main(store: AsyncStore) -> None:
        calls = [store._pool.run(partial(call, n)) for n in range(4)]
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(*calls)
        assert order == [0, 0, 1, 1, 2, 2, 3, 3]

    run(main, store_path)


def test_a_call_has_the_context_of_its_task(store_path: str) -> None:
    """As what it calls may look there: a codec, a filter of warnings, a tracer."""
    variable = ContextVar("variable", default=0)

    async def main(store: AsyncStore) -> None:
        async def look(number: int) -> int:
            variable.set(number)

            def call() -> int:
                waits.pause(0.001)
                return variable.get()

            return await store._pool.run(call)

        numbers = list(range(8))
        assert await asyncio.gather(*(look(n) for n in numbers)) == numbers
        assert variable.get() == 0

    run(main, store_path)


def test_gets_live_on_where_this_process_takes_over(store_path: str) -> None:
    """What waits goes on over the owned store; from then on calls are made in threads."""
    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"

        async def main() -> None:
            async with quire.aio.open(store_path) as store:
                assert store.role == "joined"
                gets = [asyncio.create_task(store.get("work", SECONDS)) for _ in range(4)]
                await in_line(store, "work", 4)
                await asyncio.sleep(0.05)
                await asyncio.to_thread(owner.kill)
                infos = await asyncio.gather(*(store.queue("work") for _ in range(8)))
                assert {info.messages for info in infos} == {0}
                assert store.role == "owner"
                for _ in range(4):
                    await store.put("work", b"x")
                found = await asyncio.gather(*gets)
                assert [message and message.payload for message in found] == [b"x"] * 4
                names = await asyncio.gather(
                    *(store._pool.run(lambda: threading.current_thread().name) for _ in range(2))
                )
                assert all(name.startswith("quire-aio") for name in names)

        asyncio.run(main())


def test_a_call_that_meets_its_own_store_leaves_the_loop_alone(store_path: str) -> None:
    """Where this process takes over between the beginning of a call and its first step."""
    gate, threads = threading.Event(), list[str]()

    def slowly(call: Callable[..., R]) -> Callable[..., R]:
        def wait(*arguments: Any, **options: Any) -> R:
            threads.append(threading.current_thread().name)
            assert gate.wait(SECONDS)
            return call(*arguments, **options)

        return wait

    async def main(owner: Child) -> None:
        async with quire.aio.open(store_path) as store:
            inner: Any = store._inner
            await asyncio.to_thread(owner.kill)
            while store.role != "owner":
                await asyncio.sleep(0.01)
            owned = inner.owner
            owned.put, owned.queues = slowly(owned.put), slowly(owned.queues)
            inner.take_over(owned)
            joined = type(inner)
            calls: list[Callable[[], object]] = [
                partial(inner.put, "work", b"1"),
                partial(joined.put, inner, "work", b"2"),
                partial(joined.queues, inner),
            ]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(GreenletCalls, "_is_owned", False)  # as it was when they began
                tasks = [asyncio.create_task(store._pool.run(call)) for call in calls]
                await asyncio.sleep(0.05)
            is_any_done = any(task.done() for task in tasks)
            gate.set()
            await asyncio.gather(*tasks)
            assert not is_any_done
            assert threads == ["quire-aio-offloaded"] * 3

    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"
        asyncio.run(main(owner))


def stop_at_once(owner: Child) -> None:
    """Stop the owner: from here on it answers nothing."""
    os.kill(owner.process.pid, signal.SIGSTOP)
    eventually(lambda: is_stopped(owner.process.pid))


def test_a_reader_that_is_cancelled_hands_the_role_over(store_path: str) -> None:
    """While the owner is stopped; when it goes on, the others have their answers."""
    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"

        async def main() -> None:
            async with quire.aio.open(store_path) as store:
                await store.put("work", b"x")
                stop_at_once(owner)
                tasks = [asyncio.create_task(store.queue("work")) for _ in range(8)]
                await asyncio.sleep(0.05)
                shared = store._inner.owner_session.connection._shared  # type: ignore[attr-defined]
                first = shared._reader
                tasks[0].cancel()
                with pytest.raises(asyncio.CancelledError):
                    await tasks[0]
                await asyncio.sleep(0.05)
                assert type(first) is type(shared._reader) is GreenletCall
                assert first is not shared._reader
                os.kill(owner.process.pid, signal.SIGCONT)
                assert [info.messages for info in await asyncio.gather(*tasks[1:])] == [1] * 7

        asyncio.run(main())


def test_one_connection_is_opened_for_all(store_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first of many calls; the others wait for it."""
    opened: list[object] = []
    connect = OwnerConnection._connect

    def count(self: OwnerConnection, seconds: float, alone: bool) -> MultiplexedConnection:
        opened.append(self)
        return connect(self, seconds, alone)

    monkeypatch.setattr(OwnerConnection, "_connect", count)

    async def main(owner: Child) -> None:
        async with quire.aio.open(store_path) as store:
            stop_at_once(owner)
            tasks = [asyncio.create_task(store.put("work", b"x")) for _ in range(TASKS)]
            await asyncio.sleep(0.05)
            os.kill(owner.process.pid, signal.SIGCONT)
            await asyncio.gather(*tasks)
            assert (await store.queue("work")).messages == TASKS
            assert len(opened) == 1

    with child(OWNER, store_path) as owner:
        assert owner.line() == "ready"
        asyncio.run(main(owner))


def test_the_loop_goes_on_while_a_server_is_connected_to(
    store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are looked up, and the handshake of TLS is made, in a thread."""
    gate, threads = threading.Event(), list[str]()
    server, client = certificates()

    def slowly(place: Endpoint, seconds: float) -> socket.socket:
        threads.append(threading.current_thread().name)
        assert gate.wait(SECONDS)
        return connect(place, seconds)

    async def main(url: str) -> None:
        async with quire.aio.open(url, tls=client) as store:
            monkeypatch.setattr(connecting, "connect", slowly)
            task = asyncio.create_task(store.queue("work"))
            await asyncio.sleep(0.05)
            gate.set()
            await task
            assert threads == ["quire-aio-offloaded"]

    with quire.open(store_path, segment_bytes=SEGMENT_BYTES) as owner:
        owner.create_queue("work", kind="work")
        with listening(owner, server) as entrance:
            asyncio.run(main(entrance.urls[0]))


def test_no_step_is_slow_where_calls_wait(
    store_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In asyncio's debug mode: a suspended call takes no time of the loop."""

    async def main(store: AsyncStore) -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        await store.put("work", b"x")  # what is done for the first time may take long
        loop.slow_callback_duration = 0.2
        await asyncio.gather(
            *(store.get("work", 0.5, where="JMSPriority = 9") for _ in range(4)),
            store._pool.run(partial(waits.pause, 0.5)),
        )
        loop.set_debug(False)

    with caplog.at_level("WARNING", "asyncio"):
        run(main, store_path)
    assert not caplog.records


def test_code_of_the_caller_may_wait_for_the_loop(store_path: str) -> None:
    """A function, or a generator, that a call is given runs in a thread."""

    async def main(store: AsyncStore) -> None:
        loop = asyncio.get_running_loop()

        def payloads() -> Iterator[bytes]:
            for _ in range(2):
                info = asyncio.run_coroutine_threadsafe(store.queue("work"), loop).result(SECONDS)
                yield b"%d" % info.messages

        await store.put_many("work", payloads())
        async with store.transaction() as txn:
            await txn.put_many("work", payloads())
        found = [message.payload for message in await store.get_many("work")]
        assert found == [b"0", b"0", b"2", b"2"]

    run(main, store_path)


def test_what_blocks_is_done_in_a_thread(store_path: str) -> None:
    """Of a call that goes on over the owned store: the loop goes on meanwhile."""
    gate = threading.Event()

    def block() -> str:
        assert gate.wait(SECONDS)
        return threading.current_thread().name

    def fail() -> None:
        raise QuireError("of the action")

    async def main(store: AsyncStore) -> None:
        task = asyncio.create_task(store._pool.run(waits.offloaded(block)))
        await store.put("work", b"x")
        assert not task.done()
        gate.set()
        assert (await task).startswith("quire-aio")
        with pytest.raises(QuireError, match="of the action"):
            await store._pool.run(waits.offloaded(fail))

    run(main, store_path)
