"""What the pages of the data files hold, and the files of large transactions.

- DP1: told from the checkpoint and the records, without reading the pages: time and memory depend
  on how many blocks there are, not on their size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from quire.engine.pages.data_files import split_address, split_page
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.commit_record import Part
from quire.intervals import IntervalSet
from quire.ltds import LtdsReader, list_ids

from .history import History
from .items import FileItem, Finding, PagesItem
from .queue_state import QueueState
from .records import list_records
from .saved import Saved
from .source import UNREADABLE, Source
from .told import Owner


class _Use(NamedTuple):
    first: int
    pages: int
    use: str
    queue: QueueState
    position: int | None
    messages: int
    transaction: int | None = None
    xid: str | None = None

    @property
    def lost(self) -> str:
        """What is missing where its pages are."""
        if self.position is None:
            return f"{self.messages} messages of the prepared transaction {self.xid!r}"
        end = self.position + self.messages - 1
        return f"messages of queue {self.queue.title!r} at positions {self.position} to {end}"


def _place(use: _Use) -> tuple[int, int]:
    return use.first, use.pages


def list_pages(
    source: Source, saved: Saved | None, history: History, owner: Owner | None
) -> Iterator[PagesItem | Finding]:
    """All pages of all data files, in order; consecutive ones of one use in one item.

    With an owner those of open transactions, too (of the queues that it was asked of).
    """
    uses: dict[int, list[_Use]] = {}
    for queue in history.state.queues.values():
        yield from _uses(source, queue, uses)
    _add_prepared(source, history, uses)
    if owner is not None:
        _add_open(source, history, owner, uses)
    numbers = set(source.data_files()) | set(uses)
    if saved is not None:
        numbers |= set(range(len(saved.spaces)))
    for number in sorted(numbers):
        yield from _of_file(source, saved, number, sorted(uses.get(number, ()), key=_place))


def _uses(source: Source, queue: QueueState, uses: dict[int, list[_Use]]) -> Iterator[Finding]:
    size = source.geometry.page_size
    for entry in queue.directory:
        number, first = split_page(entry.page, size)
        use = _Use(first, 1, "records", queue, entry.position, entry.end - entry.position)
        uses.setdefault(number, []).append(use)
    for found in list_records(source, queue, 0):
        if isinstance(found, Finding):
            yield found
            continue
        record, ref = found
        if ref is not None and ref.kind == format.DATA and record.released < ref.count:
            number, first, pages = _extent(source, ref)
            use = _Use(first, pages, "block", queue, ref.position, ref.count)
            uses.setdefault(number, []).append(use)


def _extent(source: Source, block: BlockRef | Part) -> tuple[int, int, int]:
    """The data file of a block, its first page there, and how many there are."""
    size = source.geometry.page_size
    number, offset = split_address(block.address)
    return number, offset // size, max(-(-block.length // size), 1)


def _add_prepared(source: Source, history: History, uses: dict[int, list[_Use]]) -> None:
    """Pages of transactions in doubt.

    Where damage may hide the decision, who came later may have got them meanwhile.
    """
    taken = _taken(uses)
    for record in reversed(history.state.prepared.values()):
        for part in record.parts:
            if part.kind != format.DATA:
                continue
            queue = history.by_id(part.queue_id)
            number, first, pages = _extent(source, part)
            held = taken.setdefault(number, IntervalSet())
            if queue.certain or not held.overlaps(first, first + pages):
                use = _Use(first, pages, "prepared", queue, None, part.count, xid=record.xid)
                uses.setdefault(number, []).append(use)
                held.add(first, first + pages)


def _taken(uses: dict[int, list[_Use]]) -> dict[int, IntervalSet]:
    return {
        number: IntervalSet.from_list(sorted((u.first, u.first + u.pages) for u in known))
        for number, known in uses.items()
    }


def _add_open(source: Source, history: History, owner: Owner, uses: dict[int, list[_Use]]) -> None:
    """Pages of open transactions, but for those that somebody else has got meanwhile."""
    taken = _taken(uses)
    for queue in history.state.queues.values():
        for transaction, part in owner.spilled(queue):
            number, first, pages = _extent(source, part)
            held = taken.setdefault(number, IntervalSet())
            if not held.overlaps(first, first + pages) and _is_there(source, number, first + pages):
                use = _Use(first, pages, "open", queue, None, part.count, transaction)
                uses.setdefault(number, []).append(use)
                held.add(first, first + pages)


def _is_there(source: Source, number: int, end: int) -> bool:
    try:
        return end <= source.data_pages(number)
    except UNREADABLE:
        return False


def _of_file(
    source: Source, saved: Saved | None, number: int, uses: list[_Use]
) -> Iterator[PagesItem | Finding]:
    file = f"data/{number}.dat"
    try:
        total = source.data_pages(number)
    except UNREADABLE as error:
        yield Finding.of(file, 0, error, "all blocks and record pages in it")
        return
    yield PagesItem(file, 0, 1, "header")
    page = 1
    for use in uses:
        if use.first > page:
            yield from _unused(saved, number, page, use.first)
        if use.first < page:
            yield Finding(
                file, use.first * source.geometry.page_size, True,
                f"page {use.first} has two owners", "one of the two",
            )  # fmt: skip
        elif use.first + use.pages > total:
            yield Finding(
                file, total * source.geometry.page_size, True,
                f"the file has {total} pages: pages {use.first} to {use.first + use.pages - 1} are"
                " not in it",
                use.lost,
            )  # fmt: skip
        yield PagesItem(
            file, use.first, use.pages, use.use, use.queue.queue_id, use.queue.name,
            use.position, use.messages, use.transaction, use.xid,
        )  # fmt: skip
        page = max(page, use.first + use.pages)
    if page < total:
        yield from _unused(saved, number, page, total)


def _unused(saved: Saved | None, number: int, first: int, end: int) -> Iterator[PagesItem]:
    """Free, as the checkpoint says, or released or taken by somebody since."""
    file = f"data/{number}.dat"
    if saved is None or number >= len(saved.spaces):
        yield PagesItem(file, first, end - first, "other")
        return
    total, free = saved.spaces[number]
    page = first
    while page < end:
        is_free = page >= total or free.contains(page)
        run = end
        if page < total:
            edge = (
                free.first_gap(page)
                if is_free
                else next((lo for lo, _ in free.intersection(page, end)), end)
            )
            run = min(end, edge)
        yield PagesItem(file, page, run - page, "free" if is_free else "other")
        page = run


def list_files(source: Source, history: History) -> Iterator[FileItem | Finding]:
    """The files of large transactions: those that commits and prepares name, and others."""
    env, directory, held = source.env, source.layout.ltds, history.state.ltds
    try:
        there = list_ids(env, directory)
    except OSError as error:
        yield Finding("ltds", None, bool(held), str(error), "all files in it")
        return
    prepared: dict[int, tuple[str | None, str | None]] = {
        part.address: (history.title(part.queue_id), record.xid)
        for record in history.state.prepared.values()
        for part in record.parts
        if part.kind == format.LTDS
    }
    for ltds_id in sorted(set(there)):
        queue, xid = prepared.get(ltds_id, (held.get(ltds_id), None))
        size = 0
        messages: int | None = None
        try:
            size = _size(source, ltds_id)
            with LtdsReader(env, directory, ltds_id, source.geometry.store_id) as reader:
                messages = reader.count
        except UNREADABLE:
            pass  # not finished, or gone, or damaged: where a record needs it, that one tells
        yield FileItem(f"ltds/{ltds_id:016x}.ltds", size, messages, queue, xid)


def _size(source: Source, ltds_id: int) -> int:
    file = source.env.open_file(f"{source.layout.ltds}/{ltds_id:016x}.ltds", read_only=True)
    try:
        return file.size()
    finally:
        file.close()
