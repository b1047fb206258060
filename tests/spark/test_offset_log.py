"""What the sink sees of Spark's checkpoint: where it is, what it digests, what it makes durable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from quire.spark_graphs.checkpoint import offset_log
from quire.spark_graphs.checkpoint.offset_log import UNKNOWN, OffsetLog, digest
from quire.spark_graphs.limits import DIGEST_BITS, KNOWN_CHECKPOINTS
from quire.spark_graphs.options import write_options
from quire.spark_graphs.writing.sink_writer import checkpoint_directory
from quire.testing import SimEnv

RUN = '{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}'


@pytest.fixture(autouse=True)
def _new_process() -> Iterator[None]:
    """What an earlier test has secured is forgotten."""
    offset_log._secured.clear()
    yield
    offset_log._secured.clear()


class Checkpoint:
    """A checkpoint on a simulated machine, written as Spark writes it: nothing is synced."""

    def __init__(self, query_id: str = "id") -> None:
        self.env = SimEnv(3)
        for name in ("", "/offsets", "/commits"):
            self.env.make_directory(f"/checkpoint{name}")
        self.write("metadata", json.dumps({"id": query_id}))

    def write(self, name: str, text: str) -> None:
        file = self.env.open_file(f"/checkpoint/{name}", create=True)
        file.write(0, text.encode())
        file.close()

    def plan(self, batch: int, *offsets: Any, at: int = 0) -> None:
        lines = ["v1", RUN % at, *[json.dumps(offset) for offset in offsets]]
        self.write(f"offsets/{batch}", "\n".join(lines))

    def secure(self, batch: int, query_id: str = "id") -> int:
        return OffsetLog("/checkpoint", query_id, self.env).secure(batch)

    def left(self) -> set[str]:
        """The files that are whole after a power failure that takes all it can."""
        after = self.env.if_it_crashed(outcome="lost")
        files = {path for path in after.files() if path.startswith("/checkpoint/")}
        return {
            path.removeprefix("/checkpoint/")
            for path in files
            if after.contents(path) == self.env.contents(path)
        }


def test_what_is_secured_outlives_a_power_failure() -> None:
    """The id, this micro-batch and the one before it, also where that one had nothing to commit."""
    checkpoint = Checkpoint()
    for batch in range(3):
        checkpoint.plan(batch, {"n": batch})
        assert checkpoint.left() == set()
    checkpoint.secure(2)
    assert checkpoint.left() == {"metadata", "offsets/1", "offsets/2"}
    for batch in (3, 4):
        checkpoint.plan(batch, {"n": batch})
    checkpoint.secure(4)
    assert {"offsets/3", "offsets/4"} <= checkpoint.left()
    checkpoint.plan(5, {"n": 5})
    calls = len(checkpoint.env.calls.log)
    checkpoint.secure(5)
    kinds = [call.kind for call in checkpoint.env.calls.log[calls:]]
    assert kinds == ["sync", "sync_directory"]  # what it costs a commit


def test_the_logs_of_sources_are_secured() -> None:
    """Files that Spark's source of files has found; each once."""
    checkpoint = Checkpoint()
    for name in ("sources", "sources/0"):
        checkpoint.env.make_directory(f"/checkpoint/{name}")
    checkpoint.write("sources/0/0", "v1\n{}")
    checkpoint.write("sources/0/.0.crc", "crc")
    checkpoint.plan(0, {"logOffset": 0})
    checkpoint.secure(0)
    checkpoint.write("sources/0/1", "v1\n{}")
    checkpoint.plan(1, {"logOffset": 1})
    calls = len(checkpoint.env.calls.log)
    checkpoint.secure(1)
    synced = [call.path for call in checkpoint.env.calls.log[calls:] if call.kind == "sync"]
    assert synced == ["/checkpoint/offsets/1", "/checkpoint/sources/0/1"]
    assert {"sources/0/0", "sources/0/1"} <= checkpoint.left()
    calls = len(checkpoint.env.calls.log)
    checkpoint.plan(2, {"logOffset": 1})
    checkpoint.secure(2)
    synced = [c.path for c in checkpoint.env.calls.log[calls:] if c.kind == "sync_directory"]
    assert synced == ["/checkpoint/offsets"]  # nothing is new in the others
    checkpoint.env.make_directory("/checkpoint/sources/1")
    checkpoint.write("sources/1/0", "v1\n{}")
    checkpoint.plan(3, {"logOffset": 1})
    checkpoint.secure(3)
    assert "sources/1/0" in checkpoint.left()


def test_the_digest_is_that_of_the_offsets() -> None:
    """Not of the time; of every source, in order, and of what a number of a log stands for."""

    def of(*offsets: Any, at: int = 0, found: str = "") -> int:
        offset_log._secured.clear()
        checkpoint = Checkpoint()
        if found:
            for name in ("sources", "sources/0"):
                checkpoint.env.make_directory(f"/checkpoint/{name}")
            checkpoint.write("sources/0/1", found)
        checkpoint.plan(0, *offsets, at=at)
        return checkpoint.secure(0)

    assert of({"a": 1}) == of({"a": 1}, at=99)
    assert of({"logOffset": 1}, found="x") == of({"logOffset": 1}, found="x", at=9)
    different = [
        of({"a": 1}),
        of({"a": 2}),
        of({"a": 1}, {"b": 1}),
        of({"b": 1}, {"a": 1}),
        of({"logOffset": 1}),
        of({"logOffset": 1}, found="x"),
        of({"logOffset": 1}, found="y"),
        of(None),
        of(),
    ]
    assert len(set(different)) == len(different)
    assert all(UNKNOWN < value < 1 << DIGEST_BITS for value in different)
    assert digest(b"") != UNKNOWN


def test_a_checkpoint_that_is_not_there_is_unknown() -> None:
    """On another file system, of another query, or with metadata that say nothing."""
    checkpoint = Checkpoint()
    checkpoint.plan(0, {"a": 1})
    assert checkpoint.secure(1) == UNKNOWN
    assert checkpoint.secure(0, "other") == UNKNOWN
    assert OffsetLog(None, "id", checkpoint.env).secure(0) == UNKNOWN
    assert OffsetLog("/nowhere", "id", checkpoint.env).secure(0) == UNKNOWN
    for metadata in ("", "[]", "{}", "{", "\x00" * 9):
        checkpoint = Checkpoint()
        checkpoint.env.remove("/checkpoint/metadata")
        checkpoint.write("metadata", metadata)
        checkpoint.plan(0, {"a": 1})
        assert checkpoint.secure(0) == UNKNOWN


def test_what_a_process_remembers_is_bounded() -> None:
    """Forgotten checkpoints are synced anew."""
    for number in range(KNOWN_CHECKPOINTS + 9):
        checkpoint = Checkpoint(f"query-{number}")
        checkpoint.plan(0, {"a": 1})
        assert checkpoint.secure(0, f"query-{number}") != UNKNOWN
    assert len(offset_log._secured) == KNOWN_CHECKPOINTS


@pytest.mark.parametrize(
    ("options", "session", "directory"),
    [
        ({"checkpointLocation": "/c/q/"}, None, "/c/q"),
        ({"checkpointLocation": "file:/c/q"}, "/other", "/c/q"),
        ({"checkpointLocation": "file:///c/q", "queryName": "n"}, "/other", "/c/q"),
        ({"checkpointLocation": "c/q"}, None, "c/q"),  # from the driver's directory, as for Spark
        ({"checkpointLocation": "hdfs://host:1/c"}, None, None),
        ({"checkpointLocation": "s3a://bucket/c"}, None, None),
        ({"queryName": "n"}, "file:///c", "/c/n"),
        ({"queryName": "n"}, "s3a://bucket/c", None),
        ({"queryName": "n"}, None, None),
        ({}, "/c", None),  # below it a name that is drawn, of a query that never starts again
    ],
)
def test_where_the_checkpoint_is(
    options: dict[str, str], session: str | None, directory: str | None
) -> None:
    """The query's own option counts before the session's setting; other schemes are not seen."""
    given = write_options({"path": "/store", **options}, streaming=True)
    assert checkpoint_directory(given, session) == directory
