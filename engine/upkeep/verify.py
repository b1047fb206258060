"""The checker: reads everything the store holds and compares what must agree.

It reads past the caches. Commits go on meanwhile: each queue is looked at as it is at one moment,
and a block that is moved or released while it is being read is not a finding.
"""

from __future__ import annotations

from typing import Any

from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.checkpoints.opened import Opened
from quire.engine.checkpoints.space_maps import SpaceSnapshot
from quire.engine.pages.data_files import split_page
from quire.engine.queues.prepared import Prepared, ref_of
from quire.engine.queues.queue import Queue
from quire.engine.reading.block_reader import BlockMoved
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import list_checkpoints, read_checkpoint
from quire.engine.transactions.context import Context
from quire.errors import QuireError
from quire.info import Report
from quire.intervals import IntervalSet
from quire.journal import Finding, Geometry, scan


def verify(opened: Opened, context: Context, checkpointer: Checkpointer) -> Report:
    """Check the checkpoint, the journal, every queue's records and blocks, files and free space."""
    report = Report()
    checked: dict[str, Any] = report.checked
    checked.update(queues=0, blocks=0, messages=0, bytes=0, large_files=0, prepared=0)
    with checkpointer.paused():
        restart_lsn = _checkpoint(opened, report)
        if restart_lsn is not None:
            _journal(opened, restart_lsn, report)
        for queue in list(context.state.queues.values()):
            _queue(context, queue, report)
        for prepared in context.state.prepared:
            _prepared(context, prepared, report)
        _space(opened, context, report)
    return report


def _checkpoint(opened: Opened, report: Report) -> int | None:
    """Where the newest checkpoint lets recovery begin; None, and a finding, if it is damaged."""
    directory = opened.layout.checkpoints
    try:
        newest = list_checkpoints(opened.env, directory)[-1]
        return int(read_checkpoint(opened.env, directory, newest).document["restart_lsn"])
    except (QuireError, OSError, IndexError) as error:
        report.findings.append(f"checkpoint: {error}")
        return None


def _journal(opened: Opened, restart_lsn: int, report: Report) -> None:
    """Everything between the checkpoint and where the journal ends now; damage is a finding."""
    groups = 0
    geometry = Geometry(
        opened.store_id, opened.settings["segment_bytes"], opened.settings["page_size"]
    )
    for found in scan(
        opened.env,
        opened.layout.journal,
        geometry,
        restart_lsn=restart_lsn,
        until_lsn=opened.journal.end_lsn,
    ):
        if not isinstance(found, Finding):
            groups += 1
        elif found.damage:
            report.findings.append(f"{found.file}, offset {found.offset}: {found.message}")
    report.checked["journal_groups"] = groups


def _queue(context: Context, queue: Queue, report: Report) -> None:
    with queue.lock:
        if queue.dropped:
            return
        released = queue.released.copy()
        end = queue.end_position
        try:
            refs = [
                ref for ref in queue.records.stored() if not released.covers(ref.position, ref.end)
            ]
        except QuireError as error:
            report.findings.append(f"queue {queue.name!r}: {error}")
            return
        used = queue.space.used - queue.space.pending_bytes
        used -= queue.space.prepared_bytes
        live = queue.space.live_messages
        subscriptions = [(s.name, s.done.copy()) for s in queue.subscriptions.values()]
    report.checked["queues"] += 1
    _counters(queue, refs, released, end, used, live, subscriptions, report)
    for ref in refs:
        _block(context, queue, ref, report)


def _counters(
    queue: Queue,
    refs: list[BlockRef],
    released: IntervalSet,
    end: int,
    used: int,
    live: int,
    subscriptions: list[tuple[str, IntervalSet]],
    report: Report,
) -> None:
    def finding(text: str) -> None:
        report.findings.append(f"queue {queue.name!r}: {text}")

    kept = IntervalSet()
    charge = 0
    previous = 0
    for ref in refs:
        if ref.position < previous:
            finding(f"records overlap at position {ref.position}")
        previous = ref.end
        kept.add(ref.position, ref.end)
        charge += ref.charge - ref.released_charge(released.count(ref.position, ref.end))
    if end:
        missing = [gap for lo, hi in kept.gaps(0, end) for gap in released.gaps(lo, hi)]
        if missing:
            finding(f"messages at positions {missing[:3]} are neither kept nor released")
        if released.total + live != end:
            finding(f"{live} messages counted, {end - released.total} are not released")
    if used != charge:
        finding(f"{used} bytes counted as used, the records say {charge}")
    for name, done in subscriptions:
        if any(True for lo, hi in released for _ in done.gaps(lo, hi)):
            finding(f"subscription {name!r} has not read what is released")


def _prepared(context: Context, prepared: Prepared, report: Report) -> None:
    """The messages that a prepared transaction puts once it is committed."""
    report.checked["prepared"] += 1
    for queue, parts in prepared.groups:
        for part in parts:
            try:
                _read(context, ref_of(part), report)
            except (BlockMoved, QuireError, OSError) as error:
                if prepared not in context.state.prepared:
                    return  # it was decided meanwhile
                report.findings.append(
                    f"prepared transaction {prepared.record.xid!r}, queue {queue.name!r}: {error}"
                )


def _read(context: Context, ref: BlockRef, report: Report) -> int:
    """Read a block, or a large transaction's file, to its end."""
    if ref.kind == format.LTDS:
        with context.reader.ltds(ref) as reader:
            messages = sum(block.count for block, _ in reader)
            report.checked["bytes"] += reader.bytes
        report.checked["large_files"] += 1
    else:
        messages = context.reader.read(ref).count
        report.checked["bytes"] += ref.length
    if messages != ref.count:
        raise BlockMoved(f"{messages} messages, its record says {ref.count}")
    return messages


def _block(context: Context, queue: Queue, ref: BlockRef, report: Report) -> None:
    try:
        messages = _read(context, ref, report)
    except (BlockMoved, QuireError, OSError) as error:
        with queue.lock:
            gone = not queue.unreleased(ref) or queue.dropped
        if not gone:
            report.findings.append(
                f"queue {queue.name!r}, positions {ref.position} to {ref.end}: {error}"
            )
        return
    report.checked["blocks"] += 1
    report.checked["messages"] += messages


def _space(opened: Opened, context: Context, report: Report) -> None:
    """Pages in use are those that records, record pages and open work refer to."""
    found: list[Any] = []
    context.sequencer.exclusive(lambda: found.append(_page_use(opened, context)))
    owned, problems, spaces = found[0]
    report.findings.extend(problems)
    for io, own, (total, extents) in zip(opened.places.managers, owned, spaces, strict=True):
        free = IntervalSet.from_list([(first, first + pages) for first, pages in extents.tolist()])
        both = [part for lo, hi in own for part in free.intersection(lo, hi)]
        if both:
            report.findings.append(f"{io.data.path}: pages {both[:3]} are in use and free at once")
        unowned = own.gaps(1, total) if total > 1 else ()
        lost = [gap for lo, hi in unowned for gap in free.gaps(lo, hi)]
        if lost:
            report.findings.append(f"{io.data.path}: pages {lost[:3]} belong to nobody")
        last = own.last()
        if last is not None and last[1] > total:
            report.findings.append(f"{io.data.path}: page {last[1] - 1} is in use and not there")


def _held(context: Context) -> list[str]:
    """The queues' counters against what prepared transactions hold (H1)."""
    problems = []
    for queue in context.state.queues.values():
        space, held = queue.space, context.state.prepared.held(queue)
        if (space.prepared, space.prepared_bytes, space.prepared_messages) != held:
            problems.append(f"queue {queue.name!r}: prepared transactions hold {held}, not counted")
    return problems


def _page_use(
    opened: Opened, context: Context
) -> tuple[list[IntervalSet], list[str], list[SpaceSnapshot]]:
    """The pages in use of each file, what is wrong with them, and the files' free space."""
    places = opened.places
    owned = [IntervalSet() for _ in places.managers]
    problems: list[str] = []

    def own(page: int, pages: int, what: str) -> None:
        file, first = split_page(page, places.page_size)
        path = places.data.file(file).path
        if owned[file].overlaps(first, first + pages):
            problems.append(f"{path}: pages {first} to {first + pages} ({what}) have two owners")
        owned[file].add(first, first + pages)

    for queue in context.state.queues.values():
        with queue.lock:
            try:
                for entry in queue.records.directory:
                    own(entry.page, 1, f"records of {queue.name!r}")
                for ref in queue.records.stored():
                    if ref.kind == format.DATA and queue.unreleased(ref):
                        own(*places.extent_of(ref), f"queue {queue.name!r}")
            except QuireError as error:
                problems.append(f"queue {queue.name!r}: {error}")
    for page in opened.pages.retired:
        own(page, 1, "record page out of use")
    for prepared in context.state.prepared:
        for part in prepared.record.parts:
            if part.kind == format.DATA:
                own(*places.extent_of(part), f"prepared {prepared.record.xid!r}")
    problems += _held(context)
    return owned, problems, [manager.space.snapshot() for manager in places.managers]
