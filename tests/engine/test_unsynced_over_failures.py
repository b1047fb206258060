"""Commits that return before they are durable: `durable=False`, promise 14.

After a power failure the last ones of the commits may be gone, never one from among others: the
workload `unsynced` of `tests.engine.crashing.drawn` shows it, whose canaries are here.
"""

from __future__ import annotations

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine.commits.sequencer import Sequencer
from quire.engine.pages.block_places import Places
from quire.errors import InvalidArgument, StoreCorrupt, StoreFailed
from quire.journal import Journal
from quire.limits import UNSYNCED_SECONDS
from quire.testing import SimEnv
from tests.engine.crashing.drawn import Drawn, Variant
from tests.engine.page_guard import guard_pages
from tests.engine.workload import (
    OPTIONS,
    PATH,
    Oracle,
    Workload,
    new_machine,
    open_store,
)
from tests.kit.crashes import CellRun
from tests.kit.limits import Limits

WEAK = 0.7  # of all commits


def test_a_move_of_a_subscription_need_not_be_durable_either() -> None:
    """It is in its place in the order, and durable with the next sync."""
    env = new_machine(1)
    store = open_store(env)
    store.create_queue("t", kind="topic")
    store.subscribe("t", "a", "earliest")
    store.put_many("t", [b"0", b"1"])
    with store.transaction(durable=False) as txn:
        txn.seek("t/a", 1)
    assert store._opened.journal.unsynced_bytes
    assert store.browse("t/a").payloads() == [b"1"]
    before = open_store(env.if_it_crashed(outcome="lost"))
    assert before.browse("t/a").payloads() == [b"0", b"1"]
    store.sync()
    after = open_store(env.crash(outcome="lost"))
    assert after.browse("t/a").payloads() == [b"1"]


@pytest.mark.cases(4)
@pytest.mark.crash
@pytest.mark.promise(10)
def test_promise_10_pages_that_are_not_durably_free_are_not_overwritten(
    seed: int, rounds: int
) -> None:
    """What a commit has read that is not durable yet is not overwritten, on any machine."""
    guarded(range(seed, seed + max(1, rounds // 12)))


def guarded(seeds: range) -> None:
    """Workloads on a disk that refuses a write to a page in use, also after a crash."""
    for seed in seeds:
        env = SimEnv(seed)
        guard_pages(env, PATH)
        Workload(seed, steps=60, lazy=WEAK, checkpoint_bytes=100_000)(env, Oracle())


def lose_power(seeds: range, *, direct: bool) -> None:
    """Try a few points on several seeds, where much is not durable."""
    for seed in seeds:
        CellRun(Drawn(seed, Variant({"lazy": 0.9}), direct=direct), seed, 10).power()


@pytest.mark.crash
@pytest.mark.parametrize("broken", ["checkpoint", "data", "order"])
def test_canary_a_broken_engine_is_caught(
    monkeypatch: pytest.MonkeyPatch, seed: int, broken: str
) -> None:
    """Engines that free too early, or sync in a wrong order, do not pass."""
    if broken == "checkpoint":
        monkeypatch.setattr(Sequencer, "sync", lambda self: None)
        monkeypatch.setattr(Journal, "sync", lambda self: None)
    elif broken == "data":
        monkeypatch.setattr(Places, "sync", lambda self, files: None)
        monkeypatch.setattr("quire.engine.pages.data_file.DataFile.sync", lambda self: None)
    else:  # what was not synced is forgotten by the next durable group

        def forget(self: Journal) -> None:
            self.unsynced_bytes = 0
            self._hooks.after_sync()

        monkeypatch.setattr(Journal, "_sync_unsynced", forget)
    with pytest.raises((AssertionError, StoreCorrupt)):
        lose_power(range(seed, seed + 20), direct=broken != "data")


@pytest.mark.cases(4)
@pytest.mark.crash
def test_canary_pages_that_are_freed_too_early_are_seen(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The disk that refuses such a write sees it at once; a loss of power shows few of them."""
    monkeypatch.setattr(Places, "hold", lambda self: None)
    with pytest.raises(AssertionError, match="of the durable store"):
        guarded(range(seed, seed + 60))


def test_one_write_and_no_sync(sim: SimEnv) -> None:
    """A commit that need not be durable is one write; the next durable one syncs for both."""
    store = weak_store(sim)
    before = len(sim.calls.log)
    store.put("work", b"1", durable=False)
    store.put("work", b"2", durable=False)
    assert [call.kind for call in sim.calls.log[before:]] == ["write", "write"]
    store.put("work", b"3")
    assert [call.kind for call in sim.calls.log[before + 2 :]] == ["write", "sync"]
    before = len(sim.calls.log)
    store.put("work", b"4")  # direct again
    assert [call.kind for call in sim.calls.log[before:]] == ["write"]
    store.close()


def weak_store(env: SimEnv) -> Store:
    """A store with a work queue."""
    env.make_directory("/disk")
    env.sync_directory("/")
    store = open_store(env)
    store.create_queue("work", kind="work")
    return store


def left(env: SimEnv) -> list[bytes]:
    """What the work queue holds once the store is recovered."""
    store = open_store(env)
    assert store.admin.verify().ok
    found = store.browse("work").payloads()
    store.close()
    return found


def test_how_long_it_may_take(sim: SimEnv) -> None:
    """A second, without anybody's doing but other commits' where the store has no thread."""
    store = weak_store(sim)
    store.put("work", b"1", durable=False)
    assert left(sim.if_it_crashed(outcome="lost")) == []
    sim.sleep(UNSYNCED_SECONDS)
    store.put("work", b"2", durable=False)
    assert left(sim.if_it_crashed(outcome="lost")) == [b"1", b"2"]
    store.put("work", b"3", durable=False)
    store.sync()
    assert left(sim.if_it_crashed(outcome="lost")) == [b"1", b"2", b"3"]
    store.put("work", b"4", durable=False)
    store.close()
    assert left(sim.if_it_crashed(outcome="lost")) == [b"1", b"2", b"3", b"4"]


def test_how_much_it_may_be(sim: SimEnv, limits: Limits) -> None:
    """So many bytes of the journal, whoever asks."""
    limits(UNSYNCED_BYTES=3 * 4096)
    store = weak_store(sim)
    for number in range(8):
        store.put("work", b"%d" % number, durable=False)
        assert store.status()["journal"]["unsynced_bytes"] < 3 * 4096
    assert len(left(sim.if_it_crashed(outcome="lost"))) == 6
    store.close()


def test_the_end_of_the_process_takes_nothing(sim: SimEnv) -> None:
    """And what the next one has recovered is durable."""
    store = weak_store(sim)
    for number in range(5):
        store.put("work", b"%d" % number, durable=False)
    after = sim.kill()
    store = open_store(after)
    assert len(store.browse("work")) == 5
    assert len(left(after.crash(outcome="lost"))) == 5


@pytest.mark.promise(11, 14)
def test_promise_11_14_a_sync_that_fails_fails_the_store(sim: SimEnv) -> None:
    """Who asks is told, and who commits after it; reading goes on. The next opening recovers."""
    store = weak_store(sim)
    store.put("work", b"1")
    store.put("work", b"2", durable=False)
    sim.fail_at(len(sim.calls.log) + 1)
    with pytest.raises(StoreFailed):
        store.sync()
    assert store.failed
    for call in (store.sync, lambda: store.put("work", b"3", durable=False)):
        with pytest.raises(StoreFailed):
            call()
    assert store.browse("work").payloads() == [b"1", b"2"]
    after = sim.kill()
    assert left(sim.if_it_crashed(outcome="lost")) == [b"1"]
    assert left(after) == [b"1", b"2"]
    assert left(after.crash(outcome="lost")) == [b"1", b"2"]


def test_what_is_read_and_not_durable_yet_is_not_given_away(sim: SimEnv) -> None:
    """Its pages are free once the reading is durable, and verify knows whose they are."""
    store = weak_store(sim)
    large = b"x" * 8000
    store.put("work", large)
    free = store.status()["data"]["free_bytes"]
    with store.transaction(durable=False) as txn:
        assert txn.get("work") is not None
    assert store.status()["data"]["free_bytes"] == free
    assert store.admin.verify().ok
    store.sync()
    assert store.status()["data"]["free_bytes"] > free
    store.close()


def test_it_cannot_be_prepared(sim: SimEnv) -> None:
    """As what is prepared is durable; it stays open."""
    store = weak_store(sim)
    txn = store.transaction(durable=False)
    txn.put("work", b"1")
    with pytest.raises(InvalidArgument, match="durable=False"):
        txn.prepare("x")
    txn.commit()
    assert store.queue("work").messages == 1
    store.close()


def test_a_lazy_loop_delivers_again_after_a_power_failure(sim: SimEnv) -> None:
    """What was handled, and what was put beside it, is as if it had not been."""
    store = weak_store(sim)
    store.create_queue("done", kind="work")
    store.put_many("work", [b"1", b"2"])
    with store.consume("work", timeout=0.0, ack="lazy") as messages:
        for message in messages:
            messages.transaction.put("done", message.payload)
    after = open_store(sim.crash(outcome="lost"))
    assert after.browse("work").payloads() == [b"1", b"2"]
    assert after.browse("done").payloads() == []
    after.close()


def test_groups_that_were_not_synced_are_no_damage(sim: SimEnv) -> None:
    """One of them is gone, and one behind it is there: it is cut with all after it, and told."""
    store = weak_store(sim)
    store.put("work", b"1")
    store.put("work", b"2", durable=False)
    lost = store._context.journal.last_lsn
    store.put("work", b"3", durable=False)
    after = sim.kill()
    spoil(after, lost)
    recovered = open_store(after)
    assert recovered.browse("work").payloads() == [b"1"]
    assert recovered.recovered is not None
    recovered.put("work", b"4")
    recovered.close()
    assert left(after) == [b"1", b"4"]


def test_damage_of_what_was_synced_is_still_told(sim: SimEnv) -> None:
    """A group behind it says that all before was durable."""
    store = weak_store(sim)
    store.put("work", b"1", durable=False)
    lost = store._context.journal.last_lsn
    store.sync()
    store.put("work", b"2", durable=False)
    after = sim.kill()
    spoil(after, lost)
    with pytest.raises(StoreCorrupt, match="later one is whole"):
        open_store(after)


def spoil(env: SimEnv, lsn: int) -> None:
    """Make a group of the journal as if it had never been written."""
    number, offset = divmod(lsn, OPTIONS["segment_bytes"])
    file = env.open_file(f"{PATH}/journal/{number:016x}.log")
    file.write(offset, bytes(4096))
    file.sync()
    file.close()
