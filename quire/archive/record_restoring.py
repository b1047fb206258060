"""Records of an archive's entries, put behind those of a store that was built of a base.

- RR1: before that the store has the state that was backed up, by its hash. Each record follows the
  one before, and is verified with its blocks; a large transaction's file is, by its trailer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import closing

from quire.engine.built_beside import BuiltStore
from quire.engine.checkpoints.record_appending import RecordAppender
from quire.errors import ArchiveCorrupt, StoreCorrupt
from quire.ltds import LtdsReader, path_of

from . import format
from .choosing import RestorePoint
from .entry_reading import records
from .manifest import Manifest
from .object_reading import ObjectReading, contradictions, damaged


class RecordRestoring:
    """Appends the records up to one point."""

    def __init__(self, built: BuiltStore, point: RestorePoint, read: ObjectReading) -> None:
        self._store = built
        self._point = point
        self._read = read
        self._store_id = int(point.manifest.store_id, 16)
        self.number = point.manifest.number  # of the latest record
        self.time_us = point.manifest.time_us

    def run(self, advance: Callable[[int], None]) -> None:
        """Append them (RR1); `advance` is called with the bytes that each has."""
        point, manifest = self._point, self._point.manifest
        ends = [head.last_number for head in point.heads]
        name, time_us = manifest.state.name, 0
        with contradictions(name):
            appender = self._appender()
        with closing(appender):
            with contradictions(name):
                state_hash = appender.state_hash()
            check_state(manifest, appender.number, state_hash, manifest.number)
            for record in records(self._read, point.heads):
                time_us = max(time_us, record.time_us)
                if record.number <= manifest.number:
                    continue
                if self._is_beyond(record.number, time_us):
                    break
                name = point.heads[bisect_left(ends, record.number)].name
                with contradictions(name):
                    appender.append(record.record, record.attachment)
                self.number, self.time_us = record.number, max(self.time_us, time_us)
                advance(len(record.record) + len(record.attachment))
            with contradictions(name):
                appender.finish()

    def forget_archive(self) -> None:
        """Remove the archive from the catalog, by a record of its own (BR3)."""
        with contradictions(self._point.manifest.state.name), closing(self._appender()) as appender:
            appender.remove_entries(format.CATALOG_ENTRY)

    def _appender(self) -> RecordAppender:
        return RecordAppender(*self._store, self._fetch_file)

    def _is_beyond(self, number: int, time_us: int) -> bool:
        point = self._point
        return (point.number is not None and number > point.number) or (
            point.time_us is not None and time_us > point.time_us
        )

    def _fetch_file(self, ltds_id: int, trailer: int) -> int:
        """Copy a large transaction's file, if it is not there; its bytes."""
        if self._store.env.exists(path_of(self._store.layout.ltds, ltds_id)):
            return 0
        pieces = self._read.all_of(format.file_name(ltds_id))
        size = write_file(self._store, ltds_id, pieces, lambda size: None)
        check_file(self._store, ltds_id, self._store_id, trailer)
        return size


def write_file(
    built: BuiltStore, ltds_id: int, pieces: Iterable[bytes], advance: Callable[[int], None]
) -> int:
    """Write a large transaction's file, durably but for its name; its bytes."""
    end = 0
    path = path_of(built.layout.ltds, ltds_id)
    with closing(built.env.open_file(path, exclusive=True)) as file:
        for data in pieces:
            file.write(end, data)
            end += len(data)
            advance(len(data))
        file.sync()
    return end


def check_file(built: BuiltStore, ltds_id: int, store_id: int, trailer: int) -> None:
    """Raise ArchiveCorrupt unless a file has the trailer that is named, by its checksum."""
    name = format.file_name(ltds_id)
    try:
        with LtdsReader(built.env, built.layout.ltds, ltds_id, store_id) as reader:
            found = reader.checksum
    except StoreCorrupt as error:
        raise damaged(name, str(error)) from error
    if found != trailer:
        raise damaged(name, "its trailer is another file's")


def check_state(manifest: Manifest, number: int, state_hash: str, expected: int) -> None:
    """Raise ArchiveCorrupt unless a store of a base is at the record that is expected (BR2).

    At the base's own record the hash of its state is that of the store which was backed up.
    """
    if number != expected or (expected == manifest.number and state_hash != manifest.state_hash):
        raise ArchiveCorrupt(
            f"backup {manifest.base} gives another state than the store had at record {expected}: "
            f"{number}, {state_hash}; restore another backup, and report this"
        )
