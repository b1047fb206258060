"""Digests of rows: whether a write that is repeated has the rows that it had.

The digest of a queue's rows is a sum over them: it does not depend on their order, nor on the
    tasks and batches in which they come. It contains all columns but those that the store sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from quire.checksum import checksum
from quire.libraries import np, pa, pc
from quire.spark_graphs.schema import SET_BY_STORE

from .row_sink import without_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Digests = NDArray[np.uint64]

_MASK = (1 << 64) - 1


class ContentDigests:
    """The digests of what a task writes, by queue."""

    def __init__(self, queue: str | None) -> None:
        """`queue`: where all rows go; by default each goes where its column `queue` says."""
        self._queue = queue
        self.by_queue: dict[str, int] = {}

    def passed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand on the batches, and add their rows."""
        for batch in batches:
            self._add(batch)
            yield batch

    def _add(self, batch: pa.RecordBatch) -> None:
        digests = row_digests(without_columns(batch, {"queue", *SET_BY_STORE}))
        if self._queue is not None:
            self._add_to(self._queue, digests)
            return
        names = batch.column("queue")
        for name in names.unique().drop_null().to_pylist():
            self._add_to(name, digests[np.asarray(pc.equal(names, name).fill_null(False))])

    def _add_to(self, queue: str, digests: Digests) -> None:
        if len(digests):
            total = self.by_queue.get(queue, 0) + int(digests.sum(dtype=np.uint64))
            self.by_queue[queue] = total & _MASK


def sum_of_digests(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the digests of all tasks together, by queue."""
    found: dict[str, int] = {}
    for part in parts:
        for queue, digest in part.items():
            found[queue] = (found.get(queue, 0) + digest) & _MASK
    return found


def row_digests(batch: pa.RecordBatch) -> Digests:
    """Return a digest of each row, whatever the order of the columns."""
    found = np.full(batch.num_rows, 0x9E3779B97F4A7C15, np.uint64)
    for name, column in sorted(zip(batch.schema.names, batch.columns, strict=True), key=_name):
        found = _mixed(found ^ np.uint64(checksum(name.encode()))) + _values(column)
    return _mixed(found)


def _name(item: tuple[str, pa.Array]) -> str:
    return item[0]


def _values(column: pa.Array) -> Digests:
    """Return a number for each value; null has one of its own."""
    types = pa.types
    if column.null_count == len(column):
        return np.zeros(len(column), np.uint64)
    if types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if types.is_primitive(column.type) and column.type.bit_width <= 64:
        _, data = column.buffers()
        unsigned = np.dtype(f"u{column.type.bit_width // 8}")
        found = np.frombuffer(data, unsigned)[column.offset : column.offset + len(column)]
        found = _mixed(found.astype(np.uint64) + np.uint64(1))
    else:
        values = column.to_pylist()
        if types.is_string(column.type) or types.is_large_string(column.type):
            hashed = (0 if value is None else checksum(value.encode()) for value in values)
        elif types.is_binary(column.type) or types.is_large_binary(column.type):
            hashed = (0 if value is None else checksum(value) for value in values)
        else:  # decimals, lists, structs, maps
            hashed = (checksum(repr(value).encode()) for value in values)
        found = np.fromiter(hashed, np.uint64, len(column))
    if column.null_count:
        found = np.where(np.asarray(column.is_valid()), found, np.uint64(0))
    return found


def _mixed(values: Digests) -> Digests:
    """Return each value with its bits spread over all others (the end of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
