"""Puts with request ids: a put that is repeated puts nothing (RQ1 to RQ3 of `requests`)."""

from __future__ import annotations

from typing import Any

import pytest

from quire import dump
from quire.definitions.properties import Properties
from quire.engine import EmbeddedStore as Store
from quire.engine.checkpoints.snapshot import QueueSnapshot
from quire.engine.live_state.engine_state import EngineState
from quire.engine.records.checkpoint_file import IntegerRuns
from quire.engine.state.durable_state import DurableQueue
from quire.engine.state.requests import Requests
from quire.errors import AlreadyCommitted, InvalidArgument, KeyHeld, TransactionError
from quire.file_dump.words import in_words
from quire.testing import SimEnv
from tests.engine.workload import (
    PATH,
    Oracle,
    Workload,
    check_store,
    open_store,
    request_ids,
)


def run_several(seeds: range) -> None:
    """Workloads without a crash, each looked at by another process at its end."""
    for seed in seeds:
        workload, env, oracle = Workload(seed, repeats=0.6, steps=80), SimEnv(seed), Oracle()
        workload(env, oracle)
        check_store(env.kill(), oracle, seed=seed)


@pytest.mark.cases(3)
@pytest.mark.parametrize("broken", ["fold", "check", "checkpoint"])
def test_canary_a_broken_engine_is_caught(
    monkeypatch: pytest.MonkeyPatch, seed: int, broken: str
) -> None:
    """One that forgets ids, one that looks for them at the put only, one that saves none."""
    if broken == "fold":
        monkeypatch.setattr(DurableQueue, "keep_request", lambda *_: None)
    elif broken == "check":
        monkeypatch.setattr(EngineState, "_check_request", lambda *_: None)
    else:
        whole = QueueSnapshot.document

        def forgetful(queue: QueueSnapshot, numbers: IntegerRuns) -> dict[str, Any]:
            known = whole(queue, numbers)
            known.pop("requests", None)
            return known

        monkeypatch.setattr(QueueSnapshot, "document", forgetful)
    with pytest.raises((AssertionError, TransactionError)):  # an id that is not known
        run_several(range(seed, seed + 100))


@pytest.fixture
def env() -> SimEnv:
    """A machine with a directory for the store."""
    env = SimEnv(1)
    env.make_directory("/disk")
    env.sync_directory("/")
    return env


@pytest.fixture
def once(env: SimEnv) -> Store:
    """A store with a work queue that keeps three request ids."""
    store = open_store(env)
    store.create_queue("once", kind="work", dedup_count=3)
    return store


def test_it_outlives_its_message_and_the_process(env: SimEnv, once: Store) -> None:
    """In the journal, in a checkpoint, and in the journal after one."""
    first = once.put("once", b"1", request_id="a")
    assert once.get("once") is not None
    store = open_store(env.kill())
    assert store.put("once", b"2", request_id="a") == first
    store.admin.checkpoint()
    second = store.put("once", b"2", request_id="b")
    assert store.admin.verify().ok
    store = open_store(store._env.kill())  # type: ignore[attr-defined]
    assert store.put("once", b"3", request_id="a") == first
    assert store.put("once", b"3", request_id="b") == second
    assert store.browse("once").payloads() == [b"2"]
    store.close()


def test_the_window_by_count(once: Store) -> None:
    """So many ids of other puts later it is forgotten; puts without one do not count."""
    ids = [once.put("once", b"", request_id=name) for name in "abc"]
    for _ in range(5):
        once.put("once", b"")
    assert [once.put("once", b"", request_id=name) for name in "abc"] == ids
    once.put("once", b"", request_id="d")
    assert request_ids(once, "once") == ["b", "c", "d"]
    assert once.put("once", b"", request_id="a") > ids[-1]
    assert request_ids(once, "once") == ["c", "d", "a"]
    once.close()


def test_the_window_by_time(env: SimEnv, once: Store) -> None:
    """After so many seconds it is a new put, whatever else came; memory goes with the next one."""
    once.alter_queue("once", dedup_count=None, dedup_seconds=10.0)
    first = once.put("once", b"", request_id="a")
    env.advance(6)
    assert once.put("once", b"", request_id="a") == first
    once.put("once", b"", request_id="b")
    env.advance(6)
    assert once.put("once", b"", request_id="a") > first
    env.advance(6)
    once.put("once", b"", request_id="c")
    assert request_ids(once, "once") == ["a", "c"]
    once.close()


def test_the_clock_is_set_back() -> None:
    """What had ended by the clock of its put is committed again: it is the newest one then."""
    properties, requests = Properties(dedup_seconds=10.0), Requests()
    for request_id, time_us in (("a", 20_000_000), ("b", 21_000_000), ("a", 22_000_000)):
        requests.commit(request_id, time_us, time_us, properties)
    assert list(requests.copy_known()) == ["b", "a"]
    assert requests.find("a", 0) == 22_000_000
    size = requests.checkpoint_bytes
    requests.commit("c", 1, 31_500_000, properties)
    assert (list(requests.copy_known()), requests.checkpoint_bytes) == (["a", "c"], size)


def test_the_window_is_altered(env: SimEnv, once: Store) -> None:
    """Online, durably: smaller at once, and away."""
    for name in "abc":
        once.put("once", b"", request_id=name)
    once.alter_queue("once", dedup_count=1)
    assert request_ids(once, "once") == ["c"]
    store = open_store(env.kill())
    assert request_ids(store, "once") == ["c"]
    store.alter_queue("once", dedup_count=None)
    assert request_ids(store, "once") == []
    with pytest.raises(InvalidArgument, match="keeps no request ids"):
        store.put("once", b"", request_id="c")
    store.admin.checkpoint()
    store.close()


def test_a_queue_that_is_made_again_knows_nothing(once: Store) -> None:
    """The ids go with the queue."""
    once.put("once", b"", request_id="a")
    once.drop_queue("once")
    once.create_queue("once", kind="work", dedup_count=3)
    once.put("once", b"", request_id="a")
    assert once.queue("once").messages == 1
    once.close()


def test_a_prepared_transaction_holds_it(env: SimEnv, once: Store) -> None:
    """Others wait for its decision, over a restart too; its commit makes it known."""
    for xid, commit in (("x", True), ("y", False)):
        txn = once.transaction()
        txn.put("once", b"prepared", request_id=xid)
        txn.prepare(xid)
        once.admin.checkpoint()
        once = open_store(once._env.kill())  # type: ignore[attr-defined]
        with pytest.raises(KeyHeld, match="request id"):
            once.put("once", b"other", request_id=xid)
        if commit:
            once.prepared.commit(xid)
            (message,) = once.get_many("once")
            assert once.put("once", b"other", request_id=xid) == message.id
        else:
            once.prepared.rollback(xid)
            once.put("once", b"other", request_id=xid)
            assert once.browse("once").payloads() == [b"other"]
    once.close()


def test_it_is_known_with_files_and_spilled_messages(once: Store) -> None:
    """Its message's id is right wherever the message went, in a transaction with many others."""
    for name, large, count in (("a", True, 300), ("b", False, 30)):
        with once.transaction(large=large) as txn:
            txn.put_many("once", [b"x" * 500] * count)
            message_id = txn.put("once", b"once", request_id=name)
            txn.put_many("once", [b"y" * 500] * count)
        found = [m for m in once.browse("once") if m.payload == b"once"]
        assert found[-1].id == int(message_id) == once.put("once", b"", request_id=name)
    once.close()


def test_what_is_found_is_durable(env: SimEnv, once: Store) -> None:
    """A durable put that finds one which is not durable yet has it synced."""
    once.put("once", b"1", request_id="a", durable=False)
    assert once.status()["journal"]["unsynced_bytes"]
    once.put("once", b"1", request_id="a", durable=False)
    assert once.status()["journal"]["unsynced_bytes"]
    once.create_queue("memory", kind="work", type="volatile")
    once.put("once", b"2", durable=False)
    with once.transaction() as txn:
        txn.put("once", b"1", request_id="a")
        txn.put("memory", b"")
    assert not once.status()["journal"]["unsynced_bytes"]
    once.put("once", b"3", request_id="b", durable=False)
    once.put("once", b"3", request_id="b")
    assert not once.status()["journal"]["unsynced_bytes"]
    store = open_store(env.crash(outcome="lost"))
    assert store.browse("once").payloads() == [b"1", b"2", b"3"]
    store.close()


def test_a_transaction_has_so_many(once: Store) -> None:
    """As the journal's record takes; what is refused leaves the transaction as it was."""
    once.alter_queue("once", dedup_count=10_000)
    names = [f"{number:0200}" for number in range(10_000)]
    txn = once.transaction()

    def put_all() -> None:
        for name in names:
            txn.put("once", b"x" * 20, request_id=name)

    with pytest.raises(InvalidArgument, match="commit this one"):
        put_all()
    txn.put("once", b"", request_id=names[0])
    txn.commit()
    assert once.queue("once").request_ids == once.queue("once").messages > 100
    assert once.put("once", b"", request_id=names[0]) == once.browse("once")[0].id
    once.close()


def test_dump_tells_it(env: SimEnv, once: Store) -> None:
    """Which message of the transaction it is of, and how many the queue keeps."""
    with once.transaction() as txn:
        txn.put("once", b"1")
        txn.put("once", b"2", request_id="a")
    once.put("once", b"3", request_id="b")
    assert once.queue("once").request_ids == 2
    items = [*dump(PATH, env=env), *dump(PATH, journal=True, env=env)]
    text = "\n".join(line for item in items for line in in_words(item))
    assert ", 2 request ids" in text
    assert "COMMIT" in text
    assert "entry: key 'a', version 1, queue #1 'once'" in text
    once.close()


def test_two_that_are_open_at_once(once: Store) -> None:
    """The second one's commit is refused, whole; begun again its put finds the first."""
    first, second = once.transaction(), once.transaction()
    first.put("once", b"1", request_id="a")
    second.put("once", b"2")
    second.put("once", b"3", request_id="a")
    first.commit()
    with pytest.raises(AlreadyCommitted, match="request 'a'"):
        second.commit()
    assert second.state == "rolled back"
    assert once.browse("once").payloads() == [b"1"]
    once.close()
