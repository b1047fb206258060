"""The last entry of Spark's commit log: when it is put back, and when it never is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint.lost_commit import CommitLog
from quire.spark_graphs.checkpoint.offsets import Offset
from quire.spark_graphs.options import read_options
from tests.spark.checkpoint_logs import last_logged
from tests.spark.numbered_queues import put_numbers

pytestmark = pytest.mark.at_server


QUERY = "6e0bd3f4"


@pytest.fixture
def checkpoint(store: Any, tmp_path: Path) -> Iterator[Path]:
    """Of a query of the queues a and b, whose second micro-batch has no entry in `commits`."""
    path = tmp_path / "checkpoint"
    for log in ("offsets", "commits"):
        (path / log).mkdir(parents=True)
    store.admin.create_queues([{"name": name, "kind": "topic"} for name in "ab"])
    for queue in "ab":
        put_numbers(store, queue, range(30))
    (path / "metadata").write_text(json.dumps({"id": QUERY}))
    (path / "commits/0").write_text('v1\n{"nextBatchWatermarkMs":7}')
    (path / "commits/.1.crc").write_bytes(b"of the entry that is gone")
    write_offsets(path, store, 0, 10)
    write_offsets(path, store, 1, 20)
    yield path
    connection.forget(store.path)


def end_of(store: Any, position: int) -> Offset:
    """A micro-batch's end, in both queues."""
    made = {info.name: info.created_us for info in store.queues(["a", "b"])}
    return Offset(dict.fromkeys("ab", 0), dict.fromkeys("ab", position), made)


def write_offsets(path: Path, store: Any, batch: int, position: int, **conf: str) -> None:
    """What Spark logs of a micro-batch; its other source is of another format."""
    run = {"batchWatermarkMs": 7, "batchTimestampMs": 9, "conf": conf}
    lines = ["v1", json.dumps(run), json.dumps(end_of(store, position).to_json()), "5"]
    (path / f"offsets/{batch}").write_text("\n".join(lines))


def log_of(store: Any, location: object, subscription: str = "s") -> CommitLog:
    """As a source of the query has it."""
    given = {"subscribe": "a,b", "subscription": subscription, "path": store.path}
    options = read_options({**given, "checkpointLocation": str(location)}, streaming=True)
    return CommitLog(options)


def tell(store: Any, log: CommitLog, **positions: int) -> None:
    """Have the store know how far Spark has committed the query, by queue."""
    keys = log.keys(end_of(store, 0), positions)
    with store.transaction() as txn:
        for queue, position in positions.items():
            txn.enter(keys[queue], position)


def test_it_is_put_back_where_the_store_knows_of_it(store: Any, checkpoint: Path) -> None:
    """With the watermark of the micro-batch, and without the checksum of what is gone."""
    log = log_of(store, f"file://{checkpoint}")
    tell(store, log, a=20, b=21)
    log.put_back()
    assert (checkpoint / "commits/1").read_text() == 'v1\n{"nextBatchWatermarkMs": 7}'
    assert sorted(path.name for path in (checkpoint / "commits").iterdir()) == ["0", "1"]
    log.put_back()


def test_it_is_not_where_spark_has_not_said_it(store: Any, checkpoint: Path) -> None:
    """Not in all queues, not of this query, not by this subscription, or of no checkpoint here."""
    log = log_of(store, checkpoint)
    log.put_back()
    tell(store, log, a=20, b=19)
    log.put_back()
    (checkpoint / "metadata").write_text(json.dumps({"id": "other"}))
    tell(store, log_of(store, checkpoint), a=20)
    log_of(store, checkpoint).put_back()
    (checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    tell(store, log, b=20)
    log_of(store, checkpoint, "t").put_back()
    for elsewhere in ("hdfs://host/c", f"{checkpoint}-none"):
        log_of(store, elsewhere).put_back()
    assert last_logged(checkpoint, "commits") == 0
    log.put_back()
    assert last_logged(checkpoint, "commits") == 1


def test_it_is_not_where_it_cannot_be_said(store: Any, checkpoint: Path) -> None:
    """State that goes by ids of the entry; a form of the log, or a file, that is not known."""
    log = log_of(store, checkpoint)
    tell(store, log, a=30, b=30)
    name = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    write_offsets(checkpoint, store, 1, 20, **{name: "2"})
    log.put_back()
    for text in ("v2\n{}", "", "v1", "v1\nnothing\nof this", "v1\n[]\n{}"):
        (checkpoint / "offsets/1").write_text(text)
        log.put_back()
    assert last_logged(checkpoint, "commits") == 0
