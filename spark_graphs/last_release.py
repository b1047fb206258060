"""The release of a streaming query's last micro-batch, when the query has ended.

A source learns that a micro-batch is committed when Spark asks it for the next one. Of the last one
of a query nobody asks: its messages would stay until the query starts again, for ever with
`Trigger.Once`. The process of the source ends with the query; the program that runs it does not.

What is released is what Spark has reported of the query as done, which it does after it has
    logged the micro-batch as committed. Where another query has the subscription by now, or the
    store is not of this machine, nothing is: the next start of the query does it.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from pyspark.sql.streaming.listener import StreamingQueryListener

from quire.errors import QuireError

from . import connection
from .checkpoint.offsets import Offset
from .options import read_options
from .planning.retention import QueryRetention

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("quire.spark_graphs")


class ReadSource(Struct, frozen=True):
    """The progress of a query's source."""

    path: str
    end: Offset
    checkpoint: str | None


class LastRelease(StreamingQueryListener):
    """Listens to a session's queries, and releases what they have read last."""

    def __init__(self) -> None:
        self._sources: dict[str, list[ReadSource]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is read yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """The source has looked for more, and has released what there was."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        found = [_source(each.endOffset, each.latestOffset) for each in progress.sources]
        self._sources[str(progress.runId)] = [each for each in found if each is not None]

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        for source in self._sources.pop(str(event.runId), []):
            try:
                release(source)
            except (QuireError, OSError) as error:
                _log.info("the last micro-batch of a query is not released: %s", error)


def release(source: ReadSource) -> None:
    """Let go of what the query has read, and is committed. Raises QueueInUse, StoreNotFound."""
    options = {
        "path": source.path,
        "subscribe": ",".join(source.end.positions),
        "subscription": source.end.subscription or "",
        "networkFileSystem": "true",  # the query was asked
    }
    if source.checkpoint is not None:
        options["checkpointLocation"] = source.checkpoint
    is_connected = connection.owner_of(source.path) is not None
    retention = QueryRetention(read_options(options, streaming=True))
    try:
        retention.read_to(source.end)
    finally:
        retention.end()
        if not is_connected:  # else it is a graph's, or of another part of the program
            connection.forget(source.path)


def _source(end: str | None, latest: str | None) -> ReadSource | None:
    """Return what a progress says of a source, if it is one of this format."""
    try:
        shown: dict[str, Any] = json.loads(latest or "")
        offset = Offset.from_json(json.loads(end or ""))
        path, checkpoint = shown["store"], shown.get("checkpoint")
    except (ValueError, KeyError, TypeError, QuireError):
        return None
    if not offset.positions or offset.subscription is None:
        return None
    return ReadSource(path, offset, checkpoint)
