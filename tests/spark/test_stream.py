"""Streams: where they begin, what they hold, what they refuse, and what they survive."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.waiting import SECONDS, eventually
from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, spread, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.cases(8, of_file=True), pytest.mark.at_server]


def copy(spark: SparkSession, store: Any, checkpoint: Path, **options: Any) -> None:
    """Copy what is in `in` to `out`, and end."""
    rows = stream(spark, store, "in", **options)
    run_to_end(sink(rows, store, checkpoint, queue="out").trigger(availableNow=True).start())


@pytest.mark.promise(2)
def test_one_commit_over_several_queues(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """A micro-batch is one transaction: all its messages have one time, and ids without a gap."""
    topic(store, "in", "a", "b", "c")
    put_numbers(store, "in", range(90))
    rows = spread(stream(spark, store, "in"), "a", "b", "c")
    run_to_end(sink(rows, store, tmp_path / "c").trigger(availableNow=True).start())
    found = [store.browse(f"{queue}/check") for queue in "abc"]
    assert [len(messages) for messages in found] == [30, 30, 30]
    assert len({message.time for messages in found for message in messages}) == 1
    ids = sorted(message.id for messages in found for message in messages)
    assert ids == list(range(ids[0], ids[0] + 90))


@pytest.mark.cases(2)
def test_what_was_read_is_given_back(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """The subscription keeps messages until Spark has committed them, and then lets them go."""
    topic(store, "out")
    store.create_queue("in", kind="topic")
    store.subscribe("in", "spark", start="earliest")
    put_numbers(store, "in", range(10))
    copy(spark, store, tmp_path / "c")
    assert store.integration.positions("in") == (10, 10)
    put_numbers(store, "in", range(10, 20))
    copy(spark, store, tmp_path / "c")
    assert store.subscriptions("in")[0].position == 20
    assert numbers_in(store, "out") == Counter(range(20))


def test_a_stream_begins_where_its_subscription_stands(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """A new subscription begins at startingOffsets, by default at the end; an old one goes on."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(10))
    rows = (
        spark.readStream.format("quire").options(queue="in", subscription="late").load(store.path)
    )
    run_to_end(sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True).start())
    put_numbers(store, "in", range(10, 15))
    # With a new checkpoint even: what counts is the subscription.
    run_to_end(sink(rows, store, tmp_path / "d", queue="out").trigger(availableNow=True).start())
    assert numbers_in(store, "out") == Counter(range(10, 15))


def test_explicit_positions_and_several_queues(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """One source reads several queues, each from its own position."""
    topic(store, "a", "b", "out")
    put_numbers(store, "a", range(10))
    put_numbers(store, "b", range(100, 110))
    rows = (
        spark.readStream.format("quire")
        .option("subscribe", "b,a")
        .option("subscription", "s")
        .option("startingOffsets", '{"a": 8, "b": -2}')
        .option("maxMessagesPerTrigger", 4)
        .load(store.path)
    )
    run_to_end(sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True).start())
    assert numbers_in(store, "out") == Counter([8, 9, *range(100, 110)])
    assert last_logged(tmp_path / "c", "commits") == 2


@pytest.mark.cases(2)
@pytest.mark.parametrize("kept", [True, False])
def test_latest_and_a_death_in_batch_0(
    spark: SparkSession, store: Any, tmp_path: Path, control: Path, kept: bool
) -> None:
    """Spark asks for the initial offset again; the origin inside the end offset keeps the range.

    The canary reads from the initial offset as it is by then.
    """
    topic(store, "in", "out")
    put_numbers(store, "in", range(100))
    source = "quire_steered" if kept else "quire_forgetful"
    rows = (
        spark.readStream.format(source)
        .options(queue="in", subscription="spark", startingOffsets="latest", failOnDataLoss="false")
        .load(store.path)
    )
    writer = sink(rows, store, tmp_path / "c", "quire_steered", control=str(control), queue="out")
    (control / "hold-before").touch()
    (control / "fail-before").touch()
    query = writer.trigger(processingTime="0 seconds").start()
    eventually(lambda: last_logged(tmp_path / "c", "offsets") == 0)
    put_numbers(store, "in", range(100, 150))
    (control / "hold-before").unlink()
    with pytest.raises(Exception, match="the test wanted"):
        query.awaitTermination(SECONDS)
    put_numbers(store, "in", range(150, 160))
    again = writer.trigger(availableNow=True).start()
    if kept:
        run_to_end(again)
        assert numbers_in(store, "out") == Counter(range(100, 160))
    else:
        run_to_end(again)
        assert numbers_in(store, "out") != Counter(range(100, 160))


def test_a_running_query_sees_what_is_put(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """Micro-batch after micro-batch, with a trigger by time."""
    topic(store, "in", "out")
    rows = stream(spark, store, "in")
    query = (
        sink(rows, store, tmp_path / "c", queue="out")
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    for start in range(0, 30, 10):
        put_numbers(store, "in", range(start, start + 10))
        expected = Counter(range(start + 10))
        eventually(partial(has_come, query, store, expected))
    query.stop()


def has_come(query: StreamingQuery, store: Any, expected: Counter[int]) -> bool:
    """Whether a running query has written what it should."""
    assert query.isActive, query.exception()
    return numbers_in(store, "out") == expected


@pytest.mark.cases(2)
def test_lost_messages_raise(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """What the query has not read is gone: an error, or with failOnDataLoss=false the rest."""
    topic(store, "out")
    store.create_queue("in", kind="topic")
    store.subscribe("in", "spark", start="earliest")
    put_numbers(store, "in", range(10))
    copy(spark, store, tmp_path / "c")
    put_numbers(store, "in", range(10, 30))
    with store.transaction() as txn:
        txn.read_to("in/spark", 25)
    with pytest.raises(Exception, match="messages 10 to 30 are asked for"):
        copy(spark, store, tmp_path / "c")
    copy(spark, store, tmp_path / "c", failOnDataLoss="false")
    assert numbers_in(store, "out") == Counter([*range(10), *range(25, 30)])


@pytest.mark.cases(2)
@pytest.mark.parametrize("again", [5, 40])
def test_a_queue_made_anew_raises(
    spark: SparkSession, store: Any, tmp_path: Path, again: int
) -> None:
    """Its positions mean other messages, whether there are fewer of them or more."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(10))
    copy(spark, store, tmp_path / "c")
    store.drop_queue("in")
    topic(store, "in")
    put_numbers(store, "in", range(100, 100 + again))
    with pytest.raises(Exception, match="'in' was dropped and made again"):
        copy(spark, store, tmp_path / "c")


@pytest.mark.parametrize("strict", [True, False])
def test_a_running_query_sees_a_queue_made_anew(
    spark: SparkSession, store: Any, tmp_path: Path, control: Path, strict: bool
) -> None:
    """An error, or with failOnDataLoss=false the new queue from its first message."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(10))
    rows = stream(spark, store, "in", failOnDataLoss=str(strict).lower())
    (control / "hold-after").touch()
    writer = sink(rows, store, tmp_path / "c", "quire_steered", control=str(control), queue="out")
    query = writer.trigger(processingTime="0 seconds").start()
    eventually((control / "committed-0").exists)
    store.drop_queue("in")
    topic(store, "in")
    store.subscribe("in", "spark", start="earliest")
    put_numbers(store, "in", range(100, 140))
    (control / "hold-after").unlink()
    if strict:
        with pytest.raises(Exception, match="'in' was dropped and made again"):
            query.awaitTermination(SECONDS)
        assert numbers_in(store, "out") == Counter(range(10))
    else:
        expected = Counter([*range(10), *range(100, 140)])
        eventually(partial(has_come, query, store, expected))
        query.stop()


@pytest.mark.parametrize(
    ("kind", "options", "advice"),
    [
        ("topic", {}, "name a subscription"),
        ("work", {}, "is a work queue"),
        ("work", {"subscription": "s"}, "is a work queue"),
        ("topic", {"subscription": "s", "colour": "red"}, "unknown option 'colour'"),
        ("topic", {"subscription": "s", "endingOffsets": "latest"}, "belongs to a batch read"),
    ],
)
def test_wrong_streams_say_what_to_change(
    spark: SparkSession,
    store: Any,
    tmp_path: Path,
    kind: str,
    options: dict[str, str],
    advice: str,
) -> None:
    """Wrong streams say what to change before the first micro-batch."""
    store.create_queue("in", kind=kind)
    topic(store, "out")
    rows = spark.readStream.format("quire").options(queue="in", **options).load(store.path)
    writer = sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True)
    with pytest.raises(Exception, match=advice):  # noqa: PT012
        query = writer.start()
        run_to_end(query)


@pytest.mark.parametrize(
    ("mode", "aggregated", "advice"),
    [("complete", True, "only appends"), ("update", False, "quire does not support Update mode")],
)
def test_other_output_modes_are_refused(
    spark: SparkSession, store: Any, tmp_path: Path, mode: str, aggregated: bool, advice: str
) -> None:
    """A queue is appended to."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(3))
    rows = stream(spark, store, "in").select("payload")
    if aggregated:
        rows = rows.groupBy("payload").count().select("payload")
    writer = sink(rows, store, tmp_path / "c", queue="out").outputMode(mode)
    with pytest.raises(Exception, match=advice):  # noqa: PT012
        query = writer.trigger(availableNow=True).start()
        run_to_end(query)


@pytest.mark.cases(2)
def test_two_inputs_in_one_query(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """Several sources: Spark fixes all their ranges before it runs, one commit covers them."""
    topic(store, "in", "in2", "out")
    put_numbers(store, "in", range(10))
    put_numbers(store, "in2", range(10, 20))
    rows = stream(spark, store, "in").union(stream(spark, store, "in2"))
    run_to_end(sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True).start())
    assert numbers_in(store, "out") == Counter(range(20))


@pytest.mark.cases(2)
def test_stopping_while_tasks_run_leaves_no_file(
    spark: SparkSession, store: Any, tmp_path: Path
) -> None:
    """Tasks that did not come to a commit leave nothing that is delivered."""
    topic(store, "in", "out")
    put_numbers(store, "in", range(2000), at_once=2000)
    rows = stream(spark, store, "in", maxMessagesPerTrigger=100)
    query = sink(rows, store, tmp_path / "c", queue="out").start()
    eventually(lambda: (last_logged(tmp_path / "c", "commits") or 0) >= 1)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    stopping.join(SECONDS)
    copy(spark, store, tmp_path / "c")
    assert numbers_in(store, "out") == Counter(range(2000))
