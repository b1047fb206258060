"""Which journal records make room: they are written on a full disk too (see `quire.journal`, J9).

Transactions that only read, the deliveries that come before them, the end of queues and
subscriptions, and the decision of a prepared transaction, whose messages have their place already.
"""

from __future__ import annotations

import json

from quire.journal import RECORD_HEADER, RECORD_HEADER_BYTES, WholeRecord

from . import format


def relieves(record: WholeRecord) -> bool:
    """Whether a whole record makes room and takes none."""
    head = record[0] if isinstance(record, tuple) else record
    if len(head) < RECORD_HEADER_BYTES:
        return False  # of a definition that was refused before it had one
    _, kind, _, _ = RECORD_HEADER.unpack_from(head)
    if kind == format.COMMIT:
        _, _, parts, reads, _, _ = format.COMMIT_HEADER.unpack_from(head, RECORD_HEADER_BYTES)
        return bool(reads) and not parts
    if kind == format.CATALOG:
        changes = json.loads(head[RECORD_HEADER_BYTES:])
        gone = {(name, key) for name, key, entry in changes if entry is None}
        return all((name, key) in gone for name, key, _ in changes)
    return kind in (format.COMMIT_PREPARED, format.ROLLBACK_PREPARED, format.HANDED_OUT)
