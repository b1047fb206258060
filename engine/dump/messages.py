"""The messages of a queue's record, for a dump: headers, and how payloads begin.

- DM1: only what its record's checksum covers is shown; a block that fails it is a finding, and
  those of a large transaction's file behind it are still listed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from quire.block import Block
from quire.dump_items import Described, Finding
from quire.engine.reading.messages_of import messages_of
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
    for read, which in _blocks(source, queue, ref, start):
        try:
            block, first = read()
            for position, message in messages_of(block, first, ref, start, ref.end, queue.title):
                yield _item(queue, position, message)
        except UNREADABLE as error:
            yield source.unreadable(ref, error, f"the messages {which}")


def _blocks(
    source: Source, queue: QueueState, ref: BlockRef, start: int
) -> Iterator[tuple[Callable[[], tuple[Block, int]], str]]:
    """What reads each, with the number of its first message in the record; which it is."""
    if ref.kind != format.LTDS:
        if queue.released_of(ref) < ref.count:  # else its place may be used again
            yield lambda: (source.block(ref), 0), f"at positions {ref.position} to {ref.end - 1}"
        return
    try:
        reader = source.large(ref.address)
    except UNREADABLE:
        return  # `check_large_file` has told it
    with reader:
        within = max(start - ref.position, 0)
        first = reader.locate(within) if within < reader.count else reader.block_count
        for number in range(first, reader.block_count):
            yield partial(reader.block_at, number), f"of block {number} of {reader.block_count}"


def _item(queue: QueueState, position: int, message: Message) -> Described:
    if isinstance(message, TypedMessage):
        shown = json.dumps(value_json(message), ensure_ascii=False).encode()
        size, beginning = len(shown), shown[:PAYLOAD_START_BYTES]
    else:
        size, beginning = message.size, _beginning(message)
    values = {name: getattr(message, name) for name in _FIELDS}
    said: dict[str, Any] = {
        "queue_id": queue.queue_id,
        "queue": queue.name,
        "position": position,
        "id": int(message.id),
        "time_us": message.time,
        "released": queue.durable.released.contains(position),
        # Those of the header that are not absent.
        "fields": {name: value for name, value in values.items() if value not in (None, 0, {})},
        "payload_bytes": size,
        "payload_start": beginning,
    }
    return Described("message", said)


def _beginning(message: Message) -> bytes:
    """How the payload begins; nothing where that is damaged."""
    try:
        return message.open().read(PAYLOAD_START_BYTES)
    except UNREADABLE:
        return b""
