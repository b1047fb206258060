"""The option `where` chooses the rows that Spark's own filter would."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

import quire
from quire.definitions.row_schema import schema_of_words
from quire.errors import InvalidArgument
from quire.limits import STATISTICS_ROWS
from quire.rows.row_block import reaches_of
from quire.rows.row_builder import RowBuilder
from quire.rows.row_filter import chosen
from quire.rows.row_input import rows_of
from quire.spark_graphs import connection
from quire.spark_graphs.reading import spark_condition as conditions
from quire.spark_graphs.reading.spark_condition import spark_condition, zone_named
from quire.spark_graphs.source import QuireDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN = math.nan
WORDS = "id bigint, amount double, at timestamp, local timestamp_ntz, small float"
TYPES = {field.name: field.type for field in schema_of_words(WORDS)}
# Hours of the day on which clocks go back, and of the one on which they go forward, in New York.
BACK, FORWARD = dt.datetime(2024, 11, 3, tzinfo=dt.UTC), dt.datetime(2024, 3, 10, tzinfo=dt.UTC)
ROWS: list[dict[str, Any]] = [
    {
        "id": each,
        "amount": [NAN, float(each), -math.inf, math.inf][each % 4],
        "at": (BACK if each % 2 else FORWARD) + dt.timedelta(minutes=30 * each),
        "local": ((BACK if each % 2 else FORWARD) + dt.timedelta(minutes=30 * each)).replace(
            tzinfo=None
        ),
        "small": [1.5, NAN, None][each % 3],
    }
    for each in range(40)
] + [{"id": 40}]
WHERE = [
    "amount > 5", "amount >= 5", "amount < 5", "amount <= 5", "amount = 5", "amount <> 5",
    "not amount > 5", "not amount <= 5", "not (amount >= 5 or id = 3)", "5 < amount",
    "amount between 1 and 1e300", "amount not between 1 and 5", "amount not in (1, 5)",
    "small > 1", "small <= 1.5", "not small < 2", "ID = 3", "Amount > 5 and `iD` < 9",
    "at > timestamp '2024-11-03 01:30:00'", "at >= timestamp '2024-03-10 02:30:00'",
    "at = timestamp '2024-11-03 06:30:00Z'", "at < timestamp '2024-11-03 08:00:00+03:00'",
    "local >= timestamp '2024-11-03 01:30:00'", "local < timestamp '2024-11-03 06:30:00'",
    "timestamp '2024-03-10 07:00:00' > at",
    "at between timestamp '2024-03-10 01:00:00' and timestamp '2024-03-10 04:00:00'",
]  # fmt: skip
ZONES = ["America/New_York", "Asia/Kolkata", "UTC", "+05:30", "GMT-3"]


@pytest.fixture
def filled(store_path: str) -> Iterator[Any]:
    """A store with the rows, in a topic."""
    with quire.open(store_path) as opened:
        opened.create_queue("q", kind="topic", schema=WORDS)
        opened.subscribe("q", "s", start="earliest")
        opened.put_many("q", ROWS)
        yield opened
        connection.forget(store_path)


class Session:
    """A task's context with these settings."""

    settings: ClassVar[dict[str, str]] = {}

    @classmethod
    def get(cls) -> type[Session]:
        return cls

    @classmethod
    def getLocalProperty(cls, name: str) -> str | None:  # noqa: N802
        return cls.settings.get(name)


@pytest.mark.spark
def test_it_chooses_what_a_filter_of_spark_chooses(
    spark: SparkSession, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For NaN, infinities, nulls, names in another case, and hours that come twice or never."""
    rows = spark.read.format("quire").option("queue", "q").load(filled.path).cache()
    [own] = rows_of(WORDS, ROWS)
    monkeypatch.setattr(conditions, "TaskContext", Session)
    try:
        for zone in ZONES:
            spark.conf.set("spark.sql.session.timeZone", zone)
            monkeypatch.setattr(Session, "settings", {"spark.sql.session.timeZone": zone})
            expected = rows.selectExpr("id", *WHERE).collect()
            for number, where in enumerate(WHERE, 1):
                condition = spark_condition(where, TYPES).in_session()
                found = chosen(condition, own.batch.column).to_pylist()
                by_id = dict(zip(own.batch.column("id").to_pylist(), found, strict=True))
                assert by_id == {row[0]: bool(row[number]) for row in expected}, (zone, where)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows.unpersist()


@pytest.mark.spark
def test_tasks_have_what_the_session_says(spark: SparkSession, filled: Any) -> None:
    """Its zone, and with `spark.sql.caseSensitive` a name in another case is none."""
    where = "At < timestamp '2024-03-09 20:30:00' and Amount >= -1e3"
    rows = spark.read.format("quire").options(queue="q", columns="ID", where=where)
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        assert rows.load(filled.path).collect() == [(0,)]
        spark.conf.set("spark.sql.caseSensitive", "true")
        with pytest.raises(Exception, match=r"no column '.*', as spark.* is true; there is 'a"):
            rows.load(filled.path).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("zone", "where", "expected"),
    [
        # Of an hour that comes twice the first one, of one that is left out the next one.
        ("America/New_York", "at = timestamp '2024-11-03 01:30:00'", "2024-11-03T05:30"),
        ("America/New_York", "at = timestamp '2024-03-10 02:30:00'", "2024-03-10T07:30"),
        ("-05:00", "at = timestamp '2024-11-03 01:30:00'", "2024-11-03T06:30"),
        ("UTC", "at = timestamp '2024-11-03 01:30:00'", "2024-11-03T01:30"),
        ("America/New_York", "at = timestamp '2024-11-03 06:30:00Z'", "2024-11-03T06:30"),
        ("America/New_York", "local = timestamp '2024-11-03 01:30:00'", "2024-11-03T01:30"),
    ],
)
def test_a_time_is_of_the_sessions_zone(
    zone: str, where: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it names one; without a JVM, as tasks have the setting."""
    monkeypatch.setattr(conditions, "TaskContext", Session)
    monkeypatch.setattr(Session, "settings", {"spark.sql.session.timeZone": zone})
    found: Any = spark_condition(where, TYPES).in_session()
    assert found.scalar.as_py().replace(tzinfo=None).isoformat("T", "minutes") == expected


def test_a_column_without_a_zone_has_no_instants() -> None:
    """What it is compared with is written as its clock shows it."""
    with pytest.raises(InvalidArgument, match="column 'local' has no time zone: write the"):
        spark_condition("id = 1 and local < timestamp '2024-11-03 06:30:00Z'", TYPES)


def test_a_session_without_a_zone_has_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its JVM has, unless it was told otherwise; and a zone that is none is refused."""
    assert zone_named(None) is None
    monkeypatch.setattr(conditions, "TaskContext", Session)
    monkeypatch.setattr(Session, "settings", {})
    found: Any = spark_condition("at = timestamp '2024-06-01 12:00:00'", TYPES).in_session()
    assert found.scalar.as_py() == dt.datetime(2024, 6, 1, 12).astimezone(dt.UTC)
    with pytest.raises(InvalidArgument, match="time zone 'Mars/Base' is not known"):
        zone_named("Mars/Base")


def test_a_block_with_nan_is_not_skipped() -> None:
    """However far its numbers reach; one without is."""
    condition = spark_condition("amount > 100", TYPES).condition
    for amounts, may in (([1.0, NAN], True), ([1.0, 2.0], False), ([1.0, None], False)):
        [rows] = rows_of("amount double", [{"amount": each} for each in amounts] * STATISTICS_ROWS)
        builder = RowBuilder()
        builder.add(rows)
        [block] = builder.build(1 << 24)
        assert condition.may(reaches_of(memoryview(block.data), "here"), 2 * STATISTICS_ROWS) is may
        assert any(chosen(condition, rows.batch.column).to_pylist()) is may


def test_names_in_another_case(filled: Any) -> None:
    """Of `where` and `columns`, with the names that the queue has in what is read."""
    given = {"path": filled.path, "queue": "q", "columns": "ID", "where": "AMOUNT > 1e300"}
    source = QuireDataSource(given)
    assert source.schema().names == ["id"]
    reader: Any = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    found = pa.Table.from_batches(batches).column("id").to_pylist()
    assert sorted(found) == [each for each in range(40) if each % 4 in (0, 3)]
    with pytest.raises(InvalidArgument, match="there is no column 'amounts'"):
        QuireDataSource({**given, "where": "amounts > 1"}).reader(source.schema())
