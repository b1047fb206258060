"""The HANDED_OUT record: messages that are about to be returned to who asked for them.

A queue with `max_deliveries` notes each delivery before it happens: a message that kills whoever
gets it is counted all the same, and comes to its end. Layout: `format`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from quire.errors import StoreCorrupt
from quire.journal.format import RECORD_HEADER, RECORD_HEADER_BYTES

from . import format
from .commit_record import Read


class HandOut(NamedTuple):
    """What the record says: positions of subscriptions, as a COMMIT names what it reads."""

    runs: Sequence[Read]


def pack_handout(runs: Sequence[Read]) -> bytes:
    """The whole record."""
    rows = b"".join(format.READ.pack(*run) for run in runs)
    body = format.HANDOUT_HEADER.pack(len(runs), 0) + rows
    return RECORD_HEADER.pack(RECORD_HEADER_BYTES + len(body), format.HANDED_OUT, 0, 0) + body


def unpack_handout(body: memoryview, where: str) -> HandOut:
    """Read the record's body; `StoreCorrupt` for contradictions."""
    try:
        count, _ = format.HANDOUT_HEADER.unpack_from(body)
        start = format.HANDOUT_HEADER.size
        rows = body[start : start + count * format.READ.size]
        runs = [Read(*row) for row in format.READ.iter_unpack(rows)]
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable record of a delivery ({error})") from error
    if len(runs) != count or any(run.start >= run.end for run in runs):
        raise StoreCorrupt(f"{where}: contradictory record of a delivery")
    return HandOut(runs)
