"""Puts and reads of connectors in a transaction of this process: see `interface.integration`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from quire.arguments import Bytes, check_blocks, check_ends
from quire.calls.call_table import Subject
from quire.calls.documented import documented_by
from quire.engine.commits.adoptions import FileCheck
from quire.interface.integration import TransactionIntegration
from quire.messages.message_id import MessageIds

from .reads import TransactionReads
from .writes import TransactionWrites

R = TypeVar("R")


class Steps(Protocol):
    """A transaction, as far as this is concerned."""

    def putting(self, action: Callable[[TransactionWrites], R], timeout: float | None = None) -> R:
        """Put something."""

    def getting(self, action: Callable[[TransactionReads], R]) -> R:
        """Do something with what it has got."""


@documented_by(TransactionIntegration)
class EmbeddedTransactionIntegration(Subject):
    """The integration calls of an `EmbeddedTransaction`."""

    __slots__ = ()
    _of: Steps

    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        return self._of.putting(lambda writes: writes.put_block(queue, data))

    def put_blocks(self, blocks: Iterable[tuple[str, Bytes]]) -> list[MessageIds]:
        return [self.put_block(queue, data) for queue, data in check_blocks(blocks)]

    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        return self._of.putting(lambda writes: writes.adopt_file(queue, ltds_id))

    def adopt_checked(self, queue: str, ltds_id: int, check: FileCheck | None) -> MessageIds:
        """Adopt a file, which is checked first: nothing changes it from then on."""
        return self._of.putting(lambda writes: writes.adopt_file(queue, ltds_id, check))

    def read_to_many(self, positions: Mapping[str, int]) -> dict[str, int]:
        checked = check_ends(positions)
        return self._of.getting(lambda reads: reads.read_to(checked))
