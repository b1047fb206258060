"""The messages of a queue's record, for a dump: headers, and how payloads begin.

- DM1: only what its record's checksum covers is shown; a block that fails it is a finding, and
  those of a large transaction's file behind it are still listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from quire.block import Block
from quire.dump_items import Described, Finding
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.limits import PAYLOAD_START_BYTES
from quire.message import MESSAGE_SCHEMA, Message
from quire.typed_message import TypedMessage, value_json

from .queue_state import QueueState
from .source import UNREADABLE, Source

_NOT_SHOWN: Final = {"id", "time", "payload", "delivery_count"}
_FIELDS: Final = tuple(name for name in MESSAGE_SCHEMA.names if name not in _NOT_SHOWN)


def list_messages(
    source: Source, queue: QueueState, ref: BlockRef, start: int
) -> Iterator[Described | Finding]:
    """The messages of the record from the position on."""
    if ref.kind == format.LTDS:
        yield from _large(source, queue, ref, start)
        return
    if queue.released_of(ref) == ref.count:
        return  # its place may be used again
    try:
        yield from _of_block(queue, ref, source.block(ref), 0, start)
    except UNREADABLE as error:
        place = source.place(ref)
        lost = f"the messages at positions {ref.position} to {ref.end - 1}"
        yield Finding.of(place.file, source.offset(place), error, lost)


def _large(
    source: Source, queue: QueueState, ref: BlockRef, start: int
) -> Iterator[Described | Finding]:
    file = source.place(ref).file
    try:
        reader = source.large(ref.address)
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
) -> Iterator[Described]:
    position, first_id = ref.position + first, ref.first_id + first
    of_queue = {"queue_id": queue.queue_id, "queue": queue.name}
    for row in range(max(start - position, 0), block.count):
        message = block.message(
            row, queue=queue.title, first_id=first_id, time_us=ref.time_us, delivery_count=0
        )
        size, beginning = message.size, _beginning(message)
        if isinstance(message, TypedMessage):
            shown = json.dumps(value_json(message), ensure_ascii=False).encode()
            size, beginning = len(shown), shown[:PAYLOAD_START_BYTES]
        values = {name: getattr(message, name) for name in _FIELDS}
        said: dict[str, Any] = {
            "position": position + row,
            "id": int(message.id),
            "time_us": message.time,
            "released": queue.released.contains(position + row),
            # Those of the header that are not absent.
            "fields": {name: value for name, value in values.items() if value not in (None, 0, {})},
            "payload_bytes": size,
            "payload_start": beginning,
        }
        yield Described("message", of_queue | said)


def _beginning(message: Message) -> bytes:
    """How the payload begins; nothing where that is damaged."""
    try:
        return message.open().read(PAYLOAD_START_BYTES)
    except UNREADABLE:
        return b""
