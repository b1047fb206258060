"""Small pieces that the Spark tests are made of."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.errors import QueueFull

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMEOUT_SECONDS = 300  # for what must come, on a slow machine too
CHECK = "check"  # the subscription that keeps what the tests look at


def topic(store: Any, *names: str, **options: Any) -> None:
    """Create topics whose messages stay for the test to see."""
    for name in names:
        store.create_queue(name, kind="topic", **options)
        store.subscribe(name, CHECK, start="earliest")


def put_numbers(store: Any, queue: str, numbers: Iterable[int], at_once: int = 10) -> None:
    """Put numbers as messages, `at_once` in a transaction."""
    payloads = [b"%d" % number for number in numbers]
    for start in range(0, len(payloads), at_once):
        with store.transaction() as txn:
            txn.put_many(queue, payloads[start : start + at_once])


def fill(store: Any, queue: str) -> int:
    """Put messages until the queue takes no more; how many they were."""
    for count in range(10_000):
        try:
            store.put(queue, b"9" * 99)
        except QueueFull:
            return count
    raise AssertionError("the queue is not bounded")


def numbers_in(store: Any, *queues: str) -> Counter[int]:
    """How often each number is in the queues."""
    found: Counter[int] = Counter()
    for queue in queues:
        messages = store.browse(f"{queue}/{CHECK}", max_messages=1_000_000)
        found.update(int(payload) for payload in messages.payloads())
    return found


def stream(
    spark: SparkSession, store: Any, queue: str, *, format: str = "quire", **options: Any
) -> DataFrame:
    """The queue as a stream, from its first message."""
    given = {"subscription": "spark", "startingOffsets": "earliest", **options}
    return spark.readStream.format(format).options(queue=queue, **given).load(store.path)


def sink(
    rows: DataFrame, store: Any, checkpoint: Path, format: str = "quire", **options: Any
) -> DataStreamWriter:
    """A writer of the rows into the store."""
    return (
        rows.writeStream.format(format)
        .option("checkpointLocation", str(checkpoint))
        .option("path", store.path)
        .options(**options)
    )


def spread(rows: DataFrame, *queues: str) -> DataFrame:
    """The payloads, dealt out over queues by the number in them."""
    from pyspark.sql import functions as f

    number = f.col("payload").cast("string").cast("long") % len(queues)
    names = f.array(*[f.lit(name) for name in queues])
    return rows.select("payload", f.element_at(names, (number + 1).cast("int")).alias("queue"))


def run_to_end(query: StreamingQuery) -> None:
    """Wait for a query with Trigger.AvailableNow; raises what it failed with."""
    ended = query.awaitTermination(TIMEOUT_SECONDS)
    if not ended:
        query.stop()
        raise AssertionError("the query did not end in time")


def eventually(condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until it is true, but not for ever."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def last_logged(checkpoint: Path, log: str) -> int | None:
    """The last batch in a log (`offsets` or `commits`) of a checkpoint."""
    try:
        names = [path.name for path in (checkpoint / log).iterdir()]
    except FileNotFoundError:
        return None
    return max((int(name) for name in names if name.isdigit()), default=None)


def lose(checkpoint: Path, log: str, *batches: int) -> None:
    """Delete batches from a log of a checkpoint, with their checksums."""
    for batch in batches:
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)
