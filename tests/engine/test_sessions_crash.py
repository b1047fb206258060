"""Sessions over power failures, failed writes and full disks: each step is whole, or not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quire import RequestState, put_reply
from quire.engine import EmbeddedStore as Store
from quire.errors import DiskFull
from quire.interface.sessions.session import Session
from quire.testing import SimEnv
from tests.engine.crashing.delivery import Sessions
from tests.engine.crashing.parts import try_parts
from tests.engine.test_full_disk import repeat
from tests.engine.workload import new_machine, open_store
from tests.kit.limits import Limits


# In the order in which a request goes through them.
@pytest.fixture(autouse=True)
def _moved_soon(limits: Limits) -> None:
    """What has ended is moved together by the next request."""
    limits(FINISHED_KEPT=4, FINISHED_AT_ONCE=2)


def make(store: Store) -> None:
    """The queue of the requests, and who notes what was executed and what was taken."""
    store.admin.create_queues([{"name": name} for name in ("work", "executed", "taken")])


def serve_one(store: Store) -> bytes:
    """Execute the next request: its get, its effect and its reply are one transaction."""
    with store.transaction() as txn:
        request = txn.get("work")
        assert request is not None
        put_reply(txn, request, b"done " + bytes(request.payload))
        txn.put("executed", request.payload)
    return bytes(request.payload)


def take(store: Store, session: Session, number: int) -> None:
    """The reply, and what is done with it, in one transaction."""
    with store.transaction() as txn:
        reply = session.take(number, txn=txn)
        assert reply is not None
        txn.put("taken", reply.payload)


@pytest.mark.cases(8)
@pytest.mark.crash
def test_canary_a_reply_that_is_taken_apart_is_caught(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply taken with one commit, and used with another, is found by the check above."""

    def twice(store: Store, session: Session, number: int) -> None:
        reply = session.take(number)
        assert reply is not None
        store.put("taken", reply.payload)

    monkeypatch.setattr("tests.engine.crashing.delivery.take_reply", twice)
    with pytest.raises(AssertionError):
        try_parts(seed, Sessions)


# A full disk ------------------------------------------------------------------------------------


def fill(store: Store, env: SimEnv) -> None:
    """No room for a record, however small."""
    env.capacity_bytes = env.used_bytes()
    for size in (3000, 1):
        with pytest.raises(DiskFull):
            repeat(lambda size=size: store.put("filler", b"x" * size))  # type: ignore[misc]


def refused(env: SimEnv, store: Store, step: Callable[[], Any], look: Callable[[], Any]) -> Any:
    """What a step gives that is refused on a full disk, and made when there is room."""
    before = look()
    fill(store, env)
    with pytest.raises(DiskFull):
        step()
    assert look() == before
    env.capacity_bytes = None
    return step()


@pytest.mark.promise(5)
def test_promise_5_a_session_on_a_full_disk(seed: int) -> None:
    """Each step is refused as a whole, and is made as soon as there is room."""
    env = new_machine(seed)
    store = open_store(env)
    make(store)
    store.create_queue("filler")

    session: Session = refused(env, store, lambda: store.session("till"), lambda: None)

    numbers: list[int] = []

    def seen() -> object:
        waiting = [store.queue(name).messages for name in ("work", "executed", session.replies)]
        return [session.resolve(each) for each in numbers], session.unfinished(), waiting

    numbers.append(refused(env, store, lambda: session.begin("work", b"1"), seen))
    refused(env, store, lambda: session.submit(numbers[0]), seen)
    numbers.append(refused(env, store, lambda: session.put("work", b"2"), seen))
    assert refused(env, store, lambda: serve_one(store), seen) == b"1"
    assert refused(env, store, lambda: serve_one(store), seen) == b"2"
    refused(env, store, lambda: take(store, session, numbers[0]), seen)
    assert refused(env, store, lambda: session.take(numbers[1]), seen).payload == b"done 2"
    numbers.append(session.put("work", b"3"))
    refused(env, store, lambda: session.withdraw(numbers[2]), seen)
    fill(store, env)
    with pytest.raises(DiskFull):
        store.session("till")
    env.capacity_bytes = None
    assert session.resolve(numbers[2]) is RequestState.WITHDRAWN  # nothing has fenced it
    assert numbers == sorted(set(numbers))
    assert session.forget(numbers[2]) == 3
    store.close()
    with open_store(env.crash(outcome="lost")) as again:
        later = again.session("till")
        assert [later.resolve(each) for each in numbers] == [RequestState.FORGOTTEN] * 3
        assert again.admin.verify().ok
