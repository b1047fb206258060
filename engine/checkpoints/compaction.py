"""Giving the disk back what an owner keeps to go on with: spare segments, space of earlier bursts.

- CP1: what is kept back for a full disk stays kept back (KB1, G6): a store that was compacted is as
  one that was just made, and holds what it held.
- CP2: commits go on beside it. They wait while a new segment is made, as they would at the end of
  one, and as for any checkpoint.
- CP3: each step is one that happens anyway: a new segment, checkpoints, spares that go. So it can
  be broken off anywhere and begun again.
- Where there is no room for a step, the others are taken. A file of the system that is not to be
  removed fails the store, as in a checkpoint.
"""

from __future__ import annotations

from contextlib import suppress

from quire.engine.commits.sequencer import Sequencer
from quire.errors import ResourceExhausted, StoreFailed
from quire.limits import COMPACT_ROUNDS
from quire.reports.info import CompactReport

from .checkpoint import Checkpointer
from .store_files import Opened


def compact(opened: Opened, sequencer: Sequencer, checkpointer: Checkpointer) -> CompactReport:
    """Give back what can be given back; the bytes before and after. Raises StoreFailed."""
    if checkpointer.store_failed:
        raise StoreFailed("the store has failed: close it and open it again to recover")
    journal, kept_back = opened.journal, opened.kept_back
    before = _bytes(opened)
    with sequencer.fail_stop("compacting"):
        opened.check_place()
        with suppress(ResourceExhausted):
            journal.shrink_spares()  # first, as the disk may be full
    with suppress(ResourceExhausted):
        sequencer.exclusive(journal.begin_segment)
    checkpointer.run()
    for _ in range(COMPACT_ROUNDS):
        if not checkpointer.is_worthwhile:
            break
        checkpointer.run()
    with sequencer.fail_stop("compacting"), suppress(ResourceExhausted):
        journal.shrink_spares()  # those that the checkpoint set free
        sequencer.exclusive(lambda: kept_back.settle(1))
    return CompactReport(before, _bytes(opened))


def _bytes(opened: Opened) -> dict[str, int]:
    places = opened.places
    pages = sum(manager.space.total_pages for manager in places.managers)
    return {
        "journal": opened.journal.status().bytes,
        "data": pages * places.page_size,
        "checkpoint": opened.kept_back.total_bytes,
    }
