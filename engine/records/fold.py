"""The fold: a record of the journal changes the durable state.

Records in, state out, in the journal's order. Live commits, recovery and `dump` use it alike, and
it is as pure as the state (see `durable_state`). What else a record brings about (space, pages,
files, who waits) is for those that stand beside: beside each queue (`QueueEffects`), and beside the
store (`Effects`). What is in memory only is folded by a second one.

- FO1: a COMMIT is applied here only (`Fold.commit`), whatever its shape and whoever applies it.
- FO2: nothing is looked up but in the state and the record.
- FO3: what a record contradicts is told by `Effects.fault`. Recovery raises there; who goes on has
  the rest of the record applied as far as it makes sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from quire.errors import StoreVersion

from . import catalog, format
from .catalog import CatalogChange, add_queue, change, decide_state
from .commit_record import CommitRecord, Entry, Part, Read, ReadRow, unpack
from .durable_state import (
    LOST,
    NOBODY,
    PREPARED,
    DurableQueue,
    DurableState,
    Effects,
    QueueConfig,
    RowsByQueue,
)
from .handout_record import HandOut, unpack_handout
from .prepared_record import DecisionRecord, PrepareRecord, unpack_decision, unpack_prepare
from .sections import Moves, Seek, read_sections
from .sought_record import unpack_sought

Said = CommitRecord | PrepareRecord | DecisionRecord | HandOut | Moves | list[CatalogChange] | None


_READERS: Final[Mapping[int, Callable[[memoryview, str], Said]]] = {
    format.COMMIT: unpack,
    format.COMMIT_ONCE: unpack,
    format.PREPARE: unpack_prepare,
    format.COMMIT_MORE: partial(unpack, read_more=read_sections),
    format.PREPARE_ONCE: unpack_prepare,
    format.PREPARE_MORE: partial(unpack_prepare, read_more=read_sections),
    format.COMMIT_PREPARED: unpack_decision,
    format.ROLLBACK_PREPARED: unpack_decision,
    format.HANDED_OUT: unpack_handout,
    format.SOUGHT: unpack_sought,
}


def decode(kind: int, body: memoryview, where: str) -> Said:
    """What a record says; None for a kind that this release does not know. Raises StoreCorrupt."""
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(body, where)
    if kind == format.CATALOG or kind in format.DEFINITIONS:
        return catalog.unpack(kind, bytes(body), where)
    return None


class Fold:
    """Changes one durable state."""

    __slots__ = ("_effects", "state")

    def __init__(self, state: DurableState, effects: Effects) -> None:
        self.state = state
        self._effects = effects

    def take(self, kind: int, transaction_id: int, address: int, said: Said, where: str) -> None:
        """The next record of the journal, which is at the address; `said` is its `decode`.

        Raises StoreVersion for what only a newer release knows.
        """
        if isinstance(said, CommitRecord):
            self.commit(
                self.groups(said.parts, where), said.reads, said.entries,
                said.first_id, said.time_us, address, transaction_id=transaction_id,
            )  # fmt: skip
            for section in said.sections:
                section.fold(self, where)
        elif isinstance(said, PrepareRecord):
            self.prepare(said._replace(sections=()), where)
            for section in said.sections:
                section.hold(self, said.xid, where)
        elif isinstance(said, DecisionRecord):
            self.decide(said, kind == format.COMMIT_PREPARED, address, where)
        elif isinstance(said, HandOut):
            self.hand_out(said.runs)
        elif isinstance(said, Moves):
            said.fold(self, where)
        elif said is not None:
            self.define(said, where)
        else:
            raise StoreVersion(
                f"{where}: a record of kind {kind}, unknown to this release: use a newer one"
            )

    def groups(self, parts: Sequence[Part], where: str) -> list[tuple[DurableQueue, list[Part]]]:
        """The parts with their queues; those of one queue stand together."""
        groups: list[tuple[DurableQueue, list[Part]]] = []
        queue_id = None
        for part in parts:
            if part.queue_id != queue_id:
                queue_id = part.queue_id
                groups.append((self._queue(queue_id, where), []))
            groups[-1][1].append(part)
        return groups

    def _queue(self, queue_id: int, where: str) -> DurableQueue:
        queue = self.state.queues.get(queue_id)
        if queue is None:
            self._effects.fault(where, f"names queue {queue_id}, which is not known")
            queue = self.lost_queue(queue_id)
        return queue

    def lost_queue(self, queue_id: int) -> DurableQueue:
        """In the stead of one whose definition is not known."""
        config = QueueConfig(queue_id, f"#{queue_id}", LOST, 0, None, 0, 0)
        queue = DurableQueue(config, self.state.ltds)
        add_queue(self.state, self._effects, queue, 0)
        return queue

    def commit(
        self,
        groups: RowsByQueue,
        reads: Sequence[ReadRow],
        entries: Sequence[Entry],
        first_id: int,
        time_us: int,
        address: int,
        held_by: str = NOBODY,
        transaction_id: int = 0,
    ) -> None:
        """A transaction's record is durable at the address: it is applied (FO1).

        `held_by`: what holds its space and its places until now. `transaction_id`: by which the
        queues know it.
        """
        state = self.state
        if entries:
            self._enter(groups, entries, first_id, time_us)
        for queue, parts in groups:
            first_id += queue.append(parts, first_id, time_us, address, held_by, transaction_id)
        if reads:
            queues = state.queues
            for read in reads:
                reader = queues.get(read[0])
                if reader is not None:  # else it was dropped after the transaction had read
                    reader.acknowledge(read)
        if first_id > state.next_id:
            state.next_id = first_id
        if time_us > state.last_time_us:
            state.last_time_us = time_us

    def _enter(
        self, groups: RowsByQueue, entries: Sequence[Entry], first_id: int, time_us: int
    ) -> None:
        """Entries of the ledger, and request ids of what is put."""
        first: dict[int, tuple[DurableQueue, int]] = {}
        for queue, parts in groups:
            first[queue.queue_id] = queue, first_id
            first_id += sum(part[5] for part in parts)
        for key, version, queue_id in entries:
            if not queue_id:
                self.state.ledger[key] = version
            elif queue_id in first:
                queue, begin = first[queue_id]
                queue.keep_request(key, begin + version, time_us)

    def hand_out(self, runs: Sequence[Read]) -> None:
        """Messages are delivered once more."""
        for run in runs:
            queue = self.state.queues.get(run.queue_id)
            if queue is not None:  # else it was dropped meanwhile
                queue.hand_out(run)

    def seek(self, seeks: Sequence[Seek]) -> None:
        """Subscriptions are moved."""
        for queue_id, subscription_id, position in seeks:
            queue = self.state.queues.get(queue_id)
            if queue is not None:  # else it was dropped meanwhile
                queue.seek(subscription_id, min(position, queue.end_position))

    def prepare(self, record: PrepareRecord, where: str, *, counted: bool = False) -> None:
        """A transaction is prepared. `counted`: it is in the checkpoint that the state is from."""
        state = self.state
        if record.xid in state.prepared:
            self._effects.fault(where, f"transaction {record.xid!r} is prepared twice")
        groups = self.groups(record.parts, where)
        state.prepared[record.xid] = record
        for queue, parts in groups:
            queue.hold(parts)
        self._effects.held(record, groups, counted=counted)

    def decide(
        self,
        decision: DecisionRecord,
        commit: bool,
        address: int,
        where: str,
        transaction_id: int = 0,
    ) -> None:
        """A prepared transaction is committed, or rolled back."""
        state = self.state
        record = state.prepared.get(decision.xid)
        if record is None or sum(part.count for part in record.parts) != decision.messages:
            text = f"decides {decision.xid!r}, which is not prepared like that"
            self._effects.fault(where, text)
        if record is None:
            return
        groups = self.groups(record.parts, where)
        if commit:
            self.commit(
                groups, record.reads, record.entries, decision.first_id, decision.time_us, address,
                held_by=PREPARED, transaction_id=transaction_id,
            )  # fmt: skip
        del state.prepared[decision.xid]
        if state.values.held:
            decide_state(state, self._effects, decision.xid, where, commit=commit)
        state.last_time_us = max(state.last_time_us, decision.time_us)
        self._effects.ended(record, groups, decision.first_id if commit else None)
        if not commit:
            for part in record.parts:
                if part.kind == format.LTDS:
                    state.ltds.pop(part.address, None)

    def define(self, changes: Sequence[CatalogChange], where: str) -> None:
        """Entries of the catalog are put and deleted."""
        for made in changes:
            try:
                change(self.state, self._effects, made, where)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                self._effects.fault(where, f"contradictory ({error!r})")
