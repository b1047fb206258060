"""Large transactions: memory, commit and rollback do not depend on how much they hold."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.engine import PieceReader
from quire.engine.pages.data_file import HEADER_BYTES
from quire.engine.records.checkpoint_spares import SPARES
from quire.env import OsEnv
from quire.errors import (
    DiskFull,
    InvalidArgument,
    PositionLost,
    QueueFull,
    StoreCorrupt,
    StoreFailed,
)
from quire.limits import LTDS_WRITE_BYTES, LTDS_WRITERS
from quire.ltds import LtdsWriter, new_id
from quire.testing import Call, SimEnv, enumerate_crashes
from quire.testing.sim_calls import CallLog
from tests.engine.test_large_transactions import ltds_files, swept
from tests.kit.limits import Limits
from tests.kit.messages import take

CALLS = ("write", "sync", "allocate", "truncate", "punch")


class WatchedFile:
    """A file of the machine that tells what the test's thread asks of it."""

    def __init__(self, file: Any, env: WatchedEnv) -> None:
        self._file, self._env = file, env

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._file, name)
        if name not in CALLS:
            return member

        def watched(*arguments: Any, **options: Any) -> Any:
            size = len(arguments[1]) if name == "write" else 0
            self._env.note(f"{name} {self._file.path.rpartition('.')[2]}", size)
            return member(*arguments, **options)

        return watched


class WatchedEnv(OsEnv):
    """The real machine; `calls` and `written` are of the thread that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self.calls: Counter[str] = Counter()
        self.written = 0

    def note(self, call: str, size: int = 0) -> None:
        if threading.get_ident() == self._thread:
            self.calls[call] += 1
            self.written += size

    def open_file(self, path: str, **options: bool) -> Any:
        return WatchedFile(super().open_file(path, **options), self)

    def sync_directory(self, path: str) -> None:
        self.note("sync_directory")
        super().sync_directory(path)

    def remove(self, path: str) -> None:
        self.note("remove")
        super().remove(path)


def put(store: Store, count: int) -> Any:
    """An open transaction with so many messages of 20 bytes."""
    batch = pa.array([b"%020d" % number for number in range(50_000)])
    txn = store.transaction(large=True)
    for _ in range(count // 50_000):
        txn.put_many("q", batch)
    return txn


SIZES = (150_000, 600_000, 2_000_000)


@pytest.mark.promise(9)
def test_a_commit_asks_the_disk_for_the_same_whatever_its_size(store_path: str) -> None:
    """A few writes of a few MiB, one journal record: not more for 2 million messages."""
    env = WatchedEnv()
    with Store.open(store_path, env=env) as store:
        store.create_queue("q", kind="work", capacity=4 << 30)
        for size in SIZES:
            txn = put(store, size)
            env.calls.clear()
            env.written = 0
            txn.commit()
            calls = dict(env.calls)
            assert 1 <= calls.pop("write ltds") <= 3, calls
            assert calls.pop("sync ltds", 0) <= 1
            assert calls.pop("sync_directory") == 1
            assert calls.pop("write log") == 1
            assert calls.pop("sync log", 0) <= 1
            # What is kept back for a full disk grows with what can be read in any order, in one go.
            for call in ("allocate spare", "sync spare"):
                assert calls.pop(call, 0) <= SPARES
            assert not calls
            assert env.written < 3 * LTDS_WRITE_BYTES
        assert [part.count for part in store._context.state.queue("q").records] == list(SIZES)
        assert len(ltds_files(store)) == len(SIZES)


@pytest.mark.cases(3)
@pytest.mark.parametrize("way", ["commit", "prepare"])
@pytest.mark.parametrize("queues", [1, 3, LTDS_WRITERS + 2])
def test_the_names_of_many_files_are_synced_at_once(store_path: str, queues: int, way: str) -> None:
    """A file for each queue, each synced; their directory once, also when one is adopted."""
    env = WatchedEnv()
    with Store.open(store_path, env=env, large_flush_bytes=4096) as store:
        names = [f"q{number}" for number in range(queues)]
        for name in names:
            store.create_queue(name, kind="work")
        writer = LtdsWriter(
            OsEnv(), f"{store_path}/ltds", store.integration.store_id, new_id(OsEnv(), foreign=True)
        )
        builder = BlockBuilder()
        builder.add_many([b"adopted"] * 10)
        writer.add(builder)
        adopted = writer.finish().id
        for transaction in range(2):
            txn = store.transaction(large=True)
            for name in names:
                txn.put_many(name, [b"x" * 1000] * 10)
            if not transaction:  # the file before it is completed at once, another one follows
                txn.integration.adopt("q0", adopted)
                txn.put_many("q0", [b"x" * 1000] * 10)
            env.calls.clear()
            txn.commit() if way == "commit" else txn.prepare(f"x{transaction}")
            assert env.calls["sync_directory"] == 1
            assert env.calls["sync ltds"] == queues
            assert env.calls["write log"] == 1
        for info in store.prepared.list():
            store.prepared.commit(info.xid)
        assert [store.queue(name).messages for name in names] == [40, *[20] * (queues - 1)]
        assert len(ltds_files(store)) == 2 * queues + 2


@pytest.mark.promise(9)
def test_a_rollback_asks_the_disk_for_nothing(store_path: str) -> None:
    """It returns at once; the files go later, beside what other transactions do."""
    env = WatchedEnv()
    with Store.open(store_path, env=env) as store:
        store.create_queue("q", kind="work", capacity=4 << 30)
        for size in SIZES:
            txn = put(store, size)
            env.calls.clear()
            txn.rollback()
            assert not env.calls
            assert store.queue("q").used_bytes == 0
        swept(store)
        assert ltds_files(store) == []


@pytest.mark.promise(9)
@pytest.mark.parametrize("way", ["rollback", "commit"])
def test_files_are_freed_slice_by_slice(way: str, limits: Limits) -> None:
    """So that the file system never has much to free at a time; a crash loses track of nothing."""
    slice_bytes = 1 << 20
    limits(REMOVAL_SLICE_BYTES=slice_bytes)
    for slices in (1, 2, 3):
        env = SimEnv()
        store = Store.open("/s", env=env, background=False, large_flush_bytes=1 << 18)
        store.create_queue("q", kind="work")
        store._context.spiller._after_discard = lambda: None  # as where a thread does it
        txn = store.transaction(large=True)
        for _ in range(10):
            txn.put_many("q", [b"x" * (1 << 18)])
        assert txn._writes is not None
        next(iter(txn._writes.by_queue.values())).write_out(close=True)
        getattr(txn, way)()
        if way == "commit":
            assert len(take(store, "q")) == 10
        sizes = [len(env.contents(f"/s/ltds/{ltds_files(store)[0]}"))]
        for _ in range(slices):
            assert store.status()["large_transactions"]["removable"] == 1
            store._context.places.sweep(sliced=True)
            assert ltds_files(store) == []
            file = store._context.places.discarded._cutting  # it has no name any more
            sizes.append(0 if file is None else file.size())
        freed = [before - after for before, after in pairwise(sizes)]
        assert freed[:2] == [slice_bytes] * min(slices, 2)
        assert max(freed) == slice_bytes
        assert (store.status()["large_transactions"]["removable"] == 0) == (slices == 3)
        with Store.open("/s", env=env.crash(), background=False) as store:
            assert ltds_files(store) == []
            assert store.queue("q").used_bytes == 0


def test_small_files_go_many_at_a_time() -> None:
    """A slice is one of bytes, not of files."""
    with Store.open("/s", env=SimEnv(), background=False, large_flush_bytes=4096) as store:
        store.create_queue("q", kind="work")
        store._context.spiller._after_discard = lambda: None
        for _ in range(50):
            txn = store.transaction(large=True)
            txn.put("q", b"x" * 10_000)
            txn.rollback()
        assert store.status()["large_transactions"]["removable"] == 50
        store._context.places.sweep(sliced=True)
        assert ltds_files(store) == []


@pytest.mark.promise(10)
def test_a_late_reader_of_a_file_that_goes_gets_an_error(limits: Limits) -> None:
    """The lease is over, the messages are read: before, in the midst of and after the removal."""
    limits(REMOVAL_SLICE_BYTES=1 << 20)
    env = SimEnv()
    with Store.open("/s", env=env, background=False, large_flush_bytes=1 << 18) as store:
        store.create_queue("q", kind="work")
        with store.transaction(large=True) as txn:
            for number in range(40):
                txn.put_many("q", [b"%d" % number * 80_000])
        lease = store.integration.lease("q", 0, 40)
        reader = PieceReader("/s", env=env)
        batches = reader._slices(lease.pieces[:1])
        assert next(batches).block.payloads()[0] == b"0" * 80_000
        store.integration.end_lease(lease.lease_id)
        take(store, "q")
        for _ in range(3):
            store._context.places.sweep(sliced=True)
        with pytest.raises(PositionLost, match="not there any more"):
            list(batches)
        with pytest.raises(PositionLost, match="not there any more"):
            list(reader.read(lease.pieces[0]))
        reader.close()


@pytest.mark.promise(11)
def test_a_file_that_cannot_be_removed_fails_the_store_not_the_rollback() -> None:
    """The rollback is done; commits are refused; the next opening removes the file."""
    env = SimEnv()
    store = Store.open("/s", env=env, background=False, large_flush_bytes=4096)
    store.create_queue("q", kind="work")
    txn = store.transaction(large=True)
    txn.put("q", b"x" * 10_000)
    env.fail("remove", "*.ltds")
    txn.rollback()
    assert txn.state == "rolled back"
    assert store.queue("q").used_bytes == 0
    with pytest.raises(StoreFailed):
        store.put("q", b"x")
    store.close()
    with Store.open("/s", env=env.crash(), background=False) as store:
        assert ltds_files(store) == []
        assert store.admin.verify().ok


def _open_again(env: SimEnv, done: list[str]) -> None:
    """A process goes on after one that was killed."""
    if "created" in done:
        with Store.open("/disk/s", env=env, background=False) as store:
            if store.queue("a").messages:
                done.append("first")
            store.admin.checkpoint()


@pytest.mark.cases(3)
@pytest.mark.crash
@pytest.mark.promise(1, 2)
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("direct", [True, False])
def test_promise_1_2_power_failure_at_every_call_of_large_transactions(
    compression: str | None, direct: bool, rounds: int, limits: Limits
) -> None:
    """Two queues each; one committed, one rolled back, one committed with reads: all or nothing."""
    limits(REMOVAL_SLICE_BYTES=8192)
    options: dict[str, Any] = {
        "segment_bytes": 64 << 10,
        "grow_bytes": 64 << 10,
        "large_flush_bytes": 8192,
        "ltds_compression": compression,
    }
    payloads = {name: [b"%s %04d" % (name, n) * 30 for n in range(60)] for name in (b"a", b"b")}

    def fill(store: Store) -> Any:
        txn = store.transaction(large=True)
        for start in range(0, 60, 20):
            for name, rows in payloads.items():
                txn.put_many(name.decode(), rows[start : start + 20])
        return txn

    def workload(env: SimEnv, done: list[str]) -> None:
        env.make_directory("/disk")
        env.sync_directory("/")
        store = Store.open("/disk/s", env=env, background=False, **options)
        store.create_queue("a", kind="work")
        store.create_queue("b", kind="work")
        done.append("created")
        fill(store).commit()
        done.append("first")
        store._context.spiller._after_discard = lambda: None
        fill(store).rollback()
        while store._context.places.discarded:
            store._context.places.sweep(sliced=True)
        txn = fill(store)
        for name, rows in payloads.items():
            assert txn.get_many(name.decode(), 60).payloads() == rows
        done.append("reading")
        txn.commit()
        done.append("second")
        store.close()

    def check(env: SimEnv, done: list[str]) -> None:
        if "created" not in done:
            return
        with Store.open("/disk/s", env=env, background=False) as store:
            assert store.admin.verify().ok
            got = {name: take(store, name.decode()) for name in payloads}
            assert got in ({name: [] for name in payloads}, payloads)
            assert got == payloads or "first" not in done
            assert [store.queue(name).used_bytes for name in "ab"] == [0, 0]
            first, end = store.integration.positions("a")
            assert first == end in (0, 60, 120)
            assert end >= 120 * ("second" in done)
            assert swept(store) == []

    cases = enumerate_crashes(
        workload,
        check,
        list,
        rounds=max(1, rounds // 12),
        every=max(1, 100 // rounds),
        new_env=lambda number: SimEnv(number, direct=direct),
        resume=_open_again,
    )
    assert cases > 30


@pytest.mark.crash
@pytest.mark.parametrize("hasty", [False, True])
def test_a_commit_whose_files_have_no_durable_names_is_caught(
    hasty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A canary: an engine that does not sync the directory loses what it acknowledged."""
    if hasty:
        monkeypatch.setattr(
            "quire.engine.pages.block_places.Places.sync_names", lambda places: None
        )
    env = SimEnv()
    store = Store.open("/s", env=env, background=False, large_flush_bytes=4096)
    env.sync_directory("/")
    for name in "ab":
        store.create_queue(name, kind="work")
    with store.transaction(large=True) as txn:
        for name in "ab":
            txn.put_many(name, [b"x" * 1000] * 10)
    with Store.open("/s", env=env.crash(outcome="lost"), background=False) as store:
        assert store.admin.verify().ok != hasty
        if hasty:
            with pytest.raises(StoreCorrupt, match="missing"):
                take(store, "a")
        else:
            assert [len(take(store, name)) for name in "ab"] == [10, 10]


@pytest.mark.cases(2)
@pytest.mark.promise(9, 13)
@pytest.mark.parametrize("large", [False, True])
def test_large_arrow_data_is_put_in_slices_all_or_none(large: bool) -> None:
    """Arrays, chunked arrays, batches and tables: in order; refused as a whole, with no trace."""
    rows = [b"%d" % number for number in range(300_000)]
    array = pa.array(rows, pa.binary())
    batch = pa.record_batch([array], ["payload"])
    chunks = pa.chunked_array([array[:1], array[1:7], array[7:]])
    sources = [array, chunks, batch, pa.table([chunks], ["payload"]), array.cast(pa.binary_view())]
    with Store.open("/s", env=SimEnv(), background=False) as store:
        store.create_queue("q", kind="work", capacity=40 << 20)
        for source in sources:
            with store.transaction(large=large) as txn:
                txn.put("q", b"first")
                ids = txn.put_many("q", source)
                txn.put("q", b"last")
            assert len(ids) == len(rows)
            assert int(ids[-1]) - int(ids[0]) == len(rows) - 1
            assert take(store, "q") == [b"first", *rows, b"last"]
        nulls = pa.concat_arrays([array, pa.array([None], pa.binary())])
        with store.transaction(large=large) as txn:
            with pytest.raises(InvalidArgument, match="nulls"):
                txn.put_many("q", nulls)
            assert store.queue("q").open_transactions == 0
            txn.put("q", b"kept")
            with pytest.raises(InvalidArgument, match="nulls"):
                txn.put_many("q", nulls)
            with pytest.raises(QueueFull):
                txn.put_many("q", pa.concat_arrays([array] * 8))
        assert take(store, "q") == [b"kept"]
        assert store.queue("q").used_bytes == 0
        assert store.admin.verify().ok


@pytest.mark.cases(2)
@pytest.mark.promise(9)
@pytest.mark.parametrize("when_full", ["spill", "large"])
def test_slices_leave_a_full_write_buffer(when_full: str) -> None:
    """A put that is larger than the write buffer goes through it, and comes back in order."""
    rows = [b"%08d" % number * 10 for number in range(300_000)]
    with Store.open(
        "/s", env=SimEnv(), background=False, when_full=when_full, write_buffer_bytes=4 << 20,
        large_limit_bytes=1 << 30,
    ) as store:  # fmt: skip
        store.create_queue("q", kind="work")
        with store.transaction() as txn:
            txn.put_many("q", pa.array(rows))
            assert store.status()["write_buffer_bytes"] <= 12 << 20  # and a slice
        assert take(store, "q") == rows
        assert store.admin.verify().ok


@pytest.mark.promise(13)
def test_an_error_between_slices_rolls_back_and_leaks_nothing() -> None:
    """A disk that becomes full in the middle: no message, no space, no file is left."""
    env = SimEnv()
    with Store.open("/s", env=env, background=False) as store:
        store.create_queue("q", kind="work")
        env.capacity_bytes = env.used_bytes() + (6 << 20)
        txn = store.transaction()
        with pytest.raises(DiskFull):
            txn.put_many("q", pa.array([b"x" * 100] * 400_000))
        assert txn.state == "rolled back"
        assert store.queue("q").used_bytes == 0
        assert store.queue("q").open_transactions == 0
        assert ltds_files(store) == []
        env.capacity_bytes = None
        store.put("q", b"goes on")
        assert take(store, "q") == [b"goes on"]


# Memory -------------------------------------------------------------------------------------------


def grown(role: str, path: str, count: int, size: int) -> float:
    """By how many megabytes the memory of a process grows that does this."""
    command = [sys.executable, "-m", "tests.engine.large_process", role, path]
    command += [str(count), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout))


@pytest.mark.cases(2)
@pytest.mark.promise(9)
@pytest.mark.parametrize("role", ["put", "put_at_once"])
def test_putting_takes_the_same_memory_whatever_is_put(role: str, store_path: str) -> None:
    """500,000 messages of 200 bytes, 100 MB: in batches, or as one Arrow table."""
    assert grown(role, store_path, 500_000, 200) < 50


@pytest.mark.cases(4)
@pytest.mark.promise(9)
def test_a_hundred_queues_take_no_more(store_path: str) -> None:
    """One transaction puts 60 MB to 100 queues, in a process that may open 150 files."""
    assert grown("put_many_queues", store_path, 600_000, 100) < 40


@pytest.mark.cases(4)
@pytest.mark.promise(9)
@pytest.mark.parametrize("role", [pytest.param("get", marks=pytest.mark.long), "get_arrow"])
def test_reading_takes_the_same_memory_whatever_there_is(role: str, store_path: str) -> None:
    """500,000 messages of 400 bytes, 200 MB: one by one, or 777 at a time as Arrow."""
    grown("put", store_path, 500_000, 400)
    assert grown(role, store_path, 500_000, 400) < 100


# Scanning -----------------------------------------------------------------------------------------


@pytest.mark.promise(9)
def test_scanning_reads_record_headers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is delivered next is found without any read of a block, wherever the blocks are."""
    env = SimEnv()
    options: dict[str, Any] = {"segment_bytes": 1 << 20, "grow_bytes": 1 << 16}
    with Store.open("/s", env=env, background=False, **options) as store:
        store.create_queue("q", kind="topic")
        store.subscribe("q", "reader")
        for _ in range(100):
            with store.transaction() as txn:
                txn.put_many("q", [b"page" * 7500] * 10)
        with store.transaction(large=True) as txn:
            for _ in range(10):
                txn.put_many("q", [b"x" * 500_000])
        store.admin.checkpoint()
        store.put("q", b"in the journal")
    looked: list[tuple[str, int]] = []

    def record(log: CallLog, kind: str, path: str, offset: int = 0, length: int = 0) -> Call:
        if kind == "read":
            looked.append((path, length))
        return known(log, kind, path, offset, length)

    known = CallLog.record
    monkeypatch.setattr(CallLog, "record", record)
    with Store.open("/s", env=env, background=False, **options) as store:
        queue, subscription = store._context.state.source("q/reader")
        end = queue.end_position
        position = 0
        runs: list[tuple[int, int, int]] = []
        while position < end:
            with queue.lock:
                assert queue.take(subscription, end, store, runs)
                position = queue.deliverable(subscription, *runs[-1][:2])[-1].end_position
        page_size = store._opened.settings["page_size"]
        assert not [path for path, _ in looked if path.endswith(".ltds")]
        data = [length for path, length in looked if path.endswith(".dat")]
        pages = len(queue.records.directory)
        assert pages
        assert set(data) <= {page_size, HEADER_BYTES}
        assert pages <= len(data) <= 3 * pages + 2  # recovery looks at them as well
        records = len(list(queue.records))
        assert records > 60
        assert subscription.read_structure.scanned_records == records
        del looked[:]
        assert store.browse("q", max_messages=5).payloads() == [b"page" * 7500] * 5
        assert max(length for _, length in looked) > page_size  # the canary: this is what is not
