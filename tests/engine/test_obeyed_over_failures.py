"""The first put with a time makes a work queue timed: whole or not at all, after any failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import InvalidArgument, StoreFailed
from quire.limits import CHUNK_BYTES
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store

DUE_US = 4_000_000_000_000_000
COLUMNS = pa.table(
    {"payload": [b"m"] * 3, "deliver_at": pa.array([None, DUE_US, None], pa.timestamp("us", "UTC"))}
)


def in_transaction(store: Store) -> None:
    """With others before and after it, in two queues."""
    with store.transaction() as txn:
        txn.put("first", b"before")
        txn.put("first", b"m", deliver_at=DUE_US)
        txn.put("second", b"m", expires_at=DUE_US)
        txn.put("first", b"after")


QUEUES: dict[str, dict[str, Any]] = {
    "first": {},
    "second": {},
    "volatile": {"type": "volatile"},
    "typed": {"schema": "id bigint"},
    "streams": {},
    "columns": {},
}
PUTS: dict[str, Callable[[Store], object]] = {
    "first": in_transaction,
    "volatile": lambda store: store.put("volatile", b"m", deliver_at=DUE_US),
    "typed": lambda store: store.put("typed", {"id": 1}, deliver_at=DUE_US),
    "streams": lambda store: store.put_stream("streams", b"x" * (CHUNK_BYTES + 1), delay=1e6),
    "columns": lambda store: store.put_many("columns", COLUMNS),
}


@pytest.mark.promise(1)
def test_a_first_time_is_obeyed_after_any_failure(seed: int) -> None:
    """At every call of such a put: no message is there that its queue would not obey."""
    assert enumerate_crashes(run, check, dict, seed=seed, rounds=1) > 100


def run(env: SimEnv, done: dict[str, bool]) -> None:
    """A first put of each kind."""
    env.make_directory("/disk")
    env.sync_directory("/")
    store = open_store(env)
    store.admin.create_queues(
        [{"name": name, "kind": "work", **more} for name, more in QUEUES.items()]
    )
    done["made"] = True
    for name, put in PUTS.items():
        put(store)
        done[name] = True
    store.close()


def check(env: SimEnv, done: dict[str, bool]) -> None:
    """What is there is obeyed, what was acknowledged is there, and the rest can be put."""
    if not env.exists("/disk"):
        env.make_directory("/disk")
    with open_store(env) as store:
        there = {info.name: info for info in store.queues()}
        assert there or "made" not in done
        for name, info in there.items():
            delayed = [m for m in store.browse(name) if m.deliver_at is not None]
            assert info.timed or not delayed, name
            assert len(store.delayed.list(name)) == len(delayed)
            if name in done and name != "volatile":
                assert delayed, name
        if not there:
            return
        for name, put in PUTS.items():
            before = len(store.delayed.list(name))
            put(store)
            assert store.queue(name).timed is True
            assert len(store.delayed.list(name)) == before + 1
        report = store.admin.verify()
        assert report.ok, report.findings


def test_a_failed_definition_is_told() -> None:
    """The queue could not be made timed: the put has the error, and nothing is put."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("q", kind="work")
    txn = store.transaction()
    txn.put("q", b"before")
    env.fail("write", "*.log")
    with pytest.raises(StoreFailed):
        txn.put("q", b"m", deliver_at=DUE_US)
    txn.rollback()
    assert store.browse("q").payloads() == []
    env = env.kill()
    with open_store(env) as store:
        assert store.browse("q").payloads() == []


def test_what_was_stored_before_is_taken_as_it_is() -> None:
    """Options of an earlier release that would be refused now stand; others may be altered."""
    with open_store(new_machine(2)) as store:
        store.create_queue("q", kind="work", timed=False)
        assert store.alter_queue("q", text="words").timed is False
        with pytest.raises(InvalidArgument, match="counts where times do"):
            store.alter_queue("q", ttl=1.0)
        assert store.alter_queue("q", timed=None).timed is None
        store.put("q", b"m", delay=1.0)
        assert store.queue("q").timed is True
