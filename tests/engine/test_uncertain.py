"""What a failed write or sync left: shown until the power fails, and perhaps gone then.

A store that is opened again after such an error builds on nothing of it that it has not written
again (invariants OD3 of `engine.opened`, JV2 and JV3 of `journal.recovery`, K6 of
    `checkpoint_file`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from quire.engine import EmbeddedStore
from quire.engine.records.checkpoint_file import list_checkpoints, path_of
from quire.errors import StoreFailed
from quire.testing import SimEnv, SimulatedCrash
from tests.engine.test_removed_files import foreign
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

pytestmark = pytest.mark.crash

CHECKPOINTS = f"{PATH}/checkpoint"


def new_store(env: SimEnv) -> EmbeddedStore:
    """With one queue."""
    store = open_store(env)
    store.create_queue("work", kind="work")
    return store


def opened_again(
    env: SimEnv, store: EmbeddedStore, *, killed: bool
) -> tuple[SimEnv, EmbeddedStore]:
    """By a new process on the machine that goes on, or by the same one."""
    if killed:
        env = env.kill()
    else:
        store.close()
    return env, open_store(env)


@pytest.mark.promise(1)
@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize(("direct", "kind"), [(True, "write"), (False, "write"), (False, "sync")])
def test_promise_1_a_group_whose_write_failed_lasts_once_it_was_recovered(
    seed: int, direct: bool, kind: str, killed: bool
) -> None:
    """What is committed after the reopening is not out of reach when the power fails (JV2)."""
    env = new_machine(seed, direct=direct)
    store = new_store(env)
    store.put("work", b"acknowledged")
    env.fail(kind, "*.log", lands=True)
    with pytest.raises(StoreFailed):
        store.put("work", b"not known")
    env, store = opened_again(env, store, killed=killed)
    shown = [b"acknowledged", b"not known"]
    assert store.browse("work").payloads() == shown
    assert env.uncertain == []
    for number in range(3):
        store.put("work", b"%d" % number)
        shown.append(b"%d" % number)
    for after in (env.crash(outcome="lost"), *(env.crash(seed=n) for n in range(5))):
        again = open_store(after)
        assert again.browse("work").payloads() == shown
        assert again.admin.verify().ok


@pytest.mark.promise(1, 8)
def test_promise_1_8_a_recovery_whose_own_write_fails_is_repeated(seed: int) -> None:
    """Writing the group again fails too, and the next recovery does it: the group stays whole."""
    env = new_machine(seed)
    store = new_store(env)
    env.fail("write", "*.log", lands=True)
    with pytest.raises(StoreFailed):
        store.put("work", b"not known")
    for lands in (True, False, None):
        env = env.kill()
        env.fail("write", "*.log", lands=lands)
        with pytest.raises(StoreFailed):
            open_store(env)
    env = env.kill()
    store = open_store(env)
    store.put("work", b"after")
    again = open_store(env.crash(outcome="lost"))
    assert again.browse("work").payloads() == [b"not known", b"after"]


def checkpointed(seed: int) -> tuple[SimEnv, EmbeddedStore, list[bytes]]:
    """A store with record pages that its next checkpoint replaces, and what it holds."""
    env = new_machine(seed)
    store = new_store(env)
    payloads = [b"%d" % n * 3000 for n in range(6)]
    for payload in payloads[:3]:
        store.put("work", payload)
    store.admin.checkpoint()
    for payload in payloads[3:]:
        store.put("work", payload)
    assert take(store, "work", 1) == payloads[:1]
    return env, store, payloads[1:]


@pytest.mark.cases(2)
@pytest.mark.promise(1, 8)
@pytest.mark.parametrize("killed", [True, False])
def test_promise_1_8_a_checkpoint_whose_name_is_uncertain_lasts_once_it_was_recovered(
    seed: int, killed: bool
) -> None:
    """Its older one is removed, and pages that it frees are used, only when it is certain (K6)."""
    for n in range(4):
        env, store, payloads = checkpointed(seed + n)
        env.fail("sync_directory", "checkpoint")
        with pytest.raises(StoreFailed):
            store.admin.checkpoint()
        shown = list_checkpoints(env, CHECKPOINTS)
        assert len(shown) == 2
        env, store = opened_again(env, store, killed=killed)
        for number in range(8):
            payloads.append(b"more %d" % number * 1500)
            store.put("work", payloads[-1])
        for after in (env.crash(outcome="lost"), *(env.crash(seed=s) for s in range(12))):
            assert list_checkpoints(after, CHECKPOINTS)[-1] == shown[-1]
            again = open_store(after)
            assert again.browse("work").payloads() == payloads
            assert again.admin.verify().ok


@pytest.mark.promise(8)
def test_promise_8_the_older_checkpoint_counts_until_the_newer_is_certain(seed: int) -> None:
    """The power fails at each call of the opening that writes the newer one again."""
    env, store, payloads = checkpointed(seed)
    env.fail("sync_directory", "checkpoint")
    with pytest.raises(StoreFailed):
        store.admin.checkpoint()
    sound = env.kill()
    open_store(sound)
    assert sound.calls.count("rename", "*.qck") == 1
    for number in range(1, sound.calls.last_number + 1):
        machine = env.kill()
        machine.crash_at = number
        with pytest.raises(SimulatedCrash):
            open_store(machine)
        for after in (machine.crash(outcome="lost"), *(machine.crash(seed=s) for s in range(4))):
            again = open_store(after)
            assert again.browse("work").payloads() == payloads, number
            assert again.admin.verify().ok


@pytest.mark.promise(1, 8)
def test_promise_1_8_a_checkpoint_of_the_same_lsn_is_uncertain_too(seed: int) -> None:
    """No older one is beside it: it has taken the name of the one before (K6)."""
    env = new_machine(seed)
    store = new_store(env)
    adopted = foreign(env, store)
    with store.transaction() as transaction:
        transaction.integration.adopt("work", adopted)
    assert len(take(store, "work")) == 20
    store.admin.checkpoint()  # it names the file, which is still to be removed
    store._maintenance.step()
    (lsn,) = list_checkpoints(env, CHECKPOINTS)
    before = env.contents(path_of(CHECKPOINTS, lsn))
    env.fail("sync_directory", "checkpoint")
    with pytest.raises(StoreFailed):
        store.admin.checkpoint()
    shown = env.contents(path_of(CHECKPOINTS, lsn))
    assert list_checkpoints(env, CHECKPOINTS) == [lsn]
    assert shown != before
    assert env.crash(outcome="lost").contents(path_of(CHECKPOINTS, lsn)) == before
    env = env.kill()
    open_store(env)
    assert env.crash(outcome="lost").contents(path_of(CHECKPOINTS, lsn)) == shown


def test_a_checkpoint_that_is_certain_is_not_written_again(seed: int) -> None:
    """An opening writes no checkpoint, after a close and after a kill."""
    for killed in (True, False):
        env, store, _ = checkpointed(seed)
        store.admin.checkpoint()
        store.close()
        env.calls.clear()
        env, _ = opened_again(env, store, killed=killed)
        for kind in ("write", "create", "rename"):
            assert env.calls.count(kind, CHECKPOINTS + "/*.qck*") == 0


@pytest.mark.promise(1)
@pytest.mark.parametrize("pattern", [PATH, "journal", "data", "ltds", "checkpoint"])
def test_promise_1_a_creation_is_begun_anew_after_a_failed_sync(seed: int, pattern: str) -> None:
    """The names of the store's directories and files are certain in the second attempt (OD1)."""
    env = new_machine(seed)
    env.fail("sync_directory", pattern)
    with pytest.raises(StoreFailed):
        open_store(env)
    env = env.kill()
    store = new_store(env)
    store.put("work", b"acknowledged")
    with store.transaction(large=True) as transaction:
        transaction.put("work", b"large")
    store.admin.checkpoint()
    again = open_store(env.crash(outcome="lost"))
    assert again.browse("work").payloads() == [b"acknowledged", b"large"]


@pytest.mark.promise(1)
def test_promise_1_a_store_whose_own_name_is_uncertain_is_made_anew(seed: int) -> None:
    """Where its name could not be synced it is taken back: the next opening is as the first."""
    env = new_machine(seed)
    env.fail("sync_directory", "/disk")
    with pytest.raises(StoreFailed, match="it was removed again: open it once more"):
        open_store(env)
    env = env.kill()
    new_store(env).put("work", b"acknowledged")
    assert open_store(env.crash(outcome="lost")).browse("work").payloads() == [b"acknowledged"]


@pytest.mark.promise(1)
def test_promise_1_a_name_that_is_not_the_stores_own_to_remove(seed: int) -> None:
    """A directory that was there before is left as it is: the error says what to do."""
    env = new_machine(seed)
    env.make_directory(PATH)
    env.fail("sync_directory", "/disk")
    with pytest.raises(StoreFailed, match="remove this directory, and open it again"):
        open_store(env)
    assert env.exists(PATH)


def beside_a_failing_sync(failing: Callable[[], Any], other: Callable[[], Any]) -> list[str]:
    """What became of two syncs: the second begins when the first has failed and not yet said so."""
    outcomes = ["not ended", "not ended"]

    def run(index: int, action: Callable[[], Any]) -> None:
        try:
            action()
        except (StoreFailed, OSError) as error:
            outcomes[index] = type(error).__name__
        else:
            outcomes[index] = "durable"

    threads = [
        threading.Thread(target=run, args=(index, action))
        for index, action in enumerate((failing, other))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return outcomes


def slow_to_fail(sync: Callable[..., None], failed: threading.Event) -> Callable[..., None]:
    """A sync whose error takes its time on the way to who asked for it."""

    def slow(*arguments: Any) -> None:
        try:
            sync(*arguments)
        except OSError:
            failed.set()
            time.sleep(0.2)  # long enough for another thread to be told that all is well
            raise

    return slow


@pytest.mark.promise(11)
def test_promise_11_an_error_told_to_one_thread_counts_for_the_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync that finds nothing left to do, since another one lost it, is no success (D4, P7)."""
    env = new_machine(seed, direct=False)
    store = new_store(env)
    places = store._context.places
    failed = threading.Event()
    places.write(0, [b"a" * 5000])
    places.write(0, [b"b" * 5000])
    file = places.managers[0].data._file
    monkeypatch.setattr(file, "sync", slow_to_fail(file.sync, failed))
    env.fail("sync", "*.dat")

    def sync() -> None:
        failed.wait(SECONDS)
        places.sync([0])

    outcomes = beside_a_failing_sync(lambda: places.sync([0]), sync)
    assert outcomes == ["StoreFailed", "StoreFailed"]

    failed.clear()
    foreign(env, store)
    own = places._env
    monkeypatch.setattr(own, "sync_directory", slow_to_fail(own.sync_directory, failed))
    env.fail("sync_directory", "ltds")

    def sync_names() -> None:
        failed.wait(SECONDS)
        places.sync_names()

    outcomes = beside_a_failing_sync(places.sync_names, sync_names)
    assert outcomes == ["OSError", "StoreFailed"]
