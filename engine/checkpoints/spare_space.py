"""The space that is kept back for checkpoints, so that one can be made on a full disk.

What makes room on a full disk (reading, dropping, deciding) is written to journal segments that are
kept back for it (see `quire.journal`), and these are used again after a checkpoint. A checkpoint
that finds no other room is one file (K7 of `checkpoint`), written into one of some spares, which
have their space already (K8). Here the spares grow with what a checkpoint would have to hold.

- KB1: no group that adds anything is written unless each spare has the space that a checkpoint
  after it can need.
- Nobody waits for a checkpoint that is being written: groups until then go by what was counted
  before it.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from itertools import islice
from json.encoder import encode_basestring
from typing import Final

from quire.engine.live_state.engine_state import EngineState
from quire.engine.records import format
from quire.engine.records.checkpoint_file import remove_older
from quire.engine.records.checkpoint_spares import SPARES, cut_spares, keep_spares, spare_bytes
from quire.engine.state.catalog import QUEUE, SCHEDULE, STATE, SUBSCRIPTION
from quire.engine.state.durable_state import DurableQueue
from quire.engine.state.sections.kinds import pack_prepared
from quire.env import Env
from quire.env.interpreter import Lock
from quire.errors import ResourceExhausted
from quire.limits import (
    CHECKPOINT_ATTEMPTS_BYTES,
    CHECKPOINT_DIRECTORY_BYTES,
    CHECKPOINT_ENTRY_BYTES,
    CHECKPOINT_FIXED_BYTES,
    CHECKPOINT_INTERVAL_BYTES,
    CHECKPOINT_QUEUE_BYTES,
    CHECKPOINT_SUBSCRIPTION_BYTES,
    MAX_CATALOG_ENTRY_BYTES,
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
            return self._grow()
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
            with suppress(ResourceExhausted):  # then nothing is admitted before there is room
                self._grow()
                target_bytes = 2 * (self.needed_bytes() + self._step())
                if self.bytes > SPARE_MOST_TIMES * target_bytes:
                    cut_spares(self._env, self._directory, target_bytes)
                    self.bytes = target_bytes

    @property
    def is_enough(self) -> bool:
        """True if KB1 holds, and so something may be added."""
        return self.bytes >= self.needed_bytes()

    @property
    def total_bytes(self) -> int:
        """The bytes of all spares."""
        return SPARES * self.bytes

    def needed_bytes(self) -> int:
        """The most that a checkpoint of the present state takes if it moves nothing."""
        state, places = self._state, self._places
        total = CHECKPOINT_FIXED_BYTES + self._count_ledger()
        durable = [q.durable for q in list(state.queues.values()) if q.config.properties.persistent]
        total += sum(map(_bytes_of, durable))
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
            total += manager.space.fragments * CHECKPOINT_INTERVAL_BYTES
        records = list(state.durable.prepared.values())
        sizes = [len(pack_prepared(record)) * 4 // 3 for record in records]
        return total + sum(sizes) + len(sizes) * CHECKPOINT_ENTRY_BYTES

    def _grow(self) -> int:
        needed, step = self.needed_bytes(), self._step()
        target_bytes = needed + step
        if self.bytes < target_bytes:
            try:
                self._keep(target_bytes + target_bytes // 2)  # so that this is seldom
            except ResourceExhausted:
                self._keep(target_bytes)
        return max(step, self.bytes - needed)

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


def _bytes_of(queue: DurableQueue) -> int:
    config, released = queue.config, queue.released
    subscriptions = list(queue.subscriptions.values())
    total = CHECKPOINT_QUEUE_BYTES + _text_bytes(config.name)
    if config.is_volatile:
        names = [_text_bytes(subscription.name) for subscription in subscriptions]
        return total + sum(names) + len(names) * CHECKPOINT_SUBSCRIPTION_BYTES
    total += (
        len(queue.tail.starts) * _RECORD_BYTES
        + len(queue.directory) * CHECKPOINT_DIRECTORY_BYTES
        + len(released) * CHECKPOINT_INTERVAL_BYTES
        + queue.requests.checkpoint_bytes
    )
    for subscription in subscriptions:
        total += CHECKPOINT_SUBSCRIPTION_BYTES + _text_bytes(subscription.name)
        if subscription.attempts.starts:
            total += len(subscription.attempts.starts) * CHECKPOINT_ATTEMPTS_BYTES
        if subscription.numbers:
            total += len(subscription.numbers) * CHECKPOINT_INTERVAL_BYTES
        if subscription.done is not released:
            total += len(subscription.done) * CHECKPOINT_INTERVAL_BYTES
    return total
