"""What a stream's subscription keeps and lets go: bounded queues drain, and nobody is robbed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from quire.spark_graphs import Graph
from tests.kit.waiting import SECONDS, eventually
from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import numbers_in, position, put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.cases(10, of_file=True)]


@pytest.fixture
def queues(store: Any) -> Any:
    """A store with `in`, whose messages only the streams keep, and `out`."""
    store.create_queue("in", kind="topic")
    store.subscribe("in", "spark", start="earliest")
    topic(store, "out")
    return store


@contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """The query, which is stopped in the end."""
    try:
        yield query
    finally:
        query.stop()


def test_a_bounded_queue_between_two_queries_drains(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """The second has read all there is; the first waits for the room that it gives back."""
    queues.create_queue("between", kind="topic", capacity=16_384)
    queues.subscribe("between", "second", start="earliest")
    numbers = range(10**90, 10**90 + 400)  # of which 100 take 11 kB
    second = stream(spark, queues, "between", subscription="second")
    first = stream(spark, queues, "in", maxMessagesPerTrigger=100).select("payload")
    put_numbers(queues, "between", numbers[:100], at_once=100)
    put_numbers(queues, "in", numbers[100:], at_once=100)
    writer = sink(second, queues, tmp_path / "second", queue="out")
    with running(writer.trigger(processingTime="0 seconds").start()) as query:
        eventually(lambda: numbers_in(queues, "out").total() == 100)
        options = {"queue": "between", "queueFullTimeout": f"{SECONDS}"}
        run_to_end(
            sink(first, queues, tmp_path / "first", **options).trigger(availableNow=True).start()
        )
        eventually(lambda: queues.integration.positions("between") == (400, 400))
        assert query.isActive
    assert numbers_in(queues, "out") == Counter(numbers)


@pytest.mark.cases(2)
def test_a_new_checkpoint_repeats_nothing(spark: SparkSession, queues: Any, tmp_path: Path) -> None:
    """A query that took what was there has given it back when it ends."""
    put_numbers(queues, "in", range(50))
    for name in "cd":
        rows = stream(spark, queues, "in", maxMessagesPerTrigger=20)
        writer = sink(rows, queues, tmp_path / name, queue="out")
        run_to_end(writer.trigger(availableNow=True).start())
        assert queues.integration.positions("in") == (50, 50)
    assert numbers_in(queues, "out") == Counter(range(50))


def test_a_power_failure_takes_the_end_of_the_checkpoint(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """What the query had read is released; it says so, and does not go on as if nothing were."""
    put_numbers(queues, "in", range(50))
    checkpoint = tmp_path / "c"

    def copy(**options: Any) -> None:
        rows = stream(spark, queues, "in", maxMessagesPerTrigger=20, **options)
        run_to_end(sink(rows, queues, checkpoint, queue="out").trigger(availableNow=True).start())

    copy()
    last = last_logged(checkpoint, "commits")
    for path in (checkpoint / "commits").glob(f"*{last}*"):
        path.unlink()
    with pytest.raises(Exception, match="in a power failure"):
        copy()
    assert numbers_in(queues, "out") == Counter(range(50))
    copy(failOnDataLoss="false")  # the ledger holds this micro-batch: nothing of it is missing
    put_numbers(queues, "in", range(50, 60))
    copy()
    assert numbers_in(queues, "out") == Counter(range(60))


@pytest.mark.cases(2)
def test_a_source_that_knows_its_checkpoint(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """It releases what is durable there; without a checkpoint where it is told, nothing."""
    checkpoint = tmp_path / "c"
    for start in (0, 50):
        put_numbers(queues, "in", range(start, start + 50))
        rows = stream(
            spark, queues, "in", maxMessagesPerTrigger=20, checkpointLocation=f"file://{checkpoint}"
        )
        run_to_end(sink(rows, queues, checkpoint, queue="out").trigger(availableNow=True).start())
        assert queues.integration.positions("in") == (start + 50, start + 50)
    put_numbers(queues, "in", range(100, 110))
    rows = stream(spark, queues, "in", checkpointLocation=str(tmp_path / "elsewhere"))
    writer = sink(rows, queues, checkpoint, queue="out").trigger(availableNow=True)
    with pytest.raises(Exception, match="no query has its checkpoint"):
        run_to_end(writer.start())
    assert position(queues, "in", "spark") == 100


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """Each number once, by a join of two streams."""
    one = left.selectExpr("payload", "cast(payload AS string) AS one")
    two = right.selectExpr("cast(payload AS string) AS two")
    return one.join(two, one.one == two.two).select("payload")


@pytest.mark.cases(2)
@pytest.mark.parametrize("other", [None, "other"])
def test_a_queue_is_joined_with_itself(
    spark: SparkSession, queues: Any, tmp_path: Path, other: str | None
) -> None:
    """One load is one source, on both sides; two loads are two, with a subscription each."""
    left = right = stream(spark, queues, "in")
    if other:
        right = stream(spark, queues, "in", subscription=other)
    for end in (20, 40):
        put_numbers(queues, "in", range(end - 20, end))
        writer = sink(joined(left, right), queues, tmp_path / "c", queue="out")
        run_to_end(writer.trigger(availableNow=True).start())
        assert numbers_in(queues, "out") == Counter(range(end))
        assert {info.position for info in queues.subscriptions("in")} == {end}


@pytest.mark.cases(2)
def test_the_rows_of_a_load_are_used_twice_by_a_union(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """Each message is there twice, and the load is one source."""
    put_numbers(queues, "in", range(20))
    rows = stream(spark, queues, "in")
    both = rows.where("position < 15").union(rows.where("position >= 5"))
    run_to_end(sink(both, queues, tmp_path / "c", queue="out").trigger(availableNow=True).start())
    assert numbers_in(queues, "out") == Counter([*range(15), *range(5, 20)])
    assert position(queues, "in", "spark") == 20


def test_a_load_is_joined_with_itself_whatever_its_columns(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """Spark makes a source for each side: each has a subscription, and the same after a restart."""
    queues.alter_queue("in", max_messages=40)
    rows = stream(spark, queues, "in", maxMessagesPerTrigger=8)
    one, two, three = (rows.alias(name) for name in ("one", "two", "three"))
    both = one.join(two, f.expr("one.position = two.position"))
    all_three = both.join(three, f.expr("one.payload = three.payload")).select("one.payload")
    names = {"spark", "spark.source2", "spark.source3"}
    for end in (20, 40, 60):
        put_numbers(queues, "in", range(end - 20, end))
        writer = sink(all_three, queues, tmp_path / "c", queue="out")
        run_to_end(writer.trigger(availableNow=True).start())
        assert numbers_in(queues, "out") == Counter(range(end))
        found = {info.name: info.position for info in queues.subscriptions("in")}
        assert found == dict.fromkeys(names, end)
    lines = (tmp_path / "c" / "offsets" / "0").read_text().splitlines()[2:]
    assert [json.loads(line).get("source") for line in lines] == [
        None,
        {"number": 2},
        {"number": 3},
    ]


def test_a_micro_batch_of_a_load_joined_with_itself_is_repeated(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """The first one, of which Spark asks anew where it begins: its sources are the same again."""
    queues.subscribe("in", "keep", start="earliest")
    put_numbers(queues, "in", range(20))
    rows = stream(spark, queues, "in")
    both = rows.alias("one").join(rows.alias("two"), f.expr("one.position = two.position"))

    def run() -> None:
        writer = sink(both.select("one.payload"), queues, tmp_path / "c", queue="out")
        run_to_end(writer.trigger(availableNow=True).start())

    run()
    for path in (tmp_path / "c" / "commits").iterdir():
        path.unlink()
    put_numbers(queues, "in", range(20, 30))
    run()
    assert numbers_in(queues, "out") == Counter(range(30))


def test_a_load_that_knows_its_checkpoint_is_not_joined_with_itself(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """That, and what to do, is said before anything is read."""
    put_numbers(queues, "in", range(20))
    rows = stream(spark, queues, "in", checkpointLocation=str(tmp_path / "c"))
    one, two = rows.alias("one"), rows.alias("two")
    both = one.join(two, f.expr("one.position = two.position")).select("one.payload")
    writer = sink(both, queues, tmp_path / "c", queue="out").trigger(availableNow=True)
    with pytest.raises(Exception, match="rename all columns of one side") as caught:
        run_to_end(writer.start())
    assert "each load an option 'subscription' of its own" in str(caught.value)
    assert position(queues, "in", "spark") == 0
    assert numbers_in(queues, "out") == Counter()


def test_two_loads_do_not_share_a_subscription(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """It is refused before anything is read."""
    put_numbers(queues, "in", range(20))
    left, right = (stream(spark, queues, "in") for _ in range(2))
    writer = sink(joined(left, right), queues, tmp_path / "c", queue="out")
    with pytest.raises(Exception, match="being streamed by subscription 'spark' already"):
        run_to_end(writer.trigger(availableNow=True).start())
    assert position(queues, "in", "spark") == 0


def test_two_queries_do_not_share_a_subscription(
    spark: SparkSession, queues: Any, tmp_path: Path
) -> None:
    """The second is refused while the first runs, and may follow it at once when it has ended."""
    put_numbers(queues, "in", range(20))
    rows = stream(spark, queues, "in", maxMessagesPerTrigger=20)

    def start(name: str) -> StreamingQuery:
        writer = sink(rows, queues, tmp_path / name, queue="out")
        return writer.trigger(processingTime="0 seconds").start()

    with running(start("first")) as first:
        eventually(lambda: numbers_in(queues, "out").total() == 20)
        with pytest.raises(Exception, match="being streamed by subscription 'spark' already"):
            start("second").awaitTermination(SECONDS)
        put_numbers(queues, "in", range(20, 40))
        eventually(lambda: position(queues, "in", "spark") == 40)
        assert first.isActive
    put_numbers(queues, "in", range(40, 60))
    with running(start("second")):
        eventually(lambda: position(queues, "in", "spark") == 60)
    assert numbers_in(queues, "out") == Counter(range(60))


@pytest.mark.cases(2)
def test_a_query_starts_again_at_once(spark: SparkSession, queues: Any, tmp_path: Path) -> None:
    """Again and again, whatever became of the process that held its subscription."""
    rows = stream(spark, queues, "in")
    for number in range(4):
        put_numbers(queues, "in", [number])
        query = sink(rows, queues, tmp_path / "c", queue="out").start()
        eventually(lambda done=number + 1: numbers_in(queues, "out").total() == done)  # type: ignore[misc]
        stopping = threading.Thread(target=query.stop)
        stopping.start()
        stopping.join(SECONDS)
    assert numbers_in(queues, "out") == Counter(range(4))


@pytest.mark.cases(2)
def test_a_graph_reads_a_queue_twice(spark: SparkSession, queues: Any, tmp_path: Path) -> None:
    """Two inputs of one queue are two subscriptions, and the checkpoint is known to both."""
    put_numbers(queues, "in", range(20))
    graph = Graph("g", spark, queues.path, str(tmp_path / "checkpoints"))
    graph.step(["in", "in"], "out", name="twice", stateful=True)(joined)
    with graph.start() as run:
        run.drain(timeout=SECONDS)
    assert numbers_in(queues, "out") == Counter(range(20))
    eventually(
        lambda: [position(queues, "in", name) for name in ("g.twice", "g.twice.2")] == [20, 20]
    )
