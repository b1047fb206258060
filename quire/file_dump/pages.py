"""The contents of the pages of the data files, and of the files of large transactions.

- Told from the checkpoint and the records, without reading the pages: time and memory depend on how
  many blocks there are, not on their size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from operator import attrgetter
from typing import Any

from quire.engine.checkpoints.space_maps import free_runs
from quire.engine.pages.data_files import split_address, split_page
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import Part
from quire.intervals import IntervalSet
from quire.ltds import list_ids, path_of

from .history import History, QueueState
from .items import Described, Finding, PagesItem
from .owner import Owner
from .records import ListedRecords
from .source import UNREADABLE, DumpSource


class Pages:
    """The uses of pages, by the number of the file."""

    def __init__(self, source: DumpSource, history: History, owner: Owner | None) -> None:
        """Take pages of open transactions, too, where there is an owner."""
        self._source = source
        self._history = history
        self._owner = owner
        self._page_size = source.geometry.page_size
        self._uses = defaultdict[int, list[PagesItem]](list)

    def items(self) -> Iterator[PagesItem | Finding]:
        """Yield all pages of all data files, in order; consecutive ones of one use in one item."""
        source, spaces = self._source, self._history.spaces
        for queue in self._history.queues.values():
            yield from self._add_committed(queue)
        self._add_uncommitted()
        for number in sorted({*source.data_files(), *self._uses, *range(len(spaces))}):
            try:
                total = source.data_pages(number)
            except UNREADABLE as error:
                lost = "all blocks and record pages in it"
                yield Finding.of(f"data/{number}.dat", 0, error, lost)
                continue
            yield from self._of_file(number, total)

    def _add_committed(self, queue: QueueState) -> Iterator[Finding]:
        own = queue.queue_id, queue.name
        for entry in queue.durable.directory:
            number, first = split_page(entry.page, self._page_size)
            range_fields = *own, entry.position, entry.end - entry.position
            self._uses[number].append(_pages(number, first, first + 1, "records", *range_fields))
        for found in ListedRecords(self._source, queue).in_order(0, None):
            if isinstance(found, Finding):
                yield found
                continue
            record, ref = found
            if ref is not None and ref.kind == format.DATA and record.released < ref.count:
                use = _pages(*self._extent(ref), "block", *own, ref.position, ref.count)
                self._uses[self._extent(ref)[0]].append(use)

    def _extent(self, block: BlockRef | Part) -> tuple[int, int, int]:
        """The data file of a block, its first page there, and the one behind its last."""
        number, offset = split_address(block.address)
        first = offset // self._page_size
        return number, first, first + max(-(-block.length // self._page_size), 1)

    def _add_uncommitted(self) -> None:
        """Pages of transactions in doubt, and of open ones.

        Who came later may have got those of an open one meanwhile, and where damage may hide the
        decision, those of one in doubt.
        """
        taken = {number: _runs(known) for number, known in self._uses.items()}
        for queue, part, transaction, xid in self._uncommitted():
            number, first, end = self._extent(part)
            own = taken.setdefault(number, IntervalSet())
            if own.overlaps(first, end) and (xid is None or not queue.certain):
                continue
            with suppress(*UNREADABLE):
                if xid is None and end > self._source.data_pages(number):
                    continue
                use = "open" if xid is None else "prepared"
                fields = queue.queue_id, queue.name, None, part.count, transaction, xid
                self._uses[number].append(_pages(number, first, end, use, *fields))
                own.add(first, end)

    def _uncommitted(self) -> Iterator[tuple[QueueState, Part, int | None, str | None]]:
        """Blocks in data files, each with its queue and the number or the xid of who has put it."""
        history, owner = self._history, self._owner
        for record in reversed(history.state.prepared.values()):
            for part in record.parts:
                if part.kind == format.DATA:
                    yield history.by_id(part.queue_id), part, None, record.xid
        for queue in history.queues.values():
            for transaction, part in () if owner is None else owner.spilled(queue):
                yield queue, part, transaction, None

    def _of_file(self, number: int, total: int) -> Iterator[PagesItem | Finding]:
        yield _pages(number, 0, 1, "header")
        file, page, known = f"data/{number}.dat", 1, self._uses[number]
        uses = [*known, *self._unused(number, known, total)]
        for use in sorted(uses, key=attrgetter("first", "pages")):
            first, end = use.first, use.first + use.pages
            if first < page:
                text = f"page {first} has two owners"
                yield Finding(file, first * self._page_size, True, text, "one of the two")
            elif end > total:
                text = f"the file has {total} pages: pages {first} to {end - 1} are not in it"
                yield Finding(file, total * self._page_size, True, text, _lost(use))
            yield use
            page = max(page, end)

    def _unused(self, number: int, uses: list[PagesItem], total: int) -> Iterator[PagesItem]:
        """Free, as the checkpoint says, or released or taken by somebody since."""
        spaces, free = self._history.spaces, IntervalSet()
        if number < len(spaces):
            free = free_runs(spaces[number].extents())
            if total > spaces[number].total_pages:
                free.add(spaces[number].total_pages, total)
        for lo, hi in _runs(uses).gaps(1, total) if total > 1 else ():
            yield from (_pages(number, *run, "free") for run in free.intersection(lo, hi))
            yield from (_pages(number, *run, "other") for run in free.gaps(lo, hi))


def _runs(uses: Iterable[PagesItem]) -> IntervalSet:
    return IntervalSet.from_list((use.first, use.first + use.pages) for use in uses)


def _pages(number: int, first: int, end: int, use: str, *fields: Any) -> PagesItem:
    """`held`: the other fields."""
    return PagesItem(f"data/{number}.dat", first, end - first, use, *fields)


def _lost(use: PagesItem) -> str:
    """Describe what is missing where the pages are."""
    if use.position is None:
        return f"{use.messages} messages of the prepared transaction {use.xid!r}"
    end = use.position + (use.messages or 0) - 1
    title = f"#{use.queue_id}" if use.queue is None else use.queue
    return f"messages of queue {title!r} at positions {use.position} to {end}"


def list_files(source: DumpSource, history: History) -> Iterator[Described | Finding]:
    """The files of large transactions: those that commits and prepares name, and others."""
    env, directory, ltds = source.env, source.layout.ltds, history.state.ltds
    try:
        there = list_ids(env, directory)
    except OSError as error:
        yield Finding("ltds", None, bool(ltds), str(error), "all files in it")
        return
    prepared: dict[int, tuple[str | None, str | None]] = {
        part.address: (history.by_id(part.queue_id).title, record.xid)
        for record in history.state.prepared.values()
        for part in record.parts
        if part.kind == format.LTDS
    }
    for ltds_id in sorted(set(there)):
        queue, xid = prepared.get(ltds_id, (ltds.get(ltds_id), None))
        size = 0
        messages: int | None = None
        with suppress(*UNREADABLE):
            # Not finished, or gone, or damaged: where a record needs it, that one tells.
            with closing(env.open_file(path_of(directory, ltds_id), read_only=True)) as file:
                size = file.size()
            with source.large(ltds_id) as reader:
                messages = reader.count
        own = {"file": f"ltds/{ltds_id:016x}.ltds", "bytes": size, "messages": messages}
        yield Described("file", own | {"queue": queue, "xid": xid})
