"""A full disk, and one with errors, at each call of a run's write, a merge and an adoption.

Nothing is lost or half-changed, the error is told in words, the work can be done again, and no file
stays that no commit has adopted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

import quire
from quire import keyed
from quire.engine import EmbeddedStore
from quire.engine.upkeep.fragment_files import sweep_fragments
from quire.errors import (
    DiskFull,
    OutcomeUnknown,
    QuireError,
    StateConflict,
    StoreError,
    StoreFailed,
)
from quire.keyed.fragment_files import SeenFragments
from quire.keyed.state_look import _open_runs
from quire.ltds import is_foreign, list_ids
from quire.testing import SimEnv
from tests.keyed.conftest import PATH, SMALL, SMALL_RUNS
from tests.keyed.state_digest import Row, digest_of, state_digest
from tests.kit.limits import Limits

DIRECTORY = f"{PATH}/ltds"
NUMBERS = (errno.ENOSPC, errno.EIO)
TASKS = 2
KEYS = 60
Held = dict[int, tuple[str, int | None]]  # text and timer, by key

pytestmark = pytest.mark.usefixtures("small_runs")


def opened(store: quire.Store, env: SimEnv) -> keyed.KeyedState:
    """The state of all these tests."""
    return keyed.open_state(store, "texts", "key", "key bigint, text string", env=env)


def drawn(number: int) -> Held:
    """What a change puts: every row as long as half a piece, every other one with a timer."""
    keys = range(number, number + KEYS)
    return {key: (f"{number} {key} " * 8, key if key % 2 else None) for key in keys}


def rows_of(held: Held) -> list[dict[str, object]]:
    """Rows."""
    return [{"key": key, "text": text} for key, (text, _) in held.items()]


def timers_of(held: Held) -> list[int | None]:
    """Their timers."""
    return [timer for _, timer in held.values()]


def digest(held: Held) -> str:
    """Of a state that holds this."""
    rows: list[Row] = [(key, *row) for key, row in held.items()]
    return digest_of(rows)


def change(store: quire.Store, state: keyed.KeyedState, env: SimEnv) -> None:
    """Put rows by a block, which is one with what its transaction gets and puts."""
    with store.transaction() as txn:
        assert txn.get("in") is not None
        with state.within(txn) as rows:
            rows.put(rows_of(drawn(20)), timers=timers_of(drawn(20)))
        txn.put("out", b"done")


def merge(store: quire.Store, state: keyed.KeyedState, env: SimEnv) -> None:
    """Make all runs one."""
    assert state.merge(all=True)


def adoption(store: quire.Store, state: keyed.KeyedState, env: SimEnv) -> None:
    """Put the same rows by tasks; a driver removes what it does not commit, as it should."""
    look, files = state.look(), SeenFragments(env, DIRECTORY)
    _open_runs.cache_clear()
    news, written = drawn(20), list[keyed.WrittenRun]()
    numbers = look.range_numbers(list(news), TASKS).tolist()
    try:
        for task in range(TASKS):
            inside = zip(news.items(), numbers, strict=True)
            own = dict(item for item, number in inside if number == task)
            run = look.write(files, rows_of(own), (), task, TASKS, timers=timers_of(own), env=env)
            written += [] if run is None else [run]
        with store.transaction() as txn:
            state.adopt(txn, look, written)
            assert txn.get("in") is not None
            txn.put("out", b"done")
    except (OutcomeUnknown, StoreFailed):
        raise  # they may be the store's
    except QuireError:
        files.remove([run.file for run in written if run.file])
        raise
    finally:
        if not store.failed:
            state.end_look(look)


WORK: dict[str, Callable[[quire.Store, keyed.KeyedState, SimEnv], None]] = {
    "change": change,
    "merge": merge,
    "adoption": adoption,
}


@pytest.fixture
def machine(env: SimEnv) -> SimEnv:
    """With a state of two runs, which are files; tests work on copies (`kill`)."""
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        store.create_queue("in")
        store.create_queue("out")
        store.put("in", b"1")
        state = opened(store, env)
        for number in (0, 10):
            with store.transaction() as txn, state.within(txn) as rows:
                rows.put(rows_of(drawn(number)), timers=timers_of(drawn(number)))
        store.admin.checkpoint()
    return env.kill()


BEFORE = drawn(0) | drawn(10)


def after_work(name: str) -> Held:
    """What is held once the work is done."""
    return BEFORE if name == "merge" else BEFORE | drawn(20)


def named_files(state: keyed.KeyedState) -> set[int]:
    """The files of the state's runs."""
    return {run.file for run in state.runs() if run.file}


def unnamed_files(env: SimEnv, state: keyed.KeyedState) -> set[int]:
    """The files of other processes that no run is in."""
    return {each for each in list_ids(env, DIRECTORY) if is_foreign(each)} - named_files(state)


def is_done(store: quire.Store, name: str, state: keyed.KeyedState) -> bool:
    """Return True if the work has taken effect; AssertionError where it has by half."""
    found = state_digest(store, state)
    if name == "merge":
        assert found == digest(BEFORE)
        return len(state.runs()) == 1
    done = store.browse("out").payloads() == [b"done"]
    assert store.browse("in").payloads() == ([] if done else [b"1"])
    assert found == digest(after_work(name) if done else BEFORE)
    return done


def calls_of(machine: SimEnv, name: str) -> list[int]:
    """The numbers of the calls that the work makes, where the disk has no errors."""
    env = machine.kill()
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        state = opened(store, env)
        begin = env.calls.last_number
        WORK[name](store, state, env)
        assert is_done(store, name, state)
        return [call.number for call in env.calls.log if call.number > begin]


def work_with(machine: SimEnv, name: str, spoil: Callable[[SimEnv], Callable[[], None]]) -> None:
    """Do the work on a disk that is spoilt, and again once it is mended; look after each."""
    env = machine.kill()
    store = quire.open(PATH, env=env, background=False, **SMALL)
    assert isinstance(store, EmbeddedStore)
    state = opened(store, env)
    old = unnamed_files(env, state) | named_files(state)
    mend = spoil(env)
    raised: QuireError | None = None
    try:
        WORK[name](store, state, env)
    except QuireError as error:
        raised = error
    if not store.failed:
        count = sum(batch.num_rows for batch in state.rows())
        assert count == len(BEFORE if raised else after_work(name))
    mend()
    if isinstance(raised, DiskFull):
        assert "free space" in str(raised)
    elif isinstance(raised, StoreError) and "a run of" in str(raised):
        assert "look after the disk" in str(raised)
    if store.failed:
        store.abandon("its process was killed")
        env = env.kill()
        store = quire.open(PATH, env=env, background=False, **SMALL)
        assert isinstance(store, EmbeddedStore)
        state = opened(store, env)
        done = is_done(store, name, state)
        assert done or raised is not None
        env.advance(2 * store._context.options.fragment_age)
        sweep_fragments(store._context)
    else:
        done = is_done(store, name, state)
        assert done == (raised is None)
    assert not unnamed_files(env, state) - old
    if not done:
        WORK[name](store, state, env)
        assert is_done(store, name, state)
    assert not unnamed_files(env, state) - old
    report = store.admin.verify()
    assert report.ok, report.findings
    assert state.verify() == []
    store.close()
    env = env.crash(outcome="lost")
    with quire.open(PATH, env=env, background=False, **SMALL) as again:
        assert is_done(again, name, opened(again, env))


@pytest.mark.cases(3)
@pytest.mark.promise(1, 2, 11)
@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("name", WORK)
def test_an_error_at_each_call(machine: SimEnv, name: str, number: int) -> None:
    """It is done, or not begun, and can be done again; also where the store has failed by it."""

    def spoil_at(call: int) -> Callable[[SimEnv], Callable[[], None]]:
        def spoil(env: SimEnv) -> Callable[[], None]:
            return env.fail_at(call, OSError(number, os.strerror(number))).cancel

        return spoil

    for call in calls_of(machine, name):
        work_with(machine, name, spoil_at(call))


@pytest.mark.cases(3)
@pytest.mark.promise(11)
@pytest.mark.parametrize("name", WORK)
def test_a_disk_without_room(machine: SimEnv, name: str) -> None:
    """Whatever room there is left: what was there can be read meanwhile."""

    def spoil_with(room_bytes: int) -> Callable[[SimEnv], Callable[[], None]]:
        def spoil(env: SimEnv) -> Callable[[], None]:
            env.capacity_bytes = env.used_bytes() + room_bytes

            def mend() -> None:
                env.capacity_bytes = None

            return mend

        return spoil

    for pages in (*range(9), 12, 16, 24, 40):
        work_with(machine, name, spoil_with(4096 * pages))


def test_who_only_reads_goes_on_where_a_merge_has_no_room(machine: SimEnv, limits: Limits) -> None:
    """Until a key may be in twice as many runs; and it is merged once there is room."""
    env = machine.kill()
    with quire.open(PATH, env=env, background=False, **SMALL) as store:
        state = opened(store, env)
        with store.transaction() as txn, state.within(txn) as rows:
            rows.put(rows_of(drawn(5)))
        env.capacity_bytes = env.used_bytes()
        before = state.runs()
        with store.transaction() as txn, state.within(txn) as rows:
            assert txn.get("in") is not None
            assert rows.get([1, 2, 99]).num_rows == 2
        state.end_look(state.look())
        assert state.runs() == before
        assert len(before) == SMALL_RUNS["MAX_RUNS"]
        limits(MOST_RUNS=SMALL_RUNS["MAX_RUNS"])
        with pytest.raises(DiskFull, match="free space"):
            state.look()
        env.capacity_bytes = None
        state.end_look(state.look())
        assert len(state.runs()) < len(before)


@pytest.mark.parametrize("end", ["rollback", "conflict", "prepared", "collected"])
def test_the_file_of_a_block_whose_transaction_ends(
    store: quire.Store, env: SimEnv, end: str
) -> None:
    """It goes with the next block where no commit can have it, and stays as long as one can
    (KU1).
    """
    state = opened(store, env)
    txn = store.transaction()
    with state.within(txn) as rows:
        rows.put(rows_of(drawn(0)))
    with store.transaction() as reading, state.within(reading):
        assert len(unnamed_files(env, state)) == 1, "the transaction is open"
    if end == "prepared":
        txn.prepare("x")
        del txn
        with store.transaction() as reading, state.within(reading):
            assert len(unnamed_files(env, state)) == 1
        store.prepared.commit("x")
        assert len(named_files(state)) == 1
        with store.transaction() as reading, state.within(reading) as rows:
            assert rows.get([1]).num_rows == 1
        return
    if end == "conflict":
        with store.transaction() as other, state.within(other) as rows:
            rows.delete([1])
        with pytest.raises(StateConflict):
            txn.commit()
    else:
        txn.rollback()
    if end == "collected":
        del txn
    assert len(unnamed_files(env, state)) == 1
    with store.transaction() as reading, state.within(reading):
        assert unnamed_files(env, state) == set()
