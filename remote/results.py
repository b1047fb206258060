"""What the store tells about its parts, as JSON: written at the owner, read at the client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from quire.engine.info import (
    Lease,
    Piece,
    PreparedInfo,
    QueueInfo,
    QueueRecord,
    Report,
    SubscriptionInfo,
    TransactionInfo,
)
from quire.errors import RemoteError

T = TypeVar("T")


def info_json(
    info: QueueInfo | SubscriptionInfo | PreparedInfo | TransactionInfo,
) -> dict[str, Any]:
    """A queue, a subscription, a prepared or an open transaction."""
    return asdict(info)


def records_json(records: list[QueueRecord]) -> list[list[Any]]:
    """Records of a queue; without names, as there may be many."""
    return [list(record) for record in records]


def lease_json(lease: Lease) -> dict[str, Any]:
    """A lease; its pieces become lists."""
    return {
        "lease_id": lease.lease_id,
        "queue": lease.queue,
        "start": lease.start,
        "end": lease.end,
        "pieces": [list(piece) for piece in lease.pieces],
    }


def report_json(report: Report) -> dict[str, Any]:
    """The report of `verify`."""
    return {"findings": list(report.findings), "checked": dict(report.checked)}


def read_queue(value: Any) -> QueueInfo:
    """A queue."""
    return _read(lambda v: QueueInfo(**{**v, "subscriptions": tuple(v["subscriptions"])}), value)


def read_subscription(value: Any) -> SubscriptionInfo:
    """A subscription."""
    return _read(lambda v: SubscriptionInfo(**v), value)


def read_prepared(value: Any) -> PreparedInfo:
    """A prepared transaction."""
    return _read(lambda v: PreparedInfo(**{**v, "queues": tuple(v["queues"])}), value)


def read_transaction(value: Any) -> TransactionInfo:
    """An open transaction."""
    return _read(
        lambda v: TransactionInfo(
            **{**v, "queues": tuple(v["queues"]), "sources": tuple(v.get("sources", ()))}
        ),
        value,
    )


def read_records(value: Any) -> list[QueueRecord]:
    """Records of a queue."""
    return _read(lambda v: [QueueRecord(*record) for record in v], value)


def read_lease(value: Any) -> Lease:
    """A lease with its pieces."""
    return _read(lambda v: Lease(**{**v, "pieces": [Piece(*p) for p in v["pieces"]]}), value)


def read_report(value: Any) -> Report:
    """The report of `verify`."""
    return _read(lambda v: Report(**v), value)


def _read(make: Callable[[Any], T], value: Any) -> T:
    try:
        return make(value)
    except (TypeError, KeyError) as error:
        raise RemoteError(f"the owner's answer cannot be read: {error}") from None
