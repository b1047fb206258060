"""Typed queues in the engine: packing, files, damage, crashes. What is alike in all stores is in
tests/behaviour/test_typed.py.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quire.engine import EmbeddedStore as Store
from quire.env.os_env import OsEnv
from quire.errors import InvalidArgument, QueueFull, StoreCorrupt
from quire.file_dump.dump import dump
from quire.file_dump.items import plain_value
from quire.ltds import Compression, LtdsWriter, new_id
from quire.rows.row_builder import RowBuilder
from quire.rows.row_input import one_row, rows_of
from quire.testing import SimEnv, enumerate_crashes
from tests.engine.workload import new_machine, open_store

WORDS = "id bigint not null, name string"
QUEUES: list[dict[str, Any]] = [
    {"name": "dead", "kind": "work", "schema": WORDS},
    {"name": "work", "kind": "work", "schema": WORDS, "max_deliveries": 2, "dead_letter": "dead"},
    {"name": "topic", "kind": "topic", "schema": WORDS},
    {"name": "memory", "kind": "work", "schema": WORDS, "type": "volatile"},
]
LATER = f"{WORDS}, more int"


def ids(store: Store, queue: str) -> list[int]:
    """Of all that is in it."""
    found = store.browse(queue, 100_000).to_arrow().column("id").to_pylist()
    assert all(isinstance(each, int) for each in found)
    return list(found)


def test_small_blocks_are_packed_by_a_checkpoint(seed: int) -> None:
    """Rows that were put one by one are read as columns of one block, each with its id and time."""
    env = new_machine(seed)
    with open_store(env) as store:
        store.admin.create_queues(QUEUES)
        made = [store.put("work", {"id": each}, group=each % 3) for each in range(40)]
        store.alter_queue("dead", schema=LATER)
        store.alter_queue("work", schema=LATER)
        made += [store.put("work", {"id": each, "more": each}) for each in range(40, 50)]
        before = store.browse("work").to_arrow()
        used = store.queue("work").used_bytes
        assert len(store.browse("work").slices) == 50
        store.admin.checkpoint()
        messages = store.browse("work")
        assert len(messages.slices) == 1
        assert messages.to_arrow() == before
        assert messages.ids == made
        assert store.queue("work").used_bytes == used
        assert store.admin.verify().ok
    with open_store(env) as store:
        assert store.browse("work").to_arrow() == before
        with store.transaction() as txn:
            txn.get_many("work", 100)
        assert store.queue("work").used_bytes == 0


def file_of(
    store: Store, words: str, table: pa.Table, codec: Compression = Compression.NONE
) -> int:
    """A file of rows that another process wrote."""
    writer = LtdsWriter(
        OsEnv(),
        f"{store.path}/ltds",
        store.integration.store_id,
        new_id(OsEnv(), foreign=True),
        codec,
    )
    builder = RowBuilder()
    for rows in rows_of(words, table):
        builder.add(rows)
    writer.add(builder)
    return writer.finish().id


@pytest.mark.promise(13)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_files_of_rows_are_adopted_where_they_fit(store_path: str, codec: Compression) -> None:
    """By their schema; others are refused, and bytes among rows too."""
    with Store.open(store_path, background=False) as store:
        store.admin.create_queues([*QUEUES, "bytes"])
        table = pa.table({"id": np.arange(5000), "name": ["x"] * 5000})
        good = file_of(store, WORDS, table, codec)
        other = file_of(store, "id bigint, name string", table, codec)
        with store.transaction() as txn:
            with pytest.raises(InvalidArgument, match="column 1"):
                txn.integration.adopt("work", other)
            with pytest.raises(InvalidArgument, match="holds bytes"):
                txn.integration.adopt("bytes", good)
            assert len(txn.integration.adopt("work", good)) == 5000
            txn.put("work", {"id": -1})
        assert ids(store, "work") == [*range(5000), -1]
        builder = RowBuilder()
        builder.add(one_row("id bigint", {"id": 1}, None))
        [block] = builder.build(1 << 20)
        with store.transaction() as txn:
            with pytest.raises(InvalidArgument, match="column 1"):
                txn.integration.put_block("work", block.data)
            with pytest.raises(InvalidArgument, match="holds bytes"):
                txn.integration.put_block("bytes", block.data)
        assert store.admin.verify().ok


@pytest.mark.promise(10)
def test_damaged_rows_are_never_returned(store_path: str) -> None:
    """A byte of a file changed below: an error that names it, by a get, `verify` and the dump."""
    with Store.open(store_path, background=False, large_flush_bytes=4096) as store:
        store.admin.create_queues(QUEUES)
        with store.transaction(large=True) as txn:
            txn.put_many("work", pa.table({"id": np.arange(5000)}))
    [path] = Path(store_path, "ltds").glob("*.ltds")
    data = bytearray(path.read_bytes())
    data[20_000] ^= 1
    path.write_bytes(data)
    with Store.open(store_path, background=False) as store:
        with store.transaction() as txn, pytest.raises(StoreCorrupt, match="checksum"):
            txn.get_arrow("work")
        assert not store.admin.verify().ok


def test_a_dump_shows_rows(store_path: str) -> None:
    """Their columns, from the files alone."""
    with Store.open(store_path, background=False) as store:
        store.admin.create_queues(QUEUES)
        store.put("work", {"id": 1, "name": "one"})
        store.admin.checkpoint()
        store.put("work", {"id": 2})
    found = dump(store_path, queue="work", messages=True)
    assert [plain_value(item)["payload_start"] for item in found if item.item == "message"] == [
        b'{"id": 1, "name": "one"}',
        b'{"id": 2, "name": null}',
    ]


# Crashes


def put(store: Store, done: dict[str, list[int]], rounds: int) -> None:
    """Rows by number: alone, several, a file, and into all queues by one commit."""
    for turn in range(rounds):
        for name in ("work", "topic"):
            first = len(done[name])
            if turn % 2:
                store.put(name, {"id": first, "name": "alone"})
                done[name].append(first)
            else:
                with store.transaction(large=turn == 2) as txn:
                    txn.put_many(name, pa.table({"id": np.arange(first, first + 300)}))
                done[name] += range(first, first + 300)
        with store.transaction() as txn:
            for name in ("work", "topic"):
                txn.put(name, {"id": len(done[name])})
            txn.put("memory", {"id": 0})
        for name in ("work", "topic"):
            done[name].append(len(done[name]))


def run(env: SimEnv, done: dict[str, list[int]]) -> None:
    """From nothing."""
    env.make_directory("/disk")
    env.sync_directory("/")
    with open_store(env) as store:
        store.admin.create_queues(QUEUES)
        store.subscribe("topic", "s")
        done |= {"work": [], "topic": []}
        put(store, done, 2)
        store.alter_queue("topic", schema=LATER)
        store.admin.checkpoint()
        put(store, done, 3)


def check(store: Store, done: dict[str, list[int]]) -> None:
    """All that was acknowledged is there, in order, and of what was not, a whole transaction."""
    report = store.admin.verify()
    assert report.ok, report.findings
    for name in ("work", "topic"):
        found = ids(store, name)
        assert found == list(range(len(found))), name
        assert len(found) - len(done[name]) in (0, 1, 300), name
        done[name] = found


@pytest.mark.cases(4)
@pytest.mark.promise(1, 2, 8)
def test_rows_survive_power_failures(seed: int) -> None:
    """At every call of the engine; and the store goes on from there."""

    def look(env: SimEnv, done: dict[str, list[int]]) -> None:
        if not done:
            return
        done = {name: list(known) for name, known in done.items()}
        with open_store(env) as store:
            check(store, done)
            put(store, done, 1)
            check(store, done)

    assert enumerate_crashes(run, look, dict, seed=seed, rounds=1, every=10) > 20


def test_a_full_disk_and_a_full_queue_refuse_rows(seed: int) -> None:
    """Nothing of the batch is there then; what is there is read, and with room it goes on."""
    env = new_machine(seed)
    with open_store(env) as store:
        store.create_queue("q", "work", schema=WORDS, capacity=64 << 10)
        table = pa.table({"id": np.arange(1000), "name": ["x" * 20] * 1000})
        store.put_many("q", table)
        with pytest.raises(QueueFull):
            store.put_many("q", table)
        with store.transaction() as txn:
            txn.put_many("q", [{"id": 1}])
            with pytest.raises(QueueFull):
                txn.put("q", {"id": 2, "name": "y" * 60_000})
            txn.rollback()
        assert store.queue("q").messages == 1000
        assert len(store.get_many("q", 1000)) == 1000
        store.put_many("q", table)
        assert ids(store, "q") == list(range(1000))


def test_many_threads_put_and_get_rows() -> None:
    """Each row is got once."""
    with open_store(new_machine(5)) as store:
        store.admin.create_queues(QUEUES)
        store.subscribe("topic", "s")
        got: list[int] = []
        errors: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                for number in range(15):
                    with store.transaction() as txn:
                        txn.put("work", {"id": thread * 1000 + number})
                        txn.put_many("topic", [{"id": number}] * 3)
            except BaseException as error:  # noqa: BLE001 shown below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        while len(got) < 60 and not errors:
            with store.transaction() as txn:
                got += txn.get_arrow("work", 7, timeout=5.0).column("id").to_pylist()
        for thread in threads:
            thread.join()
        assert not errors, errors
        assert sorted(got) == sorted(t * 1000 + n for t in range(4) for n in range(15))
        assert store.queue("topic").messages == 180
        assert store.admin.verify().ok
