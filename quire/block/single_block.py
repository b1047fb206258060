"""Blocks of one message: the way of a single put, without numpy."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import accumulate

from quire.checksum import checksum
from quire.limits import COPY_TWICE_BYTES
from quire.messages.message_fields import Fields
from quire.messages.payload_reader import Stream

from .format import (
    CHECKSUM,
    CHECKSUM_BYTES,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PADDING,
    PLAIN_ONE_ENDS,
    PLAIN_ONE_START,
    STREAM,
    TABLE_ENTRY_BYTES,
    VERSION,
    Column,
    padded,
)

_pack_plain = PLAIN_ONE_ENDS.pack
_unpack_plain = struct.Struct("<Q16sQQ24xii").unpack_from
_PLAIN_BYTES = HEADER_BYTES + 8
_pack_checksum = CHECKSUM.pack
_checksum_of = CHECKSUM.unpack_from
_pack_small = struct.Struct("<H").pack
_pack_time = struct.Struct("<q").pack
_pack_offsets = struct.Struct("<ii").pack


def encode_one(payload: bytes, fields: Fields | None = None) -> bytes | bytearray:
    """A block of one message. The payload's size must have been checked (`check_payload`)."""
    return checked_one(payload, fields)[1]


def checked_one(payload: bytes, fields: Fields | None) -> tuple[int, bytes | bytearray]:
    """A block of one message, with its checksum before it."""
    if len(payload) > COPY_TWICE_BYTES or (fields is not None and fields.columns):
        data = _encode_large(payload, fields)
        return _checksum_of(data)[0], data
    sum_, body = plain_one(payload)
    return sum_, _pack_checksum(sum_) + body


def plain_one(payload: bytes) -> tuple[int, bytes]:
    """The block of a message with no more than a small payload: its checksum, what follows that."""
    size = len(payload)
    body = (
        _pack_plain(PLAIN_ONE_START, (HEADER_BYTES + 15 + size) & ~7, size, size)
        + payload
        + PADDING[size & 7]
    )
    return checksum(body), body


def payload_of_one(data: bytes | bytearray | memoryview, expected_checksum: int) -> bytes | None:
    """The payload of a plain block of one message, verified as a whole block is.

    None for any other block, and for one that is damaged or has another checksum.
    """
    if len(data) < _PLAIN_BYTES:
        return None
    stored, start, length, size, first, end = _unpack_plain(data)
    if (
        stored != expected_checksum
        or start != PLAIN_ONE_START
        or length != len(data)
        or length != (_PLAIN_BYTES + 7 + size) & ~7
        or first
        or end != size
    ):
        return None
    body = data[CHECKSUM_BYTES:] if size < COPY_TWICE_BYTES else memoryview(data)[CHECKSUM_BYTES:]
    if checksum(body) != stored:
        return None
    payload = data[_PLAIN_BYTES : _PLAIN_BYTES + size]
    return payload if type(payload) is bytes else bytes(payload)


def seal(parts: Iterable[bytes | bytearray | memoryview]) -> bytearray:
    """The parts as one buffer with its checksum put in its first bytes."""
    data = bytearray().join(parts)
    CHECKSUM.pack_into(data, 0, checksum(memoryview(data)[CHECKSUM_BYTES:]))
    return data


def encode_streamed(stream: Stream, fields: Fields | None = None) -> bytearray:
    """The block of one message whose payload is a stream."""
    sections: list[bytes] = [] if fields is None else _sections(fields)
    columns = Column.STREAM if fields is None else fields.columns | Column.STREAM
    return _seal_one(b"", columns, [*sections, STREAM.pack(*stream)])


def _encode_large(payload: bytes, fields: Fields | None) -> bytearray:
    """A block of a message that is not copied twice, or has more than a payload."""
    if fields is not None and fields.columns:
        return _seal_one(payload, fields.columns, _sections(fields))
    size = len(payload)
    head = _pack_plain(PLAIN_ONE_START, (HEADER_BYTES + 15 + size) & ~7, size, size)
    return seal([bytes(CHECKSUM_BYTES), head, payload, PADDING[size & 7]])


def _sections(fields: Fields) -> list[bytes]:
    """Return the sections of the columns that the message has."""
    columns = fields.columns
    sections: list[bytes] = []
    if columns & Column.PRIORITY:
        sections.append(_pack_small(fields.priority or 0))
    if columns & Column.GROUP:
        sections.append(_pack_small(fields.group))
    if fields.expires_at is not None:
        sections.append(_pack_time(fields.expires_at))
    if fields.deliver_at is not None:
        sections.append(_pack_time(fields.deliver_at))
    for value in (fields.sender, fields.correlation_id, fields.reply_to, fields.content_type):
        if value is not None:
            text = value.encode()
            sections += (b"", _pack_offsets(0, len(text)), text)
    if columns & Column.ATTRIBUTES:
        sections.append(_pack_offsets(0, len(fields.attributes)))
        for strings in (fields.attributes, fields.attributes.values()):
            texts = [text.encode() for text in strings]
            offsets = (0, *accumulate(map(len, texts)))
            sections += (struct.pack(f"<{len(offsets)}i", *offsets), b"".join(texts))
    return sections


def _seal_one(payload: bytes, columns: int, sections: list[bytes]) -> bytearray:
    lengths = list(map(len, sections))
    size = len(payload)
    length = HEADER_BYTES + TABLE_ENTRY_BYTES * len(lengths) + 8 + padded(size)
    parts = [
        b"",
        struct.pack(f"<{len(lengths)}Q", *lengths),
        _pack_offsets(0, size),
    ]
    for section in sections:
        padding = PADDING[len(section) & 7]
        length += len(section) + len(padding)
        parts += (section, padding)
    parts += (payload, PADDING[size & 7])
    parts[0] = HEADER.pack(0, MAGIC, VERSION, 0, columns, 1, length, size)
    return seal(parts)
