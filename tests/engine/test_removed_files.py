"""Files of large transactions that were removed, and come back by a power failure.

The directory is not synced after each removal: a file may have its name again afterwards.
"""

from __future__ import annotations

import pytest

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.engine.pages.block_places import Places
from quire.engine.pages.discarded_files import DiscardedFiles
from quire.errors import PositionLost, StoreCorrupt, StoreFailed
from quire.ltds import LtdsWriter, is_foreign, list_ids, new_id
from quire.testing import Call, SimEnv, enumerate_crashes
from tests.engine.workload import PATH, make_room, new_machine, open_store

pytestmark = [pytest.mark.crash, pytest.mark.cases(4, of_file=True)]

LTDS = f"{PATH}/ltds"


def foreign(env: SimEnv, store: Store) -> int:
    """A finished file as another process writes it."""
    writer = LtdsWriter(env, LTDS, store.integration.store_id, new_id(env, foreign=True))
    builder = BlockBuilder()
    builder.add_many([b"adopted" * 100] * 20)
    writer.add(builder)
    return writer.finish().id


def furnish(env: SimEnv, store: Store) -> tuple[int, int]:
    """A large transaction with a file of its own and one that it adopts, committed; their ids."""
    if not store.queues():
        store.create_queue("q", kind="work")
    before = set(list_ids(env, LTDS))
    adopted = foreign(env, store)
    with store.transaction(large=True) as txn:
        txn.put_many("q", [b"own" * 1000] * 20)
        txn.integration.adopt("q", adopted)
    (own,) = set(list_ids(env, LTDS)) - before - {adopted}
    assert not is_foreign(own)
    return own, adopted


def read_all(store: Store) -> int:
    """Take everything; how many messages."""
    with store.transaction() as txn:
        return len(txn.get_many("q", 1000))


def check_gone(env: SimEnv, files: tuple[int, int]) -> None:
    """Nothing of them is delivered, nobody can adopt one, and the next removal takes them."""
    store = open_store(env)
    assert store.queue("q").messages == 0
    assert store.admin.verify().ok
    assert store.status()["large_transactions"]["files"] == 0
    txn = store.transaction()
    with pytest.raises(PositionLost):
        txn.integration.adopt("q", files[1])
    txn.rollback()
    store.close()
    assert list_ids(env, LTDS) == []


@pytest.mark.parametrize("told_by", ["the journal", "a checkpoint"])
def test_a_removed_file_that_comes_back_is_removed_again(seed: int, told_by: str) -> None:
    """Its release is durable, so nothing of it is live, and it is not adopted again."""
    env = new_machine(seed)
    store = open_store(env)
    files = furnish(env, store)
    assert read_all(store) == 40
    if told_by == "a checkpoint":
        store.admin.checkpoint()
    store.close()
    assert list_ids(env, LTDS) == []
    for n in range(2):
        back = env.crash(outcome="lost", seed=n)
        assert list_ids(back, LTDS) == sorted(files)
        check_gone(back, files)
        check_gone(back.crash(outcome="lost", seed=n), files)


def test_a_file_whose_removal_waits_is_not_adopted_after_a_kill(seed: int) -> None:
    """A lease holds it beyond the checkpoint that forgets its commit; the process is killed."""
    env = new_machine(seed)
    store = open_store(env)
    files = furnish(env, store)
    store.integration.lease("q", 0, 40, seconds=1e9)
    assert read_all(store) == 40
    store.admin.checkpoint()
    store.admin.checkpoint()
    killed = env.kill()
    assert list_ids(killed, LTDS) == sorted(files)
    check_gone(killed, files)


def test_checkpoints_forget_what_is_durably_gone(seed: int) -> None:
    """The directory is synced by the first checkpoint after a removal; the list does not grow."""
    env = new_machine(seed)
    store = open_store(env)
    for _ in range(3):
        furnish(env, store)
        read_all(store)
        store.admin.checkpoint()
        store._maintenance.step()
        assert list_ids(env, LTDS) == []
        syncs = env.calls.count("sync_directory", LTDS)
        store.admin.checkpoint()
        store.admin.checkpoint()
        assert env.calls.count("sync_directory", LTDS) == syncs + 1
    back = env.crash(outcome="lost")
    assert list_ids(back, LTDS) == []
    store = open_store(back)
    assert store.status()["large_transactions"]["removable"] == 0


def remove_slices(store: Store) -> None:
    """What the store's thread does, without its pauses."""
    places = store._context.places
    places.sweep(sliced=True)
    while len(places.discarded):
        places.sweep(sliced=True)


def test_a_removal_that_a_kill_interrupted_is_made_durable(seed: int) -> None:
    """The next opening finds no file: that is not durable, and its checkpoint forgets the file."""
    env = new_machine(seed)
    store = open_store(env)
    furnish(env, store)
    assert read_all(store) == 40
    store.admin.checkpoint()
    remove_slices(store)
    killed = env.kill()
    assert list_ids(killed, LTDS) == []
    store = open_store(killed)
    remove_slices(store)
    store.admin.checkpoint()
    assert list_ids(killed.crash(outcome="lost"), LTDS) == []


def test_a_checkpoint_beside_a_removal_leaves_the_sync_to_the_next_one(seed: int) -> None:
    """It is made when the removal has begun and the file is still there."""
    env = new_machine(seed)
    store = open_store(env)
    _, adopted = furnish(env, store)
    assert read_all(store) == 40
    beside: list[Call] = []

    def checkpoint_beside(call: Call) -> None:
        if call.kind == "remove" and call.path == f"{LTDS}/{adopted:016x}.ltds":
            env.before_call = None
            beside.append(call)
            store.admin.checkpoint()

    env.before_call = checkpoint_beside
    remove_slices(store)
    assert len(beside) == 1
    store.admin.checkpoint()
    assert list_ids(env.crash(outcome="lost"), LTDS) == []


@pytest.mark.parametrize("sliced", [True, False])
def test_a_removal_whose_sync_failed_is_made_again(seed: int, sliced: bool) -> None:
    """The next opening finds no file, and no later sync makes that durable (DI5)."""
    env = new_machine(seed)
    store = open_store(env)
    _, adopted = furnish(env, store)
    assert read_all(store) == 40
    store.admin.checkpoint()
    remove_slices(store)
    env.fail("sync_directory", LTDS)
    with pytest.raises(StoreFailed):
        store.admin.checkpoint()
    env = env.kill()
    assert list_ids(env, LTDS) == []
    store = open_store(env)
    if sliced:
        remove_slices(store)
    else:
        store._context.places.sweep()
    store.admin.checkpoint()
    assert adopted not in list_ids(env.crash(outcome="lost"), LTDS)


class Noted:
    """How far the work went."""

    def __init__(self) -> None:
        self.adopted = 0  # the file whose commit was acknowledged
        self.read = False


def work(env: SimEnv, noted: Noted) -> None:
    """Commit, reading, checkpoints, removal and recovery."""
    env.make_directory("/disk")
    env.sync_directory("/")
    store = open_store(env)
    _, noted.adopted = furnish(env, store)
    read_all(store)
    noted.read = True
    store.admin.checkpoint()
    store._maintenance.step()
    store.put("q", b"more")
    read_all(store)
    store.admin.checkpoint()
    store.close()
    open_store(env).close()


def check(env: SimEnv, noted: Noted) -> None:
    """What was adopted is delivered at most once, and leaves no file."""
    if not noted.adopted:
        return
    store = open_store(env)
    txn = store.transaction()
    with pytest.raises((PositionLost, StoreCorrupt)):  # refused, or missing
        txn.integration.adopt("q", noted.adopted)
    txn.rollback()
    left = store.queue("q").messages
    assert left in ((0, 1) if noted.read else (0, 40))
    assert read_all(store) == left
    store.close()
    assert list_ids(env, LTDS) == []


def open_and_remove(env: SimEnv, noted: Noted) -> None:
    """A new process after an error: removal, and checkpoints that forget what is gone."""
    make_room(env)
    store = open_store(env)
    remove_slices(store)
    store.admin.checkpoint()
    store.admin.checkpoint()
    store.close()


@pytest.mark.cases(8)
def test_a_file_is_delivered_once_whenever_the_power_fails(seed: int, rounds: int) -> None:
    """At every call: whether the removal survives, and which checkpoint, is left to chance."""
    cases = enumerate_crashes(
        work, check, Noted, seed=seed, rounds=max(2, rounds // 5), resume=open_and_remove
    )
    assert cases > 300


@pytest.mark.parametrize("forgets", [(DiscardedFiles, "sync"), (Places, "remember_released")])
def test_an_engine_that_forgets_files_is_caught(
    monkeypatch: pytest.MonkeyPatch, seed: int, forgets: tuple[type, str]
) -> None:
    """A canary: one whose checkpoints do not wait for removals, one that does not read the list."""
    monkeypatch.setattr(*forgets, lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        enumerate_crashes(work, check, Noted, seed=seed, rounds=2)
