"""What records of the journal say, with the names of queues and subscriptions, and with places."""

from __future__ import annotations

from typing import Any

from quire.dump_items import Described, told
from quire.engine.records.catalog import QUEUE, SUBSCRIPTION, CatalogChange
from quire.engine.records.commit_record import CommitRecord, Part
from quire.engine.records.format import INLINE
from quire.engine.records.prepared_record import PrepareRecord
from quire.journal import GENERATION_BODY, KIND_GENERATION, RECORD_HEADER_BYTES

from .log import Decoded
from .saved import Saved
from .source import Source


class Names:
    """What queues and subscriptions are called, as far as it was read."""

    def __init__(self, source: Source, saved: Saved | None) -> None:
        self._source = source
        self._known: dict[str, dict[int, str | None]] = {QUEUE: {}, SUBSCRIPTION: {}}  # by id
        for queue in () if saved is None else saved.state.queues.values():
            self._known[QUEUE][queue.queue_id] = queue.name
            of_it = queue.durable.subscriptions.values()
            self._known[SUBSCRIPTION] |= {s.subscription_id: s.name for s in of_it}

    def record(self, decoded: Decoded) -> Described:
        """The next record of the journal, as a dump lists it."""
        header, record = decoded.group.header, decoded.record
        file, offset = self._source.journal_place(record.address)
        own = {
            "lsn": record.address,
            "name": decoded.name,
            "transaction": record.sequence,  # 0: none
            "bytes": RECORD_HEADER_BYTES + len(record.body),
            "group_lsn": header.lsn,
            "generation": f"{header.generation:016x}",
            "kind": record.kind,
            "file": file,
            "offset": offset,
        }
        return Described("record", own | self._said(decoded))

    def _said(self, decoded: Decoded) -> dict[str, Any]:
        said, body = decoded.said, decoded.record.body
        if decoded.record.kind == KIND_GENERATION and len(body) == GENERATION_BODY.size:
            generation, opened_us = GENERATION_BODY.unpack(body)
            return {"opened_us": opened_us, "opened_as": f"{generation:016x}"}
        if isinstance(said, list):
            self._learn(said)
            return {"changes": told(said)}
        sums: dict[str, Any] = {}
        if isinstance(said, (CommitRecord, PrepareRecord)):
            sums["messages"] = sum(part.count for part in said.parts)
        return sums if said is None else sums | self._named(said, decoded.record.address)

    def _learn(self, changes: list[CatalogChange]) -> None:
        for change in changes:
            name = (change.body or {}).get("name")
            if isinstance(name, str) and change.type in self._known:
                self._known[change.type][change.key] = name

    def _named(self, value: Any, lsn: int) -> Any:
        """A record's values by field; those of the COMMIT record at the LSN have places."""
        if isinstance(value, list):
            return [self._named(each, lsn) for each in value]
        if not hasattr(value, "_fields"):
            return value
        fields: dict[str, Any] = {}
        for name, each in value._asdict().items():
            fields[name] = self._named(each, lsn)
            noun = name.removesuffix("_id")
            if noun in self._known and each:
                fields[noun] = self._known[noun].get(each)
        if isinstance(value, Part):
            place = self._source.place(value, lsn if value.kind == INLINE else 0)
            kept = ("queue_id", "queue", "count", "charge", "checksum")
            fields = {name: fields[name] for name in kept} | {"place": told(place)}
        return fields
