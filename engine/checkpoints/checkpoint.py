"""Checkpoints: bound what recovery reads, and give the journal's segments back.

- The state is taken between two commits, at one LSN; everything else runs beside commits, and no
  commit waits for it (promise: recovery's time depends on the journal since the last checkpoint).
- K4: until the checkpoint's file is durable under its name the store is what it was: what was
  written for it is abandoned if there is no room for it. If it is not known whether it became
  durable, the store has failed, and neither its pages nor those it replaces are used again.
- K5: in the checkpoint no unread block is in the journal below its LSN, so that those segments can
  be used again (but for pinned ones). What the data files have no room for stays where it is: the
  checkpoint holds its records itself, and keeps the segments that its blocks are in.
- K7: where there is not even room for record pages, it moves nothing, and needs no more space than
  what is kept back for it (`kept_back`): so it can be made on a full disk, as often as need be.
- K9: all that it rests on is durable before it is: what was committed before its LSN, and what has
  read since then the messages that it did not move. Not every commit is synced by itself.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from itertools import chain, groupby
from typing import Final, TypeGuard

from quire.engine.commits.sequencer import Sequencer
from quire.engine.pages.free_space import FreeSpace
from quire.engine.pages.unshipped_places import ShippedPosition, UnshippedSnapshot
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.state.durable_state import PageEntry
from quire.env.interpreter import Lock
from quire.errors import ResourceExhausted, StoreFailed
from quire.loggers import logger

from .background_pace import Pace
from .block_mover import MovedBlock, Mover, consecutive
from .reorganising import Reorganisation, Reorganiser
from .snapshot import QueueSnapshot, Snapshot
from .space_maps import spaces_after, without_free
from .store_files import Opened

_log: Final = logger("quire.archive")
# What becomes of a block.
_STAYS: Final = "stays"
_WHOLE: Final = "whole"
_PARTLY_READ: Final = "partly read"


class Checkpointer:
    """Makes checkpoints of one store, one at a time."""

    def __init__(self, opened: Opened, sequencer: Sequencer) -> None:
        self._opened = opened
        self._journal, self._sequencer = opened.journal, sequencer
        self._state, self._pages = opened.state, opened.state.pages
        self._places = opened.places
        self._reorganiser = Reorganiser(opened.places, opened.state.pages, opened.reader)
        self._lock = Lock()
        self.last_lsn = opened.checkpoint_lsn
        self.count = 0
        self.moved_bytes = 0
        self.last_us = 0  # when the last one of this opening was made; 0: there was none
        self.last_seconds = 0.0  # that it took

    def run(self, *, waits: bool = True, lets_go: bool = False) -> None:
        """Make a checkpoint of the present state.

        `waits`: also for one that is under way, or for `verify`; else nothing is done meanwhile.
        `lets_go`: of all that waits to be shipped (US4).
        """
        if not self._lock.acquire(blocking=waits):
            return
        try:
            self._make(sparing=False, lets_go=lets_go)
        except ResourceExhausted:
            if lets_go or self.last_lsn < self._journal.end_lsn:  # else there is such a one already
                self._make(sparing=True, lets_go=lets_go)
        finally:
            self._lock.release()

    def relieve(self) -> None:
        """Set segments free for what makes room on a full disk, shipped or not."""
        self.run()
        position = self._places.unshipped.position
        if position is None or self._journal.has_spares:
            return
        if self._journal.segment_of(position.lsn) < self._journal.segment_of(self.last_lsn):
            self.run(lets_go=True)

    @property
    def store_failed(self) -> bool:
        """Return True if a write or sync of the store has failed."""
        failure = self._sequencer.failure
        return self._journal.failed or self._places.data.failed or failure is not None

    @property
    def is_worthwhile(self) -> bool:
        """True if a checkpoint would probably make data files shorter, much was put or not."""
        return self._reorganiser.is_due(self._journal.end_lsn)

    @property
    def reorganised_bytes(self) -> int:
        """The bytes moved within data files, record pages included."""
        return self._reorganiser.moved_bytes

    def _make(self, *, sparing: bool, lets_go: bool = False) -> None:
        """`sparing`: move nothing, write nothing but the checkpoint's file (K7).

        `lets_go`: of all that waits to be shipped (US4).
        """
        env = self._opened.env
        begin = env.monotonic()
        with self._sequencer.fail_stop("a checkpoint"):
            self._opened.check_place()
        snapshot = self._sequencer.exclusive(lambda: self._take(lets_go=lets_go))
        mover = Mover(self._places, self._opened.reader, Pace(self._opened.env, self._sequencer))
        try:
            with self._sequencer.fail_stop("a checkpoint"):
                reorganisation = self._reorganiser.begin(snapshot, mover, sparing=sparing)
                if sparing:
                    for queue in snapshot.queues:  # (K7)
                        queue.keep_tail()
                else:
                    self._move_all(snapshot, mover, reorganisation)
                self._write(snapshot, mover, sparing=sparing)
        except BaseException:
            mover.cancel()
            if self._sequencer.failure is None and not self._journal.failed:
                mover.abandon()  # else it may be durable: what it names must stay (K4)
                self._places.hand_back()
            raise
        self._switch(snapshot, mover)
        self._free_unshipped(snapshot.unshipped)
        self._places.hand_back()
        self.last_lsn = snapshot.lsn
        self.count += 1
        self.last_us, self.last_seconds = env.now_us(), env.monotonic() - begin
        self.moved_bytes += mover.moved_bytes
        with self._sequencer.fail_stop("removing an old checkpoint"):
            segment_bytes = self._opened.settings["segment_bytes"]
            keep = {n for q in snapshot.queues for n in q.kept_segments(segment_bytes)}
            self._journal.release(self._needed_from(snapshot), keep)
            self._places.trim()
            self._opened.kept_back.renew(snapshot.lsn)
            self._sequencer.exclusive(self._opened.kept_back.settle)
        self._reorganiser.end(reorganisation, snapshot.lsn)

    def _needed_from(self, snapshot: Snapshot) -> int:
        """The LSN from which on the journal is needed, by recovery or by who ships it (US1)."""
        if snapshot.unshipped is None:
            return snapshot.restart_lsn
        return min(snapshot.restart_lsn, snapshot.unshipped.position.lsn)

    def _free_unshipped(self, unshipped: UnshippedSnapshot | None) -> None:
        """Free what the checkpoint lets go of unshipped (US4)."""
        if unshipped is None or not unshipped.lets_go:
            return
        places = self._places.unshipped
        before = places.position
        places.skip(unshipped)
        self._places.let_go(unshipped.position.lsn)
        if before is not None and before.number < unshipped.position.number:
            _log.warning(
                "the archive has a gap: records %d to %d were let go of before they were shipped; "
                "it is whole again from its next base on",
                before.number + 1,
                unshipped.position.number,
            )

    def paused(self) -> AbstractContextManager[object]:
        """No checkpoint happens meanwhile."""
        return self._lock

    def _take(self, *, lets_go: bool) -> Snapshot:
        journal = self._journal
        if self._sequencer.failure is not None or journal.failed:
            raise StoreFailed("the store has failed: close it and open it again to recover")
        journal.sync()  # (K9)
        lsn, number = journal.end_lsn, self._sequencer.number
        gap_at = ShippedPosition(lsn, number) if lets_go else None
        unshipped = self._places.unshipped.snapshot(gap_at)
        self._places.withhold()
        return Snapshot.of(self._state, lsn, journal.last_lsn, number, unshipped=unshipped)

    def _move_all(self, snapshot: Snapshot, mover: Mover, reorganisation: Reorganisation) -> None:
        """Move blocks and write record pages, as far as there is room."""
        plans = []
        for queue in snapshot.queues:
            if queue.tail:
                mover.file = queue.queue.data_file
                plans.append((queue, self._plan(queue, mover, reorganisation)))
        mover.flush()
        pages: list[tuple[QueueSnapshot, list[tuple[MovedBlock, list[BlockRef]]]]] = []
        for queue, records in plans:
            mover.file = queue.queue.data_file
            stays = next((i for i, record in enumerate(records) if _is_refused(record)), None)
            refs = [self._final(queue, record) for record in records[:stays]]
            for record in records[len(refs) :]:
                queue.kept += record.refs if _is_refused(record) else [self._final(queue, record)]
            size = self._pages.capacity
            chunks = [refs[i : i + size] for i in range(0, len(refs), size)]
            written = [
                (mover.write_page(self._pages.pack(queue.queue.queue_id, chunk)), chunk)
                for chunk in chunks
            ]
            pages.append((queue, written))
        reorganisation.rewrite()
        mover.finish()
        for queue, written in pages:
            queue.entries = [
                PageEntry(chunk[0].position, chunk[-1].end, placed.page, len(chunk))
                for placed, chunk in written
                if placed.page
            ]
            without = [chunk for _, chunk in written[len(queue.entries) :]]  # the last ones (M5)
            queue.kept[:0] = chain.from_iterable(without)

    def _write(self, snapshot: Snapshot, mover: Mover, *, sparing: bool) -> None:
        """Write the checkpoint's file."""
        spaces = self._spaces(snapshot, mover)
        self._places.discarded.sync()
        self._sequencer.sync()  # (K9)
        opened = self._opened
        opened.check_place()
        kept_back = opened.kept_back
        if not sparing:
            self._sequencer.exclusive(lambda: kept_back.expect(spaces))
        with kept_back.in_use():
            if not sparing:
                kept_back.check()
            snapshot.write(opened.env, opened.layout, opened.store_id, opened.settings, spaces)

    def _plan(
        self, queue: QueueSnapshot, mover: Mover, reorganisation: Reorganisation
    ) -> list[BlockRef | MovedBlock]:
        """The queue's records that go into new record pages, blocks of the journal moved (K5)."""
        records = queue.queue.records
        refs: list[BlockRef] = []
        queue.replaced = queue.to_replace(self._pages.capacity)
        if queue.replaced is not None:
            refs = records.read_page(queue.replaced)
        refs = [
            ref
            for ref in mover.pace.over(chain(refs, records.tail.between(0, queue.tail)))
            if not queue.released.covers(ref.position, ref.end)
        ]
        size = queue.queue.block_bytes
        plan: list[BlockRef | MovedBlock] = []
        ways = groupby(mover.pace.over(refs), lambda ref: self._block_move(queue, ref))
        for way, some in ways:
            if way == _STAYS:
                plan += [reorganisation.move(queue, ref) for ref in some]
                continue
            runs = consecutive(some) if way == _WHOLE else ([ref] for ref in some)
            plan += [placed for run in runs for placed in mover.move(run, size)]
        return plan

    def _block_move(self, queue: QueueSnapshot, ref: BlockRef) -> str:
        """Return what becomes of a record's block; a partly read one is not merged with others."""
        if ref.kind != format.INLINE or not self._unread(queue, ref):
            return _STAYS
        return _PARTLY_READ if queue.released.overlaps(ref.position, ref.end) else _WHOLE

    def _unread(self, queue: QueueSnapshot, ref: BlockRef) -> bool:
        """Now, not at the snapshot: what was read meanwhile need not be moved (M1)."""
        with queue.queue.lock:
            return queue.queue.unreleased(ref)

    def _final(self, queue: QueueSnapshot, record: BlockRef | MovedBlock) -> BlockRef:
        if isinstance(record, BlockRef):
            return record
        ref = record.ref(self._places.page_size)
        queue.moved.append((record.refs, ref))
        return ref

    def _spaces(self, snapshot: Snapshot, mover: Mover) -> list[FreeSpace]:
        """The free-space maps as they are with this checkpoint."""
        freed = [(page, 1) for page in snapshot.retired]
        unshipped = snapshot.unshipped
        if unshipped is not None:
            base_of = self._places.base_of
            unshipped.pages = without_free(unshipped.pages, snapshot.spaces, base_of)
            if unshipped.lets_go:
                freed += [(lo, hi - lo) for lo, hi in unshipped.pages]
        for queue in snapshot.queues:
            if queue.replaced is not None:
                freed.append((queue.replaced.page, 1))
            freed += [(entry.page, 1) for entry in queue.rewritten]
            for old, _ in queue.moved:
                if old[0].kind != format.DATA:
                    continue
                extents = [self._places.extent_of(ref) for ref in old]
                if unshipped is None or unshipped.lets_go:
                    freed += extents
                else:  # a record that is not shipped may name them (US1)
                    for first, pages in extents:
                        unshipped.pages.add(first, first + pages)
        return spaces_after(snapshot.spaces, mover.extents, freed, self._places.page_size)

    def _switch(self, snapshot: Snapshot, mover: Mover) -> None:
        """The checkpoint counts: the live state takes its places."""
        self._places.keep(mover.extents)
        for queue in snapshot.queues:
            live = queue.queue
            logged = live.log_to_keep(queue.sealed_end)
            with live.lock:
                # Not `dropped`, which is set before the drop is durable.
                if self._state.queues.get(live.queue_id) is not live:
                    freed = [new for _, new in queue.moved]
                    written = [*queue.entries, *queue.rewritten.values()]
                    self._pages.retire(entry.page for entry in written)
                else:
                    freed = live.seal(queue, logged)
            self._places.free(freed)
            for old, _ in mover.pace.over(queue.moved):
                self._places.cache.forget(old)
        del self._pages.retired[: len(snapshot.retired)]
        for page in snapshot.retired:
            self._places.free_page(page)


def _is_refused(record: BlockRef | MovedBlock) -> TypeGuard[MovedBlock]:
    """Return True for a block that was to be moved and had no room (M5)."""
    return isinstance(record, MovedBlock) and not record.page
