"""Messages of one block that were delivered together."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from quire.block import Block
from quire.messages.message import MISSING, Message


class Delivered(NamedTuple):
    """A slice of a block that was delivered. Message `i` of the block has the id `first_id + i`."""

    block: Block
    start: int
    stop: int
    first_id: int
    time_us: int
    delivery_count: int
    failed_count: int | None = None  # how many of those failed; None: all but this one
    missing: int | None = None  # messages of its sequence before it; -1: perhaps, None: none

    def looked_at(self) -> Delivered:
        """The same for who looks, to whom nothing is delivered."""
        return self._replace(delivery_count=0, failed_count=0)

    def message(self, queue: str, row: int) -> Message:
        """Return a message of the slice, with the attribute that tells what is missing."""
        message = self.block.message(
            row,
            queue=queue,
            first_id=self.first_id,
            time_us=self.time_us,
            delivery_count=self.delivery_count,
            failed_count=self.failed_count,
        )
        if self.missing is not None:
            missing = "unknown" if self.missing < 0 else str(self.missing)
            attributes = MappingProxyType({**message.attributes, MISSING: missing})
            object.__setattr__(message, "attributes", attributes)  # nobody has seen it yet
        return message
