"""Verifying the entries of an archive, and all that they name.

- EC1: what is damaged or missing is named, and the rest is read nevertheless.
- EC2: what was merged or removed since it was listed is no damage: it is looked for again.
- Memory holds the heads of entries, an entry, and a piece of a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from quire.archive.objects import Objects
from quire.engine.checkpoints.record_appending import parts_of
from quire.engine.records import format as records_format
from quire.errors import (
    ArchiveCorrupt,
    ArchiveError,
    ArchiveRefused,
    ObjectNotFound,
    StoreCorrupt,
)
from quire.ltds import LtdsReader

from . import format
from .boundaries import newest_boundary
from .entry_reading import EntryHead, check_follows, entry_bytes, heads, opened, records_of
from .limits import READ_BYTES
from .object_reading import ObjectReading, ObjectSpan, contradictions


class EntryCheck:
    """One look through all entries."""

    def __init__(self, objects: Objects, read: ObjectReading) -> None:
        self.findings: list[str] = []
        self.whole: list[EntryHead] = []
        """The entries that can be restored, with all that they name."""
        self.all: list[EntryHead] = []  # and those that cannot
        self.names: set[str] = set()  # of objects that entries are in or need
        self.bytes = 0
        self._objects = objects
        self._read = read
        self._unreadable: set[str] = set()  # objects, of whose entries not even heads are known
        self._files: dict[str, str] = {}  # the damage of each that was read; empty: none

    def run(self) -> None:
        """Read all of it (EC1). Raises ArchiveFailed."""
        boundary = newest_boundary(self._objects)
        place = boundary.boundary.place
        rest = self._listed(place)
        self.findings += map(str, boundary.damage)
        self._check_first(rest, place)
        while rest:
            try:
                for head, data in entry_bytes(self._read, rest):
                    place = head.place
                    self._check(head, data)
            except ArchiveCorrupt as error:  # an object is missing
                rest = self._again(rest, place, error)
            else:
                break
        self._check_chain()

    def _listed(self, place: int) -> list[EntryHead]:
        """Return the entries behind a place that have heads; damage is found."""
        damage: dict[str, ArchiveError] = {}
        found = [head for head in heads(self._objects, self._read, damage) if head.place > place]
        self.findings += [str(damage[name]) for name in damage if name not in self._unreadable]
        self._unreadable.update(damage)
        return found

    def _is_unreadable(self, place: int) -> bool:
        """Return True if an entry is in an object that cannot be read, which was found."""
        return format.entry_name(place) in self._unreadable or any(
            name.startswith(format.MERGED)
            and format.places_of(name)[0] <= place <= format.places_of(name)[1]
            for name in self._unreadable
        )

    def _check_first(self, found: Sequence[EntryHead], place: int) -> None:
        if found and found[0].place > place + 1 and not self._is_unreadable(place + 1):
            self.findings.append(
                f"the entries from {format.entry_name(place + 1)} to before {found[0].name} are "
                f"missing, or an object below {format.BOUNDARY} that says that they are not needed"
            )

    def _again(
        self, rest: Sequence[EntryHead], place: int, error: ArchiveCorrupt
    ) -> list[EntryHead]:
        """Return what is left to be read, where an object was missing behind a place (EC2)."""
        lost = next(head for head in rest if head.place > place)
        boundary = newest_boundary(self._objects).boundary.place
        found = self._listed(max(place, boundary))
        if lost in found:  # it is listed, and cannot be read
            self.findings.append(str(error))
            self._unreadable.add(lost.name)
            self.all += [head for head in found if head.name == lost.name]
            found = [head for head in found if head.name != lost.name]
        return found

    def _check(self, head: EntryHead, data: bytes) -> None:
        self.all.append(head)
        self.names.add(head.name)
        self.bytes += head.length
        try:
            entry = opened(data, head.name, head)
            self.names.update(entry.names)
            for record in records_of(entry, self._read):
                where = f"{head.name}, record {record.number}"
                with contradictions(where):
                    parts = list(parts_of(record.record, where))
                for part in parts:
                    if part.kind == records_format.LTDS:
                        self._check_file(part.address, part.checksum, entry.store_id)
        except (ArchiveCorrupt, ArchiveRefused) as error:
            if not self._is_removed(head, error):
                self.findings.append(str(error))
        else:
            self.whole.append(head)

    def _is_removed(self, head: EntryHead, error: ArchiveError) -> bool:
        """Return True if what an entry names is gone as the entry is not needed any more (EC2)."""
        if not isinstance(error.__context__, ObjectNotFound):
            return False
        return head.place <= newest_boundary(self._objects).boundary.place

    def _check_file(self, ltds_id: int, trailer: int, store_id: int) -> None:
        """Read a large transaction's file, if it was not read before. Raises ArchiveCorrupt."""
        name = format.file_name(ltds_id)
        if name not in self._files:
            self._files[name] = self._damage_of_file(ltds_id, trailer, store_id)
        if self._files[name]:
            raise ArchiveCorrupt(self._files[name])

    def know_file(self, name: str) -> None:
        """Note a file that was read as a part of a base, and is whole."""
        self._files[name] = ""

    def _damage_of_file(self, ltds_id: int, trailer: int, store_id: int) -> str:
        name = format.file_name(ltds_id)
        try:
            files = _ObjectFiles(self._read, name)
            with contradictions(name), LtdsReader(files, "", ltds_id, store_id) as reader:
                self.bytes += reader.bytes
                if trailer != reader.checksum:
                    raise StoreCorrupt("its trailer is another file's")
                for _ in reader.contents(range(reader.block_count)):
                    pass
        except (ArchiveCorrupt, ArchiveRefused) as error:
            return str(error)
        return ""

    def _check_chain(self) -> None:
        """Find missing places, and entries that do not follow those before them."""
        self.all.sort()
        for before, head in pairwise(self.all):
            if head.place > before.place + 1:
                if not self._is_unreadable(before.place + 1):
                    self.findings.append(
                        f"entries {before.place + 1} to {head.place - 1} of the archive are missing"
                        f": {format.entry_name(before.place + 1)}, or merged entries that have it"
                    )
                continue
            try:
                check_follows(before, head)
            except ArchiveCorrupt as error:
                self.findings.append(str(error))


class _ObjectFiles:
    """An environment of one file, which is an object."""

    def __init__(self, read: ObjectReading, name: str) -> None:
        self._read = read
        self._name = name

    def open_file(self, path: str, *, read_only: bool = False) -> _ObjectFile:
        return _ObjectFile(self._read, self._name)


class _ObjectFile:
    """An object that is read as a file is, from its beginning to its end."""

    def __init__(self, read: ObjectReading, name: str) -> None:
        self._read = read
        self._name = name
        self._size = read.size(name)
        self._start, self._data = 0, b""

    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self._size)
        if not self._start <= offset <= end <= self._start + len(self._data):
            ahead = max(end - offset, min(READ_BYTES, self._size - offset))
            starts = range(offset, offset + ahead, READ_BYTES)
            spans = (
                ObjectSpan(self._name, at, min(READ_BYTES, offset + ahead - at)) for at in starts
            )
            self._start = offset
            self._data = b"".join(data for _, data in self._read.spans(spans))
        return self._data[offset - self._start : end - self._start]

    def read_block(self, offset: int, length: int) -> bytes:
        return self.read(offset, length)

    def close(self) -> None:
        """Do nothing: nothing is open."""
