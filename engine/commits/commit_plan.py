"""The plan of a commit: all that a transaction is to change, by kind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol, final

from msgspec import Struct

from quire.engine.queues.prepared_transactions import PreparedParticipant, PreparedTransaction
from quire.engine.queues.queue import InFlightRange
from quire.engine.records.commit_record import LedgerEntry, Read

from .pending_sections import MovesSection, ValuesSection
from .queue_writes import QueueWrites


class Preparing(PreparedParticipant, Protocol):
    """A transaction that is prepared by its commit."""

    prepared: PreparedTransaction | None
    """The store's entry for it, from step 3 on."""


@final
class CommitPlan(Struct, eq=False):
    """The writes, reads, entries, seeks and values of a transaction, for one record.

    A step of the commit for which the plan has nothing is skipped.
    """

    written: Collection[QueueWrites] = ()
    """Messages, by queue; one without messages was opened, and is left."""
    is_light: bool = True
    """Each is a lone message that stands in its `Written` itself."""
    taken: Sequence[InFlightRange] = ()
    """The messages that the transaction has in flight, and reads."""
    skipped: Sequence[Read] = ()
    """The ranges that count as read besides."""
    entries: Sequence[LedgerEntry] = ()
    """Ledger entries, and request ids of what is written."""
    seeks: MovesSection | None = None
    """Subscriptions that go to other positions."""
    values: ValuesSection | None = None
    """Values of states that are set, and those that were read."""
    xid: str = ""
    """The transaction is prepared by that: nothing takes effect before it is decided."""
    preparing: Preparing | None = None
    """The transaction, where it is prepared."""
