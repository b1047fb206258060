"""The SOUGHT record: a transaction moves subscriptions. It follows the COMMIT record, in its group.

Layout: `format`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from quire.errors import StoreCorrupt
from quire.journal.format import pack_record

from . import format


class Seek(NamedTuple):
    """A subscription goes to the position: what is kept from there on is unread, the rest read."""

    queue_id: int
    subscription_id: int
    position: int


class Sought(NamedTuple):
    """What the record says."""

    seeks: Sequence[Seek]


def pack_sought(transaction_id: int, seeks: Sequence[Seek]) -> bytes:
    """The whole record."""
    rows = b"".join(format.SEEK.pack(*seek) for seek in seeks)
    body = format.SOUGHT_HEADER.pack(len(seeks), 0) + rows
    return pack_record(format.SOUGHT, transaction_id, body)


def unpack_sought(body: memoryview, where: str) -> Sought:
    """Read the record's body; `StoreCorrupt` for contradictions."""
    try:
        count, _ = format.SOUGHT_HEADER.unpack_from(body)
        start = format.SOUGHT_HEADER.size
        rows = body[start : start + count * format.SEEK.size]
        seeks = [Seek(*row) for row in format.SEEK.iter_unpack(rows)]
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable record of a seek ({error})") from error
    if len(seeks) != count or not seeks:
        raise StoreCorrupt(f"{where}: contradictory record of a seek")
    return Sought(seeks)
