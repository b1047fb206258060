"""How pieces become tasks, and rows become batches and fragments. No Spark session is needed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import quire
from quire.env import OsEnv
from quire.errors import InvalidArgument, PositionLost
from quire.ltds import LtdsReader, list_ids
from quire.reports.info import Piece
from quire.rows.open_block import verified_block
from quire.spark_graphs import connection
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.limits import INLINE_BYTES
from quire.spark_graphs.reading.message_batch import read_partition
from quire.spark_graphs.reading.partition import QueuePiece, QuirePartition, partitions
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.writing.routing import routed
from quire.testing import SimEnv
from tests.spark.numbered_queues import put_numbers

pytestmark = pytest.mark.at_server


STORE_ID = 77


def pieces_of(sizes: list[tuple[int, int]]) -> list[QueuePiece]:
    """Pieces of so many messages and bytes, one after another."""
    found, position = [], 0
    for count, length in sizes:
        piece = Piece("data", 0, length, 0, 3, 3 + count, 1000, 0, position)
        found.append(QueuePiece.of("q", piece))
        position += count
    return found


SIZES = st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 100 << 20)), max_size=20)


@given(sizes=SIZES, minimum=st.none() | st.integers(1, 20), cores=st.integers(1, 16))
def test_every_message_is_in_one_task_in_order(
    sizes: list[tuple[int, int]], minimum: int | None, cores: int
) -> None:
    """Cut pieces follow each other in positions and places (YP1, YP2)."""
    made = partitions(pieces_of(sizes), minimum, cores)
    assert all(partition.pieces for partition in made)
    found = [item.piece for partition in made for item in partition.pieces]
    assert sum(piece.stop - piece.start for piece in found) == sum(count for count, _ in sizes)
    assert all(piece.stop > piece.start for piece in found)
    for one, two in pairwise(found):
        assert two.first_position == one.first_position + one.stop - one.start
        assert two.first_id == 1000
        assert two.start in (3, one.stop)
    if minimum and sum(count for count, _ in sizes) >= 8 * minimum:
        assert len(made) >= 1


def test_large_reads_are_cut_and_small_ones_are_not() -> None:
    """By bytes, with work for every core."""
    assert len(partitions(pieces_of([(10, 1000)] * 50), None, 8)) == 1
    assert len(partitions(pieces_of([(1_000_000, 400 << 20)]), None, 2)) == 2
    assert len(partitions(pieces_of([(1_000_000, 700 << 20)]), None, 2)) == 4
    assert len(partitions(pieces_of([(1000, 1 << 20)] * 16), None, 2)) == 2
    assert len(partitions(pieces_of([(1000, 1 << 10)]), 5, 2)) == 5


def test_pieces_that_were_moved_are_found_again(store_path: str) -> None:
    """A place that holds something else by now is looked up once more, and is no wrong message."""
    with quire.open(store_path) as store:
        store.create_queue("q", kind="topic")
        store.subscribe("q", "check", start="earliest")
        put_numbers(store, "q", range(100))
        pieces = store.integration.lease("q", 20, 90).pieces
        wrong = [*pieces[:3], replace(pieces[3], checksum=1), *pieces[4:]]
        partition = QuirePartition([QueuePiece.of("q", piece) for piece in wrong])
        batches = list(read_partition(store_path, partition, source_schema()))
        table = pa.Table.from_batches(batches)
        assert table.column("position").to_pylist() == list(range(20, 90))
        assert table.column("payload").to_pylist() == [b"%d" % n for n in range(20, 90)]

        with store.transaction() as txn:
            txn.read_to("q/check", 60)
        with pytest.raises(PositionLost):
            list(read_partition(store_path, partition, source_schema()))
    connection.forget(store_path)


def test_rows_are_routed_by_their_queue() -> None:
    """Rows of a queue keep their order, and lose the columns that the store sets itself."""
    batch = pa.record_batch(
        {
            "queue": ["b", "a", "b", "a"],
            "payload": [b"1", b"2", b"3", b"4"],
            "id": [9, 9, 9, 9],
            "priority": pa.array([1, 2, 3, 4], pa.int32()),
        }
    )
    messages, shares = routed(batch, None)
    assert messages.to_pydict() == {
        "payload": [b"1", b"3", b"2", b"4"],
        "priority": [1, 3, 2, 4],
    }
    assert list(shares.items()) == [("b", 2), ("a", 2)]
    messages, shares = routed(batch, "all")
    assert messages.to_pydict() == {
        "payload": [b"1", b"2", b"3", b"4"],
        "priority": [1, 2, 3, 4],
    }
    assert shares == {"all": 4}
    assert routed(batch.slice(0, 0), None).shares == routed(batch.slice(0, 0), "all").shares == {}


@pytest.mark.parametrize("column", ["queue", "payload"])
def test_nulls_are_refused(column: str) -> None:
    """A message needs a queue and a payload."""
    values = {"queue": ["a"], "payload": ["x"], column: pa.array([None], pa.string())}
    with pytest.raises(InvalidArgument, match=f"'{column}' is null in 1 rows"):
        routed(pa.record_batch(values), None)


def payloads(count: int, size: int) -> pa.RecordBatch:
    """Messages of one size."""
    return pa.record_batch({"payload": [bytes(size)] * count})


@pytest.fixture
def writer(tmp_path: Path) -> FragmentWriter:
    """A writer into an empty directory."""
    (tmp_path / "ltds").mkdir()
    return FragmentWriter(str(tmp_path), STORE_ID)


def test_small_fragments_travel_in_the_message(writer: FragmentWriter, tmp_path: Path) -> None:
    """Up to a limit for the whole task, small queues first."""
    writer.add(payloads(100, INLINE_BYTES // 100), {"large": 100})
    writer.add(payloads(10, 100), {"small": 10})
    writer.add(payloads(5, 100), {"small": 5})
    found = {fragment.queue: fragment for fragment in writer.finish()}
    assert found["small"].block is not None
    assert verified_block(found["small"].block, "test").count == found["small"].messages == 15
    ltds_id = found["large"].ltds_id
    assert ltds_id is not None
    assert list_ids(OsEnv(), str(tmp_path / "ltds")) == [ltds_id]
    with LtdsReader(OsEnv(), str(tmp_path / "ltds"), ltds_id, STORE_ID) as file:
        assert file.count == found["large"].messages == 100


@pytest.mark.parametrize(("partition", "is_inline"), [(0, True), (255, True), (256, False)])
def test_tasks_behind_the_first_ones_send_less(
    tmp_path: Path, partition: int, is_inline: bool
) -> None:
    """A thousand small messages are in no file, unless there are hundreds of tasks."""
    (tmp_path / "ltds").mkdir()
    writer = FragmentWriter(str(tmp_path), STORE_ID, partition=partition)
    writer.add(payloads(1000, 100), {"q": 1000})
    (found,) = writer.finish()
    assert (found.block is not None) == is_inline == (found.ltds_id is None)
    assert len(list_ids(OsEnv(), str(tmp_path / "ltds"))) == (not is_inline)


def test_large_fragments_are_flushed_while_they_grow(
    writer: FragmentWriter, tmp_path: Path
) -> None:
    """One file for each queue, in as many pieces as it takes."""
    for _ in range(12):
        writer.add(payloads(1000, 1000), {"q": 1000})
        writer.add(payloads(10, 10), {"r": 10})
    found = {fragment.queue: fragment.messages for fragment in writer.finish()}
    assert found == {"q": 12_000, "r": 120}
    assert len(list_ids(OsEnv(), str(tmp_path / "ltds"))) == 1


def test_fragments_are_durable_when_they_are_named() -> None:
    """Files of several queues survive a power failure, with one sync of their directory (YF2)."""
    env = SimEnv()
    for path in ("/s", "/s/ltds"):
        env.make_directory(path)
        env.sync_directory(path.rpartition("/")[0] or "/")
    before = env.calls.count("sync_directory")
    writer = FragmentWriter("/s", STORE_ID, env)
    for queue in "abc":
        writer.add(payloads(400, 1000), {queue: 400})
    found = writer.finish()
    assert env.calls.count("sync_directory") == before + 1
    after = env.crash(outcome="lost")
    for fragment in found:
        assert fragment.ltds_id is not None
        with LtdsReader(after, "/s/ltds", fragment.ltds_id, STORE_ID) as file:
            blocks = [file.block_at(number)[0] for number in range(*(fragment.blocks or ()))]
            assert sum(block.count for block in blocks) == fragment.messages == 400


def test_an_aborted_attempt_leaves_no_file(writer: FragmentWriter, tmp_path: Path) -> None:
    """Whether its files were finished or not."""
    for _ in range(5):
        writer.add(payloads(1000, 1000), {"q": 1000})
    writer.abort()
    assert list_ids(OsEnv(), str(tmp_path / "ltds")) == []
