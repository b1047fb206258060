"""The SOUGHT record, which earlier releases wrote for what is a section today (see `sections`)."""

from __future__ import annotations

import struct

from quire.errors import StoreCorrupt

from . import format
from .sections import Moves, unpack_moves


def unpack_sought(body: memoryview, where: str) -> Moves:
    """Read the record's body; `StoreCorrupt` for contradictions."""
    try:
        count, _ = format.SOUGHT_HEADER.unpack_from(body)
    except struct.error as error:
        raise StoreCorrupt(f"{where}: unreadable record of a seek ({error})") from error
    start = format.SOUGHT_HEADER.size
    moves = unpack_moves(body[start : start + count * format.SEEK.size], where)
    if len(moves.seeks) != count:
        raise StoreCorrupt(f"{where}: contradictory record of a seek")
    return moves
