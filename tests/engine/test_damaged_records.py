"""Damage in a record page that a change needs to know what it frees: the change is refused.

What a commit reads, what a subscription leaves behind and what a dropped queue held is looked up in
the queue's records. Found out after the journal's record was written, the damage would leave a
store that refuses commits, and a journal that no recovery can apply.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quire.calls.signal_safety import allow_reentry
from quire.engine import EmbeddedStore as Store
from quire.engine import EmbeddedTransaction as Transaction
from quire.errors import StoreCorrupt
from quire.testing import SimEnv
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.limits import Limits

PAGE = 4096
MESSAGES = 300  # a record each, in five record pages
CACHED_PAGE_BYTES = 5000  # about


def furnish(seed: int) -> tuple[SimEnv, Store]:
    """A topic with two subscriptions, the one well ahead, a work queue, all sealed; just opened."""
    env = new_machine(seed)
    store = open_store(env, page_size=PAGE)
    store.create_queue("topic", kind="topic")
    store.create_queue("work", kind="work")
    store.create_queue("other", kind="work")
    for name in ("slow", "fast"):
        store.subscribe("topic", name)
    for queue in ("topic", "work"):
        # Blocks in the data file, which no checkpoint puts together.
        for number in range(MESSAGES):
            with store.transaction() as txn:
                txn.put(queue, b"%d " % number * 2500)
    with store.transaction() as txn:
        txn.read_to("topic/fast", MESSAGES - 1)
    store.admin.checkpoint()
    store.close()
    return env, open_store(env)


def record_page(store: Store, queue: str, number: int) -> int:
    """The byte of the data file where a record page of the queue begins."""
    return store._context.state.queue(queue).records.directory[number].page * PAGE


class Damage:
    """Of the third record page of a queue; to be put right again."""

    def __init__(self, env: SimEnv, store: Store, queue: str) -> None:
        self._env = env
        self._at = record_page(store, queue, 2) + 200
        self.flip()

    def flip(self) -> None:
        self._env.corrupt(f"{PATH}/data/0.dat", self._at)


def read_to(store: Store, source: str) -> Transaction:
    """A transaction that puts, and counts nearly all as read."""
    txn = store.transaction()
    txn.put("other", b"put")
    txn.enter("key", 1)
    txn.read_to(source, MESSAGES - 1)
    return txn


def check_goes_on(env: SimEnv, store: Store) -> None:
    """Nothing of what was refused is there, and all else works, also after a power failure."""
    assert not store.failed
    assert store.queue("other").messages == 0
    assert store.integration.ledger("key") is None
    store.put("other", b"later")
    store = open_store(env.crash(outcome="lost"))
    assert store.queue("other").messages == 1
    assert {info.name: info.messages for info in store.queues()} == {
        "topic": MESSAGES, "work": MESSAGES, "other": 1,
    }  # fmt: skip


@pytest.mark.cases(2)
@pytest.mark.promise(10)
@pytest.mark.parametrize("source", ["work", "topic/slow"])
def test_promise_10_a_commit_that_reads_past_damage_is_refused(seed: int, source: str) -> None:
    """The store goes on; the same transaction commits once the page is right again."""
    env, store = furnish(seed)
    damage = Damage(env, store, source.partition("/")[0])
    txn = read_to(store, source)
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"data/0\.dat.*page \d+.*records of queue \d"):
            txn.commit()
        assert txn.state == "open"
        assert store.queue("other").open_transactions == 1
        assert store.queue("other").reserving == 0
    damage.flip()
    txn.commit()
    assert store.queue("other").messages == 1
    assert store.queue(source.partition("/")[0]).messages == 1
    assert store.admin.verify().ok


@pytest.mark.cases(2)
@pytest.mark.promise(10)
@pytest.mark.parametrize("source", ["work", "topic/slow"])
def test_promise_10_what_was_refused_leaves_no_trace(seed: int, source: str) -> None:
    """Neither in memory nor in the journal, which recovers."""
    env, store = furnish(seed)
    Damage(env, store, source.partition("/")[0])
    with pytest.raises(StoreCorrupt), read_to(store, source):
        pass
    check_goes_on(env, store)


@pytest.mark.promise(10)
def test_promise_10_messages_that_were_got_come_back(seed: int, limits: Limits) -> None:
    """The page was right when they were got, and had to be read again for the commit."""
    limits(RECORD_CACHE_BYTES=1)
    env, store = furnish(seed)
    txn = store.transaction()
    txn.put("other", b"put")
    assert len(txn.get_many("work", MESSAGES)) == MESSAGES
    damage = Damage(env, store, "work")
    with pytest.raises(StoreCorrupt):
        txn.commit()
    txn.rollback()
    assert not store.failed
    damage.flip()
    with store.transaction() as txn:
        assert len(txn.get_many("work", 1000)) == MESSAGES
    assert store.admin.verify().ok


@pytest.mark.promise(10)
def test_promise_10_one_transaction_reads_for_all_that_lag_behind(seed: int) -> None:
    """Neither of its reads releases anything alone."""
    env, store = furnish(seed)
    store.subscribe("topic", "third")
    damage = Damage(env, store, "topic")
    txn = read_to(store, "topic/slow")
    txn.read_to("topic/third", MESSAGES - 1)
    with pytest.raises(StoreCorrupt):
        txn.commit()
    assert not store.failed
    damage.flip()
    txn.commit()
    assert store.queue("topic").messages == 1
    assert store.admin.verify().ok


FINISHES: dict[str, Callable[[Store], None]] = {
    "commit": lambda store: read_to(store, "topic/third").commit(),
    "decision": lambda store: store.prepared.commit("x"),
    "unsubscribe": lambda store: store.unsubscribe("topic", "third"),
}


@pytest.mark.cases(2)
@pytest.mark.promise(10)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", FINISHES)
def test_promise_10_changes_at_the_same_time_release_together(
    seed: int, monkeypatch: pytest.MonkeyPatch, name: str, first: bool
) -> None:
    """Each alone releases nothing: the one that is looked at second is refused."""
    env, store = furnish(seed)
    store.subscribe("topic", "third")
    if name == "decision":
        with_third = store.transaction()
        with_third.read_to("topic/third", MESSAGES - 1)
        with_third.prepare("x")
        store.close()
        store = open_store(env)
    damage = Damage(env, store, "topic")
    other = store.transaction()
    other.read_to("topic/slow", MESSAGES - 1)
    changes = [other.commit, lambda: FINISHES[name](store)]
    sequencer = store._context.sequencer
    submit = sequencer.submit
    refused: list[StoreCorrupt] = []

    def submit_after_the_other(change: Any) -> None:
        monkeypatch.setattr(sequencer, "submit", submit)
        try:
            allow_reentry(changes[first])
        except StoreCorrupt as error:
            refused.append(error)
        submit(change)

    monkeypatch.setattr(sequencer, "submit", submit_after_the_other)
    changes[not first]()
    assert len(refused) == 1
    assert not store.failed
    damage.flip()
    assert open_store(env.kill()).admin.verify().ok


@pytest.mark.promise(10)
def test_promise_10_a_page_at_hand_that_goes_for_others_is_read_as_well(
    seed: int, limits: Limits
) -> None:
    """It was damaged after it was read, and would have to be read again."""
    limits(RECORD_CACHE_BYTES=2 * CACHED_PAGE_BYTES)
    env, store = furnish(seed)
    got = store.transaction()
    got.get_many("work", 190)
    got.rollback()
    records = store._context.state.queue("work").records
    assert records._pages.at_hand(records.directory[2].page)
    damage = Damage(env, store, "work")
    txn = read_to(store, "work")
    with pytest.raises(StoreCorrupt):
        txn.commit()
    assert not store.failed
    damage.flip()
    txn.commit()
    assert store.admin.verify().ok


@pytest.mark.promise(10)
def test_promise_10_verify_reads_a_page_that_is_at_hand(seed: int) -> None:
    """It was damaged after it was read."""
    env, store = furnish(seed)
    assert len(store.browse("work")) == MESSAGES
    damage = Damage(env, store, "work")
    assert store._context.state.pages.at_hand(record_page(store, "work", 2) // PAGE)
    report = store.admin.verify()
    assert any("records of queue" in finding for finding in report.findings)
    damage.flip()
    assert store.admin.verify().ok


def test_the_page_behind_one_that_is_going_is_not_taken_for_it(seed: int) -> None:
    """Whether a page is at hand is asked without the lock: when it has left one list of the two."""
    _, store = furnish(seed)
    records = store._context.state.queue("work").records
    _, _, going, behind, *_ = records.directory
    records.check([(behind.position, behind.end)])
    assert records.at_hand(behind.position, behind.end)
    del records.directory[2]
    assert not records.at_hand(going.position, going.end)


def test_what_is_not_released_is_not_looked_up(seed: int) -> None:
    """A subscription that another one lags behind frees nothing: it may pass the damage."""
    env, store = furnish(seed)
    store.subscribe("topic", "third")
    damage = Damage(env, store, "topic")
    with store.transaction() as txn:
        txn.read_to("topic/slow", MESSAGES)
    with pytest.raises(StoreCorrupt), store.transaction() as txn:
        txn.read_to("topic/third", MESSAGES)
    damage.flip()
    assert store.admin.verify().ok


@pytest.mark.promise(10)
def test_promise_10_a_prepare_and_a_decision_are_refused(seed: int) -> None:
    """It stays open, or prepared: it can be rolled back, or committed when the page is right."""
    env, store = furnish(seed)
    damage = Damage(env, store, "work")
    txn = read_to(store, "work")
    with pytest.raises(StoreCorrupt):
        txn.prepare("x")
    assert txn.state == "open"
    damage.flip()
    txn.prepare("x")
    store.close()
    store = open_store(env)
    damage.flip()
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            store.prepared.commit("x")
        assert [info.xid for info in store.prepared.list()] == ["x"]
    assert not store.failed
    store.put("other", b"later")
    damage.flip()
    killed = env.kill()
    store = open_store(killed)
    store.prepared.commit("x")
    assert store.queue("work").messages == 1
    assert store.queue("other").messages == 2
    assert store.admin.verify().ok


def test_a_prepared_transaction_is_rolled_back_whatever_is_damaged(seed: int) -> None:
    """That needs no record page."""
    env, store = furnish(seed)
    read_to(store, "work").prepare("x")
    store.close()
    store = open_store(env)
    Damage(env, store, "work")
    store.prepared.rollback("x")
    check_goes_on(env, store)


DEFINITIONS: dict[str, Callable[[Store], Any]] = {
    "drop": lambda store: store.drop_queue("topic"),
    "unsubscribe": lambda store: store.unsubscribe("topic", "slow"),
}


@pytest.mark.cases(2)
@pytest.mark.promise(10)
@pytest.mark.parametrize("name", DEFINITIONS)
def test_promise_10_a_definition_that_frees_messages_is_refused(seed: int, name: str) -> None:
    """A queue with damaged records is not dropped, and a subscription of it stays."""
    env, store = furnish(seed)
    damage = Damage(env, store, "topic")
    with pytest.raises(StoreCorrupt):
        DEFINITIONS[name](store)
    assert [s.name for s in store.subscriptions("topic")] == ["fast", "slow"]
    check_goes_on(env, store)
    env, store = furnish(seed)
    damage = Damage(env, store, "topic")
    with pytest.raises(StoreCorrupt):
        DEFINITIONS[name](store)
    damage.flip()
    DEFINITIONS[name](store)
    assert store.admin.verify().ok


def test_a_subscription_that_begins_late_is_refused(seed: int) -> None:
    """The first one of a queue frees what came before it."""
    env, store = furnish(seed)
    for name in ("fast", "slow"):
        store.unsubscribe("topic", name)
    store.close()
    store = open_store(env)
    damage = Damage(env, store, "topic")
    with pytest.raises(StoreCorrupt):
        store.subscribe("topic", "late", start="latest")
    assert store.subscribe("topic", "early").pending == MESSAGES
    store.unsubscribe("topic", "early")  # the last one frees nothing
    damage.flip()
    assert store.subscribe("topic", "late", start="latest").pending == 0
    assert store.admin.verify().ok
