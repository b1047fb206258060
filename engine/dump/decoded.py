"""A record of the journal with its body read, by its kind."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from quire.engine import format
from quire.engine.commit_record import CommitRecord, unpack
from quire.engine.prepared_record import (
    DecisionRecord,
    PrepareRecord,
    unpack_decision,
    unpack_prepare,
)
from quire.errors import StoreCorrupt
from quire.journal import KIND_GENERATION, Group, Record

KIND_NAMES: Final = {
    KIND_GENERATION: "GENERATION",
    format.COMMIT: "COMMIT",
    format.CREATE_QUEUE: "CREATE_QUEUE",
    format.DROP_QUEUE: "DROP_QUEUE",
    format.SUBSCRIBE: "SUBSCRIBE",
    format.UNSUBSCRIBE: "UNSUBSCRIBE",
    format.PREPARE: "PREPARE",
    format.COMMIT_PREPARED: "COMMIT_PREPARED",
    format.ROLLBACK_PREPARED: "ROLLBACK_PREPARED",
}
DEFINITIONS: Final = frozenset(
    {format.CREATE_QUEUE, format.DROP_QUEUE, format.SUBSCRIBE, format.UNSUBSCRIBE}
)
DECISIONS: Final = frozenset({format.COMMIT_PREPARED, format.ROLLBACK_PREPARED})


class Decoded(NamedTuple):
    """A record of the journal, and what its body says: one of the last four, or none."""

    group: Group
    record: Record
    commit: CommitRecord | None = None
    definition: dict[str, Any] | None = None
    prepare: PrepareRecord | None = None
    decision: DecisionRecord | None = None

    @property
    def known(self) -> bool:
        """Whether this release knows records of the kind."""
        return self.record.kind in KIND_NAMES

    @property
    def name(self) -> str:
        kind = self.record.kind
        return KIND_NAMES.get(kind, f"UNKNOWN KIND {kind}")


def decode(group: Group, record: Record) -> Decoded:
    """Raises `StoreCorrupt` for a body that contradicts its kind."""
    where = f"record at LSN {record.address:#x}"
    if record.kind == format.COMMIT:
        return Decoded(group, record, commit=unpack(record.body, where))
    if record.kind == format.PREPARE:
        return Decoded(group, record, prepare=unpack_prepare(record.body, where))
    if record.kind in DECISIONS:
        return Decoded(group, record, decision=unpack_decision(record.body, where))
    if record.kind in DEFINITIONS:
        return Decoded(group, record, definition=_definition(record, where))
    return Decoded(group, record)


def _definition(record: Record, where: str) -> dict[str, Any]:
    try:
        body = json.loads(bytes(record.body))
    except (ValueError, RecursionError) as error:
        raise StoreCorrupt(f"{where}: unreadable definition ({error!r})") from error
    if not isinstance(body, dict):
        raise StoreCorrupt(f"{where}: a definition that is no JSON object")
    return body
