"""Listeners while owners come and go, by closing or by SIGKILL: what was committed is told."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import quire.aio
from quire import Notice
from quire.errors import StoreClosed
from quire.interface.listening import Course
from quire.opening import open as open_store
from quire.remote import JoinedStore
from quire.remote.client import waits
from tests.kit.actors import OPTIONS, Actor, joined_elected, owner_with_work
from tests.kit.children import Child
from tests.kit.violation import Violation
from tests.kit.waiting import SECONDS, eventually
from tests.remote.told import Told, reconcile, told_in

ENDS: dict[str, Callable[[Actor], None]] = {"closes": Actor.end, "is killed": Actor.kill}
ends = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
ROUNDS = 6

owner = pytest.fixture(owner_with_work)
store = pytest.fixture(joined_elected)


@ends
def test_listeners_go_on_with_the_next_owner(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """A loop, a callback and one of removals: each id once, whoever owns the store."""
    heard: list[int] = []
    loop = store.listeners.add("work")
    left = store.listeners.add("work", on="removal")
    calls = store.listeners.add("work", lambda notice: heard.extend(notice.ids))
    ids = [store.put("work", b"before")]
    eventually(lambda: heard == ids)
    end(owner)
    ids.append(store.put("work", b"after"))
    found: list[int] = []
    while len(found) < 2:
        notice = loop.get(SECONDS)
        assert notice is not None
        assert notice.missed == 0
        found += notice.ids
    assert found == ids
    eventually(lambda: heard == ids)
    assert store.get("work") is not None
    notice = left.get(SECONDS)
    assert notice is not None
    assert (notice.ids, notice.missed) == (ids[:1], 0)
    assert store.role == "owner"
    calls.close()


@ends
def test_what_left_while_nobody_owned_the_listener(
    owner: Actor, store: JoinedStore, end: Callable[[Actor], None]
) -> None:
    """What the owner before knew of it the next one does not: it is told how many they were."""
    puts = store.listeners.add("work")
    left = store.listeners.add("work", on="removal")
    for n in range(5):
        store.put("work", b"%d" % n)
    assert len(store.get_many("work", 3)) == 3
    end(owner)
    notice = puts.get(SECONDS)
    assert notice is not None
    assert (notice.missed, len(notice.ids)) == (3, 2)
    notice = left.get(SECONDS)
    assert notice is not None
    assert (notice.missed, notice.ids) == (3, [])


def test_a_name_goes_on_in_another_process(owner: Actor, store_path: str) -> None:
    """After a restart of the store: what came meanwhile is told, and what was missed."""
    owner.ask('do(lambda: globals().update(me=store.listeners.add("work", name="me")))')
    owner.ask('store.put("work", b"1")')
    assert owner.ask("me.get(60).ids") == "[1]"
    assert owner.ask("me.get(0)") == "None"
    owner.ask('store.put_many("work", [b"2", b"3"])')
    owner.kill()
    with open_store(store_path, **OPTIONS) as store:
        assert len(store.get_many("work", 2)) == 2
        with store.listeners.add("work", name="me") as listener:
            notice = listener.get(SECONDS)
        assert notice is not None
        plain = replace(notice, created_us=0, mark="")
        assert plain == Notice("work", "put", 3, [3], [0], missed=1)


def test_a_loop_for_asyncio_goes_on(owner: Actor, store_path: str) -> None:
    """`async for`, which ends when it is closed."""

    async def listen() -> list[int]:
        found: list[int] = []
        async with quire.aio.open(store_path, **OPTIONS) as store:
            async with store.listeners.add("work") as listener:
                first = await store.put("work", b"before")
                owner.kill()
                second = await store.put("work", b"after")
                async for notice in listener:
                    found += notice.ids
                    if len(found) == 2:
                        await listener.close()
                assert found == [first, second]
            waiting = asyncio.ensure_future(
                anext(await store.listeners.add("work", backlog=False), None)
            )
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            late = await store.listeners.add("work", backlog=False)
        with pytest.raises(StoreClosed):
            await late.get()
        return found

    assert len(asyncio.run(listen())) == 2


def test_a_task_that_is_cancelled_loses_no_notice(
    owner: Actor, store_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found for it is told to the next one that asks."""
    found = threading.Event()
    look = Course.look

    def slow(course: Course, store: Any) -> Notice | None:
        notice = look(course, store)
        found.set()
        waits.pause(0.2)  # in which the loop goes on
        return notice

    async def listen() -> None:
        async with quire.aio.open(store_path, **OPTIONS) as store:
            made = await store.put("work", b"1")
            listener = await store.listeners.add("work")
            monkeypatch.setattr(Course, "look", slow)
            task = asyncio.ensure_future(listener.get())
            await asyncio.to_thread(found.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            notice = await listener.get()
            assert notice is not None
            assert notice.ids == [made]

    asyncio.run(listen())


def test_a_fork_leaves_listeners_to_its_parent(store_path: str) -> None:
    """In the child they, and new ones, raise StoreClosed; in the parent they go on."""
    heard: list[int] = []
    with open_store(store_path, **OPTIONS) as store:
        store.create_queue("work")
        loop = store.listeners.add("work")
        store.listeners.add("work", lambda notice: heard.extend(notice.ids))
        made = store.put("work", b"1")
        eventually(lambda: heard == [made])
        child = os.fork()
        if child == 0:
            accepted = 0
            with suppress(StoreClosed):
                loop.get(1.0)
                accepted += 1
            with suppress(StoreClosed):
                store.listeners.add("work", print)
                accepted += 1
            os._exit(accepted)
        assert os.waitpid(child, 0)[1] == 0
        second = store.put("work", b"2")
        eventually(lambda: heard == [made, second])
        notice = loop.get(SECONDS)
        assert notice is not None
        assert notice.ids == heard


# Kills --------------------------------------------------------------------------------------------

WORKER = """
import random, sys, time
import quire
store = quire.open(sys.argv[1], segment_bytes=4 << 20)
rng = random.Random(int(sys.argv[2]))
print(store.role, flush=True)
while True:
    try:
        with store.transaction() as txn:
            for _ in range(rng.randint(1, 3)):
                txn.put("all", b"m")
                txn.put("work", b"m", group=rng.randint(0, 2))
            if rng.random() < 0.8:
                for message in txn.get_many("work", rng.randint(1, 3)):
                    txn.put("receipts", b"%d %d" % (message.id, message.group))
            if rng.random() < 0.1:
                txn.rollback()
    except quire.QuireError:
        pass
    time.sleep(0.002)
"""
LISTENER = """
import os, sys, time
import quire
store = quire.open(sys.argv[1], segment_bytes=4 << 20)
log = open(sys.argv[2], "a", buffering=1)
def tell(name):
    return lambda notice: log.write(f"{name} {notice.missed} {' '.join(map(str, notice.ids))}\\n")
store.listeners.add("all", tell("all"), name="all")
store.listeners.add("work", tell("work"), name="work", group=1)
left = store.listeners.add("work", name="left", on="removal")
print(store.role, flush=True)
for notice in left:
    tell("left")(notice)
"""


LISTENERS: dict[str, dict[str, Any]] = {
    "all": {"source": "all"},
    "work": {"source": "work", "group": 1},
    "left": {"source": "work", "on": "removal"},
}


class Processes:
    """Two that put and get, and one that listens; each may be killed, and begins again."""

    def __init__(self, path: str, log: Path, rng: random.Random) -> None:
        self._path, self._log, self._rng = path, log, rng
        self.running: list[Child] = []
        for place in range(3):
            self.running.append(self._begin(place))

    def _begin(self, place: int) -> Child:
        if place == 2:
            made = Child(LISTENER, self._path, str(self._log))
        else:
            made = Child(WORKER, self._path, str(self._rng.getrandbits(32)))
        assert made.line() in ("owner", "joined")
        return made

    def kill(self, place: int) -> None:
        """One of them, which begins again."""
        self.running[place].kill()
        self.running[place].close()
        self.running[place] = self._begin(place)

    def end(self) -> None:
        """All of them."""
        for child in self.running:
            child.close()


@pytest.fixture
def processes(store_path: str, tmp_path: Path, rng: random.Random) -> Iterator[Processes]:
    """On a store with the queues that they use."""
    with open_store(store_path, **OPTIONS) as store:
        store.create_queue("all", kind="topic", keep_forever=True)
        store.create_queue("work")
        store.create_queue("receipts")
        for name, asked in LISTENERS.items():  # from now on, whenever their process begins
            store.listeners.add(name=name, **asked).close()
    made = Processes(store_path, tmp_path / "log", rng)
    try:
        yield made
    finally:
        made.end()


def test_kills(processes: Processes, store_path: str, tmp_path: Path, rng: random.Random) -> None:
    """All ids of what is kept are told; of what readers took, those or how many were missed."""
    for _ in range(ROUNDS):
        time.sleep(rng.uniform(0.1, 0.5))
        processes.kill(rng.randrange(3))
    time.sleep(0.3)
    processes.end()
    log = tmp_path / "log"
    with open_store(store_path, **OPTIONS) as store:
        every = {each.id for each in store.browse("all", max_messages=1_000_000)}
        receipts = [
            (int(each.payload.split()[0]), int(each.payload.split()[1]))
            for each in store.browse("receipts", max_messages=1_000_000)
        ]
        groups = {each.id: each.group for each in store.browse("work", max_messages=1_000_000)}
        left = {each for each, _ in receipts}
        groups.update(receipts)
        with log.open("a") as file:  # what was not told yet, or not done with
            file.write("\n")
            for name, asked in LISTENERS.items():
                listener = store.listeners.add(name=name, **asked)
                while (notice := listener.get(0)) is not None:
                    print(name, notice.missed, *notice.ids, file=file)
        report = store.admin.verify()
        assert report.ok, report.findings
    told = told_in(log, LISTENERS)
    assert len(every) > 50
    assert len(left) > 20
    assert told["all"].missed == 0
    reconcile(told["all"], every, set())
    fits = {each for each, group in groups.items() if group in (0, 1)}
    reconcile(told["work"], fits, groups.keys() - fits)
    reconcile(told["left"], left, set())


def test_a_lost_or_invented_id_is_found() -> None:
    """The check that the kills end with."""
    reconcile(Told({1, 2}, 1), {1, 2, 3}, {4})
    for told in (Told({1, 2}), Told({1, 2, 3, 4}), Told({1, 2, 3}, 5)):
        with pytest.raises(Violation):
            reconcile(told, {1, 2, 3}, {4})
