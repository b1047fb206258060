"""Merging small entries into objects of many, so that a week is some hundred of them.

- ME1: entries are removed only once the merged ones that have them are durable. Whatever ends this
  before, each entry can be read: alone, merged, or both; what is left the next shipper removes.
- ME2: the newest entry is never merged: its object is where the end of the log is found (LG2).
- Memory holds the heads of the entries that are merged, and the reads under way.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from quire.archive.objects import ObjectBytes, Objects
from quire.checksum import checksum
from quire.env import Env
from quire.errors import ArchiveError, ObjectNotFound, ResourceExhausted

from . import format
from .entry_reading import OpenedEntry, check_follows, entry_bytes, front_of, opened
from .limits import (
    ENTRY_HEAD_READ_BYTES,
    MAX_SHIP_PAUSE_SECONDS,
    MERGED_BYTES,
    MERGED_ENTRIES,
    MERGED_MEAN_BYTES,
    MERGED_SECONDS,
)
from .log import EntryLog
from .object_reading import ObjectReading, ObjectSpan, damaged


class SingleEntry(NamedTuple):
    """An entry in an object of its own."""

    place: int
    length: int
    made_us: int


class EntryMerging:
    """Merges the entries of one log. For one thread."""

    def __init__(self, objects: Objects, read: ObjectReading, log: EntryLog, env: Env) -> None:
        self.error = ""  # why entries cannot be merged now
        self._objects = objects
        self._read = read
        self._log = log
        self._env = env
        self._single: deque[SingleEntry] | None = None  # None: they were not listed yet
        self._retry_at = 0.0

    def add(self, place: int, length: int) -> None:
        """Note a new entry."""
        if self._single is not None:
            self._single.append(SingleEntry(place, length, self._env.now_us()))

    def step(self, newest: int) -> None:
        """List the entries, or merge some, if it is time to. `newest`: the newest one (ME2)."""
        if self._env.monotonic() < self._retry_at:
            return
        try:
            if self._single is None:
                self._single = deque(self._left(newest))
            elif run := self._due_run(newest):
                self._merge(run)
        except (ArchiveError, ResourceExhausted) as error:
            self._single = None
            if isinstance(error.__context__, ObjectNotFound):  # another shipper has merged them
                return
            self.error = f"entries cannot be merged: {error}"
            self._retry_at = self._env.monotonic() + MAX_SHIP_PAUSE_SECONDS
        else:
            self.error = ""

    def _left(self, newest: int) -> list[SingleEntry]:
        """Return the entries that are not merged; remove those that are, and have been left."""
        self._log.look()
        left: list[int] = []
        found: list[SingleEntry] = []
        for info in self._objects.list(format.LOG):
            if format.is_name(info.name):
                place = format.place_of(info.name)
                if place < newest and self._log.is_merged(place):
                    left.append(place)
                elif place <= newest:
                    found.append(SingleEntry(place, info.bytes, info.modified_us))
        self._log.trim(left)
        return sorted(found)

    def _due_run(self, newest: int) -> list[SingleEntry]:
        """Return the entries of consecutive places that are to be merged now; none: it is early."""
        single = self._single or deque()
        run: list[SingleEntry] = []
        size, is_ended = 0, False
        for entry in single:
            is_ended = entry.place >= newest or (bool(run) and entry.place != run[-1].place + 1)
            if is_ended:
                is_ended = entry.place < newest
                break
            run.append(entry)
            size += entry.length
            if size >= MERGED_BYTES or len(run) == MERGED_ENTRIES:
                is_ended = True
                break
        if not run or not (is_ended or self._is_old(run[0])):
            return []
        for _ in run:
            single.popleft()
        return run if len(run) > 1 and size < MERGED_MEAN_BYTES * len(run) else []

    def _is_old(self, entry: SingleEntry) -> bool:
        return self._env.now_us() - entry.made_us > MERGED_SECONDS * 1e6

    def _merge(self, run: Sequence[SingleEntry]) -> None:
        names = [format.entry_name(entry.place) for entry in run]
        spans = (ObjectSpan(name, 0, ENTRY_HEAD_READ_BYTES) for name in names)
        entries = [front_of(self._read, span, data) for span, data in self._read.spans(spans)]
        merged = _MergedObject(self._read, entries)
        name = format.merged_name(run[0].place, run[-1].place)
        self._objects.upload(name, merged)
        if self._objects.size(name) != merged.size:
            raise damaged(name, f"it has not {merged.size} bytes")
        self._log.trim(entry.place for entry in run)  # (ME1)


class _MergedObject:
    """The pieces of merged entries, each of which is read anew each time that they are sent."""

    def __init__(self, read: ObjectReading, entries: Sequence[OpenedEntry]) -> None:
        self._read = read
        self._heads = [entry.head for entry in entries]
        self._index = _index(entries)
        self.size = len(self._index) + sum(head.length for head in self._heads)
        for before, head in zip(self._heads, islice(self._heads, 1, None), strict=False):
            check_follows(before, head)

    def __iter__(self) -> Iterator[ObjectBytes]:
        yield self._index
        for head, data in entry_bytes(self._read, self._heads):
            opened(data, head.name, head)  # or it raises
            yield data


def _index(entries: Sequence[OpenedEntry]) -> bytes:
    first, last = entries[0], entries[-1]
    names = list(dict.fromkeys(name for entry in entries for name in entry.names))
    data = bytearray(
        format.MERGED_HEAD.pack(
            0, format.MERGED_MAGIC, format.VERSION, 0, first.store_id, first.head.history,
            first.head.place, len(entries), len(names), first.head.first_number,
            last.head.last_number, first.head.first_us, last.head.last_us,
        )
    )  # fmt: skip
    for entry in entries:
        data += entry.packed_head
    for name in names:
        kind = format.BLOB if name.startswith(format.BLOBS) else format.FILE
        data += format.ENTRY_NAME.pack(int(name[-16:], 16), kind, 0)
    struct.pack_into("<Q", data, 0, checksum(memoryview(data)[8:]))
    return bytes(data)
