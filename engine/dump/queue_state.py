"""A queue as a dump folds it: the durable one, and which record of the journal told what.

- DQ1: after damage positions are those at least: `certain` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from quire.dump_items import Described, told
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.durable_state import LOST, DurableQueue, Nothing

CHECKPOINT_LSN: Final = 0  # the journal begins with a page that holds no record


class TailRecord(NamedTuple):
    """A record that the journal tells, or a checkpoint on a full disk: not yet in a record page."""

    ref: BlockRef
    transaction: int
    lsn: int
    certain: bool


class QueueState(Nothing):
    """See the module. It stands beside the queue that is folded."""

    def __init__(self, durable: DurableQueue, lsn_at_hand: Callable[[], int]) -> None:
        """`lsn_at_hand`: of the record that is folded just now."""
        self.durable = durable
        self.queue_id = durable.queue_id
        self.certain = durable.config.kind != LOST
        self._lsn_at_hand = lsn_at_hand
        # Of each record: transaction, LSN, certain.
        self._told: list[tuple[int, int, bool]] = [(0, CHECKPOINT_LSN, True)] * len(durable.tail)

    @property
    def name(self) -> str | None:
        """None: its definition is lost."""
        return None if self.durable.config.kind == LOST else self.durable.config.name

    @property
    def title(self) -> str:
        """Its name, or "#" and its id where damage hides the name."""
        return self.durable.config.name

    def released_of(self, ref: BlockRef) -> int:
        """How many of the record's messages are released."""
        return self.durable.released.count(ref.position, ref.end)

    def tail_from(self, position: int) -> Iterator[TailRecord]:
        records = self.durable.tail.between(0, len(self._told))
        for ref, known in zip(records, self._told, strict=True):
            if ref.end > position:
                yield TailRecord(ref, *known)

    def items(self) -> Iterator[Described]:
        """What is listed of it, and of its subscriptions."""
        durable, end = self.durable, self.durable.end_position
        own: dict[str, Any] = {"queue_id": self.queue_id}
        made: dict[str, Any] = {"name": None, "kind": None}
        if self.name is not None:
            made = told(durable.config) | durable.config.properties.to_body()
            del made["properties"]
        stands = {
            "end_position": end,
            "released": durable.released.total,
            "record_pages": len(durable.directory),
            "request_ids": len(durable.requests),
            "certain": self.certain,
        }
        yield Described("queue", own | made | stands)
        own["queue"] = self.name
        for each in durable.subscriptions.values():
            read = {
                "position": each.done.first_gap(0),  # everything below is read
                "read": each.done.total,
                "pending": max(end - each.done.total, 0),
            }
            of_it = {"subscription_id": each.subscription_id, "name": each.name}
            yield Described("subscription", own | of_it | read)

    def appended(
        self, start: int, end: int, charge: int, held_by: str, transaction_id: int
    ) -> None:
        self.note(transaction_id)

    def note(self, transaction_id: int) -> None:
        """The record at hand has told what is new."""
        new = len(self.durable.tail) - len(self._told)
        self._told += [(transaction_id, self._lsn_at_hand(), self.certain)] * new
