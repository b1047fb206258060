"""The files of a query's checkpoint, made durable before the store lets go of what they tell of.

Spark writes its logs by rename and syncs nothing. A power failure may take their last entries away,
while the store's commits are durable: the query would then begin before what is released.

YK1. When `sync` has returned, what Spark had logged when it was called survives a power failure, as
    far as the checkpoint is on a file system of this machine. Elsewhere it is that system's to
    promise.
"""

from __future__ import annotations

import re

from quire.env import Env, OsEnv
from quire.errors import InvalidArgument
from quire.spark_graphs.limits import LOG_ENTRIES_NEEDED
from quire.spark_graphs.options import local_path

from .file_sync import sync_file, sync_names

_LOGS = ("offsets", "commits")
_IDENTITY = ("metadata", ".metadata.crc")  # the query's id
_ENTRY = re.compile(r"\.?(\d+)(\.crc)?")  # an entry, or the checksum beside it


class CheckpointFiles:
    """The logs of one query.

    Args:
        location: the query's option `checkpointLocation`: an absolute path, or a URL.
    """

    def __init__(self, location: str, env: Env | None = None) -> None:
        self._env = env or OsEnv()
        self._location = location
        self._path = local_directory(location)
        self._synced = dict.fromkeys(_LOGS, -1)  # the last entry of each log that is durable

    def sync(self) -> None:
        """Make the checkpoint durable (YK1). Raises OSError: then nothing may be released."""
        if self._path is None:
            return
        if not self._env.exists(f"{self._path}/commits"):
            raise InvalidArgument(
                f"option 'checkpointLocation' of the source is '{self._location}', where no query "
                "has its checkpoint; give it the location that the query has (with its scheme, "
                "such as hdfs:, if that is not a path of this machine)"
            )
        if max(self._synced.values()) < 0:
            for name in _IDENTITY:
                sync_file(self._env, f"{self._path}/{name}")
            sync_names(self._env, self._path)
        for log in _LOGS:
            self._sync_log(log)

    def _sync_log(self, log: str) -> None:
        directory = f"{self._path}/{log}"
        found: dict[int, list[str]] = {}
        for name in self._env.list_directory(directory):
            match = _ENTRY.fullmatch(name)
            if match:
                found.setdefault(int(match[1]), []).append(name)
        new = [
            number for number in sorted(found)[-LOG_ENTRIES_NEEDED:] if number > self._synced[log]
        ]
        if new:
            for number in new:
                for name in found[number]:
                    sync_file(self._env, f"{directory}/{name}")
            self._env.sync_directory(directory)
            self._synced[log] = new[-1]


def local_directory(location: str) -> str | None:
    """The directory on this machine; None for a location that is elsewhere."""
    path = local_path(location)
    if re.match("[A-Za-z][A-Za-z0-9+.-]*:", path):
        return None
    if not path.startswith("/"):
        raise InvalidArgument(
            f"option 'checkpointLocation' of the source must be absolute, or a URL, not "
            f"'{location}'"
        )
    return path.rstrip("/") or "/"
