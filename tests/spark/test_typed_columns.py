"""Typed queues in Spark: columns in and out, and only what is asked for.

Most of it needs no JVM: the data source is called as Spark's workers call it.
"""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_quire import DefaultSource
from quire.env.os_env import OsEnv
from quire.errors import InvalidArgument, StoreCorrupt
from quire.ltds import list_ids
from quire.reports.info import Piece
from quire.spark_graphs.reading.partition import QueuePiece, within
from quire.spark_graphs.source import QuireDataSource
from tests.spark.served_store import directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.at_server

WORDS = (
    "id bigint not null, amount double, name string, price decimal(9, 2), raw binary, day date, "
    "at timestamp, local timestamp_ntz, tags array<string>, sizes map<string, int>, "
    "place struct<x: int, y: string>, is_new boolean, small tinyint"
)
ROW: dict[str, Any] = {
    "id": 7,
    "amount": 2.5,
    "name": "Grüße",
    "price": Decimal("12.50"),
    "raw": b"\0\xff",
    "day": dt.date(2024, 2, 29),
    "at": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "local": dt.datetime(2024, 2, 29, 13, tzinfo=dt.UTC).replace(tzinfo=None),
    "tags": ["a", None],
    "sizes": [("s", 1)],
    "place": {"x": 3, "y": None},
    "is_new": True,
    "small": -5,
}


def load(store: Any, queue: str, schema: StructType | None = None, **options: Any) -> pa.Table:
    """A batch read, as Spark has it done."""
    source = QuireDataSource({"path": store.path, "queue": queue, **options})
    wanted = schema or source.schema()
    reader = source.reader(wanted)
    batches: list[Any] = []
    for partition in reader.partitions():
        batches += reader.read(partition)
    arrow = to_arrow_schema(wanted, timezone="UTC")
    assert all(batch.schema.equals(arrow) for batch in batches)
    return pa.Table.from_batches(batches, schema=arrow)


def save(store: Any, *tasks: list[pa.RecordBatch], **options: Any) -> None:
    """A batch write of so many tasks."""
    schema = from_arrow_schema(tasks[0][0].schema, prefer_timestamp_ntz=True)
    source = QuireDataSource({"path": store.path, **options})
    writer: Any = source.writer(schema, overwrite=False)
    writer.commit([writer.write(iter(batches)) for batches in tasks])


def test_all_types_go_both_ways(store: Any) -> None:
    """Read from one queue and written to another, with the header: the same rows."""
    store.create_queue("in", "work", schema=WORDS, order="priority")
    store.create_queue("out", "work", schema=WORDS, order="priority")
    store.put("in", ROW, priority=3, attributes={"a": "b"})
    store.put("in", {"id": 8})
    table = load(store, "in", columns=f"{', '.join(ROW)}, _meta")
    assert table.drop_columns("_meta").to_pylist()[0] == ROW
    assert load(store, "in").column_names == list(ROW)
    save(store, table.to_batches(), queue="out")
    first, second = store.get_many("out")
    assert first.value == ROW
    assert (first.priority, first.attributes) == (3, {"a": "b"})
    assert second.value == {**dict.fromkeys(ROW), "id": 8}


def ids(table: pa.Table) -> list[int]:
    """Of the rows."""
    found: list[int] = table.column("id").to_pylist()
    return found


@pytest.mark.parametrize("place", ["journal", "data file", "large file"])
def test_what_is_asked_for_is_read(store: Any, place: str) -> None:
    """By a schema, by `columns`, by `where`, wherever the rows are."""
    store.create_queue("q", "work", schema="id bigint, name string, day date")
    days = pa.array(np.arange(30_000) // 10_000 + 19_000, pa.int32()).cast(pa.date32())
    table = pa.table({"id": np.arange(30_000), "name": ["x" * 90] * 30_000, "day": days})
    if place == "large file":
        save(
            store, table.slice(0, 15_000).to_batches(), table.slice(15_000).to_batches(), queue="q"
        )
    elif place == "data file":
        store.put_many("q", table)
    else:
        for start in range(0, 30_000, 1000):
            store.put_many("q", table.slice(start, 1000))
    meta = StructType([StructField("position", LongType())])
    schema = StructType([StructField("name", StringType()), StructField("_meta", meta)])
    some = load(store, "q", schema)
    assert some.slice(29_999).to_pylist() == [{"name": "x" * 90, "_meta": {"position": 29_999}}]
    where = "day = date '2022-01-09' and id < 10003 or _meta.position >= 29998"
    found = load(store, "q", columns="id, _meta.id", where=where)
    assert ids(found) == [10_000, 10_001, 10_002, 29_998, 29_999]
    own = [each["id"] for each in found.column("_meta").to_pylist()]
    assert own == [each + 1 for each in ids(found)]
    assert ids(load(store, "q", where="id < 0 or name is null")) == []
    assert ids(load(store, "q", columns="id", where="_meta.position = 77")) == [77]


def test_blocks_are_skipped_unread(store: Any) -> None:
    """Those whose columns do not reach as far: damage in their rows is not met, in others it is."""
    store.create_queue("q", "work", schema="id bigint, name string")
    table = pa.table({"id": np.arange(200_000), "name": ["x" * 90] * 200_000})
    save(store, table.to_batches(max_chunksize=10_000), queue="q")
    [ltds_id] = list_ids(OsEnv(), f"{directory(store)}/ltds")
    path = Path(directory(store), "ltds", f"{ltds_id:016x}.ltds")
    data = bytearray(path.read_bytes())
    data[100_000] ^= 1
    path.write_bytes(data)
    assert ids(load(store, "q", where="id >= 199000")) == list(range(199_000, 200_000))
    with pytest.raises(Exception, match="checksum"):
        load(store, "q", where="id >= 0")
    data[100_000] ^= 1
    path.write_bytes(data)


def test_only_its_columns_are_read(store: Any) -> None:
    """Damage in others is not met; in the column that is asked for it is."""
    store.create_queue("q", "work", schema="id bigint, name string, note string")
    many = 50_000
    table = pa.table({"id": np.arange(many), "name": ["x" * 90] * many, "note": ["y" * 90] * many})
    save(store, table.to_batches(max_chunksize=10_000), queue="q")
    [ltds_id] = list_ids(OsEnv(), f"{directory(store)}/ltds")
    path = Path(directory(store), "ltds", f"{ltds_id:016x}.ltds")
    data = path.read_bytes()
    for what, column in ((b"xxxx", "id"), (np.arange(777, 780).tobytes(), "name")):
        place = data.rindex(what)  # in the rows, not in the statistics
        path.write_bytes(data[:place] + b"?" + data[place + 1 :])
        found = load(store, "q", columns=column).column(column)
        assert found.to_pylist() == table.column(column).to_pylist()
        other = "name" if column == "id" else "id"
        where = f"{other} is not null"
        asked: list[dict[str, Any]] = [{"columns": other}, {}, {"columns": column, "where": where}]
        for options in asked:
            with pytest.raises(StoreCorrupt, match="checksum"):
                load(store, "q", **options)
    path.write_bytes(data)


def test_columns_and_conditions_of_bytes(store: Any) -> None:
    """Messages of bytes have the columns of their header; positions narrow what is read."""
    store.create_queue("q", "work")
    store.put_many("q", [b"%d" % each for each in range(1000)])
    store.put("q", b"last", sender="me")
    found = load(store, "q", columns="payload, position", where="position >= 998")
    assert found.column_names == ["payload", "position"]
    assert found.column("payload").to_pylist() == [b"998", b"999", b"last"]
    assert load(store, "q", where="sender = 'me'").num_rows == 1
    source = QuireDataSource({"path": store.path, "queue": "q", "where": "position >= 998"})
    planned: Any = source.reader(source.schema()).partitions()
    pieces = [piece for each in planned for piece in each.pieces]
    assert sum(item.piece.stop - item.piece.start for item in pieces) == 3


BAD_READS: dict[str, tuple[dict[str, Any], str]] = {
    "columns": ({"columns": "id, other"}, "no column 'other'"),
    "field": ({"columns": "_meta.colour"}, "no field 'colour'"),
    "twice": ({"columns": "id, id"}, "twice"),
    "none": ({"columns": ""}, "no column"),
    "names": ({"columns": "a b"}, "commas"),
    "where": ({"where": "other = 1"}, "no column 'other'"),
    "condition": ({"where": "id ="}, "cannot be read"),
    "value": ({"where": "id = 'x'"}, "'id'"),
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("bad", BAD_READS)
def test_what_cannot_be_had_is_refused(store: Any, bad: str) -> None:
    """When the read is planned, with what there is."""
    store.create_queue("q", "work", schema="id bigint")
    options, why = BAD_READS[bad]
    with pytest.raises(InvalidArgument, match=why):
        load(store, "q", **options)


@pytest.mark.promise(13)
def test_wrong_schemas_are_refused(store: Any) -> None:
    """Types, columns that are not there, queues of different columns in one read."""
    store.create_queue("q", "work", schema="id bigint not null, name string")
    store.create_queue("r", "work", schema="id bigint")
    inner = StructType([StructField("x", IntegerType())])
    for field, why in (
        (StructField("id", StringType()), "'id' is bigint"),
        (StructField("other", IntegerType()), "no column 'other'"),
        (StructField("name", StringType(), nullable=False), "'name' may be null"),
        (StructField("_meta", inner), "no field 'x'"),
        (StructField("_meta", LongType()), "is a struct"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            load(store, "q", StructType([field]))
    both = QuireDataSource({"path": store.path, "subscribe": "q,r"})
    with pytest.raises(InvalidArgument, match="a source each"):
        both.schema()
    pattern = QuireDataSource({"path": store.path, "subscribePattern": "q"})
    with pytest.raises(InvalidArgument, match="name typed queues"):
        pattern.reader(pattern.schema()).partitions()


BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"id": ["a"]}, "'id' is of type string"),
    "unknown": ({"id": [1], "other": [1]}, "'other'"),
    "missing": ({"name": ["x"]}, "'id' is missing"),
    "null": ({"id": [1, None]}, "'id' has 1 nulls"),
}


@pytest.mark.promise(13)
@pytest.mark.parametrize("bad", BAD_ROWS)
def test_rows_that_do_not_fit_are_refused(store: Any, bad: str) -> None:
    """By the column's name; nothing is put, and no file stays."""
    store.create_queue("q", "work", schema="id bigint not null, name string")
    columns, why = BAD_ROWS[bad]
    with pytest.raises(InvalidArgument, match=why):
        save(store, [pa.record_batch(columns)], queue="q")
    assert store.queue("q").messages == 0
    assert list_ids(OsEnv(), f"{directory(store)}/ltds") == []


def test_rows_go_where_their_column_says(store: Any) -> None:
    """Of several typed queues, in their order, and in one commit."""
    for name in ("even", "odd"):
        store.create_queue(name, "work", schema="id bigint")
    numbers = np.arange(1000)
    queues = np.where(numbers % 2 == 0, "even", "odd").tolist()
    batch = pa.record_batch({"id": numbers, "queue": queues})
    save(store, [batch.slice(0, 500), batch.slice(500)])
    assert len({message.time for name in ("even", "odd") for message in store.browse(name)}) == 1
    assert ids(store.get_many("odd").to_arrow()) == list(range(1, 1000, 2))
    with pytest.raises(InvalidArgument, match="no typed queue"):
        save(store, [pa.record_batch({"id": [1], "queue": ["gone"]})])


def test_a_column_that_came_meanwhile(store: Any) -> None:
    """A read that was planned before reads the columns that it asked for."""
    store.create_queue("q", "work", schema="id bigint")
    store.put("q", {"id": 1})
    source = QuireDataSource({"path": store.path, "queue": "q"})
    reader = source.reader(source.schema())
    store.alter_queue("q", schema="id bigint, more int")
    store.put("q", {"id": 2, "more": 3})
    [partition] = reader.partitions()
    [batch] = list[Any](reader.read(partition))
    assert batch.to_pydict() == {"id": [1, 2]}
    assert load(store, "q").column("more").to_pylist() == [None, 3]


@pytest.mark.parametrize("source_class", [QuireDataSource, DefaultSource])
def test_a_stream_that_was_loaded_before_a_column_came(store: Any, source_class: Any) -> None:
    """It would leave the column out and let its messages go: it is refused, and released nothing.

    So is a stream that runs; one that names its columns goes on with these.
    """
    store.create_queue("q", kind="topic", schema="id bigint")
    given = {"path": store.path, "queue": "q", "subscription": "s"}
    given["startingOffsets"] = "earliest"
    loaded, running, named = (source_class(given) for _ in range(3))
    schema = loaded.schema()
    running.schema()
    named.options = {**given, "columns": "id", "subscription": "t"}
    named.schema()
    loaded, again, named = (pickle.loads(pickle.dumps(each)) for each in (loaded, running, named))
    reader = again.streamReader(schema)
    start = reader.initialOffset()
    by_name = named.streamReader(schema)
    begin = by_name.initialOffset()
    store.alter_queue("q", schema="id bigint, more int")
    store.put("q", {"id": 2, "more": 3})
    for stale in (reader, loaded.streamReader(schema)):
        with pytest.raises(InvalidArgument, match=r"held id bigint when this .* load it again"):
            stale.latestOffset(start, reader.getDefaultReadLimit())
        stale.stop()
    assert [info.position for info in store.subscriptions("q") if info.name == "s"] == [0]
    end = by_name.latestOffset(begin, by_name.getDefaultReadLimit())
    [partition] = by_name.partitions(begin, end)
    assert [each.to_pydict() for each in by_name.read(partition)] == [{"id": [2]}]
    by_name.stop()
    anew = source_class(given)
    fresh = anew.streamReader(anew.schema())
    end = fresh.latestOffset(start, fresh.getDefaultReadLimit())
    [partition] = fresh.partitions(start, end)
    assert [each.to_pydict() for each in fresh.read(partition)] == [{"id": [2], "more": [3]}]
    fresh.stop()


def test_a_stream_with_columns_of_the_users_own(store: Any) -> None:
    """By `.schema(...)`: Spark does not ask for the queue's, and a new one is not the query's."""
    store.create_queue("q", kind="topic", schema="id bigint, more int")
    given = {"path": store.path, "queue": "q", "subscription": "s"}
    reader: Any = QuireDataSource(given).streamReader(StructType([StructField("id", LongType())]))
    start = reader.initialOffset()
    store.alter_queue("q", schema="id bigint, more int, note string")
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    reader.stop()


def test_what_goes_to_tasks_can_be_pickled(store: Any) -> None:
    """A stream's reader with a condition of every type, and a sink with its queue's schema."""
    store.create_queue(
        "q", kind="topic", schema="id bigint, day date, at timestamp, price decimal(9, 2)"
    )
    store.subscribe("q", "s")
    store.put_many("q", [{"id": each} for each in range(10)])
    where = (
        "_meta.position > 4 and (day is null or day < date '2024-01-01' or price > 1.5"
        " or at > timestamp '2024-01-01 00:00:00')"
    )
    given = {"path": store.path, "queue": "q", "subscription": "s", "columns": "id"}
    source = QuireDataSource({**given, "startingOffsets": "earliest", "where": where})
    planner: Any = source.streamReader(source.schema())
    task = pickle.loads(pickle.dumps(planner))
    start = planner.initialOffset()
    end = planner.latestOffset(start, planner.getDefaultReadLimit())
    found = [batch for part in planner.partitions(start, end) for batch in task.read(part)]
    assert ids(pa.Table.from_batches(found)) == [5, 6, 7, 8, 9]
    planner.stop()
    sink: Any = QuireDataSource({"path": store.path, "queue": "q"}).writer(source.schema(), False)
    copy = pickle.loads(pickle.dumps(sink))
    sink.commit([copy.write(iter([pa.record_batch({"id": [77]})]))])
    assert store.queue("q").messages == 11


@pytest.mark.spark
def test_a_stream_of_rows(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """From a typed topic to a typed queue, with columns and a condition, and a column that came."""
    store.create_queue("in", kind="topic", schema="id bigint, name string")
    store.create_queue("out", "work", schema="id bigint")

    def run() -> None:
        rows = (
            spark.readStream.format("quire")
            .option("queue", "in")
            .option("subscription", "s")
            .option("startingOffsets", "earliest")
            .option("columns", "id")
            .option("where", "name = 'yes' and _meta.position >= 100")
            .load(store.path)
        )
        query = (
            rows.writeStream.format("quire")
            .option("queue", "out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(store.path)
        )
        query.awaitTermination()

    table = pa.table({"id": np.arange(1000), "name": ["no", "yes"] * 500})
    store.subscribe("in", "s")
    store.subscribe("in", "audit")  # without it the topic would let go of what the query has read
    store.put_many("in", table)
    run()
    assert ids(store.get_many("out").to_arrow()) == list(range(101, 1000, 2))
    store.alter_queue("in", schema="id bigint, name string, more int")
    store.put("in", {"id": 5000, "name": "yes", "more": 1})
    run()
    assert [message.value for message in store.get_many("out")] == [{"id": 5000}]
    loaded = spark.read.format("quire").option("queue", "in").load(store.path)
    assert loaded.where("more = 1").collect()[0].asDict() == {"id": 5000, "name": "yes", "more": 1}
    with pytest.raises(Exception, match="no column 'other'"):
        spark.read.format("quire").option("queue", "in").option("columns", "other").load(store.path)


def test_pieces_are_narrowed() -> None:
    """To the positions that a condition can be true of."""
    piece = Piece("data", 0, 1000, 1, 10, 20, 1, 1, 100)  # positions 100 to 109
    item = QueuePiece("q", piece, 1000)
    for low, high, expected in [
        (float("-inf"), float("inf"), (10, 20, 100)),
        (105, float("inf"), (15, 20, 105)),
        (float("-inf"), 103, (10, 14, 100)),
        (104.5, 106.5, (15, 17, 105)),
    ]:
        [found] = within([item], low, high)
        assert (found.piece.start, found.piece.stop, found.piece.first_position) == expected
    assert within([item], 110, float("inf")) == within([item], 0, 99) == []
