"""The commit of a batch: one compound transaction over all that it does.

YSC1. Fragments of all outputs, dead letters, read positions of all inputs, changed values and rows
    of keyed states, and the batch's number are one transaction.
- The number stands in the ledger. A batch whose number is there already has no effect, whoever has
  committed it; so of two runs of one step each batch is done by one of them.
YSC3. Where the owner is lost during it, it is tried again: the ledger tells whether it took effect.
    It is this one that did where the numbers and the read positions are just what it commits.
YSC4. A file that the transaction would have adopted is removed only where no commit that named it
    can have taken effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field

from quire.env import Env, OsEnv
from quire.errors import AlreadyCommitted, OutcomeUnknown, QueueFull, StoreFailed
from quire.libraries import pa
from quire.spark_graphs import connection, position_range
from quire.spark_graphs.fragments.fragment import Fragment
from quire.spark_graphs.graphs.functions.kept_values import KeptValues
from quire.spark_graphs.graphs.states.batch_states import StateChange, remove_written
from quire.spark_graphs.graphs.states.written_files import remove_files
from quire.spark_graphs.limits import FULL_PAUSE_SECONDS
from quire.spark_graphs.task_files.task_files import files_at
from quire.spark_graphs.writing import sink_queues
from quire.spark_graphs.writing.sink_committer import put_fragments

if TYPE_CHECKING:
    from quire.batches.moved_messages import Moving
    from quire.interface.store import Store
    from quire.interface.transaction import Transaction

_log = logging.getLogger("quire.spark_graphs")


def ledger_key(graph: str, step: str) -> str:
    """The ledger's name for a step of a graph."""
    return f"graph/{graph}/{step}"


WaitForRoom = Callable[[float, tuple[str, ...]], bool]
"""Rests so many seconds for room in the queues; False: the batch is given up."""


class StepCommit(Struct):
    """The commit of a batch. Sources are "queue/subscription"."""

    path: str
    records: Mapping[str, int]  # for the ledger
    fragments: Sequence[Fragment] = ()
    reads: Mapping[str, int] = field(default_factory=dict)  # positions by source
    created_us: Mapping[str, int] = field(default_factory=dict)  # by source
    letters: Sequence[tuple[str, pa.RecordBatch]] = ()
    values: KeptValues | None = None
    values_name: str = ""
    env: Env = field(default_factory=OsEnv)
    changes: Sequence[StateChange] = ()  # of keyed states
    settings: Mapping[tuple[str, str], bytes] = field(default_factory=dict)  # by state and key
    may_have_committed: bool = False  # the answer to an attempt was lost
    _is_found: bool = False  # one of its attempts took effect, as the store tells (YSC3)

    def commit(self) -> bool:
        """Commit; False: the ledger holds its numbers already, by somebody else.

        Raises QueueFull with the fragments in their places: it may be called again.
        """
        try:
            connection.call(self.path, self._try, env=self.env)
        except AlreadyCommitted as error:
            _log.warning("nothing is written again: %s", error)
            self.discard()
            return self._is_found
        remove_files(self.path, self.env, {each.shared_id for each in self.fragments})
        return True

    def commit_with_room(self, rest: WaitForRoom | None) -> bool:
        """Commit; while a queue has no room, again after each rest (YRN3).

        `rest`: None: QueueFull is raised at once, as it is where no room would be enough. False: it
        did not take effect, or the batch was given up. Where nothing is committed the fragments are
        discarded.
        """
        pauses, pause = iter(FULL_PAUSE_SECONDS), 0.0
        try:
            while True:
                try:
                    return self.commit()
                except QueueFull:
                    if rest is None:
                        raise
                    self.refuse_too_large()
                full = self.full() or tuple(self._shares())
                while full:
                    pause = next(pauses, pause)
                    if not rest(pause, full):
                        self.discard()
                        return False
                    full = self.full()
        except BaseException:
            self.discard()
            raise

    def full(self) -> tuple[str, ...]:
        """The queues that have no room now for what goes to them, dead letters too."""
        shares = self._shares()
        return connection.call(
            self.path, lambda store: sink_queues.without_room(store, shares), env=self.env
        )

    def refuse_too_large(self) -> None:
        """Raise QueueFull where waiting for room would be in vain."""
        shares = self._shares()
        connection.call(
            self.path, lambda store: sink_queues.check_capacities(store, shares), env=self.env
        )

    def _shares(self) -> dict[str, tuple[int, int]]:
        """Return how many messages and bytes go to each queue."""
        shares = sink_queues.shares_of(self.fragments)
        for queue, letters in self.letters:
            messages, size = shares.get(queue, (0, 0))
            shares[queue] = messages + letters.num_rows, size + letters.nbytes
        return shares

    def discard(self) -> None:
        """Remove the files of fragments that cannot be part of the store (YSC4)."""
        if self.may_have_committed:
            remove_files(self.path, self.env, {each.shared_id for each in self.fragments})
        else:
            remove_written(self.path, self.env, self.fragments, self.changes)

    def _try(self, store: Store) -> None:
        last = store.integration.ledger_many(list(self.records)) if self.may_have_committed else {}
        if any(last.get(key, -1) >= version for key, version in self.records.items()):
            self._is_found = last == dict(self.records) and self._has_read(store)
            raise AlreadyCommitted(f"the ledger of {self.path} holds {dict(self.records)}")
        try:
            with store.transaction() as txn:
                self.enter(store, txn)
        except (OutcomeUnknown, StoreFailed):
            self.may_have_committed = True
            raise

    def _has_read(self, store: Store) -> bool:
        """Return True if the inputs' subscriptions stand where this leaves them."""
        for source, position in self.reads.items():
            queue, _, name = source.partition("/")
            if (name, position) not in {(s.name, s.position) for s in store.subscriptions(queue)}:
                return False
        return True

    def enter(self, store: Store, txn: Transaction) -> None:
        """Enter all that the batch does into a transaction (YSC1)."""
        put_fragments(files_at(self.path, self.env), store, txn, self.fragments)
        for queue, letters in self.letters:
            cast("Moving", txn).put_moved_many(queue, letters)  # they keep their headers
        if self.reads:
            made = txn.integration.read_to_many(self.reads)
            for source, created_us in made.items():
                if self.created_us.get(source, created_us) != created_us:
                    raise position_range.made_again(source.partition("/")[0])
        if self.values is not None:
            self.values.write(txn, self.values_name)
        for change in self.changes:
            change.enter(store, txn)
        for (name, key), data in self.settings.items():
            txn.set_value(name, key, data)
        for key, version in self.records.items():
            txn.enter(key, version)
