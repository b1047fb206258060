"""The kinds of sections, and how several stand in one record. Layout: `format`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from quire.engine.records import format
from quire.errors import StoreCorrupt, StoreVersion

from .moves import unpack_moves
from .section import PendingSection, Section
from .values import unpack_values

KINDS: Final[Mapping[int, Callable[[memoryview, str], Section]]] = {
    format.MOVES: unpack_moves,
    format.VALUES: unpack_values,
}


def pack_sections(sections: Sequence[PendingSection]) -> list[bytearray | bytes]:
    """The pieces of a record for those that have bytes: none if none has."""
    pieces: list[bytearray | bytes] = []
    count = 0
    for section in sections:
        body = section.body
        if not body:
            continue
        count += 1
        pieces += (format.SECTION.pack(section.KIND, 0, len(body)), body, bytes(-len(body) & 7))
    return [format.SECTIONS_HEADER.pack(count, 0), *pieces] if count else []


def read_sections(data: memoryview, where: str) -> tuple[Section, ...]:
    """What they say; behind them the record may have more.

    Raises StoreCorrupt, and StoreVersion for a kind that only a newer release knows.
    """
    sections: list[Section] = []
    try:
        count, _ = format.SECTIONS_HEADER.unpack_from(data)
        at = format.SECTIONS_HEADER.size
        for _ in range(count):
            kind, _, length = format.SECTION.unpack_from(data, at)
            at += format.SECTION.size
            if at + length > len(data):
                raise ValueError(f"a section of {length} bytes at {at}")
            read = KINDS.get(kind)
            if read is None:
                raise StoreVersion(
                    f"{where}: a section of kind {kind}, unknown to this release: use a newer one"
                )
            sections.append(read(data[at : at + length], where))
            at += (length + 7) & -8
    except (struct.error, ValueError) as error:
        raise StoreCorrupt(f"{where}: unreadable sections ({error})") from error
    if not sections or len({section.kind for section in sections}) != len(sections):
        raise StoreCorrupt(f"{where}: contradictory sections")
    return tuple(sections)
