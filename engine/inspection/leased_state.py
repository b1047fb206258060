"""The durable state at one moment, with all that it names kept in place: of it bases are made.

- It is of one moment, though commits and checkpoints go on: until the lease ends no page that
  it names is used again, and no segment of the journal or file of a large transaction goes.
- Commits wait only for as long as it takes to copy what a checkpoint copies, the records since the
  latest one, and what is hashed. No message is read.
"""

from __future__ import annotations

from quire.engine.checkpoints.snapshot import Snapshot
from quire.engine.checkpoints.store_files import Opened
from quire.engine.reading.lease import Leases
from quire.engine.records.checkpoint_file import IntegerRuns, encode
from quire.engine.state.state_hash import HashedValues, hash_of, values_of
from quire.engine.transactions.context import Context
from quire.env.memory_env import MemoryEnv
from quire.errors import InvalidArgument
from quire.reports.info import StateLease


def lease_state(opened: Opened, context: Context, leases: Leases, seconds: float) -> StateLease:
    """Return the state now, under a lease. Raises InvalidArgument, StoreFailed."""
    if isinstance(opened.ownership.env.machine, MemoryEnv):
        raise InvalidArgument(
            "a store in memory has no files that others could read: open one at a path"
        )
    sequencer, journal = context.sequencer, opened.journal

    def take() -> tuple[Snapshot, HashedValues, int, int]:
        sequencer.check()
        journal.sync()
        state = context.state
        lsn, last_lsn, number = journal.end_lsn, journal.last_lsn, sequencer.number
        snapshot = Snapshot.of(state, lsn, last_lsn, number, copies_tails=True)
        values, now_us = values_of(state.durable), context.env.now_us()
        return snapshot, values, now_us, leases.take_all(seconds)

    snapshot, values, now_us, lease_id = sequencer.exclusive(take)
    try:
        for queue in snapshot.queues:
            queue.keep_tail()
        numbers = IntegerRuns()
        document = opened.settings | snapshot.document(numbers)
        image = bytes(encode(opened.store_id, snapshot.lsn, document, numbers))
    except BaseException:
        leases.release(lease_id)
        raise
    number = int(snapshot.durable["number"])
    return StateLease(lease_id, number, now_us, hash_of(values), journal.generation, image)
