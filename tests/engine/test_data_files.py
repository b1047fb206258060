"""A store with several data files: who is where, written at the same time, failing on their own."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.engine import EmbeddedStore as Store
from quire.engine import PieceReader
from quire.engine.pages.data_files import file_for
from quire.engine.records.format import CATALOG
from quire.engine.state.catalog import QUEUE, CatalogChange, pack
from quire.engine.state.durable_state import DurableState
from quire.errors import DiskFull, InvalidArgument, StoreCorrupt, StoreFailed
from quire.journal import pack_record
from quire.limits import MAX_DATA_FILES
from quire.testing import Call, SimEnv, SimulatedCrash
from tests.engine.page_guard import guard_pages
from tests.engine.page_guard import used_pages as used_on_disk
from tests.engine.test_free_space import in_use
from tests.engine.workload import PATH, new_machine, open_store
from tests.kit.limits import Limits
from tests.kit.messages import take
from tests.kit.waiting import SECONDS

FILES = 3
NAMES = ["a", "b", "c"]
ROOMY: dict[str, Any] = {
    "write_buffer_bytes": 1 << 20,
    "write_buffer_messages": 1000,
}  # nothing leaves it early


def furnish(store: Store) -> None:
    """A work queue in each of three files."""
    for number, name in enumerate(NAMES):
        store.create_queue(name, kind="work", data_file=number)


def put_to_all(store: Store, text: bytes = b"x", size: int = 5000) -> None:
    """A transaction of middle size over all three files."""
    with store.transaction() as transaction:
        for name in NAMES:
            transaction.put_many(name, [name.encode() + text * size] * 2)


@contextlib.contextmanager
def threaded(env: SimEnv, **options: Any) -> Iterator[Store]:
    """A store on a simulated machine whose I/O managers have threads."""
    store = open_store(env, data_files=FILES, **{**ROOMY, **options})
    store._opened.places.parallel = True
    try:
        yield store
    finally:
        store._opened.places.stop()


@pytest.fixture
def env() -> SimEnv:
    """A machine with a directory for the store."""
    return new_machine(1)


@pytest.fixture(params=[False, True], ids=["one after another", "at once"])
def store(request: pytest.FixtureRequest, env: SimEnv) -> Iterator[Store]:
    """A store with a queue in each of three files, without and with threads."""
    made = open_store(env, data_files=FILES, **ROOMY)
    furnish(made)
    made._opened.places.parallel = request.param
    yield made
    made._opened.places.stop()


def used_pages(store: Store) -> list[int]:
    """How many pages of each file are in use, the header not among them."""
    return [in_use(manager.space) for manager in store._opened.places.managers]


def pending_pages(store: Store) -> int:
    """How many pages are taken and not committed."""
    return sum(manager.space.pending.total for manager in store._opened.places.managers)


# Who is where -------------------------------------------------------------------------------------


def test_a_queue_without_a_file_gets_one_by_its_name(env: SimEnv) -> None:
    """The same name gets the same file on every machine, and 100 names use all files."""
    assert [file_for(name, 3) for name in ("orders", "a", "ü", "queue-1")] == [0, 1, 1, 0]
    with open_store(env, data_files=FILES) as store:
        for number in range(100):
            name = f"queue-{number}"
            assert store.create_queue(name, kind="topic").data_file == file_for(name, FILES)
        counts = [[info.data_file for info in store.queues()].count(n) for n in range(FILES)]
    assert min(counts) > 20


def test_the_file_is_kept_in_the_journal_and_in_checkpoints(env: SimEnv) -> None:
    """What a queue was given, or got by its name, is there after recovery from either."""
    store = open_store(env, data_files=FILES)
    furnish(store)
    before = store.queues()
    assert [info.data_file for info in before] == [0, 1, 2]
    env = env.crash(outcome="lost")
    store = open_store(env)
    assert store.queues() == before
    store.admin.checkpoint()
    store = open_store(env.crash(outcome="lost"))
    assert store.queues() == before
    assert store.admin.verify().ok


@pytest.mark.promise(13)
@pytest.mark.parametrize("value", [-1, 3, True, 1.0, "1", b"", 1 << 70])
def test_a_file_that_there_is_not_is_refused(store: Store, value: Any) -> None:
    """Nothing changes; the message says what there is."""
    before = store.queues()
    with pytest.raises(InvalidArgument, match="give 0 to 2, or None"):
        store.create_queue("q", kind="topic", data_file=value)
    assert store.queues() == before


def test_a_record_of_a_store_with_more_files_is_followed(env: SimEnv) -> None:
    """The file that it names is a wish: the catalog keeps it, and the blocks go to one there is."""
    store = open_store(env, data_files=FILES)
    body = {
        "name": "far", "kind": "work", "capacity": 1 << 24, "max_messages": None,
        "created_us": 1, "subscription_id": 1, "data_file": FILES + 1,
    }  # fmt: skip
    record = pack(DurableState(), [CatalogChange(QUEUE, 1, body)])
    store._opened.journal.write_group([pack_record(CATALOG, 0, record)])
    store.abandon("its machine goes")
    with open_store(env.kill()) as store:
        assert store.queue("far").data_file == 1
        store.put_many("far", [bytes(100_000)])
        store.admin.checkpoint()
        assert [pages > 0 for pages in used_pages(store)] == [False, True, False]
        assert store.admin.catalog("queue")[0].body["data_file"] == FILES + 1
        assert take(store, "far") == [bytes(100_000)]
        assert store.admin.verify().ok


@pytest.mark.promise(13)
@pytest.mark.parametrize("value", [0, -1, MAX_DATA_FILES + 1, True, "2", None, 1.5])
def test_a_number_of_files_that_cannot_be(env: SimEnv, value: Any) -> None:
    """Refused before anything is made."""
    with pytest.raises(InvalidArgument, match="data_files"):
        open_store(env, data_files=value)
    assert not env.exists(PATH)


def test_the_number_of_files_is_fixed(env: SimEnv) -> None:
    """Another number is refused; the right one, or none, is not."""
    open_store(env, data_files=FILES).close()
    with pytest.raises(InvalidArgument, match="this one has 3"):
        open_store(env, data_files=2)
    choices: list[dict[str, Any]] = [{}, {"data_files": FILES}]
    for options in choices:
        with open_store(env, **options) as store:
            assert len(store.status()["data"]["files"]) == FILES


def test_as_many_files_as_there_may_be(env: SimEnv) -> None:
    """A queue in each, written in one transaction, read back after a power failure."""
    store = open_store(env, data_files=MAX_DATA_FILES)
    with_files = range(MAX_DATA_FILES)
    for number in with_files:
        store.create_queue(f"q{number}", kind="work", data_file=number)
    with store.transaction() as transaction:
        for number in with_files:
            transaction.put(f"q{number}", b"%d" % number * 3000)
    store.admin.checkpoint()
    assert all(used_pages(store))
    store = open_store(env.crash(outcome="lost"))
    for number in with_files:
        assert take(store, f"q{number}") == [b"%d" % number * 3000]
    assert store.admin.verify().ok


def test_blocks_and_records_go_to_the_queues_own_file(store: Store) -> None:
    """A middle-sized transaction, what a checkpoint moves, and record pages, of one queue each."""
    with store.transaction() as transaction:
        transaction.put_many("b", [b"x" * 9000] * 2)
    assert used_pages(store) == [0, 5, 0]
    for _ in range(5):
        store.put("c", b"y" * 2000)
    store.admin.checkpoint()
    assert used_pages(store) == [0, 5 + 1, 3 + 1]
    assert take(store, "b") == [b"x" * 9000] * 2
    assert take(store, "c") == [b"y" * 2000] * 5
    store.admin.checkpoint()
    store.admin.checkpoint()
    assert used_pages(store) == [0, 0, 0]
    assert store.admin.verify().ok


def test_status_shows_each_file(store: Store) -> None:
    """Bytes and free bytes of each, and their sums."""
    put_to_all(store)
    data = store.status()["data"]
    assert len(data["files"]) == FILES
    for key in ("bytes", "free_bytes"):
        assert data[key] == sum(file[key] for file in data["files"])
    assert all(file["bytes"] - file["free_bytes"] > 10_000 for file in data["files"])


def test_other_processes_read_the_right_file(store: Store, env: SimEnv) -> None:
    """Leased pieces of all three files, read without the store, are kept while they are leased."""
    put_to_all(store)
    leases = [store.integration.lease(name, 0, 2) for name in NAMES]
    for name in NAMES:
        take(store, name)
    put_to_all(store, b"o")
    store.admin.checkpoint()
    reader = PieceReader(PATH, env=env)
    for name, lease in zip(NAMES, leases, strict=True):
        batches = list(reader.read_all(lease.pieces, name))
        payloads = [p for batch in batches for p in batch.column("payload").to_pylist()]
        assert payloads == [name.encode() + b"x" * 5000] * 2
        store.integration.end_lease(lease.lease_id)
    reader.close()
    assert store.admin.verify().ok


# Opening ------------------------------------------------------------------------------------------


@pytest.mark.promise(10)
def test_a_missing_file_is_named(env: SimEnv) -> None:
    """The store does not open without one of its files, and says which."""
    open_store(env, data_files=FILES).close()
    env.rename(f"{PATH}/data/1.dat", "/disk/elsewhere")
    with pytest.raises(StoreCorrupt, match=r"data/1\.dat is missing"):
        open_store(env)
    env.rename("/disk/elsewhere", f"{PATH}/data/1.dat")
    open_store(env).close()


@pytest.mark.promise(10)
def test_files_that_were_exchanged_are_told(env: SimEnv) -> None:
    """Each file knows its number: one under another's name is refused."""
    open_store(env, data_files=FILES).close()
    env.rename(f"{PATH}/data/1.dat", "/disk/1")
    env.rename(f"{PATH}/data/2.dat", f"{PATH}/data/1.dat")
    env.rename("/disk/1", f"{PATH}/data/2.dat")
    with pytest.raises(StoreCorrupt, match=r"1\.dat is the store's data file 2, not 1"):
        open_store(env)


@pytest.mark.promise(10)
def test_a_file_of_another_store_is_told(env: SimEnv) -> None:
    """A foreign file of the right number is refused."""
    open_store(env, data_files=FILES).close()
    open_store(env, "/disk/other", data_files=FILES).close()
    env.rename("/disk/other/data/2.dat", f"{PATH}/data/2.dat")
    with pytest.raises(StoreCorrupt, match=r"data/2\.dat belongs to store"):
        open_store(env)


def test_creation_broken_off_and_begun_with_fewer_files(seed: int) -> None:
    """At each call of a creation with three files the power fails; the next one makes one file."""
    whole = new_machine(seed)
    first = whole.calls.last_number + 1
    open_store(whole, data_files=FILES)
    for number in range(first, whole.calls.last_number + 1):
        env = new_machine(seed)
        env.crash_at = number
        with pytest.raises(SimulatedCrash):
            open_store(env, data_files=FILES)
        lost = env.crash(outcome="lost")
        if any(path.endswith(".qck") for path in lost.files()):
            break  # there is a store with three files
        with open_store(lost, data_files=1) as store:
            assert lost.list_directory(f"{PATH}/data") == ["0.dat"]
            assert len(store.status()["data"]["files"]) == 1
            assert store.admin.verify().ok
    assert number > first + 20


# Writing at the same time -------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["commit", "checkpoint"])
def test_all_files_are_written_at_the_same_time(env: SimEnv, step: str) -> None:
    """Each file's write begins before any other's has ended."""
    together = threading.Barrier(FILES)
    met: list[str] = []

    def wait_for_the_others(call: Call) -> None:
        if call.kind == "write" and call.path.endswith(".dat"):
            together.wait(SECONDS)
            met.append(call.path)

    with threaded(env) as store:
        furnish(store)
        if step == "checkpoint":
            for name in NAMES:
                store.put(name, b"z" * 3000)
        env.before_call = wait_for_the_others
        if step == "commit":
            put_to_all(store)
            env.before_call = None
            assert [len(take(store, name)) for name in NAMES] == [2] * FILES
        else:
            # Moved blocks are waited for together; so are the record pages after them.
            store.admin.checkpoint()
            env.before_call = None
        assert sorted(set(met)) == [f"{PATH}/data/{n}.dat" for n in range(FILES)]
        assert store.admin.verify().ok


def test_one_file_has_no_thread(store_path: str) -> None:
    """A store with one data file never starts an I/O manager's thread; one with several does."""

    def io_threads() -> int:
        return sum(thread.name.startswith("quire-io") for thread in threading.enumerate())

    for files in (1, FILES):
        with Store.open(f"{store_path}{files}", data_files=files, segment_bytes=1 << 20) as store:
            for n in range(FILES):
                store.create_queue(NAMES[n], kind="work", data_file=n % files)
            put_to_all(store, size=200_000)
            store.admin.checkpoint()
            assert (io_threads() > 0) == (files > 1)
            assert store.admin.verify().ok
        assert io_threads() == 0


def test_without_threads_the_order_is_always_the_same() -> None:
    """Two runs make the same calls, so that a crash can be planned at each."""
    logs = []
    for _ in range(2):
        env = new_machine(1)
        with open_store(env, data_files=FILES) as store:
            furnish(store)
            for _ in range(5):
                put_to_all(store)
                store.put("b", b"small")
                store.admin.checkpoint()
        logs.append(env.calls.log)
    assert logs[0] == logs[1]
    assert {call.path for call in logs[0]} >= {f"{PATH}/data/{n}.dat" for n in range(FILES)}


# Failing ------------------------------------------------------------------------------------------


@pytest.mark.promise(11)
@pytest.mark.parametrize("number", range(FILES))
@pytest.mark.parametrize("step", ["commit", "checkpoint"])
def test_promise_11_a_failed_write_of_any_file_fails_the_store(
    store: Store, env: SimEnv, number: int, step: str
) -> None:
    """Whichever file it is: nothing of the transaction is seen, commits are refused, all is there
    after opening again."""
    put_to_all(store)
    for name in NAMES:
        store.put(name, b"small")
    env.fail("write", f"{number}.dat")
    with pytest.raises(StoreFailed):
        put_to_all(store, b"l") if step == "commit" else store.admin.checkpoint()
    assert store.failed
    with pytest.raises(StoreFailed, match="open it again"):
        store.put("a", b"refused")
    for name in NAMES:
        assert len(store.browse(name)) == 3
    for again in (env.crash(outcome="lost"), env.crash(outcome="kept"), env.kill()):
        with open_store(again) as recovered:
            assert recovered.admin.verify().ok
            for name in NAMES:
                assert take(recovered, name) == [name.encode() + b"x" * 5000] * 2 + [b"small"]


@pytest.mark.cases(3)
@pytest.mark.promise(5, 11)
@pytest.mark.parametrize("number", range(FILES))
@pytest.mark.parametrize("step", ["commit", "checkpoint"])
def test_promise_5_a_file_without_room_gives_back_all(
    store: Store, env: SimEnv, number: int, step: str
) -> None:
    """DiskFull in one file: no page of any file stays taken, and the same succeeds later.

    A checkpoint does without: what it cannot move stays where it is.
    """
    put_to_all(store)
    for name in NAMES:
        store.put(name, b"small")
    fault = env.fail("allocate", f"{number}.dat", error=DiskFull("no room"), forever=True)

    def fill() -> None:
        for _ in range(50):  # the file has to grow long before
            put_to_all(store) if step == "commit" else fill_and_checkpoint(store)

    with pytest.raises(DiskFull) if step == "commit" else contextlib.nullcontext():
        fill()
    assert fault.hits
    assert not store.failed
    assert pending_pages(store) == 0
    assert store.admin.verify().ok
    fault.cancel()
    put_to_all(store)
    store.admin.checkpoint()
    counts = [len(store.browse(name)) for name in NAMES]
    with open_store(env.crash(outcome="lost")) as recovered:
        assert [len(recovered.browse(name)) for name in NAMES] == counts
        assert recovered.admin.verify().ok


def fill_and_checkpoint(store: Store) -> None:
    """Let a checkpoint move something to each file."""
    for name in NAMES:
        store.put(name, b"s" * 5000)
    store.admin.checkpoint()


@pytest.mark.promise(11)
@pytest.mark.parametrize("broken", range(FILES))
def test_promise_11_no_room_does_not_hide_a_failed_write(env: SimEnv, broken: int) -> None:
    """Two files are full while the third cannot be written: the store has failed."""
    together = threading.Barrier(FILES)

    def meet(call: Call) -> None:
        if call.path.endswith(".dat"):
            together.wait(SECONDS)

    with threaded(env) as store:
        furnish(store)
        put_to_all(store)
        for number in range(FILES):
            error = OSError(errno.EIO, "broken") if number == broken else DiskFull("full")
            env.fail("write", f"{number}.dat", error=error)
        env.before_call = meet
        with pytest.raises(StoreFailed):
            put_to_all(store)
        env.before_call = None
        assert store.failed
        with pytest.raises(StoreFailed):
            store.put("a", b"refused")


# Space --------------------------------------------------------------------------------------------


def test_files_shrink_on_their_own(store: Store) -> None:
    """A burst into one file is given back there; the others stay as they are."""
    put_to_all(store)
    before = [file["bytes"] for file in store.status()["data"]["files"]]
    for _ in range(60):
        with store.transaction() as transaction:
            transaction.put_many("b", [b"x" * 15_000] * 2)
    store.admin.checkpoint()
    grown = [file["bytes"] for file in store.status()["data"]["files"]]
    assert grown[1] > before[1] + 1_500_000
    assert (grown[0], grown[2]) == (before[0], before[2])
    take(store, "b")
    store.admin.checkpoint()
    store.admin.checkpoint()
    after = [file["bytes"] for file in store.status()["data"]["files"]]
    assert after[1] < grown[1] / 1.5
    assert (after[0], after[2]) == (before[0], before[2])
    assert store.admin.verify().ok


@pytest.mark.promise(10)
def test_promise_10_verify_reads_every_file(store: Store, env: SimEnv) -> None:
    """Damage in each file is found, and named with the file, page and queue."""
    put_to_all(store)
    for number, name in enumerate(NAMES):
        path = f"{PATH}/data/{number}.dat"
        place = env.contents(path).index(name.encode() + b"x" * 100)
        env.corrupt(path, place + 50)
        findings = store.admin.verify().findings
        assert len(findings) == 1
        assert f"queue {name!r}" in findings[0]
        assert f"data/{number}.dat page {place // 4096}" in findings[0]
        env.corrupt(path, place + 50)
        assert store.admin.verify().ok


def test_verify_finds_lost_and_shared_pages_of_every_file(store: Store) -> None:
    """Pages that nobody has, or that are free and in use at once, in each file."""
    put_to_all(store)
    for manager in store._opened.places.managers:
        first = manager.space.allocate(1)
        assert first is not None
        manager.space.commit(first, 1)
        assert f"{manager.data.path}: pages [({first}, {first + 1})] belong to nobody" in str(
            store.admin.verify().findings
        )
        manager.space.free(first, 1)
        assert store.admin.verify().ok
        manager.space.free(1, 1)
        assert f"{manager.data.path}: pages [(1, 2)] are in use and free" in str(
            store.admin.verify().findings
        )
        manager.space.claim(1, 1)
        assert store.admin.verify().ok


@pytest.mark.promise(10)
def test_promise_10_pages_of_a_prepared_transaction_are_not_overwritten(env: SimEnv) -> None:
    """While it is undecided, across checkpoints and a power failure, in all three files."""
    guard_pages(env, PATH)
    store = open_store(env, data_files=FILES)
    furnish(store)
    transaction = store.transaction()
    for name in NAMES:
        transaction.put_many(name, [name.encode() + b"p" * 5000] * 2)
    transaction.prepare("undecided")
    for round_number in range(3):
        for _ in range(4):
            put_to_all(store)
            store.put("b", b"small")
            for name in NAMES:
                take(store, name)
        store.admin.checkpoint()
        if round_number == 1:
            env = env.crash(outcome="lost")
            store = open_store(env)
    space = store._opened.places.managers[1].space
    used, _ = used_on_disk(env.if_it_crashed(outcome="lost"), PATH, f"{PATH}/data/1.dat")
    assert used.total == in_use(space) + 1 > 1  # the header's
    store.prepared.commit("undecided")
    for name in NAMES:
        assert take(store, name) == [name.encode() + b"p" * 5000] * 2
    assert store.admin.verify().ok


# After a burst ------------------------------------------------------------------------------------


def bytes_on_disk(path: str) -> int:
    """The space that the store's files take."""
    return sum(file.stat().st_blocks * 512 for file in Path(path).rglob("*"))


@pytest.mark.cases(2)
@pytest.mark.parametrize("files", [1, FILES])
@pytest.mark.parametrize("way", ["checkpoint", "maintenance"])
def test_a_burst_is_given_back_while_the_store_is_open(
    store_path: str, files: int, way: str, limits: Limits
) -> None:
    """100 messages of 1 MB put and taken: the files are back to within 6 MB of the empty store."""
    limits(TRIM_SECONDS=0.0)
    with Store.open(store_path, background=False, data_files=files) as store:
        for number in range(FILES):
            store.create_queue(NAMES[number], kind="work", data_file=number % files)
        empty = bytes_on_disk(store_path)
        for number in range(100):
            store.put(NAMES[number % FILES], bytes([number]) * 1_000_000)
        assert bytes_on_disk(store_path) > empty + 99_000_000
        assert sum(len(take(store, name)) for name in NAMES) == 100
        if way == "checkpoint":
            store.admin.checkpoint()
        else:
            store._maintenance.step()
        assert bytes_on_disk(store_path) <= empty + 6_000_000
        assert store.admin.verify().ok


@pytest.mark.cases(4)
def test_maintenance_gives_space_back_once_a_minute(env: SimEnv) -> None:
    """Not at each of its steps, so that bursts that follow each other find the space there."""
    with open_store(env, data_files=FILES, large_limit_bytes=1 << 20) as store:
        furnish(store)

        def size_after_burst(seconds: float) -> int:
            for _ in range(160):
                put_to_all(store)
            for name in NAMES:
                take(store, name)
            env.advance(seconds)
            store._maintenance.step()
            return int(store.status()["data"]["bytes"])

        big = size_after_burst(30.0)
        assert big > 5_000_000
        assert size_after_burst(0.0) == big
        assert size_after_burst(31.0) < big


@pytest.mark.promise(11)
def test_promise_11_space_that_cannot_be_given_back_fails_the_store(env: SimEnv) -> None:
    """A cut that fails is a failed change of the file: commits are refused."""
    store = open_store(env, data_files=FILES)
    furnish(store)
    for _ in range(150):
        store.put("c", b"x" * 9000)
    take(store, "c")
    env.advance(61)
    env.fail("truncate", "2.dat")
    with pytest.raises(StoreFailed):
        store._maintenance.step()
    with pytest.raises(StoreFailed, match="open it again"):
        store.put("a", b"refused")
    with open_store(env.crash(outcome="lost")) as recovered:
        assert recovered.queue("c").messages == 0
        assert recovered.admin.verify().ok


# Power failures while several files are being written ---------------------------------------------


@pytest.mark.crash
@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("step", ["commit", "checkpoint"])
def test_promise_1_2_power_failure_while_files_are_written_at_once(step: str, seed: int) -> None:
    """At each call of a commit or a checkpoint whose I/O managers have threads, in any order.

    The failure is raised in the thread that asked, and the transaction is whole or not at all.
    """
    for number in range(1, 60):
        env = new_machine(seed)
        with threaded(env) as store:
            furnish(store)
            put_to_all(store)
            for name in NAMES:
                store.put(name, b"small")
            env.crash_at = env.calls.last_number + number
            try:
                put_to_all(store, b"l") if step == "commit" else store.admin.checkpoint()
            except SimulatedCrash:
                pass
            else:
                assert number > (4 if step == "commit" else 10)
                break
        for n in range(3):
            recovered = open_store(env.crash(seed=n))
            counts = {len(take(recovered, name)) for name in NAMES}
            assert counts in ([{3}, {5}] if step == "commit" else [{3}])
            assert recovered.admin.verify().ok
    else:
        pytest.fail("the last call was not reached")
