"""The log of an archive: entries at places 1, 2, 3, ..., each of which is made once.

- LG1: an entry is made by a create that has one winner. After a create that was refused its place
  is read: there are the own bytes, which is success; others, which are handed back; or nothing, and
  it is tried again.
- LG2: places are dense above the last merged entries, and the newest entry is never removed: so the
  end of the log is found from the highest place that is listed, by steps that double, then by
  halving, never by the order of a listing. Where somebody has removed one, the end is behind it.
"""

from __future__ import annotations

from collections.abc import Iterable

from quire.errors import ArchiveCorrupt, ArchiveFailed, ObjectNotFound

from . import format
from .entry_reading import EntryHead, MergedIndex, OpenedEntry, merged_index, opened, read_span
from .limits import CREATE_TRIES, LISTINGS, MAX_CREATE_BYTES
from .object_reading import ObjectReading, ObjectSpan, damaged
from .objects import Objects


class EntryLog:
    """The entries of one archive."""

    def __init__(self, objects: Objects, read: ObjectReading) -> None:
        self._objects = objects
        self._read = read
        self._merged: dict[str, int] = {}  # names and bytes of merged entries, as last looked at
        self._index: tuple[str, MergedIndex] | None = None  # of the one that was read last

    def append(self, place: int, data: bytes) -> OpenedEntry | None:
        """Make the entry at a place; None if it has these bytes, else the one that is there (LG1).

        Raises ArchiveCorrupt for an entry there that is damaged, ArchiveFailed.
        """
        name = format.entry_name(place)
        for _ in range(CREATE_TRIES):
            if self._objects.create(name, data):
                return None
            found = self._single(place)
            if found is not None:
                return None if found == data else _checked(opened(found, name), place)
        raise ArchiveFailed(
            f"{self._objects.url}: {name} cannot be made, and is not there; look after the"
            " archive's server, then repeat the operation"
        )

    def entry(self, place: int) -> OpenedEntry | None:
        """Return the entry at a place, alone or merged; None: it is not there.

        Raises ArchiveCorrupt, ArchiveRefused.
        """
        for _ in range(LISTINGS):
            try:
                head = self._merged_head(place)
                if head is not None:
                    span = ObjectSpan(head.name, head.offset, head.length)
                    return opened(read_span(self._read, span), head.name, head)
            except ArchiveCorrupt as error:
                if not isinstance(error.__context__, ObjectNotFound):
                    raise
            else:
                data = self._single(place)
                if data is not None:
                    return _checked(opened(data, format.entry_name(place)), place)
            found = self._merged
            self.look()
            if self._merged == found:
                return None
        raise damaged(format.entry_name(place), "it is merged anew each time that it is read")

    def look(self) -> None:
        """List the merged entries, as they are now."""
        self._index = None
        self._merged = {
            info.name: info.bytes
            for info in self._objects.list(format.MERGED)
            if format.is_name(info.name)
        }

    def tail(self) -> int:
        """Return the place of the newest entry; 0: there is none (LG2). Raises ArchiveFailed."""
        while True:
            self.look()
            merged = max((format.places_of(name)[1] for name in self._merged), default=0)
            low = self._gallop(max(merged, self._listed_tail()))
            self.look()  # entries that were looked for may be merged by now
            if all(format.places_of(name)[1] <= low for name in self._merged):
                return low

    def is_merged(self, place: int) -> bool:
        """Return True if an entry is merged, as it was when `look` was called last."""
        places = map(format.places_of, self._merged)
        return any(first <= place <= last for first, last in places)

    def trim(self, places: Iterable[int]) -> None:
        """Remove entries that stand alone."""
        self._objects.delete(format.entry_name(place) for place in places)

    def _gallop(self, low: int) -> int:
        """Return the highest place that is there without one missing, from one that is there."""
        step = 1
        while self._is_single(low + step):
            low += step
            step *= 2
        high = low + step  # which is not there
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_single(middle):
                low = middle
            else:
                high = middle
        return low

    def _listed_tail(self) -> int:
        """Return the highest place that a listing shows."""
        listed = self._objects.list(format.LOG)
        return max(
            (format.place_of(each.name) for each in listed if format.is_name(each.name)), default=0
        )

    def _is_single(self, place: int) -> bool:
        if not place:
            return True
        try:
            self._objects.size(format.entry_name(place))
        except ObjectNotFound:
            return False
        return True

    def _single(self, place: int) -> bytes | None:
        try:
            return self._objects.read(format.entry_name(place), 0, MAX_CREATE_BYTES + 1)
        except ObjectNotFound:
            return None

    def _merged_head(self, place: int) -> EntryHead | None:
        """Return the head of an entry that is merged, as far as was looked."""
        for name, size in self._merged.items():
            first, last = format.places_of(name)
            if first <= place <= last:
                if self._index is None or self._index[0] != name:
                    self._index = name, merged_index(self._read, name, size)
                return self._index[1].heads[place - first]
        return None


def _checked(entry: OpenedEntry, place: int) -> OpenedEntry:
    if entry.head.place != place:
        raise damaged(entry.head.name, f"entry {entry.head.place} is there")
    return entry
