"""The last entry of a query's commit log, put back where it is lost and the store knows of it.

Spark repeats a micro-batch whose entry in `commits` is gone. It cannot where the store has let go
of the messages since: the query would never go on, though all that it had to do was done.

YLC1. With the subscription's position the store's ledger is told how far Spark has committed the
    query, by the query's id, in one transaction. So what is known there Spark's own log has said.
YLC2. The entry is put back before Spark reads its log, and only for the last micro-batch that is
    planned, where the ledger says of all the queues of a source that Spark has committed as much.
    Where it does not, Spark repeats the micro-batch, whose messages are there still.
- The entry says the watermark that the micro-batch had, since that of the next one is lost: it
  comes with the next messages. A query whose state goes by ids that only the entry had (Spark's
  checkpoint format 2 of state stores) is left as it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from quire.env import Env, OsEnv
from quire.errors import InvalidArgument
from quire.spark_graphs import connection
from quire.spark_graphs.options import ReadOptions

from .checkpoint_files import local_directory
from .offset_log import read_file
from .offsets import Offset

if TYPE_CHECKING:
    from quire.interface.store import Store

_VERSION = "v1"
_STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"

_log = logging.getLogger("quire.spark_graphs")


class CommitLog:
    """Spark's log of what it has committed of one query, and what the store knows of it.

    Args:
        options: those of one of the query's sources, whose checkpoint is known.
    """

    def __init__(self, options: ReadOptions, env: Env | None = None) -> None:
        self._path = options.path
        self._queues = options.queues
        self._env = env or OsEnv()
        self._subscription = options.subscription or ""
        directory = None if options.checkpoint is None else local_directory(options.checkpoint)
        self._directory = directory
        self._query_id: str | None = None

    def keys(self, end: Offset, queues: Iterable[str]) -> dict[str, str]:
        """The ledger's names for how far Spark has committed the query, by queue (YLC1)."""
        query_id = self._id()
        if query_id is None:
            return {}
        return {
            queue: f"spark-read:{query_id}/{self._subscription}/{queue}@{end.created_us[queue]}"
            for queue in queues
            if queue in end.created_us
        }

    def put_back(self) -> None:
        """Have the last entry be there again (YLC2)."""
        directory = self._directory
        if directory is None or self._id() is None:
            return
        planned, committed = self._last("offsets"), self._last("commits")
        if planned is None or planned == committed:
            return
        lines = read_file(self._env, f"{directory}/offsets/{planned}").decode().splitlines()
        entry = _entry(lines)
        ends = [each for each in map(_offset, lines[2:]) if each is not None]
        mine = [each for each in ends if set(each.positions) == set(self._queues)]
        if entry is None or not mine:
            return
        if connection.call(self._path, lambda store: all(self._is_past(store, e) for e in mine)):
            self._write(f"{directory}/commits", planned, entry)
            _log.warning(
                "micro-batch %d was committed, and its entry in %s/commits was gone: it is put "
                "back, and the query goes on behind it",
                planned,
                directory,
            )

    def _is_past(self, store: Store, end: Offset) -> bool:
        keys = self.keys(end, end.positions)
        known = store.integration.ledger_many(keys.values())
        return keys.keys() == end.positions.keys() and all(
            known.get(key, -1) >= end.positions[queue] for queue, key in keys.items()
        )

    def _write(self, directory: str, number: int, entry: str) -> None:
        """Write as Spark does, by another name first; an older entry's checksum would not fit."""
        new, crc = f"{directory}/.{number}.tmp", f"{directory}/.{number}.crc"
        file = self._env.open_file(new, create=True)
        try:
            file.truncate(0)
            file.write(0, entry.encode())
            file.sync()
        finally:
            file.close()
        if self._env.exists(crc):
            self._env.remove(crc)
        self._env.rename(new, f"{directory}/{number}")
        self._env.sync_directory(directory)

    def _last(self, log: str) -> int | None:
        directory = f"{self._directory}/{log}"
        if not self._env.exists(directory):
            return None
        names = self._env.list_directory(directory)
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _id(self) -> str | None:
        """Return the query's id; None: it has no checkpoint yet, or one that cannot be seen."""
        if self._query_id is None and self._directory is not None:
            path = f"{self._directory}/metadata"
            if self._env.exists(path):
                found = _json(read_file(self._env, path).decode()).get("id")
                self._query_id = found if isinstance(found, str) else None
        return self._query_id


def _entry(lines: list[str]) -> str | None:
    """Return what Spark's commit log is to have for a micro-batch; None: it cannot be said."""
    if len(lines) < 2 or lines[0] != _VERSION:
        return None
    run = _json(lines[1])
    conf = run.get("conf")
    if not isinstance(conf, Mapping) or conf.get(_STATE_FORMAT, "1") != "1":
        return None
    watermark = json.dumps({"nextBatchWatermarkMs": int(run.get("batchWatermarkMs", 0))})
    return f"{_VERSION}\n{watermark}"


def _offset(line: str) -> Offset | None:
    """A source's end, where it is one of this format."""
    try:
        return Offset.from_json(_json(line))
    except InvalidArgument:
        return None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
