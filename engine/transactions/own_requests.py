"""The request ids of what an open transaction puts (see `live_state` and `state.requests`).

They are checked when a message is put, and again when its commit has its place in the order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quire.definitions.row_schema import rows_one_by_one
from quire.engine.live_state.engine_state import EngineState
from quire.engine.queues.queue import Queue
from quire.engine.records.commit_record import LedgerEntry, entry_bytes
from quire.errors import InvalidArgument
from quire.limits import MAX_REQUESTS_BYTES
from quire.messages.message_id import KnownId, MessageId, MessageIds, RequestedIds, id_of

from .arrow_slices import chosen_of

PutsMany = Callable[[str, Any], MessageIds]  # see `TransactionWrites.put_batch`


class OwnRequests:
    """The request ids of an open transaction's puts. Used by one thread at a time."""

    def __init__(self, state: EngineState, max_group_bytes: int) -> None:
        self._state = state
        self._most_bytes = min(MAX_REQUESTS_BYTES, max_group_bytes // 2)
        self._bytes = 0  # that they take in the record
        self._ids: dict[tuple[int, str], MessageId] = {}  # by queue and request id
        self.found = False  # a put that was repeated

    def once(self, request_id: str, queue: str, put: Callable[[], MessageId]) -> MessageId:
        """The id of what was put with the request id, or else what `put` puts."""
        target = self._keeping(queue)
        key = target.queue_id, request_id
        known = self._known(target, request_id)
        if known is None:
            self._check_bytes(entry_bytes(request_id))
            known = self._ids[key] = put()
            self._bytes += entry_bytes(request_id)
        return known

    def many_once(
        self, queue: str, payloads: Any, request_ids: list[str], put: PutsMany
    ) -> MessageIds:
        """The ids of many puts with request ids. Unknown ones are put; with an error none is."""
        target = self._keeping(queue)
        if target.schema is not None:
            raise rows_one_by_one(target.name)
        ids: dict[str, MessageId] = {}
        new: dict[str, int] = {}  # by request id, the place of its payload
        for place, request_id in enumerate(request_ids):
            if request_id in ids or request_id in new:
                continue
            known = self._known(target, request_id)
            if known is None:
                new[request_id] = place
            else:
                ids[request_id] = known
        size = sum(map(entry_bytes, new))
        self._check_bytes(size)
        made = put(queue, chosen_of(payloads, list(new.values()))) if new else ()
        ids.update(zip(new, made, strict=True))
        self._ids |= {(target.queue_id, request_id): ids[request_id] for request_id in new}
        self._bytes += size
        return RequestedIds([ids[request_id] for request_id in request_ids])

    def entries(self) -> list[LedgerEntry]:
        """Return the ledger entries for the transaction's commit."""
        return [
            LedgerEntry(request_id, message_id.index, queue_id)
            for (queue_id, request_id), message_id in self._ids.items()
        ]

    def _keeping(self, queue: str) -> Queue:
        target = self._state.queue(queue)
        if not target.config.properties.most_requests:
            raise InvalidArgument(
                f"queue {target.name!r} keeps no request ids: give it dedup_count or dedup_seconds"
            )
        return target

    def _known(self, queue: Queue, request_id: str) -> MessageId | None:
        """Return the id of a put that is committed, or of this transaction."""
        found = self._state.request(queue, request_id)
        if found is None:
            return self._ids.get((queue.queue_id, request_id))
        self.found = True
        return id_of(KnownId(found), 0)

    def _check_bytes(self, size: int) -> None:
        """They are in the journal's record, and in memory, until the commit."""
        if self._bytes + size > self._most_bytes:
            raise InvalidArgument(
                f"the request ids of one transaction take up to {self._most_bytes} bytes: commit "
                "this one, and go on in another"
            )
