"""A record of the journal with its body read, by its kind."""

from __future__ import annotations

from typing import Final, NamedTuple

from quire.engine.records import format
from quire.engine.records.fold import Said, decode
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
    format.CATALOG: "CATALOG",
}


class Decoded(NamedTuple):
    """A record of the journal, and what its body says."""

    group: Group
    record: Record
    said: Said

    @property
    def name(self) -> str:
        kind = self.record.kind
        return KIND_NAMES.get(kind, f"UNKNOWN KIND {kind}")


def decode_record(group: Group, record: Record) -> Decoded:
    """Raises `StoreCorrupt` for a body that contradicts its kind."""
    where = f"record at LSN {record.address:#x}"
    return Decoded(group, record, decode(record.kind, record.body, where))
