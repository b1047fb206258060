"""The messages of a queue's record, for a dump: headers, and how payloads begin.

- DM1: only what its record's checksum covers is shown; a block that fails it is a finding, and
  those of a large transaction's file behind it are still listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from quire.block import Block
from quire.dump_items import Finding, MessageItem
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.limits import PAYLOAD_START_BYTES
from quire.ltds import LtdsReader
from quire.message import MESSAGE_SCHEMA, Message
from quire.typed_message import TypedMessage, value_json

from .queue_state import QueueState
from .source import UNREADABLE, Source

_NOT_SHOWN: Final = {"id", "time", "payload", "delivery_count", "attributes"}
_FIELDS: Final = tuple(n for n in MESSAGE_SCHEMA.names if n not in _NOT_SHOWN)


def list_messages(
    source: Source, queue: QueueState, ref: BlockRef, start: int, moved_on: Callable[[], bool]
) -> Iterator[MessageItem | Finding]:
    """The messages of the record from the position on."""
    if ref.kind == format.LTDS:
        yield from _large(source, queue, ref, start)
        return
    if queue.released_of(ref) == ref.count:
        return  # its place may be used again
    try:
        block = source.block(ref)
    except UNREADABLE as error:
        yield _unreadable(source, ref, error, moved_on())
        return
    yield from _of_block(queue, ref, block, 0, start)


def _unreadable(source: Source, ref: BlockRef, error: BaseException, moved_on: bool) -> Finding:
    place = source.place(ref)
    lost = f"the messages at positions {ref.position} to {ref.end - 1}"
    file, offset = place.file, place.address or 0
    if ref.kind == format.INLINE:
        offset %= source.geometry.segment_bytes
    if not moved_on:
        return Finding.of(file, offset, error, lost)
    text = (
        f"{lost}: not at this place any more; the store went on meanwhile: they were moved or"
        " released, or they are damaged, which `verify` tells"
    )
    return Finding(file, offset, False, text)


def _large(
    source: Source, queue: QueueState, ref: BlockRef, start: int
) -> Iterator[MessageItem | Finding]:
    file = source.place(ref).file
    try:
        reader = LtdsReader(source.env, source.layout.ltds, ref.address, source.geometry.store_id)
    except UNREADABLE:
        return  # `check_large_file` has told it
    with reader:
        first_block = reader.chunk_count
        if start > ref.position and start - ref.position < reader.count:
            first_block = reader.locate(start - ref.position)
        for number in range(first_block, reader.block_count):
            try:
                block, first = reader.block_at(number)
            except UNREADABLE as error:
                lost = f"the messages of block {number} of {reader.block_count}"
                yield Finding.of(file, None, error, lost)
                continue
            yield from _of_block(queue, ref, block, first, start)


def _of_block(
    queue: QueueState, ref: BlockRef, block: Block, first: int, start: int
) -> Iterator[MessageItem]:
    position = ref.position + first
    for row in range(max(start - position, 0), block.count):
        message = block.message(
            row,
            queue=queue.name or "",
            first_id=ref.first_id + first,
            time_us=ref.time_us,
            delivery_count=0,
        )
        size, beginning = message.size, _beginning(message)
        if isinstance(message, TypedMessage):
            shown = json.dumps(value_json(message), ensure_ascii=False).encode()
            size, beginning = len(shown), shown[:PAYLOAD_START_BYTES]
        yield MessageItem(
            queue.queue_id,
            queue.name,
            position + row,
            int(message.id),
            message.time,
            queue.released.contains(position + row),
            _fields(message),
            size,
            beginning,
        )


def _beginning(message: Message) -> bytes:
    """How the payload begins; nothing where that is damaged."""
    try:
        return message.open().read(PAYLOAD_START_BYTES)
    except UNREADABLE:
        return b""


def _fields(message: Message) -> dict[str, Any]:
    values = {name: getattr(message, name) for name in _FIELDS}
    shown = {name: value for name, value in values.items() if value not in (None, 0)}
    if message.attributes:
        shown["attributes"] = dict(message.attributes)
    return shown
