"""The puts of a remote transaction that wait at the client, by queue and in put order.

Messages wait as builders of blocks, blocks as they were given, files that are to be adopted as
their ids. The owner alone knows how many messages such a file holds; it tells with the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa

from quire.arguments import Bytes
from quire.block import BlockBuilder, check_block
from quire.errors import RemoteError, TransactionError
from quire.limits import MAX_LTDS_BLOCK_BYTES
from quire.ltds import check_foreign
from quire.message import Fields
from quire.message_id import MessageId, MessageIds
from quire.transaction import Payloads

from .limits import SEND_AHEAD_BYTES
from .results import read_list

ADOPTED_BYTES: Final = 64  # what the id of a file takes in a request, about
_ARROW: Final = (pa.Array, pa.ChunkedArray, pa.RecordBatch, pa.Table)


class Run:
    """Messages put one after another into one queue, and their first id once there is one."""

    def __init__(self, count: int | None = 0) -> None:
        self.count = count  # None: a file's, before the commit
        self.first_id = 0


class AdoptedIds(MessageIds):
    """The ids of a file's messages; how many they are is known after the commit."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        super().__init__(run, 0, 0)
        self._run = run

    def __len__(self) -> int:
        if self._run.count is None:
            raise TransactionError(
                "how many messages the file holds is known once its transaction has committed"
            )
        return self._run.count

    def __repr__(self) -> str:
        return f"AdoptedIds({'not committed' if self._run.count is None else self._run.count})"


class PutRequest(NamedTuple):
    """What goes to the owner at once, as a frame names it: see `protocol`."""

    puts: list[tuple[str, int | None]]
    bodies: list[Bytes]


Waiting = BlockBuilder | bytes | int  # messages, a block, a file


class PutBuffer:
    """Bounded by its user, who takes what waits when `is_full`."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Waiting]] = {}
        self._runs: dict[str, list[Run]] = {}
        self._waiting_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    @property
    def is_full(self) -> bool:
        """Whether it is time to send what waits."""
        return self._waiting_bytes >= SEND_AHEAD_BYTES

    def put(self, queue: str, payload: Bytes, fields: Mapping[str, object]) -> MessageId:
        """Keep one message."""
        builder = self._builder(queue)
        before = builder.charge_bytes
        builder.add(payload, Fields.of(**fields) if fields else None)
        return self._keep(queue, builder, builder.charge_bytes - before, 1)[0]

    def put_many(self, queue: str, payloads: Payloads) -> MessageIds:
        """Keep the messages of a list, an array or a batch."""
        builder = self._builder(queue)
        before = builder.charge_bytes
        if isinstance(payloads, _ARROW):
            count = builder.add_arrow(payloads)
        else:
            count = builder.add_many(payloads)
        return self._keep(queue, builder, builder.charge_bytes - before, count)

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        """Keep the messages of a block. Raises InvalidArgument for what is none."""
        data = bytes(data) if isinstance(data, bytearray | memoryview) else data
        count = check_block(data).count
        return self._keep(queue, data, len(data), count)

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        """Note a file's messages. Raises InvalidArgument for what is no file's id."""
        run = Run(None)
        self._keep(queue, check_foreign(ltds_id), ADOPTED_BYTES, 0)
        self._runs[queue] += (run, Run())
        return AdoptedIds(run)

    def requests(self) -> Iterator[PutRequest]:
        """What waits, in requests of about `SEND_AHEAD_BYTES`.

        Blocks are made when they are asked for. From the first one on nothing waits.
        """
        waiting = [(queue, item) for queue, items in self._waiting.items() for item in items]
        self.clear()
        request = PutRequest([], [])
        size = 0
        for queue, item in waiting:
            for part in _parts(item):
                more = ADOPTED_BYTES if isinstance(part, int) else len(part)
                if size and size + more > SEND_AHEAD_BYTES:
                    yield request
                    request, size = PutRequest([], []), 0
                size += more
                if isinstance(part, int):
                    request.puts.append((queue, part))
                else:
                    request.puts.append((queue, None))
                    request.bodies.append(part)
        if size:
            yield request

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting = {}
        self._waiting_bytes = 0

    def settle(self, placed: Mapping[str, object]) -> None:
        """The transaction committed: within a queue, its messages have ids in one run."""
        for queue, numbers in placed.items():
            next_id, *counts = read_list(int, numbers) or [0]
            runs = self._runs.get(queue, [])
            if len(counts) != sum(run.count is None for run in runs):
                raise RemoteError(f"the owner's answer tells other puts into {queue!r:.100}")
            for run in runs:
                if run.count is None:
                    run.count = counts.pop(0)
                run.first_id = next_id
                next_id += run.count

    def _builder(self, queue: str) -> BlockBuilder:
        """The one to go on with."""
        waiting = self._waiting.get(queue)
        last = waiting[-1] if waiting else None
        return last if isinstance(last, BlockBuilder) else BlockBuilder()

    def _keep(self, queue: str, item: Waiting, charge: int, count: int) -> MessageIds:
        """Let it wait, if it does not yet and is not empty; the ids of its new messages."""
        if count or isinstance(item, int):
            waiting = self._waiting.setdefault(queue, [])
            if not (isinstance(item, BlockBuilder) and waiting and waiting[-1] is item):
                waiting.append(item)
        self._waiting_bytes += charge
        runs = self._runs.setdefault(queue, [Run()])
        start = runs[-1].count or 0
        runs[-1].count = start + count
        return MessageIds(runs[-1], start, count)


def _parts(item: Waiting) -> Iterator[Bytes | int]:
    if isinstance(item, BlockBuilder):
        for block in item.blocks(MAX_LTDS_BLOCK_BYTES):
            yield block.data
    else:
        yield item
