"""Exactly once, whatever is repeated: each test also runs a canary, a sink that must fail.

`quire_steered` is the real sink under the test's control, `quire_forgetful` the same without the
ledger, `quire_eager` one whose tasks commit by themselves (doubles.py).
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.waiting import SECONDS, eventually
from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import fill, numbers_in, put_numbers, topic
from tests.spark.queries import run_to_end, sink, spread, stream
from tests.spark.served_store import directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [
    pytest.mark.spark,
    pytest.mark.promise(2),
    pytest.mark.cases(6, of_file=True),
    pytest.mark.at_server,
]

OUTPUTS = ("out-a", "out-b", "out-c")
STEERED, FORGETFUL, EAGER = "quire_steered", "quire_forgetful", "quire_eager"
both = pytest.mark.parametrize("format", [STEERED, FORGETFUL], indirect=True)


class Job:
    """One query from `in` to three queues, which can be started again and again."""

    def __init__(self, spark: SparkSession, store: Any, tmp_path: Path, format: str) -> None:
        topic(store, "in", *OUTPUTS)
        self.spark, self.store, self.format = spark, store, format
        self.checkpoint, self.control = tmp_path / "checkpoint", tmp_path / "control"
        self.source_options: dict[str, str] = {}

    def start(self, **trigger: Any) -> StreamingQuery:
        rows = spread(stream(self.spark, self.store, "in", **self.source_options), *OUTPUTS)
        written = sink(rows, self.store, self.checkpoint, self.format, control=str(self.control))
        return written.trigger(**(trigger or {"availableNow": True})).start()

    def run(self) -> None:
        run_to_end(self.start())

    def switch(self, name: str, on: bool = True) -> None:
        if on:
            (self.control / name).touch()
        else:
            (self.control / name).unlink()

    def forget_last_commit(self) -> None:
        """What a crash between the sink's commit and Spark's leaves behind."""
        last = last_logged(self.checkpoint, "commits")
        for path in (self.checkpoint / "commits").glob(f"*{last}*"):
            path.unlink()

    def check(self, numbers: range) -> None:
        """The real sink wrote each number once; the canary did not, and this sees it."""
        exact = numbers_in(self.store, *OUTPUTS) == Counter(numbers)
        assert exact == (self.format == STEERED)


@pytest.fixture
def format(request: pytest.FixtureRequest) -> str:
    """The sink: the real one, or the canary that the test is parametrized with."""
    return str(request.param)


@pytest.fixture
def job(spark: SparkSession, store: Any, tmp_path: Path, control: Path, format: str) -> Job:
    """The same query for all tests."""
    return Job(spark, store, tmp_path, format)


@both
def test_a_replayed_micro_batch_writes_nothing(job: Job) -> None:
    """The last file of Spark's commit log is gone: the micro-batch is run and committed again."""
    put_numbers(job.store, "in", range(100))
    job.run()
    job.forget_last_commit()
    job.run()
    job.check(range(100))


@both
def test_a_replay_with_other_rows_writes_nothing(job: Job) -> None:
    """A repeated micro-batch need not have the same rows; what was committed first stays."""
    put_numbers(job.store, "in", range(100))
    job.run()
    job.forget_last_commit()
    rows = spread(stream(job.spark, job.store, "in"), *reversed(OUTPUTS))
    again = sink(rows, job.store, job.checkpoint, job.format, control=str(job.control))
    run_to_end(again.trigger(availableNow=True).start())
    job.check(range(100))


@pytest.mark.cases(2)
@both
def test_a_query_stopped_during_its_commit(job: Job) -> None:
    """Spark lets the commit end, forgets it, and repeats the micro-batch at the next start."""
    put_numbers(job.store, "in", range(60))
    job.switch("hold-after")
    query = job.start()
    eventually((job.control / "committed-0").exists)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    eventually(lambda: not query.isActive)
    job.switch("hold-after", on=False)
    stopping.join(SECONDS)
    assert not stopping.is_alive()
    assert last_logged(job.checkpoint, "commits") is None
    job.run()
    job.check(range(60))


@both
def test_a_commit_that_fails_after_it_took_effect(job: Job) -> None:
    """Spark aborts all messages of a committed micro-batch; nothing is undone, nothing is twice."""
    put_numbers(job.store, "in", range(60))
    job.switch("fail-after")
    with pytest.raises(Exception, match="the test wanted this commit to fail"):
        job.run()
    job.run()
    job.check(range(60))


@pytest.mark.parametrize("format", [STEERED], indirect=True)
def test_a_commit_that_fails_before_it_took_effect(job: Job) -> None:
    """The next start repeats the micro-batch, which is not in the ledger."""
    put_numbers(job.store, "in", range(60))
    job.switch("fail-before")
    with pytest.raises(Exception, match="the test wanted this commit to fail"):
        job.run()
    assert numbers_in(job.store, *OUTPUTS) == Counter()
    job.run()
    job.check(range(60))


@pytest.mark.parametrize("format", [STEERED, EAGER], indirect=True)
def test_a_task_that_is_tried_again(job: Job) -> None:
    """Only the attempt whose message Spark hands over counts."""
    put_numbers(job.store, "in", range(60))
    job.switch("fail-task")
    job.run()
    assert not (job.control / "fail-task").exists()
    job.check(range(60))


@pytest.mark.parametrize("format", [STEERED], indirect=True)
def test_large_fragments_of_a_failed_attempt_are_not_delivered(job: Job) -> None:
    """The same with fragments in files: the failed attempt's file is adopted by nobody."""
    put_numbers(job.store, "in", range(10**6, 10**6 + 30_000), at_once=30_000)
    job.switch("fail-task")
    job.run()
    job.check(range(10**6, 10**6 + 30_000))


@pytest.mark.cases(2)
@pytest.mark.parametrize("format", [STEERED], indirect=True)
def test_a_replay_throws_its_fragments_away(job: Job) -> None:
    """The files that a repeated micro-batch has written are gone after its commit."""
    numbers = range(10**6, 10**6 + 300_000)  # each queue's share is large enough to be adopted
    put_numbers(job.store, "in", numbers, at_once=100_000)
    job.run()
    files = sorted(Path(directory(job.store), "ltds").iterdir())
    assert files
    job.forget_last_commit()
    job.run()
    assert sorted(Path(directory(job.store), "ltds").iterdir()) == files
    job.check(numbers)


@both
def test_micro_batches_of_limited_size(job: Job) -> None:
    """Many micro-batches in a row, each committed once, the last one twice."""
    job.source_options = {"maxMessagesPerTrigger": "25"}
    put_numbers(job.store, "in", range(100))
    job.run()
    assert last_logged(job.checkpoint, "commits") == 3
    job.forget_last_commit()
    job.run()
    job.check(range(100))


@pytest.mark.parametrize("format", [STEERED], indirect=True)
def test_a_full_queue_fails_the_commit_and_nothing_else(
    spark: SparkSession, store: Any, tmp_path: Path, control: Path, format: str
) -> None:
    """QueueFull undoes the whole micro-batch over all queues; with room it is repeated, once."""
    topic(store, "in", "wide")
    topic(store, "narrow", capacity=20_000)
    filler = fill(store, "narrow")
    put_numbers(store, "in", range(200))
    rows = spread(stream(spark, store, "in"), "wide", "narrow")
    written = sink(
        rows, store, tmp_path / "c", format, control=str(control), queueFullTimeout="0.3"
    ).trigger(availableNow=True)
    query = written.start()
    with pytest.raises(Exception, match="no room came within"):
        run_to_end(query)
    assert numbers_in(store, "wide") == Counter()
    with store.transaction() as txn:
        assert len(txn.get_many("narrow/check", max_messages=1000)) == filler
    run_to_end(written.start())
    assert numbers_in(store, "wide", "narrow") == Counter(range(200))


@pytest.mark.cases(2)
def test_a_full_queue_is_waited_for(spark: SparkSession, store: Any, tmp_path: Path) -> None:
    """Room that comes in time is as good as room that was there."""
    topic(store, "in")
    topic(store, "narrow", capacity=20_000)
    fill(store, "narrow")
    put_numbers(store, "in", range(50))
    rows = stream(spark, store, "in").select("payload")
    query = sink(rows, store, tmp_path / "c", queue="narrow").trigger(availableNow=True).start()
    eventually(lambda: last_logged(tmp_path / "c", "offsets") == 0)
    with store.transaction() as txn:
        txn.get_many("narrow/check", max_messages=1000)
    run_to_end(query)
    assert numbers_in(store, "narrow") == Counter(range(50))
