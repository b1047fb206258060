"""Large transactions in compressed files: the option, readers, space, damage, faults, crashes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import asdict

from quire.block import BlockBuilder
from quire.engine import EmbeddedStore as Store
from quire.engine import PieceReader
from quire.errors import InvalidArgument, StoreCorrupt, StoreFailed
from quire.ltds import Compression, LtdsReader, LtdsWriter, list_ids, new_id
from quire.testing import SimEnv
from tests.engine.test_large_transactions import ltds_files, swept
from tests.kit.messages import take

TEXTS = [b'{"number": %d, "state": "a state of many"}' % n for n in range(80_000)]

# Nearly every transaction of a workload becomes a large one, of several compressed blocks.
LARGE: dict[str, Any] = {
    "large_limit_bytes": 6000,
    "large_limit_messages": 6,
    "large_flush_bytes": 4096,
}


@pytest.fixture(params=["zstd", "lz4"])
def compression(request: pytest.FixtureRequest) -> str:
    """Either codec."""
    return str(request.param)


@pytest.fixture
def compressed(compression: str, store_path: str) -> Iterator[Store]:
    """A store on the real disk with a queue, whose large transactions are compressed."""
    with Store.open(store_path, ltds_compression=compression) as store:
        store.create_queue("q", kind="work")
        yield store
        report = store.admin.verify()
        assert report.ok, report.findings


def codecs(store: Store) -> list[Compression]:
    """Of all files of large transactions."""
    directory = f"{store.path}/ltds"
    found = []
    for ltds_id in list_ids(store._env, directory):
        with LtdsReader(store._env, directory, ltds_id, store.integration.store_id) as reader:
            found.append(reader.codec)
    return found


def put_texts(store: Store) -> None:
    """One large transaction."""
    with store.transaction(large=True) as txn:
        txn.put_many("q", pa.array(TEXTS[:40_000]))
        txn.put_many("q", pa.array(TEXTS[40_000:]))


def put_some(store: Store, count: int) -> None:
    """The first texts in one large transaction, 500 a call."""
    with store.transaction(large=True) as txn:
        for start in range(0, count, 500):
            txn.put_many("q", TEXTS[start : start + 500])


def test_what_was_compressed_is_read_by_all_means(compressed: Store, compression: str) -> None:
    """One by one, as bytes, as Arrow, by browsing: the messages and their headers are the same."""
    with compressed.transaction(large=True) as txn:
        txn.put("q", b"first", group=7, attributes={"key": "value"})
        txn.put_many("q", pa.array(TEXTS))
        txn.put("q", b"last", sender="sender")
    assert codecs(compressed) == [Compression[compression.upper()]]
    assert compressed.browse("q", max_messages=100_000).payloads() == [b"first", *TEXTS, b"last"]
    with compressed.transaction() as txn:
        first = txn.get("q")
        assert first is not None
        assert (first.group, first.attributes) == (7, {"key": "value"})
        assert [message.payload for message in txn.get_many("q", 5)] == TEXTS[:5]
        assert txn.get_arrow("q", 50_000)["payload"].to_pylist() == TEXTS[5:50_005]
        *rest, last = txn.get_many("q", 100_000)
        assert [message.payload for message in rest] == TEXTS[50_005:]
        assert (last.payload, last.sender) == (b"last", "sender")
    assert swept(compressed) == []


def test_the_option_is_of_the_opening_and_not_of_the_store(store_path: str) -> None:
    """Files of either codec and of none are read, whatever the store is opened with."""
    for name in (None, "zstd", "lz4", None):
        with Store.open(store_path, ltds_compression=name) as store:
            if not store.queues():
                store.create_queue("q", kind="work")
            put_texts(store)
    with Store.open(store_path) as store:
        assert sorted(codecs(store)) == [
            Compression.NONE,
            Compression.NONE,
            Compression.ZSTD,
            Compression.LZ4,
        ]
        assert store.admin.verify().ok
        assert take(store, "q") == TEXTS * 4


@pytest.mark.promise(13)
@pytest.mark.parametrize("name", ["gzip", "", 1, True, b"zstd", ["zstd"]])
def test_other_codecs_are_refused(name: Any) -> None:
    """The error names those that there are; no store is made."""
    env = SimEnv()
    with pytest.raises(InvalidArgument, match="'zstd' or 'lz4'"):
        Store.open("/s", env=env, ltds_compression=name)
    assert not env.exists("/s")


def test_capacity_counts_what_was_put_not_what_it_takes(compressed: Store) -> None:
    """The queue is charged for payloads and 16 bytes a message; the file takes a part of that."""
    put_texts(compressed)
    charge = sum(map(len, TEXTS)) + 16 * len(TEXTS)
    assert charge <= compressed.queue("q").used_bytes <= charge + 1000
    path = f"{compressed.path}/ltds/{ltds_files(compressed)[0]}"
    assert compressed._env.open_file(path, read_only=True).size() < charge / 3
    take(compressed, "q")
    assert compressed.queue("q").used_bytes == 0


def test_files_of_others_are_adopted(compressed: Store, compression: str) -> None:
    """`adopt` of a compressed file that another process wrote."""
    env = compressed._env
    writer = LtdsWriter(
        env, f"{compressed.path}/ltds", compressed.integration.store_id, new_id(env, foreign=True),
        Compression[compression.upper()],
    )  # fmt: skip
    builder = BlockBuilder()
    builder.add_many(TEXTS)
    writer.add(builder)
    info = writer.finish()
    with compressed.transaction() as txn:
        assert len(txn.integration.adopt("q", info.id)) == len(TEXTS)
    assert take(compressed, "q") == TEXTS


READ_PIECES = """
import json, sys
from quire.engine import PieceReader
from quire.reports.info import (Piece)
reader = PieceReader(sys.argv[1])
rows, first, last = 0, None, None
for batch in reader.read_all([Piece(**piece) for piece in json.loads(sys.argv[2])]):
    rows += batch.num_rows
    first = first or batch["payload"][0].as_py().decode()
    last = batch["payload"][-1].as_py().decode()
print(json.dumps([rows, first, last]))
"""


@pytest.mark.cases(2)
def test_another_process_reads_ranges_without_the_owner(compressed: Store) -> None:
    """A leased range in the middle of the file is read by a process that never asks the owner."""
    put_texts(compressed)
    lease = compressed.integration.lease("q", 12_345, 45_678)
    pieces = json.dumps([asdict(piece) for piece in lease.pieces])
    done = subprocess.run(
        [sys.executable, "-c", READ_PIECES, compressed.path, pieces],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = [45_678 - 12_345, TEXTS[12_345].decode(), TEXTS[45_677].decode()]
    assert json.loads(done.stdout) == expected
    compressed.integration.end_lease(lease.lease_id)


# Damage and faults --------------------------------------------------------------------------------


def furnished(compression: str | None, count: int = 3000) -> tuple[SimEnv, str]:
    """A machine with a store that holds one compressed file, and the file's path."""
    env = SimEnv()
    with Store.open(
        "/s", env=env, background=False, ltds_compression=compression, large_flush_bytes=16_384
    ) as store:
        store.create_queue("q", kind="work")
        put_some(store, count)
        (name,) = ltds_files(store)
    return env, f"/s/ltds/{name}"


@pytest.mark.cases(2)
@pytest.mark.promise(10)
def test_promise_10_damage_of_every_part_is_found(
    compression: str, rng: Random, rounds: int
) -> None:
    """A bit flipped in header, blocks, directory or trailer: reading and verify name the file.

    Bits between the blocks mean nothing. All others are found by both.
    """
    env, path = furnished(compression)
    content = env.contents(path)
    directory = env.contents(path).rindex(b"QLTDSEND") - 8 - 4096
    places = [*range(0, 96, 7), *range(directory, directory + 200, 7)]
    places += [*range(len(content) - 4096, len(content), 331), 4096]
    places += [rng.randrange(len(content)) for _ in range(4 * rounds)]
    found = 0
    for place in places:
        mask = 1 << rng.randrange(8)
        env.corrupt(path, place, mask)
        with Store.open("/s", env=env, background=False) as store:
            report = store.admin.verify()
            try:
                assert store.browse("q", max_messages=10_000).payloads() == TEXTS[:3000]
                assert report.ok
                assert not content[place]  # zeros behind a block, which nobody reads
            except StoreCorrupt as error:
                assert path in str(error)  # noqa: PT017
                assert "'q'" in str(error)  # noqa: PT017
                assert [path in finding for finding in report.findings] == [True]
                found += 1
        env.corrupt(path, place, mask)
    assert found > len(places) // 2


@pytest.mark.promise(10)
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_promise_10_reading_errors_are_raised(compression: str | None) -> None:
    """An error of the disk under a block is raised, and nothing is delivered wrongly."""
    env, path = furnished(compression)
    with Store.open("/s", env=env, background=False) as store:
        fault = env.fail("read", path, nth=4)
        with pytest.raises(StoreCorrupt, match="input/output error"):
            store.browse("q", max_messages=10_000).payloads()
        fault.cancel()
        assert take(store, "q") == TEXTS[:3000]


@pytest.mark.promise(11)
@pytest.mark.parametrize("kind", ["write", "sync", "create"])
def test_promise_11_writing_errors_stop_the_store(compression: str, kind: str) -> None:
    """An error while a compressed file is written: the store refuses commits until reopened."""
    env = SimEnv(direct=False)
    options: dict[str, Any] = {**LARGE, "ltds_compression": compression}
    store = Store.open("/s", env=env, background=False, **options)
    store.create_queue("q", kind="work")
    store.put("q", b"before")
    env.fail(kind, "*.ltds")
    with pytest.raises(StoreFailed):
        put_some(store, 5000)
    with pytest.raises(StoreFailed):
        store.put("q", b"after")
    store.close()
    with Store.open("/s", env=env.crash(), background=False) as store:
        assert take(store, "q") == [b"before"]
        assert ltds_files(store) == []


def test_reading_is_bounded_by_a_block_or_two(compressed: Store) -> None:
    """Pieces of a compressed file are decompressed one after another, not all at once."""
    with compressed.transaction(large=True) as txn:
        for _ in range(20):
            txn.put_many("q", pa.array(TEXTS))  # 3.7 MB with its offsets, so 74 MB in all
    lease = compressed.integration.lease("q", 0, 20 * len(TEXTS))
    reader = PieceReader(compressed.path)
    before = pa.default_memory_pool().bytes_allocated()
    slices = reader._slices(lease.pieces[:1])
    rows = most = 0
    for part in slices:
        rows += part.stop - part.start
        most = max(most, pa.default_memory_pool().bytes_allocated() - before)
    assert rows == 20 * len(TEXTS)
    assert 0 < most <= 3 << 20
    reader.close()
    compressed.integration.end_lease(lease.lease_id)
