"""Spark's checkpoint has lost what the store has committed: nothing unwritten is skipped.

`quire_steered` is the real source and sink, `quire_unplanned` one whose source does not remember
what was planned, so that only the sink can notice, and `quire_trusting` the canary: it goes by the
micro-batch's number alone (doubles.py).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.waiting import eventually
from tests.spark.checkpoint_logs import last_logged, lose
from tests.spark.numbered_queues import numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.promise(2),
    pytest.mark.cases(6, of_file=True),
    pytest.mark.at_server,
]

REFUSED = "is committed in the store .* with another input"


class Case:
    """250 messages in micro-batches of 100; then the checkpoint loses files, and 150 more come."""

    def __init__(self, spark: SparkSession, store: Any, tmp_path: Path, format: str) -> None:
        topic(store, "in", "out")
        self.spark, self.store, self.format = spark, store, format
        self.checkpoint, self.control = tmp_path / "checkpoint", tmp_path / "control"

    def rows(self, **options: Any) -> DataFrame:
        given = {"maxMessagesPerTrigger": 100, **options}
        reader = "quire" if self.format == "quire_steered" else self.format
        return stream(self.spark, self.store, "in", format=reader, **given)

    def run(self, checkpoint: Path | None = None, **options: Any) -> None:
        rows = self.rows(**options)
        written = sink(
            rows,
            self.store,
            checkpoint or self.checkpoint,
            self.format,
            control=str(self.control),
            queue="out",
        )
        run_to_end(written.trigger(availableNow=True).start())

    def lose(self, *batches: int) -> None:
        put_numbers(self.store, "in", range(250))
        self.run()
        assert last_logged(self.checkpoint, "commits") == 2
        lose(self.checkpoint, "offsets", *batches)
        lose(self.checkpoint, "commits", *batches)
        put_numbers(self.store, "in", range(250, 400))

    def check(self) -> None:
        assert numbers_in(self.store, "out") == Counter(range(400))


@pytest.fixture
def format(request: pytest.FixtureRequest) -> str:
    """The source and sink: real ones, by default."""
    return str(getattr(request, "param", "quire_steered"))


@pytest.fixture
def case(spark: SparkSession, store: Any, tmp_path: Path, control: Path, format: str) -> Case:
    """The same case for all tests."""
    return Case(spark, store, tmp_path, format)


@pytest.mark.cases(2)
def test_a_lost_micro_batch_is_planned_as_it_was(case: Case) -> None:
    """The source knows where it ended: the ledger skips the same messages, and the others come."""
    case.lose(2)
    case.run()
    case.check()
    assert last_logged(case.checkpoint, "commits") == 4
    assert case.store.status()["ledger_entries"] == 3  # for all micro-batches


@pytest.mark.parametrize("format", ["quire_trusting"], indirect=True)
def test_canary_a_sink_that_goes_by_the_number_loses_messages(case: Case) -> None:
    """Nothing fails, and 50 messages never arrive."""
    case.lose(2)
    case.run()
    assert Counter(range(400)) - numbers_in(case.store, "out") == Counter(range(250, 300))


@pytest.mark.cases(2)
@pytest.mark.parametrize("format", ["quire_unplanned"], indirect=True)
def test_another_input_under_a_committed_number_is_refused(case: Case) -> None:
    """Nothing is skipped and nothing written; a new checkpoint goes on where the error says."""
    case.lose(2)
    for _ in range(2):
        with pytest.raises(Exception, match=REFUSED):
            case.run()
        assert numbers_in(case.store, "out") == Counter(range(250))
    case.run(case.checkpoint.with_name("new"), startingOffsets='{"in": 250}')
    case.check()


def test_a_checkpoint_that_is_older_is_refused(case: Case) -> None:
    """Several micro-batches behind: what the store has is not known one by one."""
    case.lose(1, 2)
    with pytest.raises(Exception, match="has those of the same query up to 2"):
        case.run()
    assert numbers_in(case.store, "out") == Counter(range(250))


def test_the_checkpoint_is_found_by_the_session(case: Case, tmp_path: Path) -> None:
    """Where the session says where checkpoints are, by the query's name: it is seen there too."""
    put_numbers(case.store, "in", range(250))
    setting = "spark.sql.streaming.checkpointLocation"

    def run() -> None:
        writer = (
            case.rows()
            .writeStream.format("quire")
            .queryName("named")
            .option("path", case.store.path)
            .option("queue", "out")
        )
        run_to_end(writer.trigger(availableNow=True).start())

    case.format = "quire_unplanned"
    case.spark.conf.set(setting, f"file://{tmp_path}/checkpoints")
    try:
        run()
        for log in ("offsets", "commits"):
            lose(tmp_path / "checkpoints/named", log, 2)
        put_numbers(case.store, "in", range(250, 400))
        with pytest.raises(Exception, match=REFUSED):
            run()
    finally:
        case.spark.conf.unset(setting)


def test_a_source_of_another_kind(
    spark: SparkSession, store: Any, tmp_path: Path, control: Path
) -> None:
    """Files as the input: Spark plans the lost micro-batch with more, which is refused."""
    topic(store, "out")
    files, checkpoint = tmp_path / "files", tmp_path / "c"
    files.mkdir()

    def run() -> None:
        from pyspark.sql import functions as f

        rows = spark.readStream.format("text").load(str(files))
        rows = rows.select(f.col("value").alias("payload"))
        writer = sink(rows, store, checkpoint, "quire_steered", control=str(control), queue="out")
        run_to_end(writer.trigger(availableNow=True).start())

    for n in range(2):
        (files / f"{n}.txt").write_text("\n".join(str(n * 10 + i) for i in range(10)))
        run()
    synced = (control / "synced").read_text().split()
    assert f"{checkpoint}/sources/0/1" in synced  # which files they were is durable too
    for log in ("offsets", "commits", "sources/0"):
        lose(checkpoint, log, 1)
    (files / "2.txt").write_text("\n".join(str(20 + i) for i in range(10)))
    with pytest.raises(Exception, match=REFUSED):
        run()
    assert numbers_in(store, "out") == Counter(range(20))


def test_several_sources(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """Each plans its part as it was."""
    topic(store, "a", "b", "out")

    def run() -> None:
        rows = stream(spark, store, "a").union(stream(spark, store, "b"))
        run_to_end(
            sink(rows, store, tmp_path / "c", queue="out").trigger(availableNow=True).start()
        )

    for n in range(2):
        put_numbers(store, "a", range(100 * n, 100 * n + 10))
        put_numbers(store, "b", range(100 * n + 50, 100 * n + 60))
        run()
    for log in ("offsets", "commits"):
        lose(tmp_path / "c", log, 1)
    put_numbers(store, "a", range(200, 210))
    put_numbers(store, "b", range(250, 260))
    run()
    expected = [base + i for base in (0, 50, 100, 150, 200, 250) for i in range(10)]
    assert numbers_in(store, "out") == Counter(expected)


def test_a_sink_of_another_kind(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """foreachBatch with a ledger of the user's own, by the micro-batch's number: it heals too."""
    topic(store, "in", "out")

    def write(rows: DataFrame, batch: int) -> None:
        writer = rows.select("payload").write.format("quire").mode("append").option("queue", "out")
        writer.option("txnAppId", "mine").option("txnVersion", batch).save(store.path)

    def run() -> None:
        rows = stream(spark, store, "in", maxMessagesPerTrigger=100)
        writer = rows.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        run_to_end(writer.trigger(availableNow=True).start())

    put_numbers(store, "in", range(250))
    run()
    for log in ("offsets", "commits"):
        lose(tmp_path / "c", log, 2)
    put_numbers(store, "in", range(250, 400))
    run()
    assert numbers_in(store, "out") == Counter(range(400))


@pytest.mark.parametrize("is_stateful", [False, True])
def test_a_lost_entry_of_the_commit_log_is_put_back(
    spark: SparkSession, store: Any, tmp_path: Path, is_stateful: bool
) -> None:
    """Its messages are let go of, so Spark cannot repeat it: the query goes on behind it."""
    store.create_queue("in", kind="topic")
    topic(store, "out")
    store.subscribe("in", "spark")
    checkpoint = tmp_path / "c"

    def run(numbers: range) -> None:
        put_numbers(store, "in", numbers)
        rows = stream(spark, store, "in", checkpointLocation=str(checkpoint)).select("payload")
        if is_stateful:
            rows = rows.dropDuplicates(["payload"])
        query = sink(rows, store, checkpoint, queue="out").start()
        try:
            eventually(lambda: not query.isActive or store.queue("in").messages == 0)
            assert query.isActive, query.exception()
        finally:
            query.stop()

    run(range(10))
    run(range(5, 20))
    last = last_logged(checkpoint, "commits")
    assert last is not None
    assert last == last_logged(checkpoint, "offsets")
    (checkpoint / "commits" / str(last)).unlink()  # its checksum is left behind
    run(range(15, 30))
    assert last_logged(checkpoint, "commits") == last + 1
    found = Counter([*range(10), *range(5, 20), *range(15, 30)])
    assert numbers_in(store, "out") == (Counter(range(30)) if is_stateful else found)
