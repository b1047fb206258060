"""What connectors put and read in a joined transaction: see `quire.integration`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from quire.arguments import Bytes, check_blocks
from quire.call_table import CallRow, by_row
from quire.documented import documented_by
from quire.integration import TransactionIntegration
from quire.message_id import MessageIds
from quire.single_calls import Namespace
from quire.uninterrupted import call

from .limits import TELL_BYTES

if TYPE_CHECKING:
    from .remote_transaction import RemoteTransaction


@documented_by(TransactionIntegration)
class JoinedTransactionIntegration(Namespace):
    """Of a `RemoteTransaction`."""

    __slots__ = ()
    _of: RemoteTransaction

    read_to_many = by_row(TransactionIntegration.read_to_many, "integration")

    def make(self, row: CallRow, given: Mapping[str, object]) -> Any:
        return self._of.make(row, given)

    @call
    def put_block(self, queue: str, data: Bytes) -> MessageIds:
        with self._of._lock:
            queue = self._of._check_put(queue)
            ids = self._of._puts.put_block(queue, data)
            if not self._of._puts.knows(queue):
                self._of._announce(queue)
            return ids

    @call
    def put_blocks(self, blocks: Iterable[tuple[str, Bytes]]) -> list[MessageIds]:
        made = []
        for some in _some_at_once(check_blocks(blocks)):
            with self._of._lock:
                self._of._check_open()
                names = self._of._own_names([queue for queue, _ in some])
                self._of._check_streams(names.values())
                for queue, data in some:
                    self._of._check_full()
                    made.append(self._of._puts.put_block(names[queue], data))
                if self._of._puts.waits:
                    self._of._announce(None)
        return made

    @call
    def adopt(self, queue: str, ltds_id: int) -> MessageIds:
        with self._of._lock:
            queue = self._of._check_put(queue)
            ids = self._of._puts.adopt(queue, ltds_id)
            if not self._of._puts.knows(queue):
                self._of._announce(queue)
            return ids


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
