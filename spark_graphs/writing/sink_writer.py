"""Sinks: tasks write fragments, and the commit makes them one transaction over all queues.

YW1. Spark may repeat a micro-batch, also one that is committed; the ledger (write_ledger.py) makes
    the repetition a success without effect, and its fragments are thrown away as a whole. What has
    the number of a committed one and another input is an error.
- What an attempt of a task wrote counts only by the one message that Spark hands to the commit.
YW3. `abort` never undoes a commit and never raises.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from quire.errors import InvalidArgument, QuireError
from quire.libraries import pa
from quire.spark_graphs import connection
from quire.spark_graphs.checkpoint.offset_log import OffsetLog
from quire.spark_graphs.first_line import first_line
from quire.spark_graphs.fragments.fragment import Fragment, TaskMessage
from quire.spark_graphs.fragments.fragment_file import FragmentWriter
from quire.spark_graphs.options import WriteOptions, local_path
from quire.spark_graphs.pyspark_features import StreamArrowWriter
from quire.spark_graphs.schema import check_sink_schema
from quire.spark_graphs.task_files.task_files import files_at
from quire.spark_graphs.worker_garbage import leave_out_modules

from . import row_sink
from .content_digest import ContentDigests, sum_of_digests
from .routing import gathered, routed
from .row_sink import Routes
from .sink_committer import FragmentCommitter
from .write_ledger import BatchLedger, StreamLedger

if TYPE_CHECKING:
    from quire.interface.store import Store

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
CHECKPOINTS = "spark.sql.streaming.checkpointLocation"

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]+:")  # of another file system

_log = logging.getLogger("quire.spark_graphs")


@first_line
class BatchWriter(DataSourceArrowWriter):
    """One batch write. It is repeated without effect if txnAppId and txnVersion say which it is."""

    def __init__(
        self,
        options: WriteOptions,
        schema: StructType,
        overwrite: bool,
        routes: Routes | None = None,
    ) -> None:
        """`routes`: of rows for typed queues; None: the rows are messages of bytes."""
        _refuse_overwrite(overwrite)
        if routes is None:
            check_sink_schema(schema, options.queue)
        self._options, self._routes = options, routes
        self._target = target_at(options.path)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options = self._options
        if options.app_id is None or not options.check_content:
            found = write_fragments(iterator, options, self._target, self._routes)
            return TaskMessage(found, query_id=_query_id())
        digests = ContentDigests(options.queue)
        rows = digests.passed(iterator)
        found = write_fragments(rows, options, self._target, self._routes)
        return TaskMessage(found, query_id=_query_id(), contents=digests.by_queue)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        options, ledger = self._options, None
        if options.app_id is not None and options.version is not None:
            found = _task_messages(messages)
            contents = sum_of_digests(message.contents for message in found)
            query_id = next((m.query_id for m in found if m.query_id is not None), None)
            ledger = BatchLedger(
                options.app_id,
                options.version,
                contents if options.check_content else None,
                query_id,
            )
        self.committer(ledger).commit(_fragments(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(self.committer(None), messages)

    def committer(self, ledger: BatchLedger | None) -> FragmentCommitter:
        return FragmentCommitter(self._options.path, ledger, self._options.queue_full_timeout)


@first_line
class StreamWriter(StreamArrowWriter):
    """The sink of one streaming query; Spark makes one for each task and each commit."""

    def __init__(
        self,
        options: WriteOptions,
        schema: StructType,
        overwrite: bool,
        routes: Routes | None = None,
        *,
        plans: bool = True,
    ) -> None:
        """`routes`: of rows for typed queues; None: the rows are messages of bytes.

        `plans`: False for one that only commits, which does not ask what tasks need.
        """
        _refuse_overwrite(overwrite)
        if routes is None:
            check_sink_schema(schema, options.queue)
        self._options, self._routes = options, routes
        self._target = target_at(options.path) if plans else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query_id = _query_id()
        batch_id = context.getLocalProperty(BATCH_ID) if context else None
        if context is None or query_id is None or batch_id is None:
            raise InvalidArgument(
                "this task knows neither query id nor batch id, by which its messages are written "
                "only once; a streaming sink of format 'quire' runs in a streaming query only"
            )
        assert self._target is not None  # it was planned
        return TaskMessage(
            write_fragments(iterator, self._options, self._target, self._routes),
            query_id=query_id,
            run_id=context.getLocalProperty(RUN_ID),
            batch_id=int(batch_id),
            checkpoints=context.getLocalProperty(CHECKPOINTS),
        )

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        found = _task_messages(messages)
        query_ids = {message.query_id for message in found}
        # A micro-batch has one message at least, also without rows, and all are of one query.
        if len(query_ids) != 1 or None in query_ids:
            raise InvalidArgument(f"a micro-batch must be of one query, not of {query_ids}")
        fragments = _fragments(messages)
        if not fragments:
            return  # nothing to find again, and so nothing to make durable
        query_id = str(query_ids.pop())
        digest = self.secure(query_id, found[0].checkpoints, batch_id)
        ledger = StreamLedger(query_id, batch_id, digest, self._options.queue)
        self.committer(ledger).commit(fragments)

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        _abort(self.committer(None), messages)

    def secure(self, query_id: str, checkpoints: str | None, batch_id: int) -> int:
        """Make durable what Spark would repeat the micro-batch from; the digest of its input."""
        directory = checkpoint_directory(self._options, checkpoints)
        return OffsetLog(directory, query_id).secure(batch_id)

    def committer(self, ledger: StreamLedger | None) -> FragmentCommitter:
        """Return what commits a micro-batch; tests have sinks whose committer forgets."""
        return FragmentCommitter(self._options.path, ledger, self._options.queue_full_timeout)


def checkpoint_directory(options: WriteOptions, checkpoints: str | None) -> str | None:
    """The path of the query's checkpoint; None if it is not in this machine's file systems.

    Args:
        checkpoints: where the session keeps them, by the names of the queries, unless told
            otherwise.
    """
    location = options.checkpoint
    if location is None and checkpoints and options.query_name:
        location = f"{checkpoints}/{options.query_name}"
    path = None if location is None else local_path(location)
    return None if path is None or _SCHEME.match(path) else path.rstrip("/")


def _query_id() -> str | None:
    """Return the streaming query that the task is of; None: it is of none, or does not know."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(QUERY_ID)


class Target(NamedTuple):
    """The facts that tasks that write know of their store."""

    store_id: int
    priorities: Mapping[str, int]  # by queue, of messages that say none


def target_at(path: str) -> Target:
    """It is asked where a write is planned, since its tasks join no owner."""
    return connection.call(path, target_of)


def target_of(store: Store) -> Target:
    """Return what is known of it now."""
    return Target(store.integration.store_id, store.integration.put_priorities())


def write_fragments(
    batches: Iterator[pa.RecordBatch],
    options: WriteOptions,
    target: Target,
    routes: Routes | None = None,
) -> list[Fragment]:
    """A task's messages, durable or in the fragments themselves; nothing is left if it fails."""
    context = TaskContext.get()
    writer = FragmentWriter(
        options.path,
        target.store_id,
        codec=options.codec,
        priorities=target.priorities,
        partition=0 if context is None else context.partitionId(),
    )
    try:
        with files_at(options.path).seen():
            if routes is not None:
                for queue, rows in row_sink.routed(
                    batches, options.queue, routes, target.priorities
                ):
                    writer.add_rows(queue, rows)
                return writer.finish()
            for batch in gathered(batches, options.queue):
                writer.add(*routed(batch, options.queue))
            fragments = writer.finish()
    except BaseException:
        writer.abort()
        raise
    leave_out_modules()
    return fragments


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgument(
            "format 'quire' only appends: messages that were put cannot be replaced. Use "
            "outputMode('append') or mode('append')"
        )


def _task_messages(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    return [message for message in messages if isinstance(message, TaskMessage)]


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> list[Fragment]:
    """All fragments in the order of the tasks, which is that of the rows."""
    return [fragment for message in _task_messages(messages) for fragment in message.fragments]


def _abort(committer: FragmentCommitter, messages: Sequence[WriterCommitMessage | None]) -> None:
    # Where every task has a message, a commit may have run, and its outcome may be unknown here;
    # the files are the owner's to reclaim then. Where one has none, there was no commit.
    if all(message is not None for message in messages):
        return
    try:
        committer.discard(_fragments(messages))
    except (QuireError, OSError) as error:
        _log.warning("fragments of an aborted write are left to age: %s", error)
