"""Power failures of the store and of Spark's checkpoint together, on the simulated disk.

Reader, sink and store are the real ones. Spark is a model of what it does with a checkpoint: it
writes each file under another name, renames it and syncs nothing; it goes on from the newest file
of the offset log; what is not in the commit log is run again. As documented for users, a newest
file that is cut off is deleted, and only such a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from quire.engine import EmbeddedStore as Store
from quire.errors import QueueExists, SubscriptionExists
from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint import offset_log
from quire.spark_graphs.checkpoint.offset_log import OffsetLog
from quire.spark_graphs.checkpoint.offsets import Offset, ranges
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.options import read_options
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.schema import source_schema
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.write_ledger import StreamLedger, ledger_key
from quire.testing import SimEnv, enumerate_crashes

pytestmark = [pytest.mark.crash, pytest.mark.promise(1, 2)]

PATH, CHECKPOINT = "/store", "/checkpoint"
LIMIT = ReadMaxRows(4)
SMALL: dict[str, Any] = {"segment_bytes": 1 << 18, "grow_bytes": 1 << 16, "page_size": 4096}


class Spark:
    """A streaming query as Spark runs it, over its checkpoint."""

    secures = True
    remembers = True

    def __init__(self, env: SimEnv, store: Any) -> None:
        self.env, self.store = env, store
        given = {"path": PATH, "queue": "in", "subscription": "spark"}
        options = read_options({**given, "startingOffsets": "earliest"}, streaming=True)
        self.source = StreamReader(options, source_schema(), env)
        connection._stores[os.getpid(), PATH] = store
        for name in (CHECKPOINT, f"{CHECKPOINT}/offsets", f"{CHECKPOINT}/commits"):
            env.make_directory(name)
        self.query_id = self.identity()

    def identity(self) -> str:
        """The query's id, drawn if the checkpoint has none."""
        found = self.parsed("metadata")
        if found is None:
            found = {"id": f"{self.env.random_u64():x}"}
            self.write("metadata", found)
        return str(found["id"])

    def write(self, name: str, value: Any) -> None:
        """By rename and without a sync; an offset has a line about the run before it."""
        lines = ["v1", json.dumps({"batchTimestampMs": self.env.now_us()}), json.dumps(value)]
        text = lines[-1] if name == "metadata" else "\n".join(lines)
        folder, _, last = f"{CHECKPOINT}/{name}".rpartition("/")
        temporary = f"{folder}/.{last}.{self.env.random_u64():x}.tmp"
        file = self.env.open_file(temporary, create=True)
        file.write(0, text.encode())
        file.close()
        self.env.rename(temporary, f"{folder}/{last}")

    def parsed(self, name: str) -> Any:
        """What a file says; None if it is not there or cut off."""
        path = f"{CHECKPOINT}/{name}"
        if not self.env.exists(path):
            return None
        file = self.env.open_file(path, read_only=True)
        text = file.read(0, file.size())
        file.close()
        lines = text.split(b"\n")
        try:
            if name != "metadata" and (len(lines) != 3 or lines[0] != b"v1"):
                return None
            return json.loads(lines[-1])
        except ValueError:
            return None

    def newest(self, log: str) -> int:
        """The newest batch of a log; what is cut off behind it is deleted, as documented."""
        names = self.env.list_directory(f"{CHECKPOINT}/{log}")
        numbers = sorted((int(name) for name in names if name.isdigit()), reverse=True)
        for number in numbers:
            if self.parsed(f"{log}/{number}") is not None:
                return number
            committed = self.store.integration.ledger(ledger_key(self.query_id))
            assert log == "commits" or committed is None or committed < number, "stuck"
            self.env.remove(f"{CHECKPOINT}/{log}/{number}")
        return -1

    def offsets_before(self, batch: int) -> Any:
        """Where a micro-batch starts."""
        if batch == 0:
            return self.source.initialOffset()
        start = self.parsed(f"offsets/{batch - 1}")
        assert start is not None, f"batch {batch - 1} doesn't exist"
        return start

    def run(self) -> None:
        """Micro-batches until nothing is new."""
        batch, committed = self.newest("offsets"), self.newest("commits")
        if batch >= 0 and committed < batch:
            self.execute(batch, self.offsets_before(batch), self.parsed(f"offsets/{batch}"))
        while True:
            batch += 1
            start = self.offsets_before(batch)
            end = self.source.latestOffset(start, LIMIT)
            if end == start:
                return
            self.write(f"offsets/{batch}", end)
            if batch > 0:
                self.source.commit(start)
            self.execute(batch, start, end)

    def execute(self, batch: int, start: Any, end: Any) -> None:
        """One micro-batch, from the offset log to the commit log."""
        begin, stop = Offset.from_json(start), Offset.from_json(end)
        if self.remembers:
            self.source._planned.remember(begin, stop)
        first, last = ranges(begin, stop)["in"]
        payloads = self.store.browse("in/check", max_messages=1000).payloads()[first:last]
        writer = FragmentWriter(PATH, self.store.integration.store_id, self.env)
        for queue in ("a", "b"):
            writer.add(pa.record_batch({"payload": list(payloads)}), {queue: len(payloads)})
        digest = None
        if self.secures:
            digest = OffsetLog(CHECKPOINT, self.query_id, self.env).secure(batch)
            assert digest != offset_log.UNKNOWN
        ledger = StreamLedger(self.query_id, batch, digest)
        committer = FragmentCommitter(PATH, ledger, 1.0, env=self.env)
        committer.commit(writer.finish())
        self.write(f"commits/{batch}", {"nextBatchWatermarkMs": 0})


class Unsecured(Spark):
    """The canary: the number of a micro-batch is all that counts. Its query's id is durable."""

    secures = False
    remembers = False

    def identity(self) -> str:
        found = super().identity()
        file = self.env.open_file(f"{CHECKPOINT}/metadata")
        file.sync()
        file.close()
        for name in ("/", CHECKPOINT):
            self.env.sync_directory(name)
        return found


class Unremembered(Spark):
    """Without what the source remembers; what the sink has made durable is enough."""

    remembers = False


@dataclass
class Noted:
    """How many messages were put for certain."""

    put: int = 0


@contextmanager
def opened(env: SimEnv) -> Iterator[Any]:
    """The store with its queues, in a process that has just started."""
    offset_log._secured.clear()
    store = Store.open(PATH, env=env, background=False, **SMALL)
    try:
        for name in ("in", "a", "b"):
            with suppress(QueueExists):
                store.create_queue(name, kind="topic")
            with suppress(SubscriptionExists):
                store.subscribe(name, "check", start="earliest")
        yield store
    finally:
        connection._stores.pop((os.getpid(), PATH), None)
        if not env.crashed:
            store.close()


def put(store: Any, noted: Noted, count: int) -> None:
    """So many messages more."""
    with store.transaction() as txn:
        txn.put_many("in", [b"%d" % (noted.put + n) for n in range(count)])
    noted.put += count


def work(env: SimEnv, noted: Noted, spark: type[Spark] = Spark) -> None:
    """Three micro-batches, then two more."""
    with opened(env) as store:
        put(store, noted, 10)
        query = spark(env, store)
        query.run()
        put(store, noted, 5)
        query.run()
        query.source.stop()


def check(env: SimEnv, noted: Noted, spark: type[Spark] = Spark) -> None:
    """More messages come, and each is in both queues once, in order."""
    with opened(env) as store:
        assert store.integration.positions("in")[1] >= noted.put
        noted = Noted(store.integration.positions("in")[1])
        put(store, noted, 7)
        query = spark(env, store)
        query.run()
        query.source.stop()
        expected = [b"%d" % n for n in range(noted.put)]
        for queue in ("a", "b"):
            found = list(store.browse(f"{queue}/check", max_messages=1000).payloads())
            assert set(found) == set(expected), "messages are missing"
            assert found == expected


def survive_power_failures(spark: type[Spark], seed: int, rounds: int) -> None:
    """Let the power fail in calls all over a query, and look each time."""
    cases = enumerate_crashes(
        lambda env, noted: work(env, noted, spark),
        lambda env, noted: check(env, noted, spark),
        Noted,
        seed=seed,
        rounds=max(1, rounds // 25),
        every=3 if rounds <= 25 else 1,
    )
    assert cases > 100


@pytest.mark.cases(8)
def test_promise_1_2_power_failure_of_store_and_checkpoint(seed: int, rounds: int) -> None:
    """Whatever call the power fails in, and whatever of the checkpoint it takes: exactly once."""
    survive_power_failures(Spark, seed, rounds)


@pytest.mark.cases(8)
def test_promise_1_2_power_failure_of_an_unremembered_query(seed: int, rounds: int) -> None:
    """The same without what the source remembers."""
    survive_power_failures(Unremembered, seed, rounds)


def test_canary_a_sink_that_trusts_the_checkpoint_is_caught(seed: int) -> None:
    """A micro-batch is skipped that has more in it than the one that was committed."""
    with pytest.raises(AssertionError, match="messages are missing"):
        enumerate_crashes(
            lambda env, noted: work(env, noted, Unsecured),
            lambda env, noted: check(env, noted, Unsecured),
            Noted,
            seed=seed,
            rounds=2,
        )
