"""A damaged store as its files are: its state as far as it can be told, and what tells it.

It is read as a dump reads it. Beyond that, headers of files need not be right, and where there is
no checkpoint the sizes come from whatever still says them.

- DS1: an owner makes the next segment once the last one is half full. If it is not there then, the
  last segments of the journal may be missing, which nothing else would show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final, NamedTuple

from quire.engine.layout import Layout
from quire.engine.options import FIXED
from quire.engine.pages.data_file import HEADER_BYTES, sizes_in
from quire.engine.records.block_ref import BlockRef
from quire.engine.state.durable_state import PageEntry
from quire.env import Env
from quire.errors import StoreCorrupt
from quire.file_dump.history import QueueState, newest_history
from quire.file_dump.items import Finding
from quire.file_dump.log import Decoded
from quire.file_dump.source import UNREADABLE, DumpSource
from quire.journal import KIND_GENERATION, Geometry, geometry_of, list_segments, segment_path
from quire.journal.segment import SUFFIXES, capacity_of
from quire.limits import DEFAULT_SEGMENT_BYTES

_NO_CHECKPOINT: Final = Finding(
    "checkpoint", None, True, "there is no checkpoint that can be read",
    "what was read, and definitions that the journal does not tell",
)  # fmt: skip
NO_RECORD: Final = "no record of them can be read"


class LostRecords(NamedTuple):
    """A record page that cannot be read, and the positions whose records it had."""

    start: int
    end: int
    finding: Finding


class JournalRegion(NamedTuple):
    """A part of the journal, by LSN, in which no group can be read."""

    start: int
    end: int


class DamagedStore:
    """The files of a damaged store, none of which is changed. `close` it at the end."""

    def __init__(self, env: Env, layout: Layout) -> None:
        """Read the checkpoint and the journal.

        Raises StoreVersion, and StoreCorrupt where nothing says how large pages and segments are.
        """
        self.source = DumpSource(env, layout, is_lenient=True)
        self.regions: list[JournalRegion] = []
        self.generation = 0  # the latest one that was found
        self._env, self._layout = env, layout
        try:
            self.history = newest_history(self.source, None)
            if self.history.checkpoint is None:
                self.source.geometry = self._geometry()
                self.history.findings.append(_NO_CHECKPOINT)
            self.number = self._read()
            self._pages: dict[int, list[PageEntry]] | None = None
            self.is_searched = self.history.checkpoint is None  # no directory says what there is
        except BaseException:
            self.source.close()
            raise

    def close(self) -> None:
        self.source.close()

    @property
    def findings(self) -> list[Finding]:
        """All that is damaged, as far as it was read."""
        return self.history.findings + self.source.header_faults

    @property
    def settings(self) -> dict[str, int]:
        """The sizes that are fixed when a store is made, and when that was."""
        checkpoint = self.history.checkpoint
        if checkpoint is not None:
            return {name: int(checkpoint.document[name]) for name in (*FIXED, "created_us")}
        _, segment_bytes, page_size = self.source.geometry
        files = max(self.source.data_files(), default=0) + 1
        sizes = {"page_size": page_size, "segment_bytes": segment_bytes, "data_files": files}
        return sizes | {"created_us": self._env.now_us()}

    @property
    def is_journal_whole(self) -> bool:
        """True if no record since the checkpoint can be missing."""
        return not (self.is_searched or self.regions or self._journal_findings) and all(
            queue.certain for queue in self.history.queues.values()
        )

    @property
    def _journal_findings(self) -> list[Finding]:
        return [each for each in self.history.findings if each.file.startswith("journal")]

    def _read(self) -> int:
        """Fold the journal; the number of its latest record."""
        history = self.history
        checkpoint, since_lsn, number, end = history.checkpoint, 0, 0, 0
        if checkpoint is not None:
            since_lsn, number = checkpoint.lsn, int(checkpoint.document.get("number", 0))
            end = since_lsn
        is_broken = False  # since the last group
        for found in history.read():
            if isinstance(found, Decoded):
                header = found.group.header
                if is_broken and header.lsn > end:
                    self.regions.append(JournalRegion(end, header.lsn))
                is_broken = False
                end = max(end, found.group.end_lsn)
                self.generation = max(self.generation, header.generation)
                if found.record.address >= since_lsn and found.record.kind != KIND_GENERATION:
                    number += 1
            else:
                is_broken = True
        segments = self.source.segments()
        if is_broken and segments:
            size = self.source.geometry.segment_bytes
            self.regions.append(JournalRegion(end, (max(end // size, segments[-1]) + 1) * size))
        self._look_at_end(end)
        return number

    def _look_at_end(self, end: int) -> None:
        """Note that the last segments may be missing (DS1)."""
        layout, size = self._layout, self.source.geometry.segment_bytes
        number = max(end - 1, 0) // size
        offset = end - number * size
        if number + 1 in self.source.segments():
            return
        with suppress(*UNREADABLE):
            path = segment_path(layout.journal, number)
            if offset > capacity_of(self.source.journal, path) // 2:
                file = self.source.relative(path)
                text = "the journal ends here, and the next segment is not there: it may be missing"
                self.history.findings.append(Finding(file, offset, False, text))

    def _geometry(self) -> Geometry:
        """Return the sizes, as a segment says them, or else a data file and the segments' size."""
        env, layout = self._env, self._layout
        try:
            return geometry_of(env, layout.journal)
        except (StoreCorrupt, OSError) as error:
            for number in self.source.data_files():
                with suppress(*UNREADABLE):
                    path = layout.data_file(number)
                    with closing(env.open_file(path, read_only=True)) as file:
                        store_id, page_size = sizes_in(path, file.read(0, HEADER_BYTES))
                    return Geometry(store_id, self._segment_bytes(), page_size)
            raise StoreCorrupt(
                f"{layout.path}: nothing says how large its pages are ({error}): neither a "
                "checkpoint nor a segment nor a data file has a header that can be read; restore "
                "it from a copy"
            ) from error

    def _segment_bytes(self) -> int:
        """Return the size of most of the journal's files, spares too."""
        sizes = Counter[int]()
        for suffix in SUFFIXES:
            for number in list_segments(self._env, self._layout.journal, suffix):
                path = segment_path(self._layout.journal, number, suffix)
                with closing(self._env.open_file(path, read_only=True)) as file:
                    sizes[file.size()] += 1
        return sizes.most_common(1)[0][0] if sizes else DEFAULT_SEGMENT_BYTES

    # Records of a queue

    def refs(self, queue: QueueState, lost: list[LostRecords]) -> Iterator[BlockRef]:
        """Yield the records whose positions are right, ascending; they may overlap where a search
        found them. What is missing is `lost`.
        """
        known = (record.ref for record in queue.tail_from(0) if record.certain)
        if not self.is_searched:
            yield from self._sealed(queue, lost)
            yield from known
            return
        refs = [
            ref for entry in self._search(queue.queue_id) for ref in self._records_on(entry, queue)
        ]
        yield from sorted({*refs, *known}, key=lambda ref: (ref.position, -ref.end))

    def later_refs(self, queue: QueueState) -> list[BlockRef]:
        """Return the records whose positions are not known, in their order."""
        return [record.ref for record in queue.tail_from(0) if not record.certain]

    def certain_end(self, queue: QueueState) -> int:
        """Return the position up to which the others' positions are right."""
        later = next((r.ref.position for r in queue.tail_from(0) if not r.certain), None)
        end = queue.durable.end_position if later is None else later
        if self.is_searched:
            end = max([end, *(entry.end for entry in self._search(queue.queue_id))])
        return end

    def queues_found(self) -> set[int]:
        """Return the queues of which a search has found record pages."""
        if not self.is_searched:
            return set()
        self._search(0)
        return set(self._pages or ())

    def _sealed(self, queue: QueueState, lost: list[LostRecords]) -> Iterator[BlockRef]:
        source = self.source
        for entry in queue.durable.directory:
            try:
                yield from source.records(entry.page, queue.queue_id)[1]
            except UNREADABLE as error:
                file, page = source.page_place(entry.page)
                offset = page * source.geometry.page_size
                finding = Finding.of(file, offset, error, "its records")
                lost.append(LostRecords(entry.position, entry.end, finding))
                yield from self._older(queue, entry)

    def _older(self, queue: QueueState, entry: PageEntry) -> Iterator[BlockRef]:
        """Yield records of a damaged page that are still in a page which it has replaced."""
        refs = {
            ref
            for other in self._search(queue.queue_id)
            if other.position < entry.end and entry.position < other.end
            for ref in self._records_on(other, queue)
            if entry.position <= ref.position and ref.end <= entry.end
        }
        yield from sorted(refs, key=lambda ref: (ref.position, -ref.end))

    def _records_on(self, entry: PageEntry, queue: QueueState) -> list[BlockRef]:
        with suppress(*UNREADABLE):
            return self.source.records(entry.page, queue.queue_id)[1]
        return []

    def _search(self, queue_id: int) -> list[PageEntry]:
        """Return the queue's record pages, in use or not, wherever they are."""
        if self._pages is None:
            found = defaultdict[int, list[PageEntry]](list)
            for number in self.source.data_files():
                with suppress(*UNREADABLE):
                    for owner, entry in self.source.search_record_pages(number):
                        found[owner].append(entry)
            self._pages = found
        return self._pages.get(queue_id, [])
