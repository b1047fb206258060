"""The share of a store's owner in a dump: values that are in none of its files, or not yet.

- Where its journal ends, so that a group that it is just writing is not taken for a torn one; which
  transactions are open; and how their records stand in a queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from quire.engine.records import format
from quire.engine.records.commit_record import Part
from quire.env import Env
from quire.errors import QueueNotFound, QuireError, RemoteError
from quire.libraries import pa
from quire.limits import DUMPED_RECORDS
from quire.remote import JoinedStore, join
from quire.reports.info import QueueRecord

from .history import QueueState


class Owner(Struct, frozen=True):
    """The answers of a store's owner."""

    end_lsn: int  # of its journal
    transactions: tuple[dict[str, Any], ...] = ()  # the open ones, as its status has them
    records: Mapping[str, list[QueueRecord]] = field(default_factory=dict)  # of requested queues

    @property
    def open(self) -> set[int | None]:
        """The numbers of the open transactions."""
        return {transaction["id"] for transaction in self.transactions}

    def spilled(self, queue: QueueState) -> Iterator[tuple[int | None, Part]]:
        """Messages of open transactions that are in pages of the queue's data file."""
        is_open = self.open
        for record in self.records.get(queue.name or "", ()):
            if record.messages and record.position is None and record.transaction_id in is_open:
                yield record.transaction_id, spilled_part(queue, record)


def spilled_part(queue: QueueState, record: QueueRecord) -> Part:
    """The block of a record of an open transaction, in pages of the queue's data file."""
    return Part(record.address, 0, 0, queue.queue_id, record.length, record.messages, format.DATA)


def ask_owner(env: Env, path: str, queue: str | None, *, pages: bool) -> Owner | None:
    """Return the answers of the store's owner; None if there is none, or none that answers."""
    try:
        store = join(env, path)
        if store is None:
            return None
        with store:
            records = _queue_records(store, queue, pages=pages)
            status = store.status()  # after them: what has ended in between is known to have ended
    except (QuireError, OSError, ValueError):  # an address may be damaged, too
        return None
    except pa.ArrowException:
        return None
    return Owner(status["journal"]["end_lsn"], tuple(status["transactions"]), records)


def _queue_records(
    store: JoinedStore, queue: str | None, *, pages: bool
) -> dict[str, list[QueueRecord]]:
    """The records of the queue, and of those in whose pages open transactions have some."""
    names = set() if queue is None else {queue}
    if queue is not None and queue.startswith("#"):
        names = {info.name for info in store.queues()}  # it does not tell their numbers
    if pages:
        transactions = store.status()["transactions"]
        names |= {name for each in transactions if each["spilled_bytes"] for name in each["queues"]}
    records: dict[str, list[QueueRecord]] = {}
    for name in names:
        with suppress(QueueNotFound, RemoteError):  # it may be of an older release
            records[name] = store.admin.queue_records(name, limit=DUMPED_RECORDS)
    return records
