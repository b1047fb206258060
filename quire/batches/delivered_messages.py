"""The messages that a get returns: of one queue, in the order of their delivery."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, overload

from quire.block import StreamedBlock
from quire.libraries import pa
from quire.messages.message import Message
from quire.rows.row_block import no_rows

from .arrow_batch import slices_to_arrow, with_payload
from .delivered_slice import Delivered


class Messages(Sequence[Message]):
    """Messages of one queue in delivery order; `Message` objects are made when asked for."""

    __slots__ = ("_ends", "_slices", "queue", "schema")

    def __init__(
        self, queue: str, slices: Sequence[Delivered] = (), schema: str | None = None
    ) -> None:
        """`schema`: of the typed queue that there may be no messages of."""
        self.queue = queue
        self.schema = schema
        self._slices = [part for part in slices if part.start < part.stop]
        self._ends = list(accumulate(part.stop - part.start for part in self._slices))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: int | slice) -> Message | Messages:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return Messages(self.queue, self._narrow(start, stop), self.schema)
            rows = range(start, stop, step)
            parts = [self._narrow(row, row + 1)[0] for row in rows]
            return Messages(self.queue, parts, self.schema)
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"message {index} of {size}")
        part = self._narrow(index % size, index % size + 1)[0]
        return part.message(self.queue, part.start)

    def __iter__(self) -> Iterator[Message]:
        for part in self._slices:
            for row in range(part.start, part.stop):
                yield part.message(self.queue, row)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, (str, bytes)):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied, or pickled for another process, they are a list of `Message`."""
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"Messages(queue={self.queue!r}, {len(self)} messages)"

    @property
    def slices(self) -> Sequence[Delivered]:
        """The runs of messages in their blocks, for readers of columns."""
        return self._slices

    @property
    def ids(self) -> list[int]:
        """The ids of all messages, in their order."""
        ids: list[int] = []
        for part in self._slices:
            ids += part.block.ids(part.first_id, part.start, part.stop).tolist()
        return ids

    def payloads(self) -> list[bytes]:
        """Return the payloads of all messages, in their order; no `Message` is made for it."""
        payloads: list[bytes] = []
        for part in self._slices:
            payloads += part.block.payloads(part.start, part.stop)
        return payloads

    def to_arrow(self) -> pa.RecordBatch:
        """Return one batch of `MESSAGE_SCHEMA` with its own memory.

        Of a typed queue its columns, and the header as the column `_meta`. Raises `InvalidArgument`
        above 2 GiB, which one batch cannot hold.
        """
        if self.schema is not None and not self._slices:
            return no_rows(self.schema, self.queue)
        return slices_to_arrow(self._slices, queue=self.queue)

    def _narrow(self, start: int, stop: int) -> list[Delivered]:
        """The slices of the messages from `start` to `stop`."""
        parts = []
        number = bisect_right(self._ends, start)
        while start < stop:
            part = self._slices[number]
            first = self._ends[number] - (part.stop - part.start)
            end = min(stop, self._ends[number])
            parts.append(
                part._replace(start=part.start + start - first, stop=part.start + end - first)
            )
            start = end
            number += 1
        return parts


def with_payloads(messages: Messages) -> Messages:
    """The messages with all payloads in memory. Raises InvalidArgument above 1 GiB."""
    if any(isinstance(part.block, StreamedBlock) for part in messages.slices):
        return Messages(messages.queue, list(map(with_payload, messages.slices)), messages.schema)
    return messages
