"""Batch reads and writes, tables, and what is refused."""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire.spark_graphs.limits import OWN_FILE_BYTES
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.served_store import directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.cases(8, of_file=True), pytest.mark.at_server]

HEADERS = {
    "priority": 7,
    "group": 3,
    "sender": "till-4",
    "correlation_id": "c-1",
    "reply_to": "replies",
    "content_type": "text/plain",
    "expires_at": dt.datetime(2100, 1, 1, tzinfo=dt.UTC),
    "deliver_at": None,
    "attributes": {"colour": "red", "size": "ü"},
}
SCHEMA = (
    "queue string, payload binary, priority int, group int, sender string, correlation_id string,"
    " reply_to string, content_type string, expires_at timestamp, deliver_at timestamp,"
    " attributes map<string,string>"
)


def read(spark: SparkSession, store: Any, **options: Any) -> DataFrame:
    """The queues as a table."""
    return spark.read.format("quire").options(**options).load(store.path)


def test_all_columns_make_the_round_trip(spark: SparkSession, store: Any) -> None:
    """What a batch write puts, a batch read returns, every header included."""
    topic(store, "a", "b")
    store.alter_queue("a", order="priority", timed=True)
    rows = [("a", b"one", *HEADERS.values()), ("b", b"\x00two", *([None] * len(HEADERS)))]
    frame = spark.createDataFrame(rows, SCHEMA)
    frame.coalesce(1).write.format("quire").mode("append").save(store.path)

    found = read(spark, store, subscribe="b,a").orderBy("queue").collect()
    one, two = (row.asDict() for row in found)
    assert (one["queue"], bytes(one["payload"]), one["position"]) == ("a", b"one", 0)
    assert (two["queue"], bytes(two["payload"]), two["position"]) == ("b", b"\x00two", 0)
    expected = {**HEADERS, "expires_at": dt.datetime(2100, 1, 1)}  # noqa: DTZ001
    assert {name: one[name] for name in HEADERS} == expected
    assert {name: two[name] for name in HEADERS} == {
        **dict.fromkeys(HEADERS),
        "priority": 0,
        "group": 0,
        "attributes": {},
    }
    (message,) = store.browse("a/check")
    assert one["id"] == message.id
    assert message.attributes == HEADERS["attributes"]


@pytest.mark.cases(3)
def test_what_a_queue_does_not_obey_is_refused(spark: SparkSession, store: Any) -> None:
    """At the commit, with column and queue, however a row goes: as a block, or in a file."""
    topic(store, "a", "b")
    store.create_queue("work")
    moment = "timestamp '2100-01-01 00:00:00'"

    def write(queue: str, *columns: str, characters: int = 1) -> None:
        frame = spark.range(0, 1, 1, 1).selectExpr(
            f"repeat('x', {characters}) AS payload", *columns
        )
        frame.write.format("quire").mode("append").option("queue", queue).save(store.path)

    refused = {
        "priority": ("7 AS priority", f"{moment} AS expires_at"),
        "deliver_at": (f"{moment} AS deliver_at", "map('quire.group_key', 'g') AS attributes"),
    }
    for name, columns in refused.items():
        for characters in (1, OWN_FILE_BYTES):
            with pytest.raises(Exception, match=f"queue 'a' does not obey .*{name}"):
                write("a", *columns, characters=characters)
    assert store.queue("a").messages == 0
    write(
        "b", "0 AS priority", "map('a', 'b') AS attributes", "cast(null AS timestamp) AS deliver_at"
    )
    write("work", f"{moment} AS deliver_at", characters=OWN_FILE_BYTES)
    assert store.queue("work").timed is True
    assert store.get("work") is None


@pytest.mark.cases(4)
def test_compressed_fragments(spark: SparkSession, store: Any) -> None:
    """Tasks write compressed files, and tasks read them."""
    topic(store, "q")
    frame = spark.range(200_000).selectExpr("concat('number ', id) AS payload")
    options = {"queue": "q", "compression": "zstd"}
    frame.coalesce(1).write.format("quire").mode("append").options(**options).save(store.path)
    (path,) = Path(directory(store), "ltds").iterdir()
    assert path.stat().st_size < 1_500_000  # of 2.5 MB payload and 0.8 MB offsets
    found = read(spark, store, queue="q").selectExpr("cast(payload AS string) AS text")
    assert found.distinct().count() == 200_000
    assert store.admin.verify().ok


def test_ranges_and_projections(spark: SparkSession, store: Any) -> None:
    """Start and end offsets, a selection of columns, fewer columns by option."""
    topic(store, "q")
    put_numbers(store, "q", range(100))
    some = read(
        spark, store, queue="q", startingOffsets='{"q": 15}', endingOffsets='{"q": 35}'
    ).select("position", "payload")
    assert [(row[0], bytes(row[1])) for row in some.orderBy("position").collect()] == [
        (number, b"%d" % number) for number in range(15, 35)
    ]
    narrow = (
        spark.read.format("quire")
        .schema("payload binary, position long")
        .option("queue", "q")
        .load(store.path)
    )
    assert narrow.schema.names == ["payload", "position"]
    assert narrow.count() == 100
    slim = read(spark, store, queue="q", includeHeaders="false")
    assert slim.schema.names == ["queue", "id", "position", "payload", "time"]
    assert slim.count() == 100


def test_words_mean_what_is_there(spark: SparkSession, store: Any) -> None:
    """Consumers commit in any order, and leave gaps; positions and payloads keep together."""
    store.create_queue("q", kind="work")
    put_numbers(store, "q", range(10), at_once=1)
    put_numbers(store, "q", range(10, 30), at_once=20)
    open_yet = store.transaction()
    open_yet.get("q")
    with store.transaction() as txn:
        txn.get_many("q", 4)
    waiting = store.transaction()
    waiting.get_many("q", 15)
    with store.transaction() as txn:
        txn.get_many("q", 5)
    there = [0, *range(5, 20), *range(25, 30)]

    def found(**options: Any) -> list[tuple[int, int]]:
        rows = read(spark, store, queue="q", **options).select("position", "payload").collect()
        return [(position, int(payload)) for position, payload in rows]

    for options in ({}, {"minPartitions": 7}, {"endingOffsets": '{"q": 30}'}):
        assert found(**options) == [(number, number) for number in there]
    assert found(endingOffsets='{"q": 4}') == [(0, 0)]
    assert found(startingOffsets='{"q": 26}') == [(n, n) for n in range(26, 30)]
    lenient = {"startingOffsets": '{"q": 3}', "failOnDataLoss": "false"}
    assert found(**lenient, endingOffsets='{"q": 99}') == [(n, n) for n in there if n >= 3]
    for options in ({"startingOffsets": '{"q": 3}'}, {"endingOffsets": '{"q": 31}'}):
        with pytest.raises(Exception, match="Give earliest and latest") as caught:
            found(**options)
        assert "checkpoint" not in str(caught.value).partition("Traceback")[0]
    waiting.rollback()
    open_yet.rollback()


@pytest.mark.cases(4)
def test_reads_beside_consumers(spark: SparkSession, store: Any) -> None:
    """Each read is of some moment: what it shows is whole, and nobody's taking breaks it."""
    store.create_queue("q", kind="work")
    ended = threading.Event()

    def consume() -> None:
        while not ended.is_set():
            with store.transaction() as txn:
                txn.get_many("q", 3, timeout=0.01)

    def produce() -> None:
        for number in itertools.count():
            if ended.is_set():
                return
            put_numbers(store, "q", range(number * 20, number * 20 + 20), at_once=5)
            while store.queue("q").messages > 10_000 and not ended.is_set():
                ended.wait(0.01)  # where reads are slow
            ended.wait(0.002)

    put_numbers(store, "q", range(-5000, 0), at_once=50)
    threads = [threading.Thread(target=work) for work in (consume, consume, consume, produce)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            rows = read(spark, store, queue="q").select("position", "payload").collect()
            assert all(position == int(payload) + 5000 for position, payload in rows)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_an_empty_queue_is_an_empty_table(spark: SparkSession, store: Any) -> None:
    """No partition at all is no error."""
    topic(store, "q")
    assert read(spark, store, queue="q").count() == 0


def test_large_writes_go_through_files(spark: SparkSession, store: Any) -> None:
    """Each task writes one file for each queue, and reading cuts them into tasks again."""
    topic(store, "a", "b")
    count = 60_000
    frame = spark.range(count).selectExpr(
        "cast(id as string) as payload", "if(id % 3 = 0, 'a', 'b') as queue"
    )
    frame.write.format("quire").mode("append").save(store.path)
    found = read(spark, store, subscribe="a,b", minPartitions="4")
    assert found.rdd.getNumPartitions() >= 4
    rows = (
        found.selectExpr("queue", "cast(cast(payload as string) as long) as number")
        .groupBy("queue")
        .agg({"*": "count", "number": "sum"})
        .collect()
    )
    sums = {row["queue"]: (row["count(1)"], row["sum(number)"]) for row in rows}
    threes = sum(range(0, count, 3))
    assert sums == {
        "a": (count // 3, threes),
        "b": (count * 2 // 3, sum(range(count)) - threes),
    }


def test_order_is_kept_in_each_queue(spark: SparkSession, store: Any) -> None:
    """Rows of one partition keep their order, partitions are put one after another."""
    topic(store, "q")
    frame = spark.range(0, 20_000, 1, 3).selectExpr("cast(id as string) as payload")
    frame.write.format("quire").mode("append").option("queue", "q").save(store.path)
    payloads = store.browse("q/check", max_messages=30_000).payloads()
    assert [int(payload) for payload in payloads] == list(range(20_000))


def test_a_view_is_read_and_written_by_sql(spark: SparkSession, store: Any) -> None:
    """CREATE TEMPORARY VIEW ... USING quire, INSERT and SELECT."""
    topic(store, "q")
    store.alter_queue("q", order="priority")
    options = f"path '{store.path}', queue 'q'"
    spark.sql(f"CREATE TEMPORARY VIEW numbers USING quire OPTIONS ({options})")
    spark.sql("INSERT INTO numbers (payload, priority) VALUES (X'31', 2), (X'32', 1)")
    found = spark.sql("SELECT cast(payload AS string) AS p FROM numbers ORDER BY priority")
    assert [row["p"] for row in found.collect()] == ["2", "1"]
    spark.catalog.dropTempView("numbers")


def test_a_table_needs_its_options_in_each_statement(spark: SparkSession, store: Any) -> None:
    """Spark keeps the options of CREATE TABLE to itself; without them the error says so.

    With options, which would be lost, no table is made.
    """
    topic(store, "q")
    options = f"path = '{store.path}', queue = 'q'"
    with pytest.raises(Exception, match=r"CREATE TABLE has option 'path'.* TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE lasting USING quire OPTIONS ({options})")
    spark.sql("CREATE TABLE lasting USING quire")
    try:
        with pytest.raises(Exception, match="WITH"):
            spark.sql("SELECT * FROM lasting").collect()
        assert spark.sql(f"SELECT * FROM lasting WITH ({options})").count() == 0
    finally:
        spark.sql("DROP TABLE lasting")


def test_a_repeated_write_with_the_same_version_writes_nothing(
    spark: SparkSession, store: Any
) -> None:
    """txnAppId and txnVersion make a batch write repeatable."""
    topic(store, "q")

    def write(numbers: range, **options: str) -> None:
        frame = spark.createDataFrame([(b"%d" % n,) for n in numbers], "payload binary")
        frame.write.format("quire").mode("append").options(queue="q", **options).save(store.path)

    write(range(10), txnAppId="nightly", txnVersion="1")
    write(range(10), txnAppId="nightly", txnVersion="1")
    assert numbers_in(store, "q") == Counter(range(10))
    write(range(10, 20), txnAppId="nightly", txnVersion="2")
    assert numbers_in(store, "q") == Counter(range(20))
    write(range(10))  # the canary: without them a repetition is a second write
    write(range(10))
    assert numbers_in(store, "q") != Counter(range(20))


@pytest.mark.parametrize(
    ("columns", "options", "advice"),
    [
        ("queue string, body binary", {}, "column 'body' is no part of a message"),
        ("queue string", {}, "column 'payload' .* is missing"),
        ("payload int", {"queue": "q"}, "'payload' is int and must be binary or string"),
        ("payload string", {}, "name the queue"),
        ("payload string, priority string", {"queue": "q"}, "'priority' is string and must be int"),
        ("payload string", {"queue": "q", "colour": "red"}, "unknown option 'colour'"),
        ("payload string", {"queue": "q", "txnAppId": "x"}, "'txnVersion' together"),
        ("payload string", {"queue": "nowhere"}, "no queue 'nowhere'; create it first"),
    ],
)
def test_wrong_writes_say_what_to_change(
    spark: SparkSession, store: Any, columns: str, options: dict[str, str], advice: str
) -> None:
    """Schema and options are checked before a task runs, the queue at the commit."""
    topic(store, "q")
    values: dict[str, Any] = {"int": None, "binary": b"1", "string": "1"}
    row = tuple(values[column.split()[1]] for column in columns.split(", "))
    frame = spark.createDataFrame([row], columns)
    with pytest.raises(Exception, match=advice):
        frame.write.format("quire").mode("append").options(**options).save(store.path)
    assert store.integration.positions("q") == (0, 0)


def test_null_payloads_and_queues_are_refused(spark: SparkSession, store: Any) -> None:
    """They fail the write, and nothing of it is there."""
    topic(store, "q")
    for row, advice in (((None, "q"), "'payload' is null"), ((b"1", None), "'queue' is null")):
        frame = spark.createDataFrame([row, (b"2", "q")], "payload binary, queue string")
        with pytest.raises(Exception, match=advice):
            frame.write.format("quire").mode("append").save(store.path)
    assert store.integration.positions("q") == (0, 0)


def test_overwriting_is_refused(spark: SparkSession, store: Any) -> None:
    """Messages that were put cannot be replaced."""
    topic(store, "q")
    frame = spark.createDataFrame([(b"1",)], "payload binary")
    with pytest.raises(Exception, match="only appends"):
        frame.write.format("quire").mode("overwrite").option("queue", "q").save(store.path)


@pytest.mark.parametrize(
    ("schema", "advice"),
    [
        ("payload binary, colour string", "has no column 'colour'"),
        ("payload string", "'payload' is string and must be binary"),
        ("payload binary not null", "must not be declared NOT NULL"),
    ],
)
def test_wrong_source_schemas_say_what_to_change(
    spark: SparkSession, store: Any, schema: str, advice: str
) -> None:
    """A user's schema selects columns, it does not convert them."""
    topic(store, "q")
    with pytest.raises(Exception, match=advice):
        spark.read.format("quire").schema(schema).option("queue", "q").load(store.path).count()


def test_a_missing_queue_or_store_says_what_to_do(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """Nothing is created by looking."""
    with pytest.raises(Exception, match="no queue 'q'; create it first"):
        read(spark, store, queue="q").count()
    missing = tmp_path / "missing"
    with pytest.raises(Exception, match="no store"):
        spark.read.format("quire").option("queue", "q").load(str(missing)).count()
    assert not missing.exists()


def test_a_range_that_is_gone_raises(spark: SparkSession, store: Any) -> None:
    """Also in a batch read; failOnDataLoss=false takes what is there."""
    topic(store, "q")
    put_numbers(store, "q", range(20))
    with store.transaction() as txn:
        txn.read_to("q/check", 10)
    put_numbers(store, "q", range(20, 30))
    start = {"queue": "q", "startingOffsets": '{"q": 5}'}
    with pytest.raises(Exception, match="messages 5 to 30 are asked for"):
        read(spark, store, **start).count()
    assert read(spark, store, **start, failOnDataLoss="false").count() == 20
