"""Puts and reads of connectors in a joined transaction: see `quire.interface.integration`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from quire.arguments import Bytes, check_blocks
from quire.calls.call_table import Makes, Subject, by_row
from quire.calls.documented import documented_by
from quire.calls.signal_safety import call
from quire.interface.integration import TransactionIntegration
from quire.messages.message_id import MessageIds
from quire.remote.limits import TELL_BYTES

from .put_buffer import PutBuffer


class JoinedSteps(Makes, Protocol):
    """A joined transaction, as far as this is concerned."""

    def putting(self, queue: str, put: Callable[[PutBuffer, str], MessageIds]) -> MessageIds:
        """Put something into a queue, which `put` is given by its own name."""

    def keep_blocks(self, blocks: Sequence[tuple[str, Bytes]]) -> list[MessageIds]:
        """Put blocks, each into its queue, and tell of them together."""


@documented_by(TransactionIntegration)
class JoinedTransactionIntegration(Subject):
    """The integration calls of a `JoinedTransaction`."""

    __slots__ = ()
    _of: JoinedSteps

    read_to_many = by_row(TransactionIntegration.read_to_many, "integration")

    @call
    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        return self._of.putting(queue, lambda puts, name: puts.put_block(name, data))

    @call
    def put_blocks(self, blocks: Iterable[tuple[str, Bytes]]) -> list[MessageIds]:
        made = []
        for some in _some_at_once(check_blocks(blocks)):
            made += self._of.keep_blocks(some)
        return made

    @call
    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        return self._of.putting(queue, lambda puts, name: puts.adopt(name, ltds_id))


def _some_at_once(blocks: Iterable[tuple[str, Bytes]]) -> Iterator[list[tuple[str, Bytes]]]:
    """All of them in their order, some `TELL_BYTES` at a time."""
    some: list[tuple[str, Bytes]] = []
    size = 0
    for queue, data in blocks:
        some.append((queue, data))
        size += len(data) if isinstance(data, bytes | bytearray | memoryview) else 0  # a mistake
        if size >= TELL_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
