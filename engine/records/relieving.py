"""Which journal records make room: they are written on a full disk too (see `quire.journal`, J9).

Transactions that only read or move subscriptions, the deliveries that come before them, the end of
queues and subscriptions (also of that which keeps a topic's messages, where the topic is altered),
and the decision of a prepared transaction, whose messages have their place already.
"""

from __future__ import annotations

import json

from quire.journal import RECORD_HEADER, RECORD_HEADER_BYTES, WholeRecord, padded_bytes

from . import format


def relieves(record: WholeRecord, moves: bool = False) -> bool:
    """Whether a whole record makes room and takes none.

    `moves`: it is a COMMIT that moves subscriptions (see `seek_record`).
    """
    head = record[0] if isinstance(record, tuple) else record
    if len(head) < RECORD_HEADER_BYTES:
        return False  # of a definition that was refused before it had one
    length, kind, _, _ = RECORD_HEADER.unpack_from(head)
    if padded_bytes(record) - length >= RECORD_HEADER_BYTES:
        return False  # a state is set beside it
    if kind == format.COMMIT:
        _, _, parts, reads, _, _ = format.COMMIT_HEADER.unpack_from(head, RECORD_HEADER_BYTES)
        return bool(reads or moves) and not parts
    if kind == format.CATALOG:
        return any(entry is None for _, _, entry in json.loads(head[RECORD_HEADER_BYTES:]))
    return kind in (format.COMMIT_PREPARED, format.ROLLBACK_PREPARED, format.HANDED_OUT)
