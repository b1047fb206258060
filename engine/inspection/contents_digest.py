"""A digest of all messages: equal where the same messages stand in the same order.

- It covers each message that is not released, by queue and position, with id, time, header and
  payload, and what prepared transactions hold, by xid; but for volatile queues. It says nothing of
  blocks, pages and files. So two stores that have folded the same records have the same digest,
  whatever their page size, data files and checkpoints (see `state_hash`, HS1).
- VF2: it is of one moment, though commits go on: while it is made no checkpoint is, released pages
  are not used again, and released files stay.
- It takes memory for a record page, a block, and a part of a streamed payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from quire.engine.checkpoints.background_pace import Pace
from quire.engine.checkpoints.snapshot import QueueSnapshot
from quire.engine.queues.prepared_transactions import ref_of
from quire.engine.reading.block_messages import messages_of
from quire.engine.reading.block_reader import BlockReader
from quire.engine.records import format
from quire.engine.records.block_ref import BlockRef
from quire.engine.records.prepared_record import PrepareRecord
from quire.engine.transactions.context import Context
from quire.libraries import pa
from quire.libraries.late_imports import importing
from quire.limits import CHUNK_BYTES
from quire.messages.message import MESSAGE_COLUMNS, Message
from quire.messages.typed_message import TypedMessage

_SEPARATE: Final = ("payload", "delivery_count", "attributes")  # the others are told as they are
_HEADER: Final = tuple(name for name in MESSAGE_COLUMNS if name not in _SEPARATE)


class Contents(Struct, frozen=True):
    """The messages at one moment. They stay until `let_go`, with checkpoints paused (VF2)."""

    context: Context
    queues: list[QueueSnapshot]
    prepared: list[PrepareRecord]
    files: list[int]

    @classmethod
    def hold(cls, context: Context) -> Contents:
        """Called while nothing is committed (see `Sequencer.exclusive`)."""
        state, places = context.state, context.places
        queues = [QueueSnapshot.of(q) for q in state.queues.values() if not q.is_volatile]
        prepared = list(state.durable.prepared.values())
        places.withhold()
        return cls(context, queues, prepared, places.pin_files())

    def let_go(self) -> None:
        self.context.places.unpin_files(self.files)
        self.context.places.hand_back()

    def digest(self) -> str:
        """Return the digest in hexadecimal. Raises BlockMoved, StoreCorrupt, OSError for damage."""
        with importing():
            from hashlib import blake2b  # which loads OpenSSL

        digest = blake2b(digest_size=16)
        pace = Pace(self.context.env, self.context.sequencer)
        for whose, message in pace.over(self._messages()):
            digest.update(json.dumps([*whose, *_message_values(message)], sort_keys=True).encode())
            if not isinstance(message, TypedMessage):
                with message.open() as payload:
                    while piece := payload.read(CHUNK_BYTES):
                        digest.update(piece)
        return digest.hexdigest()

    def _messages(self) -> Iterator[tuple[tuple[int, str, int], Message]]:
        """Each message, behind its queue's number, the xid that holds it, and its position."""
        for queue in sorted(self.queues, key=lambda queue: queue.queue.queue_id):
            number = queue.queue.queue_id
            for ref in _records(queue):
                for start, stop in queue.released.gaps(ref.position, ref.end):
                    for position, message in _of_record(self.context.reader, ref, start, stop):
                        yield (number, "", position), message
        for record in sorted(self.prepared, key=lambda record: record.xid):
            first = 0
            for part in record.parts:
                ref = ref_of(part)._replace(position=first, first_id=first)
                for position, message in _of_record(self.context.reader, ref, first, ref.end):
                    yield (part.queue_id, record.xid, position), message
                first = ref.end


def _records(queue: QueueSnapshot) -> Iterator[BlockRef]:
    """Pages that have gone out of use since are there until the next checkpoint (L4)."""
    records = queue.queue.records
    for entry in queue.directory:
        yield from records.read_page(entry)
    yield from records.tail.between(0, queue.tail)


def _of_record(
    reader: BlockReader, ref: BlockRef, start: int, stop: int
) -> Iterator[tuple[int, Message]]:
    """The record's messages from position `start` to `stop`."""
    if ref.kind != format.LTDS:
        yield from messages_of(reader.read(ref), 0, ref, start, stop)
        return
    with reader.ltds(ref) as file:
        for number in range(file.locate(start - ref.position), file.block_count):
            block, first = file.block_at(number)
            if ref.position + first >= stop:
                return
            yield from messages_of(block, first, ref, start, stop)


def _message_values(message: Message) -> list[Any]:
    """Header, and the size of the payload, or a row's values."""
    header = [getattr(message, name) for name in _HEADER]
    if not isinstance(message, TypedMessage):
        content: int | Mapping[str, Any] = message.size
    else:
        row = message.row
        values = {n: _plain(c[0]) for n, c in zip(row.schema.names, row.columns, strict=True)}
        # Columns that a queue got later are null in blocks that were merged since, or missing.
        content = {name: value for name, value in values.items() if value is not None}
    return [*header, dict(message.attributes), content]


def _plain(value: pa.Scalar) -> Any:
    """A value as JSON has it; times in the units that are stored, whatever Python could show."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: _plain(value[name]) for name in value}
    if isinstance(value, pa.ListScalar):  # maps are lists of pairs
        return [_plain(each) for each in value.values]
    if isinstance(value, (pa.TimestampScalar, pa.Date32Scalar)):
        return value.value
    plain = value.as_py()
    return plain if isinstance(plain, (bool, int, float, str)) else str(plain)
