"""The checker: reads everything the store holds and compares what must agree.

It reads past the caches. Commits go on meanwhile: each queue is looked at as it is at one moment,
and a block that is moved or released while it is being read is not a finding. Number, state and
contents are of one moment.
"""

from __future__ import annotations

from collections.abc import Iterator

from quire.block import Block, StreamedBlock
from quire.engine.checkpoints.checkpoint import Checkpointer
from quire.engine.checkpoints.space_maps import SpaceSnapshot, free_runs
from quire.engine.checkpoints.store_files import Opened
from quire.engine.pages.block_places import Extent
from quire.engine.queues.prepared_transactions import PreparedTransaction, ref_of
from quire.engine.queues.queue import Queue
from quire.engine.reading.block_reader import BlockMoved
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.checkpoint_file import list_checkpoints, read_checkpoint
from quire.engine.records.commit_record import Part
from quire.engine.state.state_hash import HashedValues, hash_of, values_of
from quire.engine.transactions.context import Context
from quire.errors import QuireError
from quire.intervals import IntervalSet
from quire.journal import Geometry, JournalFinding, scan
from quire.reports.info import Report

from .contents_digest import Contents


def verify(
    opened: Opened, context: Context, checkpointer: Checkpointer, *, contents: bool = False
) -> Report:
    """Check the checkpoint, the journal, every queue's records and blocks, files and free space.

    `contents`: tell their digest as well.
    """
    check = _Check(opened, context)
    with checkpointer.paused():
        restart_lsn = check.checkpoint()
        if restart_lsn is not None:
            check.journal(restart_lsn)
        for queue in list(context.state.queues.values()):
            check.queue(queue)
        for prepared in context.state.prepared:
            check.prepared(prepared)
        check.space()
        check.state(contents=contents)
    return check.report


class _Check:
    """One run of the checker, whose findings go to `report`."""

    def __init__(self, opened: Opened, context: Context) -> None:
        self._opened = opened
        self._context = context
        self.report = Report()
        self._find = self.report.findings.append
        self._checked = self.report.checked
        self._checked.update(queues=0, blocks=0, messages=0, bytes=0, large_files=0, prepared=0)

    def state(self, *, contents: bool) -> None:
        """Note the last record's number and the state's hash; with `contents` the digest, too."""
        sequencer, durable = self._context.sequencer, self._context.state.durable

        def look() -> tuple[int, HashedValues, Contents | None]:
            values = values_of(durable)
            return sequencer.number, values, Contents.hold(self._context) if contents else None

        number, values, contents_now = sequencer.exclusive(look)
        self._checked.update(number=number, state_hash=hash_of(values))
        if contents_now is None:
            return
        try:
            self._checked["contents"] = contents_now.digest()
        except (BlockMoved, QuireError, OSError) as error:
            self._find(f"the contents have no digest: {error}")
        finally:
            contents_now.let_go()

    def checkpoint(self) -> int | None:
        """Return where recovery begins; None, and a finding, if the checkpoint is damaged."""
        env, directory = self._opened.env, self._opened.layout.checkpoints
        try:
            newest = list_checkpoints(env, directory)[-1]
            return int(read_checkpoint(env, directory, newest).document["restart_lsn"])
        except (QuireError, OSError, IndexError) as error:
            self._find(f"checkpoint: {error}")
            return None

    def journal(self, restart_lsn: int) -> None:
        """Everything between the checkpoint and where the journal ends now."""
        opened, settings = self._opened, self._opened.settings
        groups = 0
        for found in scan(
            opened.env,
            opened.layout.journal,
            Geometry(opened.store_id, settings["segment_bytes"], settings["page_size"]),
            restart_lsn=restart_lsn,
            until_lsn=opened.journal.end_lsn,
        ):
            if not isinstance(found, JournalFinding):
                groups += 1
            elif found.damage:
                self._find(f"{found.file}, offset {found.offset}: {found.message}")
        self._checked["journal_groups"] = groups
        cut = self._checked["journal_cut"] = opened.recovered.cut
        if cut:
            self._warn(
                "the journal's tail was cut when this owner opened the store, and perhaps an"
                f" acknowledged commit with it: {cut}"
            )

    def _warn(self, text: str) -> None:
        """Add a finding that need not be damage."""
        self._find(text)
        self.report.warnings.append(text)

    def queue(self, queue: Queue) -> None:
        """A queue's counters against its records, and the blocks that these name."""
        with queue.lock:
            if queue.dropped:
                return
            released, end, space = queue.released.copy(), queue.end_position, queue.space
            used = space.used - space.pending_bytes - space.prepared_bytes
            live = space.live_messages
            done = {s.name: s.done.copy() for s in queue.subscriptions.values()}
            try:
                stored = queue.records.stored()
                refs = [ref for ref in stored if not released.covers(ref.position, ref.end)]
            except QuireError as error:
                self._find(f"queue {queue.name!r}: {error}")
                return
        self._checked["queues"] += 1
        for text in _contradictions(refs, released, end, used, live, done):
            self._find(f"queue {queue.name!r}: {text}")
        for ref in refs:
            self._block(queue, ref)

    def prepared(self, prepared: PreparedTransaction) -> None:
        """The messages that a prepared transaction puts once it is committed."""
        self._checked["prepared"] += 1
        state = self._context.state
        for part in prepared.record.parts:
            try:
                self._read(ref_of(part))
            except (BlockMoved, QuireError, OSError) as error:
                if prepared not in state.prepared:
                    return  # it was decided meanwhile
                xid, queue = prepared.record.xid, state.queues[part.queue_id]
                self._find(f"prepared transaction {xid!r}, queue {queue.name!r}: {error}")

    def _block(self, queue: Queue, ref: BlockRef) -> None:
        try:
            messages = self._read(ref)
        except (BlockMoved, QuireError, OSError) as error:
            with queue.lock:
                gone = not queue.unreleased(ref) or queue.dropped
            if not gone:
                self._find(f"queue {queue.name!r}, positions {ref.position} to {ref.end}: {error}")
            return
        self._checked["blocks"] += 1
        self._checked["messages"] += messages

    def _read(self, ref: BlockRef) -> int:
        """Read a block, or a large transaction's file, to its end."""
        if ref.kind == format.LTDS:
            with self._context.reader.ltds(ref) as reader:
                messages = sum(map(read_whole, (block for block, _ in reader)))
                self._checked["bytes"] += reader.bytes
            self._checked["large_files"] += 1
        else:
            messages = self._context.reader.read(ref).count
            self._checked["bytes"] += ref.length
        if messages != ref.count:
            raise BlockMoved(f"{messages} messages, its record says {ref.count}")
        return messages

    def space(self) -> None:
        """Pages in use are those that records, record pages and open work refer to."""
        places = self._opened.places
        owned = {manager: IntervalSet() for manager in places.managers}

        def look() -> list[SpaceSnapshot]:
            with places.unshipped.freeing:
                return owned_and_free()

        def owned_and_free() -> list[SpaceSnapshot]:
            for extent, whose in self._extents_in_use():
                manager, first, pages = places.located(*extent)
                own, end = owned[manager], first + pages
                if own.overlaps(first, end):
                    path = manager.data.path
                    self._find(f"{path}: pages {first} to {end} ({whose}) have two owners")
                own.add(first, end)
            self._check_prepared_counters()
            return [manager.space.snapshot() for manager in places.managers]

        spaces = self._context.sequencer.exclusive(look)
        for (manager, own), (total, extents) in zip(owned.items(), spaces, strict=True):
            path = manager.data.path
            free = free_runs(extents)
            both = [part for lo, hi in own for part in free.intersection(lo, hi)]
            if both:
                self._find(f"{path}: pages {both[:3]} are in use and free at once")
            unowned = own.gaps(1, total) if total > 1 else ()
            lost = [gap for lo, hi in unowned for gap in free.gaps(lo, hi)]
            if lost:
                self._find(f"{path}: pages {lost[:3]} belong to nobody")
            last = own.last()
            if last is not None and last[1] > total:
                self._find(f"{path}: page {last[1] - 1} is in use and not there")

    def _extents_in_use(self) -> Iterator[tuple[Extent, str]]:
        """Yield the extents in use, each with its owner in words."""
        state, extent_of = self._context.state, self._opened.places.extent_of
        for page in state.pages.retired:
            yield Extent(page, 1), "record page out of use"
        for queue in state.queues.values():
            with queue.lock:
                for entry in queue.records.directory:
                    yield Extent(entry.page, 1), f"records of {queue.name!r}"
        for first, end in self._opened.places.unshipped.runs():
            yield Extent(first, end - first), "released, not yet shipped"
        for block, whose in self._blocks_in_use():
            if block.kind == format.DATA:
                yield extent_of(block), whose

    def _blocks_in_use(self) -> Iterator[tuple[BlockRef | Part, str]]:
        for queue in self._context.state.queues.values():
            with queue.lock:
                try:
                    for ref in queue.records.stored():
                        if queue.unreleased(ref):
                            yield ref, f"queue {queue.name!r}"
                except QuireError as error:
                    self._find(f"queue {queue.name!r}: {error}")
        for ref in list(self._opened.places.deferred):
            yield ref, "released, not yet durably"
        for prepared in self._context.state.prepared:
            for part in prepared.record.parts:
                yield part, f"prepared {prepared.record.xid!r}"

    def _check_prepared_counters(self) -> None:
        """The queues' counters against what prepared transactions hold (H1)."""
        for queue in self._context.state.queues.values():
            space, expected = queue.space, self._context.state.prepared.held(queue)
            if (space.prepared, space.prepared_bytes, space.prepared_messages) != expected:
                self._find(
                    f"queue {queue.name!r}: prepared transactions hold {expected}, not counted"
                )


def read_whole(block: Block) -> int:
    """Return how many messages the block has; payloads that are streams are read to their end."""
    if isinstance(block, StreamedBlock):
        for number in range(block.stream.chunks):
            block.read_chunk(block.stream, number)
    return block.count


def _contradictions(
    refs: list[BlockRef],
    released: IntervalSet,
    end: int,
    used: int,
    live: int,
    subscriptions: dict[str, IntervalSet],
) -> Iterator[str]:
    """Yield what does not agree of a queue as it was at one moment."""
    kept = IntervalSet()
    charge = 0
    previous = 0
    for ref in refs:
        if ref.position < previous:
            yield f"records overlap at position {ref.position}"
        previous = ref.end
        kept.add(ref.position, ref.end)
        charge += ref.charge - ref.released_charge(released.count(ref.position, ref.end))
    if end:
        missing = [gap for lo, hi in kept.gaps(0, end) for gap in released.gaps(lo, hi)]
        if missing:
            yield f"messages at positions {missing[:3]} are neither kept nor released"
        if released.total + live != end:
            yield f"{live} messages counted, {end - released.total} are not released"
    if used != charge:
        yield f"{used} bytes counted as used, the records say {charge}"
    for name, done in subscriptions.items():
        if any(True for lo, hi in released for _ in done.gaps(lo, hi)):
            yield f"subscription {name!r} has not read what is released"
