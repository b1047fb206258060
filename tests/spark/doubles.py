"""Sinks that stop, fail or forget where a test wants it. Spark's workers import this module too.

The control directory of a test (option `control`) holds empty files that switch things on:

    hold-before, hold-after     the commit waits while the file is there, and reports `holding`
    hold-write                  a task that has written waits, and reports `writing` with its pid
    fail-before, fail-after     the commit fails once, before it takes effect or after
    fail-task                   one task fails once, after it has written everything
    kill-owner                  the store's owner is killed once, between two steps of the commit

and the sink reports by creating committed-<batch id> there.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from quire.env import OsEnv
from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint.offset_log import UNKNOWN, OffsetLog
from quire.spark_graphs.checkpoint.offsets import Offset, Positions
from quire.spark_graphs.fragments.fragment import Fragment, TaskMessage
from quire.spark_graphs.graphs.batches.task_store import TaskStore
from quire.spark_graphs.options import WriteOptions, read_options, write_options
from quire.spark_graphs.planning.batch_reader import BatchReader
from quire.spark_graphs.planning.stream_reader import StreamReader
from quire.spark_graphs.reading.partition import QuirePartition
from quire.spark_graphs.source import QuireDataSource
from quire.spark_graphs.writing.row_sink import Routes
from quire.spark_graphs.writing.sink_committer import FragmentCommitter
from quire.spark_graphs.writing.sink_writer import StreamWriter, checkpoint_directory
from quire.spark_graphs.writing.write_ledger import StreamLedger


class Control:
    """The control directory."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def take(self, name: str) -> bool:
        """Whether the file was there; it is not any more."""
        try:
            os.unlink(self.path / name)
        except FileNotFoundError:
            return False
        return True

    def hold(self, name: str) -> None:
        """Wait while the file is there, but not for ever."""
        deadline = time.monotonic() + 300
        while (self.path / name).exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def write(self, name: str, text: str) -> None:
        """Make the file, with all of its text at once."""
        unfinished = self.path / f"{name}-{uuid.uuid4()}"
        unfinished.write_text(text)
        unfinished.rename(self.path / name)

    def note(self, name: str, line: str) -> None:
        """Append a line to the file."""
        with (self.path / name).open("a") as file:
            file.write(f"{line}\n")

    def report(self, name: str) -> None:
        """Create the file."""
        (self.path / name).touch()


class SteeredCommitter(FragmentCommitter):
    """Fails, or has the owner killed, when it is told to."""

    control: Control

    def _put(self, store: Any, txn: Any, fragments: list[Fragment]) -> None:
        super()._put(store, txn, fragments)
        if self.control.take("kill-owner"):
            os.kill(store.owner_process_id, signal.SIGKILL)
            time.sleep(0.3)


class SteeredWriter(StreamWriter):
    """The real writer under a test's control."""

    def __init__(self, control: str, options: WriteOptions, schema: StructType, over: bool) -> None:
        super().__init__(options, schema, over)
        self.control = Control(control)

    def secure(self, query_id: str, checkpoints: str | None, batch_id: int) -> int:
        env: Any = Recorded(OsEnv(), self.control)
        return OffsetLog(checkpoint_directory(self._options, checkpoints), query_id, env).secure(
            batch_id
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        assert isinstance(message, TaskMessage)
        if message.fragments and (self.control.path / "hold-write").exists():
            self.control.write("writing", str(os.getpid()))
            self.control.hold("hold-write")
        if message.fragments and self.control.take("fail-task"):
            raise RuntimeError("the test wanted this task to fail")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        if (self.control.path / "hold-before").exists():
            self.control.report("holding")
        self.control.hold("hold-before")
        if self.control.take("fail-before"):
            raise RuntimeError("the test wanted this commit to fail")
        super().commit(messages, batch_id)
        self.control.report(f"committed-{batch_id}")
        if self.control.take("fail-after"):
            raise RuntimeError("the test wanted this commit to fail after it took effect")
        self.control.hold("hold-after")

    def committer(self, ledger: StreamLedger | None) -> FragmentCommitter:
        options = self._options
        made = SteeredCommitter(options.path, ledger, options.queue_full_timeout)
        made.control = self.control
        return made


class Recorded:
    """The real environment or file; `synced` in the control directory names what is synced."""

    def __init__(self, real: Any, control: Control, path: str = "") -> None:
        self._real, self._control, self._path = real, control, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def open_file(self, path: str, **options: bool) -> Any:
        return Recorded(self._real.open_file(path, **options), self._control, path)

    def sync(self) -> None:
        self._real.sync()
        self._control.note("synced", self._path)

    def sync_directory(self, path: str) -> None:
        self._real.sync_directory(path)
        self._control.note("synced", f"{path.rstrip('/')}/")


class TrustingWriter(SteeredWriter):
    """Goes by a micro-batch's number alone, and makes nothing of Spark's checkpoint durable."""

    def secure(self, query_id: str, checkpoints: str | None, batch_id: int) -> int:
        return UNKNOWN


class UnplannedReader(StreamReader):
    """Does not remember what was planned."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._planned.remember = lambda *_: None  # type: ignore[method-assign]
        return super().partitions(start, end)


class ForgetfulWriter(SteeredWriter):
    """Without the ledger: each commit has a key of its own, so that none is known already."""

    def committer(self, ledger: StreamLedger | None) -> FragmentCommitter:
        return super().committer(StreamLedger(str(uuid.uuid4()), 0))


class EagerWriter(SteeredWriter):
    """Commits in the task: what a failed attempt has written stays."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = StreamWriter.write(self, iterator)
        assert isinstance(message, TaskMessage)
        ledger = StreamLedger(f"eager:{uuid.uuid4()}", 0)
        FragmentCommitter(self._options.path, ledger, 60.0).commit(message.fragments)
        failing = message.fragments and self.control.take("fail-task")
        if failing:
            raise RuntimeError("the test wanted this task to fail")
        return replace(message, fragments=[])


class ForgetfulReader(StreamReader):
    """Asks anew where the query begins, and does not look into the end offset."""

    def initialOffset(self) -> dict[str, Positions]:  # noqa: N802
        ends = connection.call(self._options.path, self._now).positions
        return Offset.initial(ends).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        moved = Offset.from_json(start).moved_to(Offset.from_json(end).positions)
        return super().partitions(start, moved.to_json())


class SteeredSource(QuireDataSource):
    """`format("quire_steered")`: the real one, with a control directory."""

    writer_class: type[SteeredWriter] = SteeredWriter

    @classmethod
    def name(cls) -> str:
        return "quire_steered"

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        given: Mapping[str, str] = {k: v for k, v in self.options.items() if k != "control"}
        options = write_options(given, streaming=True)
        return self.writer_class(self.options["control"], options, schema, overwrite)


class UnplannedSource(SteeredSource):
    """`format("quire_unplanned")`: what was planned is in Spark's checkpoint only."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return UnplannedReader(read_options(self.options, streaming=True), schema)

    @classmethod
    def name(cls) -> str:
        return "quire_unplanned"


class TrustingSource(UnplannedSource):
    """`format("quire_trusting")`: the canary that believes what Spark's checkpoint says."""

    writer_class = TrustingWriter

    @classmethod
    def name(cls) -> str:
        return "quire_trusting"


class ForgetfulSource(SteeredSource):
    """`format("quire_forgetful")`: the canary, without a ledger."""

    writer_class = ForgetfulWriter

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return ForgetfulReader(read_options(self.options, streaming=True), schema)

    @classmethod
    def name(cls) -> str:
        return "quire_forgetful"


class EagerSource(SteeredSource):
    """`format("quire_eager")`: the canary whose tasks commit by themselves."""

    writer_class = EagerWriter

    @classmethod
    def name(cls) -> str:
        return "quire_eager"


class ElsewhereReader(BatchReader):
    """Plans where the store is; its tasks have another path, as on a host without the store."""

    elsewhere: str

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._reading = replace(self._reading, path=self.elsewhere)
        return super().read(partition)


class ElsewhereSource(QuireDataSource):
    """`format("quire_elsewhere")`: its executors do not have the store's files."""

    @classmethod
    def name(cls) -> str:
        return "quire_elsewhere"

    def reader(self, schema: StructType) -> DataSourceReader:
        given = {k: v for k, v in self.options.items() if k != "elsewhere"}
        reader = ElsewhereReader(read_options(given, streaming=False), schema)
        reader.elsewhere = self.options["elsewhere"]
        return reader


class SteeredFiles(TaskStore, frozen=True, kw_only=True):
    """What the tasks of a graph's step have, under a test's control.

    A task that has read anything adds a line to the file `read` of the control directory.
    """

    control: str

    def read(self, part: QuirePartition, words: str | None) -> Iterator[pa.RecordBatch]:
        Control(self.control).note("read", str(os.getpid()))
        return super().read(part, words)

    def write(
        self, rows: Iterator[pa.RecordBatch], queue: str | None, routes: Routes | None
    ) -> list[Fragment]:
        fragments = super().write(rows, queue, routes)
        steering = Control(self.control)
        if fragments and (steering.path / "hold-write").exists():
            steering.write("writing", str(os.getpid()))
            steering.hold("hold-write")
        if fragments and steering.take("fail-task"):
            raise RuntimeError("the test wanted this task to fail")
        return fragments


class EagerFiles(SteeredFiles, frozen=True):
    """The canary: tasks put what they write by themselves."""

    def write(
        self, rows: Iterator[pa.RecordBatch], queue: str | None, routes: Routes | None
    ) -> list[Fragment]:
        batches = list(rows)
        again = TaskStore.write(self, iter(batches), queue, routes)
        FragmentCommitter(self.path, StreamLedger(f"eager:{uuid.uuid4()}", 0), 60.0).commit(again)
        super().write(iter(batches), queue, routes)
        return []


ALL = (
    SteeredSource, UnplannedSource, TrustingSource, ForgetfulSource, EagerSource, ElsewhereSource,
)  # fmt: skip
