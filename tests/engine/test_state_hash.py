"""The number of the latest record and the state's hash, as `verify` tells them."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pytest

from quire.calls.signal_safety import allow_reentry
from quire.engine import EmbeddedStore as Store
from quire.engine.inspection.contents_digest import Contents
from quire.engine.pages.block_places import Places
from quire.engine.state import state_hash
from quire.engine.state.durable_state import DurableQueue, DurableState, DurableSubscription
from quire.engine.state.fold import Fold, decode_record
from quire.engine.state.state_hash import OF_QUEUE, OF_STORE, OF_SUBSCRIPTION
from quire.journal import KIND_GENERATION, Geometry, JournalFinding, scan
from quire.testing import SimEnv
from tests.engine.alone import Alone
from tests.engine.workload import PATH, new_machine
from tests.kit.folded_state import check_folded

GEOMETRIES: list[dict[str, Any]] = [
    {"page_size": 4096, "data_files": 1},
    {"page_size": 16384, "data_files": 3},
]


# All that a machine decides: pages, files, what goes into the journal, and where blocks end.
PLACES: list[dict[str, Any]] = [
    {"page_size": 4096, "data_files": 1},
    {"page_size": 4096, "data_files": 3, "inline_limit_bytes": 16, "ltds_compression": "lz4"},
    {"page_size": 16384, "data_files": 2, "inline_limit_bytes": 2000, "write_buffer_bytes": 20_000},
]

# Of what the fold keeps: what is not hashed, and why (HS2).
LEFT_OUT = {
    "store.ltds": "files by id, and when they go: a machine's business",
    "store.names": "they are in the catalog",
    "store.values": "an index of the catalog's entries",
    "queue.beside": "what takes the effects of changes, if anything",
    "queue.config": "it is in the catalog",
    "queue.directory": "where record pages are, which depends on when a checkpoint was made",
    "queue.ltds": "the store's",
    "queue.queue_id": "it is the key",
    "queue.ring": "the subscriptions again, in the order of their latest look",
    "queue.tail": "where blocks are, and their borders",
    "subscription.durable": "it is in the catalog",
    "subscription.exclusive": "it is in the catalog",
    "subscription.name": "it is in the catalog",
    "subscription.where": "it is in the catalog",
    "subscription.subscription_id": "it is the key",
}


class Clock(SimEnv):
    """Whose wall clock shows what a test sets, however often it is looked at."""

    shown_us = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.shown_us


def told(store: Store, *names: str) -> tuple[Any, ...]:
    """Number and hash, and what else is named."""
    report = store.admin.verify(contents=bool(names))
    assert report.ok, report.findings
    return tuple(report.checked[name] for name in ("number", "state_hash", *names))


def work(store: Store, follower: Follower, rng: random.Random, *, checkpoints: float) -> None:
    """Something of each kind that a record tells."""
    chance = random.Random(checkpoints)  # of its own: what is done does not depend on it
    rows = "id bigint, at timestamp, tags array<string>"
    queues: dict[str, dict[str, Any]] = {
        "work": {"kind": "work", "dedup_count": 5},
        "tried": {"kind": "work", "max_deliveries": 9, "dead_letter": "work"},
        "topic": {"kind": "topic"},
        "memory": {"kind": "work", "type": "volatile"},
        "rows": {"kind": "work", "schema": rows},
        "numbered": {"kind": "work", "order": {"sequence": "number"}},
    }
    for name, options in queues.items():
        store.create_queue(name, **options)
    store.subscribe("topic", "a")
    store.subscribe("topic", "b")
    for number in range(40):
        if chance.random() < checkpoints:
            follower.catch_up()  # its segments are taken away
            store.admin.checkpoint()
        with store.transaction(large=rng.random() < 0.1) as txn:
            txn.put_many("topic", [b"%d" % number * rng.randrange(1, 900) for _ in range(5)])
            txn.put("work", b"once", request_id=f"{number % 8}")
            txn.put("tried", b"tried", group=number % 3, attributes={"n": f"{number}"})
            at = datetime(2020, 1, 1, tzinfo=UTC)
            txn.put_many("rows", [{"id": number, "at": at, "tags": ["a"]}, {"id": None}])
            txn.put("memory", b"nobody's")
            txn.put("numbered", b"next", sender="s", attributes={"number": f"{number}"})
            if number % 2:
                txn.get("numbered")
            txn.get_many("topic/a", rng.randrange(1, 8))
            txn.enter("key", number)
            if number % 5 == 0:
                txn.set_value("step", f"{number % 3}", b"%d" % number)
            if number % 9 == 8:
                txn.seek("topic/b", number)
        with store.transaction() as txn:
            tried = txn.get("tried")
            if tried is not None and number % 4 == 2:
                txn.unget()  # it was not delivered after all
            if tried is not None and number % 4 == 0:
                txn.reject(tried, "not yet", delay=rng.choice([1e-6, 3600.0]))
            txn.rollback()
        if number == 20:
            store.alter_queue("rows", schema=f"{rows}, added double")
            with store.transaction() as txn:
                txn.put_stream("work", BytesIO(rng.randbytes(3_000_000)))
        if number % 10 == 9:
            prepared = store.transaction()
            prepared.put_many("work", [bytes(3000)] * 3)
            prepared.get("work")
            prepared.set_value("held", f"{number}", b"")
            prepared.prepare(f"x{number}")
            if number % 20 == 9:
                store.prepared.commit(f"x{number}")


class Follower:
    """Folds the journal's records alone: it reads no checkpoint, and no page."""

    def __init__(self, env: SimEnv, store: Store) -> None:
        self._env = env
        settings = store._opened.settings
        self._geometry = Geometry(
            store.integration.store_id, settings["segment_bytes"], settings["page_size"]
        )
        self._state = DurableState()
        self._fold = Fold(self._state, Alone(lambda where, text: pytest.fail(text)))
        self._number = self._lsn = self._behind = 0

    def catch_up(self) -> tuple[Any, ...]:
        """Number and hash."""
        journal = f"{PATH}/journal"
        for group in scan(self._env, journal, self._geometry, restart_lsn=self._lsn):
            assert not isinstance(group, JournalFinding), group
            self._lsn = group.header.lsn
            for record in group.records():
                if record.kind == KIND_GENERATION or record.address <= self._behind:
                    continue
                self._number += 1
                self._behind = record.address
                said = decode_record(record, "here")
                self._fold.take(record.kind, record.sequence, record.address, said, "here")
        return self._number, state_hash.hash_of(state_hash.values_of(self._state))


@pytest.mark.cases(2)
@pytest.mark.promise(8)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("checkpoints", [0.0, 0.2])
def test_promise_8_state_and_number_are_of_the_records_alone(
    geometry: dict[str, Any], checkpoints: float, seed: int
) -> None:
    """Live, recovered and folded by a follower of the journal, whatever was checkpointed."""
    env = new_machine(seed)
    options = geometry | {"segment_bytes": 4 << 20, "checkpoint_bytes": 1 << 40}
    store = Store.open(PATH, env=env, background=False, **options)
    follower = Follower(env, store)
    work(store, follower, random.Random(seed), checkpoints=checkpoints)
    live = told(store)
    assert live == follower.catch_up()
    store.admin.checkpoint()
    assert told(store) == live
    crashed = env.kill()
    store.abandon("its machine has crashed")
    with Store.open(PATH, env=crashed, background=False) as store:
        assert told(store) == live
        store.put("topic", b"one more")
        number, after = told(store)
        assert number == live[0] + 1
        assert after != live[1]


@pytest.mark.cases(4)
@pytest.mark.promise(8)
def test_promise_8_what_no_record_tells_is_not_in_the_state(seed: int) -> None:
    """Gets, rejects and moves that are rolled back: at one record number the state has one hash,
    before, after, from a checkpoint and opened again; and it is the fold of the files.
    """
    rng = random.Random(seed)
    for run in range(6):
        env = new_machine(seed + run)
        hashes: dict[int, str] = {}
        store = Store.open(PATH, env=env, background=False)
        tried: dict[str, Any] = {"max_deliveries": 9, "dead_letter": "plain"}
        queues = {"plain": {}, "tried": tried, "later": {"retry": {"delay": 5.0}}}
        for name, options in queues.items():
            store.create_queue(name, kind="work", **options)
            store.put_many(name, [b"%d" % n for n in range(9)])
        for _ in range(45):
            name = rng.choice(list(queues))
            with store.transaction() as txn:
                messages = txn.get_many(name, rng.randrange(1, 4))
                if messages and rng.random() < 0.3:
                    txn.reject(messages[0], "no", delay=rng.choice([None, 1.0, 9.0]))
                if rng.random() < 0.3:
                    txn.move(name, "plain", rng.randrange(1, 4))
                if rng.random() < 0.8:
                    txn.rollback()
            if rng.random() < 0.15:
                store.admin.checkpoint()
            if rng.random() < 0.15:
                if rng.random() < 0.5:
                    store.close()
                else:
                    env = env.kill()
                    store.abandon("its process was killed")
                store = Store.open(PATH, env=env, background=False)
            number, state = told(store)
            assert hashes.setdefault(number, state) == state
            assert check_folded(store)
        store.close()
        assert len(hashes) > 10


@pytest.mark.cases(4)
@pytest.mark.promise(8)
def test_promise_8_state_and_contents_depend_on_no_place(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same work, at the same times, on stores that differ in pages, files, blocks, and in when
    checkpoints are: number, state and contents are equal, and so they are when it is opened again.
    """
    # What is prepared is named by chance, and its name is part of the state.
    monkeypatch.setattr(Places, "new_id", lambda places: 7)
    # Records say the same wish everywhere, as if they were one store's; each has its own files.
    monkeypatch.setattr("quire.engine.namespaces.admin.file_for", lambda name, files: len(name))
    found: set[tuple[Any, ...]] = set()
    for places, checkpoints in zip(PLACES, (0.0, 0.5, 0.1), strict=True):
        env = Clock(seed)
        env.make_directory("/disk")
        env.sync_directory("/")
        options = places | {"segment_bytes": 4 << 20, "checkpoint_bytes": 1 << 40}
        store = Store.open(PATH, env=env, background=False, **options)
        work(store, Follower(env, store), random.Random(seed), checkpoints=checkpoints)
        found.add(told(store, "contents"))
        store.admin.checkpoint()
        found.add(told(store, "contents"))
        store.close()
        with Store.open(PATH, env=env, background=False) as store:
            found.add(told(store, "contents"))
            before = told(store, "contents")[2]
            store.put("topic", b"one more")
            assert told(store, "contents")[2] != before
    assert len(found) == 1


def test_the_digest_is_of_each_part_of_a_message(seed: int) -> None:
    """A canary: messages that differ in one thing alone have different digests."""
    ways: list[dict[str, Any]] = [
        {"payload": b"one"}, {"payload": b"two"}, {"payload": b"one", "priority": 1},
        {"payload": b"one", "sender": "s"}, {"payload": b"one", "correlation_id": "s"},
        {"payload": b"one", "attributes": {"a": "b"}}, {"payload": b"one", "expires_at": 1 << 55},
        {"payload": b""},
    ]  # fmt: skip
    found = set()
    for way in ways:
        env = Clock(seed)
        env.make_directory("/disk")
        with Store.open(PATH, env=env, background=False) as store:
            store.create_queue("q", kind="work", order="priority", timed=True)
            store.put("q", **way)
            found.add(told(store, "contents")[2])
    assert len(found) == len(ways)


def test_the_digest_is_of_one_moment(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that are got and put while it is made change nothing of it: pages and files that
    they free stay as they are, and are given back afterwards."""
    env = new_machine(seed)
    options: dict[str, Any] = {"inline_limit_bytes": 16, "segment_bytes": 4 << 20}
    with Store.open(PATH, env=env, background=False, **options) as store:
        store.create_queue("q", kind="work")
        for large in (False, True, False):
            with store.transaction(large=large) as txn:
                txn.put_many("q", [bytes([number]) * 900 for number in range(50)])
        store.admin.checkpoint()
        before = told(store, "contents")
        digest = Contents.digest

        def busy(self: Contents) -> str:
            def meanwhile() -> None:
                with store.transaction() as txn:
                    assert len(txn.get_many("q", 140)) == 140
                store.put_many("q", [b"new" * 300] * 140)
                store._maintenance.step()

            allow_reentry(meanwhile)
            return digest(self)

        monkeypatch.setattr(Contents, "digest", busy)
        assert told(store, "contents") == before
        monkeypatch.undo()
        store.admin.checkpoint()
        assert told(store, "contents")[2] != before[2]
        assert not store._opened.places._ltds_pins
        assert store.status()["large_transactions"]["files"] == 0


def test_what_is_damaged_has_no_digest(seed: int) -> None:
    """It is a finding; what was held for the digest is let go."""
    env = new_machine(seed)
    with Store.open(PATH, env=env, background=False, inline_limit_bytes=16) as store:
        store.create_queue("q", kind="work")
        store.put("q", b"x" * 5000)
        [queue] = store._state().by_name()
        [ref] = queue.records
        env.corrupt(f"{PATH}/data/0.dat", ref.address + 100)
        report = store.admin.verify(contents=True)
        assert any("contents have no digest" in text for text in report.findings)
        assert "contents" not in report.checked
        env.corrupt(f"{PATH}/data/0.dat", ref.address + 100)
        told(store, "contents")


def test_whatever_the_fold_keeps_is_hashed_or_left_out_with_a_reason() -> None:
    """Each attribute is in one of both (HS2)."""
    for kind, table, words in (
        (DurableState, OF_STORE, "store"),
        (DurableQueue, OF_QUEUE, "queue"),
        (DurableSubscription, OF_SUBSCRIPTION, "subscription"),
    ):
        left_out = {name.partition(".")[2] for name in LEFT_OUT if name.startswith(f"{words}.")}
        assert set(table) | left_out == set(kind.__slots__)
        assert not set(table) & left_out


@pytest.mark.parametrize("section", ["ledger", "catalog", "queues", "prepared"])
def test_what_is_left_out_of_the_hash_is_missed(
    section: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary: two states that differ in it have different hashes, but for one that omits it."""
    hashes = []
    for omitted in (False, True):
        table = {name: tell for name, tell in OF_STORE.items() if not (omitted and name == section)}
        monkeypatch.setattr(state_hash, "OF_STORE", table)
        values = state_hash.values_of(DurableState())
        hashes.append(state_hash.hash_of(values))
    assert hashes[0] != hashes[1]


def test_a_number_is_of_one_record(seed: int) -> None:
    """Groups of several, states, moves and definitions: each is one more."""
    env = new_machine(seed)
    with Store.open(PATH, env=env, background=False) as store:
        assert told(store)[0] == 0
        store.create_queue("q", kind="work")
        before = told(store)[0]
        assert before == 1
        with store.transaction() as txn:
            txn.put("q", b"m")
            txn.set_value("s", "k", b"v")
        assert told(store)[0] == before + 1
        ids: list[int] = []
        store.together([lambda: ids.append(store.put("q", b"1"))] * 2)
        assert told(store)[0] == before + 3
        store.states.drop("s")
        assert told(store)[0] == before + 4
