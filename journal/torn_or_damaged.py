"""Telling a damaged group at a chain's end from one that may never have been written whole.

A power failure keeps or loses each sector of 512 bytes of a group that was not synced (E1); what is
lost there shows what was there before. So a sector that says which group it begins was written
whole with that group, and never was anything else:

JT1  A group that has no more than its first sector, and is told by it, was whole once. If its
    checksum is wrong now, it is damaged.
JT2  A group whose checksum is right once its first sector says what is known of it (magic, store,
    place, predecessor, generation, the length of its records), or once a single bit of that sector
    is another one, was whole once: all its other sectors are right.

Nothing else is called damage: a sector behind the first one does not tell whose it is, so a group
of several sectors of which another one is wrong may be torn.
"""

from __future__ import annotations

from typing import Final

from quire.checksum import checksum
from quire.limits import MAX_TRIED_BYTES

from .format import (
    CHECKSUM,
    GROUP_FIELDS,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    RECORD_ALIGNMENT,
    RECORD_HEADER_BYTES,
    RECORD_LENGTH,
    VERSION,
    VERSION_OF_UNSYNCED,
    GroupHeader,
    round_up,
    succeeds,
    unpack_group_header,
)

SECTOR_BYTES: Final = 512


def was_whole(data: bytes | memoryview, known: tuple[int, int, int], generation: int) -> bool:
    """Return True if the data begins with the group behind a chain's last one, damaged (JT1, JT2).

    `data`: what is there, to the segment's end. `known`: the store, the place, the LSN of the last
    group, whose `generation` it is.
    """
    found = unpack_group_header(data)
    fields = (found.store_id, found.lsn, found.previous_lsn)
    wrong = [
        found.magic != GROUP_MAGIC,
        found.version not in (VERSION, VERSION_OF_UNSYNCED),
        found.flags != 0,
        *(value != expected for value, expected in zip(fields, known, strict=True)),
        not succeeds(found.generation, generation),
    ]
    if sum(wrong) > len(wrong) // 2:  # something else, or nothing
        return False
    length = found.body_length
    if not any(wrong) and 0 < length <= SECTOR_BYTES - GROUP_HEADER_BYTES and not length & 7:
        return True
    tried = bytearray(data[: min(len(data), MAX_TRIED_BYTES)])
    return _is_whole_with_known(tried, found, known, generation) or _is_a_bit_away(
        tried, known, generation
    )


def _is_whole_with_known(
    tried: bytearray, found: GroupHeader, known: tuple[int, int, int], generation: int
) -> bool:
    """Return True if the group is whole once its header has the fields that are known."""
    store_id, lsn, previous_lsn = known
    stated = (found.body_length, found.record_count)
    header = bytes(tried[:GROUP_HEADER_BYTES])
    for length, count in (stated, _counted(tried)):
        for version in (VERSION, VERSION_OF_UNSYNCED):
            fields = (GROUP_MAGIC, version, 0, generation, store_id, lsn, previous_lsn)
            GROUP_FIELDS.pack_into(tried, 8, *fields, length, count, found.unsynced)
            if _is_whole(tried):
                return True
    tried[:GROUP_HEADER_BYTES] = header
    return False


def _counted(tried: bytearray) -> tuple[int, int]:
    """The length and the number of the records, as they say themselves."""
    at, count = GROUP_HEADER_BYTES, 0
    while at + RECORD_HEADER_BYTES <= len(tried):
        length = RECORD_LENGTH.unpack_from(tried, at)[0]
        if not RECORD_HEADER_BYTES <= length <= len(tried) - at:
            break
        at, count = at + round_up(length, RECORD_ALIGNMENT), count + 1
    return at - GROUP_HEADER_BYTES, count


def _is_a_bit_away(tried: bytearray, known: tuple[int, int, int], generation: int) -> bool:
    """Return True if one other bit in the first sector makes it whole, and the chain's next
    group.
    """
    was_next = _is_next_header(tried, known, generation)
    # A header that does not say what is known has its wrong bit in itself.
    for place in range(min(SECTOR_BYTES if was_next else GROUP_HEADER_BYTES, len(tried))):
        for bit in range(8):
            tried[place] ^= 1 << bit
            is_next = (
                _is_next_header(tried, known, generation)
                if place < GROUP_HEADER_BYTES
                else was_next
            )
            if is_next and _is_whole(tried):
                return True
            tried[place] ^= 1 << bit
    return False


def _is_next_header(tried: bytearray, known: tuple[int, int, int], generation: int) -> bool:
    """Return True if the header is that of the chain's next group."""
    header = unpack_group_header(memoryview(tried))
    return (
        header.magic == GROUP_MAGIC
        and (header.store_id, header.lsn, header.previous_lsn) == known
        and succeeds(header.generation, generation)
    )


def _is_whole(tried: bytearray) -> bool:
    whole = memoryview(tried)
    end = GROUP_HEADER_BYTES + unpack_group_header(whole).body_length
    if end > len(tried):
        return False
    stored: int = CHECKSUM.unpack_from(whole)[0]
    return checksum(whole[8:end]) == stored
