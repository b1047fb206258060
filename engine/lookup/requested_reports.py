"""Reports of events that messages request: arrival, delivery, expiry, exception.

- AR1: a report is put by the commit that it tells of: of an arrival by the one that puts the
  message, of a delivery by the one that reads it for who has got it, of an expiry or an exception
  by the one that takes it away. So it is there only if that has happened.
- It goes to the message's `reply_to`. Where that queue does not take it (it is full, stopped,
  typed or not there), it is a dead letter of that queue, or there is none and the log tells so: the
  message is put, or got, all the same (WR1).
- AR3: it has the message's correlation id; where the message has none, its id in digits, which
  at an arrival nobody knows yet.
- AR4: what is moved to another queue, and what is removed, is not delivered by that, and does not
  arrive there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from quire.batches.delivered_slice import Delivered
from quire.batches.moved_messages import QUEUE
from quire.block import Block
from quire.block.format import Column
from quire.block.header_columns import Headers
from quire.engine.queues.queue import InFlightRange
from quire.engine.queues.subscription import Subscription
from quire.engine.reading.fetcher import Fetcher
from quire.errors import StoreCorrupt
from quire.messages.message_fields import Fields
from quire.messages.message_types import (
    ARRIVAL,
    DELIVERY,
    REPORTS,
    reply_by,
    report_attributes,
    requests_report,
)

REPORTING = Column.ATTRIBUTES | Column.REPLY_TO
"""The columns that a message has that asks for reports."""
_DELIVERY = DELIVERY.encode()


class RequestedReport(NamedTuple):
    """One that is to be put; its payload is empty."""

    to: str
    fields: Fields


def report_on(
    event: str,
    queue: str,
    reply_to: str,
    correlation_id: str | None,
    attributes: Mapping[str, str],
    reason: str | None = None,
) -> RequestedReport:
    """On a message with these, of the queue."""
    fields = Fields(
        correlation_id=correlation_id,
        expires_at=reply_by(attributes),
        attributes={**report_attributes(event, reason), QUEUE: queue},
    )
    return RequestedReport(reply_to, fields)


def arrival_of(queue: str, fields: Fields) -> list[RequestedReport]:
    """Return the arrival report of one message in a list, empty if its attributes request none."""
    to, attributes = fields.reply_to, fields.attributes
    if to is None or not requests_report(attributes, ARRIVAL):
        return []
    return [report_on(ARRIVAL, queue, to, fields.correlation_id, attributes)]


def arrivals_in(queue: str, parts: Iterable[Headers]) -> list[RequestedReport]:
    """Return the arrival reports of the messages with these headers that request one."""
    found: list[RequestedReport] = []
    for headers in parts:
        attributes = headers.attributes
        if attributes is not None and Column.REPLY_TO in headers.strings:
            rows = _asking(headers, 0, len(attributes.starts) - 1, ARRIVAL)
            found += [_report_in(ARRIVAL, queue, headers, row, None) for row in rows]
    return found


def may_ask_delivery(block: Block) -> bool:
    """Return True if the block's columns may request delivery reports."""
    return block.may_say(_DELIVERY)


def delivery_reports(
    delivery: Fetcher, rows: Iterable[InFlightRange]
) -> Iterator[tuple[tuple[Subscription, int], RequestedReport]]:
    """Those on deliveries of these messages that ask for it, each with its place."""
    for _, _, start, end, queue, subscription, _, _ in rows:
        with suppress(StoreCorrupt):  # nobody knows who had asked for one
            for first, part in delivery.parts(queue, start, end):
                for row, report in _deliveries_in(queue.name, part):
                    yield (subscription, first + row - part.start), report


def _deliveries_in(queue: str, part: Delivered) -> Iterator[tuple[int, RequestedReport]]:
    """Yield a report for each message of the part that requests one, with its row in the block."""
    block = part.block
    if block.columns & REPORTING == REPORTING:
        for row in _asking(block.headers, part.start, part.stop, DELIVERY):
            own_id = str(block.ids(part.first_id, row, row + 1)[0])
            yield row, _report_in(DELIVERY, queue, block.headers, row, own_id)


def _asking(headers: Headers, start: int, stop: int, event: str) -> list[int]:
    attributes, reply_to = headers.attributes, headers.strings[Column.REPLY_TO]
    assert attributes is not None
    word = event.encode()
    requests = attributes.find(REPORTS.encode(), start, stop)
    rows = [row for row, words in requests if word in bytes(words).split()]
    return [row for row in rows if reply_to.get(row) is not None]


def _report_in(
    event: str, queue: str, headers: Headers, row: int, own_id: str | None
) -> RequestedReport:
    strings, attributes = headers.strings, headers.attributes
    assert attributes is not None
    correlation_ids = strings.get(Column.CORRELATION_ID)
    correlation_id = None if correlation_ids is None else correlation_ids.get(row)
    to = str(strings[Column.REPLY_TO].get(row))
    return report_on(event, queue, to, correlation_id or own_id, attributes.get(row))
