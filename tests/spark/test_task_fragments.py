"""A task's messages for many queues, from the rows to the commit. No Spark session is needed."""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import quire
from quire.env import OsEnv
from quire.errors import QueueNotFound, StoreCorrupt
from quire.ltds import Compression, list_ids, path_of
from quire.spark_graphs import connection
from quire.spark_graphs.fragments import fragment_file
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.options import write_options
from quire.spark_graphs.task_files.directory_files import directory_of
from quire.spark_graphs.writing.routing import gathered, routed
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.sink_writer import target_of, write_fragments
from quire.spark_graphs.writing.write_ledger import StreamLedger
from quire.testing import SimEnv
from tests.engine.spoiled import spoil
from tests.engine.test_what_is_gone import HOW
from tests.engine.workload import PATH, new_machine, open_store
from tests.spark.numbered_queues import CHECK

QUEUES = 100


@pytest.fixture
def store(store_path: str) -> Iterator[Any]:
    """A store with many queues, whose messages stay."""
    with quire.open(store_path) as opened:
        opened.admin.create_queues([{"name": f"q{n}", "kind": "topic"} for n in range(QUEUES)])
        opened.integration.subscribe_many(CHECK, {f"q{n}": "earliest" for n in range(QUEUES)})
        yield opened
        connection.forget(store_path)
        assert opened.admin.verify().ok


def rows(pairs: Iterable[tuple[str, bytes]]) -> pa.RecordBatch:
    """A batch as Spark gives it to a task."""
    queues, payloads = zip(*pairs, strict=True)
    return pa.record_batch({"payload": pa.array(payloads, pa.binary()), "queue": list(queues)})


def write(
    store: Any, batches: list[pa.RecordBatch], codec: Compression = Compression.NONE
) -> list[Fragment]:
    """What a task does."""
    writer = FragmentWriter(store.path, store.integration.store_id, codec=codec)
    for batch in gathered(batches, None):
        writer.add(*routed(batch, None))
    return writer.finish()


def spread(size: int, each: int, queues: int = QUEUES) -> pa.RecordBatch:
    """`each` messages for each queue, turn by turn."""
    return rows((f"q{n % queues}", b"%d" % n + b"." * size) for n in range(each * queues))


def files(store: Any) -> list[int]:
    """The ids of the files in the directory of large transactions."""
    return list_ids(OsEnv(), directory_of(store.path))


def commit(store: Any, fragments: list[Fragment], version: int = 1) -> None:
    """What the driver does."""
    FragmentCommitter(store.path, StreamLedger("q", version), 1.0).commit(fragments)


def payloads(store: Any, queue: str) -> list[bytes]:
    """All messages of a queue."""
    found: list[bytes] = store.browse(f"{queue}/{CHECK}", max_messages=100_000).payloads()
    return found


@pytest.mark.parametrize("codec", list(Compression))
def test_many_queues_share_one_file(store: Any, codec: Compression) -> None:
    """It is gone after the commit, which has put everything once and in order."""
    batch = spread(2_000, 5)
    made = write(store, [batch.slice(0, 333), batch.slice(333)], codec)
    assert len(files(store)) == 1
    assert {f.shared_id for f in made if f.block is None} == set(files(store))
    commit(store, made)
    assert files(store) == []
    for n in range(QUEUES):
        assert payloads(store, f"q{n}") == [
            b"%d" % k + b"." * 2_000 for k in range(n, 5 * QUEUES, QUEUES)
        ]


def test_a_large_share_has_a_file_of_its_own(store: Any) -> None:
    """Which the commit adopts; so has one that nobody shares a file with."""
    large = rows(("q1", b"x" * 100_000) for _ in range(20))
    commit(store, write(store, [large, spread(2_000, 5)]))
    assert len(files(store)) == 1
    assert len(payloads(store, "q1")) == 25
    made = write(store, [rows(("q2", b"x" * 1_000) for _ in range(400))])
    assert [(f.shared_id, f.ltds_id is None) for f in made] == [(None, False)]
    commit(store, made, 2)
    assert len(files(store)) == 2
    assert len(payloads(store, "q2")) == 405


@pytest.mark.parametrize("size", [10, 2_000, 100_000])
def test_what_says_no_priority_gets_that_of_its_queue(store: Any, size: int) -> None:
    """In a block that is put, one of a shared file and a file that is adopted; 0 is a priority."""
    store.create_queue("five", order="priority", default_priority=5, capacity=1 << 28)
    store.create_queue("zeros", order="priority", default_priority=7, capacity=1 << 28)
    store.create_queue("none", order="priority", capacity=1 << 28)
    said: dict[str, list[int | None]] = {
        "five": [None, 0, 9] * 20,
        "zeros": [0] * 60,
        "none": [None, 0, 9] * 20,
    }
    queues = [queue for queue, several in said.items() for _ in several]
    priorities = [each for several in said.values() for each in several]
    batch = pa.record_batch(
        {
            "payload": [f"{each}".encode().ljust(size) for each in priorities],
            "priority": pa.array(priorities, pa.int32()),
            "queue": queues,
        }
    )
    target = target_of(store)
    assert target.priorities == {"five": 5, "zeros": 7}
    options = write_options({"path": store.path}, streaming=False)
    commit(store, write_fragments(iter([batch]), options, target))
    for queue, default in (("five", 5), ("zeros", 7), ("none", 0)):
        found = store.get_many(queue)
        assert len(found) == 60
        for message in found:
            name = message.payload.strip()
            assert message.priority == (default if name == b"None" else int(name))


def test_a_row_that_says_no_priority_gets_that_of_its_queue(store: Any) -> None:
    """The same of typed queues."""
    store.create_queue("rows", order="priority", default_priority=5, schema="name string")
    meta = pa.StructArray.from_arrays([pa.array([None, 0, 9], pa.int32())], names=["priority"])
    batch = pa.record_batch({"name": ["None", "0", "9"], "_meta": meta})
    options = write_options({"path": store.path, "queue": "rows"}, streaming=False)
    routes = {"rows": "name string"}
    commit(store, write_fragments(iter([batch]), options, target_of(store), routes))
    table = store.get_many("rows").to_arrow()
    assert table.column("name").to_pylist() == ["9", "None", "0"]
    assert [m["priority"] for m in table.column("_meta").to_pylist()] == [9, 5, 0]


def test_a_task_syncs_once_for_its_queues(seed: int) -> None:
    """A task syncs the files of its queues once, and once the directory, however many they are."""
    env = new_machine(seed)
    store = open_store(env)
    syncs = []
    for queues in (2, 50):
        before = len(env.calls.log)
        writer = FragmentWriter(PATH, store.integration.store_id, env)
        writer.add(*routed(spread(9_000, 30, queues), None))
        assert len({f.ltds_id for f in writer.finish() if f.block is None}) == 1
        syncs.append([call.kind for call in env.calls.log[before:] if "sync" in call.kind])
    assert syncs[0] == syncs[1]
    assert len(syncs[0]) <= 2


def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that some dozen messages take every way there is."""
    limits = {"INLINE_BYTES": 200, "OWN_FILE_BYTES": 600, "FLUSH_BYTES": 900, "PENDING_BYTES": 3000}
    for name, size in limits.items():
        monkeypatch.setattr(fragment_file, name, size)


# Loads for the limits of `small_limits`: queues, and the sizes of so many payloads of each.
SHARED_BLOCKS, OWN_FILE, WITH_MESSAGE = (30, [50] * 4), (1, [400] * 8), (1, [5] * 4)


def test_order_is_kept_whatever_the_way(
    store: Any, rng: random.Random, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue's messages may be in shared blocks, a file of its own and the message at once.

    A load of each kind goes before those that are drawn.
    """
    small_limits(monkeypatch)
    expected: dict[str, list[bytes]] = defaultdict(list)
    ways = set()
    fixed = [
        [[(f"q{n}", rng.randbytes(size)) for size in sizes for n in range(queues)]]
        for queues, sizes in (SHARED_BLOCKS, OWN_FILE, WITH_MESSAGE)
    ]
    for version, load in enumerate([*fixed, *(drawn_load(rng) for _ in range(rounds))]):
        for queue, payload in (pair for batch in load for pair in batch):
            expected[queue].append(payload)
        made = write(store, [rows(batch) for batch in load])
        ways |= {(f.block is not None, f.shared_id is not None) for f in made}
        commit(store, made, version)
    assert ways == {(True, False), (False, True), (False, False)}
    for queue, wanted in expected.items():
        assert payloads(store, queue) == wanted


def drawn_load(rng: random.Random) -> list[list[tuple[str, bytes]]]:
    """Some batches of queues and payloads."""
    names = [f"q{n}" for n in range(rng.choice([1, 2, 5, 30]))]
    return [
        [
            (rng.choice(names), rng.randbytes(rng.choice([0, 5, 50, 400])))
            for _ in range(rng.randrange(1, 40))
        ]
        for _ in range(rng.randrange(1, 6))
    ]


def test_rows_are_gathered_in_order() -> None:
    """Batches of one queue pass as they are; what waits before them goes with them."""
    one, other = rows([("a", b"1"), ("a", b"2")]), rows([("b", b"3")])
    mixed = rows([("a", b"4"), ("b", b"5")])
    assert [b is g for b, g in zip([one, other], gathered([one, other], None), strict=True)] == [
        True, True,
    ]  # fmt: skip
    assert list(gathered([mixed, mixed], "a")) == [mixed, mixed]
    joined = list(gathered([one, mixed, other, mixed], None))
    assert [batch.column("payload").to_pylist() for batch in joined] == [
        [b"1", b"2"], [b"4", b"5", b"3", b"4", b"5"],
    ]  # fmt: skip
    assert len(list(gathered([mixed] * 5, None, most_bytes=2 * mixed.nbytes))) == 3


def test_a_failed_commit_removes_the_shared_file(store: Any) -> None:
    """Of an unknown queue it says how to make it; one that is known already is not needed."""
    made = [*write(store, [spread(2_000, 5)]), Fragment("nowhere", 1, block=b"")]
    with pytest.raises(QueueNotFound, match="'nowhere'; create it first"):
        commit(store, made)
    assert files(store) == []
    assert payloads(store, "q1") == []
    commit(store, write(store, [spread(2_000, 5)]))
    commit(store, write(store, [spread(2_000, 5)]))  # the same version
    assert files(store) == []
    assert len(payloads(store, "q1")) == 5


def test_a_damaged_shared_file_is_named(store: Any) -> None:
    """Nothing of the micro-batch is put."""
    made = write(store, [spread(2_000, 5)])
    [ltds_id] = files(store)
    path = path_of(directory_of(store.path), ltds_id)
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        file.write(b"?" * 100)
    with pytest.raises(StoreCorrupt, match=f"{ltds_id:016x}"):
        commit(store, made)
    assert store.queue("q0").end_position == store.queue("q99").end_position == 0


def test_a_failed_task_leaves_no_file(seed: int) -> None:
    """Whichever call fails."""
    calls = _task(SimEnv(seed), fail=None)
    for number in range(1, calls + 1):
        _task(SimEnv(seed), fail=number)


def _task(env: SimEnv, fail: int | None) -> int:
    """A task whose call number `fail` fails; how many calls it made."""
    env.make_directory("/disk")
    store = open_store(env)
    begin = len(env.calls.log)
    if fail is not None:
        env.fail_at(begin + fail)
    writer = FragmentWriter(PATH, store.integration.store_id, env)
    try:
        writer.add(*routed(spread(3_000, 30, 4), None))
        writer.add(*routed(rows([("q9", b"x" * 600_000)] * 8), None))
        writer.finish()
    except OSError:
        writer.abort()
        assert fail is not None
        assert list_ids(env, directory_of(PATH)) == []
    return len(env.calls.log) - begin


def test_a_batch_without_messages_adds_none(store: Any) -> None:
    """Of bytes; whatever queues it names."""
    writer = FragmentWriter(store.path, store.integration.store_id)
    batch = pa.record_batch({"payload": pa.array([], pa.binary())})
    writer.add(batch, {"q0": 0})
    writer.add(batch, {})
    assert writer.finish() == []


SPOILT = {
    "shared": lambda: [spread(2_000, 5)],
    "own": lambda: [rows(("q2", b"%d" % n + b"x" * 1_000) for n in range(3_000))],
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", SPOILT)
def test_a_file_that_is_spoilt_before_its_commit(store: Any, kind: str, how: str) -> None:
    """The commit names it, and puts nothing; what the task writes again is committed.

    A copy that has taken its place is as good.
    """
    batches = SPOILT[kind]()
    made = write(store, batches)
    [ltds_id] = files(store)
    spoil(path_of(directory_of(store.path), ltds_id), how)
    if how != "replaced":
        with pytest.raises(StoreCorrupt, match=f"{ltds_id:016x}"):
            commit(store, made)
        assert [store.queue(f"q{n}").end_position for n in range(QUEUES)] == [0] * QUEUES
        made = write(store, batches)
    commit(store, made)
    assert len(payloads(store, "q2")) == (5 if kind == "shared" else 3_000)


@pytest.mark.parametrize("how", HOW)
def test_a_file_that_is_spoilt_after_its_commit(store_path: str, how: str) -> None:
    """Whoever reads it is told the file and the queue, at once or when the store is opened again.

    Other queues go on, and so do commits.
    """
    with quire.open(store_path) as store:
        store.admin.create_queues([{"name": name, "kind": "topic"} for name in ("q1", "q2")])
        store.integration.subscribe_many(CHECK, {"q1": "earliest", "q2": "earliest"})
        commit(store, write(store, SPOILT["own"]()))
        [ltds_id] = files(store)
        spoil(path_of(directory_of(store_path), ltds_id), how)
        with suppress(StoreCorrupt):  # it may have the file open
            assert len(payloads(store, "q2")) == 3_000
        store.put("q1", b"1")
        connection.forget(store_path)
    with quire.open(store_path) as store:
        if how == "replaced":
            assert len(payloads(store, "q2")) == 3_000
        else:
            with pytest.raises(StoreCorrupt, match=rf"queue 'q2'.*{ltds_id:016x}"):
                payloads(store, "q2")
        store.put("q1", b"2")
        assert payloads(store, "q1") == [b"1", b"2"]
        assert store.admin.verify().ok == (how == "replaced")
