"""Each kind of section is whole or not there, wherever the power fails, in state and number."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.records import format
from quire.engine.records.commit_record import CommitRecord
from quire.engine.state.fold import RecordBody, decode_record
from quire.engine.state.sections.kinds import KINDS
from quire.errors import StoreFailed
from quire.journal import JournalFinding, geometry_of, list_segments, scan
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import PATH, new_machine, open_store

Told = tuple[int, str]  # number and hash of a store


def make(env: SimEnv) -> None:
    """What each of the workloads starts from."""
    with open_store(env) as store:
        store.create_queue("work", kind="work", dedup_count=9)
        store.create_queue("tried", kind="work", max_deliveries=9, dead_letter="work")
        store.create_queue("numbered", kind="work", order={"sequence": "n"})
        store.put("numbered", b"first", attributes={"n": "1"}, sender="s")
        store.create_queue("topic", kind="topic")
        store.subscribe("topic", "s")
        for number in range(4):
            for name in ("work", "tried", "topic"):
                store.put(name, b"%d" % number)
        with store.transaction() as txn:
            txn.get_many("topic/s", 3)
            txn.set_value("step", "gone", b"before")
        prepare(store, "before", bytes(9000))
        deliver(store)


def prepare(store: Store, xid: str, payload: bytes) -> None:
    """Something of all that can be held."""
    txn = store.transaction()
    txn.put("work", payload, request_id=xid)
    txn.get("work")
    txn.set_value("step", xid, b"held")
    txn.enter(xid, 1)
    txn.prepare(xid)


def move(store: Store) -> None:
    """With messages, reads and a ledger entry in the same record, as all have them."""
    with store.transaction() as txn:
        txn.put("topic", b"new")
        txn.get("work")
        txn.enter("key", 1)
        txn.seek("topic/s", 4)


def set_values(store: Store) -> None:
    """One set, one deleted."""
    with store.transaction() as txn:
        txn.put("work", b"asked for", request_id="r")
        txn.set_value("step", "key", b"value")
        txn.set_value("step", "gone", None)


def place(store: Store) -> None:
    """Blocks go to pages."""
    with store.transaction() as txn:
        txn.put_many("work", [b"%d" % number * 3000 for number in range(5)])
        txn.put("topic", bytes(5000))


def deliver(store: Store) -> None:
    """Only that it was tried."""
    txn = store.transaction()
    txn.get("tried")
    txn.rollback()


def fail(store: Store) -> None:
    """What has failed is to come later; a commit of nothing makes durable what was before."""
    with store.transaction() as txn:
        message = txn.get("work")
        assert message is not None
        txn.reject(message, "not yet", delay=30.0)
    if store._context.committer.failed:  # a rejection itself does not raise that
        raise StoreFailed("nothing of it is acknowledged")


def give_back(store: Store) -> None:
    """Only that it was not tried after all; a commit of nothing makes durable what was before."""
    queue, subscription = store._context.state.source("tried")
    store._context.committer.take_back(queue, subscription, [(0, 1)])
    if store._context.committer.failed:  # that itself does not raise
        raise StoreFailed("nothing of it is acknowledged")
    with store.transaction():
        pass


def read_numbered(store: Store) -> None:
    """The first of a sequence is read."""
    with store.transaction() as txn:
        assert txn.get("numbered") is not None


WORKLOADS: dict[int, Callable[[Store], object]] = {
    format.MOVES: move,
    format.VALUES: set_values,
    format.ATTACHMENT: place,
    format.HELD: lambda store: prepare(store, "x", b"small"),
    format.DECIDES: lambda store: store.prepared.commit("before"),
    format.DELIVERIES: deliver,
    format.FAILURES: fail,
    format.NUMBERS: read_numbered,
    format.UNTOUCHED: give_back,
}


def test_each_kind_of_section_has_its_workload() -> None:
    """A new one fails here until it has."""
    assert WORKLOADS.keys() == KINDS.keys()


def told(store: Store) -> Told:
    """Number and hash, of a store that is whole."""
    report = store.admin.verify()
    assert report.ok, report.findings
    return report.checked["number"], report.checked["state_hash"]


def sections(env: SimEnv) -> list[int]:
    """Kinds of those in the journal's last record."""
    journal = f"{PATH}/journal"
    geometry = geometry_of(env, journal)
    oldest = list_segments(env, journal)[0] * geometry.segment_bytes
    said: RecordBody = None
    for group in scan(env, journal, geometry, restart_lsn=oldest):
        assert not isinstance(group, JournalFinding)
        for record in group.records():
            said = decode_record(record, "here")
    assert isinstance(said, CommitRecord)
    return [section.kind for section in said.sections]


@pytest.mark.cases(3)
@pytest.mark.crash
@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("kind", WORKLOADS)
def test_promise_1_2_power_failure_at_every_call(kind: int, seed: int) -> None:
    """Once it was acknowledged all of it is there, before that all or nothing."""
    base = new_machine(seed)
    make(base)

    def run(env: SimEnv, done: list[Told]) -> None:
        store = open_store(env)
        WORKLOADS[kind](store)
        done.append((0, ""))
        store.close()

    with open_store(base.kill()) as store:
        before = told(store)
    whole = base.kill()
    with open_store(whole) as store:
        WORKLOADS[kind](store)
        after = told(store)
        journal = whole.if_it_crashed(outcome="kept")
    assert kind in sections(journal)
    assert after[0] == before[0] + 1

    def check(env: SimEnv, done: list[Told]) -> None:
        with open_store(env) as store:
            assert told(store) in ((after,) if done else (before, after))

    assert enumerate_crashes(
        run, check, list, seed=seed, rounds=2, new_env=lambda _: base.kill()
    ) > 10  # fmt: skip
