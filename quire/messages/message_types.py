"""The attributes that Quire knows: the type of a message to its readers, and the reports of it.

| attribute | says |
|---|---|
| `quire.type` | "request", "reply", "report", a further type; "datagram" if it is not there |
| `quire.reports` | of what a report is asked for: words of `REPORTED_EVENTS`, between blanks |
| `quire.report` | of a report: which of these it is |
| `quire.reason` | of a report on an exception, and of a reply that is an error: why |
| `quire.error` | of a reply that is an error: the same, which it keeps as a dead letter |
| `quire.reply_by` | of a request: when nobody waits for its reply any more, in microseconds UTC |

A report goes to the message's `reply_to`, and has its `correlation_id`, or its id where it has
none; it asks for none itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from quire.errors import InvalidArgument
from quire.limits import MAX_REASON_BYTES
from quire.moments import check_moment

TYPE: Final = "quire.type"
REPORTS: Final = "quire.reports"
REPORT: Final = "quire.report"
REASON: Final = "quire.reason"
ERROR: Final = "quire.error"
REPLY_BY: Final = "quire.reply_by"

DATAGRAM: Final = "datagram"
REQUEST: Final = "request"
REPLY: Final = "reply"
REPORTED: Final = "report"

ARRIVAL: Final = "arrival"
DELIVERY: Final = "delivery"
EXCEPTION: Final = "exception"
EXPIRY: Final = "expiry"
REPORTED_EVENTS: Final = (ARRIVAL, DELIVERY, EXCEPTION, EXPIRY)

KEPT_ATTRIBUTES: Final = frozenset({TYPE, REPORT, REPORTS, REPLY_BY, ERROR})
"""The attributes that say what a message is, wherever it goes."""


def type_of(attributes: Mapping[str, str]) -> str:
    """Return the type of a message with these attributes."""
    return attributes.get(TYPE, DATAGRAM)


def requested_reports(events: Iterable[str]) -> str:
    """Return the attribute by which a message asks for these reports. Raises InvalidArgument."""
    names = [events] if isinstance(events, str) else list(events)
    unknown = [each for each in names if each not in REPORTED_EVENTS]
    if unknown:
        raise InvalidArgument(f"report {unknown[0]!r:.100}: there are {', '.join(REPORTED_EVENTS)}")
    return " ".join(event for event in REPORTED_EVENTS if event in names)


def requests_report(attributes: Mapping[str, str], event: str) -> bool:
    """Return True if a message with these attributes asks for a report of the event."""
    reports = attributes.get(REPORTS)
    return reports is not None and event in reports.split()


def reply_by(attributes: Mapping[str, str]) -> int | None:
    """Return the time until which a reply is waited for, in microseconds UTC; None: there is no
    limit.

    What is no such time is none: anybody may have put it, and its message is to be handled.
    """
    with suppress(ValueError):  # InvalidArgument, too
        if REPLY_BY in attributes:
            return check_moment(REPLY_BY, int(attributes[REPLY_BY]))
    return None


def check_ends_only(attributes: Mapping[str, str]) -> None:
    """Check that a request asks for no report before its end. Raises InvalidArgument."""
    for event in (ARRIVAL, DELIVERY):
        if requests_report(attributes, event):
            raise InvalidArgument(
                f"a request asks for a report of its {event}, which would be taken for the end of "
                "it: leave that out, or put a message with a reply_to of its own"
            )


def reason_of(error: BaseException) -> str:
    """Return the words of an error, as far as a message may carry them."""
    return str(error).encode("utf-8", "replace")[:MAX_REASON_BYTES].decode("utf-8", "ignore")


def report_attributes(event: str, reason: str | None = None) -> dict[str, str]:
    """Return the attributes of a report."""
    found = {TYPE: REPORTED, REPORT: event}
    return found if reason is None else found | {REASON: reason}
