"""The puts of a remote transaction that wait at the client, as blocks by queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import pyarrow as pa

from quire.block import BlockBuilder
from quire.engine.message_id import MessageId, MessageIds
from quire.limits import MAX_LTDS_BLOCK_BYTES
from quire.message import Fields

from .protocol import SEND_AHEAD_BYTES, Bytes

_ARROW: Final = (pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table)


class Placed:
    """What a transaction has put into one queue: how much, and its first id after the commit."""

    def __init__(self) -> None:
        self.count = 0
        self.first_id = 0

    def ids(self, count: int) -> MessageIds:
        """The ids of the next `count` messages."""
        start = self.count
        self.count += count
        return MessageIds(cast(Any, self), start, count)


class PutBuffer:
    """Messages in put order; bounded by its user, who takes them when `is_full`."""

    def __init__(self) -> None:
        self._builders: dict[str, BlockBuilder] = {}
        self._placed: dict[str, Placed] = {}
        self._charge_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._builders

    @property
    def is_full(self) -> bool:
        """Whether it is time to send what waits."""
        return self._charge_bytes >= SEND_AHEAD_BYTES

    def put(self, queue: str, payload: Bytes, fields: Mapping[str, Any]) -> MessageId:
        """Keep one message."""
        builder = self._builders.get(queue) or BlockBuilder()
        before = builder.charge_bytes
        builder.add(payload, Fields.of(**fields) if fields else None)
        return self._keep(queue, builder, before, 1)[0]

    def put_many(self, queue: str, payloads: Any) -> MessageIds:
        """Keep the messages of a list, an array or a batch."""
        builder = self._builders.get(queue) or BlockBuilder()
        before = builder.charge_bytes
        if isinstance(payloads, _ARROW):
            count = builder.add_arrow(payloads)
        else:
            count = builder.add_many(payloads)
        return self._keep(queue, builder, before, count)

    def add_taken(self, queue: str, count: int) -> MessageIds:
        """Count messages that the owner took without their coming through here."""
        return self._placed.setdefault(queue, Placed()).ids(count)

    def requests(self) -> Iterator[tuple[list[str], list[Bytes]]]:
        """What waits, as blocks and the queue of each, in requests of about `SEND_AHEAD_BYTES`.

        Blocks are made when they are asked for. From the first one on nothing waits.
        """
        builders, self._builders = self._builders, {}
        self.clear()
        queues: list[str] = []
        bodies: list[Bytes] = []
        size = 0
        for queue, builder in builders.items():
            for block in builder.blocks(MAX_LTDS_BLOCK_BYTES):
                if queues and size + len(block.data) > SEND_AHEAD_BYTES:
                    yield queues, bodies
                    queues, bodies, size = [], [], 0
                queues.append(queue)
                bodies.append(block.data)
                size += len(block.data)
        if queues:
            yield queues, bodies

    def clear(self) -> None:
        """Forget what waits."""
        self._builders.clear()
        self._charge_bytes = 0

    def set_ids(self, first_ids: Mapping[str, int]) -> None:
        """The transaction committed: within a queue, its messages have ids in one run."""
        for queue, first_id in first_ids.items():
            self._placed[queue].first_id = first_id

    def _keep(self, queue: str, builder: BlockBuilder, before: int, count: int) -> MessageIds:
        if count:
            self._builders[queue] = builder
        self._charge_bytes += builder.charge_bytes - before
        return self._placed.setdefault(queue, Placed()).ids(count)
