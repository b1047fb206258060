"""Reads that few transactions do beside getting messages: remove, keep, seek, skip, browse, report.

They remove messages, keep some from others, move some to other queues, skip some, move
subscriptions, look through a queue as it was, and report deliveries. Their lock covers this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from quire.batches import delivered_messages
from quire.engine.commits.pending_sections import MovesSection
from quire.engine.lookup import taken_positions
from quire.engine.lookup.kept_messages import KeptMessages
from quire.engine.lookup.moved_marks import MovedMarks
from quire.engine.lookup.queue_view import QueueView
from quire.engine.lookup.requested_reports import RequestedReport, delivery_reports
from quire.engine.lookup.taken_positions import TakenPositions
from quire.engine.queues.queue import InFlightRange, Queue
from quire.engine.queues.subscription import Subscription
from quire.engine.records.commit_record import Read
from quire.engine.state.sections.seeks import Seek

from .context import Context

if TYPE_CHECKING:
    from quire.batches.delivered_messages import Messages
    from quire.engine.lookup.choice import Choice

BrowsedQueue = tuple[Queue, Subscription | None]
SkippedRange = tuple[Queue, Subscription, int, int]  # [start, end) counts as read


class ExtraReads:
    """A transaction's reads beside those of its gets."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.removed = TakenPositions()  # what nobody is given, but the commit reads
        self.kept = KeptMessages()
        self.moved = MovedMarks()  # to other queues
        self.skipped: list[SkippedRange] = []
        # Where each goes to, and whether all from there on has to be there still.
        self.seeks: dict[Subscription, tuple[Queue, int, bool]] = {}
        self.is_bound = False  # it keeps, moves or looks through something, until its end
        self.may_report = False  # some of what was got may ask for a report of its delivery
        self.is_counted = True  # what is given back was delivered once
        self._views: dict[BrowsedQueue, QueueView] = {}
        self._reported: set[tuple[Subscription, int]] = set()
        self._leaving: list[InFlightRange] = []  # what is given back as if it had not been taken

    def browse(self, key: BrowsedQueue, choice: Choice, limit: int, after: int | None) -> Messages:
        """Return a page of the queue as it was when the transaction looked through it first."""
        queue, context = key[0], self._context
        self.is_bound = True
        if key not in self._views:
            self._views[key] = QueueView(*key, context.delivery, context.places, context.journal)
        found = [part.looked_at() for part in self._views[key].page(choice, limit, after)]
        return delivered_messages.Messages(queue.name, found, queue.schema)

    # For the commit

    def skipped_reads(self) -> list[Read]:
        """Return what is skipped as the commit's record names it."""
        records: list[Read] = []
        for queue, subscription, start, end in self.skipped:
            if subscription in self.seeks or start >= end:
                continue  # where it goes to says what it has read
            with queue.lock:
                records += [
                    Read(queue.queue_id, subscription.subscription_id, lo, hi)
                    for lo, hi in subscription.done.gaps(start, end)
                ]
        return records

    def seek_section(self) -> MovesSection:
        """Return what it moves, as a section of the commit."""
        seeks = [
            Seek(queue.queue_id, subscription.subscription_id, position)
            for subscription, (queue, position, _) in self.seeks.items()
        ]
        strict = {s.subscription_id for s, (_, _, strict) in self.seeks.items() if strict}
        return MovesSection(self._context.state, seeks, strict)

    def reports(self, rows: Iterable[InFlightRange]) -> list[RequestedReport]:
        """Return those on deliveries; each message's once, however often it is called (AR4)."""
        found: list[RequestedReport] = []
        for place, report in delivery_reports(self._context.delivery, rows):
            if not self.moved.has(*place) and place not in self._reported:
                found.append(report)
                self._reported.add(place)
        return found

    # Its end, which may come again after an interrupt

    def leave(self, rows: Iterable[InFlightRange]) -> None:
        """Give these back, as if they had not been taken."""
        self._leaving += rows
        taken_positions.give_back_rows(self._leaving, set(), counted=False)

    def give_back_removed(self) -> None:
        """Put back what was removed."""
        rows, removed = self.removed.rows(), TakenPositions()
        self._leaving += rows
        self.removed = removed  # no call in between
        self.leave(())

    def end(self, taker: object) -> None:
        """Give back what it was to move, or has kept."""
        self.removed = TakenPositions()
        self.leave(self.kept.leave())
        for view in self._views.values():
            view.close()
        for subscription, (queue, _, _) in self.seeks.items():
            self._context.delivery.let_go(queue, subscription, taker)
        self._views, self.seeks = {}, {}
