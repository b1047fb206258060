"""The space that is kept back for checkpoints, so that one can be made on a full disk.

What makes room on a full disk (reading, dropping, deciding) is written to journal segments that are
kept back for it (see `quire.journal`), and these are used again after a checkpoint. A checkpoint
that finds no other room is one file (K7 of `checkpoint`), written into one of some spares, which
have their space already (K8). Here the spares grow with what a checkpoint would have to hold.

- KB1: no group that adds anything is written unless each spare has the space that a checkpoint
  after it can need, and any later one, however much is read until then and in whatever order.
- KB2: a checkpoint that moves blocks counts only if KB1 holds with it: its maps of free pages may
  be larger. Else the one of K7 is made.
- KB3: what makes room and may all the same make a checkpoint larger, by other things than reads, is
  refused where the spares have no room for that: a move back, a version of the ledger that is
  entered beside a read, the note of a delivery. `SPARE_MARGIN_BYTES` are kept back for such.
- Nobody waits for a checkpoint that is being written: groups until then go by what was counted
  before it.

Proof of KB1: `needed_bytes` is the sum of a bound for each piece of the checkpoint of K7, and no
read, release or drop makes any of these bounds larger.

- What a queue has released, what a subscription has read: see `most_bytes`. In the order of the
  positions the runs would stay few, but a queue may have another order, and several readers.
- The free pages of a data file: reading one of several queues leaves a piece between the blocks of
  the others, with an entry of its own. As bits they take an eighth of a byte for each page before
  the free ones at the file's end, and this end only sinks while nothing is put. Pages that are
  pending or deferred, and record pages out of use, are free in a checkpoint, and count as in use
  here: so the bits reach at least as far. Where the store has an archive, there is a second map of
  each file, of the pages that wait to be shipped, with the same bound; a large transaction's file
  that waits has an entry, as before.
- What came of deliveries: see `Attempts.rows_beside`, which are in the checkpoint.
- The next numbers of senders: a read adds one at most, and takes a message from those unread.
- Records, record pages, request ids, definitions, values, prepared transactions: reading only takes
  from them. A decision takes its transaction, and what that puts is counted with it until then.

What is added grows by less than is admitted: a byte of the journal adds `GROWTH_TIMES` to a
checkpoint at most, besides messages. Those are counted by their number, as a record of few bytes
can put many: `COUNTED_MESSAGES` beforehand, as of the queue that grows most by one (see
`most_bytes`), and those of a change that goes beyond them when it has its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from itertools import islice
from json.encoder import encode_basestring
from typing import Final

from quire.definitions.order import by_sequence
from quire.engine.live_state.engine_state import EngineState
from quire.engine.pages.free_space import FreeSpace
from quire.engine.records import format
from quire.engine.records.checkpoint_file import remove_older
from quire.engine.records.checkpoint_spares import (
    SPARES,
    cut_spares,
    keep_spares,
    next_spare_bytes,
    spare_bytes,
)
from quire.engine.records.commit_record import PartRow
from quire.engine.records.packed_runs import most_bytes
from quire.engine.state.catalog import QUEUE, SCHEDULE, STATE, SUBSCRIPTION
from quire.engine.state.durable_state import DurableQueue
from quire.engine.state.sections.kinds import pack_prepared
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import DiskFull, ResourceExhausted
from quire.limits import (
    CHECKPOINT_ARCHIVE_BYTES,
    CHECKPOINT_ATTEMPTS_BYTES,
    CHECKPOINT_DIRECTORY_BYTES,
    CHECKPOINT_ENTRY_BYTES,
    CHECKPOINT_FIXED_BYTES,
    CHECKPOINT_INTERVAL_BYTES,
    CHECKPOINT_QUEUE_BYTES,
    CHECKPOINT_STATE_BYTES,
    CHECKPOINT_SUBSCRIPTION_BYTES,
    COUNTED_MESSAGES,
    MAX_CATALOG_ENTRY_BYTES,
    SEQUENCE_SENDERS,
    SPARE_MARGIN_BYTES,
    SPARE_MOST_TIMES,
    SPARE_STEP_BYTES,
    SPARE_STEP_BYTES_PER_QUEUE,
)

_COUNTED: Final = (QUEUE, SUBSCRIPTION, STATE)  # in another way
_RECORD_BYTES: Final = format.PACKED_RECORD.size


class KeptBack:
    """The spares of the checkpoint directory. Thread-safe."""

    def __init__(self, env: Env, directory: str, state: EngineState) -> None:
        """`directory`: of the checkpoints."""
        self._env, self._directory = env, directory
        self._state, self._places = state, state.places
        self._lock = Lock()
        self._ledger_entries = 0  # those that were counted
        self._ledger_bytes = 0
        self.bytes = 0  # what each spare has
        self._coming_maps_bytes = 0
        state.coming.counted_id = 0
        state.coming.has_room_for = self.has_room_for

    def look(self) -> None:
        """Read the size of the spares that an opening finds."""
        self.bytes = spare_bytes(self._env, self._directory)

    def admit(self) -> int:
        """Keep enough space back for what comes next (KB1): how many bytes of the journal.

        Raises DiskFull.
        """
        if not self._lock.acquire(blocking=False):
            return self._step()
        try:
            counted_id = self._state.durable.next_id + COUNTED_MESSAGES
            left = self._grow()
            self._state.coming.counted_id = counted_id
            return left
        finally:
            self._lock.release()

    def in_use(self) -> AbstractContextManager[object]:
        """While a checkpoint is being written, perhaps into a spare."""
        return self._lock

    def renew(self, lsn: int) -> None:
        """There is a checkpoint at the LSN: those before it go, or become spares."""
        with self._lock:
            remove_older(self._env, self._directory, lsn)
            self.look()
            self._coming_maps_bytes = 0
            with suppress(ResourceExhausted):  # then nothing is admitted before there is room
                self._grow()

    def settle(self, most_times: int = SPARE_MOST_TIMES) -> None:
        """Cut spares that are too large. Nothing is committed meanwhile, and then counted anew.

        `most_times`: by how much they may be too large.
        """
        with self._lock:
            target_bytes = 2 * self._target()
            if self.bytes > most_times * target_bytes:
                cut_spares(self._env, self._directory, target_bytes)
                self.bytes = target_bytes
        self._state.coming.count_anew()

    @property
    def is_enough(self) -> bool:
        """True if KB1 holds, and so something may be added."""
        return self.bytes >= self.needed_bytes()

    def has_room_for(self, growth: int) -> bool:
        """Return True if a checkpoint fits that is so many bytes larger than now (KB3)."""
        needed = self.needed_bytes() + growth
        if not self._lock.acquire(blocking=False):
            return self.bytes >= needed
        try:
            return next_spare_bytes(self._env, self._directory) >= needed
        finally:
            self._lock.release()

    def expect(self, spaces: Sequence[FreeSpace]) -> None:
        """Count beforehand what these maps of free pages take more than the present ones (KB2).

        Nothing is committed meanwhile, and then counted anew.
        """
        now = [manager.space for manager in self._state.places.managers]
        more = sum(space.most_map_bytes for space in spaces)
        more -= sum(space.most_map_bytes for space in now)
        self._coming_maps_bytes = max(more * self._maps, 0)
        self._state.coming.count_anew()

    def check(self) -> None:
        """Raise DiskFull if what is expected has no room. The checkpoint is `in_use`."""
        needed = self.needed_bytes() + self._coming_maps_bytes
        if next_spare_bytes(self._env, self._directory) < needed:
            raise DiskFull(
                f"a checkpoint that moves messages would need {needed} bytes later on, which are "
                "not kept back: give the file system room"
            )

    @property
    def total_bytes(self) -> int:
        """The bytes of all spares."""
        return SPARES * self.bytes

    def needed_bytes(self) -> int:
        """The most that a checkpoint of the present state takes if it moves nothing, now and later.

        Reading does not make it more (KB1).
        """
        return self._count()[0]

    def _count(self) -> tuple[int, int]:
        """Return that, and by how many eighths of a byte one message makes it more, at most."""
        state, places = self._state, self._places
        total = CHECKPOINT_FIXED_BYTES + self._count_ledger()
        durable = [q.durable for q in list(state.queues.values()) if q.config.properties.persistent]
        counted = [_bytes_of(queue) for queue in durable]
        total += sum([own for own, _ in counted])
        growth = max([eighths for _, eighths in counted], default=0)
        total += state.durable.values.saved_bytes
        for name, entries in list(state.durable.catalog.items()):
            if name not in _COUNTED:
                total += MAX_CATALOG_ENTRY_BYTES * len(entries)
            if name == SCHEDULE:  # beside what is counted above
                texts = [json.dumps(e.body, ensure_ascii=False) for e in list(entries.values())]
                total += len("".join(texts).encode())
        files = len(state.durable.ltds) + places.removable
        if files:
            longest = max((_text_bytes(queue.config.name) for queue in durable), default=0)
            total += files * (CHECKPOINT_ENTRY_BYTES + longest)
        for manager in places.managers:
            total += manager.space.most_map_bytes * self._maps
        if places.unshipped.is_on:
            total += CHECKPOINT_ARCHIVE_BYTES + CHECKPOINT_ENTRY_BYTES * len(places.managers)
        for record in list(state.durable.prepared.values()):
            total += len(pack_prepared(record)) * 4 // 3 + CHECKPOINT_ENTRY_BYTES
            total += len(record.sets) * CHECKPOINT_STATE_BYTES
            total += sum(_text_bytes(entry.key) for entry in record.entries)
            total += self._growth_by(record.parts)
        return total, growth

    @property
    def _maps(self) -> int:
        """How many maps of its pages a data file has: a second one is of what is not shipped."""
        return 2 if self._places.unshipped.is_on else 1

    def _growth_by(self, parts: Sequence[PartRow]) -> int:
        """Return how much larger what is read and released may be once these are put."""
        total, queues = 0, self._state.durable.queues
        for part in parts:
            queue = queues.get(part[3])
            if queue is not None:
                total += _bytes_of(queue, part[5])[0] - _bytes_of(queue)[0]
        return total

    def _target(self) -> int:
        """Return what each spare is to have, so that some more can be added."""
        needed, growth = self._count()
        state = self._state
        for change in state.coming.changes:
            if not change.applied:
                needed += sum([self._growth_by(parts) for _, parts in change.groups])
        needed += COUNTED_MESSAGES * growth // 8
        needed += state.coming.bytes + self._coming_maps_bytes
        return needed + SPARE_MARGIN_BYTES + self._step()

    def _grow(self) -> int:
        """Return how many bytes may be added next."""
        target_bytes, step = self._target(), self._step()
        if self.bytes < target_bytes:
            try:
                self._keep(target_bytes + target_bytes // 2)  # so that this is seldom
            except ResourceExhausted:
                self._keep(target_bytes)
        return self.bytes - target_bytes + step

    def _keep(self, size: int) -> None:
        keep_spares(self._env, self._directory, size)
        self.bytes = size

    def _step(self) -> int:
        return SPARE_STEP_BYTES + SPARE_STEP_BYTES_PER_QUEUE * len(self._state.queues)

    def _count_ledger(self) -> int:
        """Entries are never removed, and new ones come last."""
        ledger = self._state.durable.ledger
        new = len(ledger) - self._ledger_entries
        if new:
            self._ledger_entries += new
            self._ledger_bytes += sum(
                _text_bytes(key) + CHECKPOINT_ENTRY_BYTES for key in islice(reversed(ledger), new)
            )
        return self._ledger_bytes


@lru_cache(4096)
def _text_bytes(value: str) -> int:
    """Return the size of a string in JSON; `json.dumps` takes ten times as long."""
    return len(encode_basestring(value).encode())


def _bytes_of(queue: DurableQueue, more: int = 0) -> tuple[int, int]:
    """Return the most that a queue takes, if so many more messages are put.

    Also by how many eighths of a byte each further one makes it more, at most.
    """
    config, released, end = queue.config, queue.released, queue.end_position + more
    total = CHECKPOINT_QUEUE_BYTES + _text_bytes(config.name)
    subscriptions = list(queue.subscriptions.values())
    if config.is_volatile:
        names = [_text_bytes(subscription.name) for subscription in subscriptions]
        return total + sum(names) + len(names) * CHECKPOINT_SUBSCRIPTION_BYTES, 0
    runs_bytes, is_steep = most_bytes(released, end)
    growth = 64 if is_steep else 1
    total += (
        len(queue.tail.starts) * _RECORD_BYTES
        + len(queue.directory) * CHECKPOINT_DIRECTORY_BYTES
        + runs_bytes
        + queue.requests.checkpoint_bytes
    )
    order = config.properties.order
    is_numbered = type(order) is not str and by_sequence(order)  # the first look takes less
    for subscription in subscriptions:
        done, numbers = subscription.done, subscription.numbers
        total += CHECKPOINT_SUBSCRIPTION_BYTES + _text_bytes(subscription.name)
        if subscription.attempts.starts:
            joined = subscription.attempts.rows_beside(done)
            total += len(joined) * CHECKPOINT_ATTEMPTS_BYTES
        if done is not released:
            runs_bytes, is_steep = most_bytes(done, end)
            total += runs_bytes
            growth += 64 if is_steep else 1
        if is_numbered or numbers:
            senders = min(SEQUENCE_SENDERS, len(numbers) + end - done.total)
            total += senders * CHECKPOINT_INTERVAL_BYTES
            growth += 8 * CHECKPOINT_INTERVAL_BYTES
    return total, growth
