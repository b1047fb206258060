"""Spark's own log of a streaming query, beside the ledger: which input a micro-batch has.

Spark writes the files of a checkpoint by rename and syncs none of them. After a power failure the
newest may be gone or empty, while the store holds what was committed. Spark then plans a
micro-batch of the same number anew, with more input.

YD1. Before a micro-batch is committed, what Spark needs to repeat it with the same input is durable
    where the checkpoint is a directory that this machine sees: the query's id, the end offsets of
    the micro-batch and of the one before it, and the logs that its sources keep.
YD2. The digest of an input is that of the end offsets of all its sources, whatever they are, and
    of the files that a source of files means by its offset. It does not contain what differs when
    the same micro-batch is planned again, such as the time.
- A checkpoint on another file system (hdfs, s3) is not seen here: its input is UNKNOWN, and that it
  outlives a power failure is that file system's promise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from msgspec import Struct, field

from quire.env import Env, OsEnv
from quire.spark_graphs.limits import DIGEST_BITS, KNOWN_CHECKPOINTS

from .file_sync import sync_file, sync_names

UNKNOWN = 0  # the digest of an input that cannot be seen
_FIRST_OFFSET = 2  # the line of the first source, after the version and the run


class _Secured(Struct):
    """The entries of one query's checkpoint that this process has made durable."""

    last_batch: int = -1
    sources: set[str] = field(default_factory=set)  # their directories
    source_files: set[str] = field(default_factory=set)


# By directory and query: a checkpoint that was deleted and made again is another query's.
_secured: dict[tuple[str, str], _Secured] = {}


class OffsetLog:
    """The checkpoint of one query, in a directory that is local or not there at all."""

    def __init__(self, directory: str | None, query_id: str, env: Env | None = None) -> None:
        self._directory = directory
        self._query_id = query_id
        self._env = env or OsEnv()

    def secure(self, batch_id: int) -> int:
        """Make the log durable up to this micro-batch (YD1), and digest its input (YD2)."""
        directory = self._directory
        if directory is None:
            return UNKNOWN
        try:
            text = self._read(f"{directory}/offsets/{batch_id}")
            metadata = self._read(f"{directory}/metadata")
        except (FileNotFoundError, NotADirectoryError):
            return UNKNOWN  # the path is one of another file system, or of another machine
        if not _is_of_query(metadata, self._query_id):
            return UNKNOWN
        self._sync(directory, batch_id)
        return digest(text, self._found_files(f"{directory}/sources", text))

    def _found_files(self, sources: str, text: bytes) -> list[bytes]:
        """Return what Spark's source of files has logged under its offset's number."""
        found = []
        for source, line in enumerate(text.split(b"\n")[_FIRST_OFFSET:]):
            number = _log_offset(line)
            if number is not None:
                found += [
                    self._read(path)
                    for path in (
                        f"{sources}/{source}/{number}",
                        f"{sources}/{source}/{number}.compact",
                    )
                    if self._env.exists(path)
                ]
        return found

    def _sync(self, directory: str, batch_id: int) -> None:
        known = _known(directory, self._query_id)
        if known.last_batch < 0:
            sync_file(self._env, f"{directory}/metadata")
        if known.last_batch != batch_id - 1 and self._env.exists(
            f"{directory}/offsets/{batch_id - 1}"
        ):
            sync_file(self._env, f"{directory}/offsets/{batch_id - 1}")
        sync_file(self._env, f"{directory}/offsets/{batch_id}")
        self._env.sync_directory(f"{directory}/offsets")
        self._sync_sources(f"{directory}/sources", known)
        if known.last_batch < 0:
            sync_names(self._env, directory)
        known.last_batch = batch_id

    def _sync_sources(self, sources: str, known: _Secured) -> None:
        """Sync what sources log themselves: files that were found, Kafka's first offsets."""
        if not self._env.exists(sources):
            return
        found = set()
        numbers = self._env.list_directory(sources)
        for number in numbers:
            source = f"{sources}/{number}"
            files = {f"{source}/{name}" for name in self._env.list_directory(source)}
            new = {path for path in files - known.source_files if _is_log_file(path)}
            for path in sorted(new):
                sync_file(self._env, path)
            if new:
                self._env.sync_directory(source)
            found |= files
        if known.sources != set(numbers):
            self._env.sync_directory(sources)
        known.sources, known.source_files = set(numbers), found

    def _read(self, path: str) -> bytes:
        return read_file(self._env, path)


def read_file(env: Env, path: str) -> bytes:
    """Read all of a file of Spark's. Raises FileNotFoundError."""
    file = env.open_file(path, read_only=True)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def digest(text: bytes, found_files: Iterable[bytes] = ()) -> int:
    """A number of DIGEST_BITS, not UNKNOWN, for the file of a micro-batch in the offset log.

    The file's second line is about the run: the time, the watermark, the configuration (YD2).
    """
    lines = text.split(b"\n")
    parts = b"\n".join([*lines[:1], *lines[_FIRST_OFFSET:], *found_files])
    found = hashlib.blake2b(parts, digest_size=DIGEST_BITS // 8)
    return int.from_bytes(found.digest(), "little") or 1


def _log_offset(line: bytes) -> int | None:
    try:
        number = json.loads(line)["logOffset"]
    except (ValueError, TypeError, KeyError):
        return None
    return number if isinstance(number, int) else None


def _is_of_query(metadata: bytes, query_id: str) -> bool:
    try:
        return bool(json.loads(metadata)["id"] == query_id)
    except (ValueError, TypeError, KeyError):
        return False


def _is_log_file(path: str) -> bool:
    return not path.rpartition("/")[2].startswith(".")  # checksums, and files that are not ready


def _known(directory: str, query_id: str) -> _Secured:
    key = directory, query_id
    known = _secured.pop(key, None) or _Secured()
    while len(_secured) >= KNOWN_CHECKPOINTS:
        _secured.pop(next(iter(_secured)))
    _secured[key] = known  # the newest is the last
    return known
