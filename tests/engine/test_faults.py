"""I/O errors, full disks and damaged bytes at every call and in every kind of file."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.errors import (
    AlreadyCommitted,
    DiskFull,
    QueueNotFound,
    QuireError,
    StoreCorrupt,
    StoreFailed,
)
from quire.reports.info import Report
from quire.testing import Call, SimEnv
from tests.engine.workload import (
    PATH,
    Oracle,
    Workload,
    new_machine,
    open_store,
    view_of,
)
from tests.kit.waiting import SECONDS

pytestmark = [pytest.mark.crash, pytest.mark.cases(4, of_file=True)]

# I/O errors ---------------------------------------------------------------------------------------


@pytest.mark.promise(11)
@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("write", "*.dat"),
        ("sync", "*.dat"),
        ("write", "*.log"),
        ("sync", "*.log"),
        ("write", "*.ltds"),
        ("sync", "*.ltds"),
        ("create", "*.ltds"),
        ("sync_directory", "ltds"),
        ("write", "*.qck.tmp"),
        ("sync", "*.qck.tmp"),
        ("create", "*.qck.tmp"),
        ("allocate", "*.qck.tmp"),
        ("rename", "*.qck"),
        ("sync_directory", "checkpoint"),
    ],
)
def test_promise_11_no_commit_after_an_error(seed: int, kind: str, pattern: str) -> None:
    """An error in any file of the store stops all commits, whatever file they would need."""
    env = new_machine(seed, direct=False)
    store = open_store(env)
    store.create_queue("work", kind="work")
    fault = env.fail(kind, pattern)
    acts: list[Callable[[], Any]] = [
        lambda: put(store, b"inline", 10),
        lambda: put(store, b"pages", 9000),
        lambda: put(store, b"large", 12_000, large=True),
        store.admin.checkpoint,
    ]
    for act in acts:
        if fault.hits:
            break
        try:
            act()
        except StoreFailed:
            assert fault.hits
    assert fault.hits
    assert store.failed
    with pytest.raises(StoreFailed):
        store.put("work", b"x")
    store.close()
    open_store(env.crash(outcome="lost")).close()


def put(store: Store, text: bytes, size: int, *, large: bool = False) -> None:
    """One message, as long as asked for."""
    with store.transaction(large=large) as transaction:
        transaction.put("work", text.ljust(size, b"."))


def test_an_error_after_the_commit_does_not_undo_it(seed: int) -> None:
    """A commit that stands raises nothing, though the work that follows it fails (promise 5)."""
    env = new_machine(seed)
    store = open_store(env, checkpoint_bytes=30_000)
    store.create_queue("work", kind="work")
    env.fail("rename", "*.qck")
    payloads: list[bytes] = []

    def go_on() -> None:
        for number in range(100):
            put(store, b"%d" % number, 3000)
            payloads.append((b"%d" % number).ljust(3000, b"."))

    with pytest.raises(StoreFailed):
        go_on()
    assert len(payloads) > 5
    assert store.queue("work").end_position == len(payloads)
    assert "qck" in store.status()["maintenance_error"]
    again = open_store(env.crash(outcome="lost"))
    assert again.browse("work").payloads() == payloads


# A full disk --------------------------------------------------------------------------------------


def repeat(action: Callable[[], Any]) -> None:
    """Do it until it raises."""
    for _ in range(1000):
        action()


def fill_journal(store: Store, env: SimEnv) -> None:
    """The disk is full and the journal's segment is, too."""
    env.capacity_bytes = env.used_bytes()
    with pytest.raises(DiskFull):
        repeat(lambda: store.put("work", b"x" * 3000))
    with pytest.raises(DiskFull):
        repeat(lambda: store.put("work", b"x"))


@pytest.mark.promise(5)
def test_promise_5_a_refused_commit_can_be_repeated(seed: int) -> None:
    """A commit with a ledger entry that found no room commits once there is room."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("work", kind="work")
    fill_journal(store, env)
    end = store.queue("work").end_position
    with store.transaction() as transaction:
        transaction.put("work", b"once" * 1000)
        transaction.enter("key", 7)
        with pytest.raises(DiskFull):
            transaction.commit()
        assert transaction.state == "open"
        assert store.integration.ledger("key") is None
        env.capacity_bytes = None
        transaction.commit()
    assert store.integration.ledger("key") == 7
    assert store.queue("work").end_position == end + 1
    with pytest.raises(AlreadyCommitted), store.transaction() as transaction:
        transaction.enter("key", 7)


@pytest.mark.promise(5)
def test_promise_5_a_refused_drop_leaves_the_queue(seed: int) -> None:
    """A drop that found no room leaves the queue as it was, through a checkpoint as well.

    It finds some on every full disk; only if even what is kept back for it were gone, it does not.
    """
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("work", kind="work")
    fill_journal(store, env)
    kept = store.browse("work").payloads()
    lost = [
        env.fail(kind, "*", error=DiskFull("gone"), forever=True) for kind in ("rename", "create")
    ]

    def read_one() -> None:
        with store.transaction() as txn:
            txn.get("work")
        del kept[0]

    with pytest.raises(DiskFull):
        repeat(read_one)
    with pytest.raises(DiskFull):
        store.drop_queue("work")
    for fault in lost:
        fault.cancel()
    env.capacity_bytes = None
    store.put("work", b"goes on")
    store.admin.checkpoint()
    assert store.browse("work").payloads() == [*kept, b"goes on"]
    assert store.admin.verify().ok
    store.drop_queue("work")
    with pytest.raises(QueueNotFound):
        store.put("work", b"gone")


def test_close_on_a_full_disk(seed: int) -> None:
    """Closing without room for a checkpoint is no failure: the journal holds everything."""
    env = new_machine(seed)
    store = open_store(env, segment_bytes=1 << 20)
    store.create_queue("work", kind="work")
    for _ in range(60):
        store.put("work", b"x" * 3000)
    env.capacity_bytes = env.used_bytes()
    store.close()
    env.capacity_bytes = None
    assert open_store(env.crash(outcome="lost"), segment_bytes=1 << 20).queue("work").messages == 60


# Damage -------------------------------------------------------------------------------------------


def furnished(seed: int) -> tuple[SimEnv, Oracle]:
    """A store with messages in the journal, in pages and in files of their own.

    Its last commit was undone again: it is what damage of the journal's end may take with it, as
    that cannot be told from a torn write.
    """
    env, oracle = new_machine(seed), Oracle()
    workload = Workload(seed, steps=50, beside=0.0)
    store = workload.run(env, open_store(env), oracle)
    if "work" not in oracle.model.queues:
        oracle.model.create("work", "work")
        store.create_queue("work", kind="work")
    for size, large in ((4000, False), (9000, False), (3000, True)):
        payloads = [bytes([65 + n]) * size for n in range(3)]
        with store.transaction(large=large) as transaction:
            transaction.put_many("work", payloads)
        oracle.model.queues["work"].payloads += payloads
        if size == 4000:
            store.admin.checkpoint()
    store.create_queue("last", kind="topic")
    store.drop_queue("last")
    return env, oracle


@pytest.mark.cases(4)
@pytest.mark.promise(10)
def test_promise_10_flipped_bits_are_never_delivered(seed: int, rounds: int) -> None:
    """A bit flipped in any file: all that is shown is right, or an error names what is damaged."""
    assert look_for_damage(seed, max(2, rounds // 5)) > 20


def look_for_damage(seed: int, stores: int) -> int:
    """How often damage of one bit was noticed; AssertionError if anything wrong was shown."""
    rng = random.Random(seed)
    found = 0
    for n in range(stores):
        before, oracle = furnished(seed + n)
        expected = oracle.model.view()
        for path in before.files():
            size = len(before.contents(path))
            for _ in range(4 if size else 0):
                env = before.crash(outcome="lost")
                content = env.contents(path)
                used = [i for i in range(0, size, 64) if any(content[i : i + 64])] or [0]
                offset = rng.choice(used) + rng.randrange(64)
                if offset >= size:
                    continue
                env.corrupt(path, offset, 1 << rng.randrange(8))
                found += damaged(env, expected, f"seed {seed + n}, {path} at {offset}")
    return found


def damaged(env: SimEnv, expected: dict[str, Any], where: str) -> bool:
    """Whether the damage was noticed; AssertionError for anything wrong that is shown."""
    try:
        store = open_store(env)
    except QuireError as error:
        return names_a_place(error, where)
    report = store.admin.verify()
    try:
        shown = view_of(store)
    except QuireError as error:
        return names_a_place(error, where) and not_content(report, where)
    shown["queues"].pop("last", None)
    assert shown == expected, where
    return not report.ok


def names_a_place(error: QuireError, where: str) -> bool:
    """Whoever reads the error knows which file to restore."""
    assert PATH in str(error), f"{where}: {error}"
    return True


def not_content(report: Report, where: str) -> bool:
    """`verify` has found what a read has found."""
    assert not report.ok, f"{where}: verify has not found it"
    return True


@pytest.mark.promise(10)
def test_promise_10_damage_while_the_store_is_open(seed: int, rounds: int) -> None:
    """Bits that flip under an open store: the same, and verify does not stop at the first."""
    rng = random.Random(seed)
    for n in range(max(2, rounds // 5)):
        before, oracle = furnished(seed + n)
        expected = oracle.model.view()
        for path in before.files():
            env = before.crash(outcome="lost")
            store = open_store(env)
            if not env.disk.find(path):
                continue
            size = len(env.contents(path))
            for _ in range(20 if size else 0):
                env.corrupt(path, rng.randrange(size), 1 << rng.randrange(8))
            report = store.admin.verify()
            try:
                shown = view_of(store)
                assert shown == expected, path
            except QuireError as error:
                not_content(report, f"{path}: {error}")


@pytest.mark.promise(10)
def test_promise_10_damage_of_a_block_names_its_place(seed: int) -> None:
    """The error names the queue, the position, the file and the page."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("work", kind="work")
    store.put("work", b"x" * 9000)
    env.corrupt(f"{PATH}/data/0.dat", 4096 + 5000)
    with pytest.raises(StoreCorrupt, match=r"'work', positions 0 to 1: .*0\.dat page 1"):
        store.browse("work")
    report = store.admin.verify()
    assert [("work" in text, "0.dat page 1" in text) for text in report.findings] == [(True, True)]


def test_canary_damage_is_not_looked_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that does not check its blocks is caught."""
    monkeypatch.setattr("quire.block.block.checksum", lambda data: Agreeable())
    with pytest.raises(Exception):  # noqa: B017, PT011
        look_for_damage(seed, 20)


class Agreeable(int):
    """A checksum that differs from none."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


# Groups -------------------------------------------------------------------------------------------


def commit_together(
    env: SimEnv, store: Store, commits: list[Callable[[], Any]]
) -> list[BaseException | None]:
    """Let the commits wait while another one is written, to be one group; their errors."""
    hold, held = threading.Event(), threading.Event()
    errors: list[BaseException | None] = [None] * len(commits)

    def before(call: Call) -> None:
        if call.kind == "write" and not held.is_set():
            held.set()
            assert hold.wait(SECONDS)

    def run(index: int) -> None:
        try:
            commits[index]()
        except QuireError as error:
            errors[index] = error

    first = threading.Thread(target=lambda: store.put("work", b"first"))
    env.before_call = before
    first.start()
    assert held.wait(SECONDS)
    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(commits))]
    for waiting, thread in enumerate(threads, 1):
        thread.start()
        while len(store._context.sequencer._queue) < waiting:
            time.sleep(0.001)
    hold.set()
    for thread in [first, *threads]:
        thread.join()
    env.before_call = None
    return errors


@pytest.mark.promise(11)
def test_promise_11_a_group_that_fails_refuses_its_ledger_entries_too(seed: int) -> None:
    """Nobody is told that an entry was committed before by a commit that then failed with it."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("work", kind="work")

    def enter() -> None:
        with store.transaction() as transaction:
            transaction.enter("key", 1)

    env.fail("write", "*.log", nth=2)
    errors = commit_together(env, store, [enter, enter])
    assert [type(error) for error in errors] == [StoreFailed, StoreFailed]
    assert open_store(env.crash(outcome="lost")).integration.ledger("key") is None


def test_a_ledger_entry_is_committed_by_one_of_a_group(seed: int) -> None:
    """Of two commits with the same entry in one group the first one wins."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("work", kind="work")

    def enter() -> None:
        with store.transaction() as transaction:
            transaction.enter("key", 1)

    errors = commit_together(env, store, [enter, enter])
    assert [type(error) for error in errors] == [type(None), AlreadyCommitted]


def test_a_group_fits_its_segment(seed: int) -> None:
    """With small segments many waiting commits form several groups; all of them succeed."""
    env = new_machine(seed)
    store = open_store(env)
    store.create_queue("work", kind="work")
    commits = [lambda: store.put("work", b"x" * 4000)] * 40
    assert commit_together(env, store, commits) == [None] * 40
    assert store.queue("work").messages == 41
    again = open_store(env.crash(outcome="lost"))
    assert again.queue("work").messages == 41
    assert again.admin.verify().ok
